"""Map ATen operators to the functions that lower them, run these, and check their results.

A lowering is a function ``Lowering -> OperandId`` under :func:`lowers`. It is also the support
check: on a scratch model it either succeeds or refuses with a sentence, so the supported cases are
written once. Its result is compared with the graph's type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx
from torch._ops import OpOverload

from nnapi_prof.convert import EmissionError, ModelBuilder, Operand, OperandId
from nnapi_prof.convert.region import alike, operand_code, operand_of
from nnapi_prof.errors import UnsupportedOp
from nnapi_prof.graph import MAX_RANK, DimOrder, TensorType, operand_shape
from nnapi_prof.graph.node import (
    ScriptCall,
    bound_args,
    constant_value,
    is_constant,
    makes_tensor,
    op_name,
    results_of,
    type_of,
)
from nnapi_prof.graph.quantisation import (
    DEQUANTIZE,
    QUANTIZE,
    is_weight,
    reads_integers,
    weight_value,
)
from nnapi_prof.nnapi import level_name
from nnapi_prof.nnapi.codes import FuseCode, OperandCode, OperationCode

Lowerer = Callable[["Lowering"], OperandId | tuple[OperandId, ...]]
"""Function that returns the operand of a node's result, or one for each of several, in order."""
FloatArray = NDArray[np.float32]
Tensors = Sequence[OperandId | NDArray[Any]]
Scalars = Sequence[bool | int | float]
Dims = Sequence[int] | None
Types = Sequence[TensorType]

ENTRIES: dict[OpOverload, Lowerer] = {}
"""Operator -> its lowering. Filled by :func:`lowers` when nnapi_prof.convert.ops is imported."""

MEMORY_AXES = (0, 2, 3, 1)
"""Logical axis at each position in channels_last memory."""


def lowers(*targets: OpOverload) -> Callable[[Lowerer], Lowerer]:
    """Registers the lowering of operators. Raises ValueError if one already has a lowering."""

    def register(lowerer: Lowerer) -> Lowerer:
        for target in targets:
            owner = ENTRIES.get(target)
            if owner is not None:
                raise ValueError(
                    f"{target} is lowered by {owner.__module__}.{owner.__qualname__} already, "
                    f"{lowerer.__module__}.{lowerer.__qualname__} cannot take it over"
                )
        ENTRIES.update(dict.fromkeys(targets, lowerer))
        return lowerer

    return register


def memory_axis(order: DimOrder, axis: int) -> int:
    """Returns the position of the logical ``axis`` in memory."""
    return MEMORY_AXES.index(axis) if order is DimOrder.CHANNELS_LAST else axis


def logical_axes(order: DimOrder, rank: int) -> tuple[int, ...]:
    """Returns the logical axis at each position in memory."""
    return MEMORY_AXES if order is DimOrder.CHANNELS_LAST else tuple(range(rank))


def keeps_order(shape: Sequence[int], permutation: Sequence[int]) -> bool:
    """Returns whether permuting ``shape`` moves no element, only dimensions of size 1."""
    real = [axis for axis in permutation if shape[axis] != 1]
    return real == sorted(real)


def lies_as_it_reads(type_: TensorType) -> bool:
    """Returns whether the elements are in memory in the order of the logical shape."""
    return keeps_order(type_.shape, logical_axes(type_.dim_order, len(type_.shape)))


class Lowering:
    """Context of one lowering: reads the node's arguments and adds NNAPI operations.

    ``model`` is the model being built. ``out`` is the type of the node's result, or of the first of
    several values. ``pad`` is the zero padding (left, right, top, bottom) of a constant_pad_nd that
    was folded into this node.
    """

    def __init__(
        self,
        node: fx.Node,
        model: ModelBuilder,
        values: Mapping[str, OperandId],
        activation: FuseCode = FuseCode.NONE,
        folded_pad: fx.Node | None = None,
        pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    ) -> None:
        self.node = node
        self.model = model
        self.out = type_of(results_of(node)[0])
        self.pad = pad
        self.activation_left = activation
        self._values = values
        self._folded_pad = folded_pad
        self._args = bound_args(node)

    @property
    def level(self) -> int:
        """Number of the feature level: 1 for API 27, 2 for API 28, ..."""
        return self.model.level_number

    @property
    def target(self) -> OpOverload:
        assert isinstance(self.node.target, OpOverload)
        return self.node.target

    # Refusals

    def refuse(self, reason: str) -> NoReturn:
        raise UnsupportedOp(self.node.name, op_name(self.node.target), reason)

    def require(self, condition: bool, reason: str) -> None:
        """Refuses the node unless ``condition`` holds; ``reason`` is what was found and wanted."""
        if not condition:
            self.refuse(reason)

    def require_level(self, level: int, what: str) -> None:
        """Refuses ``what`` below a feature level (1, 2, ...)."""
        self.require(
            self.level >= level,
            f"{what} needs {level_name(level)}, the device has {level_name(self.level)}",
        )

    # Arguments

    def arg(self, name: str) -> Any:
        """Returns an argument by its schema's name: a node, a Python value or None."""
        value = self._args[name]
        if self._folded_pad is not None and value is self._folded_pad:
            return bound_args(self._folded_pad)["self"]
        return value

    def pair(self, name: str) -> tuple[int, int]:
        """Returns an argument of one or two integers as (height, width)."""
        value = self.arg(name)
        items = [value] if isinstance(value, int) else list(value)
        first, second = items * 2 if len(items) == 1 else items
        return int(first), int(second)

    def type(self, value: str | fx.Node) -> TensorType:
        """Returns the type of a tensor argument, given by name or as a node."""
        return type_of(self._node(value))

    def array(self, value: str | fx.Node) -> FloatArray:
        """Returns a constant float32 tensor argument in PyTorch's layout."""
        node = self._node(value)
        dtype = type_of(node).dtype
        self.require(dtype == "float32", f"{node.name} is {dtype}, float32 is required here")
        array: FloatArray = self.any_array(node)
        return array

    def any_array(self, value: str | fx.Node) -> NDArray[Any]:
        """Returns a constant tensor argument in PyTorch's layout and the device's element type."""
        node = self._node(value)
        self.require(
            is_weight(node), f"{node.name} is computed by the model, a constant is required here"
        )
        type_ = type_of(node)
        self.operand_code(node)
        array: NDArray[Any] = (
            self.model.pool.array(constant_value(node))
            if is_constant(node)
            else weight_value(node).detach().cpu().contiguous().numpy()
        )
        narrow = array.astype(type_.device_dtype, copy=False)
        self.require(
            narrow.dtype == array.dtype or np.array_equal(narrow, array),
            f"{node.name} has values beyond {type_.device_dtype}, which is what NNAPI has",
        )
        return narrow

    def optional_array(self, name: str) -> FloatArray | None:
        return None if self.arg(name) is None else self.array(name)

    def tensor(self, value: str | fx.Node, order: DimOrder | None = None) -> OperandId:
        """Returns the operand of a tensor argument, in the given dim order (default: its own)."""
        node = self._node(value)
        type_ = type_of(node)
        order = order or type_.dim_order
        if is_weight(node):
            array = self.any_array(node)
            in_memory = array.transpose(logical_axes(order, array.ndim))
            return self.constant(in_memory.reshape(operand_shape(in_memory.shape)))
        self.operand_code(node)
        return self.reorder(self._values[node.name], type_.shape, type_.dim_order, order)

    def image(self, name: str) -> OperandId:
        """Returns the operand of a rank-4 argument in channels_last, which NNAPI's spatial
        operations require. Refuses any other."""
        for what, type_ in ((f"{self._node(name).name} is", self.type(name)), ("gives", self.out)):
            self.require(
                len(type_.shape) == 4 and type_.dim_order is DimOrder.CHANNELS_LAST,
                f"{what} {type_}, NNAPI expects channels_last images of rank 4",
            )
        return self.tensor(name)

    def broadcast(self, name: str) -> OperandId:
        """Returns the operand of a tensor or number that broadcasts against the result.

        PyTorch aligns shapes at the last logical dimension, NNAPI at the last in memory. For a
        channels_last result, shorter shapes are therefore extended to rank 4 and reordered.
        """
        constant = self.broadcast_array(name)
        if constant is not None:
            return self.constant(constant)
        node = self._node(name)
        shape = type_of(node).shape
        order = self.out.dim_order
        if order is DimOrder.CONTIGUOUS or len(shape) == 4:
            return self.tensor(node, order)
        full_shape = (1,) * (4 - len(shape)) + shape
        return self.reorder(self.tensor(node), full_shape, DimOrder.CONTIGUOUS, order)

    def broadcast_array(self, name: str) -> NDArray[Any] | None:
        """Returns :meth:`broadcast`'s argument as an array if it is a number or a constant; else
        None. A number takes the element type of the node's first tensor argument."""
        value = self.arg(name)
        if isinstance(value, bool | int | float):
            beside = next((a for a in self._args.values() if isinstance(a, fx.Node)), None)
            type_ = self.out if beside is None else type_of(beside)
            return np.array([value], type_.device_dtype)
        if not is_weight(self._node(name)):
            return None
        array = self.any_array(name)
        if self.out.dim_order is DimOrder.CONTIGUOUS or array.size == 1:
            return np.atleast_1d(array)
        return array.reshape((1,) * (4 - array.ndim) + array.shape).transpose(MEMORY_AXES)

    # Emission

    def fuse(self) -> int:
        """Returns the FuseCode for an operation that takes one; the activation is then done."""
        code, self.activation_left = self.activation_left, FuseCode.NONE
        return int(code)

    def constant(self, array: NDArray[Any]) -> OperandId:
        return self.model.constant(np.atleast_1d(array))

    def emit(
        self, code: OperationCode, tensors: Tensors, scalars: Scalars = (), dims: Dims = None
    ) -> OperandId:
        """Adds an operation: tensors first, then scalars, in the order of NNAPI's argument lists.

        Arrays become constants. ``dims`` is the result's shape in memory, by default that of the
        node's result; its type is the data's. Raises EmissionError if the level does not allow it.
        """
        inputs = self._inputs(tensors, scalars)
        return self.model.add(code, inputs, self.out.memory_shape if dims is None else dims)

    def emit_as(
        self, types: Types, code: OperationCode, tensors: Tensors, scalars: Scalars = ()
    ) -> tuple[OperandId, ...]:
        """Adds an operation like :meth:`emit` whose results have these types."""
        results = []
        for type_ in types:
            operand = operand_of(type_)
            if operand is None:
                self.refuse(f"gives {type_.dtype}, which NNAPI does not have")
            results.append(operand)
        return self.model.add_results(code, self._inputs(tensors, scalars), results)

    def _inputs(self, tensors: Tensors, scalars: Scalars) -> list[OperandId]:
        inputs = [self.constant(t) if isinstance(t, np.ndarray) else t for t in tensors]
        return [*inputs, *map(self.model.scalar, scalars)]

    def operand(self, operand_id: OperandId) -> Operand:
        """Returns an operand as the lowering sees it."""
        return self.model.operand(operand_id)

    def dims(self, operand: OperandId) -> tuple[int, ...]:
        """Returns the shape of an operand in memory."""
        return self.operand(operand).dims

    def reshape(self, operand: OperandId, dims: Sequence[int]) -> OperandId:
        """Adds a RESHAPE, unless the operand already has the shape."""
        if self.dims(operand) == tuple(dims):
            return operand
        return self._reshape(operand, dims)

    def copy(self, operand: OperandId) -> OperandId:
        """Returns a copy of a tensor, as another operand."""
        return self._reshape(operand, self.dims(operand))

    def is_argument(self, operand: OperandId) -> bool:
        """Returns whether the operand is a value of the graph, not one made by this lowering."""
        return operand in self._values.values()

    def transpose(self, operand: OperandId, permutation: Sequence[int]) -> OperandId:
        """Adds a TRANSPOSE, or a RESHAPE (available at every level) where no element moves."""
        dims = self.dims(operand)
        permuted = [dims[axis] for axis in permutation]
        if keeps_order(dims, permutation):
            return self.reshape(operand, permuted)
        return self.emit(
            OperationCode.TRANSPOSE, [operand, np.array(permutation, np.int32)], dims=permuted
        )

    def reorder(
        self, operand: OperandId, shape: Sequence[int], source: DimOrder, target: DimOrder
    ) -> OperandId:
        """Returns a tensor of logical ``shape`` converted from one dim order to another."""
        rank = len(shape)
        if rank == 0 or rank > MAX_RANK:
            return operand  # one element, or a tensor that is always contiguous
        have = logical_axes(source, rank)
        want = logical_axes(target, rank)
        permutation = [have.index(axis) for axis in want]
        dims = [shape[axis] for axis in have]
        if keeps_order(dims, permutation):
            return self.reshape(operand, [dims[i] for i in permutation])
        return self.transpose(self.reshape(operand, dims), permutation)

    def relay(self, operand: OperandId, source: TensorType, target: TensorType) -> OperandId:
        """Returns the elements of ``source``, in logical order, as a tensor of another shape.

        RESHAPE works on memory. It suffices where a channels_last side has only dimensions of size
        1 out of place. Otherwise a TRANSPOSE is added before or after it.
        """
        if source.shape == target.shape:
            return self.reorder(operand, source.shape, source.dim_order, target.dim_order)
        if lies_as_it_reads(source) and lies_as_it_reads(target):
            return self.reshape(operand, target.memory_shape)
        plain = DimOrder.CONTIGUOUS
        operand = self.reorder(operand, source.shape, source.dim_order, plain)
        if len(target.shape) > MAX_RANK:
            return self.reshape(operand, target.memory_shape)
        return self.reorder(operand, target.shape, plain, target.dim_order)

    def _reshape(self, operand: OperandId, dims: Sequence[int]) -> OperandId:
        shape = np.array(dims, np.int32)
        return self.emit(OperationCode.RESHAPE, [operand, shape], dims=dims)

    def _node(self, value: str | fx.Node) -> fx.Node:
        argument = self.arg(value) if isinstance(value, str) else value
        if not isinstance(argument, fx.Node):
            self.refuse(f"{value} is {argument!r}, a tensor is required")
        return argument

    def operand_code(self, node: fx.Node) -> OperandCode:
        """Returns the operand type of a node's value; refuses one that NNAPI does not have."""
        code = operand_code(type_of(node))
        if code is None:
            self.refuse(f"{node.name} is {type_of(node).dtype}, which NNAPI does not have")
        self.require(
            type_of(node).quant is None or reads_integers(self.node),
            f"reads the integers of the quantised value {node.name}, NNAPI would read what they "
            "stand for",
        )
        return code


aten = torch.ops.aten

AnyLowering = TypeVar("AnyLowering", bound=Lowering)


def lowerer_of(node: fx.Node) -> Lowerer:
    """Returns the lowering of a node's operator. Raises UnsupportedOp where there is none."""
    lowerer = ENTRIES.get(node.target) if isinstance(node.target, OpOverload) else None
    if isinstance(node.target, ScriptCall):
        raise UnsupportedOp(
            node.name,
            node.target.construct,
            f"it depends on the values of a tensor ({node.target.where})",
        )
    if lowerer is None:
        raise UnsupportedOp(
            node.name,
            op_name(node.target),
            "NNAPI has no such operation and nothing here rewrites it into others",
        )
    return lowerer


def lower_node(op: Lowering) -> OperandId:
    """Runs the lowering of ``op``'s node, which makes one tensor, and returns its operand, of the
    type in the graph. Raises UnsupportedOp."""
    result = run_lowering(op)
    check_result(op, result, op.out)
    return result


def run_lowering(
    op: AnyLowering, instead: Callable[[AnyLowering], OperandId] | None = None
) -> OperandId:
    """Runs the lowering of ``op``'s node, or ``instead``; returns the operand of its only tensor.

    An activation that the lowering did not fuse follows as a separate operation. A lowering that
    had nothing to do (a view of the same shape) becomes a copy, because each value of the graph
    needs its own operand. Raises UnsupportedOp.
    """
    lowerer = lowerer_of(op.node)
    _require_ranks(op)
    try:
        result = instead(op) if instead is not None else lowerer(op)
        assert not isinstance(result, tuple), f"{op.target} makes one tensor"
        if op.is_argument(result):
            result = op.copy(result)
        if op.activation_left:
            code = OperationCode[FuseCode(op.fuse()).name]
            result = op.emit(code, [result], dims=op.dims(result))
    except EmissionError as error:
        op.refuse(str(error))
    return result


def lower_values(op: Lowering) -> dict[str, OperandId]:
    """Runs the lowering of a node of several values, and returns their operands by reader's name.

    Raises UnsupportedOp.
    """
    lowerer = lowerer_of(op.node)
    _require_ranks(op)
    try:
        results = lowerer(op)
    except EmissionError as error:
        op.refuse(str(error))
    assert isinstance(results, tuple), f"{op.target} makes several values"
    integers = {}
    for reader in results_of(op.node):
        result = results[cast("int", reader.args[1])]
        check_result(op, result, type_of(reader))
        integers[reader.name] = result
    return integers


_ANY_RANK = frozenset(
    {
        aten.view.default,
        aten.reshape.default,
        QUANTIZE,
        DEQUANTIZE,
        aten.convolution.default,  # refuses ranks itself
    }
)


def _require_ranks(op: Lowering) -> None:
    """Refuses more dimensions than MAX_RANK, which an operand merges (operand_shape).

    The pass ``decompose_high_rank`` rewrites what it can. Operators that only change shape or
    quantisation do not depend on the rank.
    """
    if op.target in _ANY_RANK:
        return
    nodes = [a for a in op.node.all_input_nodes if makes_tensor(a)]
    ranks = [len(type_of(node).shape) for node in (*nodes, *results_of(op.node))]
    rank = max(ranks, default=0)
    op.require(
        rank <= MAX_RANK,
        f"a tensor of rank {rank}: NNAPI's operations take rank {MAX_RANK} at most, and this one "
        "cannot be done on fewer dimensions",
    )


def check_result(op: Lowering, result: OperandId, type_: TensorType) -> None:
    """Compares a lowering's result with the graph's type, to catch silent mistakes."""
    operand = op.model.operand(result)
    expected = operand_of(type_)
    if expected is None:
        op.refuse(f"gives {type_.dtype}, which NNAPI does not have")
    op.require(
        alike(operand, expected),
        f"NNAPI gives {operand.type.name}, PyTorch {type_.dtype}: such an element type is not "
        "lowered here",
    )
    op.require(
        operand.dims == type_.memory_shape,
        f"its lowering gives the shape {operand.dims}, the graph says {type_.memory_shape}: "
        "please report this as a bug",
    )
