"""Reductions."""

from __future__ import annotations

import numpy as np
import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.registry import Lowering, lies_as_it_reads, lowers, memory_axis
from nnapi_prof.graph.types import DimOrder, TensorType
from nnapi_prof.nnapi.codes import FuseCode, OperationCode

aten = torch.ops.aten


@lowers(aten.mean.dim)
def mean(op: Lowering) -> OperandId:
    """Lowers ``mean(x, dim, keepdim)`` over any axes.

    The mean of an image over height and width is a global AVERAGE_POOL_2D below level 2, which
    has no MEAN.
    """
    op.require(op.arg("dtype") is None, f"dtype={op.arg('dtype')}, only the input's is lowered")
    source = op.type("self")
    rank = len(source.shape)
    axes = sorted({axis % rank for axis in op.arg("dim") or range(rank)})
    order = source.dim_order
    x = op.tensor("self")

    kept = TensorType(
        tuple(1 if axis in axes else size for axis, size in enumerate(source.shape)),
        source.dtype,
        order,
    )
    if op.level < 2 and axes == [2, 3] and order is DimOrder.CHANNELS_LAST:
        _, _, h, w = source.shape
        scalars = [0, 0, 0, 0, w, h, w, h, int(FuseCode.NONE)]
        x = op.emit(OperationCode.AVERAGE_POOL_2D, [x], scalars, dims=kept.memory_shape)
    else:
        in_memory = np.array(sorted(memory_axis(order, axis) for axis in axes), np.int32)
        if not op.arg("keepdim") and lies_as_it_reads(kept):
            return op.emit(OperationCode.MEAN, [x, in_memory], [0])
        x = op.emit(OperationCode.MEAN, [x, in_memory], [1], dims=kept.memory_shape)
    return op.relay(x, kept, op.out)
