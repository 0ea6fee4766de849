"""Constants: what depends on no input is computed now, and equal tensors are stored once."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from nnapi_prof.graph.node import (
    add_constant,
    calls,
    constant_value,
    dtype_name,
    makes_tensor,
)
from nnapi_prof.graph.quantisation import is_weight


def fold_constants(graph: fx.Graph) -> int:
    """Replaces a call on nothing but constants by its value.

    Given:
        %w [8, 10] constant
        %t [10, 8] = permute(%w, [1, 0])
        %y [1, 10] = linear(%x [1, 8], %t, None)
    Result:
        %t [10, 8] constant
        %y [1, 10] = linear(%x, %t, None)

    Returns the calls replaced. Random numbers and nodes that make several values are left alone,
    and so are quantised constants behind their dequantize nodes (see fold_weights).
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
        # constants lie as the model has them, which need not be what a view wants
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
    """Lets all readers of equal constants read the first of them.

    Given:
        %w1 [8, 8] constant, %w2 [8, 8] constant with the same bytes
    Result:
        %w1 read by everybody

    Returns the get_attr nodes replaced.
    """
    first: dict[tuple[str, tuple[int, ...], str], fx.Node] = {}
    replaced = 0
    for node in list(graph.find_nodes(op="get_attr")):
        value = constant_value(node)
        key = (dtype_name(value.dtype), tuple(value.shape), _digest(value))
        kept = first.setdefault(key, node)
        if kept is not node:
            node.replace_all_uses_with(kept)
            graph.erase_node(node)
            replaced += 1
    return replaced


def _digest(value: Tensor) -> str:
    # A dimension of one element may have any stride in memory that counts as contiguous.
    raw = value.detach().contiguous().as_strided((value.numel(),), (1,)).view(torch.uint8)
    return hashlib.sha256(raw.numpy().data).hexdigest()
