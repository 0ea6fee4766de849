"""Operations of rank above 4 whose first dimensions are a batch: those are one dimension or two.

Rules for lower_ranks: layers of the last dimensions, products of matrices, attention, norms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import fx

from nnapi_prof.graph.node import type_of
from nnapi_prof.graph.passes.ranks_along import merged, reshape, sizes_of
from nnapi_prof.graph.passes.rewrite import Rule, Site
from nnapi_prof.graph.types import MAX_RANK

aten = torch.ops.aten

MAX_BATCHES = MAX_RANK - 2
"""Dimensions that a batch of matrices may have."""


def _last_dims(site: Site, name: str, n_last: int) -> fx.Node | None:
    """The site's call with all but the last dimensions of an argument as one."""
    source = site.input(name)
    shape = type_of(source).shape
    if len(shape) <= MAX_RANK or n_last >= MAX_RANK:
        return None
    split = len(shape) - n_last
    flat = reshape(site, source, [math.prod(shape[:split]), *shape[split:]])
    return _called_with(site, {name: flat})


def _called_with(site: Site, changed: dict[str, fx.Node]) -> fx.Node:
    """The site's call with other arguments, in the shape that the site's has."""
    target = site.node.target
    assert isinstance(target, torch._ops.OpOverload)
    given = {**site.args, **changed}
    args = [given[a.name] for a in target._schema.arguments if not a.kwarg_only]
    kwargs = {a.name: given[a.name] for a in target._schema.arguments if a.kwarg_only}
    return reshape(site, site.call(target, *args, **kwargs), site.type.shape)


def _linear(site: Site) -> fx.Node | None:
    return _last_dims(site, "input", 1)


def _norm_of_last(site: Site) -> fx.Node | None:
    return _last_dims(site, "input", len(site.args["normalized_shape"]))


def _norm_of_channels(site: Site) -> fx.Node | None:
    """Norms, slopes for each channel: what follows the channels are two dimensions."""
    name = "input" if "input" in site.args else "self"
    shape = type_of(site.input(name)).shape
    if len(shape) <= MAX_RANK:
        return None
    images = [*shape[:3], math.prod(shape[3:])]
    return _called_with(site, {name: reshape(site, site.input(name), images)})


def _matrices(site: Site, names: Sequence[str]) -> fx.Node | None:
    """Batches of matrices that broadcast alike in neighbouring dimensions are one dimension."""
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
                site, _spread(site, tensor, sizes[name], whole, matrix), [math.prod(whole), *matrix]
            )
    return _called_with(site, flat)


def _spread(
    site: Site, tensor: fx.Node, sizes: list[int], whole: list[int], matrix: Sequence[int]
) -> fx.Node:
    """A batch of matrices with the sizes of the ``whole`` one, each matrix as a row."""
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
    if site.args["enable_gqa"]:  # heads that share keys are no broadcasting
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
"""Operators of one value."""
