"""Division that rounds, and what it leaves over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.formula import FLOATS, Value, absolute, constant, floor, truncated
from nnapi_prof.convert.ops.operands import argument, result_dtype
from nnapi_prof.convert.registry import Lowering, lowers
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten

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

    Not of the rounded quotient, which may be one too large (1.0 // 0.1 is 9): see
    :class:`_Division`. Integers are divided so by NNAPI's DIV, from level 4 on.
    """
    return _floor_divided(*_operands(op)).operand


def _floor_divided(x: Value, y: Value) -> Value:
    if x.dtype == "int32":
        return x.over(y)
    if _is_power_of_two(y):
        return floor(_over(x, y))
    parts = _division(x, y)
    up = (parts.rest > 0).select(parts.whole + 1, parts.whole, x.dtype)
    return parts.differ.select(-up, parts.whole, x.dtype)


@lowers(aten.remainder.Scalar, aten.remainder.Tensor)
def remainder(op: Lowering) -> OperandId:
    """Lowers ``self - other * floor(self / other)``, of the sign of ``other``."""
    x, y = _operands(op)
    if x.dtype == "int32":
        return (x - x.over(y) * y).operand
    if _is_power_of_two(y):
        return (x - floor(_over(x, y)) * y).operand
    parts = _division(x, y)
    # |rest| counted from the other side where the signs differ
    turned = parts.differ.select(parts.size - parts.rest, parts.rest, x.dtype)
    rest = (parts.rest > 0).select(turned, parts.rest, x.dtype)
    return _with_sign_of(y, rest).operand


@lowers(aten.fmod.Scalar, aten.fmod.Tensor)
def fmod(op: Lowering) -> OperandId:
    """Lowers ``self - other * trunc(self / other)``, of the sign of ``self``."""
    x, y = _operands(op)
    if x.dtype == "int32":
        return (x - _truncated_integers(x, y) * y).operand
    if _is_power_of_two(y):
        return (x - truncated(_over(x, y)) * y).operand
    return _with_sign_of(x, _division(x, y).rest).operand


def _operands(op: Lowering) -> tuple[Value, Value]:
    dtype = result_dtype(op)
    x, y = argument(op, "self", dtype), argument(op, "other", dtype)
    if y.array is not None and dtype == "int32":
        op.require(bool(np.all(y.array != 0)), "divides an integer by 0")
    return x, y


def _is_power_of_two(y: Value) -> bool:
    """Whether division by ``y`` and products with it round nothing."""
    if y.array is None or y.dtype not in FLOATS:
        return False
    mantissas, exponents = np.frexp(y.array.astype(np.float64))
    return bool(np.all(np.abs(mantissas) == 0.5) and np.all(np.abs(exponents) < 100))


def _over(x: Value, y: Value) -> Value:
    """``x / y``; by a power of two it is a product, which every level has."""
    if _is_power_of_two(y):
        assert y.array is not None
        return x * constant(x.op, np.reciprocal(y.array))
    return x.over(y)


def _truncated_integers(x: Value, y: Value) -> Value:
    """Integers: the quotient of sizes, with the sign put back."""
    size = absolute(x).over(absolute(y))
    return _differ(x, y).select(-size, size, x.dtype)


def _signs(y: Value) -> int:
    """1 or -1 where ``y`` is a constant of one sign throughout, else 0."""
    if y.array is None:
        return 0
    return 1 if np.all(y.array > 0) else -1 if np.all(y.array < 0) else 0


def _differ(x: Value, y: Value) -> Value:
    """Whether the signs of x and y differ, where x is not 0."""
    known = _signs(y)
    if known:
        return x < 0 if known > 0 else x > 0
    return (x < 0).is_(OperationCode.NOT_EQUAL, y < 0)


def _with_sign_of(model: Value, size: Value) -> Value:
    known = _signs(model)
    if known:
        return size if known > 0 else -size
    return (model < 0).select(-size, size, size.dtype)


@dataclass(frozen=True, slots=True)
class _Division:
    """``|x| = whole * |y| + rest`` exactly, with a whole number and 0 <= rest < |y|, as C's fmod.

    The rounded quotient is off by one at most where it is below 2 ** 24, and then too large. To
    see that, its product with y is subtracted from x in four parts of 12 by 12 bits, none of which
    rounds. From 2 ** 24 on float32 numbers are further apart than y, and the rest means nothing.
    All this holds in float32 only: a device that is allowed relaxed precision may be off by y next
    to a multiple of it.
    """

    whole: Value
    rest: Value
    size: Value
    """|y|"""
    differ: Value
    """Whether the signs of x and y differ."""


def _division(x: Value, y: Value) -> _Division:
    op = x.op
    op.require(
        x.dtype == "float32",
        f"divides {x.dtype} exactly by what is no power of two, float32 is wanted",
    )
    op.require_level(3, "an exact division (ABS, LESS, SELECT) by what is no constant power of two")
    size = absolute(y) if y.array is None else constant(op, np.abs(y.array))
    high, low = _halves(size)
    left = absolute(x)
    guess = floor(left / size)
    top = floor(guess * (1 / HALF_BITS)) * HALF_BITS
    bottom = guess - top
    rest = left - top * high - bottom * high
    if low is not None:
        rest = rest - top * low - bottom * low
    over = rest < 0
    return _Division(
        over.select(guess - 1, guess, x.dtype),
        over.select(rest + size, rest, x.dtype),
        size,
        _differ(x, y),
    )


def _halves(size: Value) -> tuple[Value, Value | None]:
    """A float32 value as a sum of two that have 12 significant bits each (Veltkamp's splitting);
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
