"""Trigonometry and hyperbolic functions beyond SIN and TANH."""

from __future__ import annotations

import math

import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.formula import (
    Value,
    absolute,
    exponential,
    number,
    polynomial,
)
from nnapi_prof.convert.ops.operands import argument
from nnapi_prof.convert.registry import Lowering, lowers
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten

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
"""``atan(t) / t`` for 0 <= t <= 1 as a polynomial in ``t ** 2``. Fitted by linear programming; the
error of atan is 1.1e-8, and 1e-7 where float32 computes it."""


@lowers(aten.sin.default)
def sin(op: Lowering) -> OperandId:
    """Lowers ``sin(x)``: SIN."""
    return _sin(argument(op, "self")).operand


@lowers(aten.cos.default)
def cos(op: Lowering) -> OperandId:
    """Lowers ``cos(x)``, see :func:`_cos`."""
    return _cos(argument(op, "self")).operand


@lowers(aten.tan.default)
def tan(op: Lowering) -> OperandId:
    """Lowers ``sin(x) / cos(x)``; next to a pole the error of the divisor, 3e-7, is felt."""
    x = argument(op, "self")
    return (_sin(x) / _cos(x)).operand


def _sin(x: Value) -> Value:
    return x.unary(OperationCode.SIN)


def _cos(x: Value) -> Value:
    """``1 - 2 * sin(x / 2) ** 2``: unlike ``sin(x + pi / 2)`` it does not round a large x; the
    error is 3e-7 at most where SIN is exact to the last bit."""
    sine = _sin(x * 0.5)
    return (sine * sine) * -2 + 1


@lowers(aten.sinh.default)
def sinh(op: Lowering) -> OperandId:
    """Lowers ``sinh(x)`` as ``tanh(x / 2) * (e ** x + e ** -x + 2) / 2``, the same number without
    the cancellation near 0."""
    x = argument(op, "self")
    t = (x * 0.5).unary(OperationCode.TANH)
    return (t * ((exponential(x) + exponential(-x) + 2) * 0.5)).operand


@lowers(aten.cosh.default)
def cosh(op: Lowering) -> OperandId:
    """Lowers ``(e ** x + e ** -x) / 2``."""
    x = argument(op, "self")
    return ((exponential(x) + exponential(-x)) * 0.5).operand


@lowers(aten.atan.default)
def atan(op: Lowering) -> OperandId:
    """Lowers ``atan(x)`` as the angle of (1, x); the error is 3e-7 at most."""
    x = argument(op, "self")
    size = _first_quadrant(absolute(x), number(op, 1, x.dtype))
    return (x < 0).select(-size, size, x.dtype).operand


@lowers(aten.atan2.default)
def atan2(op: Lowering) -> OperandId:
    """Lowers the angle of (other, self), in [-pi, pi]; the error is 4e-7 at most.

    NNAPI has no inverse functions: the smaller coordinate over the larger goes through
    :data:`ARCTANGENT`, and reflections bring the angle home, by the sign of a zero too. Two
    infinite coordinates give NaN.
    """
    y, x = argument(op, "self"), argument(op, "other")
    angle = _first_quadrant(absolute(y), absolute(x))
    angle = _negative(x).select(math.pi - angle, angle, x.dtype)
    return _negative(y).select(-angle, angle, x.dtype).operand


def _negative(x: Value) -> Value:
    """Whether x is below 0, or the 0 that divides 1 to minus infinity."""
    return (x < 0).is_(OperationCode.LOGICAL_OR, (1 / x) < 0)


def _first_quadrant(y: Value, x: Value) -> Value:
    """The angle of (x, y), neither negative: 0 to pi / 2."""
    y.op.require(y.dtype == "float32", f"an angle of {y.dtype}, float32 is wanted")
    longer = y.binary(OperationCode.MAXIMUM, x)
    divisor = longer.is_(OperationCode.EQUAL, 0).select(1, longer, y.dtype)
    t = y.binary(OperationCode.MINIMUM, x) / divisor
    angle = polynomial(t * t, ARCTANGENT) * t
    return (y > x).select(math.pi / 2 - angle, angle, y.dtype)
