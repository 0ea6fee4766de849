"""Constants of a region for other programs: short ones as JSON values, long ones as one file.

The weights file, byte by byte, little-endian::

    0   8   b"NNPROFW1"
    8  32   SHA-256 of all bytes from 64 on
    40 24   zeros
    64      the region's buffers, each from a multiple of 64 on, zeros between them

Equal buffers stand there once. Whoever maps the file compares 40 bytes to know that it belongs to
his region, and hands NNAPI the slices as they lie.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nnapi_prof.convert.model import BufferSlice, NnapiModel, Operand, OperandId
from nnapi_prof.errors import SerializationError
from nnapi_prof.nnapi.codes import OperandCode
from nnapi_prof.nnapi.facts import TENSOR_CODES

ELEMENTS: dict[OperandCode, np.dtype[Any]] = {
    code: np.dtype(name)
    for name, codes in {
        "<f4": (OperandCode.FLOAT32, OperandCode.TENSOR_FLOAT32),
        "<f2": (OperandCode.FLOAT16, OperandCode.TENSOR_FLOAT16),
        "<i4": (OperandCode.INT32, OperandCode.TENSOR_INT32),
        "<u4": (OperandCode.UINT32,),
        "?": (OperandCode.BOOL, OperandCode.TENSOR_BOOL8),
        "u1": (OperandCode.TENSOR_QUANT8_ASYMM,),
        "i1": (
            OperandCode.TENSOR_QUANT8_SYMM,
            OperandCode.TENSOR_QUANT8_ASYMM_SIGNED,
            OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL,
        ),
        "<i2": (OperandCode.TENSOR_QUANT16_SYMM,),
        "<u2": (OperandCode.TENSOR_QUANT16_ASYMM,),
    }.items()
    for code in codes
}
"""Operand type -> its elements in memory. A MODEL has none."""


def element_bytes(code: OperandCode) -> int:
    """Bytes of one element; 1 for a MODEL, whose value no file of ours holds."""
    return ELEMENTS[code].itemsize if code in ELEMENTS else 1


def operand_bytes(operand: Operand) -> int | None:
    """Bytes of an operand's value; None where a dimension is unknown."""
    if operand.type in TENSOR_CODES and (not operand.dims or 0 in operand.dims):
        return None
    return math.prod(operand.dims) * element_bytes(operand.type)


def float32(value: float) -> float:
    """The float32 nearest to a number, as Python holds it."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def short_float32(value: float) -> float:
    """The number with the fewest digits whose float32 is ``value``; ``value`` itself, if none."""
    short = float(str(np.float32(value)))
    return short if float32(short) == value else value


def value_to_json(code: OperandCode, source: bytes | BufferSlice) -> dict[str, Any]:
    """``{"numbers": [...]}``, ``{"hex": ...}`` or a slice's ``{"buffer", "offset", "length"}``.

    Numbers where they give the very bytes back, hex for others (NaN, cut elements).
    """
    if isinstance(source, BufferSlice):
        return {"buffer": source.buffer, "offset": source.offset, "length": source.length}
    element = ELEMENTS.get(code)
    if element is not None and len(source) % element.itemsize == 0:
        numbers = np.frombuffer(source, element).tolist()
        if code in (OperandCode.FLOAT32, OperandCode.TENSOR_FLOAT32):
            numbers = [short_float32(number) for number in numbers]
        if all(map(math.isfinite, numbers)) and np.array(numbers, element).tobytes() == source:
            return {"numbers": numbers}
    return {"hex": source.hex()}


def require_inside(source: bytes | BufferSlice, lengths: Sequence[int], place: str) -> None:
    """Raises SerializationError where a slice is not inside its buffer; ``lengths`` are theirs."""
    if not isinstance(source, BufferSlice):
        return
    if source.buffer >= len(lengths):
        raise SerializationError(f"{place} names buffer {source.buffer}, there are {len(lengths)}")
    end, limit = source.offset + source.length, lengths[source.buffer]
    if end > limit:
        raise SerializationError(
            f"{place} ends at byte {end} of buffer {source.buffer}, which has {limit}"
        )


def require_consistent(model: NnapiModel) -> dict[OperandId, bytes | BufferSlice]:
    """The values by operand.

    Raises SerializationError where an operand has two values, or one of another size (none at all
    leaves an optional operand out), or is more than one of input, output and constant.
    """
    values = {value.operand: value.source for value in model.values}
    if len(values) != len(model.values):
        raise SerializationError("an operand has two values")
    for value in model.values:
        source, operand = value.source, model.operands[value.operand]
        length = source.length if isinstance(source, BufferSlice) else len(source)
        n_bytes = operand_bytes(operand)
        if length and n_bytes is not None and length != n_bytes:
            raise SerializationError(
                f"the value of operand {value.operand} ({operand.type.name}) has {length} bytes,"
                f" wanted {n_bytes}"
            )
    for name, ids in (("inputs", model.inputs), ("outputs", model.outputs)):
        if len(set(ids)) != len(ids):
            raise SerializationError(f"an operand stands twice among the {name}")
    both = set(model.inputs) & set(model.outputs) or set(values) & {*model.inputs, *model.outputs}
    if both:
        raise SerializationError(
            f"operand {min(both)} is more than one of input, output and constant"
        )
    return values


MAGIC = b"NNPROFW1"
HEADER_BYTES = 64
ALIGNMENT = 64


@dataclass(frozen=True)
class Weights:
    """Offsets of a region's buffers in its weights file; ``offsets[i]`` is buffer i's."""

    buffers: tuple[bytes, ...] = field(repr=False)
    offsets: tuple[int, ...]
    n_bytes: int
    """Of the whole file."""
    sha256: str
    """Of the file from byte 64 on, in hex."""

    @property
    def header(self) -> bytes:
        """The first 64 bytes of the file."""
        return (MAGIC + bytes.fromhex(self.sha256)).ljust(HEADER_BYTES, b"\0")

    def chunks(self) -> Iterator[bytes]:
        """The file's bytes in turn, without a copy of the buffers."""
        yield self.header
        yield from _body(self.buffers, self.offsets)

    def write(self, path: Path) -> None:
        with path.open("wb") as file:
            file.writelines(self.chunks())


def lay_out(buffers: Sequence[bytes]) -> Weights:
    """The weights file of a region's buffers."""
    places: dict[bytes, int] = {}
    end = HEADER_BYTES
    for buffer in buffers:
        if buffer not in places:
            places[buffer] = end
            end += len(buffer) + -len(buffer) % ALIGNMENT
    offsets = tuple(places[buffer] for buffer in buffers)
    digest = hashlib.sha256()
    for chunk in _body(buffers, offsets):
        digest.update(chunk)
    return Weights(tuple(buffers), offsets, end, digest.hexdigest())


def _body(buffers: Sequence[bytes], offsets: Sequence[int]) -> Iterator[bytes]:
    end = HEADER_BYTES
    for buffer, offset in zip(buffers, offsets, strict=True):
        if offset >= end:  # the first of its equals
            yield buffer
            yield bytes(-len(buffer) % ALIGNMENT)
            end = offset + len(buffer) + -len(buffer) % ALIGNMENT
