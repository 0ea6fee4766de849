"""Lower arithmetic of two tensors, or of a tensor and a number.

Element types are PyTorch's: both operands are cast to the result's type first, and integers stay
integers (NNAPI adds and multiplies them from level 4 on). A device stores int64 as int32, so sums
and products beyond 32 bits wrap. NNAPI does not define MAXIMUM and MINIMUM of a NaN; PyTorch gives
NaN, but fmax and fmin the other number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nnapi_prof.convert import OperandId
from nnapi_prof.convert.ops.element_types import argument, formula, fuse, result_dtype
from nnapi_prof.convert.ops.formula import (
    FLOATS,
    NONE,
    FormulaValue,
    absolute,
    constant,
    floor,
    number,
    truncated,
)
from nnapi_prof.convert.registry import Lowering, lowers
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten

BINARY = {
    aten.maximum.default: (OperationCode.MAXIMUM, OperationCode.LOGICAL_OR),
    aten.minimum.default: (OperationCode.MINIMUM, OperationCode.LOGICAL_AND),
    aten.fmax.default: (OperationCode.MAXIMUM, OperationCode.LOGICAL_OR),
    aten.fmin.default: (OperationCode.MINIMUM, OperationCode.LOGICAL_AND),
}
"""Operator of two tensors without a fuse code -> the operation for numbers, and for bools."""

MAX_FACTOR = 2**16
"""Largest constant that int64 may be multiplied by."""
MOST_FACTORS = 8
"""Largest whole exponent that becomes products, which are defined for negative bases too."""


def _pair(op: Lowering) -> tuple[FormulaValue, FormulaValue]:
    return argument(op, "self"), argument(op, "other")


@formula(*BINARY, of=("self", "other"))
def binary(x: FormulaValue, y: FormulaValue) -> FormulaValue:
    """Lowers ``f(x, y) -> z`` with PyTorch's broadcasting."""
    of_numbers, of_bools = BINARY[x.op.target]
    return x.is_(of_bools, y) if x.dtype == "bool" else x.binary(of_numbers, y)


@lowers(aten.add.Tensor)
def add(op: Lowering) -> OperandId:
    """Lowers ``self + other``; for bools ``self or other``."""
    _require_no_alpha(op)
    x, y = _pair(op)
    if x.dtype == "bool":
        return x.is_(OperationCode.LOGICAL_OR, y).operand
    return x.plus(y, fuse(op)).operand


@formula(aten.mul.Tensor, of=("self", "other"))
def mul(x: FormulaValue, y: FormulaValue) -> FormulaValue:
    """Lowers ``self * other``; for bools ``self and other``."""
    if x.dtype == "bool":
        return x.is_(OperationCode.LOGICAL_AND, y)
    _require_small(x.op, x, y)
    return x.times(y, fuse(x.op))


def _require_small(op: Lowering, *factors: FormulaValue) -> None:
    """Refuses large constant factors of int64, as in hashes: products soon exceed int32."""
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
    """Lowers ``self - other``; below level 2, which has SUB, ``self + -1 * other``."""
    _require_no_alpha(op)
    x, y = _pair(op)
    return x.minus(y, fuse(op)).operand


@lowers(aten.div.Tensor)
def div(op: Lowering) -> OperandId:
    """Lowers ``self / other``; integers become floats first, as in PyTorch. Below level 2, which
    has DIV, it is a product with the reciprocal of a constant ``other``.

    NNAPI's quotients are finite on phones, so the quotients by a constant 0 are chosen by SELECT.
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
        "divides by a constant whose reciprocal is not a normal number, DIV of level 2 is needed",
    )
    return op.emit(OperationCode.MUL, [x.operand, inverse], [op.fuse()])


def _div_by_zeros(op: Lowering, x: FormulaValue, y: FormulaValue) -> FormulaValue:
    """Returns ``x / y`` where the constant ``y`` has zeros."""
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


@formula(aten.square.default)
def square(x: FormulaValue) -> FormulaValue:
    """Lowers ``self * self``."""
    return x.times(x, fuse(x.op))


@lowers(aten.pow.Tensor_Scalar)
def pow_scalar(op: Lowering) -> OperandId:
    """Lowers ``self ** exponent``.

    Whole exponents up to 8 are products, with at most as many roundings as factors; they are
    defined for negative bases. 0.5 and -0.5 are SQRT and RSQRT, all others POW.
    """
    x, exponent = argument(op, "self"), float(op.arg("exponent"))
    if exponent.is_integer() and 0 < abs(exponent) <= MOST_FACTORS:
        power = _integer_power(x, int(abs(exponent)), NONE if exponent < 0 else fuse(op))
        return power.operand if exponent > 0 else (1 / power).operand
    if abs(exponent) == 0.5:
        return x.unary(OperationCode.SQRT if exponent > 0 else OperationCode.RSQRT).operand
    return x.binary(OperationCode.POW, exponent).operand


def _integer_power(x: FormulaValue, factors: int, fused: int) -> FormulaValue:
    """Returns ``x`` to a power, by squaring; ``fused`` is the fuse code of the last product."""
    if factors == 1:
        return x
    half = _integer_power(x, factors // 2, NONE)
    if factors % 2 == 0:
        return half.times(half, fused)
    return (half * half).times(x, fused)


@lowers(aten.pow.Tensor_Tensor)
def pow_tensor(op: Lowering) -> OperandId:
    """Lowers ``self ** exponent`` of two tensors. NNAPI does not specify negative bases. With whole
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


def _weighed(op: Lowering, x: FormulaValue) -> FormulaValue:
    value = op.arg("value")
    return x if value == 1 else x * value


@formula(aten.lerp.Scalar, aten.lerp.Tensor)
def lerp(x: FormulaValue) -> FormulaValue:
    """Lowers ``self + weight * (end - self)``."""
    step = (argument(x.op, "end") - x) * argument(x.op, "weight")
    return x.plus(step, fuse(x.op))


def _require_no_alpha(op: Lowering) -> None:
    op.require(op.arg("alpha") == 1, f"alpha={op.arg('alpha')}, only 1 is lowered")


# Division that rounds, and its remainders.


HALF_BITS = 4096
"""2 ** 12: the product of two float32 numbers of 12 bits each is exact."""


@lowers(aten.div.Tensor_mode, aten.div.Scalar_mode)
def div_mode(op: Lowering) -> OperandId:
    """Lowers ``div(self, other, rounding_mode)``: None, "floor" or "trunc"."""
    mode = op.arg("rounding_mode")
    x, y = _operands(op)
    if mode == "floor":
        return _floor_divided(x, y).operand
    if mode is None:
        return x.over(y).operand
    if x.dtype == "int32":
        return _truncated_integers(x, y).operand
    return truncated(_over(x, y)).operand


@lowers(aten.floor_divide.default, aten.floor_divide.Scalar)
def floor_divide(op: Lowering) -> OperandId:
    """Lowers ``floor(self / other)``.

    It is not the floor of the rounded quotient, which may be one too large (1.0 // 0.1 is 9): see
    :class:`_Division`. Integers use NNAPI's DIV, which floors, from level 4 on.
    """
    return _floor_divided(*_operands(op)).operand


def _floor_divided(x: FormulaValue, y: FormulaValue) -> FormulaValue:
    if x.dtype == "int32":
        return x.over(y)
    if _is_power_of_two(y):
        return floor(_over(x, y))
    parts = _division(x, y)
    up = (parts.rest > 0).select(parts.whole + 1, parts.whole, x.dtype)
    return parts.differ.select(-up, parts.whole, x.dtype)


@lowers(aten.remainder.Scalar, aten.remainder.Tensor)
def remainder(op: Lowering) -> OperandId:
    """Lowers ``self - other * floor(self / other)``, with the sign of ``other``."""
    x, y = _operands(op)
    if x.dtype == "int32":
        return (x - x.over(y) * y).operand
    if _is_power_of_two(y):
        return (x - floor(_over(x, y)) * y).operand
    parts = _division(x, y)
    # |rest| is counted from the other side where the signs differ
    complement = parts.differ.select(parts.size - parts.rest, parts.rest, x.dtype)
    rest = (parts.rest > 0).select(complement, parts.rest, x.dtype)
    return _with_sign_of(y, rest).operand


@lowers(aten.fmod.Scalar, aten.fmod.Tensor)
def fmod(op: Lowering) -> OperandId:
    """Lowers ``self - other * trunc(self / other)``, with the sign of ``self``."""
    x, y = _operands(op)
    if x.dtype == "int32":
        return (x - _truncated_integers(x, y) * y).operand
    if _is_power_of_two(y):
        return (x - truncated(_over(x, y)) * y).operand
    return _with_sign_of(x, _division(x, y).rest).operand


def _operands(op: Lowering) -> tuple[FormulaValue, FormulaValue]:
    dtype = result_dtype(op)
    x, y = argument(op, "self", dtype), argument(op, "other", dtype)
    if y.array is not None and dtype == "int32":
        op.require(bool(np.all(y.array != 0)), "divides an integer by 0")
    return x, y


def _is_power_of_two(y: FormulaValue) -> bool:
    """Returns whether division by ``y`` and products with it are exact."""
    if y.array is None or y.dtype not in FLOATS:
        return False
    mantissas, exponents = np.frexp(y.array.astype(np.float64))
    return bool(np.all(np.abs(mantissas) == 0.5) and np.all(np.abs(exponents) < 100))


def _over(x: FormulaValue, y: FormulaValue) -> FormulaValue:
    """Returns ``x / y``. For a power of two it is a product, which every level has."""
    if _is_power_of_two(y):
        assert y.array is not None
        return x * constant(x.op, np.reciprocal(y.array))
    return x.over(y)


def _truncated_integers(x: FormulaValue, y: FormulaValue) -> FormulaValue:
    """Returns the integer quotient of sizes, with the sign restored."""
    size = absolute(x).over(absolute(y))
    return _differ(x, y).select(-size, size, x.dtype)


def _signs(y: FormulaValue) -> int:
    """Returns 1 or -1 where ``y`` is a constant of one sign throughout, else 0."""
    if y.array is None:
        return 0
    return 1 if np.all(y.array > 0) else -1 if np.all(y.array < 0) else 0


def _differ(x: FormulaValue, y: FormulaValue) -> FormulaValue:
    """Returns whether the signs of x and y differ, where x is not 0."""
    sign = _signs(y)
    if sign:
        return x < 0 if sign > 0 else x > 0
    return (x < 0).is_(OperationCode.NOT_EQUAL, y < 0)


def _with_sign_of(model: FormulaValue, size: FormulaValue) -> FormulaValue:
    sign = _signs(model)
    if sign:
        return size if sign > 0 else -size
    return (model < 0).select(-size, size, size.dtype)


@dataclass(frozen=True, slots=True)
class _Division:
    """Exact division ``|x| = whole * |y| + rest`` with an integer and 0 <= rest < |y|, as C's fmod.

    Below 2 ** 24 the rounded quotient is off by at most one, and then too large. To detect this,
    its product with y is subtracted from x in four parts of 12 by 12 bits, none of which rounds.
    From 2 ** 24 on float32 numbers are further apart than y, and the rest is meaningless. All this
    holds in float32 only: with relaxed precision, the rest may be off by y near a multiple of y.
    """

    whole: FormulaValue
    rest: FormulaValue
    size: FormulaValue
    """|y|"""
    differ: FormulaValue
    """Whether the signs of x and y differ."""


def _division(x: FormulaValue, y: FormulaValue) -> _Division:
    op = x.op
    op.require(
        x.dtype == "float32",
        f"divides {x.dtype} exactly by what is not a power of two, float32 is required",
    )
    op.require_level(3, "an exact division (ABS, LESS, SELECT) by other than a power of two")
    size = absolute(y) if y.array is None else constant(op, np.abs(y.array))
    high, low = _halves(size)
    dividend = absolute(x)
    guess = floor(dividend / size)
    top = floor(guess * (1 / HALF_BITS)) * HALF_BITS
    bottom = guess - top
    rest = dividend - top * high - bottom * high
    if low is not None:
        rest = rest - top * low - bottom * low
    over = rest < 0
    return _Division(
        over.select(guess - 1, guess, x.dtype),
        over.select(rest + size, rest, x.dtype),
        size,
        _differ(x, y),
    )


def _halves(size: FormulaValue) -> tuple[FormulaValue, FormulaValue | None]:
    """Returns a float32 value as a sum of two with 12 significant bits each (Veltkamp's splitting);
    the second is None where it is 0."""
    op = size.op
    if size.array is None:
        wide = size * (HALF_BITS + 1)
        high = wide - (wide - size)
        return high, size - high
    bits = np.ascontiguousarray(size.array, np.float32).view(np.uint32)
    high_bits: NDArray[Any] = (bits & np.uint32(0xFFFFF000)).view(np.float32)
    low_bits = size.array - high_bits
    return constant(op, high_bits), constant(op, low_bits) if low_bits.any() else None
