"""Rounding and sign. None of it at level 1 or 2 but FLOOR: the rest is composed from that.

Zeros may lose their sign, and a NaN may become a number (NNAPI does not say what RELU makes of
it); :func:`rounded` gives NaN for an infinity.
"""

from __future__ import annotations

import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.formula import RELU, RELU1, Value, floor, truncated
from nnapi_prof.convert.ops.operands import argument, result_dtype
from nnapi_prof.convert.registry import Lowering, lowers

aten = torch.ops.aten


def _source(op: Lowering) -> Value:
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


def rounded(x: Value) -> Value:
    """``x`` rounded to the nearest integer, a half to the even one: exact for every finite x.

    Within its pair of integers, ``c = 2 * floor(x / 2)`` and ``c + 1``, twice the distance from
    the odd one is ``q`` in [-2, 2]. Up to -1 (a half below it included) ``x`` goes to ``c``, from 1
    on to ``c + 2``, between to ``c + 1``: that is ``c + 1 + min(1, max(-1, trunc(q)))``.
    """
    even = floor(x * 0.5) * 2
    twice = (x - even) * 2
    above = floor(twice.plus(-2, RELU))
    below = floor((twice * -1).plus(2, RELU))
    return above.minus(below, RELU1) + 1 + even


@lowers(aten.sign.default, aten.sgn.default)
def sign(op: Lowering) -> OperandId:
    """Lowers ``1 if x > 0 else -1 if x < 0 else 0``: SELECT of level 3."""
    op.require_level(3, "telling signs apart (GREATER and SELECT)")
    dtype = result_dtype(op)
    x = argument(op, "self", dtype)
    return (x > 0).select(1, (x < 0).select(-1, 0, dtype), dtype).operand
