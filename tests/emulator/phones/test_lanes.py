"""Lanes, which work at once on a simulated phone, and heat: both slow it down."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from tests.emulator.nnapi import Op
from tests.emulator.phones.descriptions import (
    AMBIENT,
    SECONDS,
    Jobs,
    N,
    constant,
    cpu,
    invocation_ns,
    npu,
    on,
    operation_ns,
    phone,
    ratio,
    root,
    row,
    thermal,
    transfer_ns,
    whole_us,
    work,
)

jobs = Jobs()
BIG = 64 * N
"""Elements of a row so long that memory decides."""


def cpu_lane(repeat, macs=50_000_000, n_bytes=1_000_000):
    return work(macs, n_bytes // 2, n_bytes - n_bytes // 2, repeat=repeat)


def npu_lane(repeat, *devices, **more):
    return on(row(*[Op.RELU] * 4, dims=(1, BIG)), *devices, repeat=repeat, **more)


@dataclass
class Run:
    """What one run of a lane is alone."""

    ns: float
    memory: float
    """Share of its time that waits for memory."""
    demand: float
    """Bytes/ns that it wants."""
    drivers: float = 0.0
    on_cpu: bool = False


def cpu_run(description, lane):
    unit = description["cpu"]
    macs, n_bytes = lane["works"][0][0], sum(lane["works"][0][1:4])
    ns = operation_ns(unit, Op.CONV_2D, macs, n_bytes)
    memory = n_bytes / unit["bandwidth"]["value"]
    waits = memory > ns - unit["operation_overhead"]["value"] * 1e3 - 1e-6
    return Run(ns, memory * waits / ns, n_bytes / ns, on_cpu=True)


def npu_run(description):
    unit = description["accelerators"][0]
    fast, n_bytes = unit["preference"]["fast"]["value"], 4 * 8 * BIG
    memory = n_bytes / unit["bandwidth"]["value"] * fast
    moved = transfer_ns(unit, 8 * BIG)
    ns = 4 * operation_ns(unit, Op.RELU, BIG, 8 * BIG) * fast + moved + invocation_ns(unit)
    share = unit.get("driver_share", {"value": 0})["value"]
    return Run(ns, (memory + moved) / ns, (n_bytes + 8 * BIG) / ns, share)


def expected(description, lanes):
    """Times of each lane's runs, by PHONES.md."""
    limit = description.get("memory_bandwidth", {"value": 0})["value"]
    runs = [
        cpu_run(description, lane) if "codes" in lane else npu_run(description) for lane in lanes
    ]
    walls, begun = [[] for _ in lanes], [0.0] * len(lanes)
    left, now = [run.ns for run in runs], 0.0
    while busy := [i for i, lane in enumerate(lanes) if len(walls[i]) < lane["repeat"]]:
        demand = sum(runs[i].demand for i in busy)
        crowd = max(1.0, demand / limit) if limit and len(busy) > 1 else 1.0
        factors = {}
        for i in busy:
            drivers = sum(runs[j].drivers for j in busy if j != i) * runs[i].on_cpu
            factors[i] = (1 + runs[i].memory * (crowd - 1)) / (1 - min(drivers, 0.9))
        step = min(left[i] * factors[i] for i in busy)
        now += step
        for i in busy:
            left[i] -= step / factors[i]
            if left[i] < 1e-6:
                walls[i].append(now - begun[i])
                begun[i], left[i] = now, runs[i].ns
    return walls, now


def described(memory=None, share=None, *edits):
    """The flagship with these members, or none."""
    members = {"memory_bandwidth": constant(memory, "GB/s")} if memory else {}
    made = phone(npu(driver_share=None if share is None else ratio(share)), *edits)
    made.pop("memory_bandwidth", None)
    return {**made, **members}


CASES = {
    "alone": (described(), [npu_lane(4)]),
    "free": (described(), [npu_lane(5), cpu_lane(3)]),
    "drivers": (described(None, 0.3), [npu_lane(9), cpu_lane(2)]),
    "a short stay": (described(None, 0.5), [npu_lane(1), cpu_lane(2)]),
    "memory": (described(8), [npu_lane(6), cpu_lane(3, 1000, 40_000_000)]),
    "both": (described(6, 0.2), [npu_lane(7), cpu_lane(3, 1000, 30_000_000)]),
    "enough memory": (described(1000), [npu_lane(6), cpu_lane(3, 1000, 40_000_000)]),
    "async": (described(8, 0.2), [npu_lane(4, mode="async"), cpu_lane(3)]),
    "burst": (
        described(8, 0.2, npu(burst_invocation=phone()["accelerators"][0]["invocation"])),
        [npu_lane(4, mode="burst"), cpu_lane(3)],
    ),
}
for name, (made, lanes) in CASES.items():
    for again in ("", " again"):
        jobs(name + again, made, lanes=lanes)


@pytest.mark.parametrize("name", CASES)
def test_runs_take_what_the_formula_says(answers, name):
    made, lanes = CASES[name]
    walls, whole = expected(made, lanes)
    answer = answers[name]["together"]
    for lane, of_formula in zip(answer["lanes"], walls, strict=True):
        assert lane["wall"] == pytest.approx(of_formula, abs=2)
    assert answer["whole"] == pytest.approx(whole, abs=2)
    assert (answer["begun"], answer["again"]) == (0, -1)
    assert answers[f"{name} again"]["together"] == answer, "the host has no say"


def test_company_costs_and_durations_tell_it(answers):
    for name in ("drivers", "memory", "both"):
        made, lanes = CASES[name]
        run = cpu_run(made, lanes[1])
        assert answers[name]["together"]["lanes"][1]["wall"][0] > 1.2 * run.ns
    made, _ = CASES["memory"]
    alone, unit = npu_run(made), made["accelerators"][0]
    hardware = alone.ns - transfer_ns(unit, 8 * BIG) - invocation_ns(unit)
    lane = answers["memory"]["together"]["lanes"][0]
    longer = lane["wall"][0] / alone.ns
    assert longer > 1.2
    assert lane["hardware"][0] == pytest.approx(whole_us(hardware * longer), abs=1000)
    expected_ns = 0.3 * 9 * npu_run(CASES["drivers"][0]).ns
    assert answers["drivers"]["together"]["drivers"] == pytest.approx(expected_ns, abs=20)


WARM = phone(
    npu(heat=constant(10, "degC")),
    cpu(heat=constant(6, "degC")),
    root(thermal={**thermal(), "time_constant": constant(0.05, "s")}),
)
for name, made in (("serial", described(1, 0.9)), ("serial without", described())):
    jobs(name, made, npu_lane(2), cpu=[cpu_lane(1)] * 2)
jobs("three", phone(accelerators=2), lanes=[npu_lane(3), npu_lane(2, "sim-gpu"), cpu_lane(2)])
jobs("too many", phone(), lanes=[cpu_lane(1) for _ in range(9)])
jobs("heat", WARM, lanes=[npu_lane(50), cpu_lane(50)])
FAILING = {"NNAPI_EMULATOR_FAULTS": "fail:execute:RELU:1:2/2@sim-npu"}
jobs("failing", phone(), lanes=[npu_lane(4), cpu_lane(2)], env=FAILING)


def test_three_lanes(answers):
    answer = answers["three"]["together"]
    assert [len(lane["wall"]) for lane in answer["lanes"]] == [3, 2, 2]
    longest = max(sum(lane["wall"]) for lane in answer["lanes"])
    assert answer["whole"] == pytest.approx(longest, abs=4)


def test_more_lanes_than_there_may_be_take_turns(answers):
    answer = answers["too many"]["together"]
    assert answer["begun"] == -1
    assert answer["whole"] == pytest.approx(9 * cpu_run(phone(), cpu_lane(1)).ns, abs=9)


def test_a_run_that_fails_is_over(answers):
    lane = answers["failing"]["together"]["lanes"][0]
    assert [isinstance(told, str) for told in lane["hardware"]] == [False, True, False, True]
    assert lane["hardware"][1] == "OP_FAILED"
    assert lane["wall"][1] == pytest.approx(lane["wall"][0], rel=0.05)


def test_heat_adds_up(answers):
    """Towards 16 degrees more while both are busy, then towards the longer one's."""
    walls, whole = expected(WARM, [npu_lane(50), cpu_lane(50)])
    ends = [sum(wall) for wall in walls]
    before, after = [t / 1e3 for t in answers["heat"]["together"]["temperatures"]]
    rise, tau = before - AMBIENT, 1e9 * WARM["thermal"]["time_constant"]["value"]
    for target, ns in ((16, min(ends)), ((10, 6)[ends.index(whole)], whole - min(ends))):
        rise = target + (rise - target) * math.exp(-ns / tau)
    assert rise > 1
    assert after == pytest.approx(AMBIENT + rise, abs=0.01)


def test_alone_nothing_has_changed(answers):
    """A phone with the members of lanes, and one without, one run after the other."""
    with_them, without = answers["serial"], answers["serial without"]
    for key in ("runs", "cpu"):
        assert with_them[key] == without[key]


# ---- heat ---------------------------------------------------------------------------------------

HEAT = 20.0
STEPS = [(30.0, 2.0), (38.0, 4.0)]
BUSY = npu(heat=constant(HEAT, "degC"), invocation=constant(2_000_000, "us"))  # 2 s each
THROTTLED = root(thermal=thermal(*STEPS))
HEATED = phone(BUSY, THROTTLED, cpu(frequency=constant(2000, "MHz")))
MANY = on(row(Op.RELU), repeat=20)
for name in ("busy", "busy again"):
    jobs(name, HEATED, MANY, on(row(Op.RELU), idle=10**11))
jobs("heat alone", phone(BUSY, root(thermal=thermal())), MANY)
jobs("no heat", phone(BUSY, npu(heat=None), THROTTLED), MANY)
jobs("no thermal", phone(BUSY), MANY)
jobs("cpu heat", phone(cpu(heat=constant(HEAT, "degC")), THROTTLED), cpu=[work(10**10)] * 12)


def expected_walls(first_ns, other_ns):
    """Wall times and the temperature after them: warming by exponentials, throttled by steps."""
    walls, temperature = [], AMBIENT
    for _ in range(20):
        factor = max([1.0, *(f for t, f in STEPS if temperature >= t)])
        walls.append(other_ns + first_ns * factor)
        target = AMBIENT + HEAT
        temperature = target + (temperature - target) * math.exp(-walls[-1] / (SECONDS * 1e9))
    return walls, temperature


def test_a_busy_phone_warms_throttles_and_cools(answers):
    warm, cool = answers["busy"]["runs"]
    unit = HEATED["accelerators"][0]
    hardware, other = operation_ns(unit, Op.RELU, N, 8 * N), 2e9 + transfer_ns(unit)
    walls, temperature = expected_walls(hardware, other)
    assert warm["wall"] == pytest.approx(walls, abs=1)
    assert len(set(warm["hardware"])) == 3  # cold and two steps
    assert answers["busy"]["temperature"] == AMBIENT * 1e3
    assert warm["temperature"] == pytest.approx(temperature * 1e3, abs=1)
    assert warm["khz"] == 2_000_000 / 4 and cool["khz"] == 2_000_000
    assert cool["hardware"] == warm["hardware"][:1]  # after a hundred seconds idle
    assert AMBIENT * 1e3 < cool["temperature"] < (AMBIENT + 4) * 1e3
    assert answers["busy"] == answers["busy again"]


def test_without_its_members_nothing_throttles(answers):
    for name in ("heat alone", "no heat", "no thermal"):
        (run,) = answers[name]["runs"]
        assert len(set(run["hardware"])) == 1, name
    assert answers["no thermal"]["temperature"] == -1
    assert answers["no heat"]["runs"][0]["temperature"] == AMBIENT * 1e3
    assert answers["heat alone"]["runs"][0]["temperature"] > 40_000


def test_the_cpu_engine_warms_the_phone_and_throttles_with_it(answers):
    times = np.array(answers["cpu heat"]["cpu"]) / answers["cpu heat"]["cpu"][0]
    assert sorted(set(times.round(6))) == [1, 2, 4] and list(times) == sorted(times)
