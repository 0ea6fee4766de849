"""What changes of layout at a region's border cost: as operations, or in the copy to the engine.

    python benchmarks/bench_layout.py [--device D ...] [--rounds N] [--pointers]

For each device and target: a small network whose image comes as NCHW, or whose result leaves so,
as one NNAPI model with its TRANSPOSEs, and with these peeled off (nnapi_prof.convert.peel); both in
one group, so that they take turns. Prints medians and their ratio.
"""

from __future__ import annotations

import argparse
import statistics
import sys

import torch
from torch import nn

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.peel import Peeled, peel, unpeeled
from nnapi_prof.convert.region import ConvertedRegion, operand_of
from nnapi_prof.device.action import (
    ActionFlag,
    ActionSpec,
    SegmentSpec,
    Source,
    TensorSpec,
    Timing,
    axis_order,
)
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.find import open_device
from nnapi_prof.device.request import RequestBuilder
from nnapi_prof.device.results import ActionResult
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import AUTO, CPU, Preference, Target

DEVICES = ("local", "sim:npu-phone", "sim:gpu-phone", "sim:dsp-phone", "sim:slow-nnapi-phone")


def networks() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    """An image into a network, a mask out of one, and both at a size where copies matter."""
    stem = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 1))
    head = nn.Sequential(nn.Conv2d(16, 16, 1), nn.ReLU(), nn.Conv2d(16, 21, 1))
    return {
        "image in": (nn.Sequential(stem, nn.AdaptiveAvgPool2d(1)), torch.zeros(1, 3, 224, 224)),
        "mask out": (head, torch.zeros(1, 16, 128, 128)),
        "large, both": (nn.Conv2d(3, 3, 1), torch.zeros(1, 3, 1024, 1024)),
    }


def action(
    number: int, region: Peeled, target: Target, model: int, args: argparse.Namespace
) -> ActionSpec:
    """The whole region on a target, from pseudo-random inputs."""
    known = region.region

    def tensors(types: tuple, source: Source) -> list[TensorSpec]:  # type: ignore[type-arg]
        found = [operand_of(t) for t in types]
        return [TensorSpec(o.type, o.dims, source, 1) for o in found if o is not None]

    given = tensors(known.input_types, Source.RANDOM)
    made = [
        TensorSpec(t.type_code, t.dims, Source.SEGMENT, 0)
        for t in tensors(known.output_types, Source.SEGMENT)
    ]
    orders = [
        tuple(axis_order(a) if a else 0 for a in axes)
        for axes in (region.input_axes, region.output_axes)
    ]
    inputs = tuple(range(len(given)))
    outputs = tuple(range(len(given), len(given) + len(made)))
    segment = SegmentSpec(
        target.engine,
        model,
        inputs,
        outputs,
        target.accelerator,
        target.preference,
        input_orders=orders[0],
        output_orders=orders[1],
    )
    return ActionSpec(
        number,
        (*given, *made),
        (segment,),
        Timing(
            warmup_min=3,
            warmup_max=20,
            rounds=args.rounds,
            min_runs=5 * args.rounds,
            max_runs=50 * args.rounds,
            budget_ns=200_000_000,
        ),
        flags=ActionFlag.POINTERS if args.pointers else ActionFlag(0),
        group=1 + number // 2,
    )


def targets(client: AgentClient) -> list[Target]:
    fast = Preference.FAST_SINGLE_ANSWER
    names = [a.name for a in client.info().nnapi.accelerators]
    return [CPU, *(Target.nnapi(name, fast) for name in (*names, AUTO))]


def report(device: str, name: str, target: Target, found: list[ActionResult]) -> None:
    said = []
    for result in found:
        ok = result.ok and result.total_ns
        said.append(
            f"{statistics.median(result.total_ns) / 1e3:10.1f} us" if ok else f"({result.message})"
        )
    ratio = ""
    if all(r.ok and r.total_ns for r in found):
        with_it, without = (statistics.median(r.total_ns) for r in found)
        ratio = f"  peeled/whole {without / with_it:.3f}"
    print(f"{device:22} {name:12} {target.key:34} {said[0]} {said[1]}{ratio}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--pointers", action="store_true")
    args = parser.parse_args()
    print(f"{'device':22} {'network':12} {'target':34} {'in the model':>13} {'peeled':>13}")
    for device in args.device or DEVICES:
        with open_device(device) as opened:
            client = opened.client
            for name, (module, image) in networks().items():
                program = prepare(module.eval(), (image,), name)
                units = tuple(range(len(program.units.units)))
                region: ConvertedRegion = convert_region(program, units, 29)
                request = RequestBuilder()
                chosen = targets(client)
                variants = [unpeeled(region), peel(region)]
                models = [request.add_region(v.region) for v in variants]
                for number, target in enumerate(chosen):
                    for which in (0, 1):
                        made = action(
                            2 * number + which, variants[which], target, models[which], args
                        )
                        request.add_action(made)
                results = {
                    event.action: event
                    for event in client.run(request.build(), request.blobs)
                    if isinstance(event, ActionResult)
                }
                for number, target in enumerate(chosen):
                    report(device, name, target, [results[2 * number], results[2 * number + 1]])
    return 0


if __name__ == "__main__":
    sys.exit(main())
