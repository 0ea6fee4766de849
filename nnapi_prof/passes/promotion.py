"""Write out implicit changes of element type, and make all floats float32.

NNAPI's operations return the type that they read. PyTorch's concatenation promotes its tensors to
one type, its reductions and softmax take a type to compute in, and ``any`` and ``all`` read
numbers. A model that computes in float16, bfloat16 or float64 is changed to compute in float32.
"""

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
from nnapi_prof.graph.quantisation import DEQUANTIZE, MOVES, RANGES
from nnapi_prof.passes import Rule, Site, apply_rules

aten = torch.ops.aten

EXACT_FLOAT = 2**24
"""Largest integer up to which float32 is exact, for sums of truth values."""


def insert_type_promotion(graph: fx.Graph) -> int:
    """Inserts changes of element type before operators, and after sums of truth values.

    Given:
        %c [4, 3]  = cat([%x [2, 3], %n int64[2, 3]], 0)
        %p [2, 3]  = softmax(%n, 1, torch.float32)
        %a bool[2] = any.dim(%x, 1)
        %s int64[] = sum(%m bool[2, 3])
        %f [2, 3]  = _to_copy(%image uint8[2, 3], dtype=torch.float32)
    Result:
        %c = cat([%x, _to_copy(%n, dtype=torch.float32)], 0)
        %p = softmax(_to_copy(%n, dtype=torch.float32), 1)
        %a = any.dim(ne(%x, 0), 1)
        %s = _to_copy(sum(_to_copy(%m, dtype=torch.float32)), dtype=torch.int64)
        %f = dequantize_per_tensor(%image, 1.0, 0, 0, 255, torch.uint8)

    The last one is for inputs of the model, also moved ones: bytes in NNAPI's quantised type.
    Returns the number of nodes replaced.
    """
    return apply_rules(graph, _RULES)


def _as(site: Site, node: fx.Node, dtype: str) -> fx.Node:
    if type_of(node).dtype == dtype:
        return node
    return site.call(aten._to_copy.default, node, dtype=torch_dtype(dtype))


def _cat(site: Site) -> fx.Node | None:
    tensors: list[fx.Node] = list(site.args["tensors"])
    if {type_of(t).dtype for t in tensors} == {site.type.dtype}:
        return None
    alike = [_as(site, t, site.type.dtype) for t in tensors]
    return site.call(site.target, alike, site.args["dim"])


def _computed_in(*others: str) -> Rule:
    """Returns the rule for an operator whose argument ``dtype`` is the type to compute in;
    ``others`` are its arguments between the tensor and the type."""

    def rule(site: Site) -> fx.Node | None:
        source = site.input()
        if site.type.dtype != "float32" or type_of(source).dtype == "float32":
            return None
        other_args = [site.args[name] for name in others]
        return site.call(site.target, _as(site, source, "float32"), *other_args)

    return rule


def _sum(*others: str) -> Rule:
    plain = _computed_in(*others)

    def rule(site: Site) -> fx.Node | None:
        source = site.input()
        counts = type_of(source).dtype == "bool" and site.type.dtype in ("int64", "int32")
        if not counts or type_of(source).n_elements > EXACT_FLOAT:
            return plain(site)
        other_args = [site.args[name] for name in others]
        total = site.call(site.target, _as(site, source, "float32"), *other_args)
        return _as(site, total, site.type.dtype)

    return rule


def _truth(site: Site) -> fx.Node | None:
    """Reduces by ``any`` or ``all`` of numbers whether they are not 0."""
    source = site.input()
    if type_of(source).dtype == "bool" or site.type.dtype != "bool":
        return None
    other_args = [value for name, value in site.args.items() if name != "self"]
    return site.call(site.target, site.call(aten.ne.Scalar, source, 0), *other_args)


def _count_nonzero(site: Site) -> fx.Node | None:
    source, dims = site.input(), site.args["dim"]
    if type_of(source).n_elements > EXACT_FLOAT:
        return None
    mask = site.call(aten.ne.Scalar, source, 0) if type_of(source).dtype != "bool" else source
    floats = _as(site, mask, "float32")
    listed = [dims] if isinstance(dims, int) else dims or []
    total = site.call(aten.sum.dim_IntList, floats, listed, False)
    return _as(site, total, "int64")


def _bytes(site: Site) -> fx.Node | None:
    """Returns the model's bytes as floats: scale 1, zero point 0."""
    source = site.input()
    if site.type.dtype != "float32" or not _are_bytes(source):
        return None
    return _floats(site, source)


def _of_bytes(site: Site) -> fx.Node | None:
    """Returns arithmetic on the model's bytes that gives floats."""
    bytes_ = [node for node in site.node.all_input_nodes if _are_bytes(node)]
    if site.type.dtype != "float32" or not bytes_:
        return None
    floats = {node: _floats(site, node) for node in bytes_}
    return site.call_on(floats)


def _floats(site: Site, source: fx.Node) -> fx.Node:
    dtype = type_of(source).dtype
    return site.call(DEQUANTIZE, source, 1.0, 0, *RANGES[dtype], torch_dtype(dtype))


def _are_bytes(node: fx.Node) -> bool:
    return type_of(node).dtype in RANGES and _is_input(node)


def _is_input(node: Any) -> bool:
    """Returns whether a value is an input of the model, perhaps moved."""
    if not isinstance(node, fx.Node):
        return False
    return node.op == "placeholder" or (node.target in MOVES and _is_input(node.args[0]))


_RULES: dict[torch._ops.OpOverload, Rule] = {
    aten.cat.default: _cat,
    aten.concat.default: _cat,
    aten.stack.default: _cat,
    aten.softmax.int: _computed_in("dim"),
    aten.log_softmax.int: _computed_in("dim"),
    aten.mean.default: _computed_in(),
    aten.mean.dim: _computed_in("dim", "keepdim"),
    aten.prod.default: _computed_in(),
    aten.prod.dim_int: _computed_in("dim", "keepdim"),
    aten.sum.default: _sum(),
    aten.sum.dim_IntList: _sum("dim", "keepdim"),
    **dict.fromkeys(
        (aten.any.default, aten.any.dim, aten.any.dims, aten.all.default, aten.all.dim),
        _truth,
    ),
    aten.all.dims: _truth,
    aten.count_nonzero.default: _count_nonzero,
    aten.count_nonzero.dim_IntList: _count_nonzero,
    **dict.fromkeys(
        (
            aten._to_copy.default,
            aten.to.dtype,
            aten.to.dtype_layout,
            aten.to.device,
            aten.to.other,
            aten.type_as.default,
        ),
        _bytes,
    ),
    **dict.fromkeys(
        (
            *(aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.div.Scalar),
            *(aten.rsub.Scalar, aten.rsub.Tensor),
        ),
        _of_bytes,
    ),
}


Types = Mapping[str, tuple[int, torch.dtype]]
"""Element type to replace -> its c10 number, which TorchScript uses, and its replacement."""
HALVES: Types = {"float16": (5, torch.float32), "bfloat16": (15, torch.float32)}
DOUBLES: Types = {"float64": (7, torch.float32), "complex128": (10, torch.complex64)}


def widen_halves(graph: fx.Graph) -> int:
    """Moves computation in float16 or bfloat16 to float32; inputs and outputs keep their types.

    Given:
        %c bfloat16[1, 4] = _to_copy(%x [1, 4], dtype=torch.bfloat16)
        %y bfloat16[1, 8] = linear(%c, %w bfloat16[8, 4])
    Result:
        %c [1, 4] = _to_copy(%x [1, 4], dtype=torch.float32)
        %y [1, 8] = linear(%c, %w [8, 4])
        %o bfloat16[1, 8] = _to_copy(%y, dtype=torch.bfloat16)

    Functions that remain TorchScript also keep their types. Returns the number of nodes changed.
    """
    halves = _values_in(graph, HALVES)
    if not any(
        node.op == "call_function" and halves & set(node.all_input_nodes) for node in halves
    ):
        return 0  # a cast there and back is intended rounding
    return _replace_types(graph, HALVES)


def is_in_doubles(graph: fx.Graph) -> bool:
    """Returns whether inputs or arrays of constants are in float64. Otherwise the model casts one
    of its own values to float64, which is intended."""
    return any(
        node.op == "placeholder" or (node.op == "get_attr" and constant_value(node).numel() > 1)
        for node in _values_in(graph, DOUBLES)
    )


def narrow_doubles(graph: fx.Graph) -> int:
    """Moves computation in float64 to float32, like :func:`widen_halves` for halves."""
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
    """Replaces the types that a call names."""
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
    """Casts an argument of a node back to its original type, if ``before`` has one."""
    if value not in before and not _was_half(value, before):
        return value
    dtype = before[value] if value in before else _was_half(value, before)
    with graph.inserting_before(node):
        return insert_call(graph, aten._to_copy.default, (value,), {"dtype": dtype})


def _was_half(value: Any, before: dict[fx.Node, torch.dtype]) -> torch.dtype | None:
    """Returns the type of an input, or of a function's result, that now has a cast."""
    is_cast = isinstance(value, fx.Node) and value.target is aten._to_copy.default
    source = value.args[0] if is_cast else None
    return before.get(source) if isinstance(source, fx.Node) and value not in before else None
