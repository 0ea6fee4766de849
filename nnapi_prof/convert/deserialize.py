"""Bytes -> NnapiModel: the inverse of :func:`.region.serialize`, for bytes from untrusted files.

Only code that reads files imports this module (a contract of import-linter).
"""

from __future__ import annotations

import math
import struct
from dataclasses import replace

from nnapi_prof.convert import (
    BufferSlice,
    ChannelScales,
    ConstantValue,
    NnapiModel,
    Operand,
    OperandId,
    Operation,
)
from nnapi_prof.convert.region import (
    CHANNEL_VERSION,
    FORMAT_VERSION,
    HEADER,
    OPERAND,
    OPERATION,
    SLICE,
    SOURCE_IMMEDIATE,
    SOURCE_NUMBERED_BUFFER,
    VALUE,
)
from nnapi_prof.errors import SerializationError
from nnapi_prof.nnapi.codes import OperandCode, OperationCode

MAX_COUNT = 1 << 24
"""PyTorch's loader refuses this many operands, values, operations, inputs or outputs."""


class _ByteReader:
    """Reads ``data`` from front to back and checks every read against its end."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, length: int, what: str) -> bytes:
        if length > len(self.data) - self.at:
            raise SerializationError(
                f"serialized model: {what} takes {length} bytes from byte {self.at}, "
                f"the data ends at {len(self.data)}"
            )
        self.at += length
        return self.data[self.at - length : self.at]

    def rows(self, form: struct.Struct, n: int, what: str) -> list[tuple[int, ...]]:
        return list(form.iter_unpack(self.take(form.size * n, what)))

    def words(self, n: int, what: str) -> tuple[int, ...]:
        return struct.unpack(f"<{n}I", self.take(4 * n, what))

    def operand_ids(self, n: int, n_operands: int, what: str) -> tuple[OperandId, ...]:
        indices = self.words(n, what)
        for index in indices:
            _require_operand(index, n_operands, what)
        return tuple(map(OperandId, indices))


def _require_operand(index: int, n_operands: int, what: str) -> None:
    if not 0 <= index < n_operands:
        raise SerializationError(
            f"serialized model: {what} names operand {index}, there are {n_operands}"
        )


def deserialize(data: bytes) -> NnapiModel:
    """Returns the model that ``data`` contains; the inverse of :func:`.region.serialize`.

    Every count, index and length is checked before use. Raises SerializationError with the part
    that is wrong: another version, counts beyond the data or from 2^24 on, unknown codes or value
    sources, operand indices out of range, padding that is not zero, bytes left over. Whether NNAPI
    accepts the model is not checked.
    """
    reader = _ByteReader(data)
    (header,) = reader.rows(HEADER, 1, "the header")
    version, *counts = header
    if version not in (FORMAT_VERSION, CHANNEL_VERSION):
        raise SerializationError(
            f"serialized model: version {version} found, {FORMAT_VERSION} and {CHANNEL_VERSION} "
            "are read"
        )
    names = ("operands", "values", "operations", "inputs", "outputs")
    for name, count in zip(names, counts, strict=True):
        if not 0 <= count < MAX_COUNT:
            raise SerializationError(
                f"serialized model: {count} {name} stated, 0 to {MAX_COUNT - 1} are allowed"
            )
    n_operands, n_values, n_operations, n_inputs, n_outputs = counts

    operand_rows = reader.rows(OPERAND, n_operands, "the operand table")
    value_rows = reader.rows(VALUE, n_values, "the value table")
    operation_rows = reader.rows(OPERATION, n_operations, "the operation table")
    operands = tuple(_read_operand(reader, i, row) for i, row in enumerate(operand_rows))
    values = tuple(_read_value(reader, i, row, n_operands) for i, row in enumerate(value_rows))
    operations = tuple(
        _read_operation(reader, i, row, n_operands) for i, row in enumerate(operation_rows)
    )
    inputs = reader.operand_ids(n_inputs, n_operands, "the inputs")
    outputs = reader.operand_ids(n_outputs, n_operands, "the outputs")
    if version == CHANNEL_VERSION:
        operands = _with_channels(reader, operands)
    if reader.at != len(data):
        raise SerializationError(
            f"serialized model: ends at byte {reader.at}, the data at {len(data)}"
        )
    return NnapiModel(operands, values, operations, inputs, outputs)


def _read_operand(reader: _ByteReader, index: int, row: tuple[int, ...]) -> Operand:
    code, rank, scale, zero_point = row
    try:
        operand_type = OperandCode(code)
    except ValueError:
        message = f"serialized model: operand {index} has the unknown type {code}"
        raise SerializationError(message) from None
    dims = reader.words(rank, f"the dimensions of operand {index}")
    return Operand(operand_type, dims, scale, zero_point)


def _with_channels(reader: _ByteReader, operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
    """Returns the operands with the channel scales at the model's end, at most one set each."""
    fitted = list(operands)
    (count,) = reader.words(1, "the count of channel scales")
    for number in range(count):
        what = f"channel scales {number}"
        index, dim, n = reader.words(3, what)
        _require_operand(index, len(fitted), what)
        operand = fitted[index]
        takes_scales = operand.type is OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL
        if not takes_scales or operand.channels is not None:
            raise SerializationError(
                f"serialized model: {what} are for operand {index}, {operand.type.name}"
                f"{' that has some' if takes_scales else ''}"
            )
        if dim >= len(operand.dims) or operand.dims[dim] != n:
            raise SerializationError(
                f"serialized model: {what} are {n} along dimension {dim} of {operand.dims}"
            )
        scales = struct.unpack(f"<{n}f", reader.take(4 * n, what))
        if not all(math.isfinite(scale) and scale > 0 for scale in scales):
            raise SerializationError(f"serialized model: {what} are not all above 0")
        fitted[index] = replace(operand, channels=ChannelScales(dim, scales))
    return tuple(fitted)


def _read_value(
    reader: _ByteReader, index: int, row: tuple[int, ...], n_operands: int
) -> ConstantValue:
    operand, kind, length = row
    _require_operand(operand, n_operands, f"value {index}")
    raw = reader.take(length, f"value {index}")
    if any(reader.take(-length % 4, f"the padding of value {index}")):
        raise SerializationError(f"serialized model: the padding of value {index} is not zero")
    if kind == SOURCE_IMMEDIATE:
        return ConstantValue(OperandId(operand), raw)
    if kind != SOURCE_NUMBERED_BUFFER:
        raise SerializationError(
            f"serialized model: value {index} has source {kind}, only {SOURCE_IMMEDIATE} "
            f"(immediate) and {SOURCE_NUMBERED_BUFFER} (numbered buffer) are read"
        )
    if length != SLICE.size:
        raise SerializationError(
            f"serialized model: value {index} names a buffer in {length} bytes, "
            f"{SLICE.size} are required"
        )
    return ConstantValue(OperandId(operand), BufferSlice(*SLICE.unpack(raw)))


def _read_operation(
    reader: _ByteReader, index: int, row: tuple[int, ...], n_operands: int
) -> Operation:
    code, n_inputs, n_outputs = row
    try:
        operation_code = OperationCode(code)
    except ValueError:
        message = f"serialized model: operation {index} has the unknown code {code}"
        raise SerializationError(message) from None
    inputs = reader.operand_ids(n_inputs, n_operands, f"operation {index}")
    outputs = reader.operand_ids(n_outputs, n_operands, f"operation {index}")
    return Operation(operation_code, inputs, outputs)
