"""Quantised values that keep to a part of their type's integers: NNAPI has whole types."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import fx

from nnapi_prof.graph.node import bound_args, calls
from nnapi_prof.graph.passes.rewrite import Site
from nnapi_prof.graph.quantisation import DEQUANTIZE, QUANTIZE, RANGES, is_dequantize

aten = torch.ops.aten


class _Stated(NamedTuple):
    """The numbers of a quantize or dequantize node."""

    scale: float
    zero_point: int
    low: int
    high: int
    dtype: torch.dtype

    @property
    def whole(self) -> tuple[int, int] | None:
        """The range of the integer type, where it has those from low to high and others."""
        limits = RANGES.get(str(self.dtype).removeprefix("torch."))
        if limits is None or (self.low, self.high) == limits:
            return None
        return limits if limits[0] <= self.low < self.high <= limits[1] else None

    def real(self, integer: int) -> float:
        return (integer - self.zero_point) * self.scale


def use_whole_ranges(graph: fx.Graph) -> int:
    """Integers that keep to a part of their type get an operation that keeps them there.

    Given:
        %q [1, 8] = quantize_per_tensor(%x, 0.1, 0, 0, 127, torch.uint8)
        %f [1, 8] = dequantize_per_tensor(%q, 0.1, 0, 0, 127, torch.uint8)
    Result:
        %w [1, 8] = quantize_per_tensor(%x, 0.1, 0, 0, 255, torch.uint8)
        %d [1, 8] = dequantize_per_tensor(%w, 0.1, 0, 0, 255, torch.uint8)
        %c [1, 8] = clamp(%d, None, 12.7)
        %q [1, 8] = quantize_per_tensor(%c, 0.1, 0, 0, 255, torch.uint8)
        %f [1, 8] = dequantize_per_tensor(%q, 0.1, 0, 0, 255, torch.uint8)

    NNAPI's operations saturate where their type ends, not before. Nothing is added where %x is
    known to stay in the range. Returns the nodes replaced.
    """
    narrow = [
        (node, stated)
        for node in calls(graph)
        if node.target in (QUANTIZE, DEQUANTIZE) and (stated := _stated(node)).whole is not None
    ]
    bounds = {node: _clamped(node, stated) for node, stated in narrow if node.target is QUANTIZE}
    for node, stated in narrow:
        site = Site(node)
        numbers = (stated.scale, stated.zero_point, *(stated.whole or ()), stated.dtype)
        found = site.call(node.target, node.args[0], *numbers)  # type: ignore[arg-type]
        low, high = bounds.get(node, (None, None))
        if low is not None or high is not None:
            floats = site.call(DEQUANTIZE, found, *numbers)
            if low == 0 and high is None:
                kept = site.call(aten.relu.default, floats)
            else:
                kept = site.call(aten.clamp.default, floats, low, high)
            found = site.call(QUANTIZE, kept, *numbers)
        node.replace_all_uses_with(found)
        graph.erase_node(node)
    return len(narrow)


def _stated(node: fx.Node) -> _Stated:
    args = bound_args(node)
    zero_point, low, high = (int(args[n]) for n in ("zero_point", "quant_min", "quant_max"))
    return _Stated(float(args["scale"]), zero_point, low, high, args["dtype"])


def _clamped(quantize: fx.Node, stated: _Stated) -> tuple[float | None, float | None]:
    """The bounds, as real numbers, that the integers of the whole type may be beyond."""
    assert stated.whole is not None
    low: float | None = stated.real(stated.low) if stated.low > stated.whole[0] else None
    high: float | None = stated.real(stated.high) if stated.high < stated.whole[1] else None
    least, most = _extremes(quantize.args[0])
    half = stated.scale / 2  # what rounds to the last integer is in the range, too
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
"""Operators whose results lie between the least and the largest of what they read."""


def _extremes(value: Any, depth: int = 3) -> tuple[float, float]:
    """Numbers between which all elements of a value are known to lie; asks ``depth`` operators."""
    unknown = (-math.inf, math.inf)
    if not isinstance(value, fx.Node) or value.op != "call_function" or not depth:
        return unknown
    if value.target in _WITHIN:
        return _WITHIN[value.target]
    if value.target is aten.relu.default:
        least, most = _extremes(value.args[0], depth - 1)
        return max(least, 0.0), max(most, 0.0)
    if value.target in (aten.hardtanh.default, aten.clamp.default):
        low, high = list(bound_args(value).values())[1:3]
        return (-math.inf if low is None else low), (math.inf if high is None else high)
    if is_dequantize(value):
        read = _stated(value)
        return read.real(read.low), read.real(read.high)
    if value.target not in _AMONG_INPUTS:
        return unknown
    found = [_extremes(source, depth - 1) for source in value.all_input_nodes]
    return min(least for least, _ in found), max(most for _, most in found)
