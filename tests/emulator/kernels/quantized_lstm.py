"""QUANTIZED_LSTM for its tests: its inputs, the LSTM that they stand for, and a second
implementation of its integers, one number at a time, in Python's integers and rationals."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tests.emulator.kernels.recurrent import Cell, Omitted, Quantised
from tests.emulator.nnapi import (
    TENSOR_INT32,
    TENSOR_QUANT8_ASYMM_SIGNED,
    TENSOR_QUANT8_SYMM,
    TENSOR_QUANT16_SYMM,
)


@dataclass(frozen=True)
class Cell8:
    """QUANTIZED_LSTM on integers; None is left out."""

    w: list
    r: list
    b: list
    norm: list
    p: tuple = (None, None, None)
    proj: np.ndarray | None = None
    proj_b: np.ndarray | None = None
    w_scale: float = 0.00784314
    p_scale: float = 2.0**-14
    norm_scale: float = 3.05182e-05
    proj_scale: float = 0.00392157
    x_quant: tuple = (0.0078125, 0)
    h_quant: tuple = (3.05176e-05, 0)
    c_scale: float = 3.05176e-05
    intermediate: tuple = (0.007059, 0.007812, 0.007059, 0.007812)
    hidden: tuple = (0, 0.007)
    clips: tuple = (0.0, 0.0)

    @property
    def b_scale(self):
        """Of the biases: in the unit of the normalised gates, or of products with the input."""
        with_norm = self.norm_scale / 1024
        return with_norm if self.norm[3] is not None else self.w_scale * self.x_quant[0]

    def inputs(self, x, h, c):
        def group(values, code, scale):
            return [Omitted(code) if v is None else Quantised.of(v, code, scale) for v in values]

        return [
            Quantised.of(x, TENSOR_QUANT8_ASYMM_SIGNED, *self.x_quant),
            *group([*self.w, *self.r], TENSOR_QUANT8_SYMM, self.w_scale),
            *group(self.p, TENSOR_QUANT16_SYMM, self.p_scale),
            *group(self.b, TENSOR_INT32, self.b_scale),
            *group([self.proj], TENSOR_QUANT8_SYMM, self.proj_scale),
            *group([self.proj_b], TENSOR_INT32, self.proj_scale * self.hidden[1]),
            Quantised.of(h, TENSOR_QUANT8_ASYMM_SIGNED, *self.h_quant),
            Quantised.of(c, TENSOR_QUANT16_SYMM, self.c_scale),
            *group(self.norm, TENSOR_QUANT16_SYMM, self.norm_scale),
            *self.clips,
            *self.intermediate,
            *self.hidden,
        ]

    def outputs(self, batch):
        units, outputs = self.w[3].shape[0], self.r[3].shape[1]
        h = (TENSOR_QUANT8_ASYMM_SIGNED, (batch, outputs), *self.h_quant)
        return [h, (TENSOR_QUANT16_SYMM, (batch, units), self.c_scale, 0), h]

    def real(self):
        """The same LSTM in real numbers."""

        def of(values, scale):
            return [None if v is None else np.asarray(v) * float(scale) for v in values]

        return Cell(
            of(self.w, self.w_scale),
            of(self.r, self.w_scale),
            of(self.b, self.b_scale),
            of(self.p, self.p_scale),
            of(self.norm, self.norm_scale),
            proj=of([self.proj], self.proj_scale)[0],
            proj_b=of([self.proj_b], self.proj_scale * self.hidden[1])[0],
            cell_clip=self.clips[0],
            proj_clip=self.clips[1],
        )


def left_out(values, cifg):
    return [None, *values[1:]] if cifg else values


def some_cell8(rng, inputs, units, outputs, *, cifg, peephole, projection, norm, **others):
    outputs = outputs if projection else units
    i8 = (-127, 128)

    def gates(limits, *shape, there=True):
        matrices = [rng.integers(*limits, shape) for _ in range(4)]
        return left_out(matrices, cifg) if there else [None] * 4

    p = gates((-16000, 16000), units, there=peephole)
    bias = (-(10**7), 10**7) if norm else (-5000, 5000)
    return Cell8(
        gates(i8, units, inputs),
        gates(i8, units, outputs),
        gates(bias, units),
        gates((3000, 30000), units, there=norm),
        (p[0], p[1], p[3]),
        rng.integers(*i8, (outputs, units)) if projection else None,
        rng.integers(-2000, 2000, outputs) if projection == 2 else None,
        intermediate=(0.0015,) * 4 if norm else (2.0**-12,) * 4,
        x_quant=(0.0078125, 3),
        h_quant=(0.0078125, -4 if projection else 0),
        hidden=(-5 if projection else 0, 0.0078125),
        **others,
    )


# ---- Its integers -----------------------------------------------------------------------------

INT8, INT16, INT32 = 7, 15, 31


def limit(x, bits):
    return max(-(1 << bits), min((1 << bits) - 1, x))


def away(x):
    """The nearest integer of a fraction, ties away from zero."""
    return math.floor(abs(x) + Fraction(1, 2)) * (1 if x >= 0 else -1)


def high(a, b, bits):
    """a * b / 2^bits, saturated; ties of negative numbers go up."""
    exact = Fraction(a * b, 1 << bits)
    tie_up = exact < 0 and (exact * 2).denominator == 1 and exact.denominator == 2
    return limit(math.floor(exact + Fraction(1, 2)) if tie_up else away(exact), bits)


def scaled(x, factor):
    """x times a float as a significand of 31 bits and a power of two."""
    mantissa, power = math.frexp(factor)
    significand = away(Fraction(mantissa) * (1 << INT32))
    if significand == 1 << INT32:
        significand, power = significand // 2, power + 1
    return shifted(x, significand, power)


def shifted(x, significand, power):
    x = limit(x << max(power, 0), INT32)
    return away(Fraction(high(x, significand, INT32), 1 << max(-power, 0)))


def exp_of(a, integer_bits):
    """exp(a) for a < 0 in 16 bits: a series around -1/8, then factors for the quarters."""
    one = 1 << (15 - integer_bits)
    if a == 0:
        return (1 << INT16) - 1
    if integer_bits > 5 and a < -32 * one:
        return 0
    quarter = one // 4
    rest = a % quarter - quarter
    x = limit(rest << integer_bits, INT16) + (1 << 12)
    x2 = high(x, x, INT16)
    x3, x4 = high(x2, x, INT16), high(x2, x2, INT16)
    third, start = away(Fraction(715827883, 1 << 16)), away(Fraction(1895147668, 1 << 16))
    tail = away(Fraction(high(away(Fraction(x4, 4)) + x3, third, INT16) + x2, 2))
    result = limit(start + high(start, x + tail, INT16), INT16)
    steps = (rest - a) // quarter
    for k in range(7):
        if k - 2 < integer_bits and steps >> k & 1:
            factor = away(Fraction(math.exp(-(2.0 ** (k - 2)))) * (1 << INT16))
            result = high(result, factor, INT16)
    return result


def newton(x):
    """2 / (1 + x) for x in [0, 1], with 2 integer bits."""
    half = (x + (1 << INT16)) // 2
    guess = limit(
        away(Fraction(48, 17) * (1 << 13)) + high(half, away(Fraction(-32, 17) * (1 << 13)), INT16),
        INT16,
    )
    for _ in range(3):
        error = (1 << 13) - high(half, guess, INT16)
        guess = limit(guess + limit(high(guess, error, INT16) << 2, INT16), INT16)
    return guess


def logistic(a):
    if a == 0:
        return 1 << 14
    above = limit(newton(exp_of(-abs(a), 3)) << 1, INT16)
    return above if a > 0 else (1 << INT16) - 1 - above


def tanh(a, integer_bits):
    if a == 0:
        return 0
    t = limit((newton(exp_of(-abs(a), integer_bits + 1)) - (1 << 13)) << 2, INT16)
    return t if a > 0 else -t


def inverse_sqrt(x):
    """1 / sqrt(x) as a significand and a power."""
    if x <= 1:
        return (1 << INT32) - 1, 0
    power = -11
    while x >= 1 << 29:
        x, power = x // 4, power - 1
    while x < 1 << 27:
        x, power = x * 4, power + 1
    half, root = away(Fraction(x >> 1, 2)), 1 << 28
    for _ in range(5):
        cube = limit(high(high(root, root, INT32), root, INT32) << 6, INT32)
        root = limit((high(3 << 27, root, INT32) - high(half, cube, INT32)) << 3, INT32)
    root = high(root, 1518500250, INT32)
    return (limit(root << power, INT32), 0) if power > 0 else (root, power)


def toward_zero(a, b):
    return abs(a) // b * (1 if a >= 0 else -1)


def normalised(z, weights, bias, scale):
    n = len(z)
    mean = toward_zero(sum(z) * 1024, n)
    variance = sum(v * v for v in z) * ((1 << 20) // n) - mean * mean
    inverse = inverse_sqrt(toward_zero(variance, 1 << 20))
    items = []
    for v, w, b in zip(z, weights, bias, strict=True):
        value = shifted(1024 * v - mean, *inverse) * w + b
        value = toward_zero(value + (512 if value > 0 else -512), 1024)
        items.append(limit(scaled(value, scale * 4096), INT16))
    return items


def step(cell, x, h, c):
    """One row of the batch: the new output and cell state."""
    f32 = np.float32
    w_scale, x_scale, h_scale = f32(cell.w_scale), f32(cell.x_quant[0]), f32(cell.h_quant[0])
    bits = round(math.log2(cell.c_scale)) + 15

    def gate(g, peephole, state):
        unit = f32(cell.intermediate[g])
        z = []
        for u in range(len(c)):
            bias = 0 if cell.norm[g] is not None else cell.b[g][u]
            of_x = bias + sum(
                a * (b - cell.x_quant[1]) for a, b in zip(cell.w[g][u], x, strict=True)
            )
            of_h = sum(a * (b - cell.h_quant[1]) for a, b in zip(cell.r[g][u], h, strict=True))
            v = limit(scaled(of_x, float(w_scale * x_scale / unit)), INT16)
            v = limit(v + scaled(of_h, float(w_scale * h_scale / unit)), INT16)
            if peephole is not None:
                factor = float(f32(2.0 ** (bits - 15) * float(f32(cell.p_scale)) / float(unit)))
                v = limit(v + scaled(peephole[u] * state[u], factor), INT16)
            z.append(v)
        if cell.norm[g] is not None:
            z = normalised(z, cell.norm[g], cell.b[g], float(f32(cell.norm_scale)))
        return [tanh(v, 3) if g == 2 else logistic(v) for v in z]

    f, value = gate(1, cell.p[1], c), gate(2, None, c)
    i = [(1 << INT16) - 1 - v for v in f] if cell.w[0] is None else gate(0, cell.p[0], c)
    new = []
    for u in range(len(c)):
        memory = away(Fraction(f[u] * c[u], 1 << 15))
        new.append(limit(memory + away(Fraction(i[u] * value[u], 1 << (15 + bits))), INT16))
    o = gate(3, cell.p[2], new)
    zero, unit = cell.hidden
    factor = float(f32(2.0**-15 / float(f32(unit)) * 2.0**-15))
    hidden = [
        limit(scaled(a * tanh(b, bits), factor) - zero, INT8) for a, b in zip(o, new, strict=True)
    ]
    if cell.proj is None:
        return hidden, new
    factor = float(f32(cell.proj_scale) * f32(unit) / h_scale)
    bias = [0] * len(h) if cell.proj_b is None else cell.proj_b
    sums = [
        b + sum(a * (v + zero) for a, v in zip(row, hidden, strict=True))
        for row, b in zip(cell.proj, bias, strict=True)
    ]
    return [limit(scaled(v, factor) + cell.h_quant[1], INT8) for v in sums], new


def as_ints(cell):
    """The cell with Python's integers, which do not overflow."""

    def of(value):
        if isinstance(value, np.ndarray):
            return value.tolist()
        return type(value)(of(v) for v in value) if isinstance(value, list | tuple) else value

    return type(cell)(**{name: of(value) for name, value in vars(cell).items()})
