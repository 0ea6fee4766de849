"""Changes of shape and of dim order."""

from __future__ import annotations

import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.registry import Lowering, logical_axes, lowers
from nnapi_prof.graph.types import MAX_RANK
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten


@lowers(aten.view.default, aten.reshape.default)
def view(op: Lowering) -> OperandId:
    """Lowers ``view(x, size)``: elements in logical order under a new shape.

    torch's two spellings differ in whether they may copy, which is nothing to NNAPI. RESHAPE takes
    integers from level 6 on only: before, new axes of size 1 come by EXPAND_DIMS.
    """
    rank = max(len(op.out.shape), len(op.type("self").shape))
    if op.out.device_dtype == "int32" and op.level < 6 and rank <= MAX_RANK:
        places = _new_axes(op.type("self").shape, op.out.shape)
        if places is not None:
            return _expanded(op, op.tensor("self"), places)
    return op.relay(op.tensor("self"), op.type("self"), op.out)


def _new_axes(shape: tuple[int, ...], wanted: tuple[int, ...]) -> list[int] | None:
    """Where axes of size 1 turn ``shape`` into ``wanted``, ascending; None where more changes."""
    places, at = [], 0
    for axis, size in enumerate(wanted):
        if at < len(shape) and shape[at] == size:
            at += 1
        elif size == 1:
            places.append(axis)
        else:
            return None
    return places if at == len(shape) and places and shape else None


def _expanded(op: Lowering, x: OperandId, places: list[int]) -> OperandId:
    for axis in places:
        dims = op.dims(x)
        shape = (*dims[:axis], 1, *dims[axis:])
        x = op.emit(OperationCode.EXPAND_DIMS, [x], [axis], dims=shape)
    return x


@lowers(aten.permute.default)
def permute(op: Lowering) -> OperandId:
    """Lowers ``permute(x, dims)``: axis i of the result is axis dims[i] of x."""
    source = op.type("self")
    rank = len(source.shape)
    dims = [axis % rank for axis in op.arg("dims")]
    have = logical_axes(source.dim_order, rank)
    want = logical_axes(op.out.dim_order, rank)
    return op.transpose(op.tensor("self"), [have.index(dims[axis]) for axis in want])


@lowers(aten.clone.default)
def clone(op: Lowering) -> OperandId:
    """Lowers a change of dim order: ``[N, C, H, W]`` in memory to ``[N, H, W, C]`` or back."""
    return op.tensor("self", op.out.dim_order)
