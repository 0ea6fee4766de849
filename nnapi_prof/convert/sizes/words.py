"""Where in a serialized model the numbers stand that may depend on sizes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.convert.model import BufferSlice, NnapiModel
from nnapi_prof.nnapi.codes import OperandCode

Words = NDArray[np.int32]
"""A serialized model as it is read: 32-bit words."""

_HEADER, _OPERAND, _VALUE, _OPERATION = 6, 4, 3, 3
_SLICE = 3
_INTEGERS = (OperandCode.INT32, OperandCode.TENSOR_INT32)


def as_words(serialized: bytes) -> Words:
    return np.frombuffer(serialized, dtype="<i4")


@dataclass(frozen=True)
class WordMap:
    """``dims[i]`` is the word where the dimensions of operand i begin, ``free`` the words that are
    a dimension or a constant integer, each with its operand and what it is, for messages.

    ``constants`` has the words of other constants with their operands, ``buffers`` the operand of
    each numbered buffer.
    """

    dims: tuple[int, ...]
    free: dict[int, tuple[int, str]]
    constants: dict[int, int]
    buffers: dict[int, int]


def word_map(model: NnapiModel) -> WordMap:
    """The map of ``serialize(model)``."""
    at = _HEADER + _OPERAND * len(model.operands)
    at += _VALUE * len(model.values) + _OPERATION * len(model.operations)
    dims = []
    free: dict[int, tuple[int, str]] = {}
    constants: dict[int, int] = {}
    buffers: dict[int, int] = {}
    for index, operand in enumerate(model.operands):
        dims.append(at)
        for number in range(len(operand.dims)):
            free[at + number] = (index, f"dimension {number}")
        at += len(operand.dims)
    for value in model.values:
        if isinstance(value.source, BufferSlice):
            buffers[value.source.buffer] = value.operand
            at += _SLICE
            continue
        integers = model.operands[value.operand].type in _INTEGERS
        for number in range(-(-len(value.source) // 4)):
            if integers:
                free[at] = (value.operand, f"element {number}")
            else:
                constants[at] = value.operand
            at += 1
    return WordMap(tuple(dims), free, constants, buffers)
