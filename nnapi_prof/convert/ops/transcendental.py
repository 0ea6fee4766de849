"""Exponentials, logarithms and the error function."""

from __future__ import annotations

import math

import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.formula import (
    RELU1,
    Value,
    absolute,
    exponential,
    negative_part,
    number,
    polynomial,
    relu,
    sigmoid,
)
from nnapi_prof.convert.ops.operands import argument
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
"""``log(P / (1 - P))``, P being the share of the normal distribution below x, for |x| <= 5.5: an
odd polynomial in ``x / 5.5``. Fitted by linear programming to the smallest largest error of
``x * P(x)``, which is 0.7e-7; at 5.5, P is 1 - 1.9e-8 and stays so beyond."""


def normal_logit(x: Value) -> Value:
    """The logit of the normal distribution function, by operations of level 1."""
    near = x.times(1 / NORMAL_REACH, RELU1)
    return polynomial(near * near, NORMAL_LOGIT) * near


@lowers(aten.erf.default)
def erf(op: Lowering) -> OperandId:
    """Lowers ``erf(x)`` as ``tanh(logit(P(x * sqrt 2)) / 2)``.

    NNAPI has no erf. With :data:`NORMAL_LOGIT` the error is 2.5e-7 at most, in float32, for all x,
    plus that of the device's TANH; near 0 it is relative.
    """
    logit = normal_logit(argument(op, "self") * math.sqrt(2))
    return (logit * 0.5).unary(OperationCode.TANH).operand


@lowers(aten.erfc.default)
def erfc(op: Lowering) -> OperandId:
    """Lowers ``1 - erf(x)`` as ``2 * sigmoid(-logit(P(x * sqrt 2)))``, with the error of
    :func:`erf`; it does not fall below 3.8e-8."""
    logit = normal_logit(argument(op, "self") * -math.sqrt(2))
    return (sigmoid(logit) * 2).operand


@lowers(aten.exp.default)
def exp(op: Lowering) -> OperandId:
    """Lowers ``e ** x``: EXP, or below level 3, which has it, ``sigmoid(x) / sigmoid(-x)``."""
    return exponential(argument(op, "self")).operand


@lowers(aten.exp2.default)
def exp2(op: Lowering) -> OperandId:
    """Lowers ``2 ** x``."""
    x = argument(op, "self")
    return number(op, 2, x.dtype).binary(OperationCode.POW, x).operand


@lowers(aten.expm1.default)
def expm1(op: Lowering) -> OperandId:
    """Lowers ``e ** x - 1`` as ``tanh(x / 2) * (e ** x + 1)``, which keeps its precision near 0."""
    x = argument(op, "self")
    return ((x * 0.5).unary(OperationCode.TANH) * (exponential(x) + 1)).operand


LOGARITHMS = {
    aten.log.default: 1.0,
    aten.log2.default: 1 / math.log(2),
    aten.log10.default: 1 / math.log(10),
}
"""Natural logarithm -> logarithm of another base: a factor."""


@lowers(*LOGARITHMS)
def log(op: Lowering) -> OperandId:
    """Lowers logarithms to base e, 2 and 10; the latter two round once more."""
    result = argument(op, "self").unary(OperationCode.LOG)
    factor = LOGARITHMS[op.target]
    return (result if factor == 1 else result * factor).operand


@lowers(aten.log1p.default)
def log1p(op: Lowering) -> OperandId:
    """Lowers ``log(1 + x)`` as ``log(u) * x / (u - 1)`` with ``u = 1 + x`` rounded, which makes up
    for the rounding as far as the device's LOG is right near 1, and ``x`` itself where u is 1. An
    infinite x gives NaN."""
    x = argument(op, "self")
    u = x + 1
    rounded = u - 1
    corrected = u.unary(OperationCode.LOG) * (x / rounded)
    tiny = rounded.is_(OperationCode.EQUAL, 0)
    return tiny.select(x, corrected, x.dtype).operand


@lowers(aten.softplus.default)
def softplus(op: Lowering) -> OperandId:
    """Lowers ``log(1 + e ** (beta * x)) / beta``, and x itself where beta * x > threshold.

    As ``max(z, 0) + log(1 + e ** -|z|)`` nothing overflows. The error is 1.2e-7 / beta beside the
    rounding of the result; beyond a threshold of 15 or more the two branches differ by less
    (3.1e-7), and only a lower one is looked at.
    """
    beta, threshold = float(op.arg("beta")), float(op.arg("threshold"))
    op.require(beta > 0, f"beta={beta:g}, a positive one is wanted")
    x = argument(op, "self")
    z = x if beta == 1 else x * beta
    result = log_1_plus_exp(z)
    if beta != 1:
        result = result * (1 / beta)
    if threshold < 15:
        result = (z > threshold).select(x, result, x.dtype)
    return result.operand


def log_1_plus_exp(z: Value) -> Value:
    """``log(1 + e ** z)``; LOG came with level 3."""
    bend = (exponential(-absolute(z)) + 1).unary(OperationCode.LOG)
    return relu(z) + bend


@lowers(aten.log_sigmoid.default)
def log_sigmoid(op: Lowering) -> OperandId:
    """Lowers ``log(sigmoid(x))`` as ``min(x, 0) - log(1 + e ** -|x|)``."""
    x = argument(op, "self")
    bend = (exponential(-absolute(x)) + 1).unary(OperationCode.LOG)
    return (negative_part(x) - bend).operand


@lowers(aten.logaddexp.default)
def logaddexp(op: Lowering) -> OperandId:
    """Lowers ``log(e ** x + e ** y)`` as ``y + log(1 + e ** (x - y))``."""
    x, y = argument(op, "self"), argument(op, "other")
    return (y + log_1_plus_exp(x - y)).operand


@lowers(aten.logit.default)
def logit(op: Lowering) -> OperandId:
    """Lowers ``log(x / (1 - x))``, x clamped to [eps, 1 - eps] where there is an eps."""
    x = argument(op, "self")
    eps = op.arg("eps")
    if eps is not None:
        x = x.binary(OperationCode.MAXIMUM, float(eps)).binary(OperationCode.MINIMUM, 1 - eps)
    return (x / (1 - x)).unary(OperationCode.LOG).operand
