"""Elements along one axis in any constant order: what flips, rolls, pads and indices come to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.slicing import concatenate, slice_axis
from nnapi_prof.convert.registry import Lowering
from nnapi_prof.nnapi.codes import OperandCode, OperationCode

FEW_PIECES = 4
"""Up to here slices and a concatenation stand for a GATHER: more drivers take them."""
MAX_PIECES = 64
"""Slices at most where there is no GATHER (level 2)."""


def take(op: Lowering, x: OperandId, axis: int, indices: Sequence[int]) -> OperandId:
    """``x`` with the elements ``indices`` (each inside) of an axis in memory, in that order.

    One slice, a few slices and a concatenation, a GATHER (from level 3 on), or many slices.
    """
    size = op.dims(x)[axis]
    listed = [int(index) for index in indices]
    if listed == list(range(size)):
        return x
    runs = _runs(listed)
    forward = all(run.step > 0 for run in runs)
    is_integer = op.model.operand(x).type is OperandCode.TENSOR_INT32
    sliced = op.level >= 2 and not (is_integer and len(runs) > 1)
    if forward and sliced and len(runs) <= FEW_PIECES:
        return _pieces(op, x, axis, runs)
    if op.level >= 3:
        dims = list(op.dims(x))
        dims[axis] = len(listed)
        tensors = [x, op.model.scalar(axis), op.constant(np.array(listed, np.int32))]
        return op.emit(OperationCode.GATHER, tensors, dims=dims)
    op.require_level(2, f"taking {len(listed)} of {size} elements (by STRIDED_SLICE)")
    op.require(
        len(runs) <= MAX_PIECES,
        f"{len(runs)} slices in place of GATHER (level 3), at most {MAX_PIECES} are made",
    )
    return _pieces(op, x, axis, runs)


def _runs(indices: Sequence[int]) -> list[range]:
    """Few arithmetic progressions, found from the front, that give the indices in order."""
    runs: list[range] = []
    start = 0
    while start < len(indices):
        stop, step = start + 1, 1
        if stop < len(indices) and indices[stop] != indices[start]:
            step = indices[stop] - indices[start]
            while stop < len(indices) and indices[stop] - indices[stop - 1] == step:
                stop += 1
            if stop == start + 2 < len(indices) and step != 1:
                stop, step = start + 1, 1  # two at any distance: the second begins another run
        runs.append(range(indices[start], indices[stop - 1] + (1 if step > 0 else -1), step))
        start = stop
    return runs


def _pieces(op: Lowering, x: OperandId, axis: int, runs: Sequence[range]) -> OperandId:
    parts = [slice_axis(op, x, axis, run.start, run.stop, run.step) for run in runs]
    return concatenate(op, parts, axis)
