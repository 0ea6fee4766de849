"""Linear layers."""

from __future__ import annotations

import math

import numpy as np
import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.registry import Lowering, lowers
from nnapi_prof.graph.types import DimOrder
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten


@lowers(aten.linear.default)
def linear(op: Lowering) -> OperandId:
    """Lowers ``linear(x[..., in], w[out, in], b[out]) -> [..., out]``.

    FULLY_CONNECTED has torch's weights, wants a bias, and always gives rank 2: other ranks are
    flattened before where NNAPI would not (rank 1), and unflattened after.
    """
    weight = op.array("weight")
    op.require(weight.ndim == 2, f"weights of rank {weight.ndim}, 2 is wanted")
    n_out, n_in = weight.shape
    bias = op.optional_array("bias")
    x = op.tensor("input", DimOrder.CONTIGUOUS)
    shape = op.type("input").shape
    if len(shape) == 1:
        x = op.reshape(x, (1, n_in))
    batch = math.prod(shape) // n_in
    result = op.emit(
        OperationCode.FULLY_CONNECTED,
        [x, weight, np.zeros(n_out, np.float32) if bias is None else bias],
        [op.fuse()],
        dims=(batch, n_out),
    )
    return op.reorder(result, op.out.shape, DimOrder.CONTIGUOUS, op.out.dim_order)
