"""Arithmetic of two tensors, or of a tensor and a number.

Element types are PyTorch's: both operands become the result's before the operation, integers stay
integers (NNAPI adds and multiplies them from level 4 on). A device holds int64 as int32, so sums
and products beyond 32 bits wrap there. MAXIMUM and MINIMUM of a NaN are not defined by NNAPI;
PyTorch gives NaN, but fmax and fmin the
other number.
"""

from __future__ import annotations

import numpy as np
import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.formula import NONE, Value, constant, number
from nnapi_prof.convert.ops.operands import argument, fuse, result_dtype
from nnapi_prof.convert.registry import Lowering, lowers
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten

BINARY = {
    aten.maximum.default: (OperationCode.MAXIMUM, OperationCode.LOGICAL_OR),
    aten.minimum.default: (OperationCode.MINIMUM, OperationCode.LOGICAL_AND),
    aten.fmax.default: (OperationCode.MAXIMUM, OperationCode.LOGICAL_OR),
    aten.fmin.default: (OperationCode.MINIMUM, OperationCode.LOGICAL_AND),
}
"""Operators of two tensors without a fuse code: of numbers, and of bools."""

MAX_FACTOR = 2**16
"""The largest constant that int64 is multiplied by."""
MOST_FACTORS = 8
"""Whole exponents up to here are products, which are defined for negative bases too."""


def _pair(op: Lowering) -> tuple[Value, Value]:
    return argument(op, "self"), argument(op, "other")


@lowers(*BINARY)
def binary(op: Lowering) -> OperandId:
    """Lowers ``f(x, y) -> z`` with PyTorch's broadcasting."""
    x, y = _pair(op)
    of_numbers, of_bools = BINARY[op.target]
    return (x.is_(of_bools, y) if x.dtype == "bool" else x.binary(of_numbers, y)).operand


@lowers(aten.add.Tensor)
def add(op: Lowering) -> OperandId:
    """Lowers ``self + other``; of bools it is ``self or other``."""
    _require_no_alpha(op)
    x, y = _pair(op)
    if x.dtype == "bool":
        return x.is_(OperationCode.LOGICAL_OR, y).operand
    return x.plus(y, fuse(op)).operand


@lowers(aten.mul.Tensor)
def mul(op: Lowering) -> OperandId:
    """Lowers ``self * other``; of bools it is ``self and other``."""
    x, y = _pair(op)
    if x.dtype == "bool":
        return x.is_(OperationCode.LOGICAL_AND, y).operand
    _require_small(op, x, y)
    return x.times(y, fuse(op)).operand


def _require_small(op: Lowering, *factors: Value) -> None:
    """Refuses int64 multiplied by a constant that takes int32, which a device has, beyond its range
    soon: hashes and the like."""
    for value in factors:
        if op.out.dtype == "int64" and value.array is not None:
            largest = int(np.abs(value.array.astype(np.int64)).max(initial=0))
            op.require(
                largest <= MAX_FACTOR,
                f"multiplies int64 by {largest}: the products would not fit int32, which NNAPI "
                f"has (factors up to {MAX_FACTOR} are taken)",
            )


@lowers(aten.sub.Tensor)
def sub(op: Lowering) -> OperandId:
    """Lowers ``self - other``; below level 2, which has SUB, as ``self + -1 * other``."""
    _require_no_alpha(op)
    x, y = _pair(op)
    return x.minus(y, fuse(op)).operand


@lowers(aten.div.Tensor)
def div(op: Lowering) -> OperandId:
    """Lowers ``self / other``, of integers too, which PyTorch makes floats first; below level 2,
    which has DIV, as a product with the reciprocal of a constant ``other``.

    NNAPI's quotients are finite on phones: what a constant of 0 makes of ``self`` is chosen.
    """
    x, y = _pair(op)
    if y.array is not None and not y.array.all():
        return _div_by_zeros(op, x, y).operand
    if op.level >= 2:
        return x.over(y, fuse(op)).operand
    if y.array is None:
        op.refuse(
            "dividing by a computed tensor needs DIV of level 2 (API 28), the device has "
            "level 1 (API 27)"
        )
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.reciprocal(y.array)
    sizes = np.abs(inverse)
    op.require(
        bool(np.all((sizes >= np.finfo(inverse.dtype).tiny) & np.isfinite(sizes))),
        "divides by a constant whose reciprocal is no normal number, DIV of level 2 is needed",
    )
    return op.emit(OperationCode.MUL, [x.operand, inverse], [op.fuse()])


def _div_by_zeros(op: Lowering, x: Value, y: Value) -> Value:
    """``x / y`` where the constant ``y`` has zeros."""
    op.require_level(3, "dividing by a constant with zeros (SELECT of infinities)")
    assert y.array is not None
    zeros = y.array == 0
    infinite = np.copysign(np.full_like(y.array, np.inf), y.array)
    above, below = constant(op, infinite), constant(op, -infinite)
    quotient = (x > 0).select(above, (x < 0).select(below, np.nan, x.dtype), x.dtype)
    if zeros.all():
        return quotient
    others = constant(op, np.where(zeros, np.ones_like(y.array), y.array))
    return constant(op, zeros).select(quotient, x / others, x.dtype)


@lowers(aten.reciprocal.default)
def reciprocal(op: Lowering) -> OperandId:
    """Lowers ``1 / self``."""
    return number(op, 1, result_dtype(op)).over(argument(op, "self"), op.fuse()).operand


@lowers(aten.square.default)
def square(op: Lowering) -> OperandId:
    """Lowers ``self * self``."""
    x = argument(op, "self")
    return x.times(x, fuse(op)).operand


@lowers(aten.pow.Tensor_Scalar)
def pow_scalar(op: Lowering) -> OperandId:
    """Lowers ``self ** exponent``.

    Whole exponents up to 8 are products, as many roundings as factors at most, and defined for
    negative bases; 0.5 and -0.5 are SQRT and RSQRT, all others POW.
    """
    x, exponent = argument(op, "self"), float(op.arg("exponent"))
    if exponent.is_integer() and 0 < abs(exponent) <= MOST_FACTORS:
        power = _product(x, int(abs(exponent)), NONE if exponent < 0 else fuse(op))
        return power.operand if exponent > 0 else (1 / power).operand
    if abs(exponent) == 0.5:
        return x.unary(OperationCode.SQRT if exponent > 0 else OperationCode.RSQRT).operand
    return x.binary(OperationCode.POW, exponent).operand


def _product(x: Value, factors: int, fused: int) -> Value:
    """``x`` to a power by squaring; ``fused`` goes to the last product."""
    if factors == 1:
        return x
    half = _product(x, factors // 2, NONE)
    if factors % 2 == 0:
        return half.times(half, fused)
    return (half * half).times(x, fused)


@lowers(aten.pow.Tensor_Tensor)
def pow_tensor(op: Lowering) -> OperandId:
    """Lowers ``self ** exponent``, both tensors. NNAPI says nothing of negative bases: with whole
    exponents they are well defined in PyTorch, and in Android's own code."""
    return argument(op, "self").binary(OperationCode.POW, argument(op, "exponent")).operand


@lowers(aten.pow.Scalar)
def pow_of_number(op: Lowering) -> OperandId:
    """Lowers ``number ** exponent``."""
    return argument(op, "self").binary(OperationCode.POW, argument(op, "exponent")).operand


@lowers(aten.addcmul.default)
def addcmul(op: Lowering) -> OperandId:
    """Lowers ``self + value * tensor1 * tensor2``."""
    product = argument(op, "tensor1") * argument(op, "tensor2")
    return argument(op, "self").plus(_weighed(op, product), fuse(op)).operand


@lowers(aten.addcdiv.default)
def addcdiv(op: Lowering) -> OperandId:
    """Lowers ``self + value * tensor1 / tensor2``."""
    quotient = argument(op, "tensor1") / argument(op, "tensor2")
    return argument(op, "self").plus(_weighed(op, quotient), fuse(op)).operand


def _weighed(op: Lowering, x: Value) -> Value:
    value = op.arg("value")
    return x if value == 1 else x * value


@lowers(aten.lerp.Scalar, aten.lerp.Tensor)
def lerp(op: Lowering) -> OperandId:
    """Lowers ``self + weight * (end - self)``."""
    x = argument(op, "self")
    step = (argument(op, "end") - x) * argument(op, "weight")
    return x.plus(step, fuse(op)).operand


def _require_no_alpha(op: Lowering) -> None:
    op.require(op.arg("alpha") == 1, f"alpha={op.arg('alpha')}, only 1 is lowered")
