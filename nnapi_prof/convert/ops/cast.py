"""Changes of element type."""

from __future__ import annotations

import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.operands import argument, device_dtype, result_dtype
from nnapi_prof.convert.registry import Lowering, lowers
from nnapi_prof.nnapi.codes import OperationCode

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
