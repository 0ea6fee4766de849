"""One bundle by the agent, the C library, Java and ExecuTorch's delegate, on this host.

    python benchmarks/bench_same_bundle.py [--models mobilenet_v2 unet digits_int8] [--rounds N]

Each model is profiled on `local` and planned. Its bundle then runs in four processes, which take
turns: the agent's (``nnapi-prof run``), one that calls ``nnp_model_run``, a JVM that calls
``NnapiModel.run``, and a program in C++ that executes the plan as one delegated call, as an app
does: Python's binding of ExecuTorch would add its own microseconds. All of them go from the
caller's buffers to the caller's buffers; images lie channels last, but for ExecuTorch's, which the
delegate lays out. Printed of each: its median, and the median over the rounds of its ratio to the
agent. The prediction of ``partition`` is compared with the library's median.
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
from importlib.util import find_spec
from pathlib import Path

from bench_executorch import LIBRARY, build_library
from executorch_models import DIGITS, program_of

import nnapi_prof
from nnapi_prof.bundle.runtime import runtime_bundle
from nnapi_prof.device import java
from nnapi_prof.device.build import build_host
from nnapi_prof.executorch import lower
from nnapi_prof.executorch.host import build_delegate
from nnapi_prof.toolchain import find_cxx_compiler, python_tool, run_tool

SIZES = {"unet": 512}
TURN_S = 1.0
FEWEST, MOST = 4, 200
"""Runs of each door in a round: as many as take so long, by the prediction."""
PROJECT = """
cmake_minimum_required(VERSION 3.28)
project(door LANGUAGES C CXX)
set(CMAKE_BUILD_TYPE Release)
set(CMAKE_CXX_STANDARD 17)
find_package(executorch REQUIRED)
add_executable(door {source})
target_link_libraries(door PRIVATE executorch::runtime ${{CMAKE_DL_LIBS}})
"""
Turn = Callable[[], list[int]]


def serve_library(folder: Path, runs: int) -> None:
    """Answer each line of standard input by the ns of some runs of the bundle by
    libnnapi_prof_runtime, with buffers of the caller's."""
    library = ctypes.CDLL(str(folder / LIBRARY))
    bundle, model = ctypes.c_void_p(), ctypes.c_void_p()
    path = str(folder / "own.nnprt").encode()
    assert not library.nnp_bundle_open(path, ctypes.byref(bundle), None)
    assert not library.nnp_model_compile(bundle, None, ctypes.byref(model), None)
    given = ctypes.create_string_buffer((folder / "input.raw").read_bytes())
    taken = ctypes.create_string_buffer(int((folder / "output.txt").read_text()))
    inputs = (ctypes.c_void_p * 1)(ctypes.addressof(given))
    outputs = (ctypes.c_void_p * 1)(ctypes.addressof(taken))

    for _ in sys.stdin:
        samples = []
        for number in range(-runs // 4, runs):
            start = time.perf_counter_ns()
            status = library.nnp_model_run(model, inputs, outputs, None)
            if number >= 0:
                samples.append(time.perf_counter_ns() - start)
            assert not status
        print(json.dumps(samples), flush=True)


def build_doors(folder: Path) -> None:
    """Compile what runs the bundle in a JVM, and in ExecuTorch."""
    sources = [str(java.JAVA_DIR), str(java.JAVA_DIR / "stubs")]
    own = Path(__file__).parent
    run_tool(
        [
            *(str(java.find_jdk().javac), "-d", str(folder / "classes"), "-sourcepath"),
            *(os.pathsep.join(sources), str(own / "Door.java")),
        ],
        "Door.java could not be compiled",
    )
    spec = find_spec("executorch")
    assert spec is not None and spec.submodule_search_locations is not None
    source = folder / "door"
    source.mkdir()
    (source / "CMakeLists.txt").write_text(PROJECT.format(source=own / "Door.cpp"))
    cmake, ninja = python_tool("cmake", "CMAKE_BIN_DIR"), python_tool("ninja", "BIN_DIR")
    run_tool(
        [
            *(cmake, "-S", str(source), "-B", str(source), "-G", "Ninja"),
            f"-DCMAKE_MAKE_PROGRAM={ninja}",
            f"-DCMAKE_PREFIX_PATH={next(iter(spec.submodule_search_locations))}",
            *find_cxx_compiler().configure_options,
        ],
        "Door.cpp could not be configured",
    )
    run_tool([cmake, "--build", str(source)], "Door.cpp could not be compiled")


def door(command: list[str], environment: dict[str, str]) -> Turn:
    """A process that takes turns."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    to, answers = process.stdin, process.stdout
    assert to is not None and answers is not None

    def turn() -> list[int]:
        to.write("\n")
        to.flush()
        samples: list[int] = json.loads(answers.readline())
        return samples

    return turn


def measure(name: str, rounds: int, folder: Path) -> None:
    """Print one model's figures."""
    program, x = program_of(name, SIZES.get(name))
    model = nnapi_prof.load(program, name=name)
    costs = nnapi_prof.profile(model, device="local", costs=folder / "costs.db")
    plan = nnapi_prof.partition(model, costs)
    (folder / "own.nnprt").write_bytes(runtime_bundle(plan.bundle))
    lower(plan, whole=True).save(folder / "one.pte")
    (folder / "plain.raw").write_bytes(x.contiguous().numpy().tobytes())
    runs = min(MOST, max(FEWEST, round(TURN_S * 1e9 / plan.plan.predicted_ns)))
    values = plan.bundle.graph.values
    laid_out = x.permute(0, 2, 3, 1) if x.dim() == 4 else x
    (folder / "input.raw").write_bytes(laid_out.contiguous().numpy().tobytes())
    n_bytes = sum(values[output].n_bytes for output in plan.bundle.graph.outputs)
    (folder / "output.txt").write_text(str(n_bytes))
    nnapi = build_host().library
    environment = {**os.environ, "LD_LIBRARY_PATH": str(nnapi.parent)}
    jvm = [
        *(str(java.find_jdk().java), f"-Djava.library.path={java.jni_library().parent}"),
        *("-cp", str(folder / "classes"), "Door", str(folder / "own.nnprt"), str(nnapi)),
    ]
    app = [folder / "door/door", folder / "one.pte", build_delegate(), nnapi]
    turns: dict[str, Turn] = {
        "agent": lambda: list(
            nnapi_prof.run(plan, inputs=[x], runs=runs, baselines=False).run.runs[0].total_ns
        ),
        "library": door([sys.executable, __file__, "--serve", str(folder), str(runs)], environment),
        "java": door([*jvm, str(folder / "input.raw"), str(runs)], environment),
        "delegate": door([*map(str, app), str(folder / "plain.raw"), str(runs)], environment),
    }
    medians: dict[str, list[float]] = {name: [] for name in turns}
    for number in range(rounds + 1):
        order_of_turns = list(turns) if number % 2 else list(turns)[::-1]
        for each in order_of_turns:
            median = statistics.median(turns[each]())
            if number:
                medians[each].append(median)
    targets = ", ".join(segment.target.key for segment in plan.plan.segments)
    against = {
        each: statistics.median(a / b for a, b in zip(own_ns, medians["agent"], strict=True))
        for each, own_ns in medians.items()
    }
    shown = "; ".join(
        f"{each} {statistics.median(medians[each]) / 1e6:.3f} ms ({against[each]:.3f})"
        for each in turns
    )
    predicted = plan.plan.predicted_ns / statistics.median(medians["library"])
    print(f"{name} ({targets}): {shown}; predicted / library {predicted:.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", default=["mobilenet_v2", "unet", DIGITS])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve_library(Path(options.serve[0]), int(options.serve[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        build_library(Path(folder))
        build_doors(Path(folder))
        for name in options.models:
            measure(name, options.rounds, Path(folder))


if __name__ == "__main__":
    main()
