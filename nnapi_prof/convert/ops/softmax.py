"""Softmax and its logarithm."""

from __future__ import annotations

import math

import torch

from nnapi_prof.convert.model import OperandId
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
    dims = op.dims(x)
    rank = len(dims)
    if op.level >= 3:
        return op.emit(OperationCode.SOFTMAX, [x], [BETA] if axis == rank - 1 else [BETA, axis])

    to_end = [i for i in range(rank) if i != axis] + [axis]
    x = op.transpose(x, to_end)
    moved = op.dims(x)
    if rank not in (2, 4):
        x = op.reshape(x, (math.prod(moved[:-1]), moved[-1]))
    x = op.emit(OperationCode.SOFTMAX, [x], [BETA], dims=op.dims(x))
    x = op.reshape(x, moved)
    return op.transpose(x, [to_end.index(i) for i in range(rank)])


@lowers(aten.log_softmax.int)
def log_softmax(op: Lowering) -> OperandId:
    """Lowers ``log(softmax(x, dim))``."""
    x, axis = _operand_and_axis(op)
    return op.emit(OperationCode.LOG_SOFTMAX, [x], [BETA, axis])


def _operand_and_axis(op: Lowering) -> tuple[OperandId, int]:
    order = op.out.dim_order
    return op.tensor("self", order), memory_axis(order, op.arg("dim") % len(op.out.shape))
