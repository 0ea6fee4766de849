"""Bools that enter a region through PyTorch's runtime, which hands NNAPI none: they are int32."""

from __future__ import annotations

import struct
from dataclasses import replace

from nnapi_prof.convert.converted import ConvertedRegion
from nnapi_prof.convert.model import NnapiModel, Operand, OperandId, Operation, Value
from nnapi_prof.convert.serialize import parse, serialize
from nnapi_prof.nnapi.codes import OperandCode, OperationCode


def bools_as_integers(region: ConvertedRegion) -> ConvertedRegion:
    """The region with int32 in the place of its bool inputs; itself where it has none.

    Given:
        %y = SELECT(%m:bool input, ...)
    Result:
        %m:bool = NOT_EQUAL(%m':int32 input, 0), %y = SELECT(%m, ...)

    NOT_EQUAL came with level 3, as operations on bools did. ``input_types`` still say bool: what
    the graph's values are.
    """
    model = parse(region.serialized)
    entering = [
        index for index in model.inputs if model.operands[index].type is OperandCode.TENSOR_BOOL8
    ]
    if not entering:
        return region
    zero = OperandId(len(model.operands))
    given = {index: OperandId(zero + 1 + i) for i, index in enumerate(entering)}
    added = [replace(model.operands[i], type=OperandCode.TENSOR_INT32) for i in entering]
    compared = [
        Operation(OperationCode.NOT_EQUAL, (given[index], zero), (index,)) for index in entering
    ]
    changed = NnapiModel(
        operands=(*model.operands, Operand(OperandCode.TENSOR_INT32, (1,)), *added),
        values=(*model.values, Value(zero, struct.pack("<i", 0))),
        operations=(*compared, *model.operations),
        inputs=tuple(given.get(index, index) for index in model.inputs),
        outputs=model.outputs,
    )
    return replace(
        region,
        serialized=serialize(changed),
        operations=tuple(operation.code.name for operation in changed.operations),
    )
