"""Graph that all stages share: types, units and plans.

This module defines a tensor's type: shape, element type and order of dimensions in memory. It is
plain data, without torch, so that costs, partition and reports can read a graph.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

DTYPE_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "uint8": 1,
    "int8": 1,
    "bool": 1,
    "complex64": 8,
    "complex128": 16,
}


DEVICE_DTYPES = {"int64": "int32"}
"""Element type of PyTorch -> element type on a device. NNAPI has no 64-bit integers; indices and
sizes fit 32 bits, and values are checked before they cross to a device."""


MAX_RANK = 4
"""Highest rank of tensors that NNAPI's RESHAPE and TRANSPOSE support."""


def operand_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape of the NNAPI operand for a contiguous tensor: ``[1]`` for a scalar; with
    more than MAX_RANK dimensions, the first ones are merged. No element moves."""
    merged = len(shape) - MAX_RANK + 1
    if merged > 1:
        return (math.prod(shape[:merged]), *shape[merged:])
    return shape or (1,)


class DimOrder(enum.Enum):
    """Order of a tensor's dimensions in memory, outermost first."""

    CONTIGUOUS = "contiguous"
    """Order of the shape; [N, C, H, W] for an image."""
    CHANNELS_LAST = "channels_last"
    """Rank 4 only: shape [N, C, H, W] lies in memory as [N, H, W, C], NNAPI's own order."""


@dataclass(frozen=True, slots=True)
class Quantisation:
    """Meaning of a quantised value's integers: ``(integer - zero_point) * scale``."""

    scale: float
    zero_point: int

    def __str__(self) -> str:
        return f"scale {self.scale:.6g}, zero point {self.zero_point}"


@dataclass(frozen=True, slots=True)
class TensorType:
    """Type of one value of the graph: logical shape (PyTorch's), element type, dim order and, for
    uint8 and int8 values that represent real numbers, the quantisation."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    dim_order: DimOrder = DimOrder.CONTIGUOUS
    quant: Quantisation | None = None

    @property
    def memory_shape(self) -> tuple[int, ...]:
        """The shape in memory, which is that of the NNAPI operand: of rank 1 at least, since NNAPI
        has no tensors of rank 0, and MAX_RANK at most."""
        if self.dim_order is DimOrder.CHANNELS_LAST:
            n, c, h, w = self.shape
            return (n, h, w, c)
        return operand_shape(self.shape)

    @property
    def device_dtype(self) -> str:
        """The element type in a device's memory."""
        return DEVICE_DTYPES.get(self.dtype, self.dtype)

    @property
    def n_elements(self) -> int:
        return math.prod(self.shape)

    @property
    def n_bytes(self) -> int:
        """Bytes in a device's memory."""
        return self.n_elements * DTYPE_BYTES[self.device_dtype]

    def __str__(self) -> str:
        order = "" if self.dim_order is DimOrder.CONTIGUOUS else f", {self.dim_order.value}"
        quant = "" if self.quant is None else f", {self.quant}"
        return f"{self.dtype}[{'x'.join(map(str, self.shape))}{order}{quant}]"
