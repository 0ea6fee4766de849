"""Rewrite quantisation without an NNAPI type: computed scales, integers of more than 8 bits, and
integers limited to a part of their type."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import fx

from nnapi_prof.graph.node import bound_args, calls, type_of
from nnapi_prof.graph.quantisation import DEQUANTIZE, QUANTIZE, RANGES, is_dequantize
from nnapi_prof.passes import Site

aten = torch.ops.aten
_decomposed = torch.ops.quantized_decomposed

_QUANTIZE = frozenset(
    {
        QUANTIZE,
        _decomposed.quantize_per_tensor.tensor,
        _decomposed.quantize_per_tensor.tensor2,
        _decomposed.quantize_per_token.default,
    }
)
_DEQUANTIZE = frozenset(
    {
        DEQUANTIZE,
        _decomposed.dequantize_per_tensor.tensor,
        _decomposed.dequantize_per_tensor.tensor2,
        _decomposed.dequantize_per_token.default,
    }
)

Number = fx.Node | float


def decompose_dynamic_quant(graph: fx.Graph) -> int:
    """Replaces quantisation with computed scales, or to more than 8 bits, by arithmetic on floats.

    Given:
        %s, %z = choose_qparams(%x, -128, 127, eps, torch.int8)
        %q = quantize_per_tensor.tensor(%x, %s, %z, -128, 127, torch.int8)
        %f = dequantize_per_tensor.tensor(%q, %s, %z, -128, 127, torch.int8)
    Result:
        %s = (max(amax(%x), 0) - min(amin(%x), 0)) / 255, at least eps
        %z = clamp(-128 - round(min(amin(%x), 0) / %s), -128, 127)
        %q = clamp(round(%x * (1 / %s)) + %z, -128, 127)
        %f = (%q - %z) * %s

    These are PyTorch's own formulas, all in float32. Integers that other nodes than dequantize read
    are left alone. Returns the number of pairs replaced.
    """
    chosen: dict[fx.Node, tuple[Number, Number]] = {}
    replaced = 0
    for node in calls(graph):
        if node.target not in _QUANTIZE or not node.users:
            continue
        readers, args = list(node.users), bound_args(node)
        stated = _stated_arguments(node)
        if not all(r.target in _DEQUANTIZE and _stated_arguments(r) == stated for r in readers):
            continue
        if any(type_of(value).dtype != "float32" for value in (args["input"], *readers)):
            continue
        scale, zero_point = stated[:2]
        if isinstance(scale, float | int) and isinstance(zero_point, float | int):
            if str(args["dtype"]).removeprefix("torch.") in RANGES:
                continue
            _compute(node, readers, scale, zero_point)
            replaced += 1
            continue
        source = scale.args[0] if isinstance(scale, fx.Node) and scale.args else None
        if not isinstance(source, fx.Node) or source.target not in _CHOICES:
            continue
        if scale.args != (source, 0) or zero_point.args != (source, 1):
            continue
        if source not in chosen:
            chosen[source] = _CHOICES[source.target](Site(source))
        _compute(node, readers, *chosen[source])
        replaced += 1
    return replaced


def _stated_arguments(node: fx.Node) -> list[Any]:
    """Returns scale, zero point, limits and type of a quantize or dequantize node."""
    args = bound_args(node)
    scale, zero_point = (args.get(name, args.get(f"{name}s")) for name in ("scale", "zero_point"))
    return [scale, zero_point, args["quant_min"], args["quant_max"], args["dtype"]]


def _compute(node: fx.Node, readers: list[fx.Node], scale: Number, zero_point: Number) -> None:
    site = Site(node)
    x, low, high = (site.args[name] for name in ("input", "quant_min", "quant_max"))
    per_token = node.target is _decomposed.quantize_per_token.default
    if isinstance(scale, fx.Node):
        inverse: Number = site.call(aten.reciprocal.default, scale)
    else:
        inverse = 1.0 / scale
    steps = site.call(aten.mul.Tensor, x, inverse)
    if per_token:
        steps = site.call(aten.round.default, _plus(site, steps, zero_point))
    else:
        steps = _plus(site, site.call(aten.round.default, steps), zero_point)
    held = site.call(aten.clamp.default, steps, float(low), float(high))
    less = held if zero_point == 0 else site.call(aten.sub.Tensor, held, zero_point)
    restored = site.call(aten.mul.Tensor, less, scale)
    for reader in readers:
        reader.replace_all_uses_with(restored)
        node.graph.erase_node(reader)
    node.graph.erase_node(node)


def _plus(site: Site, steps: fx.Node, zero_point: Number) -> fx.Node:
    return steps if zero_point == 0 else site.call(aten.add.Tensor, steps, zero_point)


def _extremes(site: Site, dims: list[int]) -> tuple[fx.Node, fx.Node]:
    """Returns the smallest element or 0, and the largest or 0, over some dimensions."""
    x = site.input("input")
    least = site.call(aten.amin.default, x, dims, True)
    most = site.call(aten.amax.default, x, dims, True)
    return site.call(aten.clamp.default, least, None, 0.0), site.call(aten.relu.default, most)


def _every_dim(site: Site) -> list[int]:
    return list(range(len(type_of(site.input("input")).shape)))


def _affine(site: Site) -> tuple[Number, Number]:
    low, high = (float(site.args[name]) for name in ("quant_min", "quant_max"))
    least, most = _extremes(site, _every_dim(site))
    width = site.call(aten.sub.Tensor, most, least)
    scale = site.call(aten.div.Tensor, width, high - low)
    scale = site.call(aten.clamp.default, scale, float(site.args["eps"]), None)
    below = site.call(aten.round.default, site.call(aten.div.Tensor, least, scale))
    zero = site.call(aten.add.Tensor, site.call(aten.neg.default, below), low)
    return scale, site.call(aten.clamp.default, zero, low, high)


def _symmetric(site: Site) -> tuple[Number, Number]:
    low, high = (float(site.args[name]) for name in ("quant_min", "quant_max"))
    least, most = _extremes(site, _every_dim(site))
    most = site.call(aten.maximum.default, site.call(aten.neg.default, least), most)
    scale = site.call(aten.div.Tensor, most, (high - low) / 2)
    scale = site.call(aten.clamp.default, scale, float(site.args["eps"]), None)
    return scale, 128.0 if site.args["dtype"] is torch.uint8 else 0.0


def _token_symmetric(site: Site) -> tuple[Number, Number]:
    size = site.call(aten.abs.default, site.input("input"))
    most = site.call(aten.amax.default, size, [-1], True)
    most = site.call(aten.clamp.default, most, 1e-5, None)
    return site.call(aten.div.Tensor, most, 127.0), 0.0


def _token_affine(site: Site) -> tuple[Number, Number]:
    low, high = -128.0, 127.0
    least, most = _extremes(site, [-1])
    scale = site.call(aten.div.Tensor, site.call(aten.sub.Tensor, most, least), high - low)
    scale = site.call(aten.clamp.default, scale, torch.finfo(torch.float32).eps, None)
    below, above = (site.call(aten.div.Tensor, end, scale) for end in (least, most))
    from_below = site.call(aten.add.Tensor, site.call(aten.neg.default, below), low)
    from_above = site.call(aten.add.Tensor, site.call(aten.neg.default, above), high)
    nearer = site.call(aten.gt.Scalar, site.call(aten.add.Tensor, below, above), -low - high)
    zero = site.call(aten.where.self, nearer, from_below, from_above)
    zero = site.call(aten.clamp.default, zero, low, high)
    return scale, site.call(aten.round.default, zero)


_CHOICES: dict[Any, Callable[[Site], tuple[Number, Number]]] = {
    _decomposed.choose_qparams.tensor: _affine,
    _decomposed.choose_qparams_symmetric.tensor: _symmetric,
    _decomposed.choose_qparams_per_token.default: _token_symmetric,
    _decomposed.choose_qparams_per_token_asymmetric.default: _token_affine,
}
"""Operator that computes a scale and a zero point -> its formula in floats."""


# Values limited to a part of their type's integers


class _QuantParams(NamedTuple):
    """Arguments of a quantize or dequantize node."""

    scale: float
    zero_point: int
    low: int
    high: int
    dtype: torch.dtype

    @property
    def whole(self) -> tuple[int, int] | None:
        """Range of the integer type; None if it is not wider than low to high."""
        limits = RANGES.get(str(self.dtype).removeprefix("torch."))
        if limits is None or (self.low, self.high) == limits:
            return None
        return limits if limits[0] <= self.low < self.high <= limits[1] else None

    def real(self, integer: int) -> float:
        return (integer - self.zero_point) * self.scale


def widen_quant_ranges(graph: fx.Graph) -> int:
    """Widens quantisation to a part of a type to its whole range, with a clamp to that part.

    Given:
        %q [1, 8] = quantize_per_tensor(%x, 0.1, 0, 0, 127, torch.uint8)
        %f [1, 8] = dequantize_per_tensor(%q, 0.1, 0, 0, 127, torch.uint8)
    Result:
        %w [1, 8] = quantize_per_tensor(%x, 0.1, 0, 0, 255, torch.uint8)
        %d [1, 8] = dequantize_per_tensor(%w, 0.1, 0, 0, 255, torch.uint8)
        %c [1, 8] = clamp(%d, None, 12.7)
        %q [1, 8] = quantize_per_tensor(%c, 0.1, 0, 0, 255, torch.uint8)
        %f [1, 8] = dequantize_per_tensor(%q, 0.1, 0, 0, 255, torch.uint8)

    NNAPI's operations saturate at the limits of their type, not before. No clamp is added where %x
    is known to stay in the range. Returns the number of nodes replaced.
    """
    narrow = [
        (node, stated)
        for node in calls(graph)
        if node.target in (QUANTIZE, DEQUANTIZE) and (stated := _params_of(node)).whole is not None
    ]
    bounds = {node: _clamped(node, stated) for node, stated in narrow if node.target is QUANTIZE}
    for node, stated in narrow:
        site = Site(node)
        numbers = (stated.scale, stated.zero_point, *(stated.whole or ()), stated.dtype)
        replacement = site.call(node.target, node.args[0], *numbers)  # type: ignore[arg-type]
        low, high = bounds.get(node, (None, None))
        if low is not None or high is not None:
            floats = site.call(DEQUANTIZE, replacement, *numbers)
            if low == 0 and high is None:
                clamped = site.call(aten.relu.default, floats)
            else:
                clamped = site.call(aten.clamp.default, floats, low, high)
            replacement = site.call(QUANTIZE, clamped, *numbers)
        node.replace_all_uses_with(replacement)
        graph.erase_node(node)
    return len(narrow)


def _params_of(node: fx.Node) -> _QuantParams:
    args = bound_args(node)
    zero_point, low, high = (int(args[n]) for n in ("zero_point", "quant_min", "quant_max"))
    return _QuantParams(float(args["scale"]), zero_point, low, high, args["dtype"])


def _clamped(quantize: fx.Node, stated: _QuantParams) -> tuple[float | None, float | None]:
    """Returns the bounds, as real numbers, that the integers of the whole type may exceed."""
    assert stated.whole is not None
    low: float | None = stated.real(stated.low) if stated.low > stated.whole[0] else None
    high: float | None = stated.real(stated.high) if stated.high < stated.whole[1] else None
    least, most = _value_range(quantize.args[0])
    half = stated.scale / 2  # values that round to the last integer are in the range too
    return (
        None if low is not None and least > low - half else low,
        None if high is not None and most < high + half else high,
    )


_WITHIN = {
    aten.sigmoid.default: (0.0, 1.0),
    aten.hardsigmoid.default: (0.0, 1.0),
    aten.softmax.int: (0.0, 1.0),
    aten.tanh.default: (-1.0, 1.0),
}
_AMONG_INPUTS = frozenset(
    {
        aten.adaptive_avg_pool2d.default,
        aten.cat.default,
        aten.max_pool2d.default,
        aten.maximum.default,
        aten.mean.dim,
        aten.minimum.default,
        aten.upsample_bilinear2d.vec,
        aten.upsample_nearest2d.vec,
    }
)
"""Operators whose results are between the smallest and largest element of their input."""


def _value_range(value: Any, depth: int = 3) -> tuple[float, float]:
    """Returns bounds for all elements of a value; looks at up to ``depth`` operators."""
    unknown = (-math.inf, math.inf)
    if not isinstance(value, fx.Node) or value.op != "call_function" or not depth:
        return unknown
    if value.target in _WITHIN:
        return _WITHIN[value.target]
    if value.target is aten.relu.default:
        least, most = _value_range(value.args[0], depth - 1)
        return max(least, 0.0), max(most, 0.0)
    if value.target in (aten.hardtanh.default, aten.clamp.default):
        low, high = list(bound_args(value).values())[1:3]
        return (-math.inf if low is None else low), (math.inf if high is None else high)
    if is_dequantize(value):
        read = _params_of(value)
        return read.real(read.low), read.real(read.high)
    if value.target not in _AMONG_INPUTS:
        return unknown
    ranges = [_value_range(source, depth - 1) for source in value.all_input_nodes]
    return min(least for least, _ in ranges), max(most for _, most in ranges)
