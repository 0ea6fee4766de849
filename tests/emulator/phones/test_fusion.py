"""Fusion rules of simulated phones: chains of operations that run as one."""

import pytest

from tests.emulator.nnapi import Op
from tests.emulator.phones.descriptions import (
    IN,
    MACS,
    OUT,
    WEIGHTS,
    Jobs,
    constant,
    convolution,
    load,
    npu,
    on,
    operation_ns,
    operations,
    phone,
    row,
    rules,
    whole_us,
)

ALL = operations()
PAD, CONV_2D, ADD, RELU, TANH = Op.PAD, Op.CONV_2D, Op.ADD, Op.RELU, Op.TANH
jobs = Jobs()
MEMORY = npu(bandwidth=constant(0.5, "GB/s"))  # memory decides, so that saved bytes show
FUSED = {  # name: (patterns, model, groups of operations that run as one)
    "none": ([], convolution(after=[RELU]), [[CONV_2D], [RELU]]),
    "relu": (["CONV_2D + RELU"], convolution(after=[RELU]), [[CONV_2D, RELU]]),
    "alternatives": (["ADD|CONV_2D + TANH | RELU"], convolution(after=[RELU]), [[CONV_2D, RELU]]),
    "other": (["CONV_2D + TANH"], convolution(after=[RELU]), [[CONV_2D], [RELU]]),
    "three": (
        ["CONV_2D + ADD + RELU", "CONV_2D + ADD"],
        convolution(after=[ADD, RELU]),
        [[CONV_2D, ADD, RELU]],
    ),
    "first of the file": (
        ["CONV_2D + ADD", "CONV_2D + ADD + RELU"],
        convolution(after=[ADD, RELU]),
        [[CONV_2D, ADD], [RELU]],
    ),
    "pairs": (
        ["CONV_2D + ADD", "RELU + RELU"],
        convolution(after=[ADD, RELU, RELU]),
        [[CONV_2D, ADD], [RELU, RELU]],
    ),
    "pad": (["PAD + CONV_2D"], convolution(PAD), [[PAD, CONV_2D]]),
    "output": (
        ["CONV_2D + RELU"],
        convolution(after=[RELU], output_too=True),
        [[CONV_2D], [RELU]],
    ),
    "read twice": (
        ["CONV_2D + ADD"],
        convolution(after=[ADD], read_twice=True),
        [[CONV_2D], [ADD]],
    ),
}
for name, (patterns, model, _) in FUSED.items():
    jobs(f"fusion {name}", phone(ALL, MEMORY, rules(*patterns)), on(model))
ACROSS = on(row(RELU, TANH, RELU), "sim-npu", "sim-gpu")
jobs(
    "fusion across steps",
    phone(MEMORY, rules("RELU + TANH", "TANH + RELU"), accelerators=2),
    ACROSS,
)
jobs("no fusion across steps", phone(MEMORY, accelerators=2), ACROSS)
PADDED = 18 * 18 * 8


def traffic(code, name):
    """MAC, elements read and written, and elements of constants."""
    before = PADDED if name == "pad" else IN
    return {
        PAD: (PADDED, IN + PADDED, 8),
        CONV_2D: (MACS, before + OUT, WEIGHTS),
        RELU: (OUT, 2 * OUT, 0),
        ADD: (OUT, 3 * OUT, 0) if name == "read twice" else (OUT, 2 * OUT, 16),
    }[code]


@pytest.mark.parametrize("name", FUSED)
def test_fused_operations_pay_once_and_hand_nothing_over(answers, name):
    unit = phone(MEMORY)["accelerators"][0]
    expected = 0
    for group in FUSED[name][2]:
        work = [traffic(code, name) for code in group]
        handed = sum(PADDED if code == PAD else OUT for code in group[:-1])
        n_bytes = 4 * (sum(moved + weights for _, moved, weights in work) - 2 * handed)
        expected += max(
            operation_ns(unit, code, macs, n_bytes)
            for code, (macs, _, _) in zip(group, work, strict=True)
        )
    (run,) = answers[f"fusion {name}"]["runs"]
    assert run["hardware"] == [whole_us(expected)]


def test_nothing_is_fused_across_steps(answers):
    runs = [answers[f"{key}fusion across steps"]["runs"][0] for key in ("", "no ")]
    assert runs[0]["wall"] == runs[1]["wall"]


def test_a_fused_region_is_cheaper_than_its_sum(answers):
    fused, apart = (answers[f"fusion {key}"]["runs"][0]["wall"][0] for key in ("relu", "none"))
    overhead = load("npu-phone")["accelerators"][0]["operation_overhead"]["value"] * 1e3
    assert apart - fused > overhead + 4 * 2 * OUT
