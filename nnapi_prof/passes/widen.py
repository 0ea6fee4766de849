"""Half precision, widened: what a model computes in float16 or bfloat16 becomes float32."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from nnapi_prof.graph.node import (
    TENSOR,
    ScriptCall,
    add_constant,
    constant_value,
    describe,
    infer,
    insert_call,
    makes_tensor,
    results_of,
    type_of,
)

aten = torch.ops.aten
HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def widen_halves(graph: fx.Graph) -> int:
    """Computes in float32 what is in float16 or bfloat16; inputs and outputs keep their types.

    Given:
        %c bfloat16[1, 4] = _to_copy(%x [1, 4], dtype=torch.bfloat16)
        %y bfloat16[1, 8] = linear(%c, %w bfloat16[8, 4])
    Result:
        %c [1, 4] = _to_copy(%x [1, 4], dtype=torch.float32)
        %y [1, 8] = linear(%c, %w [8, 4])
        %o bfloat16[1, 8] = _to_copy(%y, dtype=torch.bfloat16)

    Functions that stay TorchScript keep their types, too. Returns the number of nodes changed.
    """
    halves = {
        node: HALVES[type_of(node).dtype]
        for node in graph.nodes
        if makes_tensor(node) and type_of(node).dtype in HALVES
    }
    if not any(
        node.op == "call_function" and halves.keys() & node.all_input_nodes for node in halves
    ):
        return 0  # a cast there and back is meant to round
    for node in list(graph.nodes):
        if node.op == "placeholder" and node in halves:
            _cast_behind(graph, node, torch.float32)
        elif node.op == "get_attr" and node in halves:
            with graph.inserting_before(node):
                wide = add_constant(graph, constant_value(node).float(), str(node.target))
            node.replace_all_uses_with(wide)
            graph.erase_node(node)
        elif node.op == "output":
            listed: Any = node.args[0]
            node.args = (tuple(_cast_before(graph, node, value, halves) for value in listed),)
        elif isinstance(node.target, ScriptCall):
            node.args = tuple(_cast_before(graph, node, value, halves) for value in node.args)
            for reader in results_of(node):
                if reader in halves:
                    _cast_behind(graph, reader, torch.float32)
        elif isinstance(node.target, OpOverload):
            _widen_arguments(node, node.target)
            result = infer(node.target, node.args, dict(node.kwargs))
            if isinstance(result, Tensor):
                node.meta[TENSOR] = describe(result)
                continue
            for reader in results_of(node):
                reader.meta[TENSOR] = describe(result[reader.args[1]])
    return len(halves)


_NUMBERS = (5, 15)
"""c10::ScalarType of float16 and bfloat16, as TorchScript has them."""


def _widen_arguments(node: fx.Node, target: OpOverload) -> None:
    """Has a call make float32 where it names half precision."""

    def wide(name: str, value: Any) -> Any:
        is_half = value in HALVES.values() or (name.endswith("dtype") and value in _NUMBERS)
        return torch.float32 if is_half else value

    names = [argument.name for argument in target._schema.arguments]
    node.args = tuple(
        wide(name, value) if isinstance(value, int | torch.dtype) else value
        for name, value in zip(names, node.args, strict=False)
    )
    node.kwargs = {
        name: wide(name, value) if isinstance(value, int | torch.dtype) else value
        for name, value in node.kwargs.items()
    }


def _cast_behind(graph: fx.Graph, node: fx.Node, dtype: torch.dtype) -> None:
    readers = list(node.users)
    with graph.inserting_after(node):
        cast = insert_call(graph, aten._to_copy.default, (node,), {"dtype": dtype})
    for reader in readers:
        reader.replace_input_with(node, cast)


def _cast_before(
    graph: fx.Graph, node: fx.Node, value: Any, halves: dict[fx.Node, torch.dtype]
) -> Any:
    """Casts an argument of a node back to the type that it had; ``halves`` has those that are wide
    now."""
    if value not in halves and not _was_half(value, halves):
        return value
    dtype = halves[value] if value in halves else _was_half(value, halves)
    with graph.inserting_before(node):
        return insert_call(graph, aten._to_copy.default, (value,), {"dtype": dtype})


def _was_half(value: Any, halves: dict[fx.Node, torch.dtype]) -> torch.dtype | None:
    """The type of an input, or of a function's result, that stands behind a cast now."""
    is_cast = isinstance(value, fx.Node) and value.target is aten._to_copy.default
    source = value.args[0] if is_cast else None
    return halves.get(source) if isinstance(source, fx.Node) and value not in halves else None
