"""Cost of a failing driver to a program of ExecuTorch's, against the CPU from the start.

    python benchmarks/bench_executorch_faults.py [--models A,B] [--size N] [--runs N]

Each model is lowered twice, as one delegated call: all of it on a simulated phone's accelerator,
and all of it on the CPU engine. The first runs with a fault injected into the driver. Prints for
each fault the lines in ExecuTorch's log, the largest difference of the outputs between the two
files, and, as multiples of the CPU's own file, loading together with the first run (for a driver
that hangs, less its time limits) and the median of later runs; files take turns in one process.
Beside it is the time of a child of this process that only exits: a trial has one, and one more for
the rest after a crash. Fails where outputs differ, where there is not one line for each delegated
segment, or where a later run takes more than twice the CPU's time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from executorch_models import program_of

import nnapi_prof
from nnapi_prof.executorch import Caution, load
from nnapi_prof.frontend.torch_logging import quiet_torch

DEVICE, TARGET = "sim:gpu-phone", "nnapi:sim-gpu/fast"
LIMIT_MS = 2000.0
TRIAL = {"trial": True}
LIMITED = {"compile_limit_ms": LIMIT_MS, "run_limit_ms": LIMIT_MS}
FAULTS: dict[str, dict[str, Any]] = {
    "refuse:compile": {},
    "fail:compile": {},
    "fail:execute": {},
    "reshape:execute": {},
    "crash:execute": TRIAL,
    "abort:compile": TRIAL,
    "hang:compile": LIMITED,
    "hang:execute": LIMITED,
}
BAR = 2.0


def measure_file(folder: Path, caution: Caution, runs: int) -> None:
    """Prints the times as JSON, in its own process."""
    load(DEVICE, caution=caution)
    from executorch.extension.pybindings.portable_lib import _unsafe_reset_threadpool
    from executorch.runtime import Runtime

    _unsafe_reset_threadpool(1)
    x = torch.load(folder / "input.pt")
    document: dict[str, Any] = {}
    calls, outputs = {}, {}
    for name in ("cpu", "nnapi"):
        start = time.perf_counter()
        calls[name] = Runtime.get().load_program(folder / f"{name}.pte").load_method("forward")
        outputs[name] = calls[name].execute((x,))[0].clone()
        document[name] = {"first": time.perf_counter() - start}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(runs):
        for name, call in calls.items():
            start = time.perf_counter()
            call.execute((x,))
            samples[name].append(time.perf_counter() - start)
    for name, times in samples.items():
        document[name]["later"] = statistics.median(times)
    document["child"] = min(child_s() for _ in range(5))
    difference = (outputs["cpu"] - outputs["nnapi"]).abs().max() / outputs["cpu"].abs().max()
    print(json.dumps({**document, "difference": float(difference)}), flush=True)
    os._exit(0)  # a hanging driver would block exit


def child_s() -> float:
    """Returns the seconds of a child of this process that ends at once."""
    start = time.perf_counter()
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return time.perf_counter() - start


def measure(name: str, size: int | None, runs: int, folder: Path) -> bool:
    from nnapi_prof.executorch import lower

    program, x = program_of(name, size)
    model = nnapi_prof.load(program, name=name)
    costs = nnapi_prof.estimate(model, DEVICE.partition(":")[2])
    n_segments = 0
    for key, pin in (("cpu", "*=cpu"), ("nnapi", f"*={TARGET}")):
        planned = nnapi_prof.partition(model, costs, nnapi_prof.Latency(pin=pin))
        with quiet_torch():
            lower(planned, whole=True).save(folder / f"{key}.pte")
        n_segments = sum(s.target.key == TARGET for s in planned.plan.segments)
    torch.save(x, folder / "input.pt")
    holds = True
    for fault, caution in FAULTS.items():
        done = subprocess.run(
            [
                *(sys.executable, __file__, "--files", str(folder), "--runs", str(runs)),
                *("--caution", json.dumps(caution)),
            ],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "NNAPI_EMULATOR_FAULTS": f"{fault}:CONV_2D@sim-gpu"},
        )
        if done.returncode != 0:
            sys.exit(f"{fault}: {done.stderr}")
        times = json.loads(done.stdout.splitlines()[-1])
        lines = done.stderr.count("NnapiBackend: ")
        late_s = LIMIT_MS / 1e3 if fault.startswith("hang") else 0.0
        first = (times["nnapi"]["first"] - late_s) / times["cpu"]["first"]
        later = times["nnapi"]["later"] / times["cpu"]["later"]
        print(
            f"| {name} | {fault} | {lines} of {n_segments} | {times['difference']:.1e} |"
            f" {first:.2f} | {later:.3f} | {times['cpu']['first'] * 1e3:.0f} |"
            f" {times['cpu']['later'] * 1e3:.2f} | {times['child'] * 1e3:.0f} |",
            flush=True,
        )
        holds &= lines == n_segments and later <= BAR and times["difference"] < 1e-5
    return holds


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default="unet,mobilenet_v2")
    parser.add_argument("--size", type=int, help="side of images; default: the models' own")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--files", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--caution", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.files is not None:
        measure_file(options.files, Caution(**options.caution), options.runs)
    print(
        "| model | fault | lines of the log | difference | first | later | CPU first ms | CPU ms"
        " | a child ms |"
    )
    print("|---" * 9 + "|", flush=True)
    holds = True
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models.split(","):
            holds &= measure(name, options.size, options.runs, Path(folder))
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
