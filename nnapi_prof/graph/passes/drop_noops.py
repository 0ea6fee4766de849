"""Dropping what changes nothing."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from nnapi_prof.graph.node import (
    bound_args,
    calls,
    makes_tensor,
    same_numbers,
    torch_dtype,
    type_of,
)

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

    How a tensor lies in memory is no part of its value here: assign_dim_order decides that afresh.
    A dropout that is training stays, and the front end refuses it. Returns the nodes dropped.
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
    """Whether a node with the type of its first input gives that input back."""
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
        # the same shape and type mean the same value for these:
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
"""What changes no integer."""
_NEUTRAL = {aten.add.Tensor: 0, aten.sub.Tensor: 0, aten.mul.Tensor: 1, aten.div.Tensor: 1}
