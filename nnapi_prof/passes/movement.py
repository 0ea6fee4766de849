"""Spell rare operators of movement and pooling by common ones."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import fx

from nnapi_prof.graph.node import (
    calls,
    constant_value,
    is_constant,
    makes_tensor,
    positive_dim,
    torch_dtype,
    type_of,
)
from nnapi_prof.passes import ManyRule, Rule, Site, apply_many_rules, apply_rules, only_first_read
from nnapi_prof.passes.scatter import PATCH_RULES

aten = torch.ops.aten


def canonicalize_movement(graph: fx.Graph) -> int:
    """Spells flips, stacks, splits and adaptive maxima by few operators.

    Given:
        %f [2, 3] = fliplr(%a [2, 3])
        %v [4, 3] = vstack([%a, %f])
        %m [1, 8, 2, 2], %i = adaptive_max_pool2d(%x [1, 8, 6, 6], [2, 2])
    Result:
        %f = flip(%a, [1])
        %v = cat([%a, %f], 0)
        %m = max_pool2d(%x, [3, 3], [3, 3], [0, 0], [1, 1], False)

    Adaptive maxima of unequal windows are split and joined along one axis after the other. A pool
    whose indices are read stays. Returns the number of nodes replaced.
    """
    return apply_many_rules(graph, _MANY_RULES) + apply_rules(graph, _RULES)


def _flip_one(dim: int) -> Rule:
    return lambda site: site.call(aten.flip.default, site.input(), [dim])


def _flip(site: Site) -> fx.Node | None:
    rank = len(site.type.shape)
    dims = [positive_dim(dim, rank) for dim in site.args["dims"]]
    return site.become(aten.flip.default, site.input(), dims)


def _rot90(site: Site) -> fx.Node | None:
    rank = len(site.type.shape)
    a, b = (positive_dim(dim, rank) for dim in site.args["dims"])
    turns = site.args["k"] % 4
    if turns == 0:
        return site.input()
    if turns == 2:
        return site.call(aten.flip.default, site.input(), [a, b])
    order = list(range(rank))
    order[a], order[b] = b, a
    if turns == 1:
        flipped = site.call(aten.flip.default, site.input(), [b])
        return site.call(aten.permute.default, flipped, order)
    turned = site.call(aten.permute.default, site.input(), order)
    return site.call(aten.flip.default, turned, [b])


def _tile(site: Site) -> fx.Node | None:
    listed = list(site.args["dims"])
    missing = len(type_of(site.input()).shape) - len(listed)
    return site.call(aten.repeat.default, site.input(), [1] * missing + listed)


def _moveaxis(site: Site) -> fx.Node | None:
    target = aten.movedim.int if isinstance(site.args["source"], int) else aten.movedim.intlist
    return site.call(target, site.input(), site.args["source"], site.args["destination"])


def _last_two(site: Site) -> fx.Node | None:
    return site.call(aten.transpose.int, site.input(), -2, -1)


def _same_elements(site: Site) -> fx.Node | None:
    return site.reshape(site.input(), list(site.type.shape))


def _concatenate_at_rank(dim: int, rank: int) -> Rule:
    """Concatenates along ``dim`` tensors brought to ``rank`` by leading dimensions of 1 (a vector
    becomes a matrix of one row)."""

    def rule(site: Site) -> fx.Node | None:
        tensors = [_at_least(site, t, rank) for t in site.args["tensors"]]
        along = min(dim, len(type_of(tensors[0]).shape) - 1)
        return site.call(aten.cat.default, tensors, along)

    return rule


def _at_least(site: Site, node: fx.Node, rank: int) -> fx.Node:
    shape = type_of(node).shape
    if len(shape) >= rank:
        return node
    return site.reshape(node, [1] * (rank - len(shape)) + list(shape))


def _columns(site: Site) -> fx.Node | None:
    tensors = [
        site.reshape(t, [type_of(t).n_elements, 1]) if len(type_of(t).shape) < 2 else t
        for t in site.args["tensors"]
    ]
    return site.call(aten.cat.default, tensors, 1)


def _channel_shuffle(site: Site) -> fx.Node | None:
    return site.call(aten.channel_shuffle.default, site.input(), site.args["groups"])


def _take_along_dim(site: Site) -> fx.Node | None:
    """Returns a ``gather``, which does not broadcast, if nothing has to broadcast."""
    index, dim = site.input("indices"), site.args["dim"]
    if dim is None:
        flat = site.reshape(site.input(), [type_of(site.input()).n_elements])
        along = site.reshape(index, [type_of(index).n_elements])
        along = _from_the_front(site, along, type_of(flat).n_elements)
        return site.call(aten.gather.default, flat, 0, along)
    have, want = type_of(site.input()).shape, type_of(index).shape
    dim = positive_dim(dim, len(have))
    if len(have) != len(want) or any(
        a != b for axis, (a, b) in enumerate(zip(have, want, strict=True)) if axis != dim
    ):
        return None
    index = _from_the_front(site, index, have[dim])
    return site.call(aten.gather.default, site.input(), dim, index)


def _from_the_front(site: Site, index: fx.Node, size: int) -> fx.Node:
    """Returns positions from the front; negative ones, which gather lacks, count from the end."""
    if index.target in _POSITIONS or index.target is operator.getitem:  # getitem of sort or topk
        return index
    below = site.call(aten.lt.Scalar, index, 0)
    return site.call(aten.where.self, below, site.call(aten.add.Tensor, index, size), index)


_POSITIONS = (aten.argmax.default, aten.argmin.default, aten.argsort.default)


def _sections(site: Site) -> list[fx.Node] | None:
    """Splits by ``tensor_split``: evenly with the larger parts first, or at given positions."""
    dim = site.args["dim"]
    size = type_of(site.input()).shape[dim]
    parts = site.args.get("sections")
    if parts is not None:
        sizes = [size // parts + (i < size % parts) for i in range(parts)]
    else:
        places = [slice(None, i).indices(size)[1] for i in site.args["indices"]]
        ends = [*places, size]
        starts = [0, *places]
        sizes = [max(0, b - a) for a, b in zip(starts, ends, strict=True)]
        if sum(sizes) != size:
            return None  # positions that decrease
    return site.slices(dim, sizes)


def _unsafe_split(site: Site) -> list[fx.Node] | None:
    dim = site.args["dim"]
    size = type_of(site.input()).shape[dim]
    sizes: Any = site.args.get("split_size", site.args.get("split_sizes"))
    if "chunks" in site.args:
        sizes = -(-size // site.args["chunks"])
    if isinstance(sizes, int):
        sizes = [min(sizes, size - start) for start in range(0, size, sizes)]
    return site.slices(dim, sizes)


def adaptive_windows(size: int, out: int) -> list[range]:
    """Returns the elements of an axis in the window of each of ``out`` results."""
    return [range(i * size // out, -((-(i + 1) * size) // out)) for i in range(out)]


def equal_windows(size: int, out: int) -> tuple[int, int] | None:
    """Returns (length, stride) of the windows if all are equal, as in plain pooling."""
    windows = adaptive_windows(size, out)
    lengths = {len(window) for window in windows}
    steps = {b.start - a.start for a, b in itertools.pairwise(windows)}
    if len(lengths) > 1 or len(steps) > 1 or 0 in steps:
        return None
    return len(windows[0]), min(steps, default=len(windows[0]))


def _adaptive_max_pool(site: Site) -> list[fx.Node] | None:
    if not only_first_read(site.node):
        return None
    source = site.input()
    lines = len(site.args["output_size"]) == 1
    *outer, h, w = type_of(source).shape if not lines else (*_with_row_dim(type_of(source).shape),)
    out_h, out_w = [1, *site.args["output_size"]][-2:]
    shape = [*outer, out_h, out_w]
    image = site.reshape(source, [*outer, h, w]) if lines else source
    rows, columns = equal_windows(h, out_h), equal_windows(w, out_w)
    if rows is not None and columns is not None:
        kernel, stride = zip(rows, columns, strict=True)
        pooled = site.call(
            aten.max_pool2d.default, image, list(kernel), list(stride), [0, 0], [1, 1], False
        )
    else:
        pooled = _maxima(site, _maxima(site, image, -2, out_h), -1, out_w)
    if lines:
        pooled = site.reshape(pooled, [*shape[:-2], out_w])
    return [pooled]


def _with_row_dim(shape: Sequence[int]) -> tuple[int, ...]:
    return (*shape[:-1], 1, shape[-1])


def _maxima(site: Site, source: fx.Node, dim: int, out: int) -> fx.Node:
    """Returns the maximum of each adaptive window along one dimension."""
    dim = positive_dim(dim, len(type_of(source).shape))
    parts = []
    for window in adaptive_windows(type_of(source).shape[dim], out):
        cut = site.call(aten.slice.Tensor, source, dim, window.start, window.stop, 1)
        parts.append(site.call(aten.amax.default, cut, [dim], True))
    return site.call(aten.cat.default, parts, dim)


def _signed(site: Site) -> fx.Node | None:
    """Replaces ``sign(x) * relu(abs(x))``, lp_pool's spelling of x, by x."""
    a, b = site.args["self"], site.args["other"]
    for sign, rest in ((a, b), (b, a)):
        if not isinstance(sign, fx.Node) or not isinstance(rest, fx.Node):
            continue
        if sign.target is not aten.sign.default or rest.target is not aten.relu.default:
            continue
        size: Any = rest.args[0]
        if size.target is aten.abs.default and size.args[0] is sign.args[0]:
            base: Any = sign.args[0]
            assert isinstance(base, fx.Node)
            return base
    return None


def _slice_scatter(site: Site) -> fx.Node | None:
    """Writes out ``x[start:end] = src`` without steps: the part before, ``src``, the part after."""
    arg = site.args
    dim = positive_dim(arg["dim"], len(site.type.shape))
    start, _, step = slice(arg["start"], arg["end"], arg["step"]).indices(site.type.shape[dim])
    return _replaced(site, site.input("src"), dim, start) if step == 1 else None


def _select_scatter(site: Site) -> fx.Node | None:
    """Writes out ``x[index] = src`` with ``src`` as a slice of one."""
    dim = positive_dim(site.args["dim"], len(site.type.shape))
    shape = list(site.type.shape)
    start = site.args["index"] % shape[dim]
    shape[dim] = 1
    return _replaced(site, site.reshape(site.input("src"), shape), dim, start)


def _replaced(site: Site, src: fx.Node, dim: int, start: int) -> fx.Node:
    """Returns ``self`` with ``src`` from position ``start`` on along ``dim``."""
    size, end = site.type.shape[dim], start + type_of(src).shape[dim]
    if end == start:
        return site.input()
    parts = [
        site.call(aten.slice.Tensor, site.input(), dim, a, b, 1)
        for a, b in ((0, start), (end, size))
        if b > a
    ]
    parts.insert(1 if start else 0, src)
    return src if len(parts) == 1 else site.call(aten.cat.default, parts, dim)


def _diff(site: Site) -> fx.Node | None:
    """Writes out differences of neighbouring elements."""
    arg, source = site.args, site.input()
    if arg["n"] != 1 or arg["prepend"] is not None or arg["append"] is not None:
        return None
    dim = positive_dim(arg["dim"], len(site.type.shape))
    size = type_of(source).shape[dim]
    if type_of(source).dtype == "bool" or size < 2:
        return None
    after, before = (
        site.call(aten.slice.Tensor, source, dim, start, start + size - 1, 1) for start in (1, 0)
    )
    return site.call(aten.sub.Tensor, after, before)


def _copy(site: Site) -> fx.Node | None:
    """Replaces ``copy``, an assignment without a change in place, by ``src`` broadcast and cast to
    the type of ``self``."""
    return _expand_to_result(site, site.input("src"))


def _expand_to_result(site: Site, source: fx.Node) -> fx.Node:
    if type_of(source).dtype != site.type.dtype:
        dtype = torch_dtype(site.type.dtype)
        source = site.call(aten._to_copy.default, source, dtype=dtype)
    return site.call(aten.expand.default, source, list(site.type.shape))


def _fill(site: Site) -> fx.Node | None:
    """Replaces ``fill`` by one number in the shape of ``self``, whose values are not used."""
    value = site.args["value"]
    if isinstance(value, fx.Node):
        if not is_constant(value):
            return _expand_to_result(site, value)
        value = constant_value(value).item()
    shape = list(site.type.shape)
    number = torch.full([1] * len(shape), value, dtype=torch_dtype(site.type.dtype))
    return site.call(aten.expand.default, site.add_constant(number, "filling"), shape)


def drop_expands(graph: fx.Graph) -> int:
    """Makes pointwise operations, which broadcast themselves, read the input of an expand.

    Given:
        %e [2, 3, 4] = expand(%b [3, 1], [2, 3, 4])
        %s [2, 3, 4] = add(%x [2, 3, 4], %e)
    Result:
        %s [2, 3, 4] = add(%x, %b)

    Returns the number of inputs replaced.
    """
    dropped = 0
    for node in calls(graph):
        if torch.Tag.pointwise not in getattr(node.target, "tags", ()) or not makes_tensor(node):
            continue
        for source in node.all_input_nodes:
            if source.target is not aten.expand.default:
                continue
            narrow: Any = source.args[0]
            others = [a for a in node.all_input_nodes if a is not source]
            shapes = [type_of(a).shape for a in (*others, narrow)]
            if np.broadcast_shapes(*shapes) == type_of(node).shape:
                node.replace_input_with(source, narrow)
                dropped += 1
    return dropped


_RULES: dict[torch._ops.OpOverload, Rule] = {
    aten.flip.default: _flip,
    aten.fliplr.default: _flip_one(1),
    aten.flipud.default: _flip_one(0),
    aten.rot90.default: _rot90,
    aten.tile.default: _tile,
    aten.moveaxis.int: _moveaxis,
    aten.moveaxis.intlist: _moveaxis,
    aten.adjoint.default: _last_two,
    aten.ravel.default: _same_elements,
    aten.atleast_1d.default: _same_elements,
    aten.atleast_2d.default: _same_elements,
    aten.hstack.default: _concatenate_at_rank(1, 1),
    aten.vstack.default: _concatenate_at_rank(0, 2),
    aten.column_stack.default: _columns,
    aten.native_channel_shuffle.default: _channel_shuffle,
    aten.take_along_dim.default: _take_along_dim,
    aten.mul.Tensor: _signed,
    aten.slice_scatter.default: _slice_scatter,
    aten.select_scatter.default: _select_scatter,
    aten.diff.default: _diff,
    aten.copy.default: _copy,
    aten.fill.Scalar: _fill,
    aten.fill.Tensor: _fill,
    **PATCH_RULES,
}
_MANY_RULES: dict[torch._ops.OpOverload, ManyRule] = {
    aten.tensor_split.sections: _sections,
    aten.tensor_split.indices: _sections,
    aten.unsafe_split.Tensor: _unsafe_split,
    aten.unsafe_split_with_sizes.default: _unsafe_split,
    aten.unsafe_chunk.default: _unsafe_split,
    aten.adaptive_max_pool1d.default: _adaptive_max_pool,
    aten.adaptive_max_pool2d.default: _adaptive_max_pool,
}
