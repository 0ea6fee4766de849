"""Write out products, norms, distances and Einstein sums by operators that have a lowering."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import fx

from nnapi_prof.graph.node import positive_dim, torch_dtype, type_of
from nnapi_prof.passes import Rule, Site

aten = torch.ops.aten


def _weighted(site: Site, product: fx.Node) -> fx.Node:
    """Returns ``beta * self + alpha * product``; for beta = 0 ``self`` is not read."""
    alpha, beta = site.args["alpha"], site.args["beta"]
    if not torch_dtype(site.type.dtype).is_floating_point:
        alpha, beta = int(alpha), int(beta)
    if alpha != 1:
        product = site.call(aten.mul.Tensor, product, alpha)
    if beta == 0:
        return product
    added = site.input()
    if beta != 1:
        added = site.call(aten.mul.Tensor, added, beta)
    return site.call(aten.add.Tensor, product, added)


def _outer_of(site: Site, first: str, second: str) -> fx.Node:
    column = site.view(site.input(first), [*type_of(site.input(first)).shape, 1])
    return site.call(aten.mul.Tensor, column, site.input(second))


def _outer(site: Site) -> fx.Node | None:
    return _outer_of(site, "self", "vec2")


def _addr(site: Site) -> fx.Node | None:
    return _weighted(site, _outer_of(site, "vec1", "vec2"))


def _addmv(site: Site) -> fx.Node | None:
    return _weighted(site, site.call(aten.mv.default, site.input("mat"), site.input("vec")))


def _addbmm(site: Site) -> fx.Node | None:
    products = site.call(aten.bmm.default, site.input("batch1"), site.input("batch2"))
    if site.type.shape != type_of(products).shape[1:]:
        return None
    return _weighted(site, site.call(aten.sum.dim_IntList, products, [0], False))


def _inner(site: Site) -> fx.Node | None:
    x, y = site.input(), site.input("other")
    if not type_of(x).shape or not type_of(y).shape:
        return site.call(aten.mul.Tensor, x, y)
    return contracted(site, x, y, [-1], [-1])


def _multi_dot(site: Site) -> fx.Node | None:
    first, *others = site.args["tensors"]
    product = first
    for other in others:
        product = site.call(aten.matmul.default, product, other)
    assert isinstance(product, fx.Node)
    return product


def _bilinear(site: Site) -> fx.Node | None:
    """Writes out ``y[..., o] = sum x1[..., i] w[o, i, j] x2[..., j] + b[o]``."""
    x, y, weight = site.input("input1"), site.input("input2"), site.input("weight")
    lead = [f"n{axis}" for axis in range(len(type_of(x).shape) - 1)]
    terms = [[*lead, "i"], ["o", "i", "j"], [*lead, "j"]]
    result = sum_of_products(site, [x, weight, y], terms, [*lead, "o"])
    bias = site.args["bias"]
    return result if bias is None else site.call(aten.add.Tensor, result, bias)


def _norm(site: Site, x: fx.Node, order: float, dim: int, keep: bool) -> fx.Node:
    return site.call(aten.linalg_vector_norm.default, x, order, [dim], keep)


def _cosine(site: Site) -> fx.Node | None:
    """Writes out ``sum(x / max(|x|, eps) * y / max(|y|, eps))`` of x and y broadcast."""
    parts = [site.input("x1"), site.input("x2")]
    shape = np.broadcast_shapes(*(type_of(part).shape for part in parts))
    if not shape:
        return None
    dim = positive_dim(site.args["dim"], len(shape))
    scaled = []
    for part in parts:
        own = type_of(part).shape
        filled = (1,) * (len(shape) - len(own)) + own
        if filled != own:
            part = site.view(part, list(filled))
        if filled[dim] != shape[dim]:
            full = [*filled[:dim], shape[dim], *filled[dim + 1 :]]
            part = site.call(aten.expand.default, part, full)
        length = _norm(site, part, 2, dim, True)
        length = site.call(aten.clamp.default, length, float(site.args["eps"]), None)
        scaled.append(site.call(aten.div.Tensor, part, length))
    return site.call(aten.sum.dim_IntList, site.call(aten.mul.Tensor, *scaled), [dim], False)


def _distance(site: Site) -> fx.Node | None:
    """Writes out ``|x - y + eps|`` over the last axis."""
    arg = site.args
    apart = site.call(aten.sub.Tensor, site.input("x1"), site.input("x2"))
    apart = site.call(aten.add.Tensor, apart, float(arg["eps"]))
    last = len(type_of(apart).shape) - 1
    return _norm(site, apart, float(arg["p"]), last, bool(arg["keepdim"]))


def _linalg_norm(site: Site) -> fx.Node | None:
    """Returns a norm of vectors: of order 2 over any axes, of other orders over one."""
    order, dims = site.args["ord"], site.args["dim"]
    one_axis = (dims is not None and len(dims) == 1) or len(type_of(site.input()).shape) == 1
    if order is not None and not one_axis:
        return None
    exponent = 2.0 if order is None else float(order)
    keep = bool(site.args["keepdim"])
    return site.call(aten.linalg_vector_norm.default, site.input(), exponent, dims, keep)


def _matrix_norm(site: Site) -> fx.Node | None:
    if site.args["ord"] != "fro":
        return None
    dims, keep = list(site.args["dim"]), bool(site.args["keepdim"])
    return site.call(aten.linalg_vector_norm.default, site.input(), 2.0, dims, keep)


ALGEBRA: dict[torch._ops.OpOverload, Rule] = {
    aten.inner.default: _inner,
    aten.outer.default: _outer,
    aten.ger.default: _outer,
    aten.addr.default: _addr,
    aten.addmv.default: _addmv,
    aten.addbmm.default: _addbmm,
    aten.linalg_multi_dot.default: _multi_dot,
    aten.bilinear.default: _bilinear,
    aten.cosine_similarity.default: _cosine,
    aten.pairwise_distance.default: _distance,
    aten.linalg_norm.default: _linalg_norm,
    aten.linalg_matrix_norm.str_ord: _matrix_norm,
}
"""Rules for operators of one value."""


# Einstein sums as permutations, sums and products of matrices


class Unspelt(Exception):
    """Equation that this module does not write out; the node stays unchanged."""


def einsum(site: Site) -> fx.Node | None:
    """Writes out ``einsum(equation, tensors)`` of any number of tensors, from left to right.

    Given:
        %y [2, 4, 6] = einsum("bij,bkj->bik", [%a [2, 4, 5], %b [2, 6, 5]])
    Result:
        %t [2, 5, 6] = permute(%b, [0, 2, 1])
        %y           = matmul(%a, %t)

    Diagonals (a letter twice in one tensor) and sizes of 1 that broadcast are left alone.
    """
    tensors = list(site.args["tensors"])
    try:
        terms, result = _parse(str(site.args["equation"]), tensors)
        return sum_of_products(site, tensors, terms, result)
    except Unspelt:
        return None


def tensordot(site: Site) -> fx.Node | None:
    """Writes out ``tensordot(x, y, dims_self, dims_other)``, which is an Einstein sum."""
    x, y = site.input("self"), site.input("other")
    return contracted(site, x, y, site.args["dims_self"], site.args["dims_other"])


def contracted(
    site: Site, x: fx.Node, y: fx.Node, x_dims: Sequence[int], y_dims: Sequence[int]
) -> fx.Node | None:
    """Returns ``x`` times ``y`` summed over pairs of axes; the others of both remain, ``x``'s
    first.

    Returns None where sizes of 1 broadcast.
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
    """Returns the letters of each tensor's axes and of the result's. The axes of an ellipsis are
    ``.0``, ``.1``, ... counted from the last."""
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
    """Returns the products of ``tensors``, with axes named by ``terms``, summed to ``result``.

    Raises Unspelt where a term has a name twice, or a name has two sizes.
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
        x, have = _multiply_and_sum(site, (x, have), (tensors[index], terms[index]), later, sizes)
    x, have = _summed(site, x, have, set(result))
    return _arranged(site, x, have, result)


def _summed(
    site: Site, x: fx.Node, have: list[str], remaining: set[str]
) -> tuple[fx.Node, list[str]]:
    """Returns ``x`` summed over the letters that are no longer needed."""
    gone = [axis for axis, name in enumerate(have) if name not in remaining]
    if not gone:
        return x, have
    left = [name for name in have if name in remaining]
    return site.call(aten.sum.dim_IntList, x, gone, False), left


def _arranged(site: Site, x: fx.Node, have: list[str], want: list[str]) -> fx.Node:
    order = [have.index(name) for name in want]
    return x if order == sorted(order) else site.call(aten.permute.default, x, order)


def _multiply_and_sum(
    site: Site,
    first: tuple[fx.Node, list[str]],
    second: tuple[fx.Node, list[str]],
    later: set[str],
    sizes: dict[str, int],
) -> tuple[fx.Node, list[str]]:
    """Multiplies two tensors and sums over the letters that both have and that are not needed
    later, by one product of matrices ``[batch, rows, inner] @ [batch, inner, columns]``."""
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
    return x if list(type_of(x).shape) == shape else site.view(x, shape)
