"""One bundle by the agent, the C library, Java and ExecuTorch's delegate, on this host.

    python benchmarks/bench_same_bundle.py [--models mobilenet_v2 unet digits_int8] [--rounds N]
        [--limit SECONDS]

Each stage prints a line to standard error, each model one to standard output. A stage that exceeds
the limit ends its model, and the next one begins; turns that take longer end after three rounds.
The programs that run the bundles are compiled once for each state of the sources.

Each model is profiled on `local` and planned. Its bundle then runs in four processes, which take
turns: the agent's (``nnapi-prof run``), one that calls ``nnp_model_run``, a JVM that calls
``NnapiModel.run``, and a program in C++ that executes the plan as one delegated call, as an app
does: Python's binding of ExecuTorch would add its own microseconds. All of them go from the
caller's buffers to the caller's buffers; images have channels last, except ExecuTorch's, which the
delegate lays out. Prints for each its median, and the median over the rounds of its ratio to the
agent. The prediction of ``partition`` is compared with the library's median.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from bench_executorch import LIBRARY, build_library
from executorch_models import DIGITS, program_of

import nnapi_prof
from nnapi_prof.bundle.deployment import runtime_bundle
from nnapi_prof.device import java
from nnapi_prof.device.build import (
    CMAKE_SOURCES,
    SOURCES,
    build_host,
    build_key,
    host_prefix,
)
from nnapi_prof.executorch import lower
from nnapi_prof.executorch.host import build_delegate
from nnapi_prof.toolchain import (
    cache_dir,
    find_compiler,
    find_cxx_compiler,
    locked,
    python_tool,
    run_tool,
)

SIZES = {"unet": 512}
TURN_S = 1.0
FEWEST, MOST = 4, 200
"""Least and largest number of runs of each door in a round; the prediction sets the number."""
LEAST_ROUNDS = 3
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


def serve_library(doors: Path, folder: Path, runs: int) -> None:
    """Answer each line of standard input with the ns of some runs of the bundle by
    libnnapi_prof_runtime, with the caller's buffers."""
    library = ctypes.CDLL(str(doors / LIBRARY))
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


@contextmanager
def stage(what: str, limit_s: int) -> Iterator[None]:
    """Print a stage and its duration; TimeoutError where it exceeds its limit."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"{what}: not done after {limit_s} s")

    print(f"{what} ...", file=sys.stderr, flush=True)
    start = time.monotonic()
    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(limit_s)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    print(f"{what}: {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)


def built_doors() -> Path:
    """Return the folder of the library and the doors, compiled unless the cache has them."""
    own = Path(__file__).parent
    key = build_key(find_compiler(cache_dir()), host_prefix(fast=True), (*SOURCES, *CMAKE_SOURCES))
    texts = (own / "Door.java", own / "Door.cpp", *sorted(java.JAVA_DIR.rglob("*.java")))
    digest = hashlib.sha256(key.encode() + b"".join(path.read_bytes() for path in texts))
    folder = cache_dir() / "benchmarks" / f"same-bundle-{digest.hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_suffix(".lock")):
        if not (folder / "done").exists():
            build_library(folder)
            build_doors(folder)
            (folder / "done").touch()
    return folder


def build_doors(folder: Path) -> None:
    """Compile the programs that run the bundle in a JVM, and in ExecuTorch."""
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
    source.mkdir(exist_ok=True)
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


@contextmanager
def door(command: list[str], environment: dict[str, str]) -> Iterator[Turn]:
    """Start a process that takes turns, until the context ends."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        to, answers = process.stdin, process.stdout
        assert to is not None and answers is not None

        def turn() -> list[int]:
            to.write("\n")
            to.flush()
            samples: list[int] = json.loads(answers.readline())
            return samples

        try:
            yield turn
        except BaseException:
            process.kill()
            raise


def measure(name: str, rounds: int, limit_s: int, doors: Path, folder: Path) -> None:
    """Print one model's figures."""
    with stage(f"{name}: profile", limit_s):
        program, x = program_of(name, SIZES.get(name))
        model = nnapi_prof.load(program, name=name)
        costs = nnapi_prof.profile(model, device="local", costs=folder / "costs.db")
    with stage(f"{name}: plan and files", limit_s):
        plan = nnapi_prof.partition(model, costs)
        (folder / "own.nnprt").write_bytes(runtime_bundle(plan.bundle))
        lower(plan, whole=True).save(folder / "one.pte")
        (folder / "plain.raw").write_bytes(x.contiguous().numpy().tobytes())
        values = plan.bundle.graph.values
        laid_out = x.permute(0, 2, 3, 1) if x.dim() == 4 else x
        (folder / "input.raw").write_bytes(laid_out.contiguous().numpy().tobytes())
        n_bytes = sum(values[output].n_bytes for output in plan.bundle.graph.outputs)
        (folder / "output.txt").write_text(str(n_bytes))
    runs = min(MOST, max(FEWEST, round(TURN_S * 1e9 / plan.plan.predicted_ns)))
    nnapi = build_host().library
    environment = {**os.environ, "LD_LIBRARY_PATH": str(nnapi.parent)}
    own = [sys.executable, __file__, "--serve", str(doors), str(folder), str(runs)]
    jvm = [
        *(str(java.find_jdk().java), f"-Djava.library.path={java.jni_library().parent}"),
        *("-cp", str(doors / "classes"), "Door", str(folder / "own.nnprt"), str(nnapi)),
        *(str(folder / "input.raw"), str(runs)),
    ]
    app = [doors / "door/door", folder / "one.pte", build_delegate(), nnapi]
    medians: dict[str, list[float]] = {}
    with ExitStack() as stack, stage(f"{name}: turns", 4 * limit_s):
        turns: dict[str, Turn] = {
            "agent": lambda: list(
                nnapi_prof.run(plan, inputs=[x], runs=runs, baselines=False).run.runs[0].total_ns
            ),
            "library": stack.enter_context(door(own, environment)),
            "java": stack.enter_context(door(jvm, environment)),
            "delegate": stack.enter_context(
                door([*map(str, app), str(folder / "plain.raw"), str(runs)], environment)
            ),
        }
        medians = take_turns(turns, rounds, limit_s)
    targets = ", ".join(segment.target.key for segment in plan.plan.segments)
    against = {
        each: statistics.median(a / b for a, b in zip(own_ns, medians["agent"], strict=True))
        for each, own_ns in medians.items()
    }
    shown = "; ".join(
        f"{each} {statistics.median(medians[each]) / 1e6:.3f} ms ({against[each]:.3f})"
        for each in medians
    )
    predicted = plan.plan.predicted_ns / statistics.median(medians["library"])
    print(
        f"{name} ({targets}; {len(medians['agent'])} rounds): {shown}; predicted / library"
        f" {predicted:.3f}",
        flush=True,
    )


def take_turns(turns: dict[str, Turn], rounds: int, limit_s: int) -> dict[str, list[float]]:
    """Return the medians of each door's turns; the order changes with each round, and the first
    round does not count."""
    medians: dict[str, list[float]] = {name: [] for name in turns}
    start = time.monotonic()
    for number in range(rounds + 1):
        if number > LEAST_ROUNDS and time.monotonic() - start > limit_s:
            break
        for each in list(turns) if number % 2 else list(turns)[::-1]:
            median = statistics.median(turns[each]())
            if number:
                medians[each].append(median)
    return medians


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", default=["mobilenet_v2", "unet", DIGITS])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--limit", type=int, default=180, help="of a stage, in seconds")
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve_library(*map(Path, options.serve[:2]), int(options.serve[2]))
        return 0
    failed = 0
    with stage("what runs the bundles", 4 * options.limit):
        doors = built_doors()
        java.jni_library()
        build_delegate()
    for name in options.models:
        with tempfile.TemporaryDirectory() as folder:
            try:
                measure(name, options.rounds, options.limit, doors, Path(folder))
            except TimeoutError as error:
                print(error, flush=True)
                failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
