"""Other floats made float32: what a model computes in float16, bfloat16 or float64."""

from __future__ import annotations

from collections.abc import Mapping
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
    torch_dtype,
    type_of,
)

aten = torch.ops.aten
Types = Mapping[str, tuple[int, torch.dtype]]
"""Element types that are replaced: c10's number of each, as TorchScript has it, and what replaces
it."""
HALVES: Types = {"float16": (5, torch.float32), "bfloat16": (15, torch.float32)}
DOUBLES: Types = {"float64": (7, torch.float32), "complex128": (10, torch.complex64)}


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
    halves = _values_in(graph, HALVES)
    if not any(
        node.op == "call_function" and halves & set(node.all_input_nodes) for node in halves
    ):
        return 0  # a cast there and back is meant to round
    return _replace_types(graph, HALVES)


def is_in_doubles(graph: fx.Graph) -> bool:
    """Whether inputs or arrays of constants are in float64. Where neither is, the model casts a
    value of its own to float64, which is meant."""
    return any(
        node.op == "placeholder" or (node.op == "get_attr" and constant_value(node).numel() > 1)
        for node in _values_in(graph, DOUBLES)
    )


def narrow_doubles(graph: fx.Graph) -> int:
    """Computes in float32 what is in float64, as :func:`widen_halves` does with halves."""
    return _replace_types(graph, DOUBLES)


def _values_in(graph: fx.Graph, types: Types) -> set[fx.Node]:
    return {node for node in graph.nodes if makes_tensor(node) and type_of(node).dtype in types}


def _replace_types(graph: fx.Graph, types: Types) -> int:
    before = {node: torch_dtype(type_of(node).dtype) for node in _values_in(graph, types)}
    instead = {node: types[type_of(node).dtype][1] for node in before}
    for node in list(graph.nodes):
        if node.op == "placeholder" and node in before:
            _cast_behind(graph, node, instead[node])
        elif node.op == "get_attr" and node in before:
            with graph.inserting_before(node):
                value = constant_value(node).to(instead[node])
                constant = add_constant(graph, value, str(node.target))
            node.replace_all_uses_with(constant)
            graph.erase_node(node)
        elif node.op == "output":
            listed: Any = node.args[0]
            node.args = (tuple(_cast_before(graph, node, value, before) for value in listed),)
        elif isinstance(node.target, ScriptCall):
            node.args = tuple(_cast_before(graph, node, value, before) for value in node.args)
            for reader in results_of(node):
                if reader in before:
                    _cast_behind(graph, reader, instead[reader])
        elif isinstance(node.target, OpOverload):
            _replace_arguments(node, node.target, types)
            result = infer(node.target, node.args, dict(node.kwargs))
            if isinstance(result, Tensor):
                node.meta[TENSOR] = describe(result)
                continue
            for reader in results_of(node):
                reader.meta[TENSOR] = describe(result[reader.args[1]])
    return len(before)


def _replace_arguments(node: fx.Node, target: OpOverload, types: Types) -> None:
    """Has a call make the other type where it names one of ``types``."""
    by_type = {torch_dtype(name): instead for name, (_, instead) in types.items()}
    by_number = dict(types.values())

    def replaced(name: str, value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return by_type.get(value, value)
        return by_number.get(value, value) if name.endswith("dtype") else value

    names = [argument.name for argument in target._schema.arguments]
    node.args = tuple(
        replaced(name, value) if isinstance(value, int | torch.dtype) else value
        for name, value in zip(names, node.args, strict=False)
    )
    node.kwargs = {
        name: replaced(name, value) if isinstance(value, int | torch.dtype) else value
        for name, value in node.kwargs.items()
    }


def _cast_behind(graph: fx.Graph, node: fx.Node, dtype: torch.dtype) -> None:
    readers = list(node.users)
    with graph.inserting_after(node):
        cast = insert_call(graph, aten._to_copy.default, (node,), {"dtype": dtype})
    for reader in readers:
        reader.replace_input_with(node, cast)


def _cast_before(
    graph: fx.Graph, node: fx.Node, value: Any, before: dict[fx.Node, torch.dtype]
) -> Any:
    """Casts an argument of a node back to the type that it had; ``before`` has those that are
    another now."""
    if value not in before and not _was_half(value, before):
        return value
    dtype = before[value] if value in before else _was_half(value, before)
    with graph.inserting_before(node):
        return insert_call(graph, aten._to_copy.default, (value,), {"dtype": dtype})


def _was_half(value: Any, before: dict[fx.Node, torch.dtype]) -> torch.dtype | None:
    """The type of an input, or of a function's result, that stands behind a cast now."""
    is_cast = isinstance(value, fx.Node) and value.target is aten._to_copy.default
    source = value.args[0] if is_cast else None
    return before.get(source) if isinstance(source, fx.Node) and value not in before else None
