"""Lower exponentials, logarithms, the error function, angles and rounding."""

from __future__ import annotations

import math

import torch

from nnapi_prof.convert import OperandId
from nnapi_prof.convert.ops.element_types import argument, formula, result_dtype
from nnapi_prof.convert.ops.formula import (
    RELU,
    RELU1,
    FormulaValue,
    absolute,
    exponential,
    floor,
    negative_part,
    number,
    polynomial,
    relu,
    sigmoid,
    truncated,
)
from nnapi_prof.convert.registry import Lowering, lowers
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten

NORMAL_REACH = 5.5
NORMAL_LOGIT = (
    8.77672942,
    12.090109,
    -0.3317124,
    -16.83141625,
    36.5952813,
    -37.23730745,
    15.25002565,
)
"""``log(P / (1 - P))`` for |x| <= 5.5 as an odd polynomial in ``x / 5.5``; P is the share of the
normal distribution below x. It is fitted by linear programming to minimise the largest error of ``x
* P(x)``, which is 0.7e-7. At 5.5, P is 1 - 1.9e-8; beyond, it stays there."""


def normal_logit(x: FormulaValue) -> FormulaValue:
    """Returns the logit of the normal distribution function, by operations of level 1."""
    near = x.times(1 / NORMAL_REACH, RELU1)
    return polynomial(near * near, NORMAL_LOGIT) * near


@formula(aten.erf.default)
def erf(x: FormulaValue) -> FormulaValue:
    """Lowers ``erf(x)`` as ``tanh(logit(P(x * sqrt 2)) / 2)``.

    NNAPI has no erf. With :data:`NORMAL_LOGIT` the error is at most 2.5e-7 in float32, for all x,
    plus that of the device's TANH. Near 0 it is relative.
    """
    return (normal_logit(x * math.sqrt(2)) * 0.5).unary(OperationCode.TANH)


@formula(aten.erfc.default)
def erfc(x: FormulaValue) -> FormulaValue:
    """Lowers ``1 - erf(x)`` as ``2 * sigmoid(-logit(P(x * sqrt 2)))``, with the error of
    :func:`erf`. The result does not fall below 3.8e-8."""
    return sigmoid(normal_logit(x * -math.sqrt(2))) * 2


formula(aten.exp.default)(exponential)


@formula(aten.exp2.default)
def exp2(x: FormulaValue) -> FormulaValue:
    """Lowers ``2 ** x``."""
    return number(x.op, 2, x.dtype).binary(OperationCode.POW, x)


@formula(aten.expm1.default)
def expm1(x: FormulaValue) -> FormulaValue:
    """Lowers ``e ** x - 1`` as ``tanh(x / 2) * (e ** x + 1)``, which stays precise near 0."""
    return (x * 0.5).unary(OperationCode.TANH) * (exponential(x) + 1)


LOGARITHMS = {
    aten.log.default: 1.0,
    aten.log2.default: 1 / math.log(2),
    aten.log10.default: 1 / math.log(10),
}
"""Logarithm -> its factor to the natural logarithm."""


@lowers(*LOGARITHMS)
def log(op: Lowering) -> OperandId:
    """Lowers logarithms to base e, 2 and 10; the latter two are rounded once more."""
    result = argument(op, "self").unary(OperationCode.LOG)
    factor = LOGARITHMS[op.target]
    return (result if factor == 1 else result * factor).operand


@formula(aten.log1p.default)
def log1p(x: FormulaValue) -> FormulaValue:
    """Lowers ``log(1 + x)`` as ``log(u) * x / (u - 1)`` with ``u = 1 + x`` rounded, or ``x`` where
    u is 1. This corrects the rounding if LOG is exact near 1. An infinite x gives NaN."""
    u = x + 1
    difference = u - 1
    logarithm = u.unary(OperationCode.LOG) * (x / difference)
    tiny = difference.is_(OperationCode.EQUAL, 0)
    return tiny.select(x, logarithm, x.dtype)


@lowers(aten.softplus.default)
def softplus(op: Lowering) -> OperandId:
    """Lowers ``log(1 + e ** (beta * x)) / beta``, and x itself where beta * x > threshold.

    In the form ``max(z, 0) + log(1 + e ** -|z|)`` nothing overflows. The error is 1.2e-7 / beta
    beside the rounding of the result. Beyond a threshold of 15 or more the two branches differ by
    less than 3.1e-7, so only a lower threshold is applied.
    """
    beta, threshold = float(op.arg("beta")), float(op.arg("threshold"))
    op.require(beta > 0, f"beta={beta:g}, a positive one is required")
    x = argument(op, "self")
    z = x if beta == 1 else x * beta
    result = log_1_plus_exp(z)
    if beta != 1:
        result = result * (1 / beta)
    if threshold < 15:
        result = (z > threshold).select(x, result, x.dtype)
    return result.operand


def log_1_plus_exp(z: FormulaValue) -> FormulaValue:
    """Returns ``log(1 + e ** z)``; LOG came with level 3."""
    bend = (exponential(-absolute(z)) + 1).unary(OperationCode.LOG)
    return relu(z) + bend


@formula(aten.log_sigmoid.default)
def log_sigmoid(x: FormulaValue) -> FormulaValue:
    """Lowers ``log(sigmoid(x))`` as ``min(x, 0) - log(1 + e ** -|x|)``."""
    bend = (exponential(-absolute(x)) + 1).unary(OperationCode.LOG)
    return negative_part(x) - bend


@formula(aten.logaddexp.default, of=("self", "other"))
def logaddexp(x: FormulaValue, y: FormulaValue) -> FormulaValue:
    """Lowers ``log(e ** x + e ** y)`` as ``y + log(1 + e ** (x - y))``."""
    return y + log_1_plus_exp(x - y)


@formula(aten.logit.default)
def logit(x: FormulaValue) -> FormulaValue:
    """Lowers ``log(x / (1 - x))``; with an eps, x is clamped to [eps, 1 - eps]."""
    eps = x.op.arg("eps")
    if eps is not None:
        x = x.binary(OperationCode.MAXIMUM, float(eps)).binary(OperationCode.MINIMUM, 1 - eps)
    return (x / (1 - x)).unary(OperationCode.LOG)


# Trigonometric and hyperbolic functions beyond SIN and TANH.


ARCTANGENT = (
    0.999999934,
    -0.333328512,
    0.199897088,
    -0.141862441,
    0.105851892,
    -0.0740225289,
    0.0416221137,
    -0.0154715816,
    0.00271220976,
)
"""``atan(t) / t`` for 0 <= t <= 1 as a polynomial in ``t ** 2``, fitted by linear programming. The
error of atan is 1.1e-8, and 1e-7 if computed in float32."""


@formula(aten.sin.default)
def sin(x: FormulaValue) -> FormulaValue:
    """Lowers ``sin(x)``: SIN."""
    return x.unary(OperationCode.SIN)


@formula(aten.cos.default)
def cos(x: FormulaValue) -> FormulaValue:
    """Lowers ``cos(x)`` as ``1 - 2 * sin(x / 2) ** 2``. Unlike ``sin(x + pi / 2)`` it does not
    round a large x. The error is at most 3e-7 where SIN is exact to the last bit."""
    sine = sin(x * 0.5)
    return (sine * sine) * -2 + 1


@formula(aten.tan.default)
def tan(x: FormulaValue) -> FormulaValue:
    """Lowers ``sin(x) / cos(x)``; near a pole the divisor's error of 3e-7 is noticeable."""
    return sin(x) / cos(x)


@formula(aten.sinh.default)
def sinh(x: FormulaValue) -> FormulaValue:
    """Lowers sinh as ``tanh(x / 2) * (e ** x + e ** -x + 2) / 2``, which does not cancel near 0."""
    t = (x * 0.5).unary(OperationCode.TANH)
    return t * ((exponential(x) + exponential(-x) + 2) * 0.5)


@formula(aten.cosh.default)
def cosh(x: FormulaValue) -> FormulaValue:
    """Lowers ``(e ** x + e ** -x) / 2``."""
    return (exponential(x) + exponential(-x)) * 0.5


@formula(aten.atan.default)
def atan(x: FormulaValue) -> FormulaValue:
    """Lowers ``atan(x)`` as the angle of (1, x); the error is at most 3e-7."""
    size = _first_quadrant(absolute(x), number(x.op, 1, x.dtype))
    return (x < 0).select(-size, size, x.dtype)


@lowers(aten.atan2.default)
def atan2(op: Lowering) -> OperandId:
    """Lowers the angle of (other, self), in [-pi, pi]; the error is at most 4e-7.

    NNAPI has no inverse functions. The smaller coordinate over the larger is the argument of
    :data:`ARCTANGENT`; reflections then give the angle, by the sign of a zero too. Two infinities
    give NaN.
    """
    y, x = argument(op, "self"), argument(op, "other")
    angle = _first_quadrant(absolute(y), absolute(x))
    angle = _negative(x).select(math.pi - angle, angle, x.dtype)
    return _negative(y).select(-angle, angle, x.dtype).operand


def _negative(x: FormulaValue) -> FormulaValue:
    """Returns whether x is below 0 or is the zero with 1 / x = minus infinity."""
    return (x < 0).is_(OperationCode.LOGICAL_OR, (1 / x) < 0)


def _first_quadrant(y: FormulaValue, x: FormulaValue) -> FormulaValue:
    """Returns the angle of (x, y), from 0 to pi / 2; neither coordinate is negative."""
    y.op.require(y.dtype == "float32", f"an angle of {y.dtype}, float32 is required")
    longer = y.binary(OperationCode.MAXIMUM, x)
    divisor = longer.is_(OperationCode.EQUAL, 0).select(1, longer, y.dtype)
    t = y.binary(OperationCode.MINIMUM, x) / divisor
    angle = polynomial(t * t, ARCTANGENT) * t
    return (y > x).select(math.pi / 2 - angle, angle, y.dtype)


# Rounding and sign. Levels 1 and 2 have only FLOOR: the rest is composed of it.
#
# Zeros may lose their sign, and a NaN may become a number (NNAPI does not specify RELU of NaN).
# :func:`rounded` gives NaN for an infinity.


def _source(op: Lowering) -> FormulaValue:
    x = argument(op, "self")
    op.require(x.dtype != "int32", f"of {op.out.dtype}, which has no fraction: drop the call")
    return x


@lowers(aten.ceil.default)
def ceil(op: Lowering) -> OperandId:
    """Lowers ``-floor(-x)``."""
    return (-floor(-_source(op))).operand


@lowers(aten.trunc.default)
def trunc(op: Lowering) -> OperandId:
    """Lowers ``floor(relu(x)) - floor(relu(-x))``."""
    return truncated(_source(op)).operand


@lowers(aten.frac.default)
def frac(op: Lowering) -> OperandId:
    """Lowers ``x - trunc(x)``, which is exact."""
    x = _source(op)
    return (x - truncated(x)).operand


@lowers(aten.round.default)
def round_(op: Lowering) -> OperandId:
    """Lowers rounding to the nearest integer, a half to the even one."""
    return rounded(_source(op)).operand


def rounded(x: FormulaValue) -> FormulaValue:
    """Rounds ``x`` to the nearest integer, a half to the even one; exact for every finite x.

    Within its pair of integers, ``c = 2 * floor(x / 2)`` and ``c + 1``, twice the distance from the
    odd one is ``q`` in [-2, 2]. Up to -1 (a half below it included) ``x`` is rounded to ``c``, from
    1 on to ``c + 2``, between to ``c + 1``: that is ``c + 1 + min(1, max(-1, trunc(q)))``.
    """
    even = floor(x * 0.5) * 2
    twice = (x - even) * 2
    above = floor(twice.plus(-2, RELU))
    below = floor((twice * -1).plus(2, RELU))
    return above.minus(below, RELU1) + 1 + even


@lowers(aten.sign.default, aten.sgn.default)
def sign(op: Lowering) -> OperandId:
    """Lowers ``1 if x > 0 else -1 if x < 0 else 0``, by SELECT of level 3."""
    op.require_level(3, "telling signs apart (GREATER and SELECT)")
    dtype = result_dtype(op)
    x = argument(op, "self", dtype)
    return (x > 0).select(1, (x < 0).select(-1, 0, dtype), dtype).operand
