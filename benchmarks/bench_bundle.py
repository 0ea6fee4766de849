"""A bundle's whole time against the sum of its segments, each measured alone.

    python benchmarks/bench_bundle.py [--device D] [--rounds N] [--pointers]

A stack of convolutions is cut into segments that change between the CPU engine and an accelerator.
The whole and each segment alone are one group, so that they take turns. Prints 10th percentiles,
and what of the whole's time belongs to none of its segments: fails where that is 3 % or more.
"""

from __future__ import annotations

import argparse
import statistics
import sys

import torch
from torch import nn

from nnapi_prof.convert.converted import ConvertedRegion, operand_of
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.device.action import (
    ActionFlag,
    ActionSpec,
    SegmentSpec,
    Source,
    TensorSpec,
    Timing,
)
from nnapi_prof.device.find import open_device
from nnapi_prof.device.request import RequestBuilder
from nnapi_prof.device.results import ActionResult
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import CPU, Preference, Target

N_SEGMENTS = 4
BAR = 0.03


def cut(n_units: int) -> list[tuple[int, ...]]:
    at = [n_units * i // N_SEGMENTS for i in range(N_SEGMENTS + 1)]
    return [tuple(range(a, b)) for a, b in zip(at, at[1:], strict=False)]


def action(
    number: int,
    regions: list[ConvertedRegion],
    targets: list[Target],
    models: list[int],
    args: argparse.Namespace,
) -> ActionSpec:
    """The regions in order; what none of them writes is pseudo-random."""
    index: dict[str, int] = {}
    tensors: list[TensorSpec] = []
    made = {name for region in regions for name in region.outputs}
    segments = []
    for region, target, model in zip(regions, targets, models, strict=True):
        known = (*region.input_types, *region.output_types)
        for name, kind in zip((*region.inputs, *region.outputs), known, strict=True):
            operand = operand_of(kind)
            if name not in index and operand is not None:
                source = Source.SEGMENT if name in made else Source.RANDOM
                index[name] = len(tensors)
                tensors.append(TensorSpec(operand.type, operand.dims, source, 0))
        inputs = tuple(index[name] for name in region.inputs)
        outputs = tuple(index[name] for name in region.outputs)
        segments.append(SegmentSpec.on(target, model, inputs, outputs))
    timing = Timing(
        warmup_min=5,
        warmup_max=40,
        rounds=args.rounds,
        min_runs=10 * args.rounds,
        max_runs=100 * args.rounds,
        budget_ns=1_000_000_000,
    )
    flags = ActionFlag.POINTERS if args.pointers else ActionFlag(0)
    return ActionSpec(number, tuple(tensors), tuple(segments), timing, flags=flags, group=1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="local")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--pointers", action="store_true")
    args = parser.parse_args()
    layers = [nn.Conv2d(32, 32, 3, padding=1) for _ in range(8)]
    stack = nn.Sequential(*(step for layer in layers for step in (layer, nn.ReLU()))).eval()
    program = prepare(stack, (torch.zeros(1, 32, 56, 56),), "stack")
    regions = [convert_region(program, units, 29) for units in cut(len(program.units.units))]
    with open_device(args.device) as opened:
        names = [a.name for a in opened.client.info().nnapi.accelerators]
        fast = Target.nnapi(names[0], Preference.FAST_SINGLE_ANSWER)
        targets = [(CPU, fast)[i % 2] for i in range(N_SEGMENTS)]
        request = RequestBuilder()
        models = [request.add_region(region) for region in regions]
        request.add_action(action(0, regions, targets, models, args))
        for i in range(N_SEGMENTS):
            one = slice(i, i + 1)
            request.add_action(action(1 + i, regions[one], targets[one], models[one], args))
        results = {
            event.action: event
            for event in opened.client.run(request.build(), request.blobs)
            if isinstance(event, ActionResult)
        }
    failed = [result.message for result in results.values() if not result.ok]
    if failed:
        sys.exit(f"{len(failed)} actions failed: {failed[0]}")
    whole = low(results[0].total_ns)
    alone = [low(results[1 + i].total_ns) for i in range(N_SEGMENTS)]
    within = [low(segment.samples_ns) for segment in results[0].segments]
    for target, a, w in zip(targets, alone, within, strict=True):
        print(f"{target.key:32} alone {a / 1e3:9.1f} us, in the bundle {w / 1e3:9.1f} us")
    samples = [segment.samples_ns for segment in results[0].segments]
    own = [
        total - sum(of_run) for total, *of_run in zip(results[0].total_ns, *samples, strict=True)
    ]
    share = statistics.median(own) / whole
    print(f"whole {whole / 1e3:.1f} us; beyond its segments {share:.2%} of it")
    print(
        f"against the segments alone, whose data stay in the caches: {whole / sum(alone) - 1:+.2%}"
    )
    return int(share >= BAR)


def low(samples: tuple[int, ...]) -> float:
    """The 10th percentile: what others do on this machine makes times longer only."""
    return statistics.quantiles(samples, n=10)[0]


if __name__ == "__main__":
    sys.exit(main())
