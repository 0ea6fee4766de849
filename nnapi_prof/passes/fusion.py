"""Groups nodes into units."""

from __future__ import annotations

import torch
from torch import fx

from nnapi_prof.graph.node import UNIT, bound_args, calls, type_of
from nnapi_prof.graph.quantisation import QUANTIZE, is_fused_activation, quantised_unit

aten = torch.ops.aten

FUSES = frozenset(
    {
        aten.convolution.default,
        aten.linear.default,
        aten.add.Tensor,
        aten.sub.Tensor,
        aten.mul.Tensor,
        aten.div.Tensor,
        aten.batch_norm.default,
        aten.avg_pool2d.default,
        aten.max_pool2d.default,
    }
)
"""Operations whose NNAPI counterparts take a fuse code (CONV_2D, DEPTHWISE_CONV_2D,
FULLY_CONNECTED, ADD, SUB, MUL, DIV, AVERAGE_POOL_2D, MAX_POOL_2D; batch_norm as MUL, ADD)."""


def fuse_activations(graph: fx.Graph) -> int:
    """Writes into each call's ``meta["unit"]`` the name of the last node of its unit.

    Given:
        %p = constant_pad_nd(%x, [0, 1, 0, 1], 0.0)
        %c = convolution(%p, ...)
        %r = hardtanh(%c, 0.0, 6.0)
        %s = sigmoid(%r)
    Result:
        the same graph; %p, %c and %r have unit %r, %s has unit %s

    NNAPI fuses relu, relu6 and [-1, 1] into what makes their input, where nothing else reads that.
    A zero pad of H and W joins the convolution that alone reads it, whose explicit padding it
    becomes. An operation between dequantize and quantize nodes of its own takes them along.
    Returns the number of nodes that joined another's unit.
    """
    joined = 0
    for node in calls(graph):
        node.meta[UNIT] = node.name
    for node in calls(graph):
        if is_fused_activation(node):
            producer = node.args[0]
            assert isinstance(producer, fx.Node)
            if _is_alone(producer, node) and producer.target in FUSES:
                producer.meta[UNIT] = node.name
                joined += 1
    for node in calls(graph):
        if node.target is aten.constant_pad_nd.default and len(node.users) == 1:
            reader = next(iter(node.users))
            if reader.target is aten.convolution.default and _pads_for(node, reader):
                node.meta[UNIT] = reader.meta[UNIT]
                joined += 1
    return joined + _join_conversions(graph)


def _join_conversions(graph: fx.Graph) -> int:
    joined = 0
    for node in graph.find_nodes(op="call_function", target=QUANTIZE):
        unit = quantised_unit(node)
        if unit is None:
            continue
        own = set(unit.nodes)
        if any(set(member.users) - own for member in unit.nodes if member is not node):
            continue
        for member in unit.nodes:
            joined += member.meta[UNIT] != node.name
            member.meta[UNIT] = node.name
    return joined


def _is_alone(producer: fx.Node, reader: fx.Node) -> bool:
    same_type = "tensor" in producer.meta and type_of(producer) == type_of(reader)
    return same_type and list(producer.users) == [reader]


def _pads_for(pad: fx.Node, convolution: fx.Node) -> bool:
    args, conv = bound_args(pad), bound_args(convolution)
    sides = list(args["pad"])
    return (
        args["value"] == 0
        and conv["input"] is pad
        and conv["weight"] is not pad
        and not conv["transposed"]
        and len(type_of(pad).shape) == 4
        and len(sides) <= 4
        and all(side >= 0 for side in sides)
        and isinstance(pad.args[0], fx.Node)
        and type_of(pad.args[0]).dim_order is type_of(pad).dim_order
    )
