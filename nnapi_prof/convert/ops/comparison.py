"""Lower comparisons, logic and choice. NNAPI has bools, and all of these, from level 3 on.

A comparison with a NaN is false, and ``!=`` true, in both PyTorch and NNAPI. Numbers are compared
in PyTorch's common element type: an int32 tensor with 2.5 as floats.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from nnapi_prof.convert import OperandId
from nnapi_prof.convert.ops.element_types import (
    argument,
    common_dtype,
    device_dtype,
    formula,
    result_dtype,
)
from nnapi_prof.convert.ops.formula import FormulaValue, absolute
from nnapi_prof.convert.registry import Lowering, lowers
from nnapi_prof.graph.node import type_of
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten

COMPARISONS = {
    aten.eq.Tensor: OperationCode.EQUAL,
    aten.eq.Scalar: OperationCode.EQUAL,
    aten.ne.Tensor: OperationCode.NOT_EQUAL,
    aten.ne.Scalar: OperationCode.NOT_EQUAL,
    aten.lt.Tensor: OperationCode.LESS,
    aten.lt.Scalar: OperationCode.LESS,
    aten.le.Tensor: OperationCode.LESS_EQUAL,
    aten.le.Scalar: OperationCode.LESS_EQUAL,
    aten.gt.Tensor: OperationCode.GREATER,
    aten.gt.Scalar: OperationCode.GREATER,
    aten.ge.Tensor: OperationCode.GREATER_EQUAL,
    aten.ge.Scalar: OperationCode.GREATER_EQUAL,
}
LOGIC = {
    aten.logical_and.default: OperationCode.LOGICAL_AND,
    aten.logical_or.default: OperationCode.LOGICAL_OR,
    aten.logical_xor.default: OperationCode.NOT_EQUAL,
}
"""Operators of any element type; every number except 0 is true."""
BITWISE = {
    aten.bitwise_and.Tensor: OperationCode.LOGICAL_AND,
    aten.bitwise_and.Scalar: OperationCode.LOGICAL_AND,
    aten.bitwise_or.Tensor: OperationCode.LOGICAL_OR,
    aten.bitwise_or.Scalar: OperationCode.LOGICAL_OR,
    aten.bitwise_xor.Tensor: OperationCode.NOT_EQUAL,
    aten.bitwise_xor.Scalar: OperationCode.NOT_EQUAL,
}
"""Operators of bools only: NNAPI has no bitwise operations on integers."""


@lowers(*COMPARISONS)
def compare(op: Lowering) -> OperandId:
    """Lowers ``self < other`` and the other five, of tensors or with a number."""
    dtype = common_dtype(op, "self", "other")
    x, y = argument(op, "self", dtype), argument(op, "other", dtype)
    return x.is_(COMPARISONS[op.target], y).operand


@lowers(*LOGIC)
def logic(op: Lowering) -> OperandId:
    """Lowers ``self and other``, ``or`` and ``xor``; the last is NOT_EQUAL of bools."""
    x, y = argument(op, "self", "bool"), argument(op, "other", "bool")
    return x.is_(LOGIC[op.target], y).operand


@lowers(*BITWISE)
def bitwise(op: Lowering) -> OperandId:
    """Lowers ``self & other``, ``|`` and ``^`` of bools."""
    _require_bool(op)
    x, y = argument(op, "self", "bool"), argument(op, "other", "bool")
    return x.is_(BITWISE[op.target], y).operand


@lowers(aten.logical_not.default)
def logical_not(op: Lowering) -> OperandId:
    """Lowers ``not self`` of any element type; for numbers it is ``self == 0``."""
    x = argument(op, "self", device_dtype(op, op.type("self").dtype))
    if x.dtype != "bool":
        return x.is_(OperationCode.EQUAL, 0).operand
    return _inverted(x).operand


@lowers(aten.bitwise_not.default)
def bitwise_not(op: Lowering) -> OperandId:
    """Lowers ``~self`` of bools."""
    _require_bool(op)
    return _inverted(argument(op, "self", "bool")).operand


def _inverted(x: FormulaValue) -> FormulaValue:
    return x.unary(OperationCode.LOGICAL_NOT)


def _require_bool(op: Lowering) -> None:
    op.require(op.out.dtype == "bool", f"of {op.out.dtype}, NNAPI has bitwise logic of bools only")


@lowers(aten.isnan.default)
def isnan(op: Lowering) -> OperandId:
    """Lowers ``self != self``."""
    x = argument(op, "self", device_dtype(op, op.type("self").dtype))
    return x.is_(OperationCode.NOT_EQUAL, x).operand


@lowers(aten.isinf.default)
def isinf(op: Lowering) -> OperandId:
    """Lowers ``|self| == inf``."""
    return absolute(argument(op, "self", "float32")).is_(OperationCode.EQUAL, math.inf).operand


@lowers(aten.isfinite.default)
def isfinite(op: Lowering) -> OperandId:
    """Lowers ``|self| < inf``, which is false for NaN too."""
    return (absolute(argument(op, "self", "float32")) < math.inf).operand


@formula(aten.nan_to_num.default)
def nan_to_num(x: FormulaValue) -> FormulaValue:
    """Replaces NaN by ``nan``, infinities by ``posinf`` and ``neginf`` (the largest numbers where
    they are None), by a SELECT each."""
    limit = float(np.finfo(x.dtype).max)
    posinf, neginf = (
        default if x.op.arg(name) is None else float(x.op.arg(name))
        for name, default in (("posinf", limit), ("neginf", -limit))
    )
    result = x.is_(OperationCode.NOT_EQUAL, x).select(float(x.op.arg("nan") or 0), x, x.dtype)
    result = x.is_(OperationCode.EQUAL, math.inf).select(posinf, result, x.dtype)
    return x.is_(OperationCode.EQUAL, -math.inf).select(neginf, result, x.dtype)


@lowers(aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar)
def where(op: Lowering) -> OperandId:
    """Lowers ``self if condition else other``. SELECT takes equal shapes, so smaller ones are
    repeated first. For bools it is ``(c and self) or (not c and other)``."""
    dtype = result_dtype(op)
    condition = _condition(op, "condition")
    then, other = argument(op, "self", dtype), argument(op, "other", dtype)
    if dtype == "bool":
        return _choice_of_bools(condition, then, other).operand
    return condition.select(then, other, dtype).operand


@lowers(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(op: Lowering) -> OperandId:
    """Lowers ``value if mask else self``."""
    dtype = result_dtype(op)
    mask = _condition(op, "mask")
    value, x = argument(op, "value", dtype), argument(op, "self", dtype)
    if dtype == "bool":
        return _choice_of_bools(mask, value, x).operand
    return mask.select(value, x, dtype).operand


def _condition(op: Lowering, name: str) -> FormulaValue:
    dtype = type_of(op.arg(name)).dtype
    op.require(dtype == "bool", f"{name} is {dtype}, bool is required")
    return argument(op, name, "bool")


def _choice_of_bools(
    condition: FormulaValue, then: FormulaValue, other: FormulaValue
) -> FormulaValue:
    both = OperationCode.LOGICAL_AND
    other_side = _inverted(condition).is_(both, other)
    return condition.is_(both, then).is_(OperationCode.LOGICAL_OR, other_side)
