"""Changes of shape and of dim order."""

from __future__ import annotations

import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.registry import Lowering, logical_axes, lowers

aten = torch.ops.aten


@lowers(aten.view.default, aten.reshape.default)
def view(op: Lowering) -> OperandId:
    """Lowers ``view(x, size)``: elements in logical order under a new shape.

    torch's two spellings differ in whether they may copy, which is nothing to NNAPI.
    """
    return op.relay(op.tensor("self"), op.type("self"), op.out)


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
