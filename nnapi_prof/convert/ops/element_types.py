"""Arguments of a node as values of a formula: broadcast, and in PyTorch's common element type."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import fx
from torch._ops import OpOverload

from nnapi_prof.convert import EmissionError, ModelBuilder, OperandId
from nnapi_prof.convert.ops.formula import CASTABLE, FLOATS, FormulaValue, constant, number, numbers
from nnapi_prof.convert.registry import MEMORY_AXES, Lowerer, Lowering, logical_axes, lowers
from nnapi_prof.errors import UnsupportedOp
from nnapi_prof.graph import DEVICE_DTYPES, DimOrder, operand_shape
from nnapi_prof.graph.node import constant_value, dtype_name, is_constant, torch_dtype, type_of
from nnapi_prof.graph.quantisation import (
    DEQUANTIZE,
    QUANTIZE,
    same_quantisation,
    stated_quantisation,
)
from nnapi_prof.nnapi.codes import FuseCode, OperationCode

Formula = Callable[..., FormulaValue]


def device_dtype(op: Lowering, dtype: str) -> str:
    """Returns the element type in a device's memory. Refuses one that NNAPI does not have."""
    element_type = DEVICE_DTYPES.get(dtype, dtype)
    op.require(element_type in (*CASTABLE, "bool"), f"works on {dtype}, which NNAPI does not have")
    return element_type


def common_dtype(op: Lowering, *names: str) -> str:
    """Returns the element type, in a device's memory, that PyTorch promotes these arguments to."""
    left, right = (_sample(op.arg(name)) for name in names)
    return device_dtype(op, dtype_name(torch.result_type(left, right)))


def _sample(value: Any) -> Any:
    if not isinstance(value, fx.Node):
        return value
    type_ = type_of(value)
    return torch.empty(type_.shape, dtype=torch_dtype(type_.dtype), device="meta")


def result_dtype(op: Lowering) -> str:
    """Returns the element type of the node's result, in a device's memory."""
    return device_dtype(op, op.out.dtype)


def argument(op: Lowering, name: str, dtype: str | None = None) -> FormulaValue:
    """Returns a tensor or number to broadcast against the result, in an element type of the device
    (by default the result's)."""
    dtype = dtype or result_dtype(op)
    value = op.arg(name)
    if isinstance(value, bool | int | float):
        return number(op, value, dtype)
    if is_constant(value):
        return constant(op, _in_dim_order(op, _cast_constant(op, constant_value(value), dtype)))
    if not isinstance(value, fx.Node):
        op.refuse(f"{name} is {value!r}, a tensor or a number is required")
    if device_dtype(op, type_of(value).dtype) == "bool":
        return broadcast_bools(op, name).cast(dtype)
    return FormulaValue(op, op.broadcast(name)).cast(dtype)


def _cast_constant(op: Lowering, value: torch.Tensor, dtype: str) -> NDArray[Any]:
    """Returns a constant in an element type of the device, rounded as PyTorch would."""
    value = value.detach().cpu().contiguous()
    if dtype in (*FLOATS, "bool"):
        value = value.to(torch_dtype(dtype))
    return numbers(op, value.numpy(), dtype)


def _in_dim_order(op: Lowering, array: NDArray[Any]) -> NDArray[Any]:
    """Returns a constant in the result's dim order, like :meth:`Lowering.broadcast_array`."""
    if op.out.dim_order is DimOrder.CONTIGUOUS or array.size == 1:
        return array
    return array.reshape((1,) * (4 - array.ndim) + array.shape).transpose(MEMORY_AXES)


def formula(*targets: OpOverload, of: Sequence[str] = ("self",)) -> Callable[[Formula], Formula]:
    """Registers a function of these arguments, as :func:`argument` returns them, as a lowering. It
    stays callable as a function of values."""

    def register(function: Formula) -> Formula:
        @lowers(*targets)
        @functools.wraps(function)
        def lower(op: Lowering) -> OperandId:
            return function(*(argument(op, name) for name in of)).operand

        return function

    return register


def fuse(op: Lowering) -> int:
    """Returns the FuseCode for the operation that makes the result; NONE for integers."""
    return op.fuse() if result_dtype(op) in FLOATS else int(FuseCode.NONE)


# Changes of element type.


aten = torch.ops.aten


@lowers(aten._to_copy.default)
def to_copy(op: Lowering) -> OperandId:
    """Lowers ``x.to(dtype)`` among float32, float16, int32, int64 and bool, from level 3 on.

    CAST converts between numbers. Floats lose their fraction when they become integers, as in
    PyTorch, and a value beyond int32 is undefined in both. To bool is ``x != 0``; from bool is a
    SELECT of 1 and 0, because CAST takes no bools. int64 is int32 on a device.
    """
    device_dtype(op, op.out.dtype)
    x = argument(op, "self", device_dtype(op, op.type("self").dtype))
    result = x.cast(result_dtype(op))
    if result is not x or x.dtype != "int32":
        return result.operand
    # between int32 and int64; below level 6 RESHAPE cannot copy integers
    return x.binary(OperationCode.MAXIMUM, x).operand


# Separate conversions between floats and quantised integers.


@lowers(QUANTIZE)
def quantize(op: Lowering) -> OperandId:
    """Lowers ``quantize_per_tensor(x) -> integers`` of the same shape and dim order."""
    _require_whole_range(op)
    op.require_level(3, "QUANTIZE")
    return op.emit_as([op.out], OperationCode.QUANTIZE, [op.tensor("input", op.out.dim_order)])[0]


@lowers(DEQUANTIZE)
def dequantize(op: Lowering) -> OperandId:
    """Lowers ``dequantize_per_tensor(integers) -> x`` of the same shape and dim order."""
    _require_whole_range(op)
    type_, quant = op.type("input"), stated_quantisation(op.node)
    if type_.quant is None or quant is None or not same_quantisation(type_.quant, quant):
        op.refuse(f"reads {type_} as {quant}")
    x = op.tensor("input", op.out.dim_order)
    return op.emit_as([op.out], OperationCode.DEQUANTIZE, [x])[0]


def _require_whole_range(op: Lowering) -> None:
    op.require(
        stated_quantisation(op.node) is not None,
        f"integers of {op.arg('dtype')} from {op.arg('quant_min')} to {op.arg('quant_max')}, "
        "NNAPI's quantised types are uint8 and int8 over their whole range",
    )


# Moves of bools and integers as floats, without loss of bits. NNAPI has few operations that
# reshape, transpose, slice or join bools and integers.


PICKS = (aten.gather.default, aten.index.Tensor)
"""Operators that copy elements of ``self``, selected by arguments of integers."""
SUMS = (aten.sum.default, aten.sum.dim_IntList)
MAX_SUMMED = 8192
"""Most parts of integers, each below 2048, whose sum a float32 holds exactly."""
PART = 2048
"""Base of the parts of an int32, ``(high * 2048 + middle) * 2048 + low``. Each is below 2048 in
size, so a float16 holds it without rounding if the model is in float16."""


class _AsFloats(Lowering):
    """Lowering in which every tensor of one element type is float32 instead, except ``indices``."""

    def __init__(
        self,
        op: Lowering,
        dtype: str,
        part: Callable[[FormulaValue], FormulaValue],
        indices: Collection[fx.Node] = (),
    ) -> None:
        super().__init__(op.node, op.model, op._values)
        self._dtype = dtype
        self._part = part
        self._indices = indices

    def tensor(self, value: str | fx.Node, order: DimOrder | None = None) -> OperandId:
        node = self._node(value)
        type_ = type_of(node)
        if type_.device_dtype != self._dtype or node in self._indices:
            return super().tensor(value, order)
        order = order or type_.dim_order
        if node.name not in self._values:
            array = self.any_array(node).transpose(logical_axes(order, len(type_.shape)))
            constant = self.constant(array.reshape(operand_shape(array.shape)))
            return self._part(FormulaValue(self, constant)).operand
        floats = self._part(FormulaValue(self, self._values[node.name])).operand
        return self.reorder(floats, type_.shape, type_.dim_order, order)


def _bools_as_floats(op: Lowering) -> Lowering:
    return _AsFloats(op, "bool", lambda x: x.cast("float32"))


def broadcast_bools(op: Lowering, name: str) -> FormulaValue:
    """Returns a computed bool tensor to broadcast against the result. If it has to be moved to the
    result's dim order, it is moved as floats."""
    type_ = op.type(name)
    stays = op.out.dim_order is DimOrder.CONTIGUOUS or len(type_.shape) == 4
    if stays and (len(type_.shape) != 4 or type_.dim_order is op.out.dim_order):
        return FormulaValue(op, op.broadcast(name))
    return FormulaValue(op, _bools_as_floats(op).broadcast(name)).cast("bool")


def moves_elements(lowerer: Lowerer) -> Lowerer:
    """Makes a lowering of float tensors accept bools and integers too. Its operator must copy
    elements to other places, or add them up, and read nothing else except indices. A pad of
    integers must be of zeros."""
    return _carrying(lowerer, integers=True)


def moves_bools(lowerer: Lowerer) -> Lowerer:
    """Makes a lowering accept bools, but not integers, because NNAPI moves these itself."""
    return _carrying(lowerer, integers=False)


def _carrying(lowerer: Lowerer, integers: bool) -> Lowerer:
    @functools.wraps(lowerer)
    def carry(op: Lowering) -> OperandId | tuple[OperandId, ...]:
        if op.out.dtype == "bool":
            result_part = _moved(lowerer, _bools_as_floats(op))
            return result_part.is_(OperationCode.NOT_EQUAL, 0).operand
        # Products and quotients of integers came with level 4.
        if (
            not integers
            or op.out.device_dtype != "int32"
            or op.level < 4
            or _lowers_as_it_is(lowerer, op)
        ):
            return lowerer(op)
        if op.target is aten.constant_pad_nd.default:
            op.require(op.arg("value") == 0, f"pads integers with {op.arg('value')}, 0 is carried")
        if op.target in SUMS:
            count = op.type("self").n_elements // op.out.n_elements
            op.require(
                count <= MAX_SUMMED,
                f"sums {count} integers, up to {MAX_SUMMED} are exact as floats",
            )
        indices = _indices(op)
        if op.target in PICKS and op.arg("self") in indices:
            return lowerer(op)  # an index cannot be an integer and a float at once
        result: FormulaValue | None = None
        for part in (_high, _middle, _low):
            result_part = _moved(lowerer, _AsFloats(op, "int32", part, indices)).cast("int32")
            result = result_part if result is None else result * PART + result_part
        assert result is not None
        return result.operand

    return carry


def _indices(op: Lowering) -> list[fx.Node]:
    if op.target is aten.gather.default:
        return [op.arg("index")]
    return [node for node in op.arg("indices") if node] if op.target is aten.index.Tensor else []


def _high(x: FormulaValue) -> FormulaValue:
    return (x / PART**2).cast("float32")


def _middle(x: FormulaValue) -> FormulaValue:
    return (_rest(x) / PART).cast("float32")


def _low(x: FormulaValue) -> FormulaValue:
    rest = _rest(x)
    return (rest - rest / PART * PART).cast("float32")


def _rest(x: FormulaValue) -> FormulaValue:
    """Returns the remainder of a division by 2048 ** 2, smaller than that however DIV rounds."""
    return x - x / PART**2 * PART**2


def _moved(lowerer: Lowerer, op: Lowering) -> FormulaValue:
    result = lowerer(op)
    assert not isinstance(result, tuple), f"{op.target} makes one tensor"
    return FormulaValue(op, result)


def _lowers_as_it_is(lowerer: Lowerer, op: Lowering) -> bool:
    """Returns whether NNAPI can lower the node directly, by a dry run on a scratch model."""
    scratch = ModelBuilder(op.model.level, pool=op.model.pool)
    values = {
        source.name: scratch.input(op.operand(op._values[source.name]))
        for source in op.node.all_input_nodes
        if source.name in op._values
    }
    try:
        lowerer(Lowering(op.node, scratch, values))
    except (EmissionError, UnsupportedOp):
        return False
    return True
