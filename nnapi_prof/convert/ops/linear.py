"""Linear layers."""

from __future__ import annotations

import math

import numpy as np
import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.pieces import add
from nnapi_prof.convert.registry import Lowering, lowers
from nnapi_prof.graph.types import DimOrder
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten


@lowers(aten.linear.default)
def linear(op: Lowering) -> OperandId:
    """Lowers ``linear(x[..., in], w[out, in], b[out]) -> [..., out]``.

    FULLY_CONNECTED has torch's weights, wants a bias, and always gives rank 2: other ranks are
    flattened before where NNAPI would not (rank 1), and unflattened after. Weights
    and bias may be computed by the model.
    """
    n_out, n_in = _matrix(op.type("weight").shape, op)
    x = op.tensor("input", DimOrder.CONTIGUOUS)
    shape = op.type("input").shape
    batch = math.prod(shape) // n_in
    if len(shape) == 1:
        x = op.reshape(x, (batch, n_in))
    result = op.emit(
        OperationCode.FULLY_CONNECTED,
        [x, _parameter(op, "weight"), _bias(op, n_out)],
        [op.fuse()],
        dims=(batch, n_out),
    )
    return op.reorder(result, op.out.shape, DimOrder.CONTIGUOUS, op.out.dim_order)


def _matrix(shape: tuple[int, ...], op: Lowering) -> tuple[int, int]:
    op.require(len(shape) == 2, f"weights of rank {len(shape)}, 2 is wanted")
    rows, columns = shape
    return rows, columns


def _parameter(op: Lowering, name: str) -> OperandId:
    known = op.type(name)
    op.require(known.dtype == "float32", f"{name} is {known.dtype}, float32 is wanted here")
    return op.tensor(name)


def _bias(op: Lowering, n_out: int) -> OperandId:
    if op.arg("bias") is None:
        return op.constant(np.zeros(n_out, np.float32))
    bias = _parameter(op, "bias")
    if op.dims(bias) != (1,) or n_out == 1:
        return bias
    return add(op, bias, op.constant(np.zeros(n_out, np.float32)))  # one number for all
