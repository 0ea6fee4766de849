"""Actions that run interleaved: turns, rounds, warm-up, throttling, and their readings."""

import os
import threading
import time
from itertools import groupby

import pytest

from tests.agent.packer import ALL_CPUS, CPU, NNAPI, UNTIMED, Request, relus
from tests.emulator.phones.descriptions import constant, quiet, thermal


@pytest.fixture
def computations(faulty, tmp_path):
    """The process of each computation, which the library logs."""
    log = tmp_path / "log"
    faulty.env["NP_LOG"] = str(log)
    return lambda: [line.split()[0] for line in log.read_text().splitlines()]


def test_actions_of_a_group_take_turns(faulty, computations):
    answer = faulty.run(relus(NNAPI, NNAPI, NNAPI, group=1, warmup=2, rounds=3, runs=(6, 6)))
    assert [r["status"] for r in answer.results] == ["ok"] * 3
    turns = [(pid, len(list(runs))) for pid, runs in groupby(computations())]
    first, second, third = (pid for pid, _ in turns[:3])
    assert turns == [
        # warm-up, one after the other
        *[(first, 2), (second, 2), (third, 2)],
        # Two unrecorded runs, as they share an accelerator, and two recorded ones; the second round
        # runs backwards, so that the last of one round is the first of the next.
        *[(first, 4), (second, 4), (third, 8), (second, 4), (first, 8), (second, 4), (third, 4)],
    ]
    kinds = [(line["type"], line.get("action")) for line in answer.lines[1:-1]]
    assert kinds == [("start", i) for i in range(3)] + [("result", i) for i in range(3)]


def test_rounds_are_told_apart(agent):
    (result,) = agent.run(relus(CPU, rounds=4, runs=(5, 9))).results
    # Shares are rounded up: at least 2 of 5 runs in each of the 4 rounds.
    assert [(r["runs"], r["repeats"]) for r in result["rounds"]] == [(2, None)] * 4
    assert len(result["total_ns"]) == 8


def test_a_rounds_share_of_the_budget_and_of_the_most_runs(npu_phone):
    """The simulated phone's clock makes it exact: a run takes some microseconds there."""

    def within(budget_ns):
        request = relus(CPU, rounds=2, runs=(2, 100), budget_ns=budget_ns, warmup=0)
        (result,) = npu_phone.run(request).results
        return [r["runs"] for r in result["rounds"]], result["total_ns"]

    runs, (one, *_) = within(10**12)
    assert runs == [50, 50]
    (first, second), total = within(20 * one)
    assert min(first, second) >= 5 and max(first, second) <= 20  # about ten, but for the noise
    assert sum(total[:first]) >= 10 * one > sum(total[: first - 1])
    assert len(total) == first + second


def test_warm_up_ends_when_it_is_stable(npu_phone):
    """The phone's noise is below 2 %: ten runs show it."""
    (result,) = npu_phone.run(relus(CPU, warmup=(1, 500), warmup_ns=10**12)).results
    assert result["warm"] is True
    assert 10 <= result["warmup_runs"] < 200
    (result,) = npu_phone.run(relus(CPU, warmup=(3, 500), warmup_ns=1)).results
    assert (result["warm"], result["warmup_runs"]) == (False, 3)


def test_for_outputs_only_there_is_a_single_run(faulty, computations):
    (result,) = faulty.run(relus(NNAPI, flags=UNTIMED, runs=(1, 1), warmup=0)).results
    assert (result["status"], len(result["outputs"]), len(computations())) == ("ok", 1, 1)
    assert result["total_ns"] == [result["first_ns"]]


def test_a_member_that_fails_costs_its_line_and_no_more(faulty):
    """It crashes in the second round, and again when it is alone; its line comes last."""
    faulty.fault("segv", "7")  # 1 + 3 runs, 2 of the next round
    answer = faulty.run(relus(CPU, NNAPI, CPU, group=7, rounds=3, runs=(6, 6)))
    told = [(r["action"], r["status"], r["attempts"], len(r["total_ns"])) for r in answer.results]
    assert told == [(0, "ok", 1, 6), (2, "ok", 1, 6), (1, "crashed", 2, 3)]
    crashed = answer.results[2]
    assert (crashed["stage"], crashed["outputs"]) == ("execute", [])
    assert sorted(os.listdir(faulty.work)) == ["0-1.bin", "2-1.bin"]
    (segment,) = crashed["segments"]
    assert len(segment["samples_ns"]) == 3 and segment["compile_ns"] > 0 < crashed["first_ns"]
    assert [r["runs"] for r in crashed["rounds"]] == [2, 1]
    (end,) = answer.of_type("end")
    assert (end["actions"], end["ok"], end["failed"]) == (3, 2, 1)


def test_every_member_fails(faulty):
    faulty.fault("abort", "finish")
    answer = faulty.run(relus(NNAPI, NNAPI, group=1, rounds=2))
    assert [r["status"] for r in answer.results] == ["crashed", "crashed"]
    assert answer.of_type("end")[0]["failed"] == 2


def test_groups_follow_one_another(agent):
    request = Request()
    for group in (0, 3, 3, 0, 0, 4, 4):
        request.unary(CPU, 4, group=group)
    answer = agent.run(request)
    assert [(r["action"], r["status"]) for r in answer.results] == [(n, "ok") for n in range(7)]
    one, two = ["start", "result"], ["start", "start", "result", "result"]
    assert answer.types[1:-1] == one + two + one + one + two


# --- /sys


@pytest.fixture
def sysfs(agent, tmp_path):
    """Makes two small cores and two big ones (of this host's first four), and a thermal zone;
    gives the zone's temperature."""
    root = tmp_path / "sys"

    def make(*, allowed=2_000_000, now_mc=40_000):
        files = {"trip_point_0_type": "passive", "trip_point_0_temp": 80_000, "temp": now_mc}
        files = {f"class/thermal/thermal_zone0/{name}": value for name, value in files.items()}
        for cpu, most in enumerate((1_000_000, 1_000_000, 2_000_000, 2_000_000)):
            cpufreq = f"devices/system/cpu/cpu{cpu}/cpufreq"
            files[f"{cpufreq}/cpuinfo_max_freq"] = most
            files[f"{cpufreq}/scaling_max_freq"] = min(most, allowed)
            files[f"{cpufreq}/scaling_cur_freq"] = 500_000 + cpu
        for name, value in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(f"{value}\n")
        agent.env["NNAPI_PROF_SYSFS"] = str(root)
        return root / "class/thermal/thermal_zone0/temp"

    return make


def throttled(result):
    return [r["throttled"] for r in result["rounds"]]


def test_readings_of_each_round(agent, sysfs):
    sysfs()
    (result,) = agent.run(relus(CPU, rounds=2, runs=(2, 2), mask=0b0011)).results
    for r in result["rounds"]:
        assert r["cpu_khz"] == [500_001, 500_001]
        assert r["thermal_mc"] == [40_000, 40_000]
    assert throttled(result) == [False, False]
    assert result["cpu_khz"] == [500_001, 500_001]
    info = agent.info()
    assert (info["big_cores"], info["cpus"], info["threads_max"]) == ("0xc", 4, 4)
    assert info["engines"]["cpu"] in (["portable"], ["xnnpack", "portable"])


def test_an_unreadable_system_tells_nothing(agent, tmp_path):
    agent.env["NNAPI_PROF_SYSFS"] = str(tmp_path / "nowhere")
    (result,) = agent.run(relus(CPU, mask=0)).results
    assert result["status"] == "ok"
    assert throttled(result) == [None]
    assert result["rounds"][0]["cpu_khz"] == [None, None]


def test_cpus_are_kept_to(agent, sysfs):
    sysfs()
    request = Request()
    for mask in (1, ALL_CPUS, 0, 1 << 63):
        request.unary(CPU, 4, mask=mask)
    first, free, big, wrong = agent.run(request).results
    assert first["cpu_mask"] == "0x1"
    # The big cores, as far as this host has them.
    mask = int(free["cpu_mask"], 16)
    assert int(big["cpu_mask"], 16) == (mask & 0b1100 or mask)
    assert (wrong["status"], wrong["stage"]) == ("failed", "setup")
    assert "cannot keep to the CPUs of mask 0x8000000000000000" in wrong["message"]


def test_rounds_of_a_hot_device_are_flagged_and_not_repeated_in_vain(agent, sysfs):
    sysfs(now_mc=80_000)  # a trip point that is passed holds for every CPU
    (result,) = agent.run(relus(CPU, rounds=2, runs=(2, 2), mask=1, cooldown_ms=300)).results
    assert throttled(result) == [True, True]


def test_rounds_are_repeated_when_the_device_has_cooled_down(agent, sysfs):
    zone = sysfs(now_mc=90_000)
    cooling = threading.Timer(0.6, lambda: zone.write_text("60000\n"))
    cooling.start()
    begin = time.monotonic()
    request = relus(CPU, CPU, group=1, rounds=2, runs=(4, 4), mask=1, cooldown_ms=30_000)
    try:
        answer = agent.run(request)
    finally:
        cooling.join()
    assert 0.5 < time.monotonic() - begin < 20
    for result in answer.results:
        rounds = [(r["throttled"], r["repeats"], r["runs"]) for r in result["rounds"]]
        assert rounds == [(True, None, 2), (True, None, 2), (False, 0, 2), (False, 1, 2)]
        assert len(result["total_ns"]) == 8


# --- a simulated phone that gets hot


@pytest.fixture
def hot_phone(agent):
    """npu-phone, but it throttles at 26 degrees, which its CPU reaches soon."""

    def make(ambient=25.0):
        warming = {"ambient": constant(ambient, "degC"), "time_constant": constant(0.0004, "s")}
        agent.simulate(quiet("npu-phone") | {"thermal": thermal((26, 2)) | warming})

    return make


def test_throttled_rounds_of_a_simulated_phone_are_repeated_cool(agent, hot_phone):
    hot_phone()
    options = {"rounds": 3, "runs": (9, 9), "warmup": 0}
    (plain,) = agent.run(relus(CPU, **options)).results
    assert plain["rounds"][-1]["throttled"] is True
    assert len(plain["rounds"]) == 3

    first, second = (agent.run(relus(CPU, **options, cooldown_ms=60_000)) for _ in range(2))
    (result,) = first.results
    assert result == second.results[0] | {"rss_peak_kb": result["rss_peak_kb"]}  # deterministic
    rounds = result["rounds"]
    repeated = [i for i, r in enumerate(rounds[:3]) if r["throttled"]]
    assert repeated and [r["repeats"] for r in rounds[3:]] == repeated
    assert len(result["total_ns"]) == sum(r["runs"] for r in rounds)
    # A repeated round begins below the step; whether it ends there is the phone's.
    for r in rounds[3:]:
        assert r["thermal_mc"][0] < 26_000


def test_cooling_down_has_a_limit(agent, hot_phone):
    """This phone needs minutes, and the group has none."""
    request = relus(CPU, CPU, rounds=3, runs=(9, 9), warmup=0, group=1, cooldown_ms=60_000)
    hot_phone()
    assert len(agent.run(request).results[0]["rounds"]) > 3
    hot_phone(ambient=27.0)  # never cool again
    assert [throttled(result) for result in agent.run(request).results] == [[True] * 3] * 2


def test_a_simulated_phone_tells_of_itself_only(npu_phone, sysfs):
    request = relus(CPU, rounds=2, runs=(2, 2))
    (before,) = npu_phone.run(request).results
    sysfs(now_mc=99_000, allowed=7)
    (after,) = npu_phone.run(request).results
    for field in ("cpu_khz", "thermal_mc", "throttled"):
        assert [r[field] for r in before["rounds"]] == [r[field] for r in after["rounds"]]
    assert before["cpu_mask"] is None
