"""Einstein sums as permutations, sums and products of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import fx

from nnapi_prof.graph.node import type_of
from nnapi_prof.graph.passes.rewrite import Site

aten = torch.ops.aten


class Unspelt(Exception):
    """An equation that this module does not write out: the node stays as it is."""


def einsum(site: Site) -> fx.Node | None:
    """``einsum(equation, tensors)`` of any number of tensors, taken from left to right.

    Given:
        %y [2, 4, 6] = einsum("bij,bkj->bik", [%a [2, 4, 5], %b [2, 6, 5]])
    Result:
        %t [2, 5, 6] = permute(%b, [0, 2, 1])
        %y           = matmul(%a, %t)

    Diagonals (a letter twice in one tensor) and sizes of 1 that broadcast stay.
    """
    tensors = list(site.args["tensors"])
    try:
        terms, result = _parse(str(site.args["equation"]), tensors)
        return sum_of_products(site, tensors, terms, result)
    except Unspelt:
        return None


def tensordot(site: Site) -> fx.Node | None:
    """``tensordot(x, y, dims_self, dims_other)``, which is an Einstein sum."""
    x, y = site.input("self"), site.input("other")
    return contracted(site, x, y, site.args["dims_self"], site.args["dims_other"])


def contracted(
    site: Site, x: fx.Node, y: fx.Node, x_dims: Sequence[int], y_dims: Sequence[int]
) -> fx.Node | None:
    """``x`` times ``y`` summed over pairs of axes; the others of ``x``, then of ``y``, remain.

    None where sizes of 1 broadcast.
    """
    first = [f"x{i}" for i in range(len(type_of(x).shape))]
    second = [f"y{i}" for i in range(len(type_of(y).shape))]
    for mine, other in zip(x_dims, y_dims, strict=True):
        second[other] = first[mine]
    result = [name for name in (*first, *second) if not (name in first and name in second)]
    try:
        return sum_of_products(site, [x, y], [first, second], result)
    except Unspelt:
        return None


def _parse(equation: str, tensors: Sequence[fx.Node]) -> tuple[list[list[str]], list[str]]:
    """The letters of each tensor's axes and of the result's; an ellipsis is ``.0``, ``.1``, ...
    counted from the last of its axes."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms, widest = [], 0
    for term, tensor in zip(left.split(","), tensors, strict=True):
        rank = len(type_of(tensor).shape)
        hidden = rank - len(term.replace("...", ""))
        widest = max(widest, hidden if "..." in term else 0)
        terms.append(_letters(term, hidden))
    every = [name for term in terms for name in term]
    if arrow:
        return terms, _letters(right, widest)
    once = sorted(name for name in set(every) if every.count(name) == 1 and name[0] != ".")
    return terms, [*_letters("..." if widest else "", widest), *once]


def _letters(term: str, hidden: int) -> list[str]:
    before, dots, after = term.partition("...")
    if not dots:
        return list(term)
    return [*before, *(f".{i}" for i in reversed(range(hidden))), *after]


def sum_of_products(
    site: Site, tensors: list[fx.Node], terms: list[list[str]], result: list[str]
) -> fx.Node:
    """The products of ``tensors``, whose axes ``terms`` names, summed to the axes of ``result``.

    Raises Unspelt where a name stands twice in a term, or has two sizes.
    """
    sizes: dict[str, int] = {}
    for tensor, term in zip(tensors, terms, strict=True):
        if len(set(term)) != len(term):
            raise Unspelt
        for name, size in zip(term, type_of(tensor).shape, strict=True):
            if sizes.setdefault(name, size) != size:
                raise Unspelt
    x, have = tensors[0], terms[0]
    for index in range(1, len(tensors)):
        later = {name for term in terms[index + 1 :] for name in term} | set(result)
        x, have = _product(site, (x, have), (tensors[index], terms[index]), later, sizes)
    x, have = _summed(site, x, have, set(result))
    return _arranged(site, x, have, result)


def _summed(site: Site, x: fx.Node, have: list[str], kept: set[str]) -> tuple[fx.Node, list[str]]:
    """``x`` summed over the letters that nobody wants any more."""
    gone = [axis for axis, name in enumerate(have) if name not in kept]
    if not gone:
        return x, have
    left = [name for name in have if name in kept]
    return site.call(aten.sum.dim_IntList, x, gone, False), left


def _arranged(site: Site, x: fx.Node, have: list[str], want: list[str]) -> fx.Node:
    order = [have.index(name) for name in want]
    return x if order == sorted(order) else site.call(aten.permute.default, x, order)


def _product(
    site: Site,
    first: tuple[fx.Node, list[str]],
    second: tuple[fx.Node, list[str]],
    later: set[str],
    sizes: dict[str, int],
) -> tuple[fx.Node, list[str]]:
    """Two tensors multiplied and summed over the letters that both have and nobody wants later:
    one product of matrices ``[batch, rows, inner] @ [batch, inner, columns]``."""
    x, a = _summed(site, *first, later | set(second[1]))
    y, b = _summed(site, *second, later | set(first[1]))
    batch = [name for name in a if name in b and name in later]
    inner = [name for name in a if name in b and name not in later]
    rows = [name for name in a if name not in b]
    columns = [name for name in b if name not in a]

    def size(names: list[str]) -> int:
        return math.prod(sizes[name] for name in names)

    lead = [size(batch)] if batch else []
    x = _arranged(site, x, a, batch + rows + inner)
    y = _arranged(site, y, b, batch + inner + columns)
    x = _viewed(site, x, [*lead, size(rows), size(inner)])
    y = _viewed(site, y, [*lead, size(inner), size(columns)])
    result = site.call(aten.matmul.default, x, y)
    names = batch + rows + columns
    return _viewed(site, result, [sizes[name] for name in names]), names


def _viewed(site: Site, x: fx.Node, shape: list[int]) -> fx.Node:
    return x if list(type_of(x).shape) == shape else site.call(aten.view.default, x, shape)
