"""Other forms of an operation, written into a graph: the rules of advice use them.

Each is a function of a :class:`Site` that returns the replacement node, or None where the form does
not fit the call (sizes that are not multiples, more than four dimensions).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from nnapi_prof.graph.node import is_constant, makes_tensor, type_of
from nnapi_prof.passes import Rule, Site

aten = torch.ops.aten


def relu6(site: Site, x: fx.Node) -> fx.Node:
    return site.call(aten.hardtanh.default, x, 0.0, 6.0)


def hard_gate(site: Site, x: fx.Node) -> fx.Node:
    """Writes relu6(x + 3) / 6."""
    eased = relu6(site, site.call(aten.add.Tensor, x, 3.0))
    return site.call(aten.mul.Tensor, eased, 1 / 6)


def called(target: Any, *args: Any) -> Rule:
    """Returns the rule that calls another operator on the same value."""
    return lambda site: site.call(target, site.input(), *args)


def clipped(low: float, high: float) -> Rule:
    return called(aten.hardtanh.default, low, high)


def gate_parts(site: Site) -> fx.Node:
    """Writes a hard sigmoid in parts."""
    return hard_gate(site, site.input())


def swish_parts(site: Site) -> fx.Node:
    """Writes x * relu6(x + 3) / 6 in parts."""
    return site.call(aten.mul.Tensor, site.input(), hard_gate(site, site.input()))


def gelu_parts(site: Site) -> fx.Node:
    """Writes x * relu6(1.702 x + 3) / 6: the sigmoid form of GELU with a hard sigmoid."""
    x = site.input()
    return site.call(aten.mul.Tensor, x, hard_gate(site, site.call(aten.mul.Tensor, x, 1.702)))


def gelu_sigmoid(site: Site) -> fx.Node:
    """Writes x * sigmoid(1.702 x)."""
    x = site.input()
    gate = site.call(aten.sigmoid.default, site.call(aten.mul.Tensor, x, 1.702))
    return site.call(aten.mul.Tensor, x, gate)


def gelu_tanh(site: Site) -> fx.Node | None:
    """Writes GELU's tanh form; None where the call already uses it."""
    if site.args["approximate"] == "tanh":
        return None
    return site.call(aten.gelu.default, site.input(), approximate="tanh")


def larger_of_both(site: Site) -> fx.Node | None:
    """Writes a leaky ReLU as max(x, slope * x); None where the slope is outside 0 to 1."""
    slope = float(site.args["negative_slope"])
    if not 0 <= slope <= 1:
        return None
    x = site.input()
    return site.call(aten.maximum.default, x, site.call(aten.mul.Tensor, x, slope))


def relu_of_both(site: Site) -> fx.Node:
    """Writes |x| as relu(x) + relu(-x)."""
    x = site.input()
    less = site.call(aten.relu.default, site.call(aten.mul.Tensor, x, -1.0))
    return site.call(aten.add.Tensor, site.call(aten.relu.default, x), less)


def negated(site: Site) -> fx.Node:
    return site.call(aten.mul.Tensor, site.input(), -1.0)


def squared(site: Site) -> fx.Node | None:
    """Writes x * x; None for other powers."""
    if site.args["exponent"] != 2:
        return None
    return site.call(aten.mul.Tensor, site.input(), site.input())


def times_reciprocal(site: Site) -> fx.Node | None:
    """Writes x * (1 / c); None where the divisor is computed, an integer tensor, or contains 0."""
    divisor = site.args["other"]
    if isinstance(divisor, int | float):
        return site.call(aten.mul.Tensor, site.input(), 1 / divisor) if divisor else None
    value = site.constant("other")
    if value is None or not value.is_floating_point() or bool((value == 0).any()):
        return None
    return site.call(aten.mul.Tensor, site.input(), site.add_constant(1 / value, "reciprocal"))


def left_out(site: Site) -> fx.Node | None:
    """Returns the first input with the shape and type of the output. Returns None for an operation
    that makes several tensors, or that joins branches which nothing else reads, because these would
    be left out with it."""
    if not makes_tensor(site.node):
        return None
    joined = [node for node in site.node.all_input_nodes if not is_constant(node)]
    if len(joined) > 1 and any(set(node.users) == {site.node} for node in joined[1:]):
        return None
    for node in site.node.all_input_nodes:
        if is_constant(node) or not makes_tensor(node):
            continue
        if (type_of(node).shape, type_of(node).dtype) == (site.type.shape, site.type.dtype):
            return node
    return None


# Images


def _sizes(site: Site) -> tuple[int, int] | None:
    """Returns the height and width of an upsampled image as multiples of the input's; None where
    they are not whole."""
    before, after = type_of(site.input("input" if "input" in site.args else "self")), site.type
    if len(before.shape) != 4 or before.dtype != "float32":
        return None
    (h, w), (tall, wide) = before.shape[2:], after.shape[2:]
    return None if tall % h or wide % w else (tall // h, wide // w)


def _source(site: Site) -> fx.Node:
    return site.input("input" if "input" in site.args else "self")


def half_pixels(site: Site) -> fx.Node | None:
    """Writes a bilinear resize without align_corners; None where the call already is."""
    if not site.args["align_corners"]:
        return None
    size = list(site.type.shape[2:])
    return site.call(aten.upsample_bilinear2d.vec, _source(site), size, False, None)


def nearest(site: Site) -> fx.Node:
    """Writes a resize to the nearest pixel instead of a mean of four."""
    return site.call(aten.upsample_nearest2d.vec, _source(site), list(site.type.shape[2:]), None)


def _transposed(site: Site, kernel: Tensor, scale: tuple[int, int]) -> fx.Node:
    """Writes a transposed convolution of each channel separately as one over all channels."""
    channels = type_of(_source(site)).shape[1]
    weight = torch.zeros(channels, channels, *kernel.shape)
    weight[torch.arange(channels), torch.arange(channels)] = kernel
    padding = [(size - step) // 2 for size, step in zip(kernel.shape, scale, strict=True)]
    return site.call(
        aten.convolution.default,
        *(_source(site), site.add_constant(weight, "upsampling"), None),
        *(list(scale), padding, [1, 1], True, [0, 0], 1),
    )


def copied_pixels(site: Site) -> fx.Node | None:
    """Writes a transposed convolution that copies each pixel; None where the scale is not whole."""
    scale = _sizes(site)
    return None if scale is None else _transposed(site, torch.ones(scale), scale)


def shuffled_pixels(site: Site) -> fx.Node | None:
    """Writes a 1x1 convolution that copies each channel, then a pixel shuffle; None where the scale
    is not one whole number."""
    scale = _sizes(site)
    if scale is None or scale[0] != scale[1]:
        return None
    channels, copies = type_of(_source(site)).shape[1], scale[0] ** 2
    weight = torch.eye(channels).repeat_interleave(copies, 0)[:, :, None, None].clone()
    wide = site.call(
        aten.convolution.default,
        *(_source(site), site.add_constant(weight, "upsampling"), None),
        *([1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    )
    return site.call(aten.pixel_shuffle.default, wide, scale[0])


def tent(size: int) -> Tensor:
    """Returns the weights of linear interpolation by ``size``: [2 * size - size % 2]."""
    n = 2 * size - size % 2
    centre = (n - 1) / 2
    return 1 - (torch.arange(n) - centre).abs() / size


def spread_pixels(site: Site) -> fx.Node | None:
    """Writes a transposed convolution with bilinear weights; None where the scale is not whole."""
    scale = _sizes(site)
    if scale is None:
        return None
    return _transposed(site, torch.outer(tent(scale[0]), tent(scale[1])), scale)


def pooled_mean(site: Site) -> fx.Node | None:
    """Writes the mean of an image as average pooling; None for other dimensions."""
    x = site.input()
    shape, dims = type_of(x).shape, site.args["dim"]
    if len(shape) != 4 or not dims or sorted(dim % 4 for dim in dims) != [2, 3]:
        return None
    pooled = site.call(aten.avg_pool2d.default, x, list(shape[2:]))
    return pooled if site.args["keepdim"] else site.reshape(pooled, shape[:2])


def dense_groups(site: Site) -> fx.Node | None:
    """Writes a convolution over all channels whose weights between groups are zero; None where
    there are no groups, or one per channel."""
    groups, weight = int(site.args["groups"]), site.constant("weight")
    if weight is None or groups == 1 or site.args["transposed"] or weight.shape[1] == 1:
        return None
    out, own = weight.shape[:2]
    dense = torch.zeros(out, own * groups, *weight.shape[2:])
    for group in range(groups):
        rows = slice(group * out // groups, (group + 1) * out // groups)
        dense[rows, group * own : (group + 1) * own] = weight[rows]
    return site.call_with({"weight": site.add_constant(dense, "dense"), "groups": 1})


def shuffling_weights(site: Site) -> fx.Node:
    """Writes a channel shuffle as a 1x1 convolution."""
    channels, groups = site.type.shape[1], int(site.args["groups"])
    order = torch.arange(channels).reshape(groups, -1).T.reshape(-1)
    weight = torch.eye(channels)[order][:, :, None, None].clone()
    return site.call(
        aten.convolution.default,
        *(site.input(), site.add_constant(weight, "shuffle"), None),
        *([1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    )


# Norms


def scaled_and_shifted(names: tuple[str, str], image: bool) -> Rule:
    """Returns the rule that keeps only a norm's weight and bias, without statistics of its input,
    as in a trained batch norm. ``image`` says that channels are dimension 1."""

    def rule(site: Site) -> fx.Node | None:
        x = site.input("input" if "input" in site.args else "self")
        rank = len(type_of(x).shape)
        result = x
        for name, target in zip(names, (aten.mul.Tensor, aten.add.Tensor), strict=True):
            value = site.constant(name)
            if value is None:
                value = torch.ones(1) if target is aten.mul.Tensor else torch.zeros(1)
            elif image:
                value = value.reshape(1, -1, *(1,) * (rank - 2))
            result = site.call(target, result, site.add_constant(value.clone(), "affine"))
        return result

    return rule


def batch_norm_parts(site: Site) -> fx.Node | None:
    """Writes x * scale + shift, computed from the norm's learned statistics."""
    values = [site.constant(name) for name in ("weight", "bias", "running_mean", "running_var")]
    weight, bias, mean, variance = values
    if mean is None or variance is None:
        return None
    scale = (variance + float(site.args["eps"])).rsqrt()
    scale = scale if weight is None else scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    rank = len(type_of(site.input("input")).shape)
    x = site.input("input")
    for value, target in ((scale, aten.mul.Tensor), (shift, aten.add.Tensor)):
        wide = value.reshape(1, -1, *(1,) * (rank - 2))
        x = site.call(target, x, site.add_constant(wide, "norm"))
    return x


# Types and layouts


def single_precision(site: Site) -> fx.Node | None:
    """Leaves out a conversion to float64."""
    x = site.input()
    return x if type_of(x).dtype == "float32" and site.type.dtype == "float64" else None


_DIMS = {"flip": "dims", "softmax": "dim", "log_softmax": "dim", "cumsum": "dim", "roll": "dims"}
"""Operators that take dimensions and keep the shape -> the argument with the dimensions."""


def without_permutes(site: Site) -> fx.Node | None:
    """Replaces permute, one operator, inverse permute by the operator on other dimensions. The site
    is the first permute."""
    order = [int(dim) for dim in site.args["dims"]]
    users = list(site.node.users)
    if len(users) != 1:
        return None
    (inner,) = users
    back = list(inner.users)
    if len(back) != 1 or back[0].target is not aten.permute.default:
        return None
    inverse = [int(dim) for dim in Site(back[0]).args["dims"]]
    rank = len(order)
    if [order[dim] % rank for dim in inverse] != list(range(rank)):
        return None
    step = _inner_step(inner, order)
    if step is None:
        return None
    replacement = step(Site(back[0]), site.input())
    back[0].replace_all_uses_with(replacement)
    return site.input()


def _inner_step(inner: fx.Node, order: list[int]) -> Callable[[Site, fx.Node], fx.Node] | None:
    name = getattr(inner.target, "_schema", None)
    name = "" if name is None else name.name.partition("::")[2]
    rank = len(order)
    if name in _DIMS:
        stated = Site(inner).args[_DIMS[name]]
        many = isinstance(stated, list | tuple)
        dims = [order[int(dim) % rank] for dim in (stated if many else [stated])]
        return lambda site, x: Site(inner).call_with(
            {"self": x, _DIMS[name]: dims if many else dims[0]}
        )
    if name == "linear" and rank == 4 and [dim % rank for dim in order] == [0, 2, 3, 1]:
        weight, bias = Site(inner).constant("weight"), Site(inner).args["bias"]
        if weight is None:
            return None
        return lambda site, x: site.call(
            aten.convolution.default,
            *(x, site.add_constant(weight[:, :, None, None].clone(), "pointwise"), bias),
            *([1, 1], [0, 0], [1, 1], False, [0, 0], 1),
        )
    return None
