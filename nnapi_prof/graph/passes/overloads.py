"""Overloads of operators that other passes and the converter know by another overload.

A module loaded from a file names operators as PyTorch's Python layer called them, an exported one
as its dispatcher did: ``subtract.Scalar`` is ``sub.Scalar``. Resizing's are for normalise_layers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from nnapi_prof.graph.node import torch_dtype, type_of
from nnapi_prof.graph.passes.rewrite import ManyRule, Rule, Site, apply_many_rules, apply_rules

aten = torch.ops.aten


def unify_overloads(graph: fx.Graph) -> int:
    """Calls each operator by the overload that is known further on.

    Given:
        %s [1, 8]       = subtract.Scalar(%a, 1, 2)
        %r [4]          = remainder.Scalar_Tensor(7, %n [4])
    Result:
        %s = sub.Scalar(%a, 1, 2)
        %r = remainder.Tensor(%seven [1], %n)

    Returns the nodes replaced.
    """
    return apply_many_rules(graph, _MANY_RULES) + apply_rules(graph, _RULES)


def resized(target: torch._ops.OpOverload) -> Rule:
    """A resize of images as ``.vec``: by sizes, or by both scales where one of them says another
    ratio than the sizes do (a factor of 1.3 that was rounded to whole pixels moves the
    coordinates)."""

    def rule(site: Site) -> fx.Node | None:
        arg = site.args
        source = site.input("input" if "input" in arg else "self")
        before, after = type_of(source).shape[-2:], list(site.type.shape[-2:])
        scales = arg.get("scale_factors") or [arg.get("scales_h"), arg.get("scales_w")]
        stated = [
            (scale, size, out)
            for scale, size, out in zip(scales, before, after, strict=True)
            if scale is not None and scale > 0
        ]
        extra: list[Any] = [bool(arg["align_corners"])] if "align_corners" in arg else []
        if all(scale * size == out for scale, size, out in stated):
            return site.become(target, source, after, *extra, None)
        if len(stated) < 2 or any(int(scale * size) != out for scale, size, out in stated):
            return None  # .vec cannot state both sizes and scales, nor one scale
        return site.become(target, source, None, *extra, list(scales))

    return rule


def _as(target: torch._ops.OpOverload) -> Rule:
    """The same arguments in the same order."""

    def rule(site: Site) -> fx.Node | None:
        return site.call(target, *site.args.values())

    return rule


def _sub_scalar(site: Site) -> fx.Node | None:
    return site.call(aten.sub.Scalar, site.input(), site.args["other"], site.args["alpha"])


def _swapped(target: torch._ops.OpOverload) -> Rule:
    """``number op tensor`` of an operator that commutes."""
    return lambda site: site.call(target, site.input("other"), site.args["self"])


def _remainder(site: Site) -> fx.Node | None:
    """``number % tensor``, the number as a tensor of the result's type."""
    number = torch.tensor([site.args["self"]], dtype=torch_dtype(site.type.dtype))
    return site.call(
        aten.remainder.Tensor, site.add_constant(number, "number"), site.input("other")
    )


def _round(site: Site) -> fx.Node | None:
    """``round(x * 10^d) / 10^d``, for negative d the other way round."""
    decimals = site.args["decimals"]
    if type_of(site.input()).dtype != "float32":
        return None
    power = float(10 ** abs(decimals))
    first, last = (aten.mul.Tensor, aten.div.Tensor)[:: -1 if decimals < 0 else 1]
    rounded = site.call(aten.round.default, site.call(first, site.input(), power))
    return site.call(last, rounded, power)


def _norm(site: Site) -> fx.Node | None:
    """A norm with an element type that it has anyhow."""
    if site.type.dtype != type_of(site.input()).dtype:
        return None
    given = [site.input(), site.args["p"]]
    if "dim" not in site.args:
        return site.call(aten.norm.Scalar, site.input(), 2 if given[1] is None else given[1])
    return site.call(aten.norm.ScalarOpt_dim, *given, site.args["dim"], site.args["keepdim"])


def _linalg_norm(site: Site) -> fx.Node | None:
    """The Frobenius norm: the root of the sum of all squares."""
    if site.args["ord"] != "fro" or site.type.dtype != type_of(site.input()).dtype:
        return None
    keep = bool(site.args["keepdim"])
    return site.call(aten.linalg_vector_norm.default, site.input(), 2.0, site.args["dim"], keep)


def _split(site: Site) -> list[fx.Node] | None:
    nodes, start = [], 0
    for size in site.args["split_sizes"]:
        dim = site.args["dim"]
        nodes.append(site.call(aten.slice.Tensor, site.input(), dim, start, start + size, 1))
        start += size
    return nodes


_RULES: dict[torch._ops.OpOverload, Rule] = {
    aten.multiply.Scalar: _as(aten.mul.Scalar),
    aten.divide.Scalar: _as(aten.div.Scalar),
    aten.true_divide.Scalar: _as(aten.div.Scalar),
    aten.subtract.Scalar: _sub_scalar,
    aten.bitwise_and.Scalar_Tensor: _swapped(aten.bitwise_and.Scalar),
    aten.bitwise_or.Scalar_Tensor: _swapped(aten.bitwise_or.Scalar),
    aten.bitwise_xor.Scalar_Tensor: _swapped(aten.bitwise_xor.Scalar),
    aten.remainder.Scalar_Tensor: _remainder,
    aten.round.decimals: _round,
    aten.norm.ScalarOpt_dtype: _norm,
    aten.norm.ScalarOpt_dim_dtype: _norm,
    aten.linalg_norm.ord_str: _linalg_norm,
    aten.index.Tensor_hacked_twin: _as(aten.index.Tensor),
    aten.index_put.hacked_twin: _as(aten.index_put.default),
}
_MANY_RULES: dict[torch._ops.OpOverload, ManyRule] = {aten.split.default: _split}
