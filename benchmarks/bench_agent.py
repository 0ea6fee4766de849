"""Overhead of the agent itself per NNAPI execution.

    python benchmarks/bench_agent.py [--turns N]

Runs a tiny model on nnapi-reference by the agent and by a bare loop in C over the same calls
(bench_agent.c), each in its own process, in turns. `recorded` compares the agent's record of a run
with the loop's time for it; `whole` compares a turn of the loop with a further run from an action's
start to its result line, everything included. bench_bundle.py measures the overhead of a bundle
over its segments.

Exits with 1 where the bar of 10 us is missed.
"""

from __future__ import annotations

import argparse
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.find import open_local
from nnapi_prof.device.protocol import ActionResult, Start
from nnapi_prof.device.protocol.actions import (
    ActionSpec,
    SegmentSpec,
    TensorSource,
    TensorSpec,
    Timing,
)
from nnapi_prof.device.protocol.request import RequestBuilder
from nnapi_prof.device_agent import SOURCE_DIR
from nnapi_prof.graph.plan import Engine
from nnapi_prof.nnapi.codes import OperandCode, OperationCode
from nnapi_prof.toolchain import cache_dir, find_compiler

HERE = Path(__file__).resolve().parent
DEVICE = "nnapi-reference"
MANY, FEW = 20_000, 200
MOST_US = 10.0


def tiny_model() -> bytes:
    """Returns y[1, 4] = relu(x[1, 4]) as in PROTOCOL.md, section 4."""
    words = [1, 2, 0, 1, 1, 1]
    words += [OperandCode.TENSOR_FLOAT32, 2, 0, 0] * 2
    words += [OperationCode.RELU, 1, 1]
    words += [1, 4] * 2 + [0, 1] + [0, 1]
    return struct.pack(f"<{len(words)}I", *words)


def run_tiny(client: AgentClient, runs: int, pointers: bool) -> tuple[float, float]:
    """Runs the tiny model; returns the median recorded ns, and the seconds from start to result."""
    code, dims = int(OperandCode.TENSOR_FLOAT32), (1, 4)
    request = RequestBuilder()
    model = request.add_model(tiny_model(), ())
    request.add_action(
        ActionSpec(
            0,
            (TensorSpec(code, dims, TensorSource.RANDOM, 1), TensorSpec(code, dims)),
            (SegmentSpec(Engine.NNAPI, model, (0,), (1,), DEVICE),),
            Timing(1000, 1000, 0, 1, runs, runs),
            pointers=pointers,
        )
    )
    begin = 0.0
    for event in client.run(request.request()):
        if isinstance(event, Start):
            begin = time.perf_counter()
        if isinstance(event, ActionResult):
            took = time.perf_counter() - begin
            if not event.ok:
                sys.exit(f"the agent's action {event.status.value}: {event.message}")
            return statistics.median(event.total_ns), took
    sys.exit("the agent gave no result")


def executions(client: AgentClient, turns: int) -> bool:
    """Prints the overhead of an execution over the loop's; returns whether it is within the bar."""
    library = client.installed.nnapi_library
    if library is None:
        sys.exit("this machine has an NNAPI of its own; the bar is the emulator's")
    modes = {"pointers": True, "shared memory": False}
    recorded: dict[str, list[float]] = {name: [] for name in modes}
    whole: dict[str, list[float]] = {name: [] for name in modes}
    bare: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "bench_agent"
        compiler = find_compiler(cache_dir()).path
        source = HERE / "bench_agent.c"
        command = [compiler, "-O2", f"-I{SOURCE_DIR / 'include'}", source, "-o", program, "-ldl"]
        subprocess.run([str(part) for part in command], check=True)
        for _ in range(turns):
            process = subprocess.run(
                [str(program), library, str(MANY)], check=True, capture_output=True, text=True
            )
            loop_median, loop_turn = map(float, process.stdout.split())
            bare.append(loop_median)
            for name, pointers in modes.items():
                median, many = run_tiny(client, MANY, pointers)
                _, few = run_tiny(client, FEW, pointers)
                recorded[name].append(median - loop_median)
                whole[name].append((many - few) / (MANY - FEW) * 1e9 - loop_turn)
    print(f"a bare execution takes {statistics.median(bare) / 1e3:.2f} us")
    print("| tensors in | recorded: over the loop | whole: over the loop |")
    print("|---" * 3 + "|")
    costs = []
    for name in modes:
        costs += [statistics.median(recorded[name]) / 1e3, statistics.median(whole[name]) / 1e3]
        print(f"| {name} | {costs[-2]:+.2f} us | {costs[-1]:+.2f} us |", flush=True)
    return max(costs) < MOST_US


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=9)
    options = parser.parse_args()
    with open_local(progress=print) as client:
        good = executions(client, options.turns)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
