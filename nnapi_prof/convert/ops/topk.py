"""Where the extreme values are: argmax, topk and their like."""

from __future__ import annotations

import numpy as np
import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.pieces import NONE, reduced, unary
from nnapi_prof.convert.ops.slicing import take
from nnapi_prof.convert.registry import Lowering, lowers
from nnapi_prof.graph.node import results_of, type_of
from nnapi_prof.graph.types import DimOrder, TensorType
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten

_PLAIN = DimOrder.CONTIGUOUS

POSITIONS = {
    aten.argmax.default: OperationCode.ARGMAX,
    aten.argmin.default: OperationCode.ARGMIN,
    aten.max.dim: OperationCode.ARGMAX,
    aten.min.dim: OperationCode.ARGMIN,
}
EXTREMES = {
    aten.max.dim: OperationCode.REDUCE_MAX,
    aten.min.dim: OperationCode.REDUCE_MIN,
}


@lowers(aten.argmax.default, aten.argmin.default)
def position(op: Lowering) -> OperandId:
    """Lowers ``argmax`` and ``argmin`` along one axis, or over all elements in logical order.

    Of several equal elements both name the first. PyTorch finds a NaN, NNAPI does not say.
    """
    source = op.type("self")
    if op.arg("dim") is None or not source.shape:
        flat = TensorType((source.n_elements,), source.dtype)
        return _position(op, op.relay(op.tensor("self"), source, flat), flat, 0, op.out)
    return _position(op, op.tensor("self"), source, op.arg("dim"), op.out)


def _position(
    op: Lowering, x: OperandId, source: TensorType, dim: int, result: TensorType
) -> OperandId:
    """ARGMAX or ARGMIN, which drop the axis; the result is laid as the graph has it."""
    axis = dim % len(source.shape)
    shape = tuple(n for i, n in enumerate(source.shape) if i != axis)
    x = op.reorder(x, source.shape, source.dim_order, _PLAIN)  # rank 3 has one order only
    (positions,) = op.emit_as([TensorType(shape, "int64")], POSITIONS[op.target], [x], [axis])
    return _with_axes(op, positions, shape, result.shape, axis)


def _with_axes(
    op: Lowering, x: OperandId, shape: tuple[int, ...], target_shape: tuple[int, ...], axis: int
) -> OperandId:
    """Integers of ``shape`` with axes of size 1 at ``axis`` until the rank is that of ``wanted``.

    EXPAND_DIMS does it: RESHAPE takes no integers below level 6.
    """
    for _ in range(len(target_shape) - max(len(shape), 1)):
        shape = (*shape[:axis], 1, *shape[axis:]) if shape else (1, 1)
        (x,) = op.emit_as([TensorType(shape, "int64")], OperationCode.EXPAND_DIMS, [x], [axis])
    return x


@lowers(aten.max.dim, aten.min.dim)
def extreme(op: Lowering) -> tuple[OperandId, ...]:
    """Lowers ``max(x, dim, keepdim) -> (values, positions)``, and ``min``; of several equal
    elements PyTorch's CPU names the first, as NNAPI does."""
    source = op.type("self")
    x = op.tensor("self", _PLAIN)
    plain = TensorType(source.shape, source.dtype)
    axis = op.arg("dim") % max(len(source.shape), 1)
    result_types = {reader.args[1]: type_of(reader) for reader in results_of(op.node)}
    reduced_type = TensorType(
        tuple(1 if i == axis else n for i, n in enumerate(source.shape)), source.dtype
    )
    values = positions = x
    if 0 in result_types:
        values = reduced(op, EXTREMES[op.target], x, [axis])
        values = op.relay(values, reduced_type, result_types[0])
    if 1 in result_types:
        op.require(bool(source.shape), "an element alone has no axis to search")
        positions = _position(op, x, plain, axis, result_types[1])
    return values, positions


@lowers(aten.topk.default)
def topk(op: Lowering) -> tuple[OperandId, ...]:
    """Lowers ``topk(x, k, dim, largest) -> (values, positions)``.

    TOPK_V2 searches the last axis for the largest: others are moved there, and the smallest are
    the largest of -x. Of equal elements NNAPI names the later one first; PyTorch leaves open
    which one its CPU names, so that positions of equal elements may differ.
    """
    return _placed(op, *_largest(op, int(op.arg("k")), bool(op.arg("largest"))))


@lowers(aten.sort.default, aten.sort.stable)
def sort(op: Lowering) -> tuple[OperandId, ...]:
    """Lowers ``sort(x, dim, descending) -> (values, positions)``: topk of all. Equal elements keep
    their order: where positions are read, the axis is searched backwards."""
    read = {reader.args[1] for reader in results_of(op.node)}
    return _placed(op, *_largest(op, None, bool(op.arg("descending")), stable=1 in read))


@lowers(aten.argsort.default, aten.argsort.stable)
def argsort(op: Lowering) -> OperandId:
    """Lowers ``argsort(x, dim, descending)``: the positions that ``sort`` gives."""
    return _largest(op, None, bool(op.arg("descending")), stable=True)[1]


def _largest(
    op: Lowering, k: int | None, largest: bool, stable: bool = False
) -> tuple[OperandId, OperandId]:
    """The ``k`` largest or smallest elements along the node's axis (None: all), and where; with
    ``stable`` of equal elements the first one first."""
    source = op.type("self")
    op.require(bool(source.shape), "an element alone has no axis to search")
    rank = len(source.shape)
    axis = op.arg("dim") % rank
    k = source.shape[axis] if k is None else k
    to_end = [i for i in range(rank) if i != axis] + [axis]
    back = [to_end.index(i) for i in range(rank)]
    x = op.transpose(op.tensor("self", _PLAIN), to_end)
    if not largest:
        x = unary(op, OperationCode.NEG, x)
    if stable:
        x = take(op, x, rank - 1, range(source.shape[axis] - 1, -1, -1))
    dims = (*op.dims(x)[:-1], k)
    values, positions = op.emit_as(
        [TensorType(dims, source.dtype), TensorType(dims, "int64")],
        OperationCode.TOPK_V2,
        [x],
        [k],
    )
    if not largest:
        values = unary(op, OperationCode.NEG, values)
    if stable:
        positions = _from_the_end(op, positions, source.shape[axis] - 1)
    values = op.transpose(values, back)
    if back != list(range(rank)):
        positions = _moved(op, positions, back)
    return values, positions


def _from_the_end(op: Lowering, positions: OperandId, last: int) -> OperandId:
    """``last - positions``; before level 4, which subtracts integers, as float32."""
    dims = op.dims(positions)
    if op.level >= 4:
        numbers = np.full((1,) * len(dims), last, np.int32)
        return op.emit(OperationCode.SUB, [numbers, positions], [NONE], dims=dims)
    op.require(last <= 1 << 24, f"positions up to {last}, float32 counts to 2^24")
    (floats,) = op.emit_as([TensorType(dims)], OperationCode.CAST, [positions])
    difference = op.emit(
        OperationCode.SUB, [np.full((1,) * len(dims), last, np.float32), floats], [NONE], dims=dims
    )
    return op.emit_as([TensorType(dims, "int64")], OperationCode.CAST, [difference])[0]


def _moved(op: Lowering, positions: OperandId, permutation: list[int]) -> OperandId:
    """A permutation of positions. TRANSPOSE takes no integers: they pass as float32, which holds
    them exactly up to 2^24."""
    dims = op.dims(positions)
    op.require(
        max(dims) <= 1 << 24, f"positions along {max(dims)} elements, float32 counts to 2^24"
    )
    (numbers,) = op.emit_as([TensorType(dims)], OperationCode.CAST, [positions])
    numbers = op.transpose(numbers, permutation)
    (moved,) = op.emit_as([TensorType(op.dims(numbers), "int64")], OperationCode.CAST, [numbers])
    return moved


def _placed(op: Lowering, values: OperandId, positions: OperandId) -> tuple[OperandId, OperandId]:
    """Values and positions, contiguous, in the dim orders that their readers have."""
    for reader in results_of(op.node):
        if reader.args[1] == 0:
            type_ = type_of(reader)
            values = op.reorder(values, type_.shape, _PLAIN, type_.dim_order)
    return values, positions
