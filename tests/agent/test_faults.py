"""Faults of drivers, and of what surrounds the agent: each costs one action and becomes a line, the
rest of the grid is complete, and no finished result is lost."""

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from nnapi_prof.nnapi.codes import OperationCode
from tests.agent.packer import CPU, NNAPI, RELU, UNBOUNDED, Request, relus
from tests.emulator.phones.descriptions import operations, phone
from tests.processes import is_running, wait_until

NPU = "sim-npu"
LIMIT_KB = 200_000
TIMEOUT_MS, HANG_MS = 60_000, 3000
"""Of actions that end by themselves, however busy the machine is, and of those that hang."""
OF_3_ROUNDS = dict(warmup=1, rounds=3, runs=(6, 6))

# Fault, with the operation that meets it -> status, stage and signal of the action's line.
FAULTS = {
    "refuse:compile:TANH": ("refused", "compile", None),
    "fail:compile:LOGISTIC": ("failed", "compile", None),
    "hang:compile:RELU1": ("timeout", "compile", None),
    "abort:compile:RELU6": ("crashed", "compile", "SIGABRT"),
    "crash:compile:FLOOR": ("crashed", "compile", "SIGSEGV"),
    "exhaust:compile:SQRT": ("crashed", "compile", "SIGKILL"),
    "refuse:execute:EXP": ("failed", "execute", None),
    "fail:execute:NEG:1:7": ("failed", "execute", None),
    "hang:execute:ABS:1:7": ("timeout", "execute", None),
    "abort:execute:SIN:1:7": ("crashed", "execute", "SIGABRT"),
}
# The environment takes one list; these strike operations that are in it already.
EXECUTION_FAULTS = {
    "crash:execute:TANH:1:7": ("crashed", "execute", "SIGSEGV"),
    "exhaust:execute:LOGISTIC:1:7": ("crashed", "execute", "SIGKILL"),
}


def check_complete(result):
    assert result["status"] == "ok", result
    assert len(result["total_ns"]) == 6
    assert [r["runs"] for r in result["rounds"]] == [2, 2, 2]
    assert len(result["outputs"]) == 1


@pytest.fixture
def able_phone(agent):
    """npu-phone, but its NPU takes every operation."""
    agent.simulate(phone(operations(), accelerators=3))
    return agent


@pytest.mark.parametrize("faults", [FAULTS, EXECUTION_FAULTS], ids=["faults", "execution"])
def test_every_fault_becomes_a_line_and_the_rest_of_the_grid_is_complete(able_phone, faults):
    able_phone.env["NNAPI_EMULATOR_FAULTS"] = ",".join(f"{fault}@{NPU}" for fault in faults)
    struck = {OperationCode[fault.split(":")[2]]: outcome for fault, outcome in faults.items()}
    operations = [RELU, *struck, RELU]  # no fault strikes the first and the last
    request = Request()
    for group, operation in enumerate(operations, 1):
        hangs = struck.get(operation, ("ok",))[0] == "timeout"
        for accelerator in (None, NPU, None):
            request.unary(
                *(NNAPI if accelerator else CPU, 8),
                code=operation,
                accelerator=accelerator,
                group=group,
                timeout_ms=HANG_MS if accelerator and hangs else TIMEOUT_MS,
                memory_kb=LIMIT_KB,
                **OF_3_ROUNDS,
            )
    answer = able_phone.run(request)
    assert answer.exit_code == 0
    by_id = {result["action"]: result for result in answer.results}
    assert len(answer.results) == len(by_id) == 3 * len(operations)
    for at, operation in enumerate(operations):
        before, on_npu, after = (by_id[3 * at + i] for i in range(3))
        check_complete(before)
        check_complete(after)
        if operation not in struck:
            check_complete(on_npu)
            continue
        assert (on_npu["status"], on_npu["stage"], on_npu["signal"]) == struck[operation], on_npu
        if on_npu["signal"] == "SIGKILL":
            assert f"{LIMIT_KB} kB are allowed" in on_npu["message"]
            assert 0.9 * LIMIT_KB < on_npu["rss_peak_kb"] < 3 * LIMIT_KB
        none = on_npu["stage"] == "compile" or operation is OperationCode.EXP
        # those before the fault: 1 + 3 runs, 2 of 3
        assert len(on_npu["total_ns"]) == (0 if none else 3)
    (end,) = answer.of_type("end")
    assert (end["ok"], end["failed"]) == (3 * len(operations) - len(struck), len(struck))


# --- a vendor's library that misbehaves in real time


@pytest.fixture
def faulty(faulty):
    """No process of its agent is left over; one that has ended has no command line."""
    yield faulty
    leftovers = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if os.fsencode(faulty.request_path) in command.read_bytes():
                leftovers.append(command)
    assert leftovers == []


def run_faulty(faulty, fault, at, timeout_ms=20_000, **options):
    """The result of the faulty library, which shares a group with two of the CPU's: these are
    complete. It comes last if it was tried once more, when the others were done."""
    faulty.fault(fault, at)
    request = relus(CPU, NNAPI, CPU, group=1, timeout_ms=timeout_ms, **OF_3_ROUNDS, **options)
    results = {result["action"]: result for result in faulty.run(request).results}
    *_, last = results
    assert (len(results), last == 1) == (3, results[1]["attempts"] == 2)
    check_complete(results[0])
    check_complete(results[2])
    return results[1]


@pytest.mark.parametrize(
    "fault, at, stage",
    [("hang", "finish", "compile"), ("spin", "7", "execute"), ("stubborn", "7", "execute")],
)
def test_a_driver_that_never_returns(faulty, fault, at, stage):
    start = time.monotonic()
    hanging = run_faulty(faulty, fault, at, timeout_ms=700)
    assert time.monotonic() - start < 15
    assert (hanging["status"], hanging["stage"], hanging["attempts"]) == ("timeout", stage, 2)
    assert len(hanging["total_ns"]) == (3 if stage == "execute" else 0)


@pytest.mark.parametrize("at, stage", [("finish", "compile"), ("4", "execute")])
def test_a_driver_that_leaks(faulty, at, stage):
    leaking = run_faulty(faulty, "leak", at, memory_kb=LIMIT_KB)
    assert (leaking["status"], leaking["stage"], leaking["signal"]) == ("crashed", stage, "SIGKILL")
    assert leaking["message"].startswith(f"killed during {'run' if at == '4' else stage}")
    assert f"{LIMIT_KB} kB are allowed" in leaking["message"]
    assert leaking["rss_peak_kb"] < 3 * LIMIT_KB


@pytest.mark.parametrize("at", ["finish", "3"])
def test_a_driver_that_closes_every_file(faulty, at):
    """The process takes its turns without them, only its outputs have nowhere to go."""
    result = run_faulty(faulty, "close", at)
    assert len(result["total_ns"]) == 6
    assert (result["status"], result["stage"]) == ("failed", "execute")
    assert "cannot write 1-1.bin" in result["message"]


def test_memory_may_be_unbounded(agent):
    request = relus(CPU, memory_kb=UNBOUNDED)
    request.unary(CPU, 4, memory_kb=1)
    free, bound = agent.run(request).results
    assert free["status"] == "ok"
    assert (bound["status"], bound["signal"]) == ("crashed", "SIGKILL")
    assert "1 kB are allowed" in bound["message"]


@pytest.mark.parametrize("has_killer", [False, True])
def test_who_goes_first_where_memory_runs_out(faulty, tmp_path, has_killer):
    """A kernel with a low memory killer of its own goes by the score alone, and all the time."""
    faulty.fault("kill", "4")
    faulty.env |= {"NNAPI_PROF_SYSFS": f"{tmp_path}/sys", "NP_SCORE": f"{tmp_path}/score"}
    if has_killer:
        (tmp_path / "sys" / "module" / "lowmemorykiller").mkdir(parents=True)
    (killed,) = faulty.run(relus(NNAPI)).results
    score = int((tmp_path / "score").read_text())
    own = int(Path("/proc/self/oom_score_adj").read_text())
    assert score == (own if has_killer else 700)
    assert (killed["status"], killed["signal"], killed["attempts"]) == ("crashed", "SIGKILL", 2)
    assert "low memory killer" in killed["message"]
    assert ("kernel" in killed["message"]) == has_killer


# --- whole lines, and the rest goes on


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
    """A vendor's words go to standard error, so that they never look like ours; where both outputs
    are one, as in adb's first shell protocol, they have nowhere to go."""
    faulty.fault("noise", "finish")
    apart, as_one = (
        faulty.run(relus(NNAPI), stderr=at) for at in (subprocess.PIPE, subprocess.STDOUT)
    )
    assert apart.types == as_one.types == ["hello", "start", "result", "end"]
    assert apart.results[0]["status"] == "ok"
    assert "half a line" in apart.stderr


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
