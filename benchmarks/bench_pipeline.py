"""The whole path on the example models at full size: times, memory, plan against baselines.

    python benchmarks/bench_pipeline.py [--models A,B] [--devices sim:npu-phone,...]

Commands run as a user runs them, each in a process of its own. For each model and device: wall time
of the first and of a second profile, peak memory of the profiling process, and of the run's report
the plan's median latency, the fastest baseline's ratio to it, and the outputs' difference from
eager PyTorch. Latencies of `sim:` devices are simulated; the seconds are this machine's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from nnapi_prof.run.result import RunReport

ROOT = Path(__file__).resolve().parent.parent
MODELS = {
    "mobilenet_v2": "1x3x224x224",
    "resnet18": "1x3x224x224",
    "squeezenet1_1": "1x3x224x224",
    "unet": "1x3x128x128",
}


def timed(*command: object) -> tuple[float, float]:
    """Runs a command that must succeed; wall seconds and peak memory in MB."""
    arguments = [sys.executable, *map(str, command)]
    begin = time.perf_counter()
    process = subprocess.Popen(
        arguments, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(arguments)} failed:\n{said}")
    return time.perf_counter() - begin, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--devices", default="sim:npu-phone,sim:gpu-phone,local")
    options = parser.parse_args()
    print(
        "| model | device | profile s | again s | peak MB | plan ms | segments"
        " | fastest baseline / plan | all-cpu / plan | prediction error | output difference |"
    )
    print("|---" * 11 + "|")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models.split(","):
            model = Path(folder) / f"{name}.pt"
            size = MODELS[name].rpartition("x")[2]
            timed(ROOT / "examples" / "models.py", name, model, "--size", size)
            for device in options.devices.split(","):
                row(name, device, model, Path(folder))


def row(name: str, device: str, model: Path, folder: Path) -> None:
    costs, bundle = folder / f"{name}-{device}.sqlite", folder / f"{name}-{device}.nnprof"
    named = ("--device", device, "--costs", costs, "--input", MODELS[name])
    first, memory = timed("-m", "nnapi_prof", "profile", *named, model)
    again, _ = timed("-m", "nnapi_prof", "profile", *named, model)
    timed("-m", "nnapi_prof", "partition", *named, "--output", bundle, model)
    timed("-m", "nnapi_prof", "run", "--device", device, bundle)
    report = RunReport.from_json((bundle / "run.json").read_text())
    plan, *rivals = report.runs
    median = plan.median_ns or float("nan")
    fastest = min(rival.median_ns or float("inf") for rival in rivals)
    cpu = next(rival.median_ns or 0.0 for rival in rivals if rival.plan.name == "all-cpu")
    label = " simulated" if report.simulated else ""
    print(
        f"| {name} | {device} | {first:.1f} | {again:.1f} | {memory:.0f}"
        f" | {median / 1e6:.3f}{label}"
        f" | {len(plan.segments)} | {fastest / median:.3f} | {cpu / median:.2f}"
        f" | {(plan.plan.predicted_ns - median) / median:+.1%}"
        f" | {max(check.relative for check in report.checks):.1e} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
