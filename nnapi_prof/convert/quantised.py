"""An operation between dequantize and quantize nodes as one quant8 operation.

The lowering of the float operation runs as for floats. :class:`QuantisedLowering` gives it the
integers where it asks for tensors, turns the constants it writes into integers, and gives each
result the scale and zero point that NNAPI's rules demand. What breaks a rule ends the attempt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import fx

from nnapi_prof.convert.lowered import lower_node, run_lowering
from nnapi_prof.convert.model import EmissionError, ModelBuilder, OperandId
from nnapi_prof.convert.quantised_lowering import Pads, QuantisedLowering
from nnapi_prof.convert.quantised_rules import ROUNDS, SAME_AS_INPUT, ZERO_PADS
from nnapi_prof.convert.registry import Lowering
from nnapi_prof.errors import UnsupportedOp
from nnapi_prof.graph.node import makes_tensor, op_name, type_of
from nnapi_prof.graph.quantisation import MOVES, QuantisedUnit
from nnapi_prof.graph.types import TensorType
from nnapi_prof.nnapi.codes import FuseCode, OperationCode


def lower_quantised(
    unit: QuantisedUnit,
    model: ModelBuilder,
    values: Mapping[str, OperandId],
    activation: FuseCode,
    pad: Pads,
) -> OperandId:
    """The operand of the unit's result.

    One quant8 operation where NNAPI has it and its rules hold; else the float operation between
    DEQUANTIZE and QUANTIZE, which takes level 3; ``model.in_floats`` then has the rule that was
    broken. Raises UnsupportedOp with both reasons.
    """
    mark = model.mark()
    try:
        return _in_integers(unit, model, values, activation, pad)
    except (UnsupportedOp, EmissionError) as refusal:
        why = refusal.reason if isinstance(refusal, UnsupportedOp) else str(refusal)
    model.back_to(mark)
    try:
        found = _in_floats(unit, model, values, activation, pad)
    except UnsupportedOp as refusal:
        model.back_to(mark)
        name, op = unit.core.name, op_name(unit.core.target)
        reason = f"as a quant8 operation: {why}; in float32 between conversions: {refusal.reason}"
        raise UnsupportedOp(name, op, reason) from refusal
    model.in_floats[unit.quantize.name] = why
    return found


def _in_integers(
    unit: QuantisedUnit,
    model: ModelBuilder,
    values: Mapping[str, OperandId],
    activation: FuseCode,
    pad: Pads,
) -> OperandId:
    if unit.core is unit.dequantize[-1]:
        raise UnsupportedOp(unit.core.name, op_name(unit.core.target), "NNAPI has no requantising")
    op = QuantisedLowering(unit, model, values, activation, pad)
    result = run_lowering(op)
    op.require_wanted(result)
    return result


def _in_floats(
    unit: QuantisedUnit,
    model: ModelBuilder,
    values: Mapping[str, OperandId],
    activation: FuseCode,
    pad: Pads,
) -> OperandId:
    known = dict(values)
    for node in unit.dequantize:
        known[node.name] = lower_node(Lowering(node, model, known))
    if unit.core not in unit.dequantize:
        op = Lowering(unit.core, model, known, activation, unit.pad, pad)
        known[unit.core.name] = lower_node(op)
        if unit.activation is not None:
            known[unit.activation.name] = known[unit.core.name]
    return lower_node(Lowering(unit.quantize, model, known))


class MovingLowering(Lowering):
    """A Lowering of an operator that moves quantised integers: what would compute is refused."""

    def emit(
        self,
        code: OperationCode,
        tensors: Sequence[OperandId | NDArray[Any]],
        scalars: Sequence[bool | int | float] = (),
        dims: Sequence[int] | None = None,
    ) -> OperandId:
        self._require_move(code, tensors)
        return super().emit(code, tensors, scalars, dims)

    def emit_as(
        self,
        types: Sequence[TensorType],
        code: OperationCode,
        tensors: Sequence[OperandId | NDArray[Any]],
        scalars: Sequence[bool | int | float] = (),
    ) -> tuple[OperandId, ...]:
        self._require_move(code, tensors)
        types = [replace(known, dtype=self.out.dtype, quant=self.out.quant) for known in types]
        return super().emit_as(types, code, tensors, scalars)

    def _require_move(
        self, code: OperationCode, tensors: Sequence[OperandId | NDArray[Any]]
    ) -> None:
        moves = code in SAME_AS_INPUT - ROUNDS - ZERO_PADS or code is OperationCode.CONCATENATION
        floats = any(isinstance(t, np.ndarray) and t.dtype == np.float32 for t in tensors)
        self.require(moves and not floats, f"{code.name} does more than move quantised integers")


def moves_integers(node: fx.Node) -> bool:
    """Whether a node is one for :class:`MovingLowering`."""
    return node.target in MOVES and makes_tensor(node) and type_of(node).quant is not None
