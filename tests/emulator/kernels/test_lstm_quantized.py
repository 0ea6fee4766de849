"""LSTMs on integers: QUANTIZED_LSTM, of level 4, against AOSP's own examples, whose integers must
come out exactly, and against LSTM on what the integers stand for; refusals."""

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tests.emulator.kernels.one_operation import Kind, Omitted, Tensor, execute, of_floats, refused
from tests.emulator.nnapi import T

U8, I8 = T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_SYMM
I16, I32 = T.TENSOR_QUANT16_SYMM, T.TENSOR_INT32

# ---- QUANTIZED_16BIT_LSTM ---------------------------------------------------------------------

STATE, CELL, WEIGHT = Kind(U8, 1 / 128, 128), Kind(I16, 1 / 2048), Kind(U8, 0.00408021, 100)
BIAS = Kind(I32, np.float32(WEIGHT.scale) / 128)
ZEROS_16 = [
    STATE.of(np.zeros((2, 2))),
    *[WEIGHT.of(np.zeros((4, 2)))] * 4,
    *[WEIGHT.of(np.zeros((4, 4)))] * 4,
    *[BIAS.of(np.zeros(4))] * 4,
    CELL.of(np.zeros((2, 4))),
    STATE.of(np.zeros((2, 4))),
]
OUTPUTS_16 = [(CELL, (2, 4)), (STATE, (2, 4))]


def other(position, array=None, **kind):
    """The inputs with one that has another array or kind."""
    tensor = ZEROS_16[position]
    array = tensor.array if array is None else array
    changed = Tensor(replace(tensor.kind, **kind), array.astype(tensor.array.dtype))
    return [*ZEROS_16[:position], changed, *ZEROS_16[position + 1 :]], OUTPUTS_16


REFUSALS_16 = {
    "an input of another scale": other(0, scale=1 / 64),
    "an input of another zero point": other(0, zero=127),
    "weights of another scale": other(3, scale=0.5),
    "weights of another zero point": other(8, zero=99),
    "a bias of another scale": other(11, scale=0.25),
    "a cell state of another scale": other(13, scale=1 / 1024),
    "a state of another scale": other(14, scale=1 / 64),
    "weights of other units": other(6, np.zeros((3, 4))),
    "a long bias": other(9, np.zeros(5)),
    "another scale of cells": (ZEROS_16, [(Kind(I16, 1 / 1024), (2, 4)), OUTPUTS_16[1]]),
    "another zero point": (ZEROS_16, [OUTPUTS_16[0], (Kind(U8, 1 / 128, 127), (2, 4))]),
}


@pytest.mark.parametrize(("inputs", "outputs"), REFUSALS_16.values(), ids=REFUSALS_16)
def test_quantized_16bit_lstm_refuses(nn, inputs, outputs):
    execute(nn, "QUANTIZED_16BIT_LSTM", ZEROS_16, *OUTPUTS_16, constants=True)
    assert refused(nn, "QUANTIZED_16BIT_LSTM", inputs, outputs)


# ---- QUANTIZED_LSTM ---------------------------------------------------------------------------

TANH = 4


@dataclass(frozen=True)
class Cell8:
    """QUANTIZED_LSTM; gates are in the order i, f, c, o, None is left out."""

    w: list
    r: list
    b: list
    norm: list
    p: tuple = (None, None, None)
    proj: np.ndarray | None = None
    proj_b: np.ndarray | None = None
    x_kind: Kind = Kind(T.TENSOR_QUANT8_ASYMM_SIGNED, 0.0078125)
    h_kind: Kind = Kind(T.TENSOR_QUANT8_ASYMM_SIGNED, 3.05176e-05)
    c_kind: Kind = Kind(I16, 3.05176e-05)
    intermediate: tuple = (0.007059, 0.007812, 0.007059, 0.007812)
    hidden: tuple = (0, 0.007)
    clips: tuple = (0.0, 0.0)

    def inputs(self, x, h, c):
        def group(values, code, scale):
            kind = Kind(code, scale)
            return [Omitted(kind) if v is None else kind.of(v) for v in values]

        weight, norm, proj = 0.00784314, 3.05182e-05, 0.00392157
        # Of the biases: in the unit of the normalised gates, or of products with the input.
        bias = weight * self.x_kind.scale if self.norm[3] is None else norm / 1024
        return [
            self.x_kind.of(x),
            *group([*self.w, *self.r], I8, weight),
            *group(self.p, I16, 2.0**-14),
            *group(self.b, I32, bias),
            *group([self.proj], I8, proj),
            *group([self.proj_b], I32, proj * self.hidden[1]),
            self.h_kind.of(h),
            self.c_kind.of(c),
            *group(self.norm, I16, norm),
            *self.clips,
            *self.intermediate,
            *self.hidden,
        ]

    def outputs(self, batch):
        h = (self.h_kind, (batch, self.r[3].shape[1]))
        return [h, (self.c_kind, (batch, self.w[3].shape[0])), h]

    def run(self, nn, x, h, c, constants=True):
        """Output and cell state."""
        inputs, outputs = self.inputs(x, h, c), self.outputs(len(x))
        state, c, out = execute(nn, "QUANTIZED_LSTM", inputs, *outputs, constants=constants)
        np.testing.assert_array_equal(state, out)
        return out, c

    def in_floats(self, nn, x, h, c):
        """Returns LSTM's outputs for the same numbers, which AOSP's examples check."""
        tensors = [one.real.astype("f4") if isinstance(one, Tensor) else None
                   for one in self.inputs(x, h, c)[:24]]  # fmt: skip
        inputs = [*tensors[:20], TANH, *self.clips, *tensors[20:]]
        outputs = of_floats(*[(0, 0)] * 4)
        _, _, real_c, out = execute(nn, "LSTM", inputs, *outputs, constants=True)
        return out, real_c


def left_out(values, cifg):
    return [None, *values[1:]] if cifg else values


def some_cell(rng, *, cifg=False, peephole=False, projection=0, norm=False, c_scale, **others):
    """A random LSTM of 11 inputs, 8 units and, with a projection, 3 outputs: 0 has none, 1 weights,
    2 weights and bias."""
    outputs = 3 if projection else 8
    i8 = (-127, 128)

    def gates(limits, *shape, there=True):
        matrices = [rng.integers(*limits, shape) for _ in range(4)]
        return left_out(matrices, cifg) if there else [None] * 4

    p = gates((-16000, 16000), 8, there=peephole)
    parts = dict(
        p=(p[0], p[1], p[3]),
        proj=rng.integers(*i8, (outputs, 8)) if projection else None,
        proj_b=rng.integers(-2000, 2000, outputs) if projection == 2 else None,
        intermediate=(0.0015,) * 4 if norm else (2.0**-12,) * 4,
        x_kind=Kind(T.TENSOR_QUANT8_ASYMM_SIGNED, 0.0078125, 3),
        h_kind=Kind(T.TENSOR_QUANT8_ASYMM_SIGNED, 0.0078125, -4 if projection else 0),
        c_kind=Kind(I16, c_scale),
        hidden=(-5 if projection else 0, 0.0078125),
    )
    return Cell8(
        gates(i8, 8, 11),
        gates(i8, 8, outputs),
        gates((-(10**7), 10**7) if norm else (-5000, 5000), 8),
        gates((3000, 30000), 8, there=norm),
        **parts | others,
    )


def int8s(text, *shape):
    """The first of some numbers in a shape."""
    return np.array(text.split(), np.int8)[: np.prod(shape)].reshape(shape)


# AOSP's example (Apache License 2.0): 2 rows of 5, 4 units. Weights of i, f, c, o.
AOSP_X = int8s("90 102 13 26 38 102 13 26 51 64", 2, 5)
AOSP_W = [
    int8s("64 77 89 -102 -115 13 25 38 -51 64 -102 89 -77 64 -51 -64 -51 -38 -25 -13", 4, 5),
    int8s("-77 -13 38 25 115 -64 -25 -51 38 -102 -51 38 -64 -51 -77 38 -51 -77 -64 -64", 4, 5),
    int8s("-51 -38 -25 -13 -64 64 -25 -38 -25 -77 77 -13 -51 -38 -89 89 -115 -64 102 77", 4, 5),
    int8s("-102 -51 -25 -115 -13 -89 38 -38 -102 -25 77 -25 51 -89 -38 -64 13 64 -77 -51", 4, 5),
]
AOSP_B = [
    [644245, 3221226, 4724464, 8160438],
    [2147484, -6442451, -4294968, 2147484],
    [-1073742, 15461883, 5368709, 1717987],
    [1073742, -214748, 4294968, 2147484],
]
AOSP_NORM = [
    [3277, 6553, 9830, 16384],
    [6553, 6553, 13107, 9830],
    [22937, 6553, 9830, 26214],
    [19660, 6553, 6553, 16384],
]
AOSP_R = [  # as many columns as there are outputs; without a projection there is no input gate
    "-25 -38 51 13 -64 115 -25 -38 -89 6 -25 -77",
    "-64 -38 -64 -25 77 51 115 38 -13 25 64 25 25 38 -13 51",
    "-38 25 13 -38 102 -10 -25 38 102 -77 -13 25 38 -13 25 64",
    "38 -13 13 -25 -64 -89 -25 -77 -13 -51 -89 -25 13 64 25 -38",
]
AOSP_PROJECTION = int8s("-25 51 3 -51 25 127 77 20 18 51 -102 51", 3, 4)
WITHOUT_INPUT_GATE = [[-11692, 9960, 5491, 8861], [-9422, 7726, 2056, 13149]]
AOSP_RESULTS = {  # outputs and cell states
    "no projection": ([[-15, 21, 14, 20], [-15, 15, 5, 27]], WITHOUT_INPUT_GATE),
    "no input gate": ([[127, 127, 127], [-128, 127, 127]], WITHOUT_INPUT_GATE),
    "all": (
        [[127, 127, -108], [-67, 127, 127]],
        [[-14650, 8939, 5771, 6715], [-11843, 7847, 1508, 12939]],
    ),
}


@pytest.mark.parametrize("name", AOSP_RESULTS)
@pytest.mark.parametrize("constants", [True, False])
def test_quantized_lstm_is_aosps(nn, name, constants):
    outputs = 4 if name == "no projection" else 3
    recurrent = [int8s(AOSP_R[0], 4, 3), *(int8s(row, 4, outputs) for row in AOSP_R[1:])]
    weights = (left_out(each, name != "all") for each in (AOSP_W, recurrent, AOSP_B, AOSP_NORM))
    projection = dict(proj=AOSP_PROJECTION, proj_b=np.zeros(3)) if outputs == 3 else {}
    states = np.zeros((2, outputs)), np.zeros((2, 4))
    out, c = Cell8(*weights, **projection).run(nn, AOSP_X, *states, constants)
    assert (out.tolist(), c.tolist()) == AOSP_RESULTS[name]


VARIANTS = [*itertools.product((False, True), (False, True), (0, 1, 2), (False, True))]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(map(str, map(int, v))))
@pytest.mark.parametrize("integer_bits", [0, 1, 3, 4, 5, 6])
def test_quantized_lstm_is_an_lstm(nn, variant, integer_bits):
    rng = np.random.default_rng(VARIANTS.index(variant))
    options = dict(zip(("cifg", "peephole", "projection", "norm"), variant, strict=True))
    cell = some_cell(rng, **options, c_scale=2.0 ** (integer_bits - 15))
    outputs = cell.r[3].shape[1]
    x, h = rng.integers(-128, 128, (4, 11)), rng.integers(-128, 128, (4, outputs))
    c = rng.integers(-6000, 6000, (4, 8))
    (out, new_c), (real_out, real_c) = cell.run(nn, x, h, c), cell.in_floats(nn, x, h, c)
    largest, unit = cell.c_kind.real(np.int16(32767)), cell.c_kind.scale
    np.testing.assert_allclose(
        cell.c_kind.real(new_c), real_c.clip(-largest, largest), atol=0.006 + unit
    )
    good = abs(real_c) < largest  # a saturated state has another output
    if cell.proj is not None:
        good = np.repeat(good.all(1, keepdims=True), outputs, 1)
    real_out = real_out.clip(*cell.h_kind.real(np.int8([-128, 127])))
    tolerance = (2 if cell.proj is None else 4) * cell.h_kind.scale
    np.testing.assert_allclose(cell.h_kind.real(out)[good], real_out[good], atol=tolerance)


def test_quantized_lstm_clips(nn):
    rng = np.random.default_rng(0)
    h_kind = Kind(T.TENSOR_QUANT8_ASYMM_SIGNED, 0.0078125)
    cell = some_cell(rng, projection=2, c_scale=2.0**-12, clips=(0.25, 0.125), h_kind=h_kind)
    x, h = rng.integers(-128, 128, (4, 11)), rng.integers(-128, 128, (4, 3))
    c = rng.integers(-6000, 6000, (4, 8))
    (out, new_c), (real_out, real_c) = cell.run(nn, x, h, c), cell.in_floats(nn, x, h, c)
    assert abs(new_c).max() == 0.25 * 2**12
    assert abs(out).max() == 0.125 * 128
    np.testing.assert_allclose(cell.c_kind.real(new_c), real_c, atol=0.006)
    np.testing.assert_allclose(h_kind.real(out), real_out, atol=3 * h_kind.scale)


REFUSALS_8 = {
    "an intermediate scale of 0": (27, 0.0),
    "an infinite intermediate scale": (29, float("inf")),
    "a hidden scale that is not a number": (31, float("nan")),
    "a hidden zero point of 16 bits": (30, 1000),
    "no recurrent weights of the input gate": (5, Omitted(Kind(I8))),
    "norms of some gates": (22, Omitted(Kind(I16))),
    "a lone peephole": (10, Kind(I16, 1.0).of(np.zeros(8))),
    "weights of another width": (3, Kind(I8, 1.0).of(np.zeros((8, 10)))),
    "a bias of other units": (13, Kind(I32).of(np.zeros(7))),
    "a cell state of no power of two": (19, Kind(I16, 0.0007).of(np.zeros((4, 8)))),
    "a cell state of 7 integer bits": (19, Kind(I16, 2.0**-8).of(np.zeros((4, 8)))),
}


@pytest.mark.parametrize("name", REFUSALS_8)
def test_quantized_lstm_refuses(nn, name):
    cell = some_cell(np.random.default_rng(0), norm=True, c_scale=2.0**-12)
    inputs = cell.inputs(np.zeros((4, 11)), np.zeros((4, 8)), np.zeros((4, 8)))
    outputs = cell.outputs(4)
    execute(nn, "QUANTIZED_LSTM", inputs, *outputs, constants=True)
    index, value = REFUSALS_8[name]
    inputs[index] = value
    assert refused(nn, "QUANTIZED_LSTM", inputs, outputs)
