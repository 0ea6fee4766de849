"""What breaks in a driver costs one action; what breaks the agent costs no finished result."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.agent.packer import CPU, NNAPI, relus
from tests.processes import is_running, wait_until


@pytest.mark.parametrize("fault, name", [("abort", "SIGABRT"), ("segv", "SIGSEGV")])
def test_crash_while_compiling(faulty, fault, name):
    faulty.fault(fault, "finish")
    answer = faulty.run(relus(NNAPI, CPU))
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
    (end,) = answer.of_type("end")
    assert (end["ok"], end["failed"]) == (1, 1)


def test_library_that_exits(faulty):
    faulty.fault("exit", "finish")
    (result,) = faulty.run(relus(NNAPI)).results
    assert (result["status"], result["stage"], result["signal"]) == ("crashed", "compile", None)
    assert "the process ended itself with code 9 during compile" in result["message"]


def test_library_that_prints(faulty):
    """A vendor's words go to standard error, so that they never look like ours."""
    faulty.fault("noise", "finish")
    answer = faulty.run(relus(NNAPI))
    assert answer.types == ["hello", "start", "result", "end"]
    assert answer.results[0]["status"] == "ok"
    assert "half a line" in answer.stderr


def test_prints_do_not_break_lines_where_both_outputs_are_one(faulty):
    """As in adb's first shell protocol: there the library's words have nowhere to go."""
    faulty.fault("noise", "finish")
    command = faulty.command(relus(NNAPI).pack())
    done = subprocess.run(
        command, env=faulty.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60
    )
    lines = [json.loads(line)["type"] for line in done.stdout.splitlines()]
    assert lines == ["hello", "start", "result", "end"]


@pytest.fixture
def hanging(faulty):
    """An agent whose first action was fine and whose second one hangs; and that one's process."""
    faulty.fault("hang", "finish")
    command = faulty.command(relus(CPU, NNAPI, timeout_ms=60000).pack())
    with subprocess.Popen(
        command, env=faulty.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        lines = [json.loads(process.stdout.readline())["type"] for _ in range(4)]
        assert lines == ["hello", "start", "result", "start"]
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        wait_until(lambda: len(children.read_text().split()) == 1)
        yield process, int(children.read_text())


def test_killed_agent_leaves_whole_lines_and_no_child(hanging):
    process, child = hanging
    process.send_signal(signal.SIGKILL)
    assert process.wait(20) == -signal.SIGKILL
    assert process.stdout.read() == b""  # nothing but the whole lines that were read
    wait_until(lambda: not is_running(child))


def test_reader_that_goes_away_ends_the_agent(hanging):
    process, child = hanging
    process.stdout.close()
    assert process.wait(20) == 1
    wait_until(lambda: not is_running(child))
