"""Files for ExecuTorch against stock ExecuTorch, and against plans of a rule, on this host.

    python benchmarks/bench_executorch.py [--models unet squeezenet1_1] [--rounds N]

Each model is profiled on `local` and planned. All files of a model run in turns, in rounds; the
ratio of two is the median over the rounds of the ratio of their fastest runs in it.

All run on one thread, the default of measured plans. Prints for each model:

* XNNPACK alone by `lower` (of the ExportedProgram, and of TorchScript) / stock ExecuTorch's file
* the plan as one delegated call, which lays out its image channels last / the same bundle by
  libnnapi_prof_runtime in the same process, given an image with channels last
* the plan (in calls, and as one), and the file that ``convert`` chooses by its own timing / the
  best of XNNPACK alone, all on NNAPI, and list order
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from executorch_models import DIGITS, NAMES, module_of, program_of

import nnapi_prof
from nnapi_prof.bundle.deployment import runtime_bundle
from nnapi_prof.device import xnnpack
from nnapi_prof.device.build import build_host, cmake_build
from nnapi_prof.executorch import load
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.toolchain import cache_dir, find_compiler

LIBRARY = "libnnapi_prof_runtime.so"
RUNS = 8
"""Runs of each file in a round."""


def stock(program: torch.export.ExportedProgram, path: Path) -> None:
    """Writes stock ExecuTorch's file."""
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


def own_runtime(folder: Path, x: torch.Tensor) -> Callable[[tuple[torch.Tensor, ...]], object]:
    """Returns a function that runs the bundle by libnnapi_prof_runtime, its input laid out."""
    library = ctypes.CDLL(str(folder / LIBRARY))
    bundle, model = ctypes.c_void_p(), ctypes.c_void_p()
    assert not library.nnp_bundle_open(
        str(folder / "own.nnprt").encode(), ctypes.byref(bundle), None
    )
    assert not library.nnp_model_compile(bundle, None, ctypes.byref(model), None)
    laid_out = x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x
    inputs = (ctypes.c_void_p * 1)(laid_out.data_ptr())

    def run(_: tuple[torch.Tensor, ...], owner: torch.Tensor = laid_out) -> None:
        assert not library.nnp_model_run(model, inputs, None, None)

    return run


def fastest(
    calls: dict[str, Callable[[tuple[torch.Tensor, ...]], object]], x: torch.Tensor, rounds: int
) -> dict[str, list[float]]:
    """Returns the fastest run of each file in each round, in seconds."""
    times: dict[str, list[float]] = {name: [] for name in calls}
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
    """Returns the median ratio of ``mine`` to the one of ``theirs`` with the least median."""
    best = min(theirs, key=lambda name: statistics.median(times[name]))
    return statistics.median(a / b for a, b in zip(times[mine], times[best], strict=True))


def measure(name: str, rounds: int, folder: Path) -> None:
    from nnapi_prof.executorch import fastest, lower

    program, x = program_of(name)
    model = nnapi_prof.load(program, name=name)
    costs = nnapi_prof.profile(model, device="local", costs=folder / "costs.db")
    plan = nnapi_prof.partition(model, costs)
    cpu = nnapi_prof.partition(model, costs, nnapi_prof.Latency(pin="*=cpu"))
    stock(program, folder / "stock.pte")
    files = {
        "xnnpack": lower(cpu),
        "calls": lower(plan),
        "one": lower(plan, whole=True),
        "listed": lower(
            nnapi_prof.partition(model, costs, nnapi_prof.Latency(pin="*=nnapi:nnapi-fast/fast"))
        ),
    }
    if name != DIGITS:
        with quiet_torch():
            script = torch.jit.trace(module_of(name)[0], x, check_trace=False)
        traced = nnapi_prof.load(script, "x".join(map(str, x.shape)), name=name)
        files["scripted"] = lower(replace(cpu, model=traced))
    for key, file in files.items():
        file.save(folder / f"{key}.pte")
    choice = fastest(plan)
    choice.save(folder / "chosen.pte")
    (folder / "own.nnprt").write_bytes(runtime_bundle(plan.bundle))
    torch.save(x, folder / "input.pt")
    command = [sys.executable, __file__, "--rounds", str(rounds), "--files", str(folder)]
    paths = {"LD_LIBRARY_PATH": str(build_host().library.parent)}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, check=True, text=True, env={**os.environ, **paths}
    )
    times = json.loads(done.stdout.splitlines()[-1])
    targets = ", ".join(segment.target.key for segment in plan.plan.segments)
    rules = ["stock", "xnnpack", "listed"]
    scripted = ""
    if name != DIGITS:
        scripted = f", of TorchScript {ratio(times, 'scripted', ['stock']):.3f}"
    print(
        f"{name} ({targets}): stock {statistics.median(times['stock']) * 1e3:.2f} ms;"
        f" XNNPACK alone / stock {ratio(times, 'xnnpack', ['stock']):.3f}{scripted};"
        f" one call / own runtime {ratio(times, 'one', ['own']):.3f}; plan / best rule: calls"
        f" {ratio(times, 'calls', rules):.3f}, one {ratio(times, 'one', rules):.3f};"
        f" convert's file ({choice.file.name}) {ratio(times, 'chosen', rules):.3f}",
        flush=True,
    )
    for file in folder.glob("*.pte"):
        file.unlink()


def measure_files(folder: Path, rounds: int) -> None:
    """Prints the times as JSON, in a new process that has done nothing else."""
    load("local")
    from executorch.extension.pybindings.portable_lib import _unsafe_reset_threadpool

    _unsafe_reset_threadpool(1)
    x = torch.load(folder / "input.pt")
    calls = methods({path.stem: path for path in sorted(folder.glob("*.pte"))})
    print(json.dumps(fastest({**calls, "own": own_runtime(folder, x)}, x, rounds)))


def build_library(folder: Path) -> None:
    """Builds libnnapi_prof_runtime with this host's XNNPACK."""
    base = cache_dir()
    work = folder / "build"
    targets, options = ("nnapi_prof_runtime",), ("-DNP_LIBRARY=ON",)
    cmake_build(find_compiler(base), xnnpack.first_use(base, None), work, targets, options)
    (work / "library" / LIBRARY).resolve().replace(folder / LIBRARY)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", default=NAMES)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--files", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.files is not None:
        measure_files(options.files, options.rounds)
        return
    with tempfile.TemporaryDirectory() as folder:
        build_library(Path(folder))
        for name in options.models:
            measure(name, options.rounds, Path(folder))


if __name__ == "__main__":
    main()
