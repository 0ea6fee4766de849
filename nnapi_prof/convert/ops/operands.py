"""A node's arguments as values of a formula: broadcast, and of one element type as PyTorch says."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import fx

from nnapi_prof.convert.ops.carry import broadcast_bools
from nnapi_prof.convert.ops.formula import CASTABLE, FLOATS, Value, constant, number, numbers
from nnapi_prof.convert.registry import MEMORY_AXES, Lowering
from nnapi_prof.graph.node import constant_value, dtype_name, is_constant, torch_dtype, type_of
from nnapi_prof.graph.types import DEVICE_DTYPES, DimOrder
from nnapi_prof.nnapi.codes import FuseCode


def device_dtype(op: Lowering, dtype: str) -> str:
    """The element type in a device's memory; refuses one that NNAPI does not have."""
    found = DEVICE_DTYPES.get(dtype, dtype)
    op.require(found in (*CASTABLE, "bool"), f"works on {dtype}, which NNAPI does not have")
    return found


def common_dtype(op: Lowering, *names: str) -> str:
    """The element type, in a device's memory, to which PyTorch takes these arguments."""
    left, right = (_sample(op.arg(name)) for name in names)
    return device_dtype(op, dtype_name(torch.result_type(left, right)))


def _sample(value: Any) -> Any:
    if not isinstance(value, fx.Node):
        return value
    known = type_of(value)
    return torch.empty(known.shape, dtype=torch_dtype(known.dtype), device="meta")


def result_dtype(op: Lowering) -> str:
    """The element type of the node's result, in a device's memory."""
    return device_dtype(op, op.out.dtype)


def argument(op: Lowering, name: str, dtype: str | None = None) -> Value:
    """A tensor or number that is to broadcast against the result, as an element type of the device
    (default: the result's)."""
    dtype = dtype or result_dtype(op)
    given = op.arg(name)
    if isinstance(given, bool | int | float):
        return number(op, given, dtype)
    if is_constant(given):
        return constant(op, _placed(op, _converted(op, constant_value(given), dtype)))
    if not isinstance(given, fx.Node):
        op.refuse(f"{name} is {given!r}, a tensor or a number is wanted")
    if device_dtype(op, type_of(given).dtype) == "bool":
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


def fuse(op: Lowering) -> int:
    """The FuseCode for the operation that makes the result: integers take none."""
    return op.fuse() if result_dtype(op) in FLOATS else int(FuseCode.NONE)
