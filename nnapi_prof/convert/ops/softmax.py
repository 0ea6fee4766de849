"""Softmax and its logarithm."""

from __future__ import annotations

import math

import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.pieces import (
    LARGEST,
    div,
    limit,
    reduced,
    sub,
    summed,
    unary,
)
from nnapi_prof.convert.registry import Lowering, lowers, memory_axis
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten

BETA = 1.0
"""NNAPI computes softmax(beta * x)."""


@lowers(aten.softmax.int)
def softmax(op: Lowering) -> OperandId:
    """Lowers ``softmax(x, dim)``.

    An axis is an argument from level 3 on. Before, the last one is meant and the rank is 2 or 4:
    the axis is brought to the end, and all others are flattened into one.
    """
    x, axis = _operand_and_axis(op)
    return softmax_of(op, x, axis)


@lowers(aten._safe_softmax.default)
def safe_softmax(op: Lowering) -> OperandId:
    """Lowers the softmax of attention: zeros where a row is minus infinity throughout."""
    x, axis = _operand_and_axis(op)
    op.require(op.arg("dtype") is None, f"dtype={op.arg('dtype')}, that of the input is wanted")
    return masked_softmax(op, x, axis)


@lowers(aten.log_softmax.int)
def log_softmax(op: Lowering) -> OperandId:
    """Lowers ``log(softmax(x, dim))``."""
    x, axis = _operand_and_axis(op)
    return op.emit(OperationCode.LOG_SOFTMAX, [x], [BETA, axis])


def softmax_of(op: Lowering, x: OperandId, axis: int) -> OperandId:
    """The softmax of an operand along an axis in memory."""
    dims = op.dims(x)
    rank = len(dims)
    if op.level >= 3:
        scalars = [BETA] if axis == rank - 1 else [BETA, axis]
        return op.emit(OperationCode.SOFTMAX, [x], scalars, dims=dims)

    to_end = [i for i in range(rank) if i != axis] + [axis]
    x = op.transpose(x, to_end)
    moved = op.dims(x)
    if rank not in (2, 4):
        x = op.reshape(x, (math.prod(moved[:-1]), moved[-1]))
    x = op.emit(OperationCode.SOFTMAX, [x], [BETA], dims=op.dims(x))
    x = op.reshape(x, moved)
    return op.transpose(x, [to_end.index(i) for i in range(rank)])


def masked_softmax(op: Lowering, x: OperandId, axis: int = -1) -> OperandId:
    """The softmax of an operand along an axis in memory; zeros where all is minus infinity.

    ``exp(x - max) / sum``, whose sum is at least 1 but in a row of minus infinities, where it is
    0: dividing by 1 then gives zeros. From level 3 on.
    """
    axes = [axis % len(op.dims(x))]
    highest = reduced(op, OperationCode.REDUCE_MAX, x, axes)
    highest = limit(op, OperationCode.MAXIMUM, highest, -LARGEST)
    powers = unary(op, OperationCode.EXP, sub(op, x, highest))
    total = limit(op, OperationCode.MAXIMUM, summed(op, powers, axes), 1.0)
    return div(op, powers, total)


def _operand_and_axis(op: Lowering) -> tuple[OperandId, int]:
    known = op.type("self").dtype
    op.require(known == "float32", f"a softmax of {known}, float32 is wanted")
    order = op.out.dim_order
    rank = max(len(op.out.shape), 1)
    return op.tensor("self", order), memory_axis(order, op.arg("dim") % rank)
