"""Remove computations without effect: no-ops, constant calls, and picks that choose nothing."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from nnapi_prof.graph.node import (
    add_constant,
    bound_args,
    calls,
    constant_value,
    dtype_name,
    is_constant,
    makes_tensor,
    same_numbers,
    torch_dtype,
    type_of,
)
from nnapi_prof.graph.quantisation import is_weight
from nnapi_prof.passes import Rule, Site, apply_rules

aten = torch.ops.aten


def drop_noops(graph: fx.Graph) -> int:
    """Drops nodes whose result is their input.

    Given:
        %d [1, 8] = dropout(%a [1, 8], 0.5, False)
        %c [1, 8] = clone(%d, memory_format=torch.channels_last)
        %v [1, 8] = view(%c, [1, 8])
        %m [1, 8] = mul(%v, 1)
        %r [1, 8] = relu(%m)
    Result:
        %r [1, 8] = relu(%a)

    The layout in memory is not part of a value here: assign_dim_order decides it later. Dropout in
    training mode stays; the front end refuses it. Returns the number of nodes dropped.
    """
    dropped = 0
    for node in calls(graph):
        source = node.args[0] if node.args else None
        if isinstance(source, list | tuple) and len(source) == 1:
            source = source[0]  # cat of one tensor
        if not isinstance(source, fx.Node) or not makes_tensor(node) or not makes_tensor(source):
            continue
        if not same_numbers(node, source) or not _is_noop(node):
            continue
        node.replace_all_uses_with(source)
        graph.erase_node(node)
        dropped += 1
    return dropped


def _is_noop(node: fx.Node) -> bool:
    """Returns whether a node with the type of its first input returns that input unchanged."""
    if node.target in _ALWAYS:
        return True
    if node.target in _IN_EVAL_MODE:
        args = bound_args(node)
        return not args["train"] or args["p"] == 0
    if node.target in _NEUTRAL:
        return _is_number(bound_args(node)["other"], _NEUTRAL[node.target])
    if node.target is aten.permute.default:
        dims = list(bound_args(node)["dims"])
        return dims == sorted(dims)
    if node.target in _OF_FLOATS:
        return not torch_dtype(type_of(node).dtype).is_floating_point
    if node.target is aten.constant_pad_nd.default:
        return not any(bound_args(node)["pad"])
    return node.target is aten.upsample_nearest2d.vec and bound_args(node)["scale_factors"] is None


def _is_number(value: Any, number: int) -> bool:
    return isinstance(value, int | float) and value == number


_ALWAYS = frozenset(
    {
        aten.alias.default,
        aten.clone.default,
        aten.contiguous.default,
        aten.detach.default,
        aten.detach_.default,
        aten.lift_fresh_copy.default,
        aten._to_copy.default,
        aten.to.dtype,
        aten.to.dtype_layout,
        aten.to.device,
        aten.to.other,
        aten.type_as.default,
        # for these, the same shape and type mean the same value:
        aten.view.default,
        aten.expand.default,
        aten.slice.Tensor,
        aten.cat.default,
        aten.adaptive_avg_pool2d.default,
    }
)
_IN_EVAL_MODE = frozenset(
    {
        aten.dropout.default,
        aten.feature_dropout.default,
        aten.alpha_dropout.default,
        aten.feature_alpha_dropout.default,
    }
)
_OF_FLOATS = frozenset(
    {
        aten.nan_to_num.default,
        aten.ceil.default,
        aten.floor.default,
        aten.round.default,
        aten.trunc.default,
    }
)
"""Operators that do not change integers."""
_NEUTRAL = {aten.add.Tensor: 0, aten.sub.Tensor: 0, aten.mul.Tensor: 1, aten.div.Tensor: 1}


# Constants


def fold_constants(graph: fx.Graph) -> int:
    """Replaces a call on nothing but constants by its value.

    Given:
        %w [8, 10] constant
        %t [10, 8] = permute(%w, [1, 0])
        %y [1, 10] = linear(%x [1, 8], %t, None)
    Result:
        %t [10, 8] constant
        %y [1, 10] = linear(%x, %t, None)

    Returns the number of calls replaced. Random numbers and nodes that make several values are left
    alone, and so are quantised constants behind their dequantize nodes (see fold_dequantize).
    """
    folded = 0
    for node in calls(graph):
        if not isinstance(node.target, OpOverload) or not makes_tensor(node):
            continue
        if torch.Tag.nondeterministic_seeded in node.target.tags or is_weight(node):
            continue
        if any(source.op != "get_attr" for source in node.all_input_nodes):
            continue
        args = fx.node.map_arg(node.args, constant_value)
        kwargs = fx.node.map_arg(node.kwargs, constant_value)
        # the model's constants may have a layout that a view refuses
        is_view = node.target is torch.ops.aten.view.default
        target = torch.ops.aten.reshape.default if is_view else node.target
        with torch.no_grad():
            value = target(*args, **kwargs)
        assert isinstance(value, Tensor)
        with graph.inserting_before(node):
            constant = add_constant(graph, value.contiguous().clone(), node.name)
        node.replace_all_uses_with(constant)
        graph.erase_node(node)
        folded += 1
    return folded


def share_constants(graph: fx.Graph) -> int:
    """Makes all readers of equal constants read the first of them.

    Given:
        %w1 [8, 8] constant, %w2 [8, 8] constant with the same bytes
    Result:
        %w1 read by everybody

    Returns the number of get_attr nodes replaced.
    """
    first: dict[tuple[str, tuple[int, ...], str], fx.Node] = {}
    replaced = 0
    for node in list(graph.find_nodes(op="get_attr")):
        value = constant_value(node)
        key = (dtype_name(value.dtype), tuple(value.shape), _digest(value))
        original = first.setdefault(key, node)
        if original is not node:
            node.replace_all_uses_with(original)
            graph.erase_node(node)
            replaced += 1
    return replaced


def _digest(value: Tensor) -> str:
    # A dimension of one element may have any stride and still count as contiguous.
    raw = value.detach().contiguous().as_strided((value.numel(),), (1,)).view(torch.uint8)
    return hashlib.sha256(raw.numpy().data).hexdigest()


# Elements taken from constant places: all in order are a reshape, equal ones a constant.
#
# Index arithmetic for attention masks (``mask[batch[:, None, None, None], keys]``) often takes
# every element once, and tables of zeros are often read at computed positions.


MAX_PLACES = 2**22
"""Most elements whose places are compared."""


def simplify_constant_gather(graph: fx.Graph) -> int:
    """Spells picks that choose nothing without indices.

    Given:
        %i [2, 1, 1, 3] = index(%m [2, 3], [[[[[0]]], [[[1]]]], [0, 1, 2]])
        %g [2, 5]       = gather(zeros constant [2, 9], 1, %p [2, 5])
    Result:
        %i = reshape(%m, [2, 1, 1, 3])
        %g = zeros constant [2, 5]

    Returns the number of nodes replaced.
    """
    return apply_rules(graph, _RULES)


def _picked(site: Site) -> fx.Node | None:
    target = site.node.target
    assert isinstance(target, OpOverload)
    source = site.input(_SOURCES[target])
    if is_constant(source):
        value = constant_value(source)
        if not value.numel() or value.is_quantized or (value != value.reshape(-1)[0]).any():
            return None
        dtype = torch_dtype(site.type.dtype)
        filled = torch.full(site.type.shape, value.reshape(-1)[0].item(), dtype=dtype)
        return site.add_constant(filled, "values")
    if target is not aten.index.Tensor or site.type.n_elements > MAX_PLACES:
        return None
    if type_of(source).n_elements != site.type.n_elements:
        return None
    indices = [node for node in site.args["indices"] if node is not None]
    if not all(map(is_constant, indices)):
        return None
    if not _in_order(type_of(source).shape, site.args["indices"]):
        return None
    return site.reshape(source, list(site.type.shape))


def _in_order(shape: tuple[int, ...], indices: list[fx.Node | None]) -> bool:
    """Returns whether ``x[indices]`` takes every element of an x of ``shape`` in order."""
    size = math.prod(shape)
    read: list[slice | Tensor] = [
        slice(None) if node is None else constant_value(node) for node in indices
    ]
    places = torch.arange(size).reshape(shape)[tuple(read)]
    return torch.equal(places.reshape(-1), torch.arange(size))


_SOURCES: dict[OpOverload, str] = {
    aten.embedding.default: "weight",
    aten.gather.default: "self",
    aten.index.Tensor: "self",
    aten.index_select.default: "self",
}
"""Operator -> the argument whose elements it takes."""
_RULES: dict[OpOverload, Rule] = dict.fromkeys(_SOURCES, _picked)
