"""Bring quantised graphs to the normal form described in :mod:`nnapi_prof.graph.quantisation`."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from nnapi_prof.graph.node import (
    add_constant,
    bound_args,
    calls,
    constant_value,
    insert_call,
    is_constant,
    type_of,
)
from nnapi_prof.graph.quantisation import (
    DEQUANTIZE,
    DEQUANTIZE_CHANNELS,
    MOVES,
    QUANTIZE,
    RANGES,
    is_dequantize,
    is_quantize,
    is_weight,
    quantised_unit,
    scheme_of,
    weight_value,
)
from nnapi_prof.passes import Rule, Site, apply_rules

aten = torch.ops.aten
_decomposed = torch.ops.quantized_decomposed


def qdq_to_uint8(graph: fx.Graph) -> int:
    """Gives quantize and dequantize one overload with constant numbers, and turns int8 to uint8.

    Given:
        %q = quantize_per_tensor.tensor(%x, %s, %z, -128, 127, torch.int8), %s and %z constants
        %f = dequantize_per_tensor.tensor(%q, %s, %z, -128, 127, torch.int8)
    Result:
        %q = quantize_per_tensor(%x, 0.05, 131, 0, 255, torch.uint8)
        %f = dequantize_per_tensor(%q, 0.05, 131, 0, 255, torch.uint8)

    Both types represent the same numbers. int8 is converted between a quantize node and its
    readers, because NNAPI has the unsigned type at every level, the signed one from level 4 on.
    Returns the number of nodes replaced.
    """
    return apply_rules(graph, _RULES) + _unsigned(graph)


def _numbers(target: torch._ops.OpOverload) -> Rule:
    def rule(site: Site) -> fx.Node | None:
        args = site.args
        names = ("scale", "zero_point", "quant_min", "quant_max")
        numbers = [
            constant_value(args[n]).item() if is_constant(args[n]) else args[n] for n in names
        ]
        if any(isinstance(value, fx.Node) for value in numbers):
            return None
        scale, *rest = numbers
        return site.call(target, site.input("input"), float(scale), *map(int, rest), args["dtype"])

    return rule


_RULES: dict[torch._ops.OpOverload, Rule] = {
    _decomposed.quantize_per_tensor.tensor: _numbers(QUANTIZE),
    _decomposed.quantize_per_tensor.tensor2: _numbers(QUANTIZE),
    _decomposed.dequantize_per_tensor.tensor: _numbers(DEQUANTIZE),
    _decomposed.dequantize_per_tensor.tensor2: _numbers(DEQUANTIZE),
}


def canonicalize_qdq(graph: fx.Graph) -> int:
    """Replaces fake-quantize operators by quantize and dequantize, and constant scales by numbers.

    Given:
        %y = fake_quantize_per_tensor_affine(%x, 0.05, 3, -128, 127)
    Result:
        %q = quantize_per_tensor(%x, 0.05, 3, -128, 127, torch.int8)
        %y = dequantize_per_tensor(%q, 0.05, 3, -128, 127, torch.int8)

    Returns the number of nodes replaced.
    """
    return apply_rules(graph, _FAKE_RULES) + apply_rules(graph, _RULES)


def _fake(quantize: torch._ops.OpOverload, dequantize: torch._ops.OpOverload) -> Rule:
    names = ("scale", "zero_point", "axis", "quant_min", "quant_max")

    def rule(site: Site) -> fx.Node | None:
        if type_of(site.input()).dtype != "float32":
            return None
        low, high = site.args["quant_min"], site.args["quant_max"]
        dtype = torch.int32
        for name, (least, most) in RANGES.items():
            if least <= low <= high <= most:
                dtype = getattr(torch, name)
        numbers = [site.args[name] for name in names if name in site.args]
        integers = site.call(quantize, site.input(), *numbers, dtype)
        return site.call(dequantize, integers, *numbers, dtype)

    return rule


_FAKE_RULES: dict[torch._ops.OpOverload, Rule] = {
    aten.fake_quantize_per_tensor_affine.default: _fake(QUANTIZE, DEQUANTIZE),
    aten.fake_quantize_per_tensor_affine.tensor_qparams: _fake(
        _decomposed.quantize_per_tensor.tensor, _decomposed.dequantize_per_tensor.tensor
    ),
    aten.fake_quantize_per_channel_affine.default: _fake(
        _decomposed.quantize_per_channel.default, DEQUANTIZE_CHANNELS
    ),
}


def _unsigned(graph: fx.Graph) -> int:
    changed = 0
    for node in calls(graph):
        if not is_quantize(node) or bound_args(node)["dtype"] is not torch.int8:
            continue
        readers = list(node.users)
        if not readers or not all(map(is_dequantize, readers)):
            continue
        if any(bound_args(reader)["dtype"] is not torch.int8 for reader in readers):
            continue
        replacement = _shifted(graph, node, node.args[0])
        for reader in readers:
            reader.replace_all_uses_with(_shifted(graph, reader, replacement))
            graph.erase_node(reader)
        graph.erase_node(node)
        changed += 1 + len(readers)
    return changed


def _shifted(graph: fx.Graph, node: fx.Node, source: Any) -> fx.Node:
    """Returns the same quantize or dequantize node for integers that are greater by 128."""
    args = bound_args(node)
    numbers = [args[name] + 128 for name in ("zero_point", "quant_min", "quant_max")]
    assert isinstance(node.target, torch._ops.OpOverload)
    with graph.inserting_before(node):
        return insert_call(graph, node.target, (source, args["scale"], *numbers, torch.uint8))


def propagate_qdq(graph: fx.Graph) -> int:
    """Moves elements as integers where possible, and removes conversions that undo each other.

    Given:
        %f [1, 8, 2, 2] = dequantize_per_tensor(%q, 0.05, 128, 0, 255, torch.uint8)
        %v [1, 32]      = view(%f, [1, 32])
        %r [1, 32]      = quantize_per_tensor(%v, 0.05, 128, 0, 255, torch.uint8)
    Result:
        %r [1, 32] = view(%q, [1, 32])

    A dequantize node moves after the moves that read it, a quantize node before the move that only
    it reads. Constants are treated alike: permute(dequantize(%w)) becomes dequantize(permute(%w)).
    Returns the number of nodes replaced.
    """
    changed = 0
    for node in [node for node in calls(graph) if node.target in MOVES]:
        changed += _move_weight(node) or _move_before_dequantize(node)
    for node in reversed(graph.find_nodes(op="call_function", target=QUANTIZE)):
        changed += _move_behind_quantize(node)
    for node in graph.find_nodes(op="call_function", target=QUANTIZE):
        source = node.args[0]
        if is_dequantize(source) and _converts_alike(source, node):
            node.replace_all_uses_with(source.args[0])
            graph.erase_node(node)
            changed += 1
    return changed


def _move_before_dequantize(move: fx.Node) -> bool:
    """Turns ``move(dequantize(q))`` into ``dequantize(move(q))``; inputs of a cat must agree."""
    sources = [source for source in move.all_input_nodes if not is_constant(source)]
    if not sources or not all(map(is_dequantize, sources)):
        return False
    first = sources[0]
    if not all(_converts_alike(source, first) for source in sources):
        return False
    site = Site(move)
    behind = {source: source.args[0] for source in sources}
    args = fx.node.map_arg(move.args, lambda node: behind.get(node, node))
    assert isinstance(move.target, torch._ops.OpOverload)
    assert isinstance(first.target, torch._ops.OpOverload)
    moved = site.call(move.target, *args, **move.kwargs)
    move.replace_all_uses_with(site.call(first.target, moved, *first.args[1:], **first.kwargs))
    move.graph.erase_node(move)
    return True


def _move_behind_quantize(quantize: fx.Node) -> int:
    """Turns ``quantize(move(x))`` into ``move(quantize(x))``, repeatedly."""
    moved = 0
    while True:
        move = quantize.args[0]
        assert isinstance(move, fx.Node)
        if move.target not in MOVES or move.target is aten.cat.default or len(move.users) > 1:
            return moved
        if is_weight(move.args[0]):
            return moved
        graph = quantize.graph
        assert isinstance(move.target, torch._ops.OpOverload)
        with graph.inserting_before(quantize):
            earlier = insert_call(graph, QUANTIZE, (move.args[0], *quantize.args[1:]))
            args = (earlier, *move.args[1:])
            later = insert_call(graph, move.target, args, dict(move.kwargs))
        quantize.replace_all_uses_with(later)
        graph.erase_node(quantize)
        graph.erase_node(move)
        quantize = earlier
        moved += 1


def _converts_alike(a: fx.Node, b: fx.Node) -> bool:
    names = ("scale", "zero_point", "quant_min", "quant_max", "dtype")
    ours, theirs = bound_args(a), bound_args(b)
    return all(ours[name] == theirs[name] for name in names)


def _move_weight(move: fx.Node) -> bool:
    source = move.args[0]
    if not isinstance(source, fx.Node) or is_constant(source) or not is_weight(source):
        return False
    if len(move.all_input_nodes) > 1 or scheme_of(source) is None:
        return False
    axis = None
    if source.target is DEQUANTIZE_CHANNELS:
        axis = _moved_axis(move, int(bound_args(source)["axis"]) % len(type_of(source).shape))
        if axis is None:
            return False
    site = Site(move)
    integers = source.args[0]
    assert isinstance(integers, fx.Node) and isinstance(move.target, torch._ops.OpOverload)
    values = constant_value(integers)
    moved = move.target(values, *move.args[1:], **move.kwargs).contiguous()
    constant = site.add_constant(moved, str(integers.target))
    args = list(source.args)
    args[0] = constant
    if axis is not None:
        args[3] = axis
    assert isinstance(source.target, torch._ops.OpOverload)
    move.replace_all_uses_with(site.call(source.target, *args, **source.kwargs))
    move.graph.erase_node(move)
    return True


def _moved_axis(move: fx.Node, axis: int) -> int | None:
    """Returns the axis of a move's result for an axis of its input; None where it has none."""
    if move.target is aten.permute.default:
        dims = [d % len(type_of(move).shape) for d in bound_args(move)["dims"]]
        return dims.index(axis)
    before, after = type_of(move.all_input_nodes[0]).shape, type_of(move).shape
    if move.target in (aten.view.default, aten.reshape.default):
        for index, size in enumerate(after):
            outer = math.prod(after[:index]) == math.prod(before[:axis])
            if outer and size == before[axis]:
                return index
    return None


def fold_dequantize(graph: fx.Graph) -> int:
    """Replaces quantised constants that no quantised operation reads by float ones.

    Given:
        %w [5, 8] = dequantize_per_tensor(%i [5, 8] int8 constant, 0.01, 0, -128, 127, torch.int8)
        %y [1, 5] = linear(%x [1, 8], %w, None), %x computed in float32
    Result:
        %y [1, 5] = linear(%x, %w [5, 8] float32 constant, None)

    A quantised operation that also reads the constant keeps it. Returns the number of constants
    folded.
    """
    quantised_reads: set[tuple[fx.Node, fx.Node]] = set()
    for node in graph.find_nodes(op="call_function", target=QUANTIZE):
        unit = quantised_unit(node)
        if unit is not None:
            quantised_reads |= {(w, unit.core) for w in unit.weights if scheme_of(w) is not None}
    folded = 0
    for node in calls(graph):
        if not is_weight(node):
            continue
        readers = [user for user in node.users if (node, user) not in quantised_reads]
        if not readers:
            continue
        with graph.inserting_before(node):
            constant = add_constant(graph, weight_value(node).contiguous(), node.name)
        for reader in readers:
            reader.replace_input_with(node, constant)
        folded += 1
    return folded


def duplicate_dequantize(graph: fx.Graph) -> int:
    """Gives every quantised operation its own dequantize nodes, including those of its constants.

    Given:
        %f = dequantize_per_tensor(%q, ...), read by two operations
    Result:
        %f read by one, %g = dequantize_per_tensor(%q, ...) by the other

    Returns the number of nodes added.
    """
    added = 0
    for node in graph.find_nodes(op="call_function", target=QUANTIZE):
        unit = quantised_unit(node)
        for source in () if unit is None else (*unit.dequantize, *unit.weights):
            assert unit is not None
            reader = node if source is unit.core else (unit.pad or unit.core)
            if source not in reader.all_input_nodes:
                reader = unit.core
            if len(source.users) > 1:
                assert isinstance(source.target, torch._ops.OpOverload)
                with graph.inserting_before(reader):
                    own = insert_call(graph, source.target, source.args, dict(source.kwargs))
                reader.replace_input_with(source, own)
                added += 1
    return added
