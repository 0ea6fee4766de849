"""Lower operations that pick elements: by tensors of indices, and by the places of extreme values.

Indexing is index_select, index, gather and embedding; places of extreme values are argmax, topk,
sort and similar operators.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx

from nnapi_prof.convert import OperandId
from nnapi_prof.convert.ops.element_types import moves_bools, moves_elements
from nnapi_prof.convert.ops.formula import NONE, PLAIN, FormulaValue, constant, tensor, with_ones
from nnapi_prof.convert.ops.slicing import take
from nnapi_prof.convert.registry import Lowering, lowers, memory_axis
from nnapi_prof.graph import TensorType
from nnapi_prof.graph.node import is_constant, results_of, type_of
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten

EXACT_FLOAT = 2**24
"""Largest integer up to which float32 is exact."""


@lowers(aten.index_select.default)
@moves_bools
def index_select(op: Lowering) -> OperandId:
    """Lowers ``index_select(x, dim, index[n])``: slices or GATHER for constant indices, GATHER or
    EMBEDDING_LOOKUP for computed ones."""
    shape = op.type("self").shape
    axis = op.arg("dim") % max(len(shape), 1)
    order = op.out.dim_order
    x = op.tensor("self", order)
    index = op.arg("index")
    if not is_constant(index):
        return _gather(op, x, memory_axis(order, axis), op.tensor("index"), op.type("index").shape)
    return take(op, x, memory_axis(order, axis), op.any_array("index").reshape(-1).tolist())


@lowers(aten.embedding.default)
def embedding(op: Lowering) -> OperandId:
    """Lowers ``embedding(weight[V, D], indices[...]) -> [..., D]``; padding_idx is for training."""
    type_ = op.type("indices")
    return _gather(op, op.tensor("weight"), 0, op.tensor("indices"), type_.shape)


@lowers(aten.index.Tensor)
@moves_elements
def index(op: Lowering) -> OperandId:
    """Lowers ``x[:, i, j]`` with index tensors that broadcast against each other. Their shape
    replaces the indexed axes in the result, or comes first if other axes are between these.

    One tensor is a GATHER along its axis. Several gather from their axes flattened into one. An
    index below 0 counts from the end: constants are wrapped here, computed ones in the model.
    """
    shape = op.type("self").shape
    axes, nodes = _index_tensors(op)
    x = op.tensor("self", PLAIN)
    if axes != list(range(axes[0], axes[-1] + 1)):
        order = [*axes, *(axis for axis in range(len(shape)) if axis not in axes)]
        x, shape = op.transpose(x, order), tuple(shape[axis] for axis in order)
        axes = list(range(len(axes)))
    first, sizes = axes[0], [shape[axis] for axis in axes]
    broadcast = np.broadcast_shapes(
        *(n.shape if isinstance(n, np.ndarray) else type_of(n).shape for n in nodes)
    )
    dims = (*shape[:first], *broadcast, *shape[axes[-1] + 1 :])
    if len(axes) > 1:
        x = op.reshape(x, (*shape[:first], math.prod(sizes), *shape[axes[-1] + 1 :]))
    where = _flat_index(op, nodes, sizes)
    if isinstance(where, FormulaValue):
        result = _gather(op, x, first, where.operand, broadcast)
    elif where.ndim == 1:
        result = take(op, x, first, where.tolist())
    else:
        result = _gather(op, x, first, op.constant(where), broadcast)
    return op.reorder(result, dims, PLAIN, op.out.dim_order)


def _index_tensors(op: Lowering) -> tuple[list[int], list[fx.Node | NDArray[Any]]]:
    """Returns the indexed axes and their indices: computed tensors as nodes, constants as arrays. A
    constant mask becomes the positions where it is true, on as many axes as it has."""
    axes: list[int] = []
    sources: list[fx.Node | NDArray[Any]] = []
    axis = 0
    for node in op.arg("indices"):
        if node is None:
            axis += 1
            continue
        dtype = type_of(node).dtype
        if is_constant(node):
            array = op.any_array(node)
            parts: list[Any] = list(np.nonzero(array)) if dtype == "bool" else [array]
        else:
            op.require(
                dtype in ("int64", "int32"),
                f"indexed by {node.name}, a computed {dtype}, wanted int64 or int32",
            )
            parts = [node]
        sources += parts
        axes += range(axis, axis + len(parts))
        axis += len(parts)
    return axes, sources


@lowers(aten.gather.default)
@moves_elements
def gather(op: Lowering) -> OperandId:
    """Lowers ``gather(x, dim, index)``: ``out[i, j] = x[i, index[i, j]]`` for dim 1.

    The source is flattened. A position in it is ``index * stride`` plus the other axes' share, a
    constant. Where the other axes have size 1, a plain GATHER suffices.
    """
    shape, index_type = op.type("self").shape, op.type("index")
    if not shape:
        return op.tensor("self")
    dim = op.arg("dim") % len(shape)
    x = op.tensor("self", PLAIN)
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    grids = np.indices(index_type.shape, dtype=np.int64, sparse=True)
    others = [grids[axis] * strides[axis] for axis in range(len(shape)) if axis != dim]
    offsets = np.broadcast_to(sum(others, np.zeros((1,) * len(shape))), index_type.shape)
    x = op.reshape(x, (math.prod(shape),))
    node = op.arg("index")
    if is_constant(node):
        positions = op.any_array(node) * strides[dim] + offsets
        where = op.constant(positions.astype(np.int32))
    else:
        index, bound = tensor(op, "index"), math.prod(shape)
        if strides[dim] != 1:
            index = _arithmetic(OperationCode.MUL, index, np.array([strides[dim]]), bound)
        if offsets.any():
            index = _arithmetic(OperationCode.ADD, index, offsets, bound)
        where = index.operand
    result = _gather(op, x, 0, where, index_type.shape)
    return op.reorder(result, index_type.shape, PLAIN, op.out.dim_order)


def _gather(
    op: Lowering, x: OperandId, axis: int, where: OperandId, shape: tuple[int, ...]
) -> OperandId:
    """Gathers along an axis in memory; the index's shape replaces the axis. Below level 3, which
    has GATHER, rows selected by a vector are an EMBEDDING_LOOKUP."""
    dims = op.dims(x)
    result = (*dims[:axis], *shape, *dims[axis + 1 :]) or (1,)
    if op.level < 3 and axis == 0 and len(shape) == 1 and len(dims) >= 2:
        return op.emit(OperationCode.EMBEDDING_LOOKUP, [where, x], dims=result)
    if not shape:  # one index of rank 0, which has the shape [1] on a device
        dims_with_axis = (*dims[:axis], 1, *dims[axis + 1 :])
        one = op.emit(OperationCode.GATHER, [x, op.model.scalar(axis), where], dims=dims_with_axis)
        return op.reshape(one, result)
    return op.emit(OperationCode.GATHER, [x, op.model.scalar(axis), where], dims=result)


def _flat_index(
    op: Lowering, nodes: list[fx.Node | NDArray[Any]], sizes: list[int]
) -> FormulaValue | NDArray[np.int32]:
    """Returns the position of each tuple of indices in axes of ``sizes`` flattened into one."""
    pairs = list(zip(nodes, sizes, strict=True))
    constants = [np.where(n < 0, n + size, n) for n, size in pairs if isinstance(n, np.ndarray)]
    if len(constants) == len(nodes):
        arrays = np.broadcast_arrays(*(array.astype(np.int64) for array in constants))
        return np.asarray(np.ravel_multi_index(arrays, sizes), np.int32)
    total: FormulaValue | None = None
    bound = math.prod(sizes)
    for place, (node, size) in enumerate(pairs):
        stride = math.prod(sizes[place + 1 :])
        if isinstance(node, np.ndarray):
            positions = np.where(node < 0, node + size, node) * stride
            part = constant(op, positions.astype(np.int32))
        else:
            index = FormulaValue(op, op.tensor(node))
            from_end = _arithmetic(OperationCode.ADD, index, np.array([size]), size)
            part = (index < 0).select(from_end, index, "int32")
            if stride != 1:
                part = _arithmetic(OperationCode.MUL, part, np.array([stride]), bound)
        total = part if total is None else _arithmetic(OperationCode.ADD, total, part, bound)
    assert total is not None
    return total


def _arithmetic(
    code: OperationCode, index: FormulaValue, other: FormulaValue | NDArray[Any], bound: int
) -> FormulaValue:
    """Computes with indices. Integer arithmetic came with level 4; below, floats are used, which
    are exact for results below 2^24. ``bound`` is the limit of all indices that are inside."""
    op = index.op
    dtype = "int32" if op.level >= 4 else "float32"
    if dtype == "float32":
        op.require_level(3, f"{code.name} on indices (CAST)")
        op.require(
            bound <= EXACT_FLOAT,
            f"indices up to {bound} computed as floats (exact up to {EXACT_FLOAT}) before level 4",
        )
    index = index.cast(dtype)
    right = (
        other.cast(dtype) if isinstance(other, FormulaValue) else constant(op, other.astype(dtype))
    )
    return index.binary(code, right, [NONE]).cast("int32")


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

    Of equal elements both return the first. PyTorch finds a NaN; NNAPI does not specify it.
    """
    source = op.type("self")
    if op.arg("dim") is None or not source.shape:
        flat = TensorType((source.n_elements,), source.dtype)
        return _position(op, op.relay(op.tensor("self"), source, flat), flat, 0, op.out)
    return _position(op, op.tensor("self"), source, op.arg("dim"), op.out)


def _position(
    op: Lowering, x: OperandId, source: TensorType, dim: int, result: TensorType
) -> OperandId:
    """Adds an ARGMAX or ARGMIN, which drop the axis; the result has the graph's shape."""
    axis = dim % len(source.shape)
    shape = tuple(n for i, n in enumerate(source.shape) if i != axis)
    x = op.reorder(x, source.shape, source.dim_order, PLAIN)  # rank 3 has one order only
    (positions,) = op.emit_as([TensorType(shape, "int64")], POSITIONS[op.target], [x], [axis])
    return _with_axes(op, positions, shape, result.shape, axis)


def _with_axes(
    op: Lowering, x: OperandId, shape: tuple[int, ...], target_shape: tuple[int, ...], axis: int
) -> OperandId:
    """Adds axes of size 1 at ``axis`` to integers of ``shape`` until they have the target's rank.

    EXPAND_DIMS adds them, because RESHAPE takes no integers below level 6.
    """
    for _ in range(len(target_shape) - max(len(shape), 1)):
        shape = (*shape[:axis], 1, *shape[axis:]) if shape else (1, 1)
        (x,) = op.emit_as([TensorType(shape, "int64")], OperationCode.EXPAND_DIMS, [x], [axis])
    return x


@lowers(aten.max.dim, aten.min.dim)
def extreme(op: Lowering) -> tuple[OperandId, ...]:
    """Lowers ``max(x, dim, keepdim) -> (values, positions)``, and ``min``. Of equal elements
    PyTorch's CPU returns the first, and so does NNAPI."""
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

    TOPK_V2 searches the last axis for the largest. Other axes are therefore moved to the end, and
    the smallest elements are the largest of -x. Of equal elements NNAPI returns the later one
    first. PyTorch does not specify its CPU's order, so positions of equal elements may differ.
    """
    return _order_for_readers(op, *_top_elements(op, int(op.arg("k")), bool(op.arg("largest"))))


@lowers(aten.sort.default, aten.sort.stable)
def sort(op: Lowering) -> tuple[OperandId, ...]:
    """Lowers ``sort(x, dim, descending) -> (values, positions)`` as topk of all elements. Equal
    elements keep their order: if the positions are read, the axis is searched backwards."""
    results = {reader.args[1] for reader in results_of(op.node)}
    return _order_for_readers(
        op, *_top_elements(op, None, bool(op.arg("descending")), stable=1 in results)
    )


@lowers(aten.argsort.default, aten.argsort.stable)
def argsort(op: Lowering) -> OperandId:
    """Lowers ``argsort(x, dim, descending)``: the positions of ``sort``."""
    return _top_elements(op, None, bool(op.arg("descending")), stable=True)[1]


def _top_elements(
    op: Lowering, k: int | None, largest: bool, stable: bool = False
) -> tuple[OperandId, OperandId]:
    """Returns the ``k`` largest or smallest elements along the node's axis (None: all), and their
    positions. With ``stable``, equal elements keep their order."""
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
    """Returns ``last - positions``; below level 4, which subtracts integers, by float32."""
    op, ones = positions.op, (1,) * len(positions.dims)
    if op.level >= 4:
        return constant(op, np.full(ones, last, np.int32)) - positions
    op.require(last <= 1 << 24, f"positions up to {last}, float32 counts to 2^24")
    numbers = positions.cast("float32")
    return (constant(op, np.full(ones, last, np.float32)) - numbers).cast("int32")


def _transposed(positions: FormulaValue, permutation: list[int]) -> FormulaValue:
    """Permutes positions as float32, exact up to 2^24, because TRANSPOSE takes no integers."""
    longest = max(positions.dims)
    positions.op.require(
        longest <= 1 << 24, f"positions along {longest} elements, float32 counts to 2^24"
    )
    return positions.cast("float32").transposed(permutation).cast("int32")


def _order_for_readers(
    op: Lowering, values: OperandId, positions: OperandId
) -> tuple[OperandId, OperandId]:
    """Returns contiguous values and positions in the dim orders of their readers."""
    for reader in results_of(op.node):
        if reader.args[1] == 0:
            type_ = type_of(reader)
            values = op.reorder(values, type_.shape, PLAIN, type_.dim_order)
    return values, positions
