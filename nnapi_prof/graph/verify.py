"""The rules that hold between passes, as a table of (what, predicate, message)."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass

from torch import fx
from torch._ops import OpOverload

from nnapi_prof.errors import FrontendError
from nnapi_prof.graph.dim_order import (
    LIES_LAST,
    Layout,
    can_be_channels_last,
    layout_of,
    wanted_order,
)
from nnapi_prof.graph.node import (
    ScriptCall,
    constant_value,
    describe,
    infer,
    makes_tensor,
    op_name,
    type_of,
)
from nnapi_prof.graph.quantisation import is_weight
from nnapi_prof.graph.types import DimOrder, TensorType


@dataclass(frozen=True)
class GraphRule:
    """``holds(node)`` for every node of the kinds named; else ``message`` is the node's fault."""

    kinds: tuple[str, ...]
    holds: Callable[[fx.Node], bool]
    message: str


def _is_aten_or_getitem(node: fx.Node) -> bool:
    return isinstance(node.target, OpOverload | ScriptCall) or node.target is operator.getitem


def _is_functional(node: fx.Node) -> bool:
    return not (isinstance(node.target, OpOverload) and node.target._schema.is_mutable)


def _is_typed(node: fx.Node) -> bool:
    """A tensor's type is known; a node of several values is read through getitem only."""
    return makes_tensor(node) or all(user.target is operator.getitem for user in node.users)


def _constant_matches(node: fx.Node) -> bool:
    return describe(constant_value(node)) == type_of(node)


def _order_fits(node: fx.Node) -> bool:
    if not makes_tensor(node) or type_of(node).dim_order is DimOrder.CONTIGUOUS:
        return True
    chosen = node.op == "call_function" or (node.op == "placeholder" and LIES_LAST in node.meta)
    return chosen and can_be_channels_last(type_of(node))


def _inputs_lie_right(node: fx.Node) -> bool:
    for source in node.all_input_nodes:
        if is_weight(source) or not makes_tensor(source):
            continue
        if not can_be_channels_last(type_of(source)):
            continue
        if node.op == "call_function" and layout_of(node) is Layout.CLONE:
            continue
        if wanted_order(node, source) not in (None, type_of(source).dim_order):
            return False
    return True


RULES = (
    GraphRule(
        ("placeholder", "get_attr", "call_function", "output"),
        lambda node: True,
        "only inputs, constants, calls and one output are allowed",
    ),
    GraphRule(("call_function",), _is_aten_or_getitem, "is not a call to an ATen overload"),
    GraphRule(("call_function",), _is_functional, "writes to its input"),
    GraphRule(("placeholder", "get_attr"), makes_tensor, "has no tensor type"),
    GraphRule(("call_function",), _is_typed, "has no tensor type"),
    GraphRule(("get_attr",), _constant_matches, "differs from the type it carries"),
    GraphRule(
        ("placeholder", "get_attr", "call_function"), _order_fits, "cannot lie channels last"
    ),
    GraphRule(
        ("call_function", "output"), _inputs_lie_right, "reads a value in the wrong dim order"
    ),
)


def verify(graph: fx.Graph, types: bool = False) -> None:
    """Checks every rule; with ``types`` also runs each ATen call on meta tensors (slower).

    Raises FrontendError naming the first node that breaks a rule, its operation and the rule.
    """
    graph.lint()
    known_kinds = RULES[0].kinds
    for node in graph.nodes:
        if node.op not in known_kinds:
            raise FrontendError(f"{node.name}: {node.op} {node.target}: {RULES[0].message}")
        for rule in RULES:
            if node.op in rule.kinds and not rule.holds(node):
                raise FrontendError(f"{node.name}: {op_name(node.target)} {rule.message}")
        if types and isinstance(node.target, OpOverload) and makes_tensor(node):
            _verify_type(node)


def _verify_type(node: fx.Node) -> None:
    try:
        inferred = infer(node.target, node.args, node.kwargs)  # type: ignore[arg-type]
    except NotImplementedError:
        return  # an operator that PyTorch runs on data only
    inferred_type = describe(inferred)
    node_type = type_of(node)
    if inferred_type != TensorType(node_type.shape, node_type.dtype):
        raise FrontendError(
            f"{node.name}: {op_name(node.target)} gives {inferred_type}, its type says {node_type}"
        )
