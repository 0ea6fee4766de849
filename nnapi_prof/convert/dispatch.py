"""Running a node's lowering, and holding its result against what the graph says."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import torch
from torch import fx
from torch._ops import OpOverload

from nnapi_prof.convert.model import EmissionError, OperandId
from nnapi_prof.convert.region import alike, operand_of
from nnapi_prof.convert.registry import ENTRIES, Lowerer, Lowering
from nnapi_prof.errors import UnsupportedOp
from nnapi_prof.graph.node import ScriptCall, makes_tensor, op_name, results_of, type_of
from nnapi_prof.graph.quantisation import DEQUANTIZE, QUANTIZE
from nnapi_prof.graph.types import MAX_RANK, TensorType
from nnapi_prof.nnapi.codes import FuseCode, OperationCode

aten = torch.ops.aten

AnyLowering = TypeVar("AnyLowering", bound=Lowering)


def lowerer_of(node: fx.Node) -> Lowerer:
    """The lowering of a node's operator. Raises UnsupportedOp where there is none."""
    lowerer = ENTRIES.get(node.target) if isinstance(node.target, OpOverload) else None
    if isinstance(node.target, ScriptCall):
        raise UnsupportedOp(
            node.name,
            node.target.construct,
            f"it depends on the values of a tensor ({node.target.where})",
        )
    if lowerer is None:
        raise UnsupportedOp(
            node.name,
            op_name(node.target),
            "NNAPI has no such operation and nothing here rewrites it into others",
        )
    return lowerer


def lower_node(op: Lowering) -> OperandId:
    """Runs the lowering of ``op``'s node, which makes one tensor, and gives its operand, which has
    the type that the graph says. Raises UnsupportedOp."""
    result = run_lowering(op)
    check_result(op, result, op.out)
    return result


def run_lowering(
    op: AnyLowering, instead: Callable[[AnyLowering], OperandId] | None = None
) -> OperandId:
    """Runs the lowering of ``op``'s node, which makes one tensor, or another one ``instead``, and
    gives its operand.

    An activation that the lowering did not fuse follows as an operation of its own; a lowering
    that had nothing to do (a view of the same shape) becomes a copy, since a value of the graph
    needs an operand of its own. Raises UnsupportedOp.
    """
    lowerer = lowerer_of(op.node)
    _require_ranks(op)
    try:
        result = instead(op) if instead is not None else lowerer(op)
        assert not isinstance(result, tuple), f"{op.target} makes one tensor"
        if op.is_argument(result):
            result = op.copy(result)
        if op.activation_left:
            code = OperationCode[FuseCode(op.fuse()).name]
            result = op.emit(code, [result], dims=op.dims(result))
    except EmissionError as error:
        op.refuse(str(error))
    return result


def lower_values(op: Lowering) -> dict[str, OperandId]:
    """Runs the lowering of a node of several values; the operand of each of its readers by name.

    Raises UnsupportedOp.
    """
    lowerer = lowerer_of(op.node)
    _require_ranks(op)
    try:
        results = lowerer(op)
    except EmissionError as error:
        op.refuse(str(error))
    assert isinstance(results, tuple), f"{op.target} makes several values"
    integers = {}
    for reader in results_of(op.node):
        result = results[cast("int", reader.args[1])]
        check_result(op, result, type_of(reader))
        integers[reader.name] = result
    return integers


_ANY_RANK = frozenset(
    {
        aten.view.default,
        aten.reshape.default,
        QUANTIZE,
        DEQUANTIZE,
        aten.convolution.default,  # says itself what it takes
    }
)


def _require_ranks(op: Lowering) -> None:
    """Refuses more dimensions than MAX_RANK, which an operand holds as fewer (operand_shape): the
    pass ``decompose_high_rank`` takes apart what it can. It leaves changes of shape, and of
    quantisation, to which shapes are nothing."""
    if op.target in _ANY_RANK:
        return
    nodes = [a for a in op.node.all_input_nodes if makes_tensor(a)]
    ranks = [len(type_of(node).shape) for node in (*nodes, *results_of(op.node))]
    rank = max(ranks, default=0)
    op.require(
        rank <= MAX_RANK,
        f"a tensor of rank {rank}: NNAPI's operations take rank {MAX_RANK} at most, and this one "
        "cannot be done on fewer dimensions",
    )


def check_result(op: Lowering, result: OperandId, type_: TensorType) -> None:
    """Checks a lowering's result against the graph: the last guard against a silent mistake."""
    operand = op.model.operand(result)
    expected = operand_of(type_)
    if expected is None:
        op.refuse(f"gives {type_.dtype}, which NNAPI does not have")
    op.require(
        alike(operand, expected),
        f"NNAPI gives {operand.type.name}, PyTorch {type_.dtype}: such an element type is not "
        "lowered here",
    )
    op.require(
        operand.dims == type_.memory_shape,
        f"its lowering gives the shape {operand.dims}, the graph says {type_.memory_shape}: "
        "please report this as a bug",
    )
