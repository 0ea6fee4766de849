"""Rewrite sums by their terms: sums over stacks, and sums compared with infinity."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from nnapi_prof.graph.node import bound_args, constant_value, is_constant, type_of
from nnapi_prof.passes import Rule, Site, apply_rules, erase_unused

aten = torch.ops.aten

MAX_PARTS = 8
"""Most images in a stack; for more, one reduction is faster than as many sums."""


def sum_of_stack_to_adds(graph: fx.Graph) -> int:
    """Adds images instead of summing over their stack, so they keep their dim order.

    Given:
        %s [1, 2, 8, 4, 4] = cat([view(%a [1, 8, 4, 4], ...), view(%b, ...)], 1)
        %r [1, 8, 4, 4]    = sum(%s, [1])
    Result:
        %r [1, 8, 4, 4]    = add(%a, %b)

    It does the same for means, for channels that a view splits into groups, and for products of
    stacks. Returns the number of reductions replaced.
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
    """Returns a function from a position along ``dim`` to the image in a stack of rank 5; None
    where the images do not exist before the stack."""
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
    """Returns a function that slices images from an existing stack."""
    shape = type_of(stack).shape
    image = [*shape[:dim], *shape[dim + 1 :]]

    def cut(index: int) -> fx.Node:
        one = site.call(aten.slice.Tensor, stack, dim, index, index + 1, 1)
        return site.reshape(one, image)

    return cut


def _viewed(site: Site, node: fx.Node, shape: Sequence[int]) -> fx.Node:
    while node.target in _VIEWS:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        node = source
    if type_of(node).shape == tuple(shape):
        return node
    return site.reshape(node, list(shape))


_VIEWS = (aten.view.default, aten.reshape.default)


# Infinities: NNAPI's sums are finite on phones, so the terms are compared instead.
#
# Attention that was decomposed before it was saved looks for rows of masked scores that are all
# minus infinity. They come from a constant, an input or a choice, which can be compared.


ARITHMETIC = frozenset(
    {
        *(aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar, aten.sub.Tensor),
        *(aten.bmm.default, aten.mm.default, aten.matmul.default, aten.baddbmm.default),
        *(aten.addmm.default, aten.linear.default, aten.convolution.default),
    }
)
"""Operators whose results are finite on phones."""
_ELEMENTS_OF_FIRST = frozenset(
    {
        *(aten.view.default, aten.reshape.default, aten._unsafe_view.default),
        *(aten.expand.default, aten.permute.default, aten.transpose.int, aten.clone.default),
        *(aten.unsqueeze.default, aten.squeeze.dim, aten.slice.Tensor, aten.select.int),
    }
)
"""Operators whose results are elements of their first argument."""


def check_terms_for_infinity(graph: fx.Graph) -> int:
    """Compares the terms of a sum with infinity instead of the sum.

    Given:
        %s [2, 4, 4] = add(%scores, %mask)            %scores a product, %mask [4, 4]
        %h [2, 4, 4] = eq(%s, -inf)
    Result:
        %s [2, 4, 4] = add(%scores, %mask)
        %e [4, 4] = eq(%mask, -inf)
        %h [2, 4, 4] = logical_or(%e, false [2, 1, 1])

    Terms that are results of arithmetic are left out. Returns the number of comparisons changed.
    """
    return apply_rules(graph, _INFINITY_RULES)


def _eq(site: Site) -> fx.Node | None:
    value, source = site.args["other"], site.input()
    if not isinstance(value, float) or not math.isinf(value) or not _is_sum(source):
        return None
    terms = [term for term in _terms(source) if _may_be_infinite(term)]
    if not terms:
        return None
    first, *rest = [site.call(aten.eq.Scalar, term, value) for term in terms]
    is_infinite = functools.reduce(
        lambda a, b: site.call(aten.logical_or.default, a, b), rest, first
    )
    shape, have = site.type.shape, type_of(is_infinite).shape
    if have == shape:
        return is_infinite
    have = (1,) * (len(shape) - len(have)) + have
    wide = [1 if a == b else b for a, b in zip(have, shape, strict=True)]
    nothing = site.add_constant(torch.zeros(wide, dtype=torch.bool), "nothing_else")
    return site.call(aten.logical_or.default, is_infinite, nothing)


_INFINITY_RULES: dict[torch._ops.OpOverload, Rule] = {aten.eq.Scalar: _eq}


def _is_sum(node: fx.Node) -> bool:
    return node.target is aten.add.Tensor and bound_args(node)["alpha"] == 1


def _terms(node: fx.Node) -> Iterator[fx.Node]:
    """Yields the terms of a sum, including those of sums among them."""
    for name in ("self", "other"):
        term = bound_args(node)[name]
        if isinstance(term, fx.Node):
            yield from _terms(term) if _is_sum(term) else (term,)


def _may_be_infinite(node: fx.Node) -> bool:
    if is_constant(node):
        return bool(constant_value(node).isinf().any())
    if node.target in _ELEMENTS_OF_FIRST:
        return _may_be_infinite(node.all_input_nodes[0])
    return node.target not in ARITHMETIC
