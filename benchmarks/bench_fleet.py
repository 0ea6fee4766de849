"""The regret of few plans on a simulated fleet.

    python benchmarks/bench_fleet.py [--phones 200] [--seed 1] [--models NAME,...] [--profiled 3]

Costs are computed from the drawn phones' descriptions: profiling 200 phones would take hours. On
``--profiled`` phones the first model is really profiled, and the measurements give the excess of
the chosen plan over the best plan. Each model's result is saved in ``--folder`` as soon as it is
available, and reused by the next call.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from draw_phones import write_phones

import nnapi_prof as nnp
from nnapi_prof.partition import make_problem, plan_problem
from nnapi_prof.partition.fleet_search import latency_of

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))
MODELS = "mobilenet_v2,squeezenet1_1,unet,mobilenet_v3_large,ssdlite,yolo"
MOST = 6
"""Largest number of plans."""


def saved(name: str, folder: Path) -> Path:
    """Returns the path of the model's file, saved on first use."""
    import models
    import zoo

    path = folder / f"{name}.pt"
    if not path.is_file():
        if name in models.MODELS:
            models.save(name, path)
        else:
            zoo.save(name, path)
    return path


def choose(name: str, phones: Sequence[Path], folder: Path, profiled: int) -> dict[str, Any]:
    """Returns the curve of one model, and the measurements."""
    model = nnp.load(saved(name, folder))
    began = time.monotonic()
    costs = {}
    for phone in phones:
        costs[phone.stem] = nnp.estimate(model, str(phone))
        print(f"\r{name}: costs of {len(costs)} phones", end="", file=sys.stderr, flush=True)
    priced_s, began = time.monotonic() - began, time.monotonic()
    chosen = nnp.fleet(model, costs, k=MOST, seconds=600)
    print(f"; chosen in {time.monotonic() - began:.0f} s", file=sys.stderr)
    row: dict[str, Any] = {
        "model": name,
        "phones": len(phones),
        "candidates": len(chosen.search.plans),
        "curve": [
            {"k": k, "mean": c.mean, "worst": c.worst, "optimal": c.is_optimal}
            for k, c in enumerate(chosen.search.choices, 1)
        ],
        "all_cpu": float((chosen.frame().all_cpu_ms / chosen.frame().least_ms - 1).mean()),
        "priced_s": priced_s,
        "chosen_s": time.monotonic() - began,
        "profiled": [],
    }
    three = chosen.search.choices[2]
    for number in range(profiled):
        index = number * len(phones) // profiled
        serial = f"sim:{phones[index]}"
        measured = nnp.profile(
            model,
            serial,
            costs=folder / "costs.sqlite",
            options=nnp.MeasureOptions(preferences=["fast"]),
        )
        problem = make_problem(model.graph, measured.table)
        best = plan_problem(problem, with_curve=False).best.predicted_ns
        ns = latency_of(problem, chosen.search.plans[three.plan_of[index]])
        row["profiled"].append({"phone": serial, "regret": ns / best - 1})
        print(f"{name} on {serial}: {ns / best - 1:.2%} by what was measured", file=sys.stderr)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--phones", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--profiled", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bench_fleet")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    phones = write_phones(options.folder / "phones", options.phones, options.seed)
    rows = []
    for place, name in enumerate(options.models.split(",")):
        kept_in = options.folder / f"{name}-{options.phones}-{options.seed}.json"
        if not kept_in.is_file():
            row = choose(name, phones, options.folder, 0 if place else options.profiled)
            kept_in.write_text(json.dumps(row, indent=1) + "\n")
        rows.append(json.loads(kept_in.read_text()))
    heads = " | ".join(f"K = {k}" for k in range(1, MOST + 1))
    print(f"| model | all on the CPU | {heads} | candidates |")
    print("|---|--:|" + "--:|" * (MOST + 1))
    for row in rows:
        cells = " | ".join(f"{c['mean']:.1%} ({c['worst']:.0%})" for c in row["curve"])
        print(f"| {row['model']} | {row['all_cpu']:.0%} | {cells} | {row['candidates']} |")
    every = [sum(row["curve"][k]["mean"] for row in rows) / len(rows) for k in range(MOST)]
    print("| mean | | " + " | ".join(f"{mean:.2%}" for mean in every) + " | |")
    for row in rows:
        for each in row["profiled"]:
            print(f"{row['model']} on {each['phone']}, K = 3, measured: {each['regret']:.2%}")


if __name__ == "__main__":
    main()
