"""Overloads of operators that other passes and the converter know by another overload.

A module loaded from a file names operators as PyTorch's Python layer called them, an exported one
as its dispatcher did: ``subtract.Scalar`` is ``sub.Scalar``. Resizing's are for
canonicalize_layers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from nnapi_prof.graph.node import torch_dtype, type_of
from nnapi_prof.passes.rewrite import ManyRule, Rule, Site, apply_many_rules, apply_rules

aten = torch.ops.aten


def canonicalize_overloads(graph: fx.Graph) -> int:
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
    norm_args = [site.input(), site.args["p"]]
    if "dim" not in site.args:
        return site.call(
            aten.norm.Scalar, site.input(), 2 if norm_args[1] is None else norm_args[1]
        )
    return site.call(aten.norm.ScalarOpt_dim, *norm_args, site.args["dim"], site.args["keepdim"])


def _linalg_norm(site: Site) -> fx.Node | None:
    """The Frobenius norm: the root of the sum of all squares."""
    if site.args["ord"] != "fro" or site.type.dtype != type_of(site.input()).dtype:
        return None
    keep = bool(site.args["keepdim"])
    return site.call(aten.linalg_vector_norm.default, site.input(), 2.0, site.args["dim"], keep)


def _split(site: Site) -> list[fx.Node] | None:
    return site.slices(site.args["dim"], site.args["split_sizes"])


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


# Operators that are others by another name, and tensors that are constants whatever they read


ALIASES: dict[torch._ops.OpOverload, torch._ops.OpOverload] = {
    aten.__and__.Tensor: aten.bitwise_and.Tensor,
    aten.__and__.Scalar: aten.bitwise_and.Scalar,
    aten.__or__.Tensor: aten.bitwise_or.Tensor,
    aten.__or__.Scalar: aten.bitwise_or.Scalar,
    aten.__xor__.Tensor: aten.bitwise_xor.Tensor,
    aten.__xor__.Scalar: aten.bitwise_xor.Scalar,
    aten.not_equal.Tensor: aten.ne.Tensor,
    aten.not_equal.Scalar: aten.ne.Scalar,
    aten.greater.Tensor: aten.gt.Tensor,
    aten.greater.Scalar: aten.gt.Scalar,
    aten.greater_equal.Tensor: aten.ge.Tensor,
    aten.greater_equal.Scalar: aten.ge.Scalar,
    aten.less.Tensor: aten.lt.Tensor,
    aten.less.Scalar: aten.lt.Scalar,
    aten.less_equal.Tensor: aten.le.Tensor,
    aten.less_equal.Scalar: aten.le.Scalar,
    aten.absolute.default: aten.abs.default,
    aten.negative.default: aten.neg.default,
    aten.fix.default: aten.trunc.default,
    aten.arctan.default: aten.atan.default,
    aten.arctan2.default: aten.atan2.default,
    aten.max.other: aten.maximum.default,
    aten.min.other: aten.minimum.default,
    aten.clip.Tensor: aten.clamp.Tensor,
    aten.clamp_min.Tensor: aten.maximum.default,
    aten.clamp_max.Tensor: aten.minimum.default,
    aten.divide.Tensor_mode: aten.div.Tensor_mode,
    aten.divide.Scalar_mode: aten.div.Scalar_mode,
    aten.special_erf.default: aten.erf.default,
    aten.special_expm1.default: aten.expm1.default,
    aten.special_exp2.default: aten.exp2.default,
    aten.special_log1p.default: aten.log1p.default,
}
"""Operator -> the one that takes the same arguments and gives the same numbers."""


def _alias(target: torch._ops.OpOverload) -> Rule:
    def rule(site: Site) -> fx.Node | None:
        return site.call(target, *site.node.args, **site.node.kwargs)

    return rule


def _filled(value: float) -> Rule:
    def rule(site: Site) -> fx.Node | None:
        return _constant(site, value)

    return rule


def _full(site: Site) -> fx.Node | None:
    return _constant(site, site.args["fill_value"])


def _constant(site: Site, value: float) -> fx.Node:
    """A tensor of the node's type with one value: of what it reads only the shape matters."""
    result_type = site.type
    tensor = torch.full(result_type.shape, value, dtype=torch_dtype(result_type.dtype))
    return site.add_constant(tensor, site.node.name)


def _index_put(site: Site) -> fx.Node | None:
    """``x[mask] = value`` is a choice where the mask has x's shape and the value one element."""
    indices, values = site.args["indices"], site.args["values"]
    if len(indices) != 1 or site.args["accumulate"] or type_of(values).n_elements != 1:
        return None
    mask = indices[0]
    if type_of(mask).dtype != "bool" or type_of(mask).shape != site.type.shape:
        return None
    if len(type_of(values).shape) > len(site.type.shape):
        return None
    return site.call(aten.where.self, mask, values, site.input())


ALIAS_RULES: dict[torch._ops.OpOverload, Rule] = {
    **{target: _alias(synonym) for target, synonym in ALIASES.items()},
    aten.zero.default: _filled(0),
    aten.zeros_like.default: _filled(0),
    aten.ones_like.default: _filled(1),
    aten.full_like.default: _full,
    aten.new_zeros.default: _filled(0),
    aten.new_ones.default: _filled(1),
    aten.new_full.default: _full,
    aten.index_put.default: _index_put,
}
