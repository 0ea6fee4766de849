"""Ranks above 4, which NNAPI mostly lacks, brought down to 4 where only spelling made them high."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import fx

from nnapi_prof.graph.node import calls, is_constant, makes_tensor, type_of
from nnapi_prof.graph.quantisation import DEQUANTIZE, QUANTIZE
from nnapi_prof.graph.types import MAX_RANK
from nnapi_prof.passes.decompose.rank_rules import (
    ALONG,
    BATCHED,
    merged,
    reshape,
    sizes_of,
    three,
)
from nnapi_prof.passes.rewrite import Rule, Site, apply_rules, erase_unused

aten = torch.ops.aten

MAX_STEPS = 4
"""Transpositions of rank 4 that may stand for one of a higher rank."""


def decompose_high_rank(graph: fx.Graph) -> int:
    """Takes apart what is spelt in more than four dimensions.

    Given:
        %v [1, 2, 4, 2, 4, 8] = view(%x [1, 8, 8, 8], ...)
        %p [1, 2, 2, 4, 4, 8] = permute(%v, [0, 1, 3, 2, 4, 5])
        %w [4, 4, 4, 8]       = view(%p, ...)
    Result:
        %v [2, 4, 2, 32] = reshape(%x, ...)
        %p [2, 2, 4, 32] = permute(%v, [0, 2, 1, 3])
        %w [4, 4, 4, 8]  = reshape(%p, ...)

    Channel shuffles, pixel shuffles and their inverses that are spelt so become the operators.
    Dimensions that stay side by side are one, and so are those of a batch, and those along which
    nothing is reduced, padded or taken (ranks_along, ranks_batched); a slice stands before the
    permutation it reads; a permutation that needs more dimensions still is up to four of rank 4,
    one after the other.
    Returns the nodes replaced.
    """
    changed = apply_rules(graph, dict.fromkeys(_RESHAPES, _shuffle))
    erase_unused(graph)  # a permutation that only slices read must be gone before its own turn
    changed += apply_rules(graph, {aten.slice.Tensor: _slice})
    erase_unused(graph)
    high = {
        aten.permute.default: _permute,
        aten.cat.default: _cat,
        aten.expand.default: _pointwise,
    }
    pointwise: dict[torch._ops.OpOverload, Rule] = {
        node.target: _pointwise
        for node in calls(graph)
        if isinstance(node.target, torch._ops.OpOverload)
        and (torch.Tag.pointwise in node.target.tags or node.target in _POINTWISE)
    }
    lowered = apply_rules(graph, {**pointwise, **ALONG, **BATCHED, **high})
    if changed + lowered:
        _join_reshapes(graph)
    return changed + lowered


def _join_reshapes(graph: fx.Graph) -> None:
    """Lets a reshape of reshapes read what the first one reads, or stand for it."""
    for node in calls(graph):
        if node.target not in _RESHAPES:
            continue
        source: Any = node.args[0]
        while source.target in _RESHAPES:
            source = source.args[0]
        if type_of(source).shape == type_of(node).shape:
            node.replace_all_uses_with(source)
        elif source is not node.args[0]:
            node.target = aten.reshape.default
            node.args = (source, list(type_of(node).shape))


def _shuffle(site: Site) -> fx.Node | None:
    """The operator that view, permute and view spell, where it is one of the shuffles."""
    permute = site.input()
    view: Any = permute.args[0] if permute.target is aten.permute.default else None
    if not isinstance(view, fx.Node) or view.target not in _RESHAPES:
        return None
    source: Any = view.args[0]
    shape, split, result = (type_of(n).shape for n in (source, view, site.node))
    order: Any = permute.args[1]
    order = tuple(order)
    if len(shape) < 3 or len(split) < 5:
        return None
    n, c, *image = shape
    swap = (0, 2, 1, *range(3, len(split)))
    if order == swap and split == (n, split[1], c // split[1], *image) and result == shape:
        return site.call(aten.channel_shuffle.default, source, split[1])
    if len(shape) != 4 or len(split) != 6:
        return None
    h, w = image
    r = split[3]
    if order == (0, 1, 4, 2, 5, 3) and split == (n, c // (r * r), r, r, h, w):
        if result == (n, c // (r * r), h * r, w * r):
            return site.call(aten.pixel_shuffle.default, source, r)
    if order == (0, 1, 3, 5, 2, 4) and split == (n, c, h // r, r, w // r, r):
        if result == (n, c * r * r, h // r, w // r):
            return site.call(aten.pixel_unshuffle.default, source, r)
    return None


def _slice(site: Site) -> fx.Node | None:
    source = site.input()
    if len(type_of(source).shape) <= MAX_RANK:
        return None
    dim, bounds = site.args["dim"], [site.args[name] for name in ("start", "end", "step")]
    return _cut(site, source, dim, bounds)


def _cut(site: Site, source: fx.Node, dim: int, bounds: Sequence[int]) -> fx.Node:
    """A slice of a value of high rank: before the permutation that makes it, or of a reshape that
    leaves three dimensions."""
    if source.target is aten.permute.default:
        inner: Any = source.args[0]
        order: Any = source.args[1]
        cut = _cut(site, inner, order[dim], bounds)
        return site.call(aten.permute.default, cut, list(order))
    shape = list(type_of(source).shape)
    flat = reshape(site, source, three(shape, dim))
    cut = site.call(aten.slice.Tensor, flat, 1, *bounds)
    shape[dim] = type_of(cut).shape[1]
    return reshape(site, cut, shape)


def _cat(site: Site) -> fx.Node | None:
    shape, dim = site.type.shape, site.args["dim"]
    if len(shape) <= MAX_RANK:
        return None
    flat = [reshape(site, t, three(type_of(t).shape, dim)) for t in site.args["tensors"]]
    return reshape(site, site.call(aten.cat.default, flat, 1), shape)


def _pointwise(site: Site) -> fx.Node | None:
    """Dimensions along which all tensors broadcast alike are one."""
    if not makes_tensor(site.node) or len(site.type.shape) <= MAX_RANK:
        return None
    result = site.type.shape
    tensors = [a for a in site.node.all_input_nodes if makes_tensor(a)]
    if all(map(is_constant, tensors)):
        return None  # a quantised weight
    shapes = [(1,) * (len(result) - len(s)) + s for s in (type_of(t).shape for t in tensors)]
    groups = merged(
        [
            None if size == 1 else tuple(shape[dim] == size for shape in shapes)
            for dim, size in enumerate(result)
        ]
    )
    if len(groups) > MAX_RANK:
        return None
    flat = {
        tensor: reshape(site, tensor, sizes_of(shape, groups))
        for tensor, shape in zip(tensors, shapes, strict=True)
    }
    target: Any = site.node.target
    args = list(fx.node.map_arg(site.node.args, lambda node: flat[node]))
    kwargs = fx.node.map_arg(site.node.kwargs, lambda node: flat[node])
    if target is aten.expand.default:
        args[1] = sizes_of(result, groups)
    return reshape(site, site.call(target, *args, **kwargs), result)


def _permute(site: Site) -> fx.Node | None:
    shape = type_of(site.input()).shape
    order = [dim for dim in site.args["dims"] if shape[dim] != 1]
    if len(shape) <= MAX_RANK:
        return None
    sizes, merged = _merged([shape[dim] for dim in sorted(order)], _ranks(order))
    steps = _steps(merged)
    if steps is None:
        return None
    value = site.input()
    for first, middle, last in steps:
        blocks = [
            math.prod(sizes[:first]),
            math.prod(sizes[first:middle]),
            math.prod(sizes[middle:last]),
            math.prod(sizes[last:]),
        ]
        flat = reshape(site, value, blocks)
        value = site.call(aten.permute.default, flat, [0, 2, 1, 3])
        sizes = [*sizes[:first], *sizes[middle:last], *sizes[first:middle], *sizes[last:]]
    return reshape(site, value, site.type.shape)


def _ranks(order: Sequence[int]) -> list[int]:
    """The permutation of 0..n-1 that orders as ``order`` does."""
    places = {dim: i for i, dim in enumerate(sorted(order))}
    return [places[dim] for dim in order]


def _merged(sizes: Sequence[int], order: Sequence[int]) -> tuple[list[int], tuple[int, ...]]:
    """Sizes and permutation with dimensions that stay neighbours made one."""
    heads = [d for i, d in enumerate(order) if i == 0 or order[i - 1] != d - 1]
    ends = [*sorted(heads)[1:], len(sizes)]
    merged = [math.prod(sizes[a:b]) for a, b in zip(sorted(heads), ends, strict=True)]
    return merged, tuple(_ranks(heads))


@cache
def _steps(order: tuple[int, ...]) -> tuple[tuple[int, int, int], ...] | None:
    """The fewest swaps of neighbouring blocks [a:b] and [b:c] that permute as ``order`` says; None
    where more than MAX_STEPS are needed."""
    start = tuple(range(len(order)))
    if len(order) > 7:
        return None  # too many orders to try
    paths: dict[tuple[int, ...], tuple[tuple[int, int, int], ...]] = {start: ()}
    waiting = deque([start])
    while waiting and order not in paths:
        now = waiting.popleft()
        if len(paths[now]) == MAX_STEPS:
            break
        for c in range(2, len(now) + 1):
            for b in range(1, c):
                for a in range(b):
                    swapped = (*now[:a], *now[b:c], *now[a:b], *now[c:])
                    if swapped not in paths:
                        paths[swapped] = (*paths[now], (a, b, c))
                        waiting.append(swapped)
    return paths.get(order)


_RESHAPES = (aten.view.default, aten.reshape.default)
_POINTWISE = (
    aten._to_copy.default,
    aten.hardswish.default,
    aten.hardsigmoid.default,
    aten.log_sigmoid.default,
    aten.floor_divide.default,
    aten.where.ScalarSelf,
    aten.where.ScalarOther,
    aten.where.Scalar,
    DEQUANTIZE,
    QUANTIZE,
)
"""Pointwise, but not tagged so."""
