"""Fusion rules of simulated phones: chains of operations that run as one."""

import pytest

from tests.emulator.nnapi import ADD, CONV_2D, INT32, RELU, TANH, TENSOR_FLOAT32, TENSOR_INT32
from tests.emulator.phones.descriptions import Jobs, N, npu, on, operations, phone, rules
from tests.emulator.phones.test_clock import NAMES, constant, load, operation_ns, whole_us

PAD, NONE = 32, 0
ALL = operations()
MACS = 16 * 16 * 16 * 72  # of the convolution below
IN, OUT, WEIGHTS = 16 * 16 * 8, 16 * 16 * 16, 16 * 72 + 16
jobs = Jobs()


@pytest.fixture(scope="module")
def answers(emulator_library, tmp_path_factory):
    """All jobs of this module."""
    return jobs.answers(emulator_library, tmp_path_factory.mktemp("phones"))


def convolution(before=None, after=(), read_twice=False, output_too=False):
    """[PAD +] CONV_2D [+ ADD or RELU...] over 16 x 16 x 8."""
    tensors = [[TENSOR_FLOAT32, [1, 16, 16, 8], 0.0, 0, None]]
    steps, at = [], 0

    def new(code, dims, value=None):
        tensors.append([code, dims, 0.0, 0, value])
        return len(tensors) - 1

    padding = 1
    if before == PAD:
        pads = new(TENSOR_INT32, [4, 2], [[0, 0], [1, 1], [1, 1], [0, 0]])
        at = new(TENSOR_FLOAT32, [1, 18, 18, 8])
        steps.append([PAD, [0, pads], [at]])
        padding = 2
    inputs = [at, new(TENSOR_FLOAT32, [16, 3, 3, 8], 0), new(TENSOR_FLOAT32, [16], 0)]
    inputs += [new(INT32, [], value) for value in (padding, 1, 1, NONE)]
    at = new(TENSOR_FLOAT32, [1, 16, 16, 16])
    steps.append([CONV_2D, inputs, [at]])
    convolved = at
    for code in after:
        operand = new(TENSOR_FLOAT32, [1, 16, 16, 16])
        other = [at if read_twice else new(TENSOR_FLOAT32, [16], 0), new(INT32, [], NONE)]
        steps.append([code, [at, *(other if code == ADD else [])], [operand]])
        at = operand
    outputs = [at, convolved] if output_too else [at]
    return {"tensors": tensors, "steps": steps, "inputs": [0], "outputs": outputs}


# ---- fusion -------------------------------------------------------------------------------------


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
jobs(
    "fusion across steps",
    phone(MEMORY, rules("RELU + TANH", "TANH + RELU"), accelerators=2),
    on({"operations": [RELU, TANH, RELU], "width": N}, "sim-npu", "sim-gpu"),
)
jobs(
    "no fusion across steps",
    phone(MEMORY, accelerators=2),
    on({"operations": [RELU, TANH, RELU], "width": N}, "sim-npu", "sim-gpu"),
)
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
    names = {**NAMES, PAD: "PAD", ADD: "ADD"}
    expected = 0
    for group in FUSED[name][2]:
        work = [traffic(code, name) for code in group]
        handed = sum(PADDED if code == PAD else OUT for code in group[:-1])
        n_bytes = 4 * (sum(moved + weights for _, moved, weights in work) - 2 * handed)
        expected += max(
            operation_ns(unit, names[code], macs, n_bytes)
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
