"""Outputs that no unit computes, constants and inputs as they are, as a model that copies them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from nnapi_prof.convert.model import EmissionError, ModelBuilder, OperandId
from nnapi_prof.convert.region import Region, operand_of
from nnapi_prof.errors import NnapiProfError
from nnapi_prof.graph.program import laid_out
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.nnapi.codes import OperandCode, OperationCode

_TWICE = {
    OperandCode.TENSOR_BOOL8: OperationCode.LOGICAL_OR,
    OperandCode.TENSOR_INT32: OperationCode.MAXIMUM,
}
"""What gives a tensor of a type that NNAPI cannot reshape, where it has that on both sides."""


def _constant(builder: ModelBuilder, numbers: tuple[int, ...]) -> OperandId:
    return builder.constant(np.array(numbers, np.int32))


def convert_copies(
    graph: UnitGraph, constants: Mapping[str, torch.Tensor], level: int
) -> Region | None:
    """One model of feature level ``level`` for all outputs of a graph that no unit computes.

    ``constants`` are those of them that are no inputs; the others are inputs of the region, under
    the same names as the outputs. None where there is no such output, or NNAPI has not the type of
    one of them.
    """
    names = [name for name in dict.fromkeys(graph.outputs) if name not in graph.producer]
    if not names:
        return None
    types = {name: graph.values[name] for name in names}
    builder = ModelBuilder(level)
    entering: list[str] = []
    leaving: list[OperandId] = []
    try:
        for name, type_ in types.items():
            operand = operand_of(type_)
            if operand is None:
                return None
            if name in constants:
                array = laid_out(constants[name], type_).reshape(type_.memory_shape).numpy()
                source = builder.quantised_constant(operand, array)
            else:
                entering.append(name)
                source = builder.input(operand)
            code = _TWICE.get(operand.type)
            sources = (
                [source, source]
                if code
                else [source, builder.constant(np.array(operand.dims, np.int32))]
            )
            (copy,) = builder.add_results(code or OperationCode.RESHAPE, sources, [operand])
            leaving.append(copy)
    except (EmissionError, NnapiProfError):
        return None
    return Region(
        model=builder.finish(leaving),
        blobs=tuple(builder.blobs),
        inputs=tuple(entering),
        outputs=tuple(names),
        input_types=tuple(types[name] for name in entering),
        output_types=tuple(types.values()),
        level=level,
    )
