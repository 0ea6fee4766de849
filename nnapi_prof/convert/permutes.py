"""How much of a converted region only moves data from one dim order to another."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nnapi_prof.convert.converted import ConvertedRegion
from nnapi_prof.convert.serialize import parse
from nnapi_prof.graph.types import DTYPE_BYTES
from nnapi_prof.nnapi.codes import OperandCode, OperationCode

ELEMENT_BYTES = {
    OperandCode.TENSOR_FLOAT32: DTYPE_BYTES["float32"],
    OperandCode.TENSOR_INT32: DTYPE_BYTES["int32"],
    OperandCode.TENSOR_FLOAT16: DTYPE_BYTES["float16"],
}
"""Bytes of an element; all other tensor types that are transposed have one."""


@dataclass(frozen=True, slots=True)
class Permutes:
    """TRANSPOSE operations, and the bytes that they write."""

    count: int = 0
    n_bytes: int = 0

    def __add__(self, other: Permutes) -> Permutes:
        return Permutes(self.count + other.count, self.n_bytes + other.n_bytes)


def permutes(region: ConvertedRegion) -> Permutes:
    """The permutes of a region, the model's own and those that its dim orders need."""
    model = parse(region.serialized)
    moved = [
        model.operands[operation.outputs[0]]
        for operation in model.operations
        if operation.code is OperationCode.TRANSPOSE
    ]
    n_bytes = sum(math.prod(o.dims) * ELEMENT_BYTES.get(o.type, 1) for o in moved)
    return Permutes(len(moved), n_bytes)
