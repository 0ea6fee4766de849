"""Quantisation in the graph: ``quantize`` and ``dequantize`` nodes around float operations.

A quantised value is a uint8 or int8 tensor. ``quantize_per_tensor`` makes it from a float tensor,
and ``dequantize_per_tensor`` reads it; operations are between the two in float32, so that the graph
runs in eager PyTorch. Quantised weights are integer constants read by a ``dequantize_per_tensor``
or ``dequantize_per_channel``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # registers torch.ops.quantized_decomposed
from torch import Tensor, fx

from nnapi_prof.graph import Quantisation, TensorType
from nnapi_prof.graph.node import (
    TENSOR,
    bound_args,
    constant_value,
    is_constant,
    makes_tensor,
    type_of,
)

aten = torch.ops.aten
_decomposed = torch.ops.quantized_decomposed

QUANTIZE = _decomposed.quantize_per_tensor.default
DEQUANTIZE = _decomposed.dequantize_per_tensor.default
DEQUANTIZE_CHANNELS = _decomposed.dequantize_per_channel.default

CONVERSIONS = frozenset({QUANTIZE, DEQUANTIZE, DEQUANTIZE_CHANNELS})

RANGES = {"uint8": (0, 255), "int8": (-128, 127)}
"""NNAPI's element types of quantised values -> smallest and largest integer."""

MOVES = frozenset(
    {
        aten.view.default,
        aten.reshape.default,
        aten.permute.default,
        aten.slice.Tensor,
        aten.clone.default,
        aten.expand.default,
        aten.cat.default,
        aten.channel_shuffle.default,
        aten.flip.default,
        aten.index_select.default,
        aten.pixel_shuffle.default,
        aten.pixel_unshuffle.default,
        aten.repeat.default,
        aten.roll.default,
    }
)
"""Operators that only move elements, whatever their values."""


def is_quantize(value: Any) -> bool:
    return isinstance(value, fx.Node) and value.target is QUANTIZE


def is_dequantize(value: Any) -> bool:
    """Returns whether a node converts a quantised value, other than a weight, to floats."""
    return (
        isinstance(value, fx.Node) and value.target is DEQUANTIZE and not is_constant(value.args[0])
    )


def is_weight(value: Any) -> bool:
    """Returns whether an argument is a constant, or the dequantize node of a quantised constant."""
    if not isinstance(value, fx.Node):
        return False
    behind = value.args[0] if value.target in (DEQUANTIZE, DEQUANTIZE_CHANNELS) else value
    return is_constant(behind)


def weight_value(node: fx.Node) -> Tensor:
    """Returns the tensor of a node for which :func:`is_weight` holds, dequantized to floats."""
    if is_constant(node):
        return constant_value(node)
    if node.target is DEQUANTIZE_CHANNELS:
        return _channels_value(node)
    args: Any = fx.node.map_arg(node.args, constant_value)
    kwargs: Any = fx.node.map_arg(node.kwargs, constant_value)
    assert callable(node.target)
    value = node.target(*args, **kwargs)
    assert isinstance(value, Tensor)
    return value


def _channels_value(node: fx.Node) -> Tensor:
    """Computes the result of the node in one step. The operator itself loops over channels, which
    takes ten times as long."""
    args = bound_args(node)
    integers, scales = constant_value(args["input"]), constant_value(args["scales"])
    shape = [1] * integers.ndim
    shape[args["axis"]] = -1
    values = integers.to(torch.float32)
    zeros = args["zero_points"]
    if zeros is not None and constant_value(zeros).any():
        values -= constant_value(zeros).to(torch.float32).reshape(shape)
    in_single = scales.to(torch.float32)
    if torch.equal(in_single.to(scales.dtype), scales):  # the product with 8 bits is rounded once
        return values.mul_(in_single.reshape(shape))
    return (values * scales.reshape(shape)).to(torch.float32)


@dataclass(frozen=True)
class Scheme:
    """Quantisation of a constant: one scale and zero point, or with ``axis`` one of each for every
    index along it."""

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None
    dtype: str


def scheme_of(weight: fx.Node) -> Scheme | None:
    """Returns the scheme of a quantised weight; None for a plain constant, and for integer types
    other than uint8 and int8."""
    if weight.target not in (DEQUANTIZE, DEQUANTIZE_CHANNELS):
        return None
    args = bound_args(weight)
    dtype = type_of(args["input"]).dtype
    if dtype not in RANGES:
        return None
    if weight.target is DEQUANTIZE:
        return Scheme((float(args["scale"]),), (int(args["zero_point"]),), None, dtype)
    scales = tuple(constant_value(args["scales"]).double().tolist())
    zeros = args["zero_points"]
    points = (0,) * len(scales) if zeros is None else tuple(constant_value(zeros).long().tolist())
    return Scheme(scales, points, int(args["axis"]), dtype)


def stated_quantisation(node: fx.Node) -> Quantisation | None:
    """Returns the scale and zero point of a quantize or dequantize node; None where it limits
    integers to a narrower range than its type's, which NNAPI does not support."""
    args = bound_args(node)
    limits = (args["quant_min"], args["quant_max"])
    if RANGES.get(str(args["dtype"]).removeprefix("torch.")) != limits:
        return None
    return Quantisation(float(args["scale"]), int(args["zero_point"]))


def _reads_alike(node: fx.Node) -> Quantisation | None:
    """Returns the quantisation on which all readers of an integer input of the model agree, also
    those behind operators that move it; None where they differ."""
    schemes = {
        stated_quantisation(user)
        if is_dequantize(user)
        else _reads_alike(user)
        if user.target in MOVES
        else None
        for user in node.users
    }
    return schemes.pop() if len(schemes) == 1 else None


def reads_integers(node: fx.Node) -> bool:
    """Returns whether a node may read a quantised value, as it moves, converts or casts it."""
    return node.target in MOVES or node.target in (DEQUANTIZE, aten._to_copy.default)


def annotate_quantisation(graph: fx.Graph) -> int:
    """Writes the quantisation of quantised values into their types.

    Given:
        %q [1, 3, 8, 8] = quantize_per_tensor(%x, 0.05, 128, 0, 255, torch.uint8)
        %v [1, 192]     = view(%q, [1, 192])
        %f [1, 192]     = dequantize_per_tensor(%v, 0.05, 128, 0, 255, torch.uint8)
    Result:
        the same graph; the types of %q and %v carry scale 0.05 and zero point 128

    An input of the model gets the quantisation of its readers, where they agree. Returns the number
    of annotated values.
    """
    annotated = 0
    for node in graph.nodes:
        if not makes_tensor(node) or type_of(node).dtype not in RANGES:
            continue
        quant = None
        if is_quantize(node):
            quant = stated_quantisation(node)
        elif node.op == "placeholder":
            quant = _reads_alike(node)
        elif node.target in MOVES:
            data = [n for n in node.all_input_nodes if type_of(n).dtype == type_of(node).dtype]
            sources = {type_of(source).quant for source in data}
            quant = sources.pop() if len(sources) == 1 else None
        if quant is not None:
            set_quantisation(node, quant)
            annotated += 1
    return annotated


def set_quantisation(node: fx.Node, quant: Quantisation | None) -> None:
    node.meta[TENSOR] = replace(type_of(node), quant=quant)


def same_quantisation(a: Quantisation, b: Quantisation) -> bool:
    """Returns whether two quantisations are the same for NNAPI, whose scales are float32."""
    close = abs(a.scale - b.scale) <= 1e-6 * abs(b.scale)
    return close and a.zero_point == b.zero_point


@dataclass(frozen=True)
class QuantisedUnit:
    """Nodes of one quantised operation: the float operation, and the dequantize and quantize nodes
    around it."""

    core: fx.Node
    """Float operation; the unit's dequantize node where there is no operation."""
    activation: fx.Node | None
    pad: fx.Node | None
    """The constant_pad_nd that a convolution reads."""
    dequantize: tuple[fx.Node, ...]
    """Dequantize nodes of computed values, in order of reading."""
    weights: tuple[fx.Node, ...]
    """Dequantize nodes of constants."""
    quantize: fx.Node

    @property
    def nodes(self) -> tuple[fx.Node, ...]:
        middle = [node for node in (self.pad, self.core, self.activation) if node is not None]
        return tuple(dict.fromkeys((*self.weights, *self.dequantize, *middle, self.quantize)))


def is_fused_activation(node: fx.Node) -> bool:
    """Returns whether NNAPI has a fuse code for ``node``: RELU, RELU1 or RELU6."""
    if node.target is aten.relu.default:
        return True
    if node.target is not aten.hardtanh.default:
        return False
    args = bound_args(node)
    return (args["min_val"], args["max_val"]) in ((0.0, 6.0), (-1.0, 1.0))


def quantised_unit(quantize: fx.Node) -> QuantisedUnit | None:
    """Returns the unit that ends with a quantize node: dequantize nodes, one operation, an
    activation.

    Returns None where other nodes read the float result too, or where it is not computed from
    quantised values and constants only.
    """
    core = quantize.args[0]
    assert isinstance(core, fx.Node)
    if is_dequantize(core):
        return QuantisedUnit(core, None, None, (core,), (), quantize)
    activation, pad = None, None
    if is_fused_activation(core) and _only_read(core):
        before = core.args[0]
        if isinstance(before, fx.Node) and _computes(before) and _only_read(before):
            activation, core = core, before
    if not _computes(core) or not _only_read(core):
        return None
    sources = list(core.all_input_nodes)
    if core.target is aten.convolution.default:
        first = sources[0]
        if first.target is aten.constant_pad_nd.default and _only_read(first):
            pad, sources[0] = first, first.all_input_nodes[0]
    moving = [source for source in sources if not is_weight(source)]
    if not moving or not all(map(is_dequantize, moving)):
        return None
    weights = [source for source in sources if is_weight(source) and not is_constant(source)]
    return QuantisedUnit(core, activation, pad, tuple(moving), tuple(weights), quantize)


def _computes(node: fx.Node) -> bool:
    """Returns whether a node is a call that gives one float tensor and is not a conversion."""
    return (
        node.op == "call_function"
        and node.target not in CONVERSIONS
        and isinstance(node.target, torch._ops.OpOverload)
        and makes_tensor(node)
        and type_of(node).dtype == "float32"
    )


def _only_read(node: fx.Node) -> bool:
    return len(node.users) == 1


def value_type(node: fx.Node) -> TensorType:
    """Returns the type of the integers that a dequantize node reads."""
    source = node.args[0]
    assert isinstance(source, fx.Node)
    return type_of(source)
