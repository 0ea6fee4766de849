"""Lowers operations that find places of extreme values: argmax, topk and their like."""

from __future__ import annotations

import numpy as np
import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.formula import PLAIN, FormulaValue, constant, tensor, with_ones
from nnapi_prof.convert.ops.slicing import take
from nnapi_prof.convert.registry import Lowering, lowers
from nnapi_prof.graph.node import results_of, type_of
from nnapi_prof.graph.types import TensorType
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten

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
    x = op.reorder(x, source.shape, source.dim_order, PLAIN)  # rank 3 has one order only
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
    x = tensor(op, "self", PLAIN)
    plain = TensorType(source.shape, source.dtype)
    axis = op.arg("dim") % max(len(source.shape), 1)
    result_types = {reader.args[1]: type_of(reader) for reader in results_of(op.node)}
    values = positions = x.operand
    if 0 in result_types:
        reduced_type = TensorType(tuple(with_ones(source.shape, [axis])), source.dtype)
        values = x.reduced(EXTREMES[op.target], [axis]).operand
        values = op.relay(values, reduced_type, result_types[0])
    if 1 in result_types:
        op.require(bool(source.shape), "an element alone has no axis to search")
        positions = _position(op, x.operand, plain, axis, result_types[1])
    return values, positions


@lowers(aten.topk.default)
def topk(op: Lowering) -> tuple[OperandId, ...]:
    """Lowers ``topk(x, k, dim, largest) -> (values, positions)``.

    TOPK_V2 searches the last axis for the largest: others are moved there, and the smallest are
    the largest of -x. Of equal elements NNAPI names the later one first; PyTorch leaves open
    which one its CPU names, so that positions of equal elements may differ.
    """
    return _order_for_readers(op, *_top_elements(op, int(op.arg("k")), bool(op.arg("largest"))))


@lowers(aten.sort.default, aten.sort.stable)
def sort(op: Lowering) -> tuple[OperandId, ...]:
    """Lowers ``sort(x, dim, descending) -> (values, positions)``: topk of all. Equal elements keep
    their order: where positions are read, the axis is searched backwards."""
    results = {reader.args[1] for reader in results_of(op.node)}
    return _order_for_readers(
        op, *_top_elements(op, None, bool(op.arg("descending")), stable=1 in results)
    )


@lowers(aten.argsort.default, aten.argsort.stable)
def argsort(op: Lowering) -> OperandId:
    """Lowers ``argsort(x, dim, descending)``: the positions that ``sort`` gives."""
    return _top_elements(op, None, bool(op.arg("descending")), stable=True)[1]


def _top_elements(
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
    x = tensor(op, "self", PLAIN).transposed(to_end)
    if not largest:
        x = x.unary(OperationCode.NEG)
    if stable:
        x = FormulaValue(op, take(op, x.operand, rank - 1, range(source.shape[axis] - 1, -1, -1)))
    dims = (*x.dims[:-1], k)
    types = [TensorType(dims, source.dtype), TensorType(dims, "int64")]
    results = op.emit_as(types, OperationCode.TOPK_V2, [x.operand], [k])
    values, positions = (FormulaValue(op, result) for result in results)
    if not largest:
        values = values.unary(OperationCode.NEG)
    if stable:
        positions = _from_the_end(positions, source.shape[axis] - 1)
    values = values.transposed(back)
    if back != list(range(rank)):
        positions = _transposed(positions, back)
    return values.operand, positions.operand


def _from_the_end(positions: FormulaValue, last: int) -> FormulaValue:
    """``last - positions``; before level 4, which subtracts integers, as float32."""
    op, ones = positions.op, (1,) * len(positions.dims)
    if op.level >= 4:
        return constant(op, np.full(ones, last, np.int32)) - positions
    op.require(last <= 1 << 24, f"positions up to {last}, float32 counts to 2^24")
    numbers = positions.cast("float32")
    return (constant(op, np.full(ones, last, np.float32)) - numbers).cast("int32")


def _transposed(positions: FormulaValue, permutation: list[int]) -> FormulaValue:
    """A permutation of positions. TRANSPOSE takes no integers: they pass as float32, which holds
    them exactly up to 2^24."""
    longest = max(positions.dims)
    positions.op.require(
        longest <= 1 << 24, f"positions along {longest} elements, float32 counts to 2^24"
    )
    return positions.cast("float32").transposed(permutation).cast("int32")


def _order_for_readers(
    op: Lowering, values: OperandId, positions: OperandId
) -> tuple[OperandId, OperandId]:
    """Values and positions, contiguous, in the dim orders that their readers have."""
    for reader in results_of(op.node):
        if reader.args[1] == 0:
            type_ = type_of(reader)
            values = op.reorder(values, type_.shape, PLAIN, type_.dim_order)
    return values, positions
