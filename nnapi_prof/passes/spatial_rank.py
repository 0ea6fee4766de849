"""Rewrite layers of one and three spatial dimensions as layers of images, which NNAPI has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from nnapi_prof.graph.node import calls, constant_value, is_constant, makes_tensor, type_of
from nnapi_prof.graph.quantisation import is_weight
from nnapi_prof.passes import ManyRule, Rule, Site, apply_many_rules, apply_rules, first_of
from nnapi_prof.passes.overloads import full

aten = torch.ops.aten


def conv1d_to_conv2d(graph: fx.Graph) -> int:
    """Makes every one-dimensional layer a two-dimensional one between views.

    Given:
        %c [1, 8, 30] = convolution(%x [1, 4, 32], %w [8, 4, 3], %b, [1], [0], [1], ...)
        %r [1, 8, 30] = relu(%c)
    Result:
        %v [1, 4, 1, 32] = view(%x, ...)
        %c [1, 8, 1, 30] = convolution(%v, %w [8, 4, 1, 3], %b, [1, 1], [0, 0], [1, 1], ...)
        %r [1, 8, 1, 30] = relu(%c)
        %l [1, 8, 30]    = view(%r, ...)

    Pointwise operations on the results stay between the views, so neighbouring layers need no views
    between them. Returns the number of nodes replaced.
    """
    changed = apply_many_rules(graph, _MANY_RULES_1D) + apply_rules(graph, _RULES_1D)
    return changed + (_sink_views(graph) if changed else 0)


def _raised(site: Site, node: fx.Node) -> fx.Node:
    """Returns ``[N, C, L]`` (or ``[C, L]``) as ``[N, C, 1, L]``."""
    *batch, channels, length = type_of(node).shape
    if not batch:
        batch = [1]
    return site.reshape(node, [*batch, channels, 1, length])


def _lowered(site: Site, node: fx.Node) -> fx.Node:
    return site.reshape(node, list(site.type.shape))


def _convolution_1d(site: Site) -> fx.Node | None:
    arg = site.args
    weight = site.input("weight")
    if len(type_of(site.input("input")).shape) != 3 or not is_weight(weight):
        return None
    image = _raised(site, site.input("input"))
    filters = _raised_weight(site, weight)
    pairs = [
        [neutral, *arg[name]] for name, neutral in (("stride", 1), ("padding", 0), ("dilation", 1))
    ]
    result = site.call(
        aten.convolution.default,
        *(image, filters, arg["bias"], *pairs, arg["transposed"]),
        *([0, *arg["output_padding"]], arg["groups"]),
    )
    return _lowered(site, result)


def _raised_weight(site: Site, weight: fx.Node) -> fx.Node:
    """Returns ``[O, C, k]`` as ``[O, C, 1, k]``; a quantised one by a node (see propagate_qdq)."""
    if is_constant(weight):
        return site.add_constant(constant_value(weight).unsqueeze(2), f"{weight.target}_image")
    outputs, channels, length = type_of(weight).shape
    return site.reshape(weight, [outputs, channels, 1, length])


def _max_pool_1d(site: Site) -> fx.Node | None:
    arg = site.args
    stride = arg["stride"] or arg["kernel_size"]
    result = site.call(
        aten.max_pool2d.default,
        *(_raised(site, site.input()), [1, *arg["kernel_size"]], [1, *stride]),
        *([0, *arg["padding"]], [1, *arg["dilation"]], bool(arg["ceil_mode"])),
    )
    return _lowered(site, result)


def _avg_pool_1d(site: Site) -> fx.Node | None:
    arg = site.args
    stride = arg["stride"] or arg["kernel_size"]
    result = site.call(
        aten.avg_pool2d.default,
        *(_raised(site, site.input()), [1, *arg["kernel_size"]], [1, *stride]),
        *([0, *arg["padding"]], bool(arg["ceil_mode"]), bool(arg["count_include_pad"]), None),
    )
    return _lowered(site, result)


def _adaptive_avg_pool_1d(site: Site) -> fx.Node | None:
    size = [1, site.type.shape[-1]]
    image = _raised(site, site.input())
    return _lowered(site, site.call(aten.adaptive_avg_pool2d.default, image, size))


def _upsample(target: torch._ops.OpOverload, source: str) -> Rule:
    """Returns the rule for a ``.vec`` of images, with sizes or scales for both axes."""

    def rule(site: Site) -> fx.Node | None:
        arg = site.args
        scales = arg.get("scale_factors")
        if "scales" in arg:
            scales = None if arg["scales"] is None else [arg["scales"]]
        factor = None if scales is None else scales[0]
        before, after = type_of(site.input(source)).shape[-1], site.type.shape[-1]
        if factor is not None and factor * before == after:
            factor = None
        extra: list[Any] = [bool(arg["align_corners"])] if "align_corners" in arg else []
        size = [1, after] if factor is None else None
        factors = None if factor is None else [1.0, factor]
        image = _raised(site, site.input(source))
        return _lowered(site, site.call(target, image, size, *extra, factors))

    return rule


def _sink_views(graph: fx.Graph) -> int:
    """Moves pointwise operations before the views that turn images into lines."""
    moved = 0
    for node in calls(graph):
        tags = getattr(node.target, "tags", ())
        if torch.Tag.pointwise not in tags and node.target not in _ROWS_ALIKE:
            continue
        if not makes_tensor(node):
            continue
        sources = [a for a in node.all_input_nodes if not is_constant(a)]
        images = [_image_of(source) for source in sources]
        shapes = {type_of(source).shape for source in sources}
        others = [a for a in node.all_input_nodes if is_constant(a)]
        if not images or not all(images) or shapes != {type_of(node).shape}:
            continue
        if node.target not in _ROWS_ALIKE and any(type_of(a).n_elements > 1 for a in others):
            continue
        site = Site(node)
        swap = {line: image for line, image in zip(sources, images, strict=True) if image}
        line = _lowered(site, site.call_on(swap))
        node.replace_all_uses_with(line)
        graph.erase_node(node)
        moved += 1
    # A view back to the image that a view came from has no effect.
    for node in calls(graph):
        if node.target is not aten.reshape.default:
            continue
        source = _image_of(node.args[0])
        if source is not None and type_of(source).shape == type_of(node).shape:
            node.replace_all_uses_with(source)
    return moved


def _image_of(line: Any) -> fx.Node | None:
    """Returns the image ``[N, C, 1, L]`` that ``line`` is a reshape of, or None."""
    if not isinstance(line, fx.Node) or line.target is not aten.reshape.default:
        return None
    image: Any = line.args[0]
    shape = type_of(line).shape
    return image if len(shape) == 3 and type_of(image).shape == (*shape[:2], 1, shape[2]) else None


_ROWS_ALIKE = frozenset({aten.batch_norm.default, aten.hardswish.default, aten.hardsigmoid.default})
"""Operators that are not tagged pointwise, but equal on lines and on images of one row."""

_RULES_1D: dict[torch._ops.OpOverload, Rule] = {
    aten.convolution.default: _convolution_1d,
    aten.max_pool1d.default: _max_pool_1d,
    aten.avg_pool1d.default: _avg_pool_1d,
    aten.adaptive_avg_pool1d.default: _adaptive_avg_pool_1d,
    aten.upsample_nearest1d.vec: _upsample(aten.upsample_nearest2d.vec, "input"),
    aten.upsample_nearest1d.default: _upsample(aten.upsample_nearest2d.vec, "self"),
    aten._upsample_nearest_exact1d.vec: _upsample(aten._upsample_nearest_exact2d.vec, "input"),
    aten._upsample_nearest_exact1d.default: _upsample(aten._upsample_nearest_exact2d.vec, "self"),
    aten.upsample_linear1d.vec: _upsample(aten.upsample_bilinear2d.vec, "input"),
    aten.upsample_linear1d.default: _upsample(aten.upsample_bilinear2d.vec, "self"),
}
_MANY_RULES_1D: dict[torch._ops.OpOverload, ManyRule] = {
    aten.max_pool1d_with_indices.default: first_of(_max_pool_1d),
}


# Three dimensions: layers on slices of the depth


def decompose_conv3d(graph: fx.Graph) -> int:
    """Makes every three-dimensional layer two-dimensional ones.

    Given:
        %c [1, 8, 4, 6, 6] = convolution(%x [1, 3, 6, 8, 8], %w [8, 3, 3, 3, 3], %b, ...)
    Result, with %s0, %s1, %s2 the depths that the filter's three planes read, each an image:
        %i [4, 9, 8, 8] = cat([%s0 [4, 3, 8, 8], %s1, %s2], 1)
        %p [4, 8, 6, 6] = convolution(%i, %w [8, 9, 3, 3], %b, ...)
        %c              = %p with its images as depths again

    A pool works on height and width first, then on the depth. Returns the number of nodes replaced.
    """
    return apply_many_rules(graph, _MANY_RULES_3D) + apply_rules(graph, _RULES_3D)


def _convolution_3d(site: Site) -> fx.Node | None:
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
    rows = site.reshape(source, [n, channels, depth, height * width])
    rows = site.call(aten.permute.default, rows, [0, 2, 1, 3])
    rows = site.reshape(rows, [n, depth, channels * height * width])
    if pad:
        rows = site.call(aten.constant_pad_nd.default, rows, [0, 0, pad, pad], 0.0)
    deep = site.type.shape[2]
    groups = arg["groups"]
    images = []
    for plane in range(planes):
        first = plane * dilation
        cut = site.call(aten.slice.Tensor, rows, 1, first, first + (deep - 1) * stride + 1, stride)
        images.append(site.reshape(cut, [n * deep, groups, inner, height * width]))
    joined = images[0] if planes == 1 else site.call(aten.cat.default, images, 2)
    image = site.reshape(joined, [n * deep, groups * planes * inner, height, width])
    flat = filters.transpose(1, 2).reshape(out, planes * inner, *filters.shape[3:])
    convolved = site.call(
        aten.convolution.default,
        *(image, site.add_constant(flat.contiguous(), f"{weight.target}_planes"), arg["bias"]),
        *(strides, pads, dilations, False, [0, 0], groups),
    )
    _, _, high, wide = type_of(convolved).shape
    rows = site.reshape(convolved, [n, deep, out, high * wide])
    rows = site.call(aten.permute.default, rows, [0, 2, 1, 3])
    return site.reshape(rows, site.type.shape)


def _over_image(site: Site) -> tuple[fx.Node, tuple[int, ...]] | None:
    """Returns the input with its depths as channels, ``[N * C, D, H, W]``, and ``(N, C, D)``."""
    shape = type_of(site.input()).shape
    if len(shape) not in (4, 5):
        return None
    n, channels, depth, height, width = shape if len(shape) == 5 else (1, *shape)
    return site.reshape(site.input(), [n * channels, depth, height, width]), (n, channels, depth)


def _over_depth(site: Site, image: fx.Node, sizes: Sequence[int]) -> fx.Node:
    """Returns ``[N, C, D, H' * W']``, an image whose rows are the depths."""
    _, _, height, width = type_of(image).shape
    return site.reshape(image, [*sizes, height * width])


def _max_pool_3d(site: Site) -> fx.Node | None:
    return _maxima(site, site.type.shape)


def _max_pool_3d_with_indices(site: Site) -> list[fx.Node] | None:
    readers = list(site.node.users)
    if any(reader.args[1] != 0 for reader in readers):
        return None
    node = _maxima(site, type_of(readers[0]).shape)
    return None if node is None else [node]


def _maxima(site: Site, shape: Sequence[int]) -> fx.Node | None:
    arg, volume = site.args, _over_image(site)
    if volume is None:
        return None
    image, sizes = volume
    kernel = full(arg["kernel_size"], 3)
    places = [full(arg["stride"] or kernel, 3), full(arg["padding"], 3), full(arg["dilation"], 3)]
    ceil = bool(arg["ceil_mode"])
    flat = [place[1:] for place in places]
    image = site.call(aten.max_pool2d.default, image, kernel[1:], *flat, ceil)
    deep = [[place[0], neutral] for place, neutral in zip(places, (1, 0, 1), strict=True)]
    rows = _over_depth(site, image, sizes)
    rows = site.call(aten.max_pool2d.default, rows, [kernel[0], 1], *deep, ceil)
    return site.reshape(rows, shape)


def _avg_pool_3d(site: Site) -> fx.Node | None:
    """Averages the axes one after the other, which gives the joint average, because a window's
    share of padding is the product of the axes' own."""
    arg, volume = site.args, _over_image(site)
    if volume is None or arg["divisor_override"] is not None:
        return None
    image, sizes = volume
    kernel = full(arg["kernel_size"], 3)
    stride, pad = full(arg["stride"] or kernel, 3), full(arg["padding"], 3)
    modes = (bool(arg["ceil_mode"]), bool(arg["count_include_pad"]), None)
    image = site.call(aten.avg_pool2d.default, image, kernel[1:], stride[1:], pad[1:], *modes)
    rows = _over_depth(site, image, sizes)
    window = [kernel[0], 1], [stride[0], 1], [pad[0], 0]
    rows = site.call(aten.avg_pool2d.default, rows, *window, *modes)
    return site.reshape(rows, site.type.shape)


def _adaptive_avg_pool_3d(site: Site) -> fx.Node | None:
    volume = _over_image(site)
    if volume is None:
        return None
    image, sizes = volume
    depth, height, width = site.type.shape[-3:]
    image = site.call(aten.adaptive_avg_pool2d.default, image, [height, width])
    rows = _over_depth(site, image, sizes)
    rows = site.call(aten.adaptive_avg_pool2d.default, rows, [depth, height * width])
    return site.reshape(rows, site.type.shape)


_RULES_3D: dict[torch._ops.OpOverload, Rule] = {
    aten.convolution.default: _convolution_3d,
    aten.max_pool3d.default: _max_pool_3d,
    aten.avg_pool3d.default: _avg_pool_3d,
    aten.adaptive_avg_pool3d.default: _adaptive_avg_pool_3d,
    aten._adaptive_avg_pool3d.default: _adaptive_avg_pool_3d,
}
_MANY_RULES_3D: dict[torch._ops.OpOverload, ManyRule] = {
    aten.max_pool3d_with_indices.default: _max_pool_3d_with_indices,
}
