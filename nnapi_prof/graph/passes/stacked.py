"""Reductions over stacked images, without the stack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from nnapi_prof.graph.node import is_constant, type_of
from nnapi_prof.graph.passes.rewrite import Rule, Site, apply_rules, erase_unused

aten = torch.ops.aten

MAX_PARTS = 8
"""Images in a stack at most: beyond, one reduction is better than so many sums."""


def unstack_reductions(graph: fx.Graph) -> int:
    """Adds images instead of summing over their stack: they keep their dim order.

    Given:
        %s [1, 2, 8, 4, 4] = cat([view(%a [1, 8, 4, 4], ...), view(%b, ...)], 1)
        %r [1, 8, 4, 4]    = sum(%s, [1])
    Result:
        %r [1, 8, 4, 4]    = add(%a, %b)

    and the same for means, for channels that a view cuts into groups, and for products of stacks.
    Returns the reductions replaced.
    """
    rules: dict[torch._ops.OpOverload, Rule] = {
        aten.sum.dim_IntList: _sum,
        aten.mean.dim: _sum,
    }
    changed = apply_rules(graph, rules)
    if changed:
        erase_unused(graph)
    return changed


def _sum(site: Site) -> fx.Node | None:
    source, dims = site.input(), site.args["dim"]
    shape = type_of(source).shape
    if len(shape) != 5 or not dims or len(dims) != 1 or site.args["dtype"] is not None:
        return None
    dim = dims[0] % 5
    split = _splitter(site, source, dim) if 1 < shape[dim] <= MAX_PARTS else None
    if split is None:
        return None
    total = split(0)
    for index in range(1, shape[dim]):
        total = site.call(aten.add.Tensor, total, split(index))
    if site.node.target is aten.mean.dim:
        total = site.call(aten.mul.Tensor, total, 1 / shape[dim])
    return _viewed(site, total, site.type.shape)


def _splitter(site: Site, stack: fx.Node, dim: int) -> Callable[[int], fx.Node] | None:
    """What gives the images of a stack of rank 5, by their place along ``dim``; None where they
    are not there before the stack."""
    shape = type_of(stack).shape
    image = [*shape[:dim], *shape[dim + 1 :]]
    if is_constant(stack):
        return None
    if shape[dim] == 1:
        return lambda index: _viewed(site, stack, image)
    if stack.target is aten.cat.default:
        tensors: Any = stack.args[0]
        places: Any = stack.args[1] if len(stack.args) > 1 else 0
        whole = places % 5 == dim and all(type_of(t).shape[dim] == 1 for t in tensors)
        return (lambda index: _viewed(site, tensors[index], image)) if whole else None
    if stack.target in _VIEWS:
        source: Any = stack.args[0]
        n, k, c, h, w = shape
        if dim == 1 and type_of(source).shape == (n, k * c, h, w):
            return lambda index: site.call(
                aten.slice.Tensor, source, 1, index * c, (index + 1) * c, 1
            )
        return None
    if stack.target is aten.mul.Tensor and len(stack.users) == 1:
        return _product(site, stack, dim)
    return None


def _product(site: Site, stack: fx.Node, dim: int) -> Callable[[int], fx.Node] | None:
    factors: Any = stack.args[:2]
    if not all(isinstance(f, fx.Node) and len(type_of(f).shape) == 5 for f in factors):
        return None
    splits = [_splitter(site, factor, dim) or _cuts(site, factor, dim) for factor in factors]
    if not any(_splitter(site, f, dim) for f in factors if type_of(f).shape[dim] > 1):
        return None
    return lambda index: site.call(aten.mul.Tensor, *(split(index) for split in splits))


def _cuts(site: Site, stack: fx.Node, dim: int) -> Callable[[int], fx.Node]:
    """The images cut out of a stack that is there."""
    shape = type_of(stack).shape
    image = [*shape[:dim], *shape[dim + 1 :]]

    def cut(index: int) -> fx.Node:
        one = site.call(aten.slice.Tensor, stack, dim, index, index + 1, 1)
        return site.call(aten.reshape.default, one, image)

    return cut


def _viewed(site: Site, node: fx.Node, shape: Sequence[int]) -> fx.Node:
    while node.target in _VIEWS:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        node = source
    if type_of(node).shape == tuple(shape):
        return node
    return site.call(aten.reshape.default, node, list(shape))


_VIEWS = (aten.view.default, aten.reshape.default)
