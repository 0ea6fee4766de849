"""Sums that run along an axis, and triangles."""

from __future__ import annotations

import math

import numpy as np
import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.formula import FLOATS, NONE, Value, constant
from nnapi_prof.convert.ops.operands import argument, device_dtype, result_dtype
from nnapi_prof.convert.registry import Lowering, lowers, memory_axis
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten

LONGEST = 2048
"""cumsum multiplies by a square of ones: 16 MiB of float32 here."""


@lowers(aten.cumsum.default)
def cumsum(op: Lowering) -> OperandId:
    """Lowers ``cumsum(x[..., n, ...], dim)`` as a product with a triangle of ones [n, n]: the axis
    is moved to the end, FULLY_CONNECTED sums, and the axis goes back.

    Bools are counted as floats, which is exact. FULLY_CONNECTED takes no integers: from level 4 on
    they come in parts as floats (see carry.py), sums of which are exact up to LONGEST.
    """
    device_dtype(op, op.type("self").dtype)
    order = op.out.dim_order
    x = Value(op, op.tensor("self", order))
    if x.dtype == "bool":
        x = x.cast("float32")
    elif result_dtype(op) in FLOATS:
        x = x.cast(result_dtype(op))
    op.require(
        x.dtype in FLOATS,
        f"sums {op.type('self').dtype} before level 4, NNAPI's FULLY_CONNECTED takes floats",
    )
    rank = len(x.dims)
    axis = memory_axis(order, op.arg("dim") % max(1, len(op.out.shape)))
    n = x.dims[axis]
    op.require(n <= LONGEST, f"sums along {n} elements, up to {LONGEST} are lowered")
    to_end = [i for i in range(rank) if i != axis] + [axis]
    moved = op.transpose(x.operand, to_end)
    dims = op.dims(moved)
    rows = (math.prod(dims) // n, n)
    dtype = np.dtype(x.dtype)
    sums = op.emit(
        OperationCode.FULLY_CONNECTED,
        [op.reshape(moved, rows), np.tril(np.ones((n, n), dtype)), np.zeros(n, dtype)],
        [int(NONE)],
        dims=rows,
    )
    back = op.transpose(op.reshape(sums, dims), [to_end.index(i) for i in range(rank)])
    return Value(op, back).cast(result_dtype(op)).operand


@lowers(aten.tril.default, aten.triu.default)
def triangle(op: Lowering) -> OperandId:
    """Lowers ``tril(x[..., h, w], diagonal)`` and ``triu``: x where a constant mask holds, else
    0."""
    h, w = op.out.shape[-2:]
    cut = np.tril if op.target is aten.tril.default else np.triu
    mask = constant(op, cut(np.ones((h, w), bool), op.arg("diagonal")))
    x = argument(op, "self")
    op.require(x.dims == op.out.shape, f"of {op.out}, a contiguous tensor is wanted")
    if x.dtype == "bool":
        return x.is_(OperationCode.LOGICAL_AND, mask).operand
    return mask.select(x, 0, x.dtype).operand
