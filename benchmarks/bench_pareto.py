"""Is the front of latency against error worth it beside simple rules?

    python benchmarks/bench_pareto.py [--models resnet18,bert] [--devices sim:dsp-phone]

For each network of examples/models.py (at its own size) and bert of examples/zoo.py, random weights
and inputs, on simulated phones with float32, relaxed, float16 and int8: within each usual budget of
error, how many times slower than the front's plan the fastest rule is (latencies simulated): one
precision for all. 1.00 is a rule as fast as the plan. bench_front.py has greedy orders, too.

Fails where a rule is both faster and more accurate than every plan of the front.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from pathlib import Path

import torch

import nnapi_prof
from nnapi_prof.api.pareto import Pareto
from nnapi_prof.execution.front import FrontPoint

ROOT = Path(__file__).resolve().parent.parent
BUDGETS = (0.001, 0.003, 0.01, 0.02, 0.03, 0.05, 0.1)
DEVICES = ("sim:dsp-phone", "sim:npu-phone", "sim:gpu-phone")
PRECISIONS = ("float32", "relaxed", "float16", "int8")
N_SAMPLES = 16


def examples(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    """Returns a network, and inputs for it. [n, ...]"""
    sys.path.insert(0, str(ROOT / "examples"))
    import models
    import zoo

    if name in models.MODELS:
        factory, shape = models.MODELS[name]
        random = torch.Generator().manual_seed(0)
        return factory(), torch.randn((N_SAMPLES, *shape[1:]), generator=random)
    return zoo.MODELS[name].model(), zoo.MODELS[name].examples(N_SAMPLES)


def fastest(points: tuple[FrontPoint, ...], budget: float) -> FrontPoint | None:
    within = [point for point in points if point.error <= budget]
    return min(within, key=lambda point: point.latency_ns, default=None)


def cell(front: Pareto, budget: float) -> str:
    """Returns the plan's latency, the fastest rule's ratio to it, and the rule's name."""
    plan, rule = fastest(front.points, budget), fastest(front.baselines, budget)
    if plan is None:
        return "none"
    ratio = math.inf if rule is None else rule.latency_ns / plan.latency_ns
    return f"{plan.latency_ns / 1e6:.3g} ms, {ratio:.2f} ({'none' if rule is None else rule.name})"


def dominated(front: Pareto) -> list[str]:
    """Returns the rules that are faster than every plan of the front with their accuracy."""
    return [
        rule.name
        for rule in front.baselines
        if not any(p.latency_ns <= rule.latency_ns and p.error <= rule.error for p in front.points)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default="mobilenet_v2,resnet18,squeezenet1_1,unet,bert")
    parser.add_argument("--devices", default=",".join(DEVICES))
    parser.add_argument("--seconds", type=float, default=60.0, help="for errors, of each pair")
    options = parser.parse_args()
    heads = [f"{budget:.1%}" for budget in BUDGETS]
    print("| model | device | plans | s |", " | ".join(heads), "|")
    print("|---" * (4 + len(heads)) + "|")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models.split(","):
            model, inputs = examples(name)
            with torch.no_grad():
                traced = torch.jit.trace(model, inputs[:1], check_trace=False)
            loaded = nnapi_prof.load(traced, [inputs[:1]])
            for device in options.devices.split(","):
                began = time.monotonic()
                costs = nnapi_prof.profile(
                    loaded,
                    device,
                    costs=Path(folder) / f"{name}.db",
                    precisions=PRECISIONS,
                    calibration=[(inputs[i : i + 1],) for i in range(N_SAMPLES)],
                )
                front = nnapi_prof.pareto(
                    loaded, costs, budgets=BUDGETS, accuracy_s=options.seconds
                )
                cells = " | ".join(cell(front, budget) for budget in BUDGETS)
                seconds = time.monotonic() - began
                print(f"| {name} | {device} | {len(front.points)} | {seconds:.0f} | {cells} |")
                sys.stdout.flush()
                for rule in dominated(front):
                    print(f"{name} on {device}: no plan is as good as {rule}", file=sys.stderr)
                    failed = True
    sys.exit(failed)


if __name__ == "__main__":
    main()
