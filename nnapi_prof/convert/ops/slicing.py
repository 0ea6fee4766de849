"""Lower slices, pads and concatenations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from nnapi_prof.convert import OperandId
from nnapi_prof.convert.ops.element_types import moves_elements
from nnapi_prof.convert.registry import Lowering, logical_axes, lowers, memory_axis
from nnapi_prof.nnapi.codes import OperandCode, OperationCode

aten = torch.ops.aten

_INTEGER = OperandCode.TENSOR_INT32
MAX_RANK = 4
"""Highest rank that most operations of NNAPI take."""
MAX_CONSTANTS = 2**20
"""Most elements that a pad at the edge of one axis may have as a constant."""


def strided_slice(
    op: Lowering,
    x: OperandId,
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int] | None = None,
) -> OperandId:
    """Returns ``x[begin:end:strides]`` on every axis in memory. Positions are inside the tensor;
    strides are not 0. With a negative stride, ``end`` may be -1: the slice runs to position 0.

    Adds a STRIDED_SLICE, a SLICE for integers and ranks above 4, or nothing to keep all of ``x``.
    """
    steps = [1] * len(begin) if strides is None else list(strides)
    dims = [
        len(range(first, last, step)) for first, last, step in zip(begin, end, steps, strict=True)
    ]
    if tuple(dims) == op.dims(x) and min(steps) > 0:
        return x
    is_integer = op.operand(x).type is OperandCode.TENSOR_INT32
    if (is_integer or len(dims) > MAX_RANK) and set(steps) == {1}:
        bounds = [np.array(positions, np.int32) for positions in (begin, dims)]
        return op.emit(OperationCode.SLICE, [x, *bounds], dims=dims)
    # A negative end counts from the back; a mask therefore has to express -1 itself.
    through = sum(1 << axis for axis, last in enumerate(end) if last < 0)
    bounds = [np.array(positions, np.int32) for positions in (begin, end, steps)]
    return op.emit(OperationCode.STRIDED_SLICE, [x, *bounds], [0, through, 0], dims=dims)


def slice_axis(
    op: Lowering, x: OperandId, axis: int, first: int, last: int, step: int = 1
) -> OperandId:
    """Slices one axis in memory, like :func:`strided_slice`."""
    begin, end, strides = [0] * len(op.dims(x)), list(op.dims(x)), [1] * len(op.dims(x))
    begin[axis], end[axis], strides[axis] = first, last, step
    return strided_slice(op, x, begin, end, strides)


def pad_constant(
    op: Lowering, x: OperandId, pads: Sequence[tuple[int, int]], value: float = 0.0
) -> OperandId:
    """Pads ``x`` by (before, after) elements ``value`` on every axis in memory; negative ones cut.

    Zeros use PAD, other values PAD_V2. Levels without them (below 2 and 3) use a CONCATENATION with
    constants along each axis. Android 9's PAD fails below four dimensions: level 2 always has four.
    """
    cut = [(max(0, -before), max(0, -after)) for before, after in pads]
    last = [size - after for size, (_, after) in zip(op.dims(x), cut, strict=True)]
    x = strided_slice(op, x, [before for before, _ in cut], last)
    sizes = np.maximum(np.array(pads, np.int32), 0)
    if not sizes.any():
        return x
    type_ = op.operand(x).type
    if type_ is OperandCode.TENSOR_FLOAT32 and op.level < (2 if value == 0 else 3):
        for axis, (before, after) in enumerate(sizes.tolist()):
            x = _surround(op, x, axis, (before, after), value)
        return x
    dims = [size + int(sum(pair)) for size, pair in zip(op.dims(x), sizes, strict=True)]
    if value == 0 and op.level == 2 and len(dims) < MAX_RANK and type_ is not _INTEGER:
        missing = MAX_RANK - len(dims)
        x = op.reshape(x, [1] * missing + list(op.dims(x)))
        wide = np.concatenate([np.zeros((missing, 2), np.int32), sizes])
        result = op.emit(OperationCode.PAD, [x, wide], dims=[1] * missing + dims)
        return op.reshape(result, dims)
    if value == 0:
        return op.emit(OperationCode.PAD, [x, sizes], dims=dims)
    op.require(
        type_ is not OperandCode.TENSOR_FLOAT16,
        f"a pad of float16 by {value:g}, which PAD_V2 would take as a float16 scalar: zeros or "
        "float32 are required",
    )
    return op.emit(OperationCode.PAD_V2, [x, sizes], [value], dims=dims)


def _surround(
    op: Lowering, x: OperandId, axis: int, pads: tuple[int, int], value: float
) -> OperandId:
    """Adds constants before and after ``x`` along one axis."""
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
    """Returns a CONCATENATION along an axis in memory, or the only part."""
    if len(parts) == 1:
        return parts[0]
    dims = list(op.dims(parts[0]))
    dims[axis] = sum(op.dims(part)[axis] for part in parts)
    return op.emit(OperationCode.CONCATENATION, parts, [axis], dims=dims)


@lowers(aten.slice.Tensor)
@moves_elements
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
@moves_elements
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
@moves_elements
def cat(op: Lowering) -> OperandId:
    """Lowers ``cat(tensors, dim)``."""
    order = op.out.dim_order
    # torch ignores empty tensors of rank 1, whatever the shape of the others
    tensors = [node for node in op.arg("tensors") if op.type(node).shape != (0,)]
    axis = memory_axis(order, op.arg("dim") % len(op.out.shape))
    inputs = [op.tensor(node, order) for node in tensors]
    return op.emit(OperationCode.CONCATENATION, inputs, [axis])


# Elements along one axis in any constant order, for flips, rolls, pads and indices.


FEW_PIECES = 4
"""Most slices with a concatenation that replace a GATHER: more drivers take them."""
MAX_PIECES = 64
"""Most slices where there is no GATHER (level 2)."""


def take(op: Lowering, x: OperandId, axis: int, indices: Sequence[int]) -> OperandId:
    """Returns ``x`` with the elements ``indices`` (all inside) of an axis in memory, in that order.

    It is one slice, a few slices and a concatenation, a GATHER (from level 3 on), or many slices.
    """
    size = op.dims(x)[axis]
    positions = [int(index) for index in indices]
    if positions == list(range(size)):
        return x
    runs = _runs(positions)
    forward = all(run.step > 0 for run in runs)
    is_integer = op.operand(x).type is OperandCode.TENSOR_INT32
    sliced = op.level >= 2 and not (is_integer and len(runs) > 1)
    if forward and sliced and len(runs) <= FEW_PIECES:
        return _pieces(op, x, axis, runs)
    if op.level >= 3:
        dims = list(op.dims(x))
        dims[axis] = len(positions)
        tensors = [x, op.model.scalar(axis), op.constant(np.array(positions, np.int32))]
        return op.emit(OperationCode.GATHER, tensors, dims=dims)
    op.require_level(2, f"taking {len(positions)} of {size} elements (by STRIDED_SLICE)")
    op.require(
        len(runs) <= MAX_PIECES,
        f"{len(runs)} slices in place of GATHER (level 3), at most {MAX_PIECES} are made",
    )
    return _pieces(op, x, axis, runs)


def _runs(indices: Sequence[int]) -> list[range]:
    """Returns few arithmetic progressions, found from the front, that give the indices in order."""
    runs: list[range] = []
    start = 0
    while start < len(indices):
        stop, step = start + 1, 1
        if stop < len(indices) and indices[stop] != indices[start]:
            step = indices[stop] - indices[start]
            while stop < len(indices) and indices[stop] - indices[stop - 1] == step:
                stop += 1
            if stop == start + 2 < len(indices) and step != 1:
                stop, step = start + 1, 1  # any two form a run: the second begins a new one
        runs.append(range(indices[start], indices[stop - 1] + (1 if step > 0 else -1), step))
        start = stop
    return runs


def _pieces(op: Lowering, x: OperandId, axis: int, runs: Sequence[range]) -> OperandId:
    parts = [slice_axis(op, x, axis, run.start, run.stop, run.step) for run in runs]
    return concatenate(op, parts, axis)


# Pads that repeat elements: reflected, replicated, circular.


CIRCULAR = aten._pad_circular.default
MODES = {
    aten.reflection_pad1d.default: "reflect",
    aten.reflection_pad2d.default: "reflect",
    aten.replication_pad1d.default: "replicate",
    aten.replication_pad2d.default: "replicate",
    CIRCULAR: "circular",
}
REFLECT = 0
"""Mode of MIRROR_PAD that does not repeat the edge itself."""


@lowers(aten.pad.default, *MODES)
def pad(op: Lowering) -> OperandId:
    """Lowers ``pad(x, pad, mode)`` for the modes reflect, replicate and circular.

    MIRROR_PAD (level 7) reflects. Otherwise each axis is split and joined: by slices and a
    concatenation, or a GATHER. Negative pads cut.
    """
    mode = MODES.get(op.target) or op.arg("mode")
    order, shape = op.out.dim_order, op.type("self").shape
    name = "padding" if op.target in MODES and op.target is not CIRCULAR else "pad"
    sizes = [int(size) for size in op.arg(name)]
    pairs = {len(shape) - 1 - i: (sizes[2 * i], sizes[2 * i + 1]) for i in range(len(sizes) // 2)}
    x = op.tensor("self", order)
    pads = [pairs.get(axis, (0, 0)) for axis in logical_axes(order, len(shape))]
    if not any(map(any, pads)):
        return x
    if mode == "reflect" and op.level >= 7 and min(map(min, pads)) >= 0:
        return op.emit(OperationCode.MIRROR_PAD, [x, np.array(pads, np.int32)], [REFLECT])
    for axis, pair in enumerate(pads):
        x = take(op, x, axis, _positions(mode, op.dims(x)[axis], pair))
    return x


def _positions(mode: str, size: int, pair: Sequence[int]) -> list[int]:
    """Lists the source element for each place of the padded axis."""
    places = np.arange(-pair[0], size + pair[1])
    if mode == "circular":  # torch repeats the elements that its negative pads leave
        first = max(0, -pair[0])
        left = size + min(0, pair[1]) - first
        return [int(i) for i in first + (places - first) % left]
    if mode == "replicate":
        return [int(i) for i in places.clip(0, size - 1)]
    period = 2 * (size - 1)
    return [int(i) for i in size - 1 - abs(places % max(period, 1) - (size - 1))]
