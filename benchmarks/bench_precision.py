"""Do 8 bits cost accuracy, and is the error what was said it would be?

    python benchmarks/bench_precision.py [--nets plain,residual,mobile] [--seeds 50] [--json PATH]

Three nets of examples/digits.py, trained here on 1,000 real images; 200 others calibrate them, 597
are held out. Of each net: all units in 8 bits, and plans whose errors are planned to be within 1 %
and 2 % (the units of least noise in 8 bits, the others relaxed), run whole with NNAPI's arithmetic.

Fails where a plan loses more than one percentage point of accuracy on held-out images, where a
planned one exceeds its budget there, or where the error of other images lies outside the printed
interval more often than in 5 of 50 halves of the held-out images (one half prints the interval, the
other tests it).

Also printed: how well powers of single units add up over random halves of the units, and the
deviation of powers from the default number of samples from those of all 200.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import random
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from nnapi_prof.device.build import build_host
from nnapi_prof.device.host_nnapi import HostNnapi
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import Precision
from nnapi_prof.precision.calibrate import calibrate
from nnapi_prof.precision.metrics import BuiltInMetric, FloatOutputs, Floats, sqnr_db
from nnapi_prof.precision.sensitivity import (
    N_SAMPLES,
    AccuracyEvaluator,
    Data,
    UnitNoise,
    corrected,
    unit_noise,
)
from nnapi_prof.precision.simulation import PrecisionSimulation

ROOT = Path(__file__).resolve().parent.parent
BUDGETS = (0.01, 0.02)
MOST_LOST = 0.01
"""Largest loss of accuracy."""
LEAST_INSIDE = 0.9
"""Least share of the seeds: 45 of 50."""
HALVES = 20
ROUNDS = 5
"""Largest number of corrections of a plan by a whole run."""
LEVEL = 30

Plan = dict[int, Precision]


def digits_script() -> ModuleType:
    """Returns the module examples/digits.py."""
    spec = importlib.util.spec_from_file_location("digits", ROOT / "examples" / "digits.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def mixed_plan(noise: UnitNoise, budget: float) -> Plan:
    """Returns the plan with as many units in 8 bits as the budget allows, those of least noise
    first; the others relaxed."""
    plan: Plan = dict.fromkeys(range(len(noise.power)), Precision.RELAXED)
    order = np.argsort(noise.power[:, noise.precisions.index(Precision.INT8)].max(1))
    for unit in order.tolist():
        wider = plan | {unit: Precision.INT8}
        if noise.predicted(wider).max() > budget**2:
            break
        plan = wider
    return plan


def plan_within(judge: AccuracyEvaluator, noise: UnitNoise, budget: float) -> Plan:
    """Returns a plan whose error is within a budget on the calibration data, and on held-out data
    if any: planned, run whole, corrected, planned again."""
    aim = budget
    for _ in range(ROUNDS):
        plan = mixed_plan(noise, aim)
        error = judge.error(plan)
        noise = corrected(noise, plan, error.relative)
        if error.calibrated.error <= aim:
            if error.held_out is None or error.held_out.error <= budget:
                return plan
            aim = budget * aim / error.held_out.error
    return mixed_plan(noise, 0.9 * aim)


def in_intervals(outputs: tuple[Floats, ...], reference: FloatOutputs, n_seeds: int) -> int:
    """Counts the seeds, each of which halves the samples, for which the error of one half is in the
    interval that the other half prints."""
    n, inside = reference.n_samples, 0
    for seed in range(n_seeds):
        order = np.random.default_rng(seed).permutation(n)
        first, other = (
            BuiltInMetric().estimate(
                [o[half] for o in outputs],
                reference.over([o[half] for o in reference.outputs]),
            )
            for half in (order[: n // 2], order[n // 2 :])
        )
        inside += first.low <= other.error <= first.high
    return inside


def adds_up(judge: AccuracyEvaluator, noise: UnitNoise) -> list[float]:
    """Returns errors of random halves of the units in 8 bits over the predicted errors."""
    choice, ratios = random.Random(0), []
    for _ in range(HALVES):
        plan = {u: Precision.INT8 for u in range(len(noise.power)) if choice.random() < 0.5}
        if plan:
            predicted = math.sqrt(noise.predicted(plan).max())
            ratios.append(judge.error(plan).calibrated.error / predicted)
    return ratios


def examine(name: str, script: ModuleType, nnapi: HostNnapi, n_seeds: int) -> dict[str, Any]:
    """Returns all figures of one net."""
    digits = script.read_digits()
    seconds: dict[str, float] = {}

    def timed(step: str, begin: float) -> None:
        seconds[step] = round(time.perf_counter() - begin, 2)

    begin = time.perf_counter()
    model = script.train(name, digits.train)
    timed("train", begin)
    program = prepare(model, digits.calibration.samples[0], name)
    begin = time.perf_counter()
    recipe = calibrate(program, digits.calibration.samples, LEVEL)
    timed("calibrate", begin)
    simulation = PrecisionSimulation(program, nnapi, recipe, LEVEL)
    calibration = Data(digits.calibration.samples)
    judge = AccuracyEvaluator(simulation, calibration, Data(digits.held_out.samples))
    begin = time.perf_counter()
    noise = unit_noise(simulation, calibration.samples, judge.reference)
    timed("noise", begin)
    every = unit_noise(
        simulation, calibration.samples, judge.reference, [Precision.INT8], n_samples=10**6
    )
    some = noise.power[:, noise.precisions.index(Precision.INT8), 0]
    apart = some / np.maximum(every.power[:, 0, 0], 1e-300)
    ratios = adds_up(AccuracyEvaluator(simulation, Data(calibration.samples[:100])), noise)

    before = script.accuracy(model, digits.held_out)
    rows = []
    plans: list[tuple[str, float, Plan]] = [
        ("int8", math.inf, dict.fromkeys(recipe.units, Precision.INT8))
    ]
    plans += [(f"{b:.0%}", b, plan_within(judge, noise, b)) for b in BUDGETS]
    float32 = judge.reference.over(
        tuple(np.stack([simulation.reference(s)[0].numpy() for s in digits.held_out.samples])[None])
    )
    for label, budget, plan in plans:
        begin = time.perf_counter()
        error = judge.error(plan)
        seconds.setdefault("whole plan", round(time.perf_counter() - begin, 2))
        assert error.held_out is not None
        outputs = judge.outputs(plan, Data(digits.held_out.samples))
        classes = torch.from_numpy(outputs[0]).flatten(0, 1).argmax(1)
        after = float((classes == digits.held_out.labels).float().mean())
        rows.append(
            {
                "plan": label,
                "units_int8": sum(p is Precision.INT8 for p in plan.values()),
                "error": error.calibrated.error,
                "held_out_error": error.held_out.error,
                "interval": [error.held_out.low, error.held_out.high],
                "budget": budget if math.isfinite(budget) else None,
                "accuracy": after,
                "lost": before - after,
                "inside": in_intervals(outputs, float32, n_seeds),
            }
        )
    return {
        "net": name,
        "units": len(program.units.units),
        "accuracy": before,
        "seconds": seconds,
        "samples_apart": [float(np.quantile(apart, q)) for q in (0.05, 0.5, 0.95)],
        "halves": [min(ratios), float(np.median(ratios)), max(ratios)],
        "plans": rows,
    }


def faults(figures: dict[str, Any], n_seeds: int) -> list[str]:
    """Returns the missed bars, as sentences."""
    sentences = []
    for row in figures["plans"]:
        who = f"{figures['net']}, {row['plan']}"
        if row["lost"] > MOST_LOST:
            sentences.append(f"{who}: {row['lost']:.2%} of accuracy lost, {MOST_LOST:.0%} at most")
        if row["budget"] is not None and row["held_out_error"] > row["budget"]:
            sentences.append(f"{who}: {row['held_out_error']:.2%} on held-out images")
        if row["inside"] < LEAST_INSIDE * n_seeds:
            sentences.append(f"{who}: {row['inside']} of {n_seeds} errors in their intervals")
    return sentences


def show(figures: dict[str, Any], n_seeds: int) -> None:
    low, middle, high = figures["halves"]
    print(
        f"{figures['net']}: {figures['units']} units, {figures['accuracy']:.1%} of held-out images "
        f"right in float32; seconds: {figures['seconds']}"
    )
    print(
        f"  random halves in 8 bits, measured / predicted error: {low:.2f} to {high:.2f}, "
        f"median {middle:.2f}; power of a unit from {N_SAMPLES} samples / from all: "
        + ", ".join(f"{ratio:.2f}" for ratio in figures["samples_apart"])
        + " (5 %, median, 95 %)"
    )
    for row in figures["plans"]:
        print(
            f"  {row['plan']:5} {row['units_int8']:2} units in 8 bits: error {row['error']:.2%}, "
            f"held out {row['held_out_error']:.2%} ({sqnr_db(row['held_out_error']):.1f} dB; 95 %: "
            f"{row['interval'][0]:.2%} to {row['interval'][1]:.2%}), accuracy "
            f"{row['accuracy']:.1%}, in the interval {row['inside']} of {n_seeds}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nets", default="plain,residual,mobile")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--json", type=Path, metavar="PATH")
    options = parser.parse_args()
    script, nnapi = digits_script(), HostNnapi(build_host().library)
    every, sentences = [], []
    for name in options.nets.split(","):
        figures = examine(name, script, nnapi, options.seeds)
        show(figures, options.seeds)
        every.append(figures)
        sentences += faults(figures, options.seeds)
    if options.json is not None:
        options.json.write_text(json.dumps(every, indent=1) + "\n", encoding="utf-8")
    sys.exit("\n".join(sentences) or None)


if __name__ == "__main__":
    main()
