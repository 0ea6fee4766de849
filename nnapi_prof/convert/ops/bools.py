"""Moves of bools: NNAPI reshapes, slices and joins numbers only, and so bools go as numbers."""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import fx

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.formula import Value
from nnapi_prof.convert.registry import ENTRIES, Lowerer, Lowering, logical_axes
from nnapi_prof.graph.node import type_of
from nnapi_prof.graph.types import DimOrder
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten

MOVES = (
    aten.view.default,
    aten.reshape.default,
    aten.permute.default,
    aten.clone.default,
    aten.slice.Tensor,
    aten.cat.default,
    aten.expand.default,
    aten.repeat.default,
    aten.flip.default,
    aten.roll.default,
    aten.index_select.default,
    aten.gather.default,
)
"""Operators that copy elements to other places and compute nothing."""


class AsNumbers(Lowering):
    """A lowering's surroundings in which every bool tensor is a float32 one of 1 and 0."""

    def __init__(self, op: Lowering) -> None:
        super().__init__(op.node, op.model, op._values)

    def tensor(self, value: str | fx.Node, order: DimOrder | None = None) -> OperandId:
        node = self._node(value)
        known = type_of(node)
        if known.dtype != "bool":
            return super().tensor(value, order)
        order = order or known.dim_order
        if node.name not in self._values:
            array = self.any_array(node).astype(np.float32)
            return self.constant(array.transpose(logical_axes(order, array.ndim)))
        numbers = Value(self, self._values[node.name]).cast("float32")
        return self.reorder(numbers.operand, known.shape, known.dim_order, order)


def broadcast_bools(op: Lowering, name: str) -> Value:
    """A computed bool tensor that is to broadcast against the result. Where it has to be moved to
    the result's dim order, it goes there as a number."""
    known = op.type(name)
    stays = op.out.dim_order is DimOrder.CONTIGUOUS or len(known.shape) == 4
    if stays and (len(known.shape) != 4 or known.dim_order is op.out.dim_order):
        return Value(op, op.broadcast(name))
    return Value(op, AsNumbers(op).broadcast(name)).cast("bool")


def carry_bools() -> None:
    """Lets the lowerings of MOVES, as far as there are any, take bools too."""
    for target in MOVES:
        if target in ENTRIES:
            ENTRIES[target] = _carrying(ENTRIES[target])


def _carrying(lowerer: Lowerer) -> Lowerer:
    @functools.wraps(lowerer)
    def carry(op: Lowering) -> OperandId | tuple[OperandId, ...]:
        if op.out.dtype != "bool":
            return lowerer(op)
        moved = lowerer(AsNumbers(op))
        assert not isinstance(moved, tuple), f"{op.target} makes one tensor"
        return Value(op, moved).is_(OperationCode.NOT_EQUAL, 0).operand

    return carry
