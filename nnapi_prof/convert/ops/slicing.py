"""Cutting, padding and joining."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.registry import Lowering, logical_axes, lowers, memory_axis
from nnapi_prof.nnapi.codes import OperandCode, OperationCode

aten = torch.ops.aten

_INTEGER = OperandCode.TENSOR_INT32
MAX_RANK = 4
"""The highest rank that most operations of NNAPI take."""
MAX_CONSTANTS = 2**20
"""Elements that a pad at the edge of one axis may have as a constant."""


def strided_slice(
    op: Lowering,
    x: OperandId,
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int] | None = None,
) -> OperandId:
    """``x[begin:end:strides]`` on every axis in memory; positions lie within the tensor, strides
    are not 0. Where one is negative, ``end`` may be -1: the slice runs through to position 0.

    STRIDED_SLICE; SLICE for what that does not take, integers and ranks above 4; the operand
    itself where nothing is cut.
    """
    steps = [1] * len(begin) if strides is None else list(strides)
    dims = [
        len(range(first, last, step)) for first, last, step in zip(begin, end, steps, strict=True)
    ]
    if tuple(dims) == op.dims(x) and min(steps) > 0:
        return x
    is_integer = op.model.operand(x).type is OperandCode.TENSOR_INT32
    if (is_integer or len(dims) > MAX_RANK) and set(steps) == {1}:
        bounds = [np.array(positions, np.int32) for positions in (begin, dims)]
        return op.emit(OperationCode.SLICE, [x, *bounds], dims=dims)
    # A negative end counts from the back, so that -1 itself has to be said by a mask.
    through = sum(1 << axis for axis, last in enumerate(end) if last < 0)
    bounds = [np.array(positions, np.int32) for positions in (begin, end, steps)]
    return op.emit(OperationCode.STRIDED_SLICE, [x, *bounds], [0, through, 0], dims=dims)


def slice_axis(
    op: Lowering, x: OperandId, axis: int, first: int, last: int, step: int = 1
) -> OperandId:
    """:func:`strided_slice` along one axis in memory."""
    begin, end, strides = [0] * len(op.dims(x)), list(op.dims(x)), [1] * len(op.dims(x))
    begin[axis], end[axis], strides[axis] = first, last, step
    return strided_slice(op, x, begin, end, strides)


def pad_constant(
    op: Lowering, x: OperandId, pads: Sequence[tuple[int, int]], value: float = 0.0
) -> OperandId:
    """``x`` with (before, after) elements ``value`` on every axis in memory; what is negative is
    cut off.

    PAD for zeros, PAD_V2 for other values; at levels without them (below 2 and 3) a CONCATENATION
    with constants along each axis. Android 9's PAD fails on fewer than four dimensions, so that at
    level 2 there are always four.
    """
    cut = [(max(0, -before), max(0, -after)) for before, after in pads]
    last = [size - after for size, (_, after) in zip(op.dims(x), cut, strict=True)]
    x = strided_slice(op, x, [before for before, _ in cut], last)
    added = np.maximum(np.array(pads, np.int32), 0)
    if not added.any():
        return x
    type_ = op.model.operand(x).type
    if type_ is OperandCode.TENSOR_FLOAT32 and op.level < (2 if value == 0 else 3):
        for axis, (before, after) in enumerate(added.tolist()):
            x = _surround(op, x, axis, (before, after), value)
        return x
    padded = [size + int(sum(pair)) for size, pair in zip(op.dims(x), added, strict=True)]
    if value == 0 and op.level == 2 and len(padded) < MAX_RANK and type_ is not _INTEGER:
        missing = MAX_RANK - len(padded)
        x = op.reshape(x, [1] * missing + list(op.dims(x)))
        wide = np.concatenate([np.zeros((missing, 2), np.int32), added])
        result = op.emit(OperationCode.PAD, [x, wide], dims=[1] * missing + padded)
        return op.reshape(result, padded)
    if value == 0:
        return op.emit(OperationCode.PAD, [x, added], dims=padded)
    op.require(
        type_ is not OperandCode.TENSOR_FLOAT16,
        f"a pad of float16 by {value:g}, which PAD_V2 would take as a float16 scalar: zeros or "
        "float32 are wanted",
    )
    return op.emit(OperationCode.PAD_V2, [x, added], [value], dims=padded)


def _surround(
    op: Lowering, x: OperandId, axis: int, pads: tuple[int, int], value: float
) -> OperandId:
    """Constants before and after ``x`` along one axis."""
    parts = [x]
    for place, size in enumerate(pads):
        shape = list(op.dims(x))
        shape[axis] = size
        op.require(
            math.prod(shape) <= MAX_CONSTANTS,
            f"a pad of {math.prod(shape)} constants without PAD (level 2, level 3 for values but "
            f"0), at most {MAX_CONSTANTS} are concatenated",
        )
        if size:
            parts.insert(len(parts) * place, op.constant(np.full(shape, value, np.float32)))
    return concatenate(op, parts, axis)


def concatenate(op: Lowering, parts: Sequence[OperandId], axis: int) -> OperandId:
    """CONCATENATION along an axis in memory, or the one part there is."""
    if len(parts) == 1:
        return parts[0]
    dims = list(op.dims(parts[0]))
    dims[axis] = sum(op.dims(part)[axis] for part in parts)
    return op.emit(OperationCode.CONCATENATION, parts, [axis], dims=dims)


@lowers(aten.slice.Tensor)
def slice_tensor(op: Lowering) -> OperandId:
    """Lowers ``x[start:end:step]`` along one axis, positions wrapped and clipped as in Python."""
    shape = op.type("self").shape
    order = op.out.dim_order
    axis = op.arg("dim") % len(shape)
    span = slice(op.arg("start"), op.arg("end"), op.arg("step"))
    first, last, step = span.indices(shape[axis])
    x = op.tensor("self", order)
    return slice_axis(op, x, memory_axis(order, axis), first, last, step)


@lowers(aten.constant_pad_nd.default)
def constant_pad_nd(op: Lowering) -> OperandId:
    """Lowers ``constant_pad_nd(x, pad, value)``; negative pads cut first."""
    shape = op.type("self").shape
    rank = len(shape)
    pad = [int(size) for size in op.arg("pad")]
    before, after = [0] * rank, [0] * rank
    for i in range(len(pad) // 2):  # torch counts pairs from the last logical axis
        before[rank - 1 - i], after[rank - 1 - i] = pad[2 * i], pad[2 * i + 1]

    order = op.out.dim_order
    pads = [(before[axis], after[axis]) for axis in logical_axes(order, rank)]
    return pad_constant(op, op.tensor("self", order), pads, float(op.arg("value")))


@lowers(aten.cat.default)
def cat(op: Lowering) -> OperandId:
    """Lowers ``cat(tensors, dim)``."""
    order = op.out.dim_order
    # torch lets empty tensors of rank 1 through, whatever the others' shape
    tensors = [node for node in op.arg("tensors") if op.type(node).shape != (0,)]
    axis = memory_axis(order, op.arg("dim") % len(op.out.shape))
    inputs = [op.tensor(node, order) for node in tensors]
    return op.emit(OperationCode.CONCATENATION, inputs, [axis])
