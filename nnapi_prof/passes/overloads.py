"""Bring operators to the one overload, with full-length lists, that later code supports.

A module loaded from a file names operators as PyTorch's Python layer called them, an exported one
as its dispatcher did: ``subtract.Scalar`` is ``sub.Scalar``. canonicalize_layers handles
convolutions, pools, batch norm and resizing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from nnapi_prof.graph.node import (
    bound_args,
    calls,
    constant_value,
    is_constant,
    torch_dtype,
    type_of,
)
from nnapi_prof.passes import ManyRule, Rule, Site, apply_many_rules, apply_rules, first_of
from nnapi_prof.passes.composites import COMPOSITES, COMPOSITES_OF_SEVERAL, stored_statistics

aten = torch.ops.aten


def canonicalize_overloads(graph: fx.Graph) -> int:
    """Replaces each operator by the overload that later passes support.

    Given:
        %s [1, 8]       = subtract.Scalar(%a, 1, 2)
        %r [4]          = remainder.Scalar_Tensor(7, %n [4])
    Result:
        %s = sub.Scalar(%a, 1, 2)
        %r = remainder.Tensor(%seven [1], %n)

    Returns the number of nodes replaced.
    """
    return apply_many_rules(graph, _MANY_RULES) + apply_rules(graph, _RULES)


def resized(target: torch._ops.OpOverload) -> Rule:
    """Returns the rule for a resize of images as ``.vec``: by sizes, or by both scales if one is
    not the ratio of the sizes (a rounded factor of 1.3 moves the coordinates)."""

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
    """Returns the rule for a call of ``target`` with the same arguments in the same order."""

    def rule(site: Site) -> fx.Node | None:
        return site.call(target, *site.args.values())

    return rule


def _sub_scalar(site: Site) -> fx.Node | None:
    return site.call(aten.sub.Scalar, site.input(), site.args["other"], site.args["alpha"])


def _swapped(target: torch._ops.OpOverload) -> Rule:
    """Returns the rule for ``number op tensor`` of an operator that commutes."""
    return lambda site: site.call(target, site.input("other"), site.args["self"])


def _remainder(site: Site) -> fx.Node | None:
    """Returns ``number % tensor`` with the number as a tensor of the result's type."""
    number = torch.tensor([site.args["self"]], dtype=torch_dtype(site.type.dtype))
    return site.call(
        aten.remainder.Tensor, site.add_constant(number, "number"), site.input("other")
    )


def _round(site: Site) -> fx.Node | None:
    """Writes out ``round(x * 10^d) / 10^d``; negative d exchange product and quotient."""
    decimals = site.args["decimals"]
    if type_of(site.input()).dtype != "float32":
        return None
    power = float(10 ** abs(decimals))
    first, last = (aten.mul.Tensor, aten.div.Tensor)[:: -1 if decimals < 0 else 1]
    rounded = site.call(aten.round.default, site.call(first, site.input(), power))
    return site.call(last, rounded, power)


def _norm(site: Site) -> fx.Node | None:
    """Returns a norm without its element type, if that is the input's own."""
    if site.type.dtype != type_of(site.input()).dtype:
        return None
    norm_args = [site.input(), site.args["p"]]
    if "dim" not in site.args:
        return site.call(
            aten.norm.Scalar, site.input(), 2 if norm_args[1] is None else norm_args[1]
        )
    return site.call(aten.norm.ScalarOpt_dim, *norm_args, site.args["dim"], site.args["keepdim"])


def _linalg_norm(site: Site) -> fx.Node | None:
    """Returns the Frobenius norm: the square root of the sum of all squares."""
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


# Aliases of operators, and tensors that are constant whatever they read


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
"""Operator -> an equivalent one with the same arguments."""


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
    """Returns a constant of the node's type with one value; only the input's shape matters."""
    result_type = site.type
    tensor = torch.full(result_type.shape, value, dtype=torch_dtype(result_type.dtype))
    return site.add_constant(tensor, site.node.name)


def _index_put(site: Site) -> fx.Node | None:
    """Writes out ``x[mask] = value`` as a choice, for a mask of x's shape and a value of one
    element."""
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


def canonicalize_layers(graph: fx.Graph) -> int:
    """Spells every convolution, pool, batch norm and resize in one way each.

    Given:
        %c [1, 8, 8, 8]  = conv2d(%x [1, 3, 8, 8], %w [8, 3, 4, 4], %b, padding="same")
        %n [1, 8, 8, 8], ... = _native_batch_norm_legit_no_training(%c, %g, %h, %m, %v, 0.1, 1e-5)
        %p [1, 8, 4, 4], %i = max_pool2d_with_indices(%n, [2])
        %u [1, 8, 8, 8]  = upsample_nearest2d(%p, None, [2.0, 2.0])
    Result:
        %d [1, 3, 11, 11] = constant_pad_nd(%x, [1, 2, 1, 2], 0.0)
        %c = convolution(%d, %w, %b, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
        %n = batch_norm(%c, %g, %h, %m, %v, False, 0.0, 1e-05, False)
        %p = max_pool2d(%n, [2, 2], [2, 2], [0, 0], [1, 1], False)
        %u = upsample_nearest2d.vec(%p, [8, 8], None)

    Resizing keeps its scales where they differ from the ratio of sizes. A pool whose indices are
    read is left alone. Returns the number of nodes replaced.
    """
    return apply_many_rules(graph, _MANY_LAYER_RULES) + apply_rules(graph, _LAYER_RULES)


def fold_batch_norm(graph: fx.Graph) -> int:
    """Multiplies a batch norm into the convolution or linear layer that only it reads.

    Given:
        %c [1, 8, 4, 4] = convolution(%x, %w [8, 3, 3, 3], %b [8], ...)
        %n [1, 8, 4, 4] = batch_norm(%c, %gamma, %beta, %mean, %var, ...)
    Result:
        %c [1, 8, 4, 4] = convolution(%x, %w * s, (%b - %mean) * s + %beta, ...)
        with s [8] = %gamma / sqrt(%var + eps), along the output channels of %w

    Folding is done in float64, which adds a single rounding. Returns the number of batch norms
    folded.
    """
    folded = 0
    for node in graph.find_nodes(op="call_function", target=aten.batch_norm.default):
        layer: Any = node.args[0]
        if layer.target not in _FOLDS_INTO or len(layer.users) != 1:
            continue
        weight, bias = layer.args[1], layer.args[2]
        if not is_constant(weight) or not (bias is None or is_constant(bias)):
            continue
        if layer.target is aten.linear.default and len(type_of(layer).shape) != 2:
            continue  # batch norm has its channels at dim 1, linear at the last
        _fold(layer, node)
        folded += 1
    return folded


def _fold(layer: fx.Node, norm: fx.Node) -> None:
    layer_args, norm_args = bound_args(layer), bound_args(norm)
    gamma, beta, mean, var = (
        constant_value(norm_args[name]).double()
        for name in ("weight", "bias", "running_mean", "running_var")
    )
    scale = gamma / torch.sqrt(var + norm_args["eps"])
    weight = constant_value(layer_args["weight"])
    bias = 0.0 if layer_args["bias"] is None else constant_value(layer_args["bias"]).double()
    if layer_args.get(
        "transposed"
    ):  # weight is [in, out / groups, ...], groups outermost along "in"
        groups = layer_args["groups"]
        per_group = weight.double().view(groups, -1, *weight.shape[1:])
        shaped = scale.view(groups, 1, -1, *[1] * (weight.dim() - 2))
        new_weight = (per_group * shaped).flatten(0, 1)
    else:
        new_weight = weight.double() * scale.view(-1, *[1] * (weight.dim() - 1))
    new_bias = (bias - mean) * scale + beta
    site = Site(layer)
    stem = str(layer_args["weight"].target)
    layer.update_arg(1, site.add_constant(new_weight.to(weight.dtype), f"{stem}_folded"))
    layer.update_arg(2, site.add_constant(new_bias.to(weight.dtype), f"{stem}_folded_bias"))
    norm.replace_all_uses_with(layer)
    norm.graph.erase_node(norm)


_FOLDS_INTO = (aten.convolution.default, aten.linear.default)


def full(values: int | Sequence[int], n: int) -> list[int]:
    """Returns a list argument in full length: aten accepts one number for all ``n`` dimensions."""
    listed = [values] if isinstance(values, int) else list(values)
    return listed * n if len(listed) == 1 else listed


def _convolution(site: Site) -> fx.Node | None:
    arg = site.args
    source, weight = site.input("input"), site.input("weight")
    n = len(type_of(weight).shape) - 2
    stride, dilation = full(arg["stride"], n), full(arg["dilation"], n)
    transposed = bool(arg.get("transposed", "output_padding" in arg))
    output_padding = full(arg.get("output_padding", 0), n)
    padding = arg["padding"]
    unbatched = len(type_of(source).shape) == n + 1
    if unbatched:
        source = site.view(source, [1, *type_of(source).shape])
    if isinstance(padding, str):
        source, padding = _named_padding(site, source, padding, dilation)
    result = site.become(
        aten.convolution.default,
        *(source, weight, arg["bias"], stride, full(padding, n), dilation),
        *(transposed, output_padding, arg["groups"]),
    )
    if unbatched and result is not None:
        return site.view(result, list(site.type.shape))
    return result


def _named_padding(
    site: Site, source: fx.Node, padding: str, dilation: Sequence[int]
) -> tuple[fx.Node, list[int]]:
    """Returns ``valid`` or ``same`` as numbers; an odd padding has its extra element at the end, as
    in PyTorch."""
    kernel = type_of(site.input("weight")).shape[2:]
    if padding == "valid":
        return source, [0] * len(kernel)
    totals = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    if all(total % 2 == 0 for total in totals):
        return source, [total // 2 for total in totals]
    pads = [p for total in reversed(totals) for p in (total // 2, total - total // 2)]
    return site.call(aten.constant_pad_nd.default, source, pads, 0.0), [0] * len(kernel)


def _batch_norm(site: Site) -> fx.Node | None:
    """Returns ``batch_norm`` in eval mode, with weight and bias; None for training mode."""
    arg = site.args
    is_training = arg.get("training", arg.get("train", False))
    stats = None if is_training else stored_statistics(site, "batch_norm")
    if stats is None:
        return None
    eps = float(arg["eps"])
    return site.become(aten.batch_norm.default, site.input("input"), *stats, False, 0.0, eps, False)


def _pooled(site: Site, target: torch._ops.OpOverload, *args: Any) -> fx.Node | None:
    """Returns a pool of the node's images; one image ``[C, H, W]`` becomes a batch for it."""
    source = site.input()
    if len(type_of(source).shape) == 4:
        return site.become(target, source, *args)
    batch = site.view(source, [1, *type_of(source).shape])
    return site.view(site.call(target, batch, *args), list(site.type.shape))


def _max_pool(site: Site) -> fx.Node | None:
    arg = site.args
    kernel = full(arg["kernel_size"], 2)
    return _pooled(
        site,
        aten.max_pool2d.default,
        *(kernel, full(arg["stride"] or kernel, 2), full(arg["padding"], 2)),
        *(full(arg["dilation"], 2), bool(arg["ceil_mode"])),
    )


def _avg_pool(site: Site) -> fx.Node | None:
    arg = site.args
    kernel = full(arg["kernel_size"], 2)
    return _pooled(
        site,
        aten.avg_pool2d.default,
        *(kernel, full(arg["stride"] or kernel, 2), full(arg["padding"], 2)),
        *(bool(arg["ceil_mode"]), bool(arg["count_include_pad"]), arg["divisor_override"]),
    )


def _adaptive_avg_pool(site: Site) -> fx.Node | None:
    return _pooled(site, aten.adaptive_avg_pool2d.default, list(site.type.shape[-2:]))


def drop_unread_getitems(graph: fx.Graph) -> int:
    """Erases ``getitem`` nodes without readers, so rules only see values that are read."""
    dead = [
        n for n in calls(graph) if not n.users and not isinstance(n.target, torch._ops.OpOverload)
    ]
    for node in dead:
        graph.erase_node(node)
    return len(dead)


_RESIZES = (
    aten.upsample_nearest2d,
    aten._upsample_nearest_exact2d,
    aten.upsample_bilinear2d,
    aten.upsample_bicubic2d,
    aten._upsample_bilinear2d_aa,
    aten._upsample_bicubic2d_aa,
)
_LAYER_RULES: dict[torch._ops.OpOverload, Rule] = {
    **COMPOSITES,
    **dict.fromkeys(
        (
            aten.conv1d.default,
            aten.conv2d.default,
            aten.conv3d.default,
            aten.conv1d.padding,
            aten.conv2d.padding,
            aten.conv3d.padding,
            aten.conv_transpose1d.default,
            aten.conv_transpose2d.input,
            aten.conv_transpose3d.input,
            aten.convolution.default,
            aten._convolution.default,
            aten._convolution_mode.default,
            aten._convolution.deprecated,
        ),
        _convolution,
    ),
    aten.batch_norm.default: _batch_norm,
    aten.max_pool2d.default: _max_pool,
    aten.avg_pool2d.default: _avg_pool,
    aten.adaptive_avg_pool2d.default: _adaptive_avg_pool,
    aten._adaptive_avg_pool2d.default: _adaptive_avg_pool,
    **{packet.vec: resized(packet.vec) for packet in _RESIZES},
    **{packet.default: resized(packet.vec) for packet in _RESIZES},
}

_MANY_LAYER_RULES: dict[torch._ops.OpOverload, ManyRule] = {
    **COMPOSITES_OF_SEVERAL,
    aten._native_batch_norm_legit_no_training.default: first_of(_batch_norm),
    aten.native_batch_norm.default: first_of(_batch_norm),
    aten.max_pool2d_with_indices.default: first_of(_max_pool),
}
