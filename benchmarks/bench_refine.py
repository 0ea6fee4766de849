"""Refinement against measuring everything: the plan, and what it took.

    python benchmarks/bench_refine.py [--models unet,resnet18] [--devices sim:npu-phone] [--size 64]

For each small example model and device: a profile with refinement, and one that measures every
convex region on every target where its units run. Both plans are priced by the exhaustive
measurements (each segment was measured whole), so 1.0000 means that refinement lost nothing; among
thousands of noisy measurements that favours the plan of the luckiest ones. So both plans also run
whole, 300 times each: that ratio counts. Equal regions are measured once and counted once on both
sides; units, chains, the plan's regions and those of the baselines all count as refinement's.
Latencies are simulated.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

from nnapi_prof.costs import Conditions
from nnapi_prof.costs.store import CostStore
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.find import open_device
from nnapi_prof.execution import RunOptions
from nnapi_prof.execution.build import bundle_of
from nnapi_prof.execution.profile.session import profile
from nnapi_prof.execution.profile.unit_graph_cache import UnitGraphCache
from nnapi_prof.execution.timing import plan_key, time_plans
from nnapi_prof.frontend import load
from nnapi_prof.frontend.inputs import parse_input_specs
from nnapi_prof.graph.plan import Plan

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.measure.exhaustive import profile_exhaustively  # noqa: E402

PHONES = "sim:npu-phone,sim:gpu-phone,sim:dsp-phone,sim:slow-nnapi-phone"
RUNS = 300
SHARE = 0.10
"""Largest share of the exhaustive measurements that refinement may take."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default="unet,resnet18,squeezenet1_1")
    parser.add_argument("--devices", default=PHONES)
    parser.add_argument("--size", default="64")
    parser.add_argument("--json", type=Path, help="Write the rows to this file, too.")
    options = parser.parse_args()
    print(
        "| model | device | units | convex regions measured | by refinement | share | rounds"
        " | plan ms, simulated | refined / exhaustive | the same, run whole | same plan | s"
        " | exhaustive s |"
    )
    print("|---" * 13 + "|")
    rows = []
    for name in options.models.split(","):
        unit_cache = example(name, int(options.size))
        for device in options.devices.split(","):
            rows.append(compare(unit_cache, name, device))
            show(rows[-1])
            if options.json is not None:
                options.json.write_text(json.dumps(rows, indent=1))
    good = sum(row["run_ratio"] <= 1.01 and row["share"] <= SHARE for row in rows)
    print(f"\nwithin 1 % of the exhaustive plan with at most {SHARE:.0%}: {good} of {len(rows)}")


def example(name: str, size: int) -> UnitGraphCache:
    """Returns an example model at a size that makes thousands of measurements bearable."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.pt"
        arguments = (name, path, "--size", size)
        script = ROOT / "examples" / "models.py"
        subprocess.run([sys.executable, script, *map(str, arguments)], check=True, stdout=DEVNULL)
        return UnitGraphCache.of(load(path, parse_input_specs([f"1x3x{size}x{size}"])))


def compare(unit_cache: UnitGraphCache, name: str, device: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, open_device(device) as opened:
        began = time.perf_counter()
        with CostStore(Path(folder) / "refined.sqlite") as store:
            refined = profile(unit_cache, opened.client, store)
        between = time.perf_counter()
        with CostStore(Path(folder) / "exhaustive.sqlite") as store:
            costs, plan, count = profile_exhaustively(unit_cache, opened.client, store)
        ended = time.perf_counter()
        run_ratio = run_whole(unit_cache, opened.client, refined.plan, plan)
    assert refined.plan is not None
    costs_of_plan = [costs.region_cost(s.units, s.target) for s in refined.plan.segments]
    assert all(cost is not None and cost.measured for cost in costs_of_plan)
    ns = sum(cost.ns for cost in costs_of_plan if cost is not None)
    same = [(s.units, s.target) for s in refined.plan.segments] == [
        (s.units, s.target) for s in plan.segments
    ]
    return {
        "model": name,
        "device": device,
        "units": len(unit_cache.units.units),
        "exhaustive": count,
        "measured": refined.n_rows,
        "share": refined.n_rows / count,
        "rounds": refined.rounds,
        "plan_ms": plan.predicted_ns / 1e6,
        "ratio": ns / plan.predicted_ns,
        "run_ratio": run_ratio,
        "same": same,
        "refined_s": between - began,
        "exhaustive_s": ended - between,
    }


def run_whole(
    unit_cache: UnitGraphCache, client: AgentClient, refined: Plan | None, exhaustive: Plan
) -> float:
    """Returns the refined plan's time divided by the exhaustive one's."""
    assert refined is not None
    program = unit_cache.load()
    plans = (refined, exhaustive)
    bundle = bundle_of(program, "model.pt", client.info(), plans, Conditions(), ())
    options = RunOptions(runs=RUNS)
    timed = time_plans(bundle, program, plans, program.example_inputs, client, options, None)
    first, second = (timed[plan_key(plan)].latency_ns() for plan in plans)
    assert first is not None and second is not None
    return first / second


def show(row: dict[str, Any]) -> None:
    print(
        f"| {row['model']} | {row['device']} | {row['units']} | {row['exhaustive']}"
        f" | {row['measured']} | {row['share']:.1%} | {row['rounds']} | {row['plan_ms']:.3f}"
        f" | {row['ratio']:.4f} | {row['run_ratio']:.4f} | {'yes' if row['same'] else 'no'}"
        f" | {row['refined_s']:.1f} | {row['exhaustive_s']:.1f} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
