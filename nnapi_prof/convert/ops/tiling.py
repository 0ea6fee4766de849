"""The same elements several times: expand, repeat, repeat_interleave."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.slicing import concatenate
from nnapi_prof.convert.ops.take import take
from nnapi_prof.convert.registry import Lowering, logical_axes, lowers, memory_axis
from nnapi_prof.graph.types import DimOrder
from nnapi_prof.nnapi.codes import OperandCode, OperationCode

aten = torch.ops.aten

MAX_COPIES = 64
"""Copies that a CONCATENATION puts side by side where there is no TILE (before level 3)."""


def raised(op: Lowering) -> OperandId:
    """The operand of ``self`` with leading axes of size 1 up to the result's rank, in the result's
    dim order."""
    known, order = op.type("self"), op.out.dim_order
    x = op.tensor("self")
    missing = len(op.out.shape) - len(known.shape)
    if missing <= 0:
        return op.reorder(x, known.shape, known.dim_order, order)
    x = op.reorder(x, known.shape, known.dim_order, DimOrder.CONTIGUOUS)
    filled = (1,) * missing + known.shape
    if op.model.operand(x).type is OperandCode.TENSOR_INT32:  # RESHAPE takes none before level 6
        while len(op.dims(x)) < len(filled):
            x = op.emit(OperationCode.EXPAND_DIMS, [x], [0], dims=(1, *op.dims(x)))
    else:
        x = op.reshape(x, filled)
    return op.reorder(x, filled, DimOrder.CONTIGUOUS, order)


def tile(op: Lowering, x: OperandId, copies: Sequence[int]) -> OperandId:
    """``x`` repeated on every axis in memory: TILE, or before level 3 one CONCATENATION of ``x``
    with itself for each axis."""
    if all(n == 1 for n in copies):
        return x
    op.require(0 not in copies, "no copy gives an empty tensor, NNAPI has none")
    if op.level >= 3:
        dims = [size * n for size, n in zip(op.dims(x), copies, strict=True)]
        return op.emit(OperationCode.TILE, [x, np.array(copies, np.int32)], dims=dims)
    for axis, n in enumerate(copies):
        op.require(
            n <= MAX_COPIES,
            f"{n} copies without TILE (level 3), at most {MAX_COPIES} are concatenated",
        )
        x = concatenate(op, [x] * n, axis)
    return x


@lowers(aten.expand.default)
def expand(op: Lowering) -> OperandId:
    """Lowers ``expand(x, size)``: axes of size 1 repeated, new ones in front."""
    x = raised(op)
    copies = [want // have for want, have in zip(op.out.memory_shape, op.dims(x), strict=True)]
    return tile(op, x, copies)


@lowers(aten.repeat.default)
def repeat(op: Lowering) -> OperandId:
    """Lowers ``repeat(x, repeats)``: every axis as often as it says, new axes in front."""
    repeats = [int(n) for n in op.arg("repeats")]
    axes = logical_axes(op.out.dim_order, len(repeats))
    return tile(op, raised(op), [repeats[axis] for axis in axes])


@lowers(aten.repeat_interleave.self_int)
def repeat_interleave(op: Lowering) -> OperandId:
    """Lowers ``repeat_interleave(x, n, dim)``: each element n times, side by side."""
    order, copies = op.out.dim_order, op.arg("repeats")
    shape = op.type("self").shape
    if op.arg("dim") is None:
        x = op.reshape(op.tensor("self", DimOrder.CONTIGUOUS), (op.type("self").n_elements,))
        return take(op, x, 0, [i // copies for i in range(op.out.n_elements)])
    axis = op.arg("dim") % len(shape)
    indices = [i // copies for i in range(shape[axis] * copies)]
    return take(op, op.tensor("self", order), memory_axis(order, axis), indices)
