"""Conversions between floats and quantised integers where they stand alone."""

from __future__ import annotations

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.registry import Lowering, lowers
from nnapi_prof.graph.quantisation import (
    DEQUANTIZE,
    QUANTIZE,
    same_quantisation,
    stated_quantisation,
)
from nnapi_prof.nnapi.codes import OperationCode


@lowers(QUANTIZE)
def quantize(op: Lowering) -> OperandId:
    """Lowers ``quantize_per_tensor(x) -> integers`` of the same shape and dim order."""
    _require_whole_range(op)
    op.require_level(3, "QUANTIZE")
    return op.emit_as([op.out], OperationCode.QUANTIZE, [op.tensor("input", op.out.dim_order)])[0]


@lowers(DEQUANTIZE)
def dequantize(op: Lowering) -> OperandId:
    """Lowers ``dequantize_per_tensor(integers) -> x`` of the same shape and dim order."""
    _require_whole_range(op)
    known, stated = op.type("input"), stated_quantisation(op.node)
    if known.quant is None or stated is None or not same_quantisation(known.quant, stated):
        op.refuse(f"reads {known} as {stated}")
    x = op.tensor("input", op.out.dim_order)
    return op.emit_as([op.out], OperationCode.DEQUANTIZE, [x])[0]


def _require_whole_range(op: Lowering) -> None:
    op.require(
        stated_quantisation(op.node) is not None,
        f"integers of {op.arg('dtype')} from {op.arg('quant_min')} to {op.arg('quant_max')}, "
        "NNAPI's quantised types are uint8 and int8 over their whole range",
    )
