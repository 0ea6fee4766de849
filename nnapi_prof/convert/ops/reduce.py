"""Reductions."""

from __future__ import annotations

import numpy as np
import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.registry import Lowering, lies_as_it_reads, lowers, memory_axis
from nnapi_prof.graph.types import DimOrder, TensorType
from nnapi_prof.nnapi.codes import FuseCode, OperationCode

aten = torch.ops.aten

REDUCTIONS = {
    aten.sum.dim_IntList: OperationCode.REDUCE_SUM,
    aten.amax.default: OperationCode.REDUCE_MAX,
    aten.amin.default: OperationCode.REDUCE_MIN,
}
"""Reductions that take whether to keep the axes as a BOOL; MEAN alone takes an INT32."""


@lowers(aten.mean.dim)
def mean(op: Lowering) -> OperandId:
    """Lowers ``mean(x, dim, keepdim)`` over any axes.

    The mean of an image over height and width is a global AVERAGE_POOL_2D below level 2, which
    has no MEAN.
    """
    source = op.type("self")
    axes = _axes(op)
    if op.level >= 2 or axes != [2, 3] or source.dim_order is DimOrder.CONTIGUOUS:
        return _reduce(op, OperationCode.MEAN, int(op.arg("keepdim")))
    kept = _kept(op)
    _, _, h, w = source.shape
    scalars = [0, 0, 0, 0, w, h, w, h, int(FuseCode.NONE)]
    pooled = op.emit(
        OperationCode.AVERAGE_POOL_2D, [op.tensor("self")], scalars, dims=kept.memory_shape
    )
    return op.relay(pooled, kept, op.out)


@lowers(*REDUCTIONS)
def reduction(op: Lowering) -> OperandId:
    """Lowers ``sum``, ``amax`` and ``amin`` over any axes."""
    return _reduce(op, REDUCTIONS[op.target], bool(op.arg("keepdim")))


def _axes(op: Lowering) -> list[int]:
    """The logical axes to reduce, ascending; none stated means all."""
    rank = len(op.type("self").shape)
    return sorted({axis % rank for axis in op.arg("dim") or range(rank)})


def _kept(op: Lowering) -> TensorType:
    """What the reduction gives where it keeps its axes with size 1, in the input's dim order."""
    source, axes = op.type("self"), _axes(op)
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(source.shape))
    return TensorType(shape, source.dtype, source.dim_order)


def _reduce(op: Lowering, code: OperationCode, keep: bool | int) -> OperandId:
    """NNAPI drops axes as they lie in memory; where that is not PyTorch's order, the axes stay
    until the result is back in it. ``keep`` has the type that ``code`` wants."""
    kept = _kept(op)
    axes = np.array(sorted(memory_axis(kept.dim_order, axis) for axis in _axes(op)), np.int32)
    x = op.tensor("self")
    if not keep and lies_as_it_reads(kept):
        return op.emit(code, [x, axes], [keep])
    x = op.emit(code, [x, axes], [type(keep)(1)], dims=kept.memory_shape)
    return op.relay(x, kept, op.out)
