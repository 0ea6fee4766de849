"""Export a region as JSON, for people and for other programs.

``data/region.schema.json`` describes the format (JSON Schema, draft 2020-12). Short constants are
in the text, long ones in a weights file beside it. The weights file, byte by byte, little-endian::

    0   8   b"NNPROFW1"
    8  32   SHA-256 of all bytes from 64 on
    40 24   zeros
    64      the region's buffers, each from a multiple of 64 on, zeros between them

Equal buffers are stored once. A program that maps the file compares 40 bytes to check that it
belongs to the region, and gives NNAPI the slices in place.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nnapi_prof.convert import BufferSlice, NnapiModel, Operand, OperandId
from nnapi_prof.convert.region import Region
from nnapi_prof.errors import SerializationError
from nnapi_prof.graph import TensorType
from nnapi_prof.graph.plan import Preference
from nnapi_prof.graph.unit import type_to_json
from nnapi_prof.nnapi import TENSOR_CODES
from nnapi_prof.nnapi.codes import OperandCode

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
"""Operand type -> the type of its elements in memory. A MODEL has none."""


def element_bytes(code: OperandCode) -> int:
    """Returns the bytes of one element; 1 for a MODEL, whose value is in none of our files."""
    return ELEMENTS[code].itemsize if code in ELEMENTS else 1


def operand_bytes(operand: Operand) -> int | None:
    """Returns the bytes of an operand's value; None where a dimension is unknown."""
    if operand.type in TENSOR_CODES and (not operand.dims or 0 in operand.dims):
        return None
    return math.prod(operand.dims) * element_bytes(operand.type)


def float32(value: float) -> float:
    """Returns the float32 nearest to a number, as a Python float."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def short_float32(value: float) -> float:
    """Returns the number with the fewest digits whose float32 is ``value``, if there is one."""
    short = float(str(np.float32(value)))
    return short if float32(short) == value else value


def value_to_json(code: OperandCode, source: bytes | BufferSlice) -> dict[str, Any]:
    """Returns ``{"numbers": [...]}``, ``{"hex": ...}``, or ``buffer``, ``offset`` and ``length``.

    The last are those of a slice. Numbers are used where they give back the same bytes, hex
    otherwise (NaN, cut elements).
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
    """Raises SerializationError where a slice is outside its buffer; ``lengths`` has the sizes."""
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
    """Returns the values by operand.

    Raises SerializationError where an operand has two values or a value of another size (an empty
    one leaves an optional operand out), or is more than one of input, output and constant.
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
    """Layout of a region's weights file; ``offsets[i]`` is the offset of buffer i."""

    buffers: tuple[bytes, ...] = field(repr=False)
    offsets: tuple[int, ...]
    n_bytes: int
    """Size of the whole file, in bytes."""
    sha256: str
    """SHA-256 of the file from byte 64 on, in hex."""

    @property
    def header(self) -> bytes:
        """First 64 bytes of the file."""
        return (MAGIC + bytes.fromhex(self.sha256)).ljust(HEADER_BYTES, b"\0")

    def chunks(self) -> Iterator[bytes]:
        """Yields the file's bytes in order, without a copy of the buffers."""
        yield self.header
        yield from _body(self.buffers, self.offsets)

    def write(self, path: Path) -> None:
        with path.open("wb") as file:
            file.writelines(self.chunks())


def lay_out(buffers: Sequence[bytes]) -> Weights:
    """Returns the layout of the weights file of these buffers."""
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
        if offset >= end:  # the first of equal buffers
            yield buffer
            yield bytes(-len(buffer) % ALIGNMENT)
            end = offset + len(buffer) + -len(buffer) % ALIGNMENT


FORMAT = "nnapi-prof-region"
VERSION = 1
SCHEMA = Path(__file__).resolve().parent / "data" / "region.schema.json"


@dataclass(frozen=True)
class RegionDescription:
    """Region with the options to compile it with."""

    region: Region
    preference: Preference = Preference.SUSTAINED_SPEED
    relaxed: bool = False
    device: str | None = None
    """Name of the NNAPI device; None leaves the choice to NNAPI."""


def to_json(described: RegionDescription, weights_file: str) -> tuple[str, Weights]:
    """Returns the text, and the weights for the file ``weights_file`` beside it (not needed where
    there are no buffers). Raises SerializationError as :func:`model_to_json` does."""
    region = described.region
    weights = lay_out(region.buffers)
    model = region.model
    data = {
        "format": FORMAT,
        "version": VERSION,
        "level": region.level,
        "preference": described.preference.short,
        "relaxed": described.relaxed,
        "device": described.device,
        "inputs": _boundary(region.inputs, model.inputs, region.input_types),
        "outputs": _boundary(region.outputs, model.outputs, region.output_types),
        "weights": None,
        "buffers": [
            {"offset": offset, "length": len(buffer)}
            for offset, buffer in zip(weights.offsets, region.buffers, strict=True)
        ],
        **model_to_json(model),
    }
    if region.buffers:
        data["weights"] = {
            "file": weights_file,
            "bytes": weights.n_bytes,
            "sha256": weights.sha256,
        }
    return _json_text(data), weights


def model_to_json(model: NnapiModel) -> dict[str, Any]:
    """Returns ``operands`` and ``operations`` of the description.

    A reader gets an equal model, with its values in the order of their operands (the converter's
    own order). Raises SerializationError where NNAPI would refuse the model's operands: one with
    two values, one that is more than one of input, output and constant, a scale that is not finite,
    or channel scales whose number is not the dimension's.
    """
    values = require_consistent(model)
    lifetimes = {
        **dict.fromkeys(model.inputs, "input"),
        **dict.fromkeys(model.outputs, "output"),
        **dict.fromkeys(values, "constant"),
    }
    operands = []
    for index, operand in enumerate(map(_checked, model.operands)):
        row: dict[str, Any] = {
            "type": operand.type.name,
            "dims": list(operand.dims),
            "scale": short_float32(operand.scale),
            "zero_point": operand.zero_point,
            "lifetime": lifetimes.get(OperandId(index), "temporary"),
        }
        if operand.channels is not None:
            scales = [short_float32(scale) for scale in operand.channels.scales]
            row["channel_scales"] = {"dim": operand.channels.dim, "scales": scales}
        if index in values:
            row["value"] = value_to_json(operand.type, values[OperandId(index)])
        operands.append(row)
    operations = [
        {"name": o.code.name, "inputs": list(o.inputs), "outputs": list(o.outputs)}
        for o in model.operations
    ]
    return {"operands": operands, "operations": operations}


def _checked(operand: Operand) -> Operand:
    """Returns the operand. Raises SerializationError where its scales are impossible."""
    if not math.isfinite(operand.scale):
        raise SerializationError(f"an operand has the scale {operand.scale}, which JSON cannot say")
    channels = operand.channels
    if channels is None:
        return operand
    if operand.type is not OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL:
        raise SerializationError(f"{operand.type.name} has no scales for each channel")
    n = operand.dims[channels.dim] if channels.dim < len(operand.dims) else 0
    if n != len(channels.scales):
        raise SerializationError(
            f"{len(channels.scales)} scales along dimension {channels.dim} of {operand.dims}"
        )
    if not all(math.isfinite(scale) and scale > 0 for scale in channels.scales):
        raise SerializationError("scales of channels are above 0 and finite")
    return operand


def _boundary(
    names: Sequence[str], operands: Sequence[int], types: Sequence[TensorType]
) -> list[dict[str, Any]]:
    return [
        {"name": name, "operand": operand, **type_to_json(type_)}
        for name, operand, type_ in zip(names, operands, types, strict=True)
    ]


def _json_text(data: Mapping[str, Any]) -> str:
    """Returns JSON with a line for each member and each row of a list."""
    lines = []
    for name, value in data.items():
        rendered = json.dumps(value, allow_nan=False)
        if isinstance(value, list) and value:
            rows = ",\n".join(f"  {json.dumps(row, allow_nan=False)}" for row in value)
            rendered = f"[\n{rows}\n ]"
        lines.append(f" {json.dumps(name)}: {rendered}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
