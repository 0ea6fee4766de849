"""Normalisation layers that could not be folded into a convolution."""

from __future__ import annotations

import numpy as np
import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.registry import Lowering, lowers
from nnapi_prof.graph.types import DimOrder
from nnapi_prof.nnapi.codes import FuseCode, OperationCode

aten = torch.ops.aten


@lowers(aten.batch_norm.default)
def batch_norm(op: Lowering) -> OperandId:
    """Lowers ``batch_norm(x[N, C, ...])`` in eval mode as ``x * scale[C] + shift[C]``."""
    op.require(not op.arg("training"), "training=True, its statistics come from the input")
    mean, variance = op.array("running_mean"), op.array("running_var")
    weight, bias = op.optional_array("weight"), op.optional_array("bias")
    # float64, so that folding the four constants into two rounds once
    scale = 1 / np.sqrt(variance.astype(np.float64) + op.arg("eps"))
    if weight is not None:
        scale = scale * weight
    shift = -mean * scale
    if bias is not None:
        shift = shift + bias

    channels_last = op.out.dim_order is DimOrder.CHANNELS_LAST
    after = 0 if channels_last else len(op.out.shape) - 2
    shape = (mean.size,) + (1,) * after
    x = op.tensor("input", op.out.dim_order)
    x = op.emit(
        OperationCode.MUL, [x, scale.astype(np.float32).reshape(shape)], [int(FuseCode.NONE)]
    )
    return op.emit(OperationCode.ADD, [x, shift.astype(np.float32).reshape(shape)], [op.fuse()])
