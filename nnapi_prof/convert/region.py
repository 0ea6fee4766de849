"""Describe a region as an NNAPI model, the converter's result; serialise it; convert it to float16.

The bytes are PyTorch's serialized NNAPI model, version 1 (PROTOCOL.md, section 4): little-endian
32-bit words throughout. Stock PyTorch (``torch.classes._nnapi.Compilation``) and the device agent
read the same bytes. PyTorch's format cannot express a model with scales for each channel. Such a
model has version 2, with a table of the scales at its end, and stock PyTorch refuses it.

In float16 a region computes and stores halves; its boundary stays float32.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from nnapi_prof.convert import (
    Blob,
    BufferSlice,
    ConstantValue,
    NnapiModel,
    Operand,
    OperandId,
    Operation,
)
from nnapi_prof.errors import ConversionError
from nnapi_prof.graph import DTYPE_BYTES, Quantisation, TensorType
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.nnapi import level_number, why_not_at
from nnapi_prof.nnapi.codes import OperandCode, OperationCode

FORMAT_VERSION = 1
CHANNEL_VERSION = 2
"""Version of models that end with a table of channel scales."""
SOURCE_IMMEDIATE = 0
SOURCE_NUMBERED_BUFFER = 2

HEADER = struct.Struct("<6i")
OPERAND = struct.Struct("<iIfi")
VALUE = struct.Struct("<iiI")
OPERATION = struct.Struct("<iII")
SLICE = struct.Struct("<3I")


def _pack_words(values: Iterable[int]) -> bytes:
    items = tuple(values)
    return struct.pack(f"<{len(items)}I", *items)


def serialize(model: NnapiModel) -> bytes:
    """Returns the bytes of a model, without the numbered buffers that its values name."""
    sources = [
        SLICE.pack(v.source.buffer, v.source.offset, v.source.length)
        if isinstance(v.source, BufferSlice)
        else v.source
        for v in model.values
    ]
    channels = [(i, o.channels) for i, o in enumerate(model.operands) if o.channels is not None]
    parts = [
        HEADER.pack(
            CHANNEL_VERSION if channels else FORMAT_VERSION,
            len(model.operands),
            len(model.values),
            len(model.operations),
            len(model.inputs),
            len(model.outputs),
        )
    ]
    parts += [OPERAND.pack(o.type, len(o.dims), o.scale, o.zero_point) for o in model.operands]
    for value, source in zip(model.values, sources, strict=True):
        numbered = isinstance(value.source, BufferSlice)
        kind = SOURCE_NUMBERED_BUFFER if numbered else SOURCE_IMMEDIATE
        parts.append(VALUE.pack(value.operand, kind, len(source)))
    parts += [OPERATION.pack(o.code, len(o.inputs), len(o.outputs)) for o in model.operations]
    parts += [_pack_words(operand.dims) for operand in model.operands]
    parts += [source + bytes(-len(source) % 4) for source in sources]
    parts += [_pack_words(o.inputs + o.outputs) for o in model.operations]
    parts += [_pack_words(model.inputs), _pack_words(model.outputs)]
    if channels:
        parts.append(_pack_words([len(channels)]))
    for index, channel_scales in channels:
        parts.append(_pack_words([index, channel_scales.dim, len(channel_scales.scales)]))
        parts.append(struct.pack(f"<{len(channel_scales.scales)}f", *channel_scales.scales))
    return b"".join(parts)


OPERAND_CODES = {
    "float32": OperandCode.TENSOR_FLOAT32,
    "float16": OperandCode.TENSOR_FLOAT16,
    "int32": OperandCode.TENSOR_INT32,
    "bool": OperandCode.TENSOR_BOOL8,
}
"""Element type in a device's memory -> operand code."""

QUANTISED_CODES = {
    "uint8": OperandCode.TENSOR_QUANT8_ASYMM,
    "int8": OperandCode.TENSOR_QUANT8_ASYMM_SIGNED,
}
"""Type of integers that stand for real numbers -> operand code. Boundaries have no other types."""


def operand_code(type_: TensorType) -> OperandCode | None:
    """Returns the operand type of a value, or None for one that NNAPI does not have."""
    codes = OPERAND_CODES if type_.quant is None else QUANTISED_CODES
    return codes.get(type_.device_dtype)


def operand_of(type_: TensorType) -> Operand | None:
    """Returns the operand of a value, or None where NNAPI does not have its type."""
    code = operand_code(type_)
    if code is None:
        return None
    if type_.quant is None:
        return Operand(code, type_.memory_shape)
    return quantised_operand(code, type_.memory_shape, type_.quant)


def quantised_operand(code: OperandCode, dims: tuple[int, ...], quant: Quantisation) -> Operand:
    """Returns an operand of quantised integers. Its scale is rounded to float32, as in NNAPI."""
    return Operand(code, dims, float(np.float32(quant.scale)), quant.zero_point)


def alike(a: Operand, b: Operand) -> bool:
    """Returns whether two operands have the same type, scale (to 1e-6) and zero point."""
    close = abs(a.scale - b.scale) <= 1e-6 * abs(b.scale)
    return a.type is b.type and close and a.zero_point == b.zero_point


@dataclass(frozen=True)
class Region:
    """One NNAPI model and its constants.

    ``blobs[i]`` is numbered buffer i of the model. ``inputs`` and ``outputs`` name the graph's
    values in the model's order; the shape of an operand is its value's
    :attr:`TensorType.memory_shape`.
    """

    model: NnapiModel = field(repr=False)
    blobs: tuple[Blob, ...] = field(repr=False)
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    input_types: tuple[TensorType, ...]
    output_types: tuple[TensorType, ...]
    level: int
    """Feature level that the model was lowered for, as a device reports it (27, 28, ...)."""
    in_floats: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Quantised value of the graph that is computed in float32, between DEQUANTIZE and QUANTIZE ->
    the rule that a quant8 operation would break."""

    @property
    def operations(self) -> tuple[str, ...]:
        """Names of the NNAPI operations, in order."""
        return tuple(operation.code.name for operation in self.model.operations)

    @property
    def buffers(self) -> tuple[bytes, ...]:
        """Bytes of the numbered buffers, in NNAPI's layout."""
        return tuple(blob.data for blob in self.blobs)

    @cached_property
    def serialized(self) -> bytes:
        """Model in the format of PROTOCOL.md, section 4, for the wire and the disk."""
        return serialize(self.model)


def units_in_floats(graph: UnitGraph, regions: Iterable[Region]) -> dict[int, str]:
    """Returns the index of each quantised unit that some region computes in float32, with the rule
    that a quant8 operation would break."""
    return {
        graph.producer[name]: rule for region in regions for name, rule in region.in_floats.items()
    }


# How much data a converted region only moves from one dim order to another.


ELEMENT_BYTES = {
    OperandCode.TENSOR_FLOAT32: DTYPE_BYTES["float32"],
    OperandCode.TENSOR_INT32: DTYPE_BYTES["int32"],
    OperandCode.TENSOR_FLOAT16: DTYPE_BYTES["float16"],
}
"""Bytes of an element; every other tensor type that is transposed has one."""


@dataclass(frozen=True, slots=True)
class Permutes:
    """Number of TRANSPOSE operations, and the bytes that they write."""

    count: int = 0
    n_bytes: int = 0

    def __add__(self, other: Permutes) -> Permutes:
        return Permutes(self.count + other.count, self.n_bytes + other.n_bytes)


def permutes(region: Region) -> Permutes:
    """Returns the permutes of a region: the model's own and those that its dim orders need."""
    model = region.model
    results = [
        model.operands[operation.outputs[0]]
        for operation in model.operations
        if operation.code is OperationCode.TRANSPOSE
    ]
    n_bytes = sum(math.prod(o.dims) * ELEMENT_BYTES.get(o.type, 1) for o in results)
    return Permutes(len(results), n_bytes)


# Models that grow when they are converted: recurrences unrolled step by step, rows of attention,
# volumes as slices. Each NNAPI operation has to be compiled and takes room in the file.


MANY, TIMES = 200, 4
"""Fewest NNAPI operations that cause a note, if they are also TIMES the model's own nodes."""
VERY_MANY = 1000
"""Fewest NNAPI operations that always cause a note: drivers have limits, and compile each one."""


def growth_note(
    graph: UnitGraph, converted: Iterable[tuple[Iterable[int], int]], where: str = "the model"
) -> str | None:
    """Returns a note on converted regions, each given by its units and its number of NNAPI
    operations; None where they hardly grew. ``where`` names what the regions belong to."""
    units: list[int] = []
    n_operations = 0
    for region, count in converted:
        units += region
        n_operations += count
    n_nodes = sum(len(graph.units[unit].nodes) for unit in units)
    grew = n_operations >= MANY and n_operations >= TIMES * n_nodes
    if not grew and n_operations < VERY_MANY:
        return None
    kinds = dict.fromkeys(graph.units[unit].full_operation for unit in units)
    some = f" ({', '.join(kinds)})" if len(kinds) <= 3 else ""
    return (
        f"{where} becomes {n_operations:,} NNAPI operations, for {n_nodes:,} of its own{some}: "
        "compiling, first runs and files grow with them, and a driver may refuse so many"
    )


HALVES = {
    OperandCode.TENSOR_FLOAT32: OperandCode.TENSOR_FLOAT16,
    OperandCode.FLOAT32: OperandCode.FLOAT16,
}
FIRST_LEVEL = 3
"""Feature level (API 29) that brought float16 tensors, and CAST."""


def to_float16(region: Region) -> Region:
    """Returns the region with float16 for float32 everywhere except at its inputs and outputs.

    Given:
        %y:float32 = CONV_2D(%x:float32 input, %w:float32 constant, ...)      %y is an output
    Result:
        %x':float16 = CAST(%x), %y':float16 = CONV_2D(%x', %w':float16 constant, ...),
        %y:float32 = CAST(%y')

    Each operation rounds its result to 11 significant bits, and values beyond 65504 become
    infinite. ``relaxed`` permits a driver to do the same to float32 operands; here it is certain.
    Raises ConversionError below level 3, where an operation does not take float16, and where a
    constant does not fit.
    """
    if level_number(region.level) < FIRST_LEVEL:
        raise ConversionError(
            f"float16 needs API 29 (feature level 3), the region is for API {region.level}"
        )
    halving = _Halving(region.model, region.blobs)
    halved = halving.model()
    for operation in halved.operations:
        _check_operation(operation, halved, level_number(region.level))
    return replace(region, model=halved, blobs=tuple(halving.blobs))


def _check_operation(operation: Operation, model: NnapiModel, level: int) -> None:
    operands = [model.operands[operand] for operand in operation.inputs]
    reason = why_not_at(
        operation.code, [o.type for o in operands], [len(o.dims) for o in operands], level
    )
    if reason is not None:
        raise ConversionError(f"the region cannot be in float16: {reason}")


@dataclass
class _Halving:
    """Conversion of one model to float16."""

    source: NnapiModel
    source_blobs: Sequence[Blob]
    blobs: list[Blob] = field(default_factory=list)

    def model(self) -> NnapiModel:
        source = self.source
        operands = [self._half(operand) for operand in source.operands]
        boundary: dict[OperandId, OperandId] = {}
        for index in (*source.inputs, *source.outputs):
            if source.operands[index].type in HALVES and index not in boundary:
                operands.append(source.operands[index])
                boundary[index] = OperandId(len(operands) - 1)
        into = [
            Operation(OperationCode.CAST, (boundary[i],), (i,))
            for i in source.inputs
            if i in boundary
        ]
        out_of = [
            Operation(OperationCode.CAST, (i,), (boundary[i],))
            for i in dict.fromkeys(source.outputs)
            if i in boundary and i not in source.inputs
        ]
        return NnapiModel(
            tuple(operands),
            tuple(map(self._value, source.values)),
            (*into, *source.operations, *out_of),
            tuple(boundary.get(i, i) for i in source.inputs),
            tuple(boundary.get(i, i) for i in source.outputs),
        )

    def _half(self, operand: Operand) -> Operand:
        return replace(operand, type=HALVES.get(operand.type, operand.type))

    def _value(self, value: ConstantValue) -> ConstantValue:
        source, operand = value.source, value.operand
        floats = self.source.operands[operand].type in HALVES

        def halved(data: bytes) -> bytes:
            return _halve(data, operand) if floats else data

        if isinstance(source, bytes):
            return ConstantValue(operand, halved(source))
        blob = self.source_blobs[source.buffer]
        start, end = source.offset, source.offset + source.length
        blob = blob.derived(f"{floats} {start} {end}", lambda data: halved(data[start:end]))
        self.blobs.append(blob)
        return ConstantValue(operand, BufferSlice(len(self.blobs) - 1, 0, len(blob.data)))


def _halve(data: bytes, operand: OperandId) -> bytes:
    wide = np.frombuffer(data, "<f4")
    with np.errstate(over="ignore"):
        narrow = wide.astype("<f2")
    lost = np.isinf(narrow) & np.isfinite(wide)
    if lost.any():
        raise ConversionError(
            f"the region cannot be in float16: a constant (operand {operand}) holds "
            f"{wide[lost][0]:g}, float16 ends at 65504"
        )
    return narrow.tobytes()
