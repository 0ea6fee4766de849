"""Files for ExecuTorch against stock ExecuTorch, and against plans of a rule, on this host.

    python benchmarks/bench_executorch.py [--models unet squeezenet1_1] [--rounds N]

Each model is profiled on `local` and planned. All files of a model run in turns, in rounds; the
ratio of two is the median over the rounds of the ratio of their fastest runs in it.

All run on one thread, as plans are measured by default. Printed of each model:

* XNNPACK alone by `lower` (of the ExportedProgram, and of TorchScript) / stock ExecuTorch's file
* the plan as one delegated call: `execute` / what its segments take by the runtime library's clock
* the plan (in calls, and as one) / the best of XNNPACK alone, all on NNAPI, and list order
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

import nnapi_prof
from nnapi_prof.executorch import load, run_file

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import models

RUNS = 8
"""Of each file in a round."""


def stock(program: torch.export.ExportedProgram, path: Path) -> None:
    """What ExecuTorch writes by itself."""
    from nnapi_prof.executorch.aot import (
        XnnpackPartitioner,
        silence,
        to_edge_transform_and_lower,
    )

    with silence():
        edge = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
        path.write_bytes(edge.to_executorch().buffer)


def methods(paths: dict[str, Path]) -> dict[str, Callable[[tuple[torch.Tensor, ...]], object]]:
    from executorch.runtime import Runtime

    runtime = Runtime.get()
    return {
        name: runtime.load_program(path).load_method("forward").execute
        for name, path in paths.items()
    }


def fastest(paths: dict[str, Path], x: torch.Tensor, rounds: int) -> dict[str, list[float]]:
    """Of each file the fastest run of each round, in seconds."""
    calls = methods(paths)
    times: dict[str, list[float]] = {name: [] for name in paths}
    for number in range(rounds + 1):
        for name, call in calls.items():
            samples = []
            for _ in range(RUNS):
                start = time.perf_counter()
                call((x,))
                samples.append(time.perf_counter() - start)
            if number:
                times[name].append(min(samples))
    return times


def ratio(times: dict[str, list[float]], mine: str, theirs: list[str]) -> float:
    """Against the one of ``theirs`` with the least median."""
    best = min(theirs, key=lambda name: statistics.median(times[name]))
    return statistics.median(a / b for a, b in zip(times[mine], times[best], strict=True))


def measure(name: str, rounds: int, folder: Path) -> None:
    from nnapi_prof.executorch import lower
    from nnapi_prof.executorch.aot import silence

    make, shape = models.MODELS[name]
    module = models.initialise(make())
    torch.manual_seed(0)
    x = torch.rand(shape)
    program = torch.export.export(module, (x,))
    model = nnapi_prof.load(program, name=name)
    with silence():
        script = torch.jit.trace(module, x)
    costs = nnapi_prof.profile(model, device="local", costs=folder / "costs.db")
    plan = nnapi_prof.partition(model, costs)
    cpu = nnapi_prof.partition(model, costs, pin="*=cpu")
    scripted = replace(cpu, model=nnapi_prof.load(script, "x".join(map(str, shape)), name=name))
    stock(program, folder / "stock.pte")
    files = {
        "xnnpack": lower(cpu),
        "scripted": lower(scripted),
        "calls": lower(plan),
        "one": lower(plan, whole=True),
        "listed": lower(nnapi_prof.partition(model, costs, pin="*=nnapi:nnapi-fast/fast")),
    }
    for key, file in files.items():
        file.save(folder / f"{key}.pte")
    torch.save(x, folder / "input.pt")
    command = [sys.executable, __file__, "--rounds", str(rounds), "--files", str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    times, share = json.loads(done.stdout.splitlines()[-1])
    targets = ", ".join(segment.target.key for segment in plan.plan.segments)
    rules = ["stock", "listed"]
    print(
        f"{name} ({targets}): stock {statistics.median(times['stock']) * 1e3:.2f} ms;"
        f" XNNPACK alone / stock {ratio(times, 'xnnpack', ['stock']):.3f}, of TorchScript"
        f" {ratio(times, 'scripted', ['stock']):.3f}; one call / its segments"
        f" {share:.3f}; plan / best rule: calls"
        f" {ratio(times, 'calls', rules):.3f}, one {ratio(times, 'one', rules):.3f}",
        flush=True,
    )


def measure_files(folder: Path, rounds: int) -> None:
    """In a process of its own, which has done nothing else: prints the times as JSON."""
    load("local")
    from executorch.extension.pybindings.portable_lib import _unsafe_reset_threadpool

    _unsafe_reset_threadpool(1)
    times = fastest(
        {p.stem: p for p in folder.glob("*.pte")}, torch.load(folder / "input.pt"), rounds
    )
    run = run_file(folder / "one.pte", "local", runs=30)
    print(json.dumps([times, run.median_ns / sum(part.median_ns for part in run.parts)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", default=sorted(models.MODELS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--files", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.files is not None:
        measure_files(options.files, options.rounds)
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            measure(name, options.rounds, Path(folder))


if __name__ == "__main__":
    main()
