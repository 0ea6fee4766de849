"""Write out composites: single operators of PyTorch that other libraries build from several.

These are sums of products (einsum), attention blocks in their native form, normalisation layers
that also return their statistics, and the average over channels of a local response norm.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from nnapi_prof.graph.node import constant_value, is_constant, type_of
from nnapi_prof.passes import ManyRule, Rule, Site, first_of, only_first_read
from nnapi_prof.passes.products import ALGEBRA, einsum, tensordot

aten = torch.ops.aten


def _layer_norm(site: Site) -> fx.Node | None:
    arg = site.args
    return site.call(
        aten.layer_norm.default,
        *(site.input("input"), list(arg["normalized_shape"]), arg["weight"], arg["bias"]),
        *(float(arg["eps"]), False),
    )


def _group_norm(site: Site) -> fx.Node | None:
    arg = site.args
    return site.call(
        aten.group_norm.default,
        *(site.input("input"), arg["group"], arg["weight"], arg["bias"], float(arg["eps"]), False),
    )


def _batch_statistics(site: Site) -> fx.Node | None:
    """Replaces batch norm of one image by its own statistics by an instance norm."""
    arg, source = site.args, site.input("input")
    if not arg["training"] or type_of(source).shape[0] != 1:
        return None
    return site.call(
        aten.instance_norm.default,
        *(source, arg["weight"], arg["bias"], None, None, True, 0.0, float(arg["eps"]), False),
    )


def stored_statistics(site: Site, norm: str) -> list[fx.Node] | None:
    """Returns weight, bias, mean and variance of a norm, with defaults for the first two. Returns
    None where it stores no statistics, or one of them is computed. ``norm`` begins the names of new
    constants."""
    names = ("weight", "bias", "running_mean", "running_var")
    weight, bias, mean, variance = (site.args[name] for name in names)
    if mean is None or not all(v is None or is_constant(v) for v in (weight, bias, mean, variance)):
        return None
    like = constant_value(mean)
    if weight is None:
        weight = site.add_constant(torch.ones_like(like), f"{norm}_ones")
    if bias is None:
        bias = site.add_constant(torch.zeros_like(like), f"{norm}_zeros")
    return [weight, bias, mean, variance]


def _instance_norm(site: Site) -> fx.Node | None:
    """Replaces an instance norm with stored statistics by a batch norm."""
    stats = None if site.args["use_input_stats"] else stored_statistics(site, "instance_norm")
    if stats is None:
        return None
    eps = float(site.args["eps"])
    return site.call(aten.batch_norm.default, site.input("input"), *stats, False, 0.0, eps, False)


def _attention(site: Site) -> fx.Node | None:
    """Replaces forms of attention that also return values for training."""
    arg = site.args
    if arg["dropout_p"] != 0:
        return None
    return site.call(
        aten.scaled_dot_product_attention.default,
        *(arg["query"], arg["key"], arg["value"], arg["attn_mask"], 0.0, bool(arg["is_causal"])),
        scale=arg["scale"],
    )


_PROJECTIONS = ("qkv_weight", "qkv_bias", "proj_weight", "proj_bias")
"""Constants of multi-head attention: [3 D, D], [3 D], [D, D], [D]."""

_OVER_KEYS = 1
"""Kind of a native mask [B, T]; masks of other kinds already broadcast against [B, heads, T, T]."""


def _multi_head(site: Site) -> list[fx.Node] | None:
    """Writes out multi-head attention: projections, attention, projection. If its weights are read,
    also returns these, [B, T, T] or [B, heads, T, T]."""
    if any(site.constant(name) is None for name in _PROJECTIONS):
        return None
    sources = [site.input(name) for name in ("query", "key", "value")]
    mask = _added_mask(site)
    if only_first_read(site.node):
        return [_self_attention(site, sources, site.args["num_head"], mask)]
    query, key, value = _heads(site, sources, site.args["num_head"])
    scaled = site.call(aten.mul.Tensor, query, 1 / math.sqrt(type_of(query).shape[-1]))
    turned = site.call(aten.permute.default, key, [0, 1, 3, 2])
    scores = site.call(aten.matmul.default, scaled, turned)
    if mask is not None:
        scores = site.call(aten.add.Tensor, scores, mask)
    weights = site.call(aten.softmax.int, scores, -1)
    mixed = _project_heads(site, site.call(aten.matmul.default, weights, value))
    if site.args["average_attn_weights"]:
        weights = site.call(aten.mean.dim, weights, [1], False)
    return [mixed, weights]


def _embedding_bag(site: Site) -> fx.Node | None:
    """Writes out bags of one size: rows of a table, summed, averaged, or each column's maximum."""
    arg, offsets = site.args, site.constant("offsets")
    if offsets is None or arg.get("padding_idx") not in (None, -1):
        return None
    count = type_of(site.input("indices")).n_elements
    bounds = offsets.tolist() if arg["include_last_offset"] else [*offsets.tolist(), count]
    n_bags = len(bounds) - 1
    size = count // n_bags if n_bags > 0 else 0
    if not size or bounds != list(range(0, count + 1, size)):
        return None
    rows = site.call(aten.embedding.default, arg["weight"], arg["indices"])
    bags = site.reshape(rows, [n_bags, size, type_of(rows).shape[-1]])
    if arg["per_sample_weights"] is not None:
        each = site.reshape(arg["per_sample_weights"], [n_bags, size, 1])
        bags = site.call(aten.mul.Tensor, bags, each)
    if arg["mode"] == _MEAN:
        return site.call(aten.mean.dim, bags, [1], False)
    target = aten.amax.default if arg["mode"] == _MAX else aten.sum.dim_IntList
    return site.call(target, bags, [1], False)


_MEAN, _MAX = 1, 2
"""Modes of an embedding bag; 0 is the sum."""


def _added_mask(site: Site) -> fx.Node | None:
    """Returns the mask of native attention as a summand of [B, heads, T, T] scores: minus infinity
    where a mask of truth values is true."""
    if site.args["mask"] is None:
        return None
    mask, kind = site.input("mask"), site.args["mask_type"]
    shape = type_of(mask).shape
    if type_of(mask).dtype == "bool":
        zeros = site.add_constant(torch.zeros(shape), "nothing_masked")
        mask = site.call(aten.masked_fill.Scalar, zeros, mask, -math.inf)
    if kind == _OVER_KEYS:
        return site.view(mask, [shape[0], 1, 1, shape[1]])
    return mask


def _self_attention(
    site: Site, sources: list[fx.Node], heads: int, mask: fx.Node | None
) -> fx.Node:
    """Returns ``proj(attention(qkv(x)))`` of [B, T, D] inputs."""
    parts = _heads(site, sources, heads)
    return _project_heads(site, site.call(aten.scaled_dot_product_attention.default, *parts, mask))


def _heads(site: Site, sources: list[fx.Node], heads: int) -> list[fx.Node]:
    """Returns queries, keys and values [B, heads, T, D / heads]."""
    qkv_weight, qkv_bias = (constant_value(site.args[name]) for name in _PROJECTIONS[:2])
    stem = str(site.args["qkv_weight"].target)
    parts = []
    for source, weight, bias in zip(sources, qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True):
        matrix = site.add_constant(weight.contiguous(), f"{stem}_part")
        offset = site.add_constant(bias.contiguous(), f"{stem}_part_bias")
        projected = site.call(aten.linear.default, source, matrix, offset)
        batch, length, width = type_of(projected).shape
        split = [batch, length, heads, width // heads]
        split_up = site.view(projected, split)
        parts.append(site.call(aten.permute.default, split_up, [0, 2, 1, 3]))
    return parts


def _project_heads(site: Site, mixed: fx.Node) -> fx.Node:
    """Returns the last projection, from [B, heads, T, D / heads]."""
    mixed = site.call(aten.permute.default, mixed, [0, 2, 1, 3])
    batch, length, *rest = type_of(mixed).shape
    joined = site.view(mixed, [batch, length, math.prod(rest)])
    return site.call(aten.linear.default, joined, *(site.args[name] for name in _PROJECTIONS[2:]))


def _encoder_layer(site: Site) -> fx.Node | None:
    """Writes out a transformer's encoder layer, with its norms first or last."""
    arg = site.args
    if any(site.constant(name) is None for name in _PROJECTIONS):
        return None
    source, mask = site.input("src"), _added_mask(site)

    def norm(x: fx.Node, which: int) -> fx.Node:
        scale, offset = arg[f"norm_weight_{which}"], arg[f"norm_bias_{which}"]
        size = [type_of(x).shape[-1]]
        return site.call(aten.layer_norm.default, x, size, scale, offset, float(arg["eps"]), False)

    def mix(x: fx.Node) -> fx.Node:
        return _self_attention(site, [x] * 3, arg["num_heads"], mask)

    def feed_forward(x: fx.Node) -> fx.Node:
        x = site.call(aten.linear.default, x, arg["ffn_weight_1"], arg["ffn_bias_1"])
        x = site.call(aten.gelu.default if arg["use_gelu"] else aten.relu.default, x)
        return site.call(aten.linear.default, x, arg["ffn_weight_2"], arg["ffn_bias_2"])

    if arg["norm_first"]:
        source = site.call(aten.add.Tensor, source, mix(norm(source, 1)))
        return site.call(aten.add.Tensor, source, feed_forward(norm(source, 2)))
    source = norm(site.call(aten.add.Tensor, source, mix(source)), 1)
    return norm(site.call(aten.add.Tensor, source, feed_forward(source)), 2)


def _average_over_channels(site: Site) -> fx.Node | None:
    """Writes out the average of a local response norm over neighbouring channels as a convolution.

    Given:
        %p [N, 1, C + 4, H, W] = constant_pad_nd(%v [N, 1, C, H, W], [0, 0, 0, 0, 2, 2], 0.0)
        %a [N, 1, C, H, W]     = avg_pool3d(%p, [5, 1, 1], [1, 1, 1], ...)
    Result:
        %c [N, C, H, W] = convolution(view(%v), %band [C, C, 1, 1], None, ...)
        %a              = view(%c)

    ``%band`` has 1 / 5 where two channels are neighbours.
    """
    arg, pad = site.args, site.input("self")
    size = arg["kernel_size"][0]
    plain = _as_dims(arg["stride"]) in ([], [1, 1, 1]) and _as_dims(arg["padding"]) in (
        [0],
        [0] * 3,
    )
    if not plain or list(arg["kernel_size"]) != [size, 1, 1] or arg["divisor_override"]:
        return None
    if size == 1:
        return pad
    if not arg["stride"] or pad.target is not aten.constant_pad_nd.default:
        return None
    source, pads, value = pad.args
    assert isinstance(source, fx.Node) and isinstance(pads, list | tuple)
    shape = type_of(source).shape
    if value != 0 or len(shape) != 5 or shape[1] != 1 or list(pads[:4]) != [0] * 4:
        return None
    n, _, channels, h, w = shape
    if len(pads) != 6 or site.type.shape != shape:
        return None
    before: Any = pads[4]
    first = torch.arange(channels)[:, None] - before
    at = torch.arange(channels)[None, :]
    band = ((at >= first) & (at < first + size)).float() / size
    weight = site.add_constant(band[:, :, None, None], "channel_band")
    image = site.view(source, [n, channels, h, w])
    average = site.call(
        aten.convolution.default,
        *(image, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    )
    return site.view(average, list(shape))


def _affine_grid(site: Site) -> fx.Node | None:
    """Computes the source of each pixel of an image: its position, a constant, times the matrices.

    Given:
        %g [N, H, W, 2] = affine_grid_generator(%m [N, 2, 3], [N, C, H, W], False)
    Result:
        %g = reshape(permute(matmul(%m, %places [3, H * W]), [0, 2, 1]), [N, H, W, 2])
    """
    matrices, shape = site.input("theta"), list(site.type.shape)
    if type_of(matrices).dtype != "float32":
        return None
    axes = []
    for n in shape[1:-1]:
        ends = torch.linspace(-1, 1, n) if n > 1 else torch.zeros(1)
        axes.append(ends if site.args["align_corners"] else ends * (n - 1) / n)
    grids = torch.meshgrid(*axes, indexing="ij")
    places = torch.stack([*reversed(grids), torch.ones_like(grids[0])]).flatten(1)
    product = site.call(aten.matmul.default, matrices, site.add_constant(places, "pixel_places"))
    return site.reshape(site.call(aten.permute.default, product, [0, 2, 1]), shape)


MAX_DIFFERENCES = 2**22
"""Most numbers that the differences of all pairs of points may have."""


def _distances(site: Site) -> fx.Node | None:
    """Writes out the distances of all pairs of points as norms of their differences.

    Given:
        %d [B, P, R] = cdist(%x [B, P, M], %y [B, R, M], 2.0)
    Result:
        %d = linalg_vector_norm(sub(%x [B, P, 1, M], %y [B, 1, R, M]), 2.0, [-1])
    """
    x, y = site.input("x1"), site.input("x2")
    shape, other = type_of(x).shape, type_of(y).shape
    if type_of(x).dtype != "float32" or site.type.n_elements * shape[-1] > MAX_DIFFERENCES:
        return None
    apart = site.call(
        aten.sub.Tensor,
        site.view(x, [*shape[:-1], 1, shape[-1]]),
        site.view(y, [*other[:-2], 1, *other[-2:]]),
    )
    return site.call(aten.linalg_vector_norm.default, apart, float(site.args["p"]), [-1])


def _as_dims(value: Any) -> list[int]:
    return [value] if isinstance(value, int) else list(value or [])


def _extreme(target: torch._ops.OpOverload) -> Rule:
    """Returns the rule for ``max`` or ``min`` along a dimension without positions: a reduction,
    which has a choice of dim order."""

    def rule(site: Site) -> fx.Node | None:
        source = site.input()
        if not type_of(source).shape:
            return None
        return site.call(target, source, [site.args["dim"]], site.args["keepdim"])

    return rule


COMPOSITES: dict[torch._ops.OpOverload, Rule] = {
    **ALGEBRA,
    aten.einsum.default: einsum,
    aten.tensordot.default: tensordot,
    aten.instance_norm.default: _instance_norm,
    aten.avg_pool3d.default: _average_over_channels,
    aten._transformer_encoder_layer_fwd.default: _encoder_layer,
    aten.affine_grid_generator.default: _affine_grid,
    aten.cdist.default: _distances,
}
"""Rules for operators of one value."""

COMPOSITES_OF_SEVERAL: dict[torch._ops.OpOverload, ManyRule] = {
    aten.max.dim: first_of(_extreme(aten.amax.default)),
    aten.min.dim: first_of(_extreme(aten.amin.default)),
    aten.native_layer_norm.default: first_of(_layer_norm),
    aten.native_group_norm.default: first_of(_group_norm),
    aten._native_batch_norm_legit.no_stats: first_of(_batch_statistics),
    aten.embedding_bag.default: first_of(_embedding_bag),
    aten.embedding_bag.padding_idx: first_of(_embedding_bag),
    aten._native_multi_head_attention.default: _multi_head,
    aten._scaled_dot_product_flash_attention_for_cpu.default: first_of(_attention),
    aten._scaled_dot_product_attention_math.default: first_of(_attention),
}
"""Rules for operators of several values; most need that only the first is read."""
