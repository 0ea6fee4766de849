"""A bundle's whole time against the sum of its segments, each measured alone.

    python benchmarks/bench_bundle.py [--device D] [--rounds N] [--channels N] [--size N]
                                      [--pointers]

A stack of convolutions is cut into segments that change between the CPU engine and an accelerator.
The whole and each segment alone are one group, so that they take turns in many short rounds. Of
each round the fastest run of the whole stands over the sum of the fastest runs of its segments,
as others on this machine make times longer only, and the median over the rounds counts. Exits with
1 where the whole is 3 % longer or more.

The whole finds in the caches what the segment before left there, a segment alone all of its own. So
the default is small enough for both to find everything; with `--channels 32 --size 56` the
difference is that between the caches and what is behind them.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys

import torch
from torch import nn

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.region import Region, operand_of
from nnapi_prof.device.find import open_device
from nnapi_prof.device.protocol import ActionResult
from nnapi_prof.device.protocol.actions import (
    ActionSpec,
    SegmentSpec,
    TensorSource,
    TensorSpec,
    Timing,
)
from nnapi_prof.device.protocol.request import RequestBuilder
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import CPU, Preference, Target

N_SEGMENTS = 4
RUNS = 12  # of each in a round
BAR = 0.03


def cut(n_units: int) -> list[tuple[int, ...]]:
    at = [n_units * i // N_SEGMENTS for i in range(N_SEGMENTS + 1)]
    return [tuple(range(a, b)) for a, b in itertools.pairwise(at)]


def action(
    number: int,
    regions: list[Region],
    targets: list[Target],
    models: list[int],
    args: argparse.Namespace,
) -> ActionSpec:
    """Returns an action of the regions in order; their outer inputs are pseudo-random."""
    index: dict[str, int] = {}
    tensors: list[TensorSpec] = []
    produced = {name for region in regions for name in region.outputs}
    segments = []
    for region, target, model in zip(regions, targets, models, strict=True):
        value_types = (*region.input_types, *region.output_types)
        for name, kind in zip((*region.inputs, *region.outputs), value_types, strict=True):
            operand = operand_of(kind)
            if name not in index and operand is not None:
                source = TensorSource.SEGMENT if name in produced else TensorSource.RANDOM
                index[name] = len(tensors)
                tensors.append(TensorSpec(operand.type, operand.dims, source, 0))
        inputs = tuple(index[name] for name in region.inputs)
        outputs = tuple(index[name] for name in region.outputs)
        segments.append(SegmentSpec.on(target, model, inputs, outputs))
    timing = Timing(
        warmup_min=5,
        warmup_max=40,
        rounds=args.rounds,
        min_runs=RUNS * args.rounds,
        max_runs=RUNS * args.rounds,
    )
    return ActionSpec(
        number, tuple(tensors), tuple(segments), timing, pointers=args.pointers, group=1
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="local")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--size", type=int, default=14)
    parser.add_argument("--pointers", action="store_true")
    args = parser.parse_args()
    n = args.channels
    layers = [nn.Conv2d(n, n, 3, padding=1) for _ in range(8)]
    stack = nn.Sequential(*(step for layer in layers for step in (layer, nn.ReLU()))).eval()
    program = prepare(stack, (torch.zeros(1, n, args.size, args.size),), "stack")
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
            for event in opened.client.run(request.request())
            if isinstance(event, ActionResult)
        }
    failed = [result.message for result in results.values() if not result.ok]
    if failed:
        sys.exit(f"{len(failed)} actions failed: {failed[0]}")
    whole = fastest(results[0])
    alone = [fastest(results[1 + i]) for i in range(N_SEGMENTS)]
    for target, of_rounds, within in zip(targets, alone, results[0].segments, strict=True):
        print(
            f"{target.key:32} alone {statistics.median(of_rounds) / 1e3:9.1f} us, "
            f"in the bundle {low(within.samples_ns) / 1e3:9.1f} us"
        )
    ratios = sorted(w / sum(parts) for w, *parts in zip(whole, *alone, strict=True))
    over = statistics.median(ratios) - 1
    quarters = statistics.quantiles(ratios, n=4)
    print(
        f"whole {statistics.median(whole) / 1e3:.1f} us, over the sum of its segments alone "
        f"{over:+.2%} (quartiles {quarters[0] - 1:+.2%}, {quarters[2] - 1:+.2%})"
    )
    return int(over >= BAR)


def fastest(result: ActionResult) -> list[int]:
    """Returns the fastest run of each round, ns."""
    runs = iter(result.total_ns)
    return [min(itertools.islice(runs, one.runs)) for one in result.rounds]


def low(samples: tuple[int, ...]) -> float:
    """Returns the 10th percentile."""
    return statistics.quantiles(samples, n=10)[0]


if __name__ == "__main__":
    sys.exit(main())
