"""Cutting, padding and joining."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.registry import Lowering, logical_axes, lowers, memory_axis
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten


def strided_slice(
    op: Lowering,
    x: OperandId,
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int] | None = None,
) -> OperandId:
    """``x[begin:end:strides]`` on every axis in memory; positions lie within the tensor, strides
    are positive. STRIDED_SLICE, or the operand itself where nothing is cut."""
    steps = [1] * len(begin) if strides is None else list(strides)
    dims = [
        len(range(first, last, step)) for first, last, step in zip(begin, end, steps, strict=True)
    ]
    if tuple(dims) == op.dims(x):
        return x
    bounds = [np.array(positions, np.int32) for positions in (begin, end, steps)]
    return op.emit(OperationCode.STRIDED_SLICE, [x, *bounds], [0, 0, 0], dims=dims)


@lowers(aten.slice.Tensor)
def slice_tensor(op: Lowering) -> OperandId:
    """Lowers ``x[start:end:step]`` along one axis, positions wrapped and clipped as in Python."""
    shape = op.type("self").shape
    order = op.out.dim_order
    axis = op.arg("dim") % len(shape)
    span = slice(op.arg("start"), op.arg("end"), op.arg("step"))
    first, last, step = span.indices(shape[axis])
    x = op.tensor("self", order)
    begin, end, strides = [0] * len(shape), list(op.dims(x)), [1] * len(shape)
    at = memory_axis(order, axis)
    begin[at], end[at], strides[at] = first, last, step
    return strided_slice(op, x, begin, end, strides)


@lowers(aten.constant_pad_nd.default)
def constant_pad_nd(op: Lowering) -> OperandId:
    """Lowers ``constant_pad_nd(x, pad, value)``: negative pads cut first, then PAD for zeros or
    PAD_V2 for other values."""
    shape = op.type("self").shape
    rank = len(shape)
    pad = [int(size) for size in op.arg("pad")]
    before, after = [0] * rank, [0] * rank
    for i in range(len(pad) // 2):  # torch counts pairs from the last logical axis
        before[rank - 1 - i], after[rank - 1 - i] = pad[2 * i], pad[2 * i + 1]

    order = op.out.dim_order
    axes = logical_axes(order, rank)
    x = strided_slice(
        op,
        op.tensor("self", order),
        [max(0, -before[axis]) for axis in axes],
        [shape[axis] - max(0, -after[axis]) for axis in axes],
    )
    pads = np.array([[max(0, before[axis]), max(0, after[axis])] for axis in axes], np.int32)
    if not pads.any():
        return x
    value = float(op.arg("value"))
    if value == 0:
        return op.emit(OperationCode.PAD, [x, pads])
    return op.emit(OperationCode.PAD_V2, [x, pads], [value])


@lowers(aten.cat.default)
def cat(op: Lowering) -> OperandId:
    """Lowers ``cat(tensors, dim)``."""
    order = op.out.dim_order
    # torch lets empty tensors of rank 1 through, whatever the others' shape
    tensors = [node for node in op.arg("tensors") if op.type(node).shape != (0,)]
    axis = memory_axis(order, op.arg("dim") % len(op.out.shape))
    inputs = [op.tensor(node, order) for node in tensors]
    return op.emit(OperationCode.CONCATENATION, inputs, [axis])
