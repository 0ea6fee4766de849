"""Values put into places that the model computes: a cache that is written at a position, a router's
weights. What NNAPI has is EQUAL and SELECT: each place is compared with all that is written to.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import fx

from nnapi_prof.graph.node import constant_value, is_constant, positive_dim, torch_dtype, type_of
from nnapi_prof.passes.rewrite import Rule, Site

aten = torch.ops.aten

MAX_COMPARED = 2**20
"""Comparisons of places with indices, at most: they are made anew in every run."""
_INTEGERS = ("int64", "int32")


class _Written(NamedTuple):
    """The writes to places: ``mask`` where one is written to, ``rows`` by which index; None where
    there is one index only."""

    mask: fx.Node
    rows: fx.Node | None


def _hits(site: Site, index: fx.Node, size: int, wraps: bool = False) -> fx.Node | None:
    """``[..., size, n]``: whether a place is index i of ``[..., n]``, with ``wraps`` also counted
    from the end; None where that is too much to compare."""
    type_ = type_of(index)
    *others, n = type_.shape
    if type_.dtype not in _INTEGERS or not 0 < type_.n_elements * size <= MAX_COMPARED:
        return None
    columns = site.reshape(index, [*others, 1, n])
    places = torch.arange(size, dtype=torch_dtype(type_.dtype)).reshape(size, 1)
    hits = site.call(aten.eq.Tensor, columns, site.add_constant(places, "places"))
    if not wraps:
        return hits
    from_end = site.add_constant(places - size, "places_from_end")
    return site.call(aten.logical_or.default, hits, site.call(aten.eq.Tensor, columns, from_end))


def _written(site: Site, hits: fx.Node) -> _Written:
    """Finds the writes; of several indices of one place the last counts, as on PyTorch's CPU."""
    *others, size, n = type_of(hits).shape
    if n == 1:
        return _Written(site.reshape(hits, [*others, size]), None)
    ranks = site.add_constant(torch.arange(1.0, n + 1), "ranks")
    floats = site.call(aten._to_copy.default, hits, dtype=torch.float32)
    last = site.call(aten.amax.default, site.call(aten.mul.Tensor, floats, ranks), [-1])
    row = site.call(aten.relu.default, site.call(aten.sub.Tensor, last, 1.0))
    rows = site.call(aten._to_copy.default, row, dtype=torch.int64)
    return _Written(site.call(aten.gt.Scalar, last, 0.0), rows)


def _along(site: Site, mask: fx.Node, dim: int) -> fx.Node:
    """A vector that broadcasts against ``self`` along one dimension."""
    return site.reshape(mask, [-1 if axis == dim else 1 for axis in range(len(site.type.shape))])


def _rows_written(
    site: Site, index: fx.Node, values: fx.Node, dim: int, wraps: bool
) -> fx.Node | None:
    """``self`` with row i of ``values`` at ``index[i]`` along ``dim``."""
    hits = _hits(site, index, site.type.shape[dim], wraps)
    if hits is None or type_of(values).dtype != site.type.dtype:
        return None
    mask, rows = _written(site, hits)
    if rows is not None:
        values = site.call(aten.index_select.default, values, dim, rows)
    return site.call(aten.where.self, _along(site, mask, dim), values, site.input())


def _rows_added(
    site: Site, index: fx.Node, values: fx.Node, dim: int, wraps: bool, alpha: float = 1.0
) -> fx.Node | None:
    """``self`` with row i of ``values`` added at ``index[i]``: a product with the hits, so that
    values must be finite, for 0 times infinity is no number."""
    if site.type.dtype != "float32" or type_of(values).dtype != "float32":
        return None
    hits = _hits(site, index, site.type.shape[dim], wraps)
    if hits is None:
        return None
    rank = len(site.type.shape)
    last = [*(axis for axis in range(rank) if axis != dim), dim]
    rows = site.call(aten._to_copy.default, hits, dtype=torch.float32)
    added = site.call(
        aten.matmul.default,
        *(site.call(aten.permute.default, values, last), site.call(aten.t.default, rows)),
    )
    added = site.call(aten.permute.default, added, [last.index(axis) for axis in range(rank)])
    if alpha != 1:
        added = site.call(aten.mul.Tensor, added, float(alpha))
    return site.call(aten.add.Tensor, site.input(), added)


def _index_copy(site: Site) -> fx.Node | None:
    dim = _dim(site)
    if dim is None:
        return None
    return _rows_written(site, _vector(site), site.input("source"), dim, False)


def _index_add(site: Site) -> fx.Node | None:
    dim = _dim(site)
    if dim is None:
        return None
    index, source = _vector(site), site.input("source")
    return _rows_added(site, index, source, dim, False, site.args["alpha"])


def _index_fill(site: Site) -> fx.Node | None:
    dim, value = _dim(site), site.args["value"]
    if isinstance(value, fx.Node):
        value = constant_value(value).item() if is_constant(value) else None
    hits = None if dim is None else _hits(site, _vector(site), site.type.shape[dim], True)
    if dim is None or hits is None or value is None:
        return None
    number = torch.full([1] * len(site.type.shape), value, dtype=torch_dtype(site.type.dtype))
    filling = site.add_constant(number, "filling")
    mask = _along(site, _written(site, hits).mask, dim)
    return site.call(aten.where.self, mask, filling, site.input())


def _index_put(site: Site) -> fx.Node | None:
    """``x[:, i] = values`` with one computed index of integers, a vector or a number."""
    shape, indices = list(site.type.shape), list(site.args["indices"])
    stated = [axis for axis, index in enumerate(indices) if index is not None]
    if len(stated) != 1 or len(type_of(indices[stated[0]]).shape) > 1:
        return None
    (dim,) = stated
    values = site.input("values")
    if not type_of(indices[dim]).shape:
        values = site.call(aten.expand.default, values, shape[:dim] + shape[dim + 1 :])
        values = site.call(aten.unsqueeze.default, values, dim)
    index = site.reshape(indices[dim], [-1])
    shape[dim] = type_of(index).n_elements
    values = site.call(aten.expand.default, values, shape)
    write = _rows_added if site.args["accumulate"] else _rows_written
    return write(site, index, values, dim, True)


def _scatter(site: Site) -> fx.Node | None:
    """``x[i][index[i, j]] = src[i, j]`` along dim 1, where the index is as large as x beside it."""
    dim, index, shape = _dim(site), site.input("index"), site.type.shape
    if dim is None or site.args.get("reduce") is not None:
        return None
    rank, size = len(shape), shape[dim]
    sizes = type_of(index).shape
    if any(axis != dim and sizes[axis] != shape[axis] for axis in range(rank)):
        return None
    last = [*(axis for axis in range(rank) if axis != dim), dim]
    n_rows, n = math.prod(shape) // max(size, 1), sizes[dim]

    def rows(node: fx.Node, columns: int) -> fx.Node:
        return site.reshape(site.call(aten.permute.default, node, last), [n_rows, columns])

    source = rows(site.input(), size)
    hits = _hits(site, rows(index, n), size)
    if hits is None:
        return None
    adds = site.node.target is aten.scatter_add.default
    values = None
    if "src" in site.args:
        values = site.input("src")
        if type_of(values).dtype != site.type.dtype or (adds and site.type.dtype != "float32"):
            return None
        for axis, length in enumerate(sizes):
            values = site.call(aten.slice.Tensor, values, axis, 0, length, 1)
        values = rows(values, n)
    if adds and values is not None:
        zero = site.add_constant(torch.zeros(1), "zero")
        columns = site.reshape(values, [n_rows, 1, n])
        parts = site.call(aten.where.self, hits, columns, zero)
        total = site.call(aten.sum.dim_IntList, parts, [-1], False)
        result = site.call(aten.add.Tensor, source, total)
    else:
        mask, places = _written(site, hits)
        if values is None:
            dtype = torch_dtype(site.type.dtype)
            values = site.add_constant(torch.tensor([site.args["value"]], dtype=dtype), "value")
        elif places is not None:
            values = site.call(aten.gather.default, values, 1, places)
        result = site.call(aten.where.self, mask, values, source)
    turned = site.reshape(result, [shape[axis] for axis in last])
    return site.call(aten.permute.default, turned, [last.index(axis) for axis in range(rank)])


def _dim(site: Site) -> int | None:
    """The dimension that is indexed; None of a number."""
    rank = len(site.type.shape)
    return positive_dim(site.args["dim"], rank) if rank else None


def _vector(site: Site) -> fx.Node:
    return site.reshape(site.input("index"), [-1])


COMPUTED_RULES: dict[torch._ops.OpOverload, Rule] = {
    aten.index_copy.default: _index_copy,
    aten.index_fill.int_Scalar: _index_fill,
    aten.index_fill.int_Tensor: _index_fill,
    aten.index_add.default: _index_add,
    aten.index_put.default: _index_put,
    aten.scatter.src: _scatter,
    aten.scatter.value: _scatter,
    aten.scatter_add.default: _scatter,
}
