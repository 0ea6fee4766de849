"""Windows of a tensor as a tensor: unfold, im2col and its inverse."""

from __future__ import annotations

import math

import torch
from torch import fx

from nnapi_prof.graph.node import positive_dim, type_of
from nnapi_prof.graph.passes.rewrite import Rule, Site

aten = torch.ops.aten


def _unfold(site: Site) -> fx.Node | None:
    """``x.unfold(dim, size, step)``: the windows by their indices, their elements last."""
    shape = type_of(site.input()).shape
    if not shape:
        return None
    dim = positive_dim(site.args["dimension"], len(shape))
    starts = torch.arange(site.type.shape[dim]) * site.args["step"]
    places = starts.unsqueeze(1) + torch.arange(site.args["size"])
    index = site.add_constant(places, "unfold_places")
    flat = [math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])]
    rows = site.call(aten.reshape.default, site.input(), flat)
    windows = site.call(aten.index.Tensor, rows, [None, index])
    turned = site.call(aten.permute.default, windows, [0, 1, 3, 2])
    return site.call(aten.reshape.default, turned, list(site.type.shape))


def _im2col(site: Site) -> fx.Node | None:
    """The patches of an image: a depthwise convolution with one kernel for each pixel of a patch,
    1 there and 0 elsewhere. (An infinity makes NaN of the zeros in its window.)"""
    if len(type_of(site.input()).shape) != 4:
        return None
    channels = type_of(site.input()).shape[1]
    convolved = site.call(
        aten.convolution.default,
        *(site.input(), _unit_kernels(site, channels), None, site.args["stride"]),
        *(site.args["padding"], site.args["dilation"], False, [0, 0], channels),
    )
    return site.call(aten.reshape.default, convolved, list(site.type.shape))


def _col2im(site: Site) -> fx.Node | None:
    """Patches added up to an image: the transpose of the above."""
    arg, shape = site.args, site.type.shape
    if len(shape) != 4:
        return None
    size, over = [], []
    for axis in (0, 1):
        reach = arg["dilation"][axis] * (arg["kernel_size"][axis] - 1) + 1
        free = shape[2 + axis] + 2 * arg["padding"][axis] - reach
        size.append(free // arg["stride"][axis] + 1)
        over.append(free % arg["stride"][axis])
    patches = [shape[0], type_of(site.input()).shape[1], *size]
    image = site.call(aten.reshape.default, site.input(), patches)
    return site.call(
        aten.convolution.default,
        *(image, _unit_kernels(site, shape[1]), None, arg["stride"], arg["padding"]),
        *(arg["dilation"], True, over, shape[1]),
    )


def _unit_kernels(site: Site, channels: int) -> fx.Node:
    """``[C * kh * kw, 1, kh, kw]``: for each channel the kernels with a single 1."""
    height, width = site.args["kernel_size"]
    units = torch.eye(height * width).reshape(-1, 1, height, width)
    return site.add_constant(units.repeat(channels, 1, 1, 1), "patch_kernels")


PATCH_RULES: dict[torch._ops.OpOverload, Rule] = {
    aten.unfold.default: _unfold,
    aten.im2col.default: _im2col,
    aten.col2im.default: _col2im,
}
