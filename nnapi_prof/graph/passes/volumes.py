"""Three-dimensional convolutions and pools as two-dimensional ones of slices of the depth."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx

from nnapi_prof.graph.node import constant_value, is_constant, type_of
from nnapi_prof.graph.passes.layers import full
from nnapi_prof.graph.passes.rewrite import ManyRule, Rule, Site, apply_many_rules, apply_rules

aten = torch.ops.aten


def slice_volumes(graph: fx.Graph) -> int:
    """Makes every three-dimensional layer two-dimensional ones.

    Given:
        %c [1, 8, 4, 6, 6] = convolution(%x [1, 3, 6, 8, 8], %w [8, 3, 3, 3, 3], %b, ...)
    Result, with %s0, %s1, %s2 the depths that the filter's three planes read, each an image:
        %i [4, 9, 8, 8] = cat([%s0 [4, 3, 8, 8], %s1, %s2], 1)
        %p [4, 8, 6, 6] = convolution(%i, %w [8, 9, 3, 3], %b, ...)
        %c              = %p with its images as depths again

    A pool goes over height and width first, then over the depth. Returns the nodes replaced.
    """
    return apply_many_rules(graph, _MANY_RULES) + apply_rules(graph, _RULES)


def _reshape(site: Site, source: fx.Node, *shape: int) -> fx.Node:
    return site.call(aten.reshape.default, source, list(shape))


def _convolution(site: Site) -> fx.Node | None:
    arg = site.args
    source, weight = site.input("input"), site.input("weight")
    if len(type_of(source).shape) != 5 or arg["transposed"] or not is_constant(weight):
        return None
    n, channels, depth, height, width = type_of(source).shape
    (pad, *pads), (stride, *strides), (dilation, *dilations) = (
        arg[name] for name in ("padding", "stride", "dilation")
    )
    filters = constant_value(weight)
    out, inner, planes = filters.shape[:3]
    # Depths become images: [N, C, D, H * W] -> [N, D, C * H * W].
    rows = _reshape(site, source, n, channels, depth, height * width)
    rows = site.call(aten.permute.default, rows, [0, 2, 1, 3])
    rows = _reshape(site, rows, n, depth, channels * height * width)
    if pad:
        rows = site.call(aten.constant_pad_nd.default, rows, [0, 0, pad, pad], 0.0)
    deep = site.type.shape[2]
    groups = arg["groups"]
    images = []
    for plane in range(planes):
        first = plane * dilation
        cut = site.call(aten.slice.Tensor, rows, 1, first, first + (deep - 1) * stride + 1, stride)
        images.append(_reshape(site, cut, n * deep, groups, inner, height * width))
    joined = images[0] if planes == 1 else site.call(aten.cat.default, images, 2)
    image = _reshape(site, joined, n * deep, groups * planes * inner, height, width)
    flat = filters.transpose(1, 2).reshape(out, planes * inner, *filters.shape[3:])
    made = site.call(
        aten.convolution.default,
        *(image, site.add_constant(flat.contiguous(), f"{weight.target}_planes"), arg["bias"]),
        *(strides, pads, dilations, False, [0, 0], groups),
    )
    _, _, high, wide = type_of(made).shape
    rows = _reshape(site, made, n, deep, out, high * wide)
    rows = site.call(aten.permute.default, rows, [0, 2, 1, 3])
    return _reshape(site, rows, *site.type.shape)


def _over_image(site: Site) -> tuple[fx.Node, tuple[int, ...]] | None:
    """The input with its depths as channels, ``[N * C, D, H, W]``, and ``(N, C, D)``."""
    shape = type_of(site.input()).shape
    if len(shape) not in (4, 5):
        return None
    n, channels, depth, height, width = shape if len(shape) == 5 else (1, *shape)
    return _reshape(site, site.input(), n * channels, depth, height, width), (n, channels, depth)


def _over_depth(site: Site, image: fx.Node, sizes: Sequence[int]) -> fx.Node:
    """``[N, C, D, H' * W']``, an image whose rows are the depths."""
    _, _, height, width = type_of(image).shape
    return _reshape(site, image, *sizes, height * width)


def _max_pool(site: Site) -> fx.Node | None:
    return _maxima(site, site.type.shape)


def _max_pool_with_indices(site: Site) -> list[fx.Node] | None:
    readers = list(site.node.users)
    if any(reader.args[1] != 0 for reader in readers):
        return None
    node = _maxima(site, type_of(readers[0]).shape)
    return None if node is None else [node]


def _maxima(site: Site, shape: Sequence[int]) -> fx.Node | None:
    arg, found = site.args, _over_image(site)
    if found is None:
        return None
    image, sizes = found
    kernel = full(arg["kernel_size"], 3)
    places = [full(arg["stride"] or kernel, 3), full(arg["padding"], 3), full(arg["dilation"], 3)]
    ceil = bool(arg["ceil_mode"])
    flat = [place[1:] for place in places]
    image = site.call(aten.max_pool2d.default, image, kernel[1:], *flat, ceil)
    deep = [[place[0], neutral] for place, neutral in zip(places, (1, 0, 1), strict=True)]
    rows = _over_depth(site, image, sizes)
    rows = site.call(aten.max_pool2d.default, rows, [kernel[0], 1], *deep, ceil)
    return _reshape(site, rows, *shape)


def _avg_pool(site: Site) -> fx.Node | None:
    """Sides that are averaged one after the other are what they are together: a window's share of
    padding is a product of the sides' own."""
    arg, found = site.args, _over_image(site)
    if found is None or arg["divisor_override"] is not None:
        return None
    image, sizes = found
    kernel = full(arg["kernel_size"], 3)
    stride, pad = full(arg["stride"] or kernel, 3), full(arg["padding"], 3)
    modes = (bool(arg["ceil_mode"]), bool(arg["count_include_pad"]), None)
    image = site.call(aten.avg_pool2d.default, image, kernel[1:], stride[1:], pad[1:], *modes)
    rows = _over_depth(site, image, sizes)
    window = [kernel[0], 1], [stride[0], 1], [pad[0], 0]
    rows = site.call(aten.avg_pool2d.default, rows, *window, *modes)
    return _reshape(site, rows, *site.type.shape)


def _adaptive_avg_pool(site: Site) -> fx.Node | None:
    found = _over_image(site)
    if found is None:
        return None
    image, sizes = found
    depth, height, width = site.type.shape[-3:]
    image = site.call(aten.adaptive_avg_pool2d.default, image, [height, width])
    rows = _over_depth(site, image, sizes)
    rows = site.call(aten.adaptive_avg_pool2d.default, rows, [depth, height * width])
    return _reshape(site, rows, *site.type.shape)


_RULES: dict[torch._ops.OpOverload, Rule] = {
    aten.convolution.default: _convolution,
    aten.max_pool3d.default: _max_pool,
    aten.avg_pool3d.default: _avg_pool,
    aten.adaptive_avg_pool3d.default: _adaptive_avg_pool,
    aten._adaptive_avg_pool3d.default: _adaptive_avg_pool,
}
_MANY_RULES: dict[torch._ops.OpOverload, ManyRule] = {
    aten.max_pool3d_with_indices.default: _max_pool_with_indices,
}
