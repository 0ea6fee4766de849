"""A region turned into an NNAPI model: the converter's result, as data."""

from __future__ import annotations

from dataclasses import dataclass, field

from nnapi_prof.graph.types import TensorType
from nnapi_prof.nnapi.codes import OperandCode

OPERAND_CODES = {
    "float32": OperandCode.TENSOR_FLOAT32,
    "float16": OperandCode.TENSOR_FLOAT16,
    "int32": OperandCode.TENSOR_INT32,
    "bool": OperandCode.TENSOR_BOOL8,
}
"""Element type in a device's memory -> operand code; no other type crosses a region's boundary."""


def operand_code(known: TensorType) -> OperandCode | None:
    """The operand type of a value, or None for one that NNAPI does not have."""
    return OPERAND_CODES.get(known.device_dtype)


@dataclass(frozen=True)
class ConvertedRegion:
    """One NNAPI model in PyTorch's serialized format (PROTOCOL.md, section 4).

    ``buffers[i]`` holds the bytes of numbered buffer i, already in NNAPI's layout. ``inputs`` and
    ``outputs`` name the graph's values in the order of the model's; their
    :attr:`TensorType.memory_shape` is the operand's shape.
    """

    serialized: bytes
    buffers: tuple[bytes, ...] = field(repr=False)
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    input_types: tuple[TensorType, ...]
    output_types: tuple[TensorType, ...]
    operations: tuple[str, ...]
    """Names of the NNAPI operations, in order."""
    level: int
    """The feature level the model was lowered for, as a device reports it (27, 28, ...)."""
