"""Changes of shape and of dim order."""

from __future__ import annotations

import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.registry import Lowering, keeps_order, logical_axes, lowers
from nnapi_prof.graph.types import DimOrder, TensorType

aten = torch.ops.aten


def _lies_as_it_reads(type_: TensorType) -> bool:
    """Whether the elements lie in memory in the order of the logical shape."""
    return keeps_order(type_.shape, logical_axes(type_.dim_order, len(type_.shape)))


@lowers(aten.view.default)
def view(op: Lowering) -> OperandId:
    """Lowers ``view(x, size)``: elements in logical order under a new shape.

    RESHAPE works on memory. Where a channels_last side has only dimensions of size 1 out of
    place, one RESHAPE does it; else a TRANSPOSE stands before or after.
    """
    source = op.type("self")
    if _lies_as_it_reads(source) and _lies_as_it_reads(op.out):
        return op.reshape(op.tensor("self"), op.out.memory_shape)
    x = op.reshape(op.tensor("self", DimOrder.CONTIGUOUS), op.out.shape)
    return op.reorder(x, op.out.shape, DimOrder.CONTIGUOUS, op.out.dim_order)


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
