"""Decompose scatters, which put values into places or take them, into choices of elements.

NNAPI has GATHER, EQUAL and SELECT. If the places are constants, the result is a choice of elements
from the value and the new ones, concatenated. If the model computes the places (a cache written at
a position, a router's weights), each is compared with every place that can be written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from nnapi_prof.graph.node import constant_value, is_constant, positive_dim, torch_dtype, type_of
from nnapi_prof.passes import Rule, Site, apply_rules

aten = torch.ops.aten

MAX_COMPARED = 2**20
"""Most comparisons of places with indices, because they are repeated in every run."""
_INTEGERS = ("int64", "int32")


class _Written(NamedTuple):
    """Writes to places: ``mask`` is whether a place is written, ``rows`` the index that writes it;
    None if there is only one."""

    mask: fx.Node
    rows: fx.Node | None


def _hits(site: Site, index: fx.Node, size: int, wraps: bool = False) -> fx.Node | None:
    """Returns ``[..., size, n]``: whether a place is index i of ``[..., n]``; ``wraps`` also counts
    from the end. Returns None where there are too many to compare."""
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
    """Returns the writes. The last of several indices of one place counts, as on PyTorch's CPU."""
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
    """Returns a vector reshaped to broadcast against ``self`` along one dimension."""
    return site.reshape(mask, [-1 if axis == dim else 1 for axis in range(len(site.type.shape))])


def _rows_written(
    site: Site, index: fx.Node, values: fx.Node, dim: int, wraps: bool
) -> fx.Node | None:
    """Returns ``self`` with row i of ``values`` at ``index[i]`` along ``dim``."""
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
    """Returns ``self`` with row i of ``values`` added at ``index[i]``. This is a product with the
    hits, so values must be finite: 0 times infinity is NaN."""
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


def _copy_at_computed(site: Site) -> fx.Node | None:
    dim = _dim(site)
    if dim is None:
        return None
    return _rows_written(site, _vector(site), site.input("source"), dim, False)


def _add_at_computed(site: Site) -> fx.Node | None:
    dim = _dim(site)
    if dim is None:
        return None
    index, source = _vector(site), site.input("source")
    return _rows_added(site, index, source, dim, False, site.args["alpha"])


def _fill_at_computed(site: Site) -> fx.Node | None:
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


def _put_at_computed(site: Site) -> fx.Node | None:
    """Writes out ``x[:, i] = values`` with one computed index of integers, a vector or a number."""
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


def _scatter_at_computed(site: Site) -> fx.Node | None:
    """Writes out ``x[i][index[i, j]] = src[i, j]`` along dim 1; only dim's size may differ from
    x."""
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
    """Returns the dimension that is indexed; None for a number."""
    rank = len(site.type.shape)
    return positive_dim(site.args["dim"], rank) if rank else None


def _vector(site: Site) -> fx.Node:
    return site.reshape(site.input("index"), [-1])


COMPUTED_RULES: dict[torch._ops.OpOverload, Rule] = {
    aten.index_copy.default: _copy_at_computed,
    aten.index_fill.int_Scalar: _fill_at_computed,
    aten.index_fill.int_Tensor: _fill_at_computed,
    aten.index_add.default: _add_at_computed,
    aten.index_put.default: _put_at_computed,
    aten.scatter.src: _scatter_at_computed,
    aten.scatter.value: _scatter_at_computed,
    aten.scatter_add.default: _scatter_at_computed,
}


MAX_MATRIX = 2**22
"""Most elements of the matrix that adds values to places."""


def decompose_scatter(graph: fx.Graph) -> int:
    """Spells scatters by index_select, where and products.

    Given:
        %s [5]    = slice_scatter(%x [5], %v [3], 0, 0, 5, 2)
        %i [3, 5] = index_copy(%y [3, 5], 0, [2, 0], %w [2, 5])
        %a [3, 5] = index_add(%y, 0, [0, 0], %w)
        %h [2, 4] = one_hot(%n int64[2], 4)
    Result:
        %s = index_select(cat([%x, %v]), 0, [5, 1, 6, 3, 7])
        %i = index_select(cat([%y, %w]), 0, [4, 1, 3])
        %a = add(%y, matmul([[1, 1], [0, 0], [0, 0]], %w))
        %h = _to_copy(eq(view(%n, [2, 1]), [0, 1, 2, 3]), dtype=torch.int64)

    Given, with places that are computed:
        %c [3, 5] = index_copy(%y [3, 5], 0, %p int64[1], %w [1, 5])
    Result:
        %c = where(eq(%p, [[0], [1], [2]]), %w, %y)

    Returns the number of nodes replaced.
    """
    return apply_rules(graph, _RULES) + apply_rules(graph, COMPUTED_RULES)


def _chosen(site: Site, source: fx.Node, values: fx.Node, dim: int, places: Tensor) -> fx.Node:
    """Returns ``source`` with row i of ``values`` at ``places[i]`` along ``dim``; the last wins."""
    size = type_of(source).shape[dim]
    index = torch.arange(size)
    for row, place in enumerate(places.tolist()):
        index[place] = size + row
    joined = site.call(aten.cat.default, [source, values], dim)
    return site.call(aten.index_select.default, joined, dim, site.add_constant(index, "elements"))


def _flat(site: Site, node: fx.Node) -> fx.Node:
    return site.reshape(node, [type_of(node).n_elements])


def _full_tensor(site: Site, value: Any, shape: Sequence[int]) -> fx.Node:
    """Returns a number or tensor expanded to ``shape``, in the node's element type."""
    if not isinstance(value, fx.Node):
        filled = torch.full(list(shape), value, dtype=torch_dtype(site.type.dtype))
        return site.add_constant(filled, "values")
    return site.call(aten.expand.default, value, list(shape))


def _slice_scatter(site: Site) -> fx.Node | None:
    """Writes out ``x[start:end:step] = src`` with steps; canonicalize_movement does it without."""
    arg = site.args
    dim = positive_dim(arg["dim"], len(site.type.shape))
    start, end, step = slice(arg["start"], arg["end"], arg["step"]).indices(site.type.shape[dim])
    if step == 1 or type_of(site.input("src")).dtype != site.type.dtype:
        return None
    places = torch.arange(start, max(start, end), step)
    return _chosen(site, site.input(), site.input("src"), dim, places)


def _index_copy(site: Site) -> fx.Node | None:
    places = _indices(site, "index")
    if places is None or not site.type.shape:
        return None
    dim = positive_dim(site.args["dim"], len(site.type.shape))
    return _chosen(site, site.input(), site.input("source"), dim, places)


def _index_fill(site: Site) -> fx.Node | None:
    places, shape = _indices(site, "index"), site.type.shape
    if places is None or not shape:
        return None
    value = site.args["value"]
    if isinstance(value, fx.Node):
        if not is_constant(value):
            return None
        value = constant_value(value).item()
    dim = positive_dim(site.args["dim"], len(shape))
    mask = torch.zeros(shape[dim], dtype=torch.bool)
    mask[places] = True
    mask = mask.reshape([-1 if axis == dim else 1 for axis in range(len(shape))])
    number = torch.full([1] * len(shape), value, dtype=torch_dtype(site.type.dtype))
    return site.call(
        aten.where.self,
        *(site.add_constant(mask, "filled"), site.add_constant(number, "filling"), site.input()),
    )


def _index_add(site: Site) -> fx.Node | None:
    """Writes out ``x + alpha * M @ source`` with a matrix ``M[size, n]`` of the rows' places."""
    places, shape = _indices(site, "index"), site.type.shape
    if places is None or not shape or site.type.dtype != "float32":
        return None
    dim = positive_dim(site.args["dim"], len(shape))
    n = len(places)
    if shape[dim] * n > MAX_MATRIX:
        return None
    rows = torch.zeros(n, shape[dim])
    rows[torch.arange(n), places] = float(site.args["alpha"])
    source = site.input("source")
    last = [axis for axis in range(len(shape)) if axis != dim] + [dim]
    back = [last.index(axis) for axis in range(len(shape))]
    moved = site.call(aten.permute.default, source, last)
    added = site.call(aten.matmul.default, moved, site.add_constant(rows, "places"))
    return site.call(aten.add.Tensor, site.input(), site.call(aten.permute.default, added, back))


def _index_put(site: Site) -> fx.Node | None:
    """Writes out ``x[i, :, j] = values`` with constant indices."""
    indices, shape = list(site.args["indices"]), site.type.shape
    if not all(index is None or is_constant(index) for index in indices):
        return None
    selection: list[Any] = []
    for node in indices:
        if node is None:
            selection.append(slice(None))
            continue
        index = constant_value(node)
        selection += index.nonzero(as_tuple=True) if index.dtype in _MASKS else [index]
    numbers = torch.arange(math.prod(shape)).reshape(shape)
    places = numbers[tuple(selection)]
    values = _full_tensor(site, site.input("values"), places.shape)
    return _scatter_flat(site, values, places, bool(site.args["accumulate"]))


def _scatter(site: Site) -> fx.Node | None:
    """Writes out ``x[i][index[i, j]] = src[i, j]`` along dim 1, with a constant index."""
    index = _indices(site, "index")
    if index is None or site.args.get("reduce") is not None:
        return None
    dim = positive_dim(site.args["dim"], len(site.type.shape))
    shape = site.type.shape
    grids = list(torch.meshgrid(*(torch.arange(n) for n in index.shape), indexing="ij"))
    grids[dim] = index
    places = torch.arange(math.prod(shape)).reshape(shape)[tuple(grids)]
    if "src" not in site.args:
        return _scatter_flat(
            site, _full_tensor(site, site.args["value"], index.shape), places, False
        )
    values = site.input("src")
    for axis, size in enumerate(index.shape):
        values = site.call(aten.slice.Tensor, values, axis, 0, size, 1)
    return _scatter_flat(site, values, places, site.node.target is aten.scatter_add.default)


def _scatter_flat(site: Site, values: fx.Node, places: Tensor, adds: bool) -> fx.Node | None:
    """Returns ``self`` with ``values`` put at flat ``places``, or added there with ``adds``."""
    source, size, count = site.input(), site.type.n_elements, places.numel()
    if type_of(values).dtype != site.type.dtype:
        return None
    if not adds:
        flat = _chosen(site, _flat(site, source), _flat(site, values), 0, places.reshape(-1))
        return site.reshape(flat, list(site.type.shape))
    if site.type.dtype != "float32" or size * count > MAX_MATRIX:
        return None
    rows = torch.zeros(count, size)
    rows[torch.arange(count), places.reshape(-1)] = 1
    row = site.reshape(values, [1, count])
    added = site.call(aten.matmul.default, row, site.add_constant(rows, "places"))
    shaped = site.reshape(added, list(site.type.shape))
    return site.call(aten.add.Tensor, source, shaped)


def _taken(site: Site, places: Tensor) -> fx.Node:
    """Returns the elements ``places`` of the flattened ``self``."""
    index = site.add_constant(places.reshape(-1), "elements")
    flat = site.call(aten.index_select.default, _flat(site, site.input()), 0, index)
    return site.reshape(flat, list(site.type.shape))


def _take(site: Site) -> fx.Node | None:
    places = _indices(site, "index")
    return None if places is None else _taken(site, places % type_of(site.input()).n_elements)


def _diagonal(site: Site) -> fx.Node | None:
    shape = type_of(site.input()).shape
    numbers = torch.arange(math.prod(shape)).reshape(shape)
    arg = site.args
    return _taken(site, numbers.diagonal(arg["offset"], arg["dim1"], arg["dim2"]))


def _trace(site: Site) -> fx.Node | None:
    if site.type.dtype != "float32":
        return None
    rows, columns = type_of(site.input()).shape
    on = torch.eye(rows, columns, dtype=torch.bool)
    zero = site.add_constant(torch.zeros(1, 1), "zero")
    diagonal = site.call(aten.where.self, site.add_constant(on, "diagonal"), site.input(), zero)
    return site.call(aten.sum.default, diagonal)


def _one_hot(site: Site) -> fx.Node | None:
    classes = site.args["num_classes"]
    if classes <= 0:
        return None
    column = site.reshape(site.input(), [*type_of(site.input()).shape, 1])
    numbers = site.add_constant(torch.arange(classes), "classes")
    return site.call(
        aten._to_copy.default, site.call(aten.eq.Tensor, column, numbers), dtype=torch.int64
    )


def _bucketize(site: Site) -> fx.Node | None:
    """Counts the few constant boundaries below each element, by a sum of comparisons."""
    sorted_by_name = "sorted_sequence" in site.args
    bounds = site.constant("sorted_sequence" if sorted_by_name else "boundaries")
    right = bool(site.args["right"]) or site.args.get("side") == "right"
    source = site.args["self"]
    if bounds is None or bounds.dim() != 1 or not isinstance(source, fx.Node):
        return None
    if site.args.get("sorter") is not None or type_of(source).dtype != "float32":
        return None
    if bounds.dtype != torch.float32 or bounds.isnan().any():
        return None
    column = site.reshape(source, [*type_of(source).shape, 1])
    limits = site.add_constant(bounds, "boundaries")
    below = site.call(aten.ge.Tensor if right else aten.gt.Tensor, column, limits)
    floats = site.call(aten._to_copy.default, below, dtype=torch.float32)
    total = site.call(aten.sum.dim_IntList, floats, [-1], False)
    return site.call(aten._to_copy.default, total, dtype=torch_dtype(site.type.dtype))


def _indices(site: Site, name: str) -> Tensor | None:
    """Returns a constant tensor of indices; None for a computed one."""
    index = site.constant(name)
    return None if index is None or index.dtype in _MASKS else index.long()


_MASKS = (torch.bool, torch.uint8)
_RULES: dict[torch._ops.OpOverload, Rule] = {
    aten.slice_scatter.default: _slice_scatter,
    aten.index_copy.default: _index_copy,
    aten.index_fill.int_Scalar: _index_fill,
    aten.index_fill.int_Tensor: _index_fill,
    aten.index_add.default: _index_add,
    aten.index_put.default: _index_put,
    aten.scatter.src: _scatter,
    aten.scatter.value: _scatter,
    aten.scatter_add.default: _scatter,
    aten.take.default: _take,
    aten.diagonal.default: _diagonal,
    aten.trace.default: _trace,
    aten.one_hot.default: _one_hot,
    aten.bucketize.Tensor: _bucketize,
    aten.searchsorted.Tensor: _bucketize,
}


# Windows of a tensor as a tensor: unfold, im2col and its inverse


def _unfold(site: Site) -> fx.Node | None:
    """Writes out ``x.unfold(dim, size, step)``: windows by their indices, elements last."""
    shape = type_of(site.input()).shape
    if not shape:
        return None
    dim = positive_dim(site.args["dimension"], len(shape))
    starts = torch.arange(site.type.shape[dim]) * site.args["step"]
    places = starts.unsqueeze(1) + torch.arange(site.args["size"])
    index = site.add_constant(places, "unfold_places")
    flat = [math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])]
    rows = site.reshape(site.input(), flat)
    windows = site.call(aten.index.Tensor, rows, [None, index])
    turned = site.call(aten.permute.default, windows, [0, 1, 3, 2])
    return site.reshape(turned, list(site.type.shape))


def _im2col(site: Site) -> fx.Node | None:
    """Writes out the patches of an image as a depthwise convolution with a kernel for each pixel of
    a patch, 1 there and 0 elsewhere. (An infinity turns the zeros in its window into NaN.)"""
    if len(type_of(site.input()).shape) != 4:
        return None
    channels = type_of(site.input()).shape[1]
    convolved = site.call(
        aten.convolution.default,
        *(site.input(), _unit_kernels(site, channels), None, site.args["stride"]),
        *(site.args["padding"], site.args["dilation"], False, [0, 0], channels),
    )
    return site.reshape(convolved, list(site.type.shape))


def _col2im(site: Site) -> fx.Node | None:
    """Writes out the sum of patches to an image, the transpose of im2col."""
    arg, shape = site.args, site.type.shape
    if len(shape) != 4:
        return None
    size, over = [], []
    for axis in (0, 1):
        reach = arg["dilation"][axis] * (arg["kernel_size"][axis] - 1) + 1
        free = shape[2 + axis] + 2 * arg["padding"][axis] - reach
        size.append(free // arg["stride"][axis] + 1)
        over.append(free % arg["stride"][axis])
    patches = [shape[0], type_of(site.input()).shape[1], *size]
    image = site.reshape(site.input(), patches)
    return site.call(
        aten.convolution.default,
        *(image, _unit_kernels(site, shape[1]), None, arg["stride"], arg["padding"]),
        *(arg["dilation"], True, over, shape[1]),
    )


def _unit_kernels(site: Site, channels: int) -> fx.Node:
    """Returns ``[C * kh * kw, 1, kh, kw]``: for each channel the kernels with a single 1."""
    height, width = site.args["kernel_size"]
    units = torch.eye(height * width).reshape(-1, 1, height, width)
    return site.add_constant(units.repeat(channels, 1, 1, 1), "patch_kernels")


PATCH_RULES: dict[torch._ops.OpOverload, Rule] = {
    aten.unfold.default: _unfold,
    aten.im2col.default: _im2col,
    aten.col2im.default: _col2im,
}
