"""How much CPU and accelerator slow each other down when both work.

    python benchmarks/bench_corun.py [--device D] [--accelerator NAME] [--threads N] [--rounds N]
                                      [--seconds S]

A few kinds of units, the same on both sides. Each is one action of the agent whose segments run
alone and then side by side, in rounds (PROTOCOL.md, "Side by side"): the CPU engine's threads on
the first CPUs, the threads that call NNAPI on the others. The slowdown of a round is that of its
medians; the table has the median over rounds and the quartiles. `CPU` is the agent's share of a
core during a run alone on the accelerator. With --seconds the first kind is repeated for that long,
with the CPU's clock and temperature before and after where the device reports them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Sequence

import torch
from torch import nn

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.region import Region, operand_of
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.find import open_device
from nnapi_prof.device.protocol import ActionResult
from nnapi_prof.device.protocol.actions import (
    ALL_CORES,
    ActionFlag,
    ActionSpec,
    SegmentSpec,
    TensorSource,
    TensorSpec,
    Timing,
)
from nnapi_prof.device.protocol.request import RequestBuilder
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import CPU, Preference, Target

LEVEL = 29
KINDS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "convolution 3x3": (nn.Conv2d(64, 64, 3, padding=1), (1, 64, 56, 56)),
    "convolution 1x1": (nn.Conv2d(256, 256, 1), (1, 256, 28, 28)),
    "depthwise": (nn.Conv2d(256, 256, 3, padding=1, groups=256), (1, 256, 56, 56)),
    "fully connected": (nn.Linear(2048, 1000), (1, 2048)),
    "element-wise": (nn.Hardswish(), (1, 64, 112, 112)),
}


def action(
    number: int, region: Region, models: Sequence[int], targets: Sequence[Target], mask: int,
    threads: int, timing: Timing,
) -> ActionSpec:  # fmt: skip
    """Returns an action of the region on each target, side by side."""
    tensors: list[TensorSpec] = []
    segments = []
    for model, target in zip(models, targets, strict=True):
        ends = []
        for names, kinds, source in (
            (region.inputs, region.input_types, TensorSource.RANDOM),
            (region.outputs, region.output_types, TensorSource.SEGMENT),
        ):
            operands = [operand_of(kind) for kind in kinds]
            ends.append(tuple(range(len(tensors), len(tensors) + len(names))))
            tensors += [TensorSpec(o.type, o.dims, source) for o in operands if o is not None]
        segments.append(SegmentSpec.on(target, model, ends[0], ends[1]))
    return ActionSpec(
        *(number, tuple(tensors), tuple(segments), timing, ActionFlag.CORUN),
        threads=threads,
        cpu_mask=mask,
    )


def run(client: AgentClient, request: RequestBuilder) -> list[ActionResult]:
    results = [e for e in client.run(request.request()) if isinstance(e, ActionResult)]
    for result in results:
        if not result.ok:
            sys.exit(f"action {result.action}: {result.message}")
    return results


def shown(ratios: Sequence[float]) -> str:
    if len(ratios) < 3:
        return ", ".join(f"{ratio:.2f}" for ratio in ratios)
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]"


def row(kind: str, result: ActionResult) -> str:
    cells = [kind]
    for segment in result.segments:
        alone, corun = (statistics.median(s) for s in (segment.alone_ns, segment.samples_ns))
        cells += [f"{alone / 1e6:.2f}", f"{corun / 1e6:.2f}"]
        cells.append(shown(segment.slowdowns(result.rounds)))
    accelerator = result.segments[1]
    cells.append(f"{sum(accelerator.cpu_ns) / sum(accelerator.alone_ns):.2f}")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="local")
    parser.add_argument("--accelerator", help="the first one by default")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--runs", type=int, default=90, help="over all rounds")
    parser.add_argument("--seconds", type=float, default=0, help="of both busy, at the end")
    args = parser.parse_args()
    with open_device(args.device) as opened:
        client = opened.client
        info = client.info()
        name = args.accelerator or info.nnapi.accelerators[0].name
        targets = (CPU, Target.nnapi(name, Preference.SUSTAINED_SPEED))
        mask = ALL_CORES if info.simulated else (1 << args.threads) - 1
        request = RequestBuilder()
        regions = {}
        for number, (kind, (module, shape)) in enumerate(KINDS.items()):
            program = prepare(module.eval(), (torch.zeros(shape),), kind)
            regions[kind] = convert_region(program, tuple(range(len(program.units.units))), LEVEL)
            models = [request.add_region(regions[kind])] * 2
            timing = Timing(5, 20, 500_000_000, args.rounds, args.runs, args.runs)
            request.add_action(
                action(number, regions[kind], models, targets, mask, args.threads, timing)
            )
        print(f"{opened.serial}: the CPU engine and {name}; load average {os.getloadavg()[0]:.1f}")
        print(f"| unit | CPU ms | beside {name} | slowdown | {name} ms | beside the CPU | slowdown "
              "| CPU |")  # fmt: skip
        print("|---" * 8 + "|")
        results = run(client, request)
        for kind, result in zip(KINDS, results, strict=True):
            print(row(kind, result), flush=True)
        if args.seconds:
            kind, first = next(iter(KINDS)), results[0]
            slower = max(statistics.median(s.samples_ns) for s in first.segments)
            n = min(max(int(args.seconds * 1e9 / slower), 10), 100_000)
            request = RequestBuilder()
            models = [request.add_region(regions[kind])] * 2
            timing = Timing(1, 1, 0, 10, n, n, timeout_ms=600_000)
            spec = action(0, regions[kind], models, targets, mask, args.threads, timing)
            request.add_action(spec)
            (result,) = run(client, request)
            print(row(f"{kind}, {args.seconds:g} s", result))
            print(f"kHz {result.cpu_khz}, thousandths of a degree {result.thermal_mc}")


if __name__ == "__main__":
    main()
