"""Elements taken from constant places: those in order are a change of shape, equal ones constants.

Attention masks are often made by index arithmetic (``mask[batch[:, None, None, None], keys]``)
that takes every element once, and tables of zeros are looked up at computed positions.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from nnapi_prof.graph.node import constant_value, is_constant, torch_dtype, type_of
from nnapi_prof.graph.passes.rewrite import Rule, Site, apply_rules

aten = torch.ops.aten

MAX_PLACES = 2**22
"""Elements whose places are compared, at most."""


def pick_values(graph: fx.Graph) -> int:
    """Spells picks that choose nothing without indices.

    Given:
        %i [2, 1, 1, 3] = index(%m [2, 3], [[[[[0]]], [[[1]]]], [0, 1, 2]])
        %g [2, 5]       = gather(zeros constant [2, 9], 1, %p [2, 5])
    Result:
        %i = reshape(%m, [2, 1, 1, 3])
        %g = zeros constant [2, 5]

    Returns the nodes replaced.
    """
    return apply_rules(graph, _RULES)


def _picked(site: Site) -> fx.Node | None:
    target = site.node.target
    assert isinstance(target, OpOverload)
    source = site.input(_SOURCES[target])
    if is_constant(source):
        value = constant_value(source)
        if not value.numel() or value.is_quantized or (value != value.reshape(-1)[0]).any():
            return None
        dtype = torch_dtype(site.type.dtype)
        filled = torch.full(site.type.shape, value.reshape(-1)[0].item(), dtype=dtype)
        return site.add_constant(filled, "values")
    if target is not aten.index.Tensor or site.type.n_elements > MAX_PLACES:
        return None
    if type_of(source).n_elements != site.type.n_elements:
        return None
    indices = [node for node in site.args["indices"] if node is not None]
    if not all(map(is_constant, indices)):
        return None
    if not _in_order(type_of(source).shape, site.args["indices"]):
        return None
    return site.call(aten.reshape.default, source, list(site.type.shape))


def _in_order(shape: tuple[int, ...], indices: list[fx.Node | None]) -> bool:
    """Whether ``x[indices]`` takes every element of an x of ``shape`` in its place."""
    size = math.prod(shape)
    read: list[slice | Tensor] = [
        slice(None) if node is None else constant_value(node) for node in indices
    ]
    places = torch.arange(size).reshape(shape)[tuple(read)]
    return torch.equal(places.reshape(-1), torch.arange(size))


_SOURCES: dict[OpOverload, str] = {
    aten.embedding.default: "weight",
    aten.gather.default: "self",
    aten.index.Tensor: "self",
    aten.index_select.default: "self",
}
"""Operator -> the argument whose elements it takes."""
_RULES: dict[OpOverload, Rule] = dict.fromkeys(_SOURCES, _picked)
