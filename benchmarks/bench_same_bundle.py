"""One bundle by the agent, the C library, Java and ExecuTorch's delegate, on this host.

    python benchmarks/bench_same_bundle.py [--models mobilenet_v2 unet digits_int8] [--rounds N]

Each model is profiled on `local` and planned. Its bundle then runs in four processes, which take
turns: the agent's (``nnapi-prof run``), one that calls ``nnp_model_run``, a JVM that calls
``NnapiModel.run``, and one that executes the plan as one delegated call. All of them go from the
caller's buffers to the caller's buffers. Printed of each: its median, and the median over the
rounds of its ratio to the agent. The prediction of ``partition`` is compared with the library's
median.
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
from pathlib import Path

import torch
from bench_executorch import LIBRARY, build_library
from executorch_models import DIGITS, program_of

import nnapi_prof
from nnapi_prof.bundle.runtime import runtime_bundle
from nnapi_prof.device import java
from nnapi_prof.device.build import build_host
from nnapi_prof.executorch import load, lower

SIZES = {"unet": 512}
RUNS = 12
"""Of each door in a round."""
Turn = Callable[[], list[int]]


def serve(call: Callable[[], object]) -> None:
    """Answer each line of standard input by the ns of some runs."""
    for _ in sys.stdin:
        samples = []
        for number in range(-RUNS // 4, RUNS):
            start = time.perf_counter_ns()
            call()
            if number >= 0:
                samples.append(time.perf_counter_ns() - start)
        print(json.dumps(samples), flush=True)


def serve_library(folder: Path) -> None:
    """Run the bundle by libnnapi_prof_runtime, with buffers of the caller's."""
    library = ctypes.CDLL(str(folder / LIBRARY))
    bundle, model = ctypes.c_void_p(), ctypes.c_void_p()
    path = str(folder / "own.nnprt").encode()
    assert not library.nnp_bundle_open(path, ctypes.byref(bundle), None)
    assert not library.nnp_model_compile(bundle, None, ctypes.byref(model), None)
    given = ctypes.create_string_buffer((folder / "input.raw").read_bytes())
    taken = ctypes.create_string_buffer(int((folder / "output.txt").read_text()))
    inputs = (ctypes.c_void_p * 1)(ctypes.addressof(given))
    outputs = (ctypes.c_void_p * 1)(ctypes.addressof(taken))

    def call() -> None:
        assert not library.nnp_model_run(model, inputs, outputs, None)

    serve(call)


def serve_delegate(folder: Path) -> None:
    """Run the plan as one delegated call."""
    load("local")
    from executorch.runtime import Runtime

    method = Runtime.get().load_program(folder / "one.pte").load_method("forward")
    x = torch.load(folder / "input.pt")
    serve(lambda: method.execute((x,)))


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
    torch.save(x, folder / "input.pt")
    values = plan.bundle.graph.values
    laid_out = x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x
    order = laid_out.permute(0, 2, 3, 1) if x.dim() == 4 else laid_out
    (folder / "input.raw").write_bytes(order.contiguous().numpy().tobytes())
    n_bytes = sum(values[output].n_bytes for output in plan.bundle.graph.outputs)
    (folder / "output.txt").write_text(str(n_bytes))
    nnapi = build_host().library
    environment = {**os.environ, "LD_LIBRARY_PATH": str(nnapi.parent)}
    own = [sys.executable, __file__, "--serve"]
    jdk, classes = java.find_jdk(), folder / "classes"
    sources = [str(java.JAVA_DIR), str(java.JAVA_DIR / "stubs")]
    subprocess.run(
        [
            str(jdk.javac),
            "-d",
            str(classes),
            "-sourcepath",
            os.pathsep.join(sources),
            str(Path(__file__).with_name("Door.java")),
        ],
        check=True,
        capture_output=True,
    )
    jvm = [str(jdk.java), f"-Djava.library.path={java.jni_library().parent}", "-cp", str(classes)]
    files = [str(folder / "own.nnprt"), str(nnapi), str(folder / "input.raw"), str(RUNS)]
    turns: dict[str, Turn] = {
        "agent": lambda: list(
            nnapi_prof.run(plan, inputs=[x], runs=RUNS, baselines=False).run.runs[0].total_ns
        ),
        "library": door([*own, "library", str(folder)], environment),
        "java": door([*jvm, "Door", *files], environment),
        "delegate": door([*own, "delegate", str(folder)], environment),
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
        which, folder = options.serve
        {"library": serve_library, "delegate": serve_delegate}[which](Path(folder))
        return
    with tempfile.TemporaryDirectory() as folder:
        build_library(Path(folder))
        for name in options.models:
            measure(name, options.rounds, Path(folder))


if __name__ == "__main__":
    main()
