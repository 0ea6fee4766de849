"""Bring operators that only move, slice or rename elements to normal form.

Each has one spelling: ``view`` with concrete sizes, ``permute``, ``slice`` and ``constant_pad_nd``
with non-negative dimensions and concrete bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from nnapi_prof.graph.node import calls, positive_dim, type_of
from nnapi_prof.passes import ManyRule, Rule, Site, apply_many_rules, apply_rules

aten = torch.ops.aten


def canonicalize_views(graph: fx.Graph) -> int:
    """Spells reshapes, permutations and slices in one way each.

    Given:
        %f [1, 32]       = flatten(%a [1, 8, 2, 2], 1)
        %t [1, 2, 2, 8]  = transpose(%b [1, 8, 2, 2], -1, 1)
        %s [1, 2, 2]     = select(%a, 1, -1)
        %c0, %c1         = chunk(%a, 2, 1)
    Result:
        %f [1, 32]       = view(%a, [1, 32])
        %t [1, 2, 2, 8]  = permute(%b, [0, 3, 2, 1])
        %s [1, 2, 2]     = view(slice(%a, 1, 7, 8, 1), [1, 2, 2])
        %c0              = slice(%a, 1, 0, 4, 1);  %c1 = slice(%a, 1, 4, 8, 1)

    A permutation of only dimensions of size 1 is a view. Returns the number of nodes replaced.
    """
    return apply_many_rules(graph, _MANY_RULES) + apply_rules(graph, _RULES)


def merge_views(graph: fx.Graph) -> int:
    """Makes a view of a view read the first one's input.

    Given:
        %v [1, 8]    = view(%a [1, 8, 1, 1], [1, 8])
        %w [1, 2, 4] = view(%v, [1, 2, 4])
    Result:
        %w [1, 2, 4] = view(%a, [1, 2, 4])

    Returns the number of views changed.
    """
    changed = 0
    for node in calls(graph):
        source = node.args[0] if node.target is aten.view.default else None
        if isinstance(source, fx.Node) and source.target is aten.view.default:
            node.update_arg(0, source.args[0])
            changed += 1
    return changed


def view(site: Site) -> fx.Node | None:
    """Returns a view for an operator that keeps the elements of ``self`` in order."""
    return site.become(aten.view.default, site.input(), list(site.type.shape))


def permute_to(site: Site, dims: Sequence[int]) -> fx.Node | None:
    """Returns ``self`` with dimension ``dims[i]`` at position i; a view if nothing moves."""
    source = site.input()
    shape = type_of(source).shape
    dims = [positive_dim(d, len(shape)) for d in dims]
    moved = [d for d in dims if shape[d] != 1]
    if moved == sorted(moved):
        return site.view(source, [shape[d] for d in dims])
    return site.become(aten.permute.default, source, list(dims))


def _permute(site: Site) -> fx.Node | None:
    return permute_to(site, site.args["dims"])


def _swap(site: Site, a: int, b: int) -> fx.Node | None:
    rank = len(type_of(site.input()).shape)
    if rank == 0:
        return view(site)
    order = list(range(rank))
    a, b = positive_dim(a, rank), positive_dim(b, rank)
    order[a], order[b] = order[b], order[a]
    return permute_to(site, order)


def _transpose(site: Site) -> fx.Node | None:
    dims = [value for name, value in site.args.items() if name != "self"]  # names vary by overload
    return _swap(site, dims[0], dims[1])


def _matrix_transpose(site: Site) -> fx.Node | None:
    return view(site) if len(site.type.shape) < 2 else _swap(site, -2, -1)


def _numpy_transpose(site: Site) -> fx.Node | None:
    return permute_to(site, list(range(len(site.type.shape)))[::-1])


def _movedim(site: Site) -> fx.Node | None:
    rank = len(site.type.shape)
    listed = [site.args["source"], site.args["destination"]]
    sources, targets = (
        [positive_dim(d, rank) for d in ([dims] if isinstance(dims, int) else dims)]
        for dims in listed
    )
    placed = dict(zip(targets, sources, strict=True))
    rest = iter([d for d in range(rank) if d not in sources])
    return permute_to(site, [placed[i] if i in placed else next(rest) for i in range(rank)])


def slice_node(site: Site, dim: int, start: int, end: int, step: int = 1) -> fx.Node:
    """Returns ``self[start:end:step]`` along ``dim``; concrete bounds inside the tensor."""
    source = site.input()
    dim = positive_dim(dim, len(type_of(source).shape))
    return site.call(aten.slice.Tensor, source, dim, start, end, step)


def _slice(site: Site) -> fx.Node | None:
    source = site.input()
    shape = type_of(source).shape
    dim = positive_dim(site.args["dim"], len(shape))
    start, end, step = slice(site.args["start"], site.args["end"], site.args["step"]).indices(
        shape[dim]
    )
    return site.become(aten.slice.Tensor, source, dim, start, max(start, end), step)


def _narrow(site: Site) -> fx.Node | None:
    size = type_of(site.input()).shape[site.args["dim"]]
    start = site.args["start"]
    if not isinstance(start, int):
        return None
    start += size if start < 0 else 0
    return slice_node(site, site.args["dim"], start, start + site.args["length"])


def _select(site: Site) -> fx.Node | None:
    dim, index = site.args["dim"], site.args["index"]
    index += type_of(site.input()).shape[dim] if index < 0 else 0
    cut = slice_node(site, dim, index, index + 1)
    return site.view(cut, list(site.type.shape))


def _split(site: Site) -> list[fx.Node] | None:
    dim = site.args["dim"]
    size = type_of(site.input()).shape[dim]
    step: Any = site.args.get("split_size", site.args.get("split_sizes"))
    if isinstance(step, int):
        return site.slices(dim, [min(step, size - i) for i in range(0, size, step)] or [0])
    return site.slices(dim, step)


def _chunk(site: Site) -> list[fx.Node] | None:
    dim = site.args["dim"]
    size = type_of(site.input()).shape[dim]
    step = max(math.ceil(size / site.args["chunks"]), 1)
    return site.slices(dim, [min(step, size - i) for i in range(0, size, step)] or [0])


def _unbind(site: Site) -> list[fx.Node] | None:
    dim = site.args["dim"]
    shape = list(type_of(site.input()).shape)
    pieces = site.slices(dim, [1] * shape[dim])
    del shape[dim]
    return [site.view(piece, shape) for piece in pieces]


def _expand(site: Site) -> fx.Node | None:
    return site.become(aten.expand.default, site.input(), list(site.type.shape))


def _stack(site: Site) -> fx.Node | None:
    dim = positive_dim(site.args["dim"], len(site.type.shape))
    shape = list(site.type.shape)
    shape[dim] = 1
    tensors = [site.view(t, shape) for t in site.args["tensors"]]
    return site.call(aten.cat.default, tensors, dim)


def _cat(site: Site) -> fx.Node | None:
    # PyTorch skips tensors of shape [0], whatever the rank of the others; empty ones add nothing.
    tensors = [t for t in site.args["tensors"] if type_of(t).n_elements] or site.args["tensors"]
    dim = positive_dim(site.args["dim"], len(type_of(tensors[0]).shape))
    return site.become(aten.cat.default, list(tensors), dim)


def _constant_pad(site: Site) -> fx.Node | None:
    pad, value = list(site.args["pad"]), site.args["value"]
    while pad[-2:] == [0, 0]:
        del pad[-2:]
    return site.become(aten.constant_pad_nd.default, site.input(), pad, _float(value))


def _pad(site: Site) -> fx.Node | None:
    return _constant_pad(site) if site.args["mode"] == "constant" else None


def _float(value: Any) -> float:
    return 0.0 if value is None else float(value)


_RULES: dict[torch._ops.OpOverload, Rule] = {
    **dict.fromkeys(
        (
            aten.view.default,
            aten.reshape.default,
            aten._unsafe_view.default,
            aten._reshape_alias.default,
            aten.view_as.default,
            aten.reshape_as.default,
            aten.flatten.using_ints,
            aten.unflatten.int,
            aten.squeeze.default,
            aten.squeeze.dim,
            aten.squeeze.dims,
            aten.unsqueeze.default,
        ),
        view,
    ),
    aten.permute.default: _permute,
    aten.transpose.int: _transpose,
    aten.swapaxes.default: _transpose,
    aten.swapdims.default: _transpose,
    aten.t.default: _matrix_transpose,
    aten.mT.default: _matrix_transpose,
    aten.mH.default: _matrix_transpose,  # of real numbers
    aten.matrix_H.default: _matrix_transpose,
    aten.numpy_T.default: _numpy_transpose,
    aten.movedim.int: _movedim,
    aten.movedim.intlist: _movedim,
    aten.slice.Tensor: _slice,
    aten.narrow.default: _narrow,
    aten.select.int: _select,
    aten.expand.default: _expand,
    aten.expand_as.default: _expand,
    aten.broadcast_to.default: _expand,
    aten.stack.default: _stack,
    aten.cat.default: _cat,
    aten.concat.default: _cat,
    aten.constant_pad_nd.default: _constant_pad,
    aten.pad.default: _pad,
}

_MANY_RULES: dict[torch._ops.OpOverload, ManyRule] = {
    aten.split.Tensor: _split,
    aten.split.sizes: _split,
    aten.split_with_sizes.default: _split,
    aten.chunk.default: _chunk,
    aten.unbind.int: _unbind,
}
