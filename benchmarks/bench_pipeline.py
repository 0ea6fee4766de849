"""The whole path on the example models at full size: times, memory, plan against baselines.

    python benchmarks/bench_pipeline.py [--models A,B] [--devices sim:npu-phone,...] [--json FILE]

Commands run as a user runs them, each in its own process. For each model and device: wall time of
the first and of a second profile, peak memory of the profiling process, measurements made against
those of every convex region on every target, and from the run's report the plan's median latency,
the fastest baseline's ratio to it, the worst error of all predictions, and the outputs' difference
from eager PyTorch. The bars follow the table: the number of pairs that are never worse than 1.01x
the best baseline, the number on which the plan is better, and the predictions' errors. Latencies of
`sim:` devices are simulated; the seconds are this machine's. On a shared machine, `local` needs the
processor for itself: `chrt -f 1 python benchmarks/bench_pipeline.py --devices local`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from nnapi_prof.execution.report import RunReport

ROOT = Path(__file__).resolve().parent.parent
MODELS = {
    "mobilenet_v2": "1x3x224x224",
    "resnet18": "1x3x224x224",
    "squeezenet1_1": "1x3x224x224",
    "unet": "1x3x128x128",
}


def timed(*command: object) -> tuple[float, float, str]:
    """Runs a command that must succeed; returns wall seconds, peak memory in MB, and its output."""
    arguments = [sys.executable, *map(str, command)]
    begin = time.perf_counter()
    process = subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(arguments)} failed")
    return time.perf_counter() - begin, usage.ru_maxrss / 1024, text


DEVICES = "sim:npu-phone,sim:gpu-phone,sim:dsp-phone,sim:slow-nnapi-phone,local"
NEVER_WORSE = 1.01
BETTER = 0.99
"""Largest share of the best baseline's latency at which a plan is better; above, they tie."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--devices", default=DEVICES)
    parser.add_argument("--json", type=Path, help="Write the rows to this file, too.")
    options = parser.parse_args()
    print(
        "| model | device | profile s | again s | peak MB | measured / exhaustive | plan ms"
        " | segments | fastest baseline / plan | all-cpu / plan | prediction error"
        " | worst of all plans | output difference |"
    )
    print("|---" * 13 + "|")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models.split(","):
            model = Path(folder) / f"{name}.pt"
            size = MODELS[name].rpartition("x")[2]
            timed(ROOT / "examples" / "models.py", name, model, "--size", size)
            for device in options.devices.split(","):
                rows.append(row(name, device, model, Path(folder)))
                show(rows[-1])
                if options.json is not None:
                    load = os.getloadavg()
                    options.json.write_text(json.dumps({"load": load, "rows": rows}, indent=1))
    bars(rows)


def row(name: str, device: str, model: Path, folder: Path) -> dict[str, Any]:
    costs, bundle = folder / f"{name}-{device}.sqlite", folder / f"{name}-{device}.nnprof"
    named = ("--device", device, "--costs", costs, "--input", MODELS[name])
    quiet = ("-m", "nnapi_prof", "--quiet")
    first, memory, document = timed(*quiet, "profile", "--json", *named, model)
    again, _, _ = timed(*quiet, "profile", *named, model)
    timed(*quiet, "partition", *named, "--output", bundle, model)
    timed(*quiet, "run", "--device", device, bundle)
    report = RunReport.from_json((bundle / "run.json").read_text())
    plan, *rivals = report.runs
    median = plan.median_ns or math.nan
    effort = json.loads(document)["effort"]
    return {
        "model": name,
        "device": device,
        "simulated": report.simulated,
        "profile_s": first,
        "again_s": again,
        "peak_mb": memory,
        "measured": effort["n_rows"],
        "exhaustive": effort["n_exhaustive"],
        "plan_ms": median / 1e6,
        "segments": len(plan.segments),
        "best_baseline": min(rival.median_ns or math.inf for rival in rivals) / median,
        "all_cpu": next(r.median_ns or 0.0 for r in rivals if r.plan.name == "all-cpu") / median,
        "error": (plan.plan.predicted_ns - median) / median,
        "errors": {
            run.plan.name: (run.plan.predicted_ns - run.median_ns) / run.median_ns
            for run in report.runs
            if run.median_ns
        },
        "difference": max(check.relative for check in report.checks),
    }


def show(row: dict[str, Any]) -> None:
    label = " simulated" if row["simulated"] else ""
    share = row["measured"] / row["exhaustive"] if row["exhaustive"] else math.nan
    worst = max(row["errors"].values(), key=abs)
    print(
        f"| {row['model']} | {row['device']} | {row['profile_s']:.1f} | {row['again_s']:.1f}"
        f" | {row['peak_mb']:.0f} | {row['measured']} / {row['exhaustive']} = {share:.1%}"
        f" | {row['plan_ms']:.3f}{label} | {row['segments']} | {row['best_baseline']:.3f}"
        f" | {row['all_cpu']:.2f} | {row['error']:+.1%} | {worst:+.1%} | {row['difference']:.1e} |",
        flush=True,
    )


def bars(rows: list[dict[str, Any]]) -> None:
    """Prints the bars over all pairs of a model and a device."""
    ratios = [1 / row["best_baseline"] for row in rows]
    print(
        f"\nplan / best baseline: at most {max(ratios):.3f}; at most {NEVER_WORSE} on "
        f"{sum(r <= NEVER_WORSE for r in ratios)} of {len(rows)} pairs, at most {BETTER} on "
        f"{sum(r <= BETTER for r in ratios)}, a tie on "
        f"{sum(BETTER < r <= NEVER_WORSE for r in ratios)}"
    )
    for simulated in (True, False):
        chosen = [row for row in rows if row["simulated"] == simulated]
        if not chosen:
            continue
        every = [abs(error) for row in chosen for error in row["errors"].values()]
        own = [abs(row["error"]) for row in chosen]
        print(
            f"{'simulated' if simulated else 'real'}: |predicted - measured| of the plans in the "
            f"median {statistics.median(own):.2%}, at most {max(own):.2%}; of all "
            f"{len(every)} plans and baselines at most {max(every):.2%}"
        )
    print(f"load average of this machine: {', '.join(f'{load:.1f}' for load in os.getloadavg())}")


if __name__ == "__main__":
    main()
