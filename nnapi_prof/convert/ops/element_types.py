"""A node's arguments as values of a formula: broadcast, and of one element type as PyTorch says."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import fx
from torch._ops import OpOverload

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.formula import CASTABLE, FLOATS, Value, constant, number, numbers
from nnapi_prof.convert.ops.integer_moves import broadcast_bools
from nnapi_prof.convert.registry import MEMORY_AXES, Lowering, lowers
from nnapi_prof.graph.node import constant_value, dtype_name, is_constant, torch_dtype, type_of
from nnapi_prof.graph.quantisation import (
    DEQUANTIZE,
    QUANTIZE,
    same_quantisation,
    stated_quantisation,
)
from nnapi_prof.graph.types import DEVICE_DTYPES, DimOrder
from nnapi_prof.nnapi.codes import FuseCode, OperationCode

Formula = Callable[..., Value]


def device_dtype(op: Lowering, dtype: str) -> str:
    """The element type in a device's memory; refuses one that NNAPI does not have."""
    element_type = DEVICE_DTYPES.get(dtype, dtype)
    op.require(element_type in (*CASTABLE, "bool"), f"works on {dtype}, which NNAPI does not have")
    return element_type


def common_dtype(op: Lowering, *names: str) -> str:
    """The element type, in a device's memory, to which PyTorch takes these arguments."""
    left, right = (_sample(op.arg(name)) for name in names)
    return device_dtype(op, dtype_name(torch.result_type(left, right)))


def _sample(value: Any) -> Any:
    if not isinstance(value, fx.Node):
        return value
    type_ = type_of(value)
    return torch.empty(type_.shape, dtype=torch_dtype(type_.dtype), device="meta")


def result_dtype(op: Lowering) -> str:
    """The element type of the node's result, in a device's memory."""
    return device_dtype(op, op.out.dtype)


def argument(op: Lowering, name: str, dtype: str | None = None) -> Value:
    """A tensor or number that is to broadcast against the result, as an element type of the device
    (default: the result's)."""
    dtype = dtype or result_dtype(op)
    value = op.arg(name)
    if isinstance(value, bool | int | float):
        return number(op, value, dtype)
    if is_constant(value):
        return constant(op, _placed(op, _converted(op, constant_value(value), dtype)))
    if not isinstance(value, fx.Node):
        op.refuse(f"{name} is {value!r}, a tensor or a number is wanted")
    if device_dtype(op, type_of(value).dtype) == "bool":
        return broadcast_bools(op, name).cast(dtype)
    return Value(op, op.broadcast(name)).cast(dtype)


def _converted(op: Lowering, value: torch.Tensor, dtype: str) -> NDArray[Any]:
    """A constant in an element type of the device, rounded as PyTorch would."""
    value = value.detach().cpu().contiguous()
    if dtype in (*FLOATS, "bool"):
        value = value.to(torch_dtype(dtype))
    return numbers(op, value.numpy(), dtype)


def _placed(op: Lowering, array: NDArray[Any]) -> NDArray[Any]:
    """A constant in the result's dim order, as :meth:`Lowering.broadcast_array` puts it."""
    if op.out.dim_order is DimOrder.CONTIGUOUS or array.size == 1:
        return array
    return array.reshape((1,) * (4 - array.ndim) + array.shape).transpose(MEMORY_AXES)


def formula(*targets: OpOverload, of: Sequence[str] = ("self",)) -> Callable[[Formula], Formula]:
    """Registers a function of these arguments, as :func:`argument` gives them, as a lowering; it
    stays a function of values."""

    def register(function: Formula) -> Formula:
        @lowers(*targets)
        @functools.wraps(function)
        def lower(op: Lowering) -> OperandId:
            return function(*(argument(op, name) for name in of)).operand

        return function

    return register


def fuse(op: Lowering) -> int:
    """The FuseCode for the operation that makes the result: integers take none."""
    return op.fuse() if result_dtype(op) in FLOATS else int(FuseCode.NONE)


# Changes of element type.


aten = torch.ops.aten


@lowers(aten._to_copy.default)
def to_copy(op: Lowering) -> OperandId:
    """Lowers ``x.to(dtype)`` among float32, float16, int32, int64 and bool, from level 3 on.

    CAST turns numbers into each other; floats lose their fraction on the way to integers, as in
    PyTorch, and what an int32 cannot hold is undefined in both. To bool is ``x != 0``; from bool a
    SELECT of 1 and 0, since CAST takes no bools. int64 is int32 on a device.
    """
    device_dtype(op, op.out.dtype)
    x = argument(op, "self", device_dtype(op, op.type("self").dtype))
    result = x.cast(result_dtype(op))
    if result is not x or x.dtype != "int32":
        return result.operand
    # between int32 and int64; RESHAPE, which copies, takes no integers below level 6
    return x.binary(OperationCode.MAXIMUM, x).operand


# Conversions between floats and quantised integers where they stand alone.


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
