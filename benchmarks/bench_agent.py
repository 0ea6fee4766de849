"""What the agent itself costs: per NNAPI execution, and a bundle over the sum of its segments.

    python benchmarks/bench_agent.py [--turns N] [--size N]

* Per execution: the agent's runs of a tiny model on nnapi-reference against a bare loop in C over
  the same calls (bench_agent.c), a process each, in turns. `recorded` compares what the agent
  records of a run with what the loop times of it; `whole` compares a turn of the loop with what a
  further run takes from an action's start to its result line, everything included.
* Bundle: MobileNetV2 in segments, as one action. Its total is the sum of what its segments record,
  which is checked; what the agent spends on a run beside that (settling, recording, telling) is
  measured with as many segments of nothing, and put into relation. For comparison, and with no bar:
  the sum of the segments' medians when each is an action of its own in the same group, which finds
  its weights in the caches where the whole does not, and is preempted less on a busy machine.

Exits with 1 where a bar is missed: 10 us, 3 %.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from nnapi_prof.convert.converted import ConvertedRegion, operand_of
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.device.action import (
    ActionFlag,
    ActionSpec,
    SegmentSpec,
    Source,
    TensorSpec,
    Timing,
)
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.emulator import open_local
from nnapi_prof.device.request import RequestBuilder
from nnapi_prof.device.results import ActionResult, Start
from nnapi_prof.device.toolchain import cache_dir, find_compiler
from nnapi_prof.device_agent import SOURCE_DIR
from nnapi_prof.frontend.inputs import parse_input_spec
from nnapi_prof.frontend.loading import load
from nnapi_prof.graph.plan import Engine
from nnapi_prof.nnapi.codes import OperandCode, OperationCode

HERE = Path(__file__).resolve().parent
DEVICE, DEVICE_FAST = "nnapi-reference", "nnapi-fast"
MANY, FEW = 20_000, 200
MOST_US = 10.0
MOST_RATIO = 1.03
SEGMENTS = 6
ROUNDS = 8


def tiny_model() -> bytes:
    """y[1, 4] = relu(x[1, 4]) as PROTOCOL.md, section 4, has it."""
    words = [1, 2, 0, 1, 1, 1]
    words += [OperandCode.TENSOR_FLOAT32, 2, 0, 0] * 2
    words += [OperationCode.RELU, 1, 1]
    words += [1, 4] * 2 + [0, 1] + [0, 1]
    return struct.pack(f"<{len(words)}I", *words)


def run_tiny(
    client: AgentClient, runs: int, flags: ActionFlag, n: int = 1
) -> tuple[float, float, float]:
    """Runs n tiny segments: the median and the sum of the recorded ns, and the seconds from start
    to result."""
    code, dims = int(OperandCode.TENSOR_FLOAT32), (1, 4)
    request = RequestBuilder()
    model = request.add_model(tiny_model(), ())
    request.add_action(
        ActionSpec(
            0,
            (TensorSpec(code, dims, Source.RANDOM, 1), *[TensorSpec(code, dims)] * n),
            tuple(SegmentSpec(Engine.NNAPI, model, (i,), (i + 1,), DEVICE) for i in range(n)),
            Timing(1000, 1000, 0, 1, runs, runs),
            flags=flags,
        )
    )
    begin = 0.0
    for event in client.run(request.build(), request.blobs):
        if isinstance(event, Start):
            begin = time.perf_counter()
        if isinstance(event, ActionResult):
            took = time.perf_counter() - begin
            if not event.ok:
                sys.exit(f"the agent's action {event.status.value}: {event.message}")
            return statistics.median(event.total_ns), sum(event.total_ns), took
    sys.exit("the agent gave no result")


def executions(client: AgentClient, turns: int) -> bool:
    """Prints what an execution costs beyond the loop's; whether it is within the bar."""
    library = client.installed.nnapi_library
    if library is None:
        sys.exit("this machine has an NNAPI of its own; the bar is the emulator's")
    modes = {"pointers": ActionFlag.POINTERS, "shared memory": ActionFlag(0)}
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
            said = subprocess.run(
                [str(program), library, str(MANY)], check=True, capture_output=True, text=True
            )
            loop_median, loop_turn = map(float, said.stdout.split())
            bare.append(loop_median)
            for name, flags in modes.items():
                median, _, many = run_tiny(client, MANY, flags)
                _, _, few = run_tiny(client, FEW, flags)
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


def cut(model: Path, size: int) -> list[ConvertedRegion]:
    """The model in SEGMENTS pieces of about as many units."""
    program = load(model, [parse_input_spec(f"1x3x{size}x{size}")])
    n = len(program.units.units)
    edges = [n * i // SEGMENTS for i in range(SEGMENTS + 1)]
    return [
        convert_region(program, tuple(range(low, high)), 30)
        for low, high in itertools.pairwise(edges)
    ]


def chain(
    number: int, regions: Sequence[ConvertedRegion], models: Sequence[int], engine: Engine
) -> ActionSpec:
    """An action that runs regions one after the other; what none of them makes is random."""
    tensors: list[TensorSpec] = []
    index: dict[str, int] = {}
    segments = []
    for region, model in zip(regions, models, strict=True):
        for names, types, source in (
            (region.inputs, region.input_types, Source.RANDOM),
            (region.outputs, region.output_types, Source.SEGMENT),
        ):
            for name, known in zip(names, types, strict=True):
                if name in index:
                    continue
                operand = operand_of(known)
                assert operand is not None
                seed = 1 if source is Source.RANDOM else 0
                index[name] = len(tensors)
                tensors.append(TensorSpec(operand.type, operand.dims, source, seed))
        accelerator = DEVICE_FAST if engine is Engine.NNAPI else None
        ports = (tuple(index[n] for n in names) for names in (region.inputs, region.outputs))
        segments.append(SegmentSpec(engine, model, *ports, accelerator))
    timing = Timing(3, 30, 1_000_000_000, ROUNDS, 2 * ROUNDS, 40 * ROUNDS, ROUNDS * 250_000_000)
    return ActionSpec(number, tuple(tensors), tuple(segments), timing, group=1)


def beside(client: AgentClient, turns: int) -> float:
    """ns that a run of SEGMENTS segments takes beside what is recorded of it."""
    found = []
    for _ in range(turns):
        _, many_ns, many_s = run_tiny(client, MANY, ActionFlag(0), SEGMENTS)
        _, few_ns, few_s = run_tiny(client, FEW, ActionFlag(0), SEGMENTS)
        found.append(((many_s - few_s) * 1e9 - (many_ns - few_ns)) / (MANY - FEW))
    return statistics.median(found)


def bundle(
    client: AgentClient, regions: Sequence[ConvertedRegion], engine: Engine, beside_ns: float
) -> float:
    """The whole with what the agent spends beside it, over the sum of its segments."""
    request = RequestBuilder()
    models = [request.add_region(region) for region in regions]
    request.add_action(chain(0, regions, models, engine))
    for number, (region, model) in enumerate(zip(regions, models, strict=True), 1):
        request.add_action(chain(number, [region], [model], engine))
    results: dict[int, ActionResult] = {}
    for event in client.run(request.build(), request.blobs):
        if not isinstance(event, ActionResult):
            continue
        if not event.ok:
            sys.exit(f"action {event.action} {event.status.value}: {event.message}")
        results[event.action] = event
    whole = results[0]
    sums = [sum(run) for run in zip(*(s.samples_ns for s in whole.segments), strict=True)]
    own = statistics.median(sums)
    ratio = (statistics.median(whole.total_ns) + beside_ns) / own
    alone = sum(statistics.median(r.total_ns) for n, r in results.items() if n != 0)
    kind = "cpu" if engine is Engine.CPU else DEVICE_FAST
    print(f"| {kind} | {own / 1e6:.3f} | {ratio:.4f} | {alone / 1e6:.3f} |", flush=True)
    return ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--size", type=int, default=224, help="side of MobileNetV2's input")
    options = parser.parse_args()
    with open_local(progress=print) as client, tempfile.TemporaryDirectory() as folder:
        good = executions(client, options.turns)
        model = Path(folder) / "mobilenet_v2.pt"
        command = [sys.executable, "examples/models.py", "mobilenet_v2", str(model)]
        subprocess.run([*command, "--size", str(options.size)], cwd=HERE.parent, check=True)
        regions = cut(model, options.size)
        beside_ns = beside(client, options.turns)
        print(
            f"\nMobileNetV2 in {len(regions)} segments; beside them {beside_ns / 1e3:.2f} us a run"
        )
        print("| engine | sum of its segments ms | whole over it | segments alone ms |")
        print("|---" * 4 + "|")
        ratios = []
        for engine in (Engine.CPU, Engine.NNAPI):
            found = [bundle(client, regions, engine, beside_ns) for _ in range(3)]
            ratios.append(statistics.median(found))
        good = good and max(ratios) < MOST_RATIO
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
