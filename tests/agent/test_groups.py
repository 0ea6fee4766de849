"""Actions that run interleaved: turns, rounds, warm-up, throttling, and their readings."""

import json
import threading
import time
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from agent_packer import (
    ALL_CPUS,
    CPU,
    NNAPI,
    RANDOM,
    RELU,
    SEGMENT,
    UNTIMED,
    Agent,
    Request,
    tensor,
    unary,
)


def add(request: Request, engine: int, model: int, **options: Any) -> int:
    return request.action(
        [tensor(RANDOM, 4), tensor(SEGMENT, 4, keep=True)],
        [request.segment(engine, model, [0], [1])],
        **options,
    )


def request_of(*engines: int, **options: Any) -> Request:
    """An action for each engine."""
    request = Request()
    m = request.model(unary(RELU, 4))
    for engine in engines:
        add(request, engine, m, **options)
    return request


def test_actions_of_a_group_take_turns(
    agent: Agent, compile_library: Callable[[str], Path], tmp_path: Path
) -> None:
    agent.library = compile_library("faulty")  # which logs every computation
    agent.env["NP_LOG"] = str(tmp_path / "log")
    answer = agent.run(
        request_of(NNAPI, NNAPI, NNAPI, group=1, warmup=2, rounds=3, runs=(6, 6), budget_ns=0)
    )
    assert [r["status"] for r in answer.results] == ["ok"] * 3
    pids = [line.split()[0] for line in (tmp_path / "log").read_text().splitlines()]
    turns = [(pid, len(list(runs))) for pid, runs in groupby(pids)]
    first, second, third = (pid for pid, _ in turns[:3])
    assert turns[:3] == [(first, 2), (second, 2), (third, 2)]  # warm-up, one after the other
    # Two unrecorded runs, as they share an accelerator, and two recorded ones; the second round
    # runs backwards, so that the last of one round is the first of the next.
    assert turns[3:] == [
        (first, 4),
        (second, 4),
        (third, 8),
        (second, 4),
        (first, 8),
        (second, 4),
        (third, 4),
    ]
    kinds = [(line["type"], line.get("action")) for line in answer.lines[1:-1]]
    assert kinds == [("start", i) for i in range(3)] + [("result", i) for i in range(3)]


def test_rounds_are_told_apart(agent: Agent) -> None:
    (result,) = agent.run(request_of(CPU, rounds=4, runs=(5, 9), budget_ns=0)).results
    # Shares are rounded up: at least 2 of 5 runs in each of the 4 rounds.
    assert [r["runs"] for r in result["rounds"]] == [2, 2, 2, 2]
    assert len(result["total_ns"]) == 8
    assert [r["repeats"] for r in result["rounds"]] == [None] * 4


def test_a_rounds_share_of_the_budget_and_of_the_most_runs(npu_phone: Agent) -> None:
    """The simulated phone's clock makes it exact: a run takes some microseconds there."""
    (result,) = npu_phone.run(
        request_of(CPU, rounds=2, runs=(2, 100), budget_ns=10**12, warmup=0)
    ).results
    assert [r["runs"] for r in result["rounds"]] == [50, 50]
    one = result["total_ns"][0]
    (result,) = npu_phone.run(
        request_of(CPU, rounds=2, runs=(2, 100), budget_ns=20 * one, warmup=0)
    ).results
    for r in result["rounds"]:
        assert 5 <= r["runs"] <= 20  # about ten times `one`, give or take the noise
    first, second = (r["runs"] for r in result["rounds"])
    assert sum(result["total_ns"][:first]) >= 10 * one > sum(result["total_ns"][: first - 1])
    assert len(result["total_ns"]) == first + second


def test_warm_up_ends_when_it_is_stable(npu_phone: Agent) -> None:
    """The phone's noise is below 2 %: ten runs show it."""
    (result,) = npu_phone.run(request_of(CPU, warmup=(1, 500), warmup_ns=10**12)).results
    assert result["warm"] is True
    assert 10 <= result["warmup_runs"] < 200
    (result,) = npu_phone.run(request_of(CPU, warmup=(3, 500), warmup_ns=1)).results
    assert (result["warm"], result["warmup_runs"]) == (False, 3)


def test_for_outputs_only_there_is_a_single_run(
    agent: Agent, compile_library: Callable[[str], Path], tmp_path: Path
) -> None:
    agent.library = compile_library("faulty")
    agent.env["NP_LOG"] = str(tmp_path / "log")
    (result,) = agent.run(request_of(NNAPI, flags=UNTIMED, runs=(1, 1), warmup=0)).results
    assert len((tmp_path / "log").read_text().splitlines()) == 1
    assert result["status"] == "ok" and len(result["outputs"]) == 1


def test_a_member_that_fails_costs_its_line_and_no_more(
    agent: Agent, compile_library: Callable[[str], Path]
) -> None:
    """It crashes in the second round, and again when it is alone; its line comes last."""
    agent.library = compile_library("faulty")
    agent.env |= {"NP_FAULT": "segv", "NP_FAULT_AT": "7"}  # 1 + 3 runs, 2 of the next round
    answer = agent.run(
        request_of(CPU, NNAPI, CPU, group=7, rounds=3, runs=(6, 6), warmup=1, timeout_ms=20000)
    )
    *fine, crashed = answer.results
    assert (crashed["action"], crashed["status"], crashed["stage"]) == (1, "crashed", "execute")
    assert [r["attempts"] for r in answer.results] == [1, 1, 2]
    assert [r["runs"] for r in crashed["rounds"]] == [2, 1]
    assert len(crashed["total_ns"]) == 3
    assert [r["action"] for r in fine] == [0, 2]
    for result in fine:
        assert (result["status"], len(result["total_ns"])) == ("ok", 6)
    end = answer.of_type("end")[0]
    assert (end["actions"], end["ok"], end["failed"]) == (3, 2, 1)


def test_every_member_fails(agent: Agent, compile_library: Callable[[str], Path]) -> None:
    agent.library = compile_library("faulty")
    agent.env |= {"NP_FAULT": "abort", "NP_FAULT_AT": "finish"}
    answer = agent.run(request_of(NNAPI, NNAPI, group=1, rounds=2))
    assert [r["status"] for r in answer.results] == ["crashed", "crashed"]
    assert answer.of_type("end")[0]["failed"] == 2


def test_groups_follow_one_another(agent: Agent) -> None:
    request = Request()
    m = request.model(unary(RELU, 4))
    for group in (0, 3, 3, 0, 0, 4, 4):
        add(request, CPU, m, group=group)
    answer = agent.run(request)
    assert [r["action"] for r in answer.results] == list(range(7))
    assert all(r["status"] == "ok" for r in answer.results)
    kinds = [line["type"] for line in answer.lines[1:-1]]
    one, two = ["start", "result"], ["start", "start", "result", "result"]
    assert kinds == one + two + one + one + two


# --- /sys


def fake_sys(folder: Path, *, allowed: int = 2_000_000, now_mc: int = 40_000) -> Path:
    """Two small cores and two big ones (of this host's first four), and a thermal zone."""
    root = folder / "sys"
    for cpu, most in enumerate((1_000_000, 1_000_000, 2_000_000, 2_000_000)):
        cpufreq = root / "devices/system/cpu" / f"cpu{cpu}" / "cpufreq"
        cpufreq.mkdir(parents=True, exist_ok=True)
        (cpufreq / "cpuinfo_max_freq").write_text(f"{most}\n")
        (cpufreq / "scaling_max_freq").write_text(f"{min(most, allowed)}\n")
        (cpufreq / "scaling_cur_freq").write_text(f"{500_000 + cpu}\n")
    zone = root / "class/thermal/thermal_zone0"
    zone.mkdir(parents=True, exist_ok=True)
    (zone / "temp").write_text(f"{now_mc}\n")
    (zone / "trip_point_0_type").write_text("passive\n")
    (zone / "trip_point_0_temp").write_text("80000\n")
    return root


def test_readings_of_each_round(agent: Agent, tmp_path: Path) -> None:
    agent.env["NNAPI_PROF_SYSFS"] = str(fake_sys(tmp_path))
    (result,) = agent.run(request_of(CPU, rounds=2, runs=(2, 2), mask=0b0011)).results
    for r in result["rounds"]:
        assert r["cpu_khz"] == [500_001, 500_001]
        assert r["thermal_mc"] == [40_000, 40_000]
        assert r["throttled"] is False
    assert result["cpu_khz"] == [500_001, 500_001]
    (info,) = agent.call("info", "--nnapi-library", str(agent.library)).lines
    assert (info["big_cores"], info["cpus"], info["threads_max"]) == ("0xc", 4, 4)
    assert info["engines"]["cpu"] in (["portable"], ["xnnpack", "portable"])


def test_an_unreadable_system_tells_nothing(agent: Agent, tmp_path: Path) -> None:
    agent.env["NNAPI_PROF_SYSFS"] = str(tmp_path / "nowhere")
    (result,) = agent.run(request_of(CPU, mask=0)).results
    assert result["status"] == "ok"
    assert [r["throttled"] for r in result["rounds"]] == [None]
    assert result["rounds"][0]["cpu_khz"] == [None, None]


def test_cpus_are_kept_to(agent: Agent, tmp_path: Path) -> None:
    agent.env["NNAPI_PROF_SYSFS"] = str(fake_sys(tmp_path))
    (result,) = agent.run(request_of(CPU, mask=1)).results
    assert result["cpu_mask"] == "0x1"
    (free,) = agent.run(request_of(CPU, mask=ALL_CPUS)).results
    mask = int(free["cpu_mask"], 16)
    # The big cores, as far as this host has them.
    (big,) = agent.run(request_of(CPU, mask=0)).results
    assert int(big["cpu_mask"], 16) == (mask & 0b1100 or mask)
    (wrong,) = agent.run(request_of(CPU, mask=1 << 63)).results
    assert (wrong["status"], wrong["stage"]) == ("failed", "setup")
    assert "cannot keep to the CPUs of mask 0x8000000000000000" in wrong["message"]


def test_rounds_of_a_hot_device_are_flagged_and_not_repeated_in_vain(
    agent: Agent, tmp_path: Path
) -> None:
    # A trip point that is passed holds for every CPU.
    agent.env["NNAPI_PROF_SYSFS"] = str(fake_sys(tmp_path, now_mc=80_000))
    (result,) = agent.run(request_of(CPU, rounds=2, runs=(2, 2), mask=1, cooldown_ms=300)).results
    assert [r["throttled"] for r in result["rounds"]] == [True, True]


def test_a_clock_is_held_down_where_it_was_higher(agent: Agent, tmp_path: Path) -> None:
    """Vendors cap clocks for good: that is the phone, and nothing to wait for."""
    agent.env["NNAPI_PROF_SYSFS"] = str(fake_sys(tmp_path, allowed=900_000))
    begin = time.monotonic()
    answer = agent.run(request_of(CPU, rounds=2, runs=(2, 2), mask=ALL_CPUS, cooldown_ms=20_000))
    assert [r["throttled"] for r in answer.results[0]["rounds"]] == [False, False]
    assert time.monotonic() - begin < 10


def test_rounds_are_repeated_when_the_device_has_cooled_down(agent: Agent, tmp_path: Path) -> None:
    agent.env["NNAPI_PROF_SYSFS"] = str(fake_sys(tmp_path, now_mc=90_000))
    zone = tmp_path / "sys/class/thermal/thermal_zone0/temp"
    cooling = threading.Timer(0.6, lambda: zone.write_text("60000\n"))
    cooling.start()
    begin = time.monotonic()
    try:
        answer = agent.run(
            request_of(CPU, CPU, group=1, rounds=2, runs=(4, 4), mask=1, cooldown_ms=30_000)
        )
    finally:
        cooling.join()
    assert 0.5 < time.monotonic() - begin < 20
    for result in answer.results:
        rounds = result["rounds"]
        assert [r["throttled"] for r in rounds] == [True, True, False, False]
        assert [r["repeats"] for r in rounds] == [None, None, 0, 1]
        assert [r["runs"] for r in rounds] == [2, 2, 2, 2]
        assert len(result["total_ns"]) == 8


# --- a simulated phone that gets hot


def hot_phone(agent: Agent, folder: Path, time_constant: float, noise: float = 0.0) -> None:
    """npu-phone, but it throttles 1 degree above the ambient, which its CPU reaches soon."""
    phone = json.loads(
        (Path(__file__).parents[2] / "device_agent/emulator/phones/npu-phone.json").read_text()
    )
    constant = dict(origin="assumed: a test")
    phone["noise"]["spread"] = {"value": noise, "unit": "ratio", **constant}
    phone["thermal"] = {
        "ambient": {"value": 25, "unit": "degC", **constant},
        "time_constant": {"value": time_constant, "unit": "s", **constant},
        "throttle": [
            {
                "above": {"value": 26, "unit": "degC", **constant},
                "factor": {"value": 2, "unit": "ratio", **constant},
            }
        ],
    }
    path = folder / "hot.json"
    path.write_text(json.dumps(phone))
    agent.simulate(path)


def test_throttled_rounds_of_a_simulated_phone_are_repeated_cool(
    agent: Agent, tmp_path: Path
) -> None:
    hot_phone(agent, tmp_path, time_constant=0.0004)
    options: dict[str, Any] = dict(rounds=3, runs=(9, 9), warmup=0)
    (plain,) = agent.run(request_of(CPU, **options)).results
    assert plain["rounds"][-1]["throttled"] is True
    assert len(plain["rounds"]) == 3

    first, second = (agent.run(request_of(CPU, **options, cooldown_ms=60_000)) for _ in range(2))
    (result,) = first.results
    assert result == second.results[0] | {"rss_peak_kb": result["rss_peak_kb"]}  # deterministic
    rounds = result["rounds"]
    repeated = [i for i, r in enumerate(rounds[:3]) if r["throttled"]]
    assert repeated and [r["repeats"] for r in rounds[3:]] == repeated
    assert len(result["total_ns"]) == sum(r["runs"] for r in rounds)
    # A repeated round begins below the step; whether it ends there is the phone's.
    for r in rounds[3:]:
        assert r["thermal_mc"][0] < 26_000


def test_cooling_down_has_a_limit(agent: Agent, tmp_path: Path) -> None:
    """This phone needs minutes, and the group has none."""
    hot_phone(agent, tmp_path, time_constant=0.0004)
    options: dict[str, Any] = dict(rounds=3, runs=(9, 9), warmup=0, group=1)
    (cool, *_) = agent.run(request_of(CPU, CPU, **options, cooldown_ms=60_000)).results
    assert len(cool["rounds"]) > 3
    hot_phone(agent, tmp_path, time_constant=0.0004)
    phone = json.loads((tmp_path / "hot.json").read_text())
    phone["thermal"]["ambient"]["value"] = 27  # never cool again
    (tmp_path / "hot.json").write_text(json.dumps(phone))
    for result in agent.run(request_of(CPU, CPU, **options, cooldown_ms=60_000)).results:
        assert [r["throttled"] for r in result["rounds"]] == [True] * 3


@pytest.mark.parametrize("field", ["cpu_khz", "thermal_mc", "throttled"])
def test_a_simulated_phone_tells_of_itself_only(
    npu_phone: Agent, tmp_path: Path, field: str
) -> None:
    (before,) = npu_phone.run(request_of(CPU, rounds=2, runs=(2, 2))).results
    npu_phone.env["NNAPI_PROF_SYSFS"] = str(fake_sys(tmp_path, now_mc=99_000, allowed=7))
    (after,) = npu_phone.run(request_of(CPU, rounds=2, runs=(2, 2))).results
    assert [r[field] for r in before["rounds"]] == [r[field] for r in after["rounds"]]
    assert before["cpu_mask"] is None
