"""A grid with faults of every kind in some of its members: each becomes a line, and the rest of
the grid is complete."""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_packer import (
    CPU,
    NNAPI,
    RANDOM,
    RELU,
    SEGMENT,
    UNBOUNDED,
    Agent,
    Answer,
    Request,
    tensor,
    unary,
)

FLOOR, LOGISTIC, RELU1, RELU6, TANH = 8, 14, 20, 21, 28  # NNAPI operation codes
ABS, EXP, NEG, SIN, SQRT = 38, 49, 67, 85, 88
PHONES = Path(__file__).parents[2] / "device_agent" / "emulator" / "phones"
NPU = "sim-npu"
LIMIT_KB = 200_000
TIMEOUT_MS, HANG_MS = 60_000, 3000
"""Of actions that end by themselves, however busy the machine is, and of those that hang."""

# Fault -> operation that meets it, and status, stage and signal of the action's line.
FAULTS = {
    "refuse:compile:TANH": (TANH, "refused", "compile", None),
    "fail:compile:LOGISTIC": (LOGISTIC, "failed", "compile", None),
    "hang:compile:RELU1": (RELU1, "timeout", "compile", None),
    "abort:compile:RELU6": (RELU6, "crashed", "compile", "SIGABRT"),
    "crash:compile:FLOOR": (FLOOR, "crashed", "compile", "SIGSEGV"),
    "exhaust:compile:SQRT": (SQRT, "crashed", "compile", "SIGKILL"),
    "refuse:execute:EXP": (EXP, "failed", "execute", None),
    "fail:execute:NEG:1:7": (NEG, "failed", "execute", None),
    "hang:execute:ABS:1:7": (ABS, "timeout", "execute", None),
    "abort:execute:SIN:1:7": (SIN, "crashed", "execute", "SIGABRT"),
}
# The environment takes one list; these strike operations that are in it already.
EXECUTION_FAULTS = {
    "crash:execute:TANH:1:7": (TANH, "crashed", "execute", "SIGSEGV"),
    "exhaust:execute:LOGISTIC:1:7": (LOGISTIC, "crashed", "execute", "SIGKILL"),
}


def grid(operations: list[int], engines: tuple[int, ...], hanging: set[int]) -> Request:
    """A group of the engines' actions for each operation."""
    request = Request()
    for group, operation in enumerate(operations, 1):
        m = request.model(unary(operation, 8))
        for engine in engines:
            request.action(
                [tensor(RANDOM, 8), tensor(SEGMENT, 8, keep=True)],
                [
                    request.segment(
                        engine, m, [0], [1], accelerator=NPU if engine == NNAPI else None
                    )
                ],
                group=group,
                timeout_ms=HANG_MS if operation in hanging and engine == NNAPI else TIMEOUT_MS,
                memory_kb=LIMIT_KB,
                warmup=1,
                rounds=3,
                runs=(6, 6),
            )
    return request


def check_complete(result: dict[str, Any]) -> None:
    assert result["status"] == "ok", result
    assert len(result["total_ns"]) == 6
    assert [r["runs"] for r in result["rounds"]] == [2, 2, 2]
    assert len(result["outputs"]) == 1


@pytest.fixture
def able_phone(agent: Agent, tmp_path: Path) -> Agent:
    """npu-phone, but its NPU takes every operation."""
    phone = json.loads((PHONES / "npu-phone.json").read_text())
    npu = next(a for a in phone["accelerators"] if a["name"] == NPU)
    npu["operations"] = {"except": [], "origin": "assumed: a test"}
    path = tmp_path / "able.json"
    path.write_text(json.dumps(phone))
    agent.simulate(path)
    return agent


@pytest.mark.parametrize("faults", [FAULTS, EXECUTION_FAULTS], ids=["faults", "execution"])
def test_every_fault_becomes_a_line_and_the_rest_of_the_grid_is_complete(
    able_phone: Agent, faults: dict[str, tuple[int, str, str, str | None]]
) -> None:
    able_phone.env["NNAPI_EMULATOR_FAULTS"] = ",".join(f"{fault}@{NPU}" for fault in faults)
    struck = {operation: outcome for operation, *outcome in faults.values()}
    operations = [RELU, *struck, RELU]  # no fault strikes the first and the last
    hanging = {operation for operation, outcome in struck.items() if outcome[0] == "timeout"}
    answer = able_phone.run(grid(operations, (CPU, NNAPI, CPU), hanging))
    assert answer.exit_code == 0
    assert len(answer.results) == 3 * len(operations)
    by_id = {result["action"]: result for result in answer.results}
    for at, operation in enumerate(operations):
        before, on_npu, after = (by_id[3 * at + i] for i in range(3))
        check_complete(before)
        check_complete(after)
        if operation not in struck:
            check_complete(on_npu)
            continue
        ending = [on_npu["status"], on_npu["stage"], on_npu["signal"]]
        assert ending == struck[operation], on_npu
        if on_npu["signal"] == "SIGKILL":
            assert f"{LIMIT_KB} kB are allowed" in on_npu["message"]
            assert 0.9 * LIMIT_KB < on_npu["rss_peak_kb"] < 3 * LIMIT_KB
        recorded = 0 if struck[operation][1] == "compile" or operation == EXP else 3
        assert len(on_npu["total_ns"]) == recorded  # those before the fault: 1 + 3 runs, 2 of 3
    end = answer.of_type("end")[0]
    assert (end["ok"], end["failed"]) == (3 * len(operations) - len(struck), len(struck))


# --- a vendor's library that misbehaves in real time


@pytest.fixture
def faulty(agent: Agent, compile_library: Callable[[str], Path]) -> Iterator[Agent]:
    agent.library = compile_library("faulty")
    yield agent
    assert not leftovers(agent)


def leftovers(agent: Agent) -> list[int]:
    """Processes of this test's agent that are still there."""
    items = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if os.fsencode(agent.request_path) in command and state != "Z":
            items.append(int(entry.name))
    return items


def run_faulty(faulty: Agent, fault: str, at: str, **options: Any) -> Answer:
    """A group of the CPU, the faulty library, and the CPU."""
    faulty.env |= {"NP_FAULT": fault, "NP_FAULT_AT": at}
    request = Request()
    m = request.model(unary(RELU, 8))
    for engine in (CPU, NNAPI, CPU):
        request.action(
            [tensor(RANDOM, 8), tensor(SEGMENT, 8, keep=True)],
            [request.segment(engine, m, [0], [1])],
            group=1,
            **(dict(timeout_ms=700, warmup=1, rounds=3, runs=(6, 6)) | options),
        )
    return faulty.run(request)


@pytest.mark.parametrize(
    "fault, at, stage, runs",
    [
        ("hang", "finish", "compile", 0),
        ("spin", "7", "execute", 3),
        ("stubborn", "7", "execute", 3),
    ],
)
def test_a_driver_that_never_returns(
    faulty: Agent, fault: str, at: str, stage: str, runs: int
) -> None:
    start = time.monotonic()
    answer = run_faulty(faulty, fault, at)
    assert time.monotonic() - start < 15
    *fine, hanging = answer.results  # it was tried once more, when the others were done
    assert (hanging["action"], hanging["status"], hanging["stage"]) == (1, "timeout", stage)
    assert hanging["attempts"] == 2
    assert len(hanging["total_ns"]) == runs
    for result in fine:
        check_complete(result)


@pytest.mark.parametrize("at, stage", [("finish", "compile"), ("4", "execute")])
def test_a_driver_that_leaks(faulty: Agent, at: str, stage: str) -> None:
    answer = run_faulty(faulty, "leak", at, memory_kb=LIMIT_KB, timeout_ms=20000)
    results = {result["action"]: result for result in answer.results}
    leaking = results.pop(1)
    assert (leaking["status"], leaking["stage"], leaking["signal"]) == ("crashed", stage, "SIGKILL")
    assert leaking["message"].startswith(f"killed during {'compile' if at == 'finish' else 'run'}")
    assert f"{LIMIT_KB} kB are allowed" in leaking["message"]
    assert leaking["rss_peak_kb"] < 3 * LIMIT_KB
    assert set(results) == {0, 2}
    for result in results.values():
        check_complete(result)


@pytest.mark.parametrize("at", ["finish", "3"])
def test_a_driver_that_closes_every_file(faulty: Agent, at: str) -> None:
    """The process takes its turns without them, only its outputs have nowhere to go."""
    results = {r["action"]: r for r in run_faulty(faulty, "close", at, timeout_ms=20000).results}
    check_complete(results[0])
    check_complete(results[2])
    assert len(results[1]["total_ns"]) == 6
    assert (results[1]["status"], results[1]["stage"]) == ("failed", "execute")
    assert "cannot write 1-1.bin" in results[1]["message"]


def test_memory_may_be_unbounded(agent: Agent) -> None:
    request = Request()
    m = request.model(unary(RELU, 8))
    request.action(
        [tensor(RANDOM, 8), tensor(SEGMENT, 8)],
        [request.segment(CPU, m, [0], [1])],
        memory_kb=UNBOUNDED,
    )
    request.action(
        [tensor(RANDOM, 8), tensor(SEGMENT, 8)],
        [request.segment(CPU, m, [0], [1])],
        memory_kb=1,
    )
    free, bound = agent.run(request).results
    assert free["status"] == "ok"
    assert (bound["status"], bound["signal"]) == ("crashed", "SIGKILL")
    assert "1 kB are allowed" in bound["message"]


@pytest.mark.parametrize("has_killer", [False, True])
def test_who_goes_first_where_memory_runs_out(
    agent: Agent, compile_library: Callable[[str], Path], tmp_path: Path, has_killer: bool
) -> None:
    """A kernel with a low memory killer of its own goes by the score alone, and all the time."""
    agent.library = compile_library("faulty")
    agent.env |= {"NP_FAULT": "kill", "NP_FAULT_AT": "4", "NNAPI_PROF_SYSFS": str(tmp_path / "sys")}
    agent.env["NP_SCORE"] = str(tmp_path / "score")
    if has_killer:
        (tmp_path / "sys" / "module" / "lowmemorykiller").mkdir(parents=True)
    request = Request()
    request.action(
        [tensor(RANDOM, 8), tensor(SEGMENT, 8)],
        [request.segment(NNAPI, request.model(unary(RELU, 8)), [0], [1])],
    )
    (killed,) = agent.run(request).results
    score = int((tmp_path / "score").read_text())
    own = int(Path("/proc/self/oom_score_adj").read_text())
    assert score == (own if has_killer else 700)
    assert (killed["status"], killed["signal"], killed["attempts"]) == ("crashed", "SIGKILL", 2)
    assert "low memory killer" in killed["message"]
    assert ("kernel" in killed["message"]) == has_killer
