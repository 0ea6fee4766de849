"""Operators that are others by another name, and tensors that are constants whatever they read."""

from __future__ import annotations

import torch
from torch import fx

from nnapi_prof.graph.node import torch_dtype, type_of
from nnapi_prof.graph.passes.rewrite import Rule, Site

aten = torch.ops.aten

SYNONYMS: dict[torch._ops.OpOverload, torch._ops.OpOverload] = {
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


def _synonym(target: torch._ops.OpOverload) -> Rule:
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
    known = site.type
    tensor = torch.full(known.shape, value, dtype=torch_dtype(known.dtype))
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


RULES: dict[torch._ops.OpOverload, Rule] = {
    **{target: _synonym(synonym) for target, synonym in SYNONYMS.items()},
    aten.zero.default: _filled(0),
    aten.zeros_like.default: _filled(0),
    aten.ones_like.default: _filled(1),
    aten.full_like.default: _full,
    aten.new_zeros.default: _filled(0),
    aten.new_ones.default: _filled(1),
    aten.new_full.default: _full,
    aten.index_put.default: _index_put,
}
