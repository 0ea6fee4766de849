"""Heat: busy phones warm and slow down, idle ones cool, in every process alike."""

import math

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
    npu,
    on,
    operation_ns,
    phone,
    root,
    row,
    thermal,
    transfer_ns,
    work,
)

jobs = Jobs()
HEAT = 20.0
STEPS = [(30.0, 2.0), (38.0, 4.0)]
BUSY = npu(heat=constant(HEAT, "degC"), invocation=constant(2_000_000, "us"))  # 2 s each
WARM = on(row(Op.RELU), repeat=20)
COOL = on(row(Op.RELU), idle=10**11)
jobs(
    "heat",
    phone(BUSY, root(thermal=thermal(*STEPS)), cpu(frequency=constant(2000, "MHz"))),
    WARM,
    COOL,
)
jobs("heat again", jobs["heat"]["description"], WARM, COOL)
jobs("heat alone", phone(BUSY, root(thermal=thermal())), WARM)
jobs("no heat", phone(BUSY, npu(heat=None), root(thermal=thermal(*STEPS))), WARM)
jobs("no thermal", phone(BUSY), WARM)
jobs(
    "cpu heat",
    phone(cpu(heat=constant(HEAT, "degC")), root(thermal=thermal(*STEPS))),
    cpu=[work(10**10)] * 12,
)


def expected_walls(first_ns, other_ns, temperature):
    """Wall times and the temperature after them: warming by exponentials, throttled by steps."""
    walls = []
    for _ in range(20):
        factor = max([1.0, *(f for t, f in STEPS if temperature >= t)])
        walls.append(other_ns + first_ns * factor)
        target = AMBIENT + HEAT
        temperature = target + (temperature - target) * math.exp(-walls[-1] / (SECONDS * 1e9))
    return walls, temperature


def test_a_busy_phone_warms_throttles_and_cools(answers):
    warm, cool = answers["heat"]["runs"]
    unit = jobs["heat"]["description"]["accelerators"][0]
    hardware = operation_ns(unit, Op.RELU, N, 8 * N)
    other = 2e9 + transfer_ns(unit)
    walls, temperature = expected_walls(hardware, other, AMBIENT)
    assert warm["wall"] == pytest.approx(walls, abs=1)
    assert len(set(warm["hardware"])) == 3  # cold and two steps
    assert answers["heat"]["temperature"] == AMBIENT * 1e3
    assert warm["temperature"] == pytest.approx(temperature * 1e3, abs=1)
    assert warm["khz"] == 2_000_000 / 4 and cool["khz"] == 2_000_000
    assert cool["hardware"] == warm["hardware"][:1]  # after a hundred seconds idle
    assert AMBIENT * 1e3 < cool["temperature"] < (AMBIENT + 4) * 1e3


def test_heat_is_the_same_in_every_process(answers):
    assert answers["heat"] == answers["heat again"]


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
