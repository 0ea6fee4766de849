"""What breaks in a driver costs one action; what breaks the agent costs no finished result."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_packer import CPU, NNAPI, RANDOM, RELU, SEGMENT, Agent, Request, tensor, unary

from tests.processes import is_running, wait_until


@pytest.fixture
def faulty(agent: Agent, compile_library: Callable[[str], Path]) -> Agent:
    agent.library = compile_library("faulty")
    return agent


def request_of(*engines: int, timeout_ms: int = 20000, runs: int = 3) -> Request:
    """An action for each engine."""
    request = Request()
    m = request.model(unary(RELU, 4))
    for engine in engines:
        request.action(
            [tensor(RANDOM, 4), tensor(SEGMENT, 4, keep=True)],
            [request.segment(engine, m, [0], [1])],
            timeout_ms=timeout_ms,
            runs=(runs, runs),
        )
    return request


@pytest.mark.parametrize("fault, name", [("abort", "SIGABRT"), ("segv", "SIGSEGV")])
def test_crash_while_compiling(faulty: Agent, fault: str, name: str) -> None:
    faulty.env |= {"NP_FAULT": fault, "NP_FAULT_AT": "finish"}
    answer = faulty.run(request_of(NNAPI, CPU))
    crashed, fine = answer.results
    assert answer.exit_code == 0
    assert (crashed["status"], crashed["stage"], crashed["signal"]) == ("crashed", "compile", name)
    assert crashed["message"] == f"{name} during compile of segment 0 (nnapi, its own choice)"
    if fault == "abort":  # the last of what the library printed, as one line
        assert "000 vendor: firmware is lost " in crashed["words"]
        assert len(crashed["words"]) == 199 and "firmware" in answer.stderr
    else:  # QEMU, where it runs the agent, prints that, and nothing else does
        assert crashed["words"] is None or crashed["words"].startswith("qemu: ")
    assert fine["status"] == "ok"  # the rest goes on
    end = answer.of_type("end")[0]
    assert (end["ok"], end["failed"]) == (1, 1)


def test_crash_midway_keeps_samples(faulty: Agent) -> None:
    faulty.env |= {"NP_FAULT": "segv", "NP_FAULT_AT": "5"}  # two runs unrecorded, then two recorded
    (result,) = faulty.run(request_of(NNAPI, runs=5)).results
    assert (result["status"], result["stage"]) == ("crashed", "execute")
    assert len(result["total_ns"]) == len(result["segments"][0]["samples_ns"]) == 2
    assert result["first_ns"] > 0
    assert result["segments"][0]["compile_ns"] > 0
    assert result["outputs"] == []
    assert os.listdir(faulty.work) == []


def test_library_that_exits(faulty: Agent) -> None:
    faulty.env |= {"NP_FAULT": "exit", "NP_FAULT_AT": "finish"}
    (result,) = faulty.run(request_of(NNAPI)).results
    assert (result["status"], result["stage"], result["signal"]) == ("crashed", "compile", None)
    assert "the process ended itself with code 9 during compile" in result["message"]


def test_library_that_prints(faulty: Agent) -> None:
    """A vendor's words go to standard error, so that they never look like ours."""
    faulty.env |= {"NP_FAULT": "noise", "NP_FAULT_AT": "finish"}
    answer = faulty.run(request_of(NNAPI))
    assert [line["type"] for line in answer.lines] == ["hello", "start", "result", "end"]
    assert answer.results[0]["status"] == "ok"
    assert "half a line" in answer.stderr


def test_prints_do_not_break_lines_where_both_outputs_are_one(faulty: Agent) -> None:
    """As in adb's first shell protocol: there the library's words have nowhere to go."""
    faulty.env |= {"NP_FAULT": "noise", "NP_FAULT_AT": "finish"}
    command = faulty.command(request_of(NNAPI).pack())
    done = subprocess.run(
        command, env=faulty.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60
    )
    lines = [json.loads(line)["type"] for line in done.stdout.splitlines()]
    assert lines == ["hello", "start", "result", "end"]


def children_of(pid: int) -> list[int]:
    result = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in result]


def start_hanging(faulty: Agent) -> subprocess.Popen[bytes]:
    """Runs one action that is fine and one that hangs; returns when the second one has begun."""
    faulty.env |= {"NP_FAULT": "hang", "NP_FAULT_AT": "finish"}
    command = faulty.command(request_of(CPU, NNAPI, timeout_ms=60000).pack())
    process = subprocess.Popen(
        command, env=faulty.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    for expected in ("hello", "start", "result", "start"):
        assert json.loads(process.stdout.readline())["type"] == expected
    wait_until(lambda: len(children_of(process.pid)) == 1)
    return process


def test_killed_agent_leaves_whole_lines_and_no_child(faulty: Agent) -> None:
    process = start_hanging(faulty)
    (child,) = children_of(process.pid)
    process.send_signal(signal.SIGKILL)
    assert process.wait(20) == -signal.SIGKILL
    assert process.stdout is not None
    assert process.stdout.read() == b""  # nothing but the whole lines that were read
    process.stdout.close()
    wait_until(lambda: not is_running(child))


def test_reader_that_goes_away_ends_the_agent(faulty: Agent) -> None:
    process = start_hanging(faulty)
    (child,) = children_of(process.pid)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(20) == 1
    wait_until(lambda: not is_running(child))
