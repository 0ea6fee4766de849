"""LSTMs on integers: QUANTIZED_LSTM, of level 4, against AOSP's own examples, whose integers must
come out exactly, and float64 formulas on what the integers stand for; refusals."""

from dataclasses import replace

import numpy as np
import pytest

from tests.emulator.kernels.quantized_lstm import Cell8, left_out, some_cell8
from tests.emulator.kernels.recurrent import (
    QUANTIZED_16BIT_LSTM,
    QUANTIZED_LSTM,
    VARIANTS,
    Omitted,
    Quantised,
    execute,
    run,
    variant_id,
)
from tests.emulator.nnapi import (
    TENSOR_INT32,
    TENSOR_QUANT8_ASYMM,
    TENSOR_QUANT8_SYMM,
    TENSOR_QUANT16_SYMM,
)

# ---- QUANTIZED_16BIT_LSTM ---------------------------------------------------------------------


def plain16(x, w, r, b, c, h, zero=100, scale=0.00408021):
    """Inputs of the operation from integers; w, r and b of the gates i, f, c, o."""
    u8, value = TENSOR_QUANT8_ASYMM, (1 / 128, 128)
    return [
        Quantised.of(x, u8, *value),
        *[Quantised.of(one, u8, scale, zero) for one in (*w, *r)],
        *[Quantised.of(one, TENSOR_INT32, np.float32(scale) / 128) for one in b],
        Quantised.of(c, TENSOR_QUANT16_SYMM, 1 / 2048),
        Quantised.of(h, u8, *value),
    ]


def outputs16(batch, units):
    return [
        (TENSOR_QUANT16_SYMM, (batch, units), 1 / 2048, 0),
        (TENSOR_QUANT8_ASYMM, (batch, units), 1 / 128, 128),
    ]


REFUSALS_16 = {
    "an input of another scale": (0, {"scale": 1 / 64}),
    "an input of another zero point": (0, {"zero": 127}),
    "weights of another scale": (3, {"scale": 0.5}),
    "weights of another zero point": (8, {"zero": 99}),
    "a bias of another scale": (11, {"scale": 0.25}),
    "a cell state of another scale": (13, {"scale": 1 / 1024}),
    "a state of another scale": (14, {"scale": 1 / 64}),
    "weights of other units": (6, {"values": np.zeros((3, 4), np.uint8)}),
    "a long bias": (9, {"values": np.zeros(5, np.int32)}),
}


@pytest.mark.parametrize("name", REFUSALS_16)
def test_quantized_16bit_lstm_refuses(nn, name):
    w, r = np.zeros((4, 4, 2)), np.zeros((4, 4, 4))
    arguments = plain16(
        np.zeros((2, 2)), w, r, np.zeros((4, 4)), np.zeros((2, 4)), np.zeros((2, 4))
    )
    assert execute(nn, QUANTIZED_16BIT_LSTM, arguments, outputs16(2, 4)) is not None
    index, changes = REFUSALS_16[name]
    arguments[index] = replace(arguments[index], **changes)
    assert execute(nn, QUANTIZED_16BIT_LSTM, arguments, outputs16(2, 4)) is None


def test_quantized_16bit_lstm_refuses_other_outputs(nn):
    w, r = np.zeros((4, 4, 2)), np.zeros((4, 4, 4))
    arguments = plain16(
        np.zeros((2, 2)), w, r, np.zeros((4, 4)), np.zeros((2, 4)), np.zeros((2, 4))
    )
    cell, out = outputs16(2, 4)
    for bad in ([(*cell[:2], 1 / 1024, 0), out], [cell, (*out[:2], 1 / 128, 127)]):
        assert execute(nn, QUANTIZED_16BIT_LSTM, arguments, bad) is None


# ---- QUANTIZED_LSTM ---------------------------------------------------------------------------


def int8s(text, *shape):
    return np.array(text.split(), np.int8).reshape(shape)


# AOSP's example (Apache License 2.0): 2 rows of 5, 4 units. Weights of i, f, c, o.
AOSP_8_X = int8s("90 102 13 26 38 102 13 26 51 64", 2, 5)
AOSP_8_W = [
    int8s("64 77 89 -102 -115 13 25 38 -51 64 -102 89 -77 64 -51 -64 -51 -38 -25 -13", 4, 5),
    int8s("-77 -13 38 25 115 -64 -25 -51 38 -102 -51 38 -64 -51 -77 38 -51 -77 -64 -64", 4, 5),
    int8s("-51 -38 -25 -13 -64 64 -25 -38 -25 -77 77 -13 -51 -38 -89 89 -115 -64 102 77", 4, 5),
    int8s("-102 -51 -25 -115 -13 -89 38 -38 -102 -25 77 -25 51 -89 -38 -64 13 64 -77 -51", 4, 5),
]
AOSP_8_B = [
    [644245, 3221226, 4724464, 8160438],
    [2147484, -6442451, -4294968, 2147484],
    [-1073742, 15461883, 5368709, 1717987],
    [1073742, -214748, 4294968, 2147484],
]
AOSP_8_NORM = [
    [3277, 6553, 9830, 16384],
    [6553, 6553, 13107, 9830],
    [22937, 6553, 9830, 26214],
    [19660, 6553, 6553, 16384],
]
AOSP_8_PROJECTION = int8s("-25 51 3 -51 25 127 77 20 18 51 -102 51", 3, 4)


def aosp_8(recurrent, *, cifg, **others):
    w, b, norm = (left_out(v, cifg) for v in (AOSP_8_W, AOSP_8_B, AOSP_8_NORM))
    return Cell8(w, left_out(recurrent, cifg), b, norm, **others)


@pytest.mark.parametrize("constants", [True, False])
def test_quantized_lstm_is_aosps(nn, constants):
    recurrent = [
        None,
        int8s("-64 -38 -64 -25 77 51 115 38 -13 25 64 25 25 38 -13 51", 4, 4),
        int8s("-38 25 13 -38 102 -10 -25 38 102 -77 -13 25 38 -13 25 64", 4, 4),
        int8s("38 -13 13 -25 -64 -89 -25 -77 -13 -51 -89 -25 13 64 25 -38", 4, 4),
    ]
    cell = aosp_8(recurrent, cifg=True)
    inputs = cell.inputs(AOSP_8_X, np.zeros((2, 4)), np.zeros((2, 4)))
    state, c, out = run(nn, QUANTIZED_LSTM, inputs, cell.outputs(2), constants)
    np.testing.assert_array_equal(out, [[-15, 21, 14, 20], [-15, 15, 5, 27]])
    np.testing.assert_array_equal(state, out)
    np.testing.assert_array_equal(c, [[-11692, 9960, 5491, 8861], [-9422, 7726, 2056, 13149]])


@pytest.mark.parametrize("cifg", [True, False])
def test_quantized_lstm_with_projection_is_aosps(nn, cifg):
    recurrent = [
        int8s("-25 -38 51 13 -64 115 -25 -38 -89 6 -25 -77", 4, 3),
        int8s("-64 -38 -64 -25 77 51 115 38 -13 25 64 25", 4, 3),
        int8s("-38 25 13 -38 102 -10 -25 38 102 -77 -13 25", 4, 3),
        int8s("38 -13 13 -25 -64 -89 -25 -77 -13 -51 -89 -25", 4, 3),
    ]
    expected = {
        True: (
            [127, 127, 127, -128, 127, 127],
            [-11692, 9960, 5491, 8861, -9422, 7726, 2056, 13149],
        ),
        False: (
            [127, 127, -108, -67, 127, 127],
            [-14650, 8939, 5771, 6715, -11843, 7847, 1508, 12939],
        ),
    }[cifg]
    cell = aosp_8(recurrent, cifg=cifg, proj=AOSP_8_PROJECTION, proj_b=np.zeros(3))
    inputs = cell.inputs(AOSP_8_X, np.zeros((2, 3)), np.zeros((2, 4)))
    _, c, out = run(nn, QUANTIZED_LSTM, inputs, cell.outputs(2))
    np.testing.assert_array_equal(out.ravel(), expected[0])
    np.testing.assert_array_equal(c.ravel(), expected[1])


@pytest.mark.parametrize("variant", VARIANTS, ids=variant_id)
@pytest.mark.parametrize("integer_bits", [0, 1, 3, 4, 5, 6])
def test_quantized_lstm_is_an_lstm(nn, variant, integer_bits):
    rng = np.random.default_rng(VARIANTS.index(variant))
    cell = some_cell8(rng, 11, 8, 3, **variant, c_scale=2.0 ** (integer_bits - 15))
    outputs = cell.r[3].shape[1]
    x, h = rng.integers(-128, 128, (4, 11)), rng.integers(-128, 128, (4, outputs))
    c = rng.integers(-6000, 6000, (4, 8))
    inputs = cell.inputs(x, h, c)
    state, new_c, out = run(nn, QUANTIZED_LSTM, inputs, cell.outputs(4))
    np.testing.assert_array_equal(state, out)
    wanted_h, wanted_c = cell.real().step(*(inputs[i].real for i in (0, 18, 19)))
    largest = 32767 * cell.c_scale
    np.testing.assert_allclose(
        new_c * cell.c_scale, wanted_c.clip(-largest, largest), atol=0.006 + cell.c_scale
    )
    scale, zero = cell.h_quant
    wanted_h = wanted_h.clip((-128 - zero) * scale, (127 - zero) * scale)
    good = abs(wanted_c) < largest  # a saturated state has another output
    if cell.proj is not None:
        good = np.repeat(good.all(1, keepdims=True), outputs, 1)
    tolerance = (2 if cell.proj is None else 4) * scale
    np.testing.assert_allclose((out[good] - float(zero)) * scale, wanted_h[good], atol=tolerance)


def test_quantized_lstm_clips(nn):
    rng = np.random.default_rng(0)
    cell = some_cell8(
        rng, 11, 8, 3, cifg=False, peephole=False, projection=2, norm=False, c_scale=2.0**-12
    )
    cell = replace(cell, clips=(0.25, 0.125), h_quant=(0.0078125, 0))
    x, h = rng.integers(-128, 128, (4, 11)), rng.integers(-128, 128, (4, 3))
    inputs = cell.inputs(x, h, rng.integers(-6000, 6000, (4, 8)))
    _, new_c, out = run(nn, QUANTIZED_LSTM, inputs, cell.outputs(4))
    assert abs(new_c).max() == 0.25 * 2**12
    assert abs(out).max() == 0.125 * 128
    wanted_h, wanted_c = cell.real().step(*(inputs[i].real for i in (0, 18, 19)))
    np.testing.assert_allclose(new_c * cell.c_scale, wanted_c, atol=0.006)
    np.testing.assert_allclose(out * 0.0078125, wanted_h, atol=3 * 0.0078125)


REFUSALS_8 = {
    "an intermediate scale of 0": (27, 0.0),
    "an infinite intermediate scale": (29, float("inf")),
    "a hidden scale that is not a number": (31, float("nan")),
    "a hidden zero point of 16 bits": (30, 1000),
    "no recurrent weights of the input gate": (5, Omitted(TENSOR_QUANT8_SYMM)),
    "norms of some gates": (22, Omitted(TENSOR_QUANT16_SYMM)),
    "a lone peephole": (10, Quantised.of(np.zeros(8), TENSOR_QUANT16_SYMM, 1.0)),
    "weights of another width": (3, Quantised.of(np.zeros((8, 10)), TENSOR_QUANT8_SYMM, 1.0)),
    "a bias of other units": (13, Quantised.of(np.zeros(7), TENSOR_INT32, 0.0)),
    "a cell state of no power of two": (
        19,
        Quantised.of(np.zeros((4, 8)), TENSOR_QUANT16_SYMM, 0.0007),
    ),
    "a cell state of 7 integer bits": (
        19,
        Quantised.of(np.zeros((4, 8)), TENSOR_QUANT16_SYMM, 2.0**-8),
    ),
}


@pytest.mark.parametrize("name", REFUSALS_8)
def test_quantized_lstm_refuses(nn, name):
    rng = np.random.default_rng(0)
    cell = some_cell8(
        rng, 11, 8, 3, cifg=False, peephole=False, projection=0, norm=True, c_scale=2.0**-12
    )
    inputs = cell.inputs(np.zeros((4, 11)), np.zeros((4, 8)), np.zeros((4, 8)))
    assert execute(nn, QUANTIZED_LSTM, inputs, cell.outputs(4)) is not None
    index, value = REFUSALS_8[name]
    inputs[index] = value
    assert execute(nn, QUANTIZED_LSTM, inputs, cell.outputs(4)) is None
