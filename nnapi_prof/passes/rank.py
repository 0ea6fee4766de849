"""Reduce ranks above 4, which NNAPI mostly lacks, to 4 where only the spelling made them high.

Dimensions that an operation treats alike are merged: neighbours that are not normalised, reduced,
padded or multiplied by matrices become one dimension.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Any

import torch
from torch import fx

from nnapi_prof.graph import MAX_RANK
from nnapi_prof.graph.node import calls, is_constant, makes_tensor, type_of
from nnapi_prof.graph.quantisation import DEQUANTIZE, QUANTIZE
from nnapi_prof.passes import Rule, Site, apply_rules, erase_unused

aten = torch.ops.aten


def reshape(site: Site, source: fx.Node, shape: Sequence[int]) -> fx.Node:
    """Returns a ``reshape``. Unlike ``view``, eager PyTorch runs it on permuted memory too."""
    if is_constant(source):
        value = site.graph.owning_module.get_buffer(str(source.target))  # type: ignore[union-attr]
        return site.add_constant(value.reshape(list(shape)), str(source.target))
    return site.reshape(source, list(shape))


def three(shape: Sequence[int], dim: int) -> list[int]:
    """Returns ``shape`` as three sizes: before ``dim``, of ``dim``, and after it."""
    return [math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])]


def merged(marks: Sequence[object]) -> list[list[int]]:
    """Returns the dimensions in order, neighbours of one mark merged, without those marked None."""
    groups: list[list[int]] = []
    last: object = None
    for dim, mark in enumerate(marks):
        if mark is None:
            continue
        if groups and mark == last:
            groups[-1].append(dim)
        else:
            groups.append([dim])
        last = mark
    return groups


def sizes_of(shape: Sequence[int], groups: Sequence[Sequence[int]]) -> list[int]:
    """Returns the sizes of merged dimensions."""
    return [math.prod(shape[dim] for dim in group) for group in groups]


def _is_high(shape: Sequence[int]) -> bool:
    return len(shape) > MAX_RANK


def _non_negative_dims(dims: int | Sequence[int] | None, rank: int) -> list[int]:
    """Returns dimensions as non-negative numbers; None and an empty list mean all of them."""
    if isinstance(dims, int):
        return [dims % rank]
    return [dim % rank for dim in dims] if dims else list(range(rank))


def _with_dims(site: Site, source: fx.Node, dims: int | list[int], shape: Sequence[int]) -> fx.Node:
    """Returns the site's call of another source along other dimensions, reshaped to ``shape``."""
    first = next(iter(site.args))
    return reshape(site, site.call_with({first: source, "dim": dims}), shape)


def _along_one(site: Site) -> fx.Node | None:
    """Merges the dimensions before and those after the one that an operation works along."""
    shape = type_of(site.input()).shape
    if not _is_high(shape) or not isinstance(site.args["dim"], int):
        return None
    flat = reshape(site, site.input(), three(shape, site.args["dim"] % len(shape)))
    return _with_dims(site, flat, 1, site.type.shape)


def _reduction(site: Site) -> fx.Node | None:
    """Merges neighbouring axes that are reduced, and neighbouring axes that are not."""
    shape = type_of(site.input()).shape
    if not _is_high(shape):
        return None
    dims = set(_non_negative_dims(site.args["dim"], len(shape)))
    groups = _groups(shape, dims)
    if len(groups) > MAX_RANK:
        return _reduced_in_turn(site, groups, dims)
    flat = reshape(site, site.input(), sizes_of(shape, groups))
    reduced = [i for i, group in enumerate(groups) if group[0] in dims]
    dims_are_one = site.node.target in _OF_ONE_DIM
    return _with_dims(site, flat, reduced[0] if dims_are_one else reduced, site.type.shape)


def _reduced_in_turn(
    site: Site, groups: Sequence[Sequence[int]], dims: Collection[int]
) -> fx.Node | None:
    """Reduces one merged dimension after the other, if that gives the same result."""
    target = site.node.target
    if target not in _IN_TURN:
        return None
    assert isinstance(target, torch._ops.OpOverload)
    value, sizes = site.input(), sizes_of(type_of(site.input()).shape, groups)
    for place in reversed(range(len(groups))):
        if groups[place][0] in dims:
            value = site.call(target, reshape(site, value, three(sizes, place)), [1])
            del sizes[place]
    return reshape(site, value, site.type.shape)


def _groups(shape: Sequence[int], dims: Collection[int]) -> list[list[int]]:
    """Returns dimensions merged by whether ``dims`` has them, without others of size 1."""
    return merged(
        [None if size == 1 and dim not in dims else dim in dims for dim, size in enumerate(shape)]
    )


def _one_by_one(
    site: Site, steps: Sequence[tuple[int, int]], step: Callable[[fx.Node, int], fx.Node]
) -> fx.Node | None:
    """Applies ``step`` to the middle of three dimensions, for each (dimension, amount)."""
    value, shape = site.input(), list(type_of(site.input()).shape)
    for dim, amount in steps:
        done = step(reshape(site, value, three(shape, dim)), amount)
        shape[dim] = type_of(done).shape[1]
        value = reshape(site, done, shape)
    return value


def _flip(site: Site) -> fx.Node | None:
    shape, dims = site.type.shape, site.args["dims"]
    if not _is_high(shape) or not dims:
        return None
    steps = [(dim, 0) for dim in _non_negative_dims(dims, len(shape))]
    return _one_by_one(site, steps, lambda x, _: site.call(aten.flip.default, x, [1]))


def _roll(site: Site) -> fx.Node | None:
    shape, dims = site.type.shape, site.args["dims"]
    if not _is_high(shape) or not dims:
        return None
    steps = list(zip(_non_negative_dims(dims, len(shape)), site.args["shifts"], strict=True))
    return _one_by_one(site, steps, lambda x, shift: site.call(aten.roll.default, x, [shift], [1]))


def _repeat(site: Site) -> fx.Node | None:
    if not _is_high(site.type.shape):
        return None
    repeats = list(site.args["repeats"])
    shape = type_of(site.input()).shape
    filled = (1,) * (len(repeats) - len(shape)) + shape
    value = reshape(site, site.input(), filled) if filled != shape else site.input()
    sizes = list(filled)
    for dim, times in enumerate(repeats):
        if times != 1:
            flat = reshape(site, value, three(sizes, dim))
            sizes[dim] *= times
            value = reshape(site, site.call(aten.repeat.default, flat, [1, times, 1]), sizes)
    return value


def _pad(site: Site) -> fx.Node | None:
    shape = type_of(site.input()).shape
    pad = list(site.args["pad"])
    rank = len(shape)
    if not _is_high(shape):
        return None
    pairs = [(0, 0)] * rank
    for i in range(len(pad) // 2):  # pairs begin at the last dimension
        pairs[rank - 1 - i] = (pad[2 * i], pad[2 * i + 1])
    marks: list[object] = [
        (None if size == 1 else -1) if pair == (0, 0) else dim
        for dim, (size, pair) in enumerate(zip(shape, pairs, strict=True))
    ]
    groups = merged(marks)
    if len(groups) > MAX_RANK:
        return None
    flat = reshape(site, site.input(), sizes_of(shape, groups))
    sides = [side for group in reversed(groups) for side in pairs[group[0]]]
    padded = site.call(aten.constant_pad_nd.default, flat, sides, site.args["value"])
    return reshape(site, padded, site.type.shape)


def _index_select(site: Site) -> fx.Node | None:
    shape = type_of(site.input()).shape
    if not _is_high(shape):
        return None
    flat = reshape(site, site.input(), three(shape, site.args["dim"] % len(shape)))
    taken = site.call(aten.index_select.default, flat, 1, site.input("index"))
    return reshape(site, taken, site.type.shape)


_IN_TURN = (aten.mean.dim, aten.sum.dim_IntList, aten.amax.default, aten.amin.default)
_OF_ONE_DIM = (
    aten.prod.dim_int,
    aten.any.dim,
    aten.all.dim,
    aten.argmax.default,
    aten.argmin.default,
)
_REDUCTIONS = (
    *_OF_ONE_DIM,
    *_IN_TURN,
    aten.linalg_vector_norm.default,
    aten.logsumexp.default,
    aten.var.dim,
    aten.var.correction,
    aten.std.dim,
    aten.std.correction,
)
_ALONG_ONE = (
    aten.softmax.int,
    aten.log_softmax.int,
    aten.glu.default,
    aten.cumsum.default,
    aten.cumprod.default,
)
ALONG: dict[torch._ops.OpOverload, Rule] = {
    **dict.fromkeys(_REDUCTIONS, _reduction),
    **dict.fromkeys(_ALONG_ONE, _along_one),
    aten.flip.default: _flip,
    aten.roll.default: _roll,
    aten.repeat.default: _repeat,
    aten.constant_pad_nd.default: _pad,
    aten.index_select.default: _index_select,
}


# Operations whose first dimensions are a batch, which becomes one dimension or two


MAX_BATCHES = MAX_RANK - 2
"""Most dimensions of a batch of matrices."""


def _last_dims(site: Site, name: str, n_last: int) -> fx.Node | None:
    """Returns the site's call with all except the last dimensions of an argument merged."""
    source = site.input(name)
    shape = type_of(source).shape
    if len(shape) <= MAX_RANK or n_last >= MAX_RANK:
        return None
    split = len(shape) - n_last
    flat = reshape(site, source, [math.prod(shape[:split]), *shape[split:]])
    return _called_with(site, {name: flat})


def _called_with(site: Site, changed: dict[str, fx.Node]) -> fx.Node:
    """Returns the site's call with other arguments, reshaped to the site's shape."""
    return reshape(site, site.call_with(changed), site.type.shape)


def _linear(site: Site) -> fx.Node | None:
    return _last_dims(site, "input", 1)


def _norm_of_last(site: Site) -> fx.Node | None:
    return _last_dims(site, "input", len(site.args["normalized_shape"]))


def _norm_of_channels(site: Site) -> fx.Node | None:
    """Merges the dimensions after the channels, of norms and slopes for each channel, to two."""
    name = "input" if "input" in site.args else "self"
    shape = type_of(site.input(name)).shape
    if len(shape) <= MAX_RANK:
        return None
    images = [*shape[:3], math.prod(shape[3:])]
    return _called_with(site, {name: reshape(site, site.input(name), images)})


def _matrices(site: Site, names: Sequence[str]) -> fx.Node | None:
    """Merges neighbouring batch dimensions of matrices that broadcast alike."""
    tensors = {name: site.input(name) for name in names if site.args[name] is not None}
    shapes = {name: type_of(tensor).shape for name, tensor in tensors.items()}
    rank = max(map(len, shapes.values()))
    if rank <= MAX_RANK or min(map(len, shapes.values())) < 2:
        return None
    full = {name: (1,) * (rank - len(shape)) + shape for name, shape in shapes.items()}
    marks: list[object] = []
    for dim in range(rank - 2):
        size = max(shape[dim] for shape in full.values())
        sharing = tuple(shape[dim] == size for shape in full.values())
        marks.append(None if size == 1 else sharing)
    groups = merged(marks)
    sizes = {name: sizes_of(shape, groups) for name, shape in full.items()}
    whole = [max(size) for size in zip(*sizes.values(), strict=True)]
    if len(groups) >= MAX_RANK:
        return None
    flat = {}
    for name, tensor in tensors.items():
        matrix = full[name][-2:]
        if len(groups) <= MAX_BATCHES:
            flat[name] = reshape(site, tensor, [*sizes[name], *matrix])
        else:
            flat[name] = reshape(
                site,
                _expand_matrices(site, tensor, sizes[name], whole, matrix),
                [math.prod(whole), *matrix],
            )
    return _called_with(site, flat)


def _expand_matrices(
    site: Site, tensor: fx.Node, sizes: list[int], whole: list[int], matrix: Sequence[int]
) -> fx.Node:
    """Returns a batch of matrices expanded to the sizes ``whole``, each matrix as a row."""
    row = math.prod(matrix)
    batch = reshape(site, tensor, [*sizes, row])
    return batch if sizes == whole else site.call(aten.expand.default, batch, [*whole, row])


def _matmul(site: Site) -> fx.Node | None:
    left, right = (type_of(site.input(name)).shape for name in ("self", "other"))
    if len(right) <= 2:
        return _last_dims(site, "self", 1)
    if len(left) == 1:
        return None
    return _matrices(site, ("self", "other"))


def _attention(site: Site) -> fx.Node | None:
    if site.args["enable_gqa"]:  # heads that share keys do not broadcast
        return None
    return _matrices(site, ("query", "key", "value", "attn_mask"))


BATCHED: dict[torch._ops.OpOverload, Rule] = {
    aten.linear.default: _linear,
    aten.layer_norm.default: _norm_of_last,
    aten.rms_norm.default: _norm_of_last,
    aten.batch_norm.default: _norm_of_channels,
    aten.instance_norm.default: _norm_of_channels,
    aten.group_norm.default: _norm_of_channels,
    aten.prelu.default: _norm_of_channels,
    aten.matmul.default: _matmul,
    aten.scaled_dot_product_attention.default: _attention,
}
"""Rules for operators of one value."""


MAX_STEPS = 4
"""Most transpositions of rank 4 that replace one of a higher rank."""


def decompose_high_rank(graph: fx.Graph) -> int:
    """Rewrites operations on more than four dimensions.

    Given:
        %v [1, 2, 4, 2, 4, 8] = view(%x [1, 8, 8, 8], ...)
        %p [1, 2, 2, 4, 4, 8] = permute(%v, [0, 1, 3, 2, 4, 5])
        %w [4, 4, 4, 8]       = view(%p, ...)
    Result:
        %v [2, 4, 2, 32] = reshape(%x, ...)
        %p [2, 2, 4, 32] = permute(%v, [0, 2, 1, 3])
        %w [4, 4, 4, 8]  = reshape(%p, ...)

    Channel shuffles, pixel shuffles and their inverses become these operators. Merged are
    dimensions that stay neighbours, batch dimensions, and those along which nothing is reduced,
    padded or taken. A slice moves before the permutation that it reads. A permutation that still
    needs more dimensions becomes up to four of rank 4, one after the other.
    Returns the number of nodes replaced.
    """
    changed = apply_rules(graph, dict.fromkeys(_RESHAPES, _shuffle))
    erase_unused(graph)  # permutations that only slices read must be gone before their own turn
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
    """Makes a reshape of reshapes read the first one's input, or replaces it by that."""
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
    """Returns the operator that view, permute and view spell, if it is a shuffle."""
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
    """Slices a value of high rank: before the permutation that makes it, or in a reshape to three
    dimensions."""
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
    """Merges dimensions along which all tensors broadcast alike."""
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
    """Returns the permutation of 0..n-1 in the order of ``order``."""
    places = {dim: i for i, dim in enumerate(sorted(order))}
    return [places[dim] for dim in order]


def _merged(sizes: Sequence[int], order: Sequence[int]) -> tuple[list[int], tuple[int, ...]]:
    """Returns sizes and permutation with dimensions that stay neighbours merged."""
    heads = [d for i, d in enumerate(order) if i == 0 or order[i - 1] != d - 1]
    ends = [*sorted(heads)[1:], len(sizes)]
    merged = [math.prod(sizes[a:b]) for a, b in zip(sorted(heads), ends, strict=True)]
    return merged, tuple(_ranks(heads))


@cache
def _steps(order: tuple[int, ...]) -> tuple[tuple[int, int, int], ...] | None:
    """Returns the fewest swaps of neighbouring blocks [a:b] and [b:c] that result in ``order``;
    None for more than MAX_STEPS."""
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
"""Operators that are pointwise but not tagged so."""
