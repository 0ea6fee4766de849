"""Pieces that compositions are made of: arithmetic, reductions and products on operands.

All work on shapes as they lie in memory and give operands; none looks at the node's result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.convert.model import ELEMENT_TYPES, OperandId
from nnapi_prof.convert.registry import Lowering
from nnapi_prof.nnapi.codes import FuseCode, OperationCode

NONE = int(FuseCode.NONE)
LARGEST = float(np.finfo(np.float32).max)
"""The largest finite float32."""

_NUMPY = {code: dtype for dtype, code in ELEMENT_TYPES.items()}


def number(op: Lowering, like: OperandId, value: float) -> NDArray[np.generic]:
    """A constant of one element of the type of ``like``."""
    return np.array([value], _NUMPY[op.operand(like).type])


def _operand(op: Lowering, value: OperandId | float, like: OperandId) -> OperandId:
    return op.constant(number(op, like, value)) if isinstance(value, float) else value


def _binary(op: Lowering, code: OperationCode, a: OperandId, b: OperandId | float) -> OperandId:
    other = _operand(op, b, a)
    dims = np.broadcast_shapes(op.dims(a), op.dims(other))
    return op.emit(code, [a, other], [NONE], dims=dims)


def add(op: Lowering, a: OperandId, b: OperandId | float) -> OperandId:
    """``a + b``, broadcast in memory."""
    return _binary(op, OperationCode.ADD, a, b)


def mul(op: Lowering, a: OperandId, b: OperandId | float) -> OperandId:
    """``a * b``, broadcast in memory."""
    return _binary(op, OperationCode.MUL, a, b)


def sub(op: Lowering, a: OperandId, b: OperandId) -> OperandId:
    """``a - b``, broadcast in memory; below level 2, which has SUB, ``a + -1 * b``."""
    if op.level >= 2:
        return _binary(op, OperationCode.SUB, a, b)
    return add(op, a, mul(op, b, -1.0))


def div(op: Lowering, a: OperandId, b: OperandId) -> OperandId:
    """``a / b``, broadcast in memory; from level 2 on."""
    return _binary(op, OperationCode.DIV, a, b)


def unary(op: Lowering, code: OperationCode, x: OperandId) -> OperandId:
    """An operation of one tensor that keeps its shape."""
    return op.emit(code, [x], dims=op.dims(x))


def limit(op: Lowering, code: OperationCode, x: OperandId, bound: float) -> OperandId:
    """``MAXIMUM`` or ``MINIMUM`` (level 3) of ``x`` and a number."""
    return op.emit(code, [x, number(op, x, bound)], dims=op.dims(x))


def finite(op: Lowering, x: OperandId) -> OperandId:
    """``x`` with infinities brought to +-LARGEST; from level 3 on."""
    x = limit(op, OperationCode.MAXIMUM, x, -LARGEST)
    return limit(op, OperationCode.MINIMUM, x, LARGEST)


def kept_dims(dims: Sequence[int], axes: Sequence[int]) -> list[int]:
    """``dims`` with size 1 at ``axes``."""
    return [1 if axis in axes else size for axis, size in enumerate(dims)]


def reduced(
    op: Lowering, code: OperationCode, x: OperandId, axes: Sequence[int], keep: bool = True
) -> OperandId:
    """``x`` reduced by ``code`` over axes in memory; by default they stay with size 1.

    Android 9's MEAN fails where it is to drop all axes: at level 2 a RESHAPE drops them.
    """
    dims = op.dims(x)
    if op.level == 2 and not keep and len(set(axes)) == len(dims):
        return op.reshape(reduced(op, code, x, axes), [1])
    result = kept_dims(dims, axes) if keep else [n for i, n in enumerate(dims) if i not in axes]
    scalar = int(keep) if code is OperationCode.MEAN else keep
    return op.emit(code, [x, np.array(sorted(axes), np.int32)], [scalar], dims=result or [1])


def summed(op: Lowering, x: OperandId, axes: Sequence[int], factor: float = 1.0) -> OperandId:
    """``factor * sum(x)`` over axes in memory, which stay with size 1.

    REDUCE_SUM came with level 3, MEAN with level 2. At level 1, FULLY_CONNECTED with one row of
    ``factor`` sums the last axes.
    """
    dims = op.dims(x)
    count = math.prod(dims[axis] for axis in axes)
    if op.level == 1:
        real = [axis for axis, size in enumerate(dims) if size > 1]
        last = [axis for axis in real if axis in axes]
        op.require(
            last == real[len(real) - len(last) :],
            "summing other than the last axes needs level 2 (API 28), the device has "
            "level 1 (API 27)",
        )
        rows = op.reshape(x, (math.prod(dims) // count, count))
        weights = np.full((1, count), factor, np.float32)
        rows = op.emit(
            OperationCode.FULLY_CONNECTED,
            [rows, weights, np.zeros(1, np.float32)],
            [NONE],
            dims=(op.dims(rows)[0], 1),
        )
        return op.reshape(rows, kept_dims(dims, axes))
    if op.level == 2 or math.isclose(factor * count, 1.0):
        result, factor = reduced(op, OperationCode.MEAN, x, axes), factor * count
    else:
        result = reduced(op, OperationCode.REDUCE_SUM, x, axes)
    return result if math.isclose(factor, 1.0) else mul(op, result, factor)


def averaged(op: Lowering, x: OperandId, axes: Sequence[int]) -> OperandId:
    """The mean of ``x`` over axes in memory, which stay with size 1; at every level."""
    return summed(op, x, axes, 1 / math.prod(op.dims(x)[axis] for axis in axes))
