"""A region in float16: NNAPI computes and stores halves, the boundary stays float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from nnapi_prof.convert.model import (
    Blob,
    BufferSlice,
    ConstantValue,
    NnapiModel,
    Operand,
    OperandId,
    Operation,
)
from nnapi_prof.convert.region import Region
from nnapi_prof.errors import ConversionError
from nnapi_prof.nnapi.codes import OperandCode, OperationCode
from nnapi_prof.nnapi.facts import level_number, why_not_at

HALVES = {
    OperandCode.TENSOR_FLOAT32: OperandCode.TENSOR_FLOAT16,
    OperandCode.FLOAT32: OperandCode.FLOAT16,
}
FIRST_LEVEL = 3
"""The feature level (API 29) that brought float16 tensors, and CAST."""


def to_float16(region: Region) -> Region:
    """The region with float16 in place of float32 everywhere but at its inputs and outputs.

    Given:
        %y:float32 = CONV_2D(%x:float32 input, %w:float32 constant, ...)      %y is an output
    Result:
        %x':float16 = CAST(%x), %y':float16 = CONV_2D(%x', %w':float16 constant, ...),
        %y:float32 = CAST(%y')

    Each operation rounds its result to 11 significant bits, and values beyond 65504 become
    infinite. ``relaxed`` allows a driver as much with float32 operands; here it is certain.
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
    """One model on its way to float16."""

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
