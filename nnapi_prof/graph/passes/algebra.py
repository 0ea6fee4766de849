"""Products, norms and distances that others with a lowering of their own can say."""

from __future__ import annotations

import numpy as np
import torch
from torch import fx

from nnapi_prof.graph.node import positive_dim, torch_dtype, type_of
from nnapi_prof.graph.passes.einsum import contracted, sum_of_products
from nnapi_prof.graph.passes.rewrite import Rule, Site

aten = torch.ops.aten


def _weighted(site: Site, product: fx.Node) -> fx.Node:
    """``beta * self + alpha * product``; ``self`` is not read for beta = 0."""
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
    column = site.call(aten.view.default, site.input(first), [*type_of(site.input(first)).shape, 1])
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
    """``y[..., o] = sum x1[..., i] w[o, i, j] x2[..., j] + b[o]``."""
    x, y, weight = site.input("input1"), site.input("input2"), site.input("weight")
    lead = [f"n{axis}" for axis in range(len(type_of(x).shape) - 1)]
    terms = [[*lead, "i"], ["o", "i", "j"], [*lead, "j"]]
    result = sum_of_products(site, [x, weight, y], terms, [*lead, "o"])
    bias = site.args["bias"]
    return result if bias is None else site.call(aten.add.Tensor, result, bias)


def _norm(site: Site, x: fx.Node, order: float, dim: int, keep: bool) -> fx.Node:
    return site.call(aten.linalg_vector_norm.default, x, order, [dim], keep)


def _cosine(site: Site) -> fx.Node | None:
    """``sum(x / max(|x|, eps) * y / max(|y|, eps))`` of what x and y are once they broadcast."""
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
            part = site.call(aten.view.default, part, list(filled))
        if filled[dim] != shape[dim]:
            full = [*filled[:dim], shape[dim], *filled[dim + 1 :]]
            part = site.call(aten.expand.default, part, full)
        length = _norm(site, part, 2, dim, True)
        length = site.call(aten.clamp.default, length, float(site.args["eps"]), None)
        scaled.append(site.call(aten.div.Tensor, part, length))
    return site.call(aten.sum.dim_IntList, site.call(aten.mul.Tensor, *scaled), [dim], False)


def _distance(site: Site) -> fx.Node | None:
    """``|x - y + eps|`` over the last axis."""
    arg = site.args
    apart = site.call(aten.sub.Tensor, site.input("x1"), site.input("x2"))
    apart = site.call(aten.add.Tensor, apart, float(arg["eps"]))
    last = len(type_of(apart).shape) - 1
    return _norm(site, apart, float(arg["p"]), last, bool(arg["keepdim"]))


def _linalg_norm(site: Site) -> fx.Node | None:
    """A norm of vectors: of order 2 over any axes, of another over one."""
    order, dims = site.args["ord"], site.args["dim"]
    one_axis = dims is not None and len(dims) == 1 or len(type_of(site.input()).shape) == 1
    if order is not None and not one_axis:
        return None
    given = 2.0 if order is None else float(order)
    keep = bool(site.args["keepdim"])
    return site.call(aten.linalg_vector_norm.default, site.input(), given, dims, keep)


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
"""Operators of one value."""
