"""Known rewrites: which operators, what to write in PyTorch instead, and what that does to outputs.

A rule more is a row more. Of one operator those that change least stand first. ``form`` writes it
into a graph, so that plans with it can be predicted and tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from nnapi_prof.advice import forms
from nnapi_prof.graph.advice import Rewrite
from nnapi_prof.passes.rewrite import Rule

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class KnownRewrite:
    """A row of the table."""

    operators: tuple[Any, ...]
    """ATen overloads, as they are after normalising."""
    rewrite: Rewrite
    form: Rule


def _rewrite_rule(
    operators: tuple[Any, ...], form: Rule, name: str, code: str, accuracy: str = ""
) -> KnownRewrite:
    exact = not accuracy
    text = accuracy or "The same values, except for rounding."
    return KnownRewrite(operators, Rewrite(name, code, text, exact), form)


_TUNE = "Train for some more epochs with it: accuracy mostly comes back."
_SWISH = f"Up to 0.2 away from SiLU, near x = ±3. {_TUNE}"
_GATE = f"Up to 0.08 away from the sigmoid. {_TUNE}"
_AGAIN = "Values change: the model must be trained with it."
_SILU, _GELU = (aten.silu.default,), (aten.gelu.default,)
_BILINEAR = (aten.upsample_bilinear2d.vec, aten.upsample_bilinear2d.default)
_NEAREST = (aten.upsample_nearest2d.vec, aten.upsample_nearest2d.default)

RULES: tuple[KnownRewrite, ...] = (
    # Activations
    _rewrite_rule(
        _SILU, forms.called(aten.hardswish.default), "hard-swish", "nn.Hardswish()", _SWISH
    ),
    _rewrite_rule(
        *(_SILU, forms.swish_parts, "hard-swish in parts"),
        *("x * F.relu6(x + 3) * (1 / 6)", _SWISH),
    ),
    _rewrite_rule(
        _SILU, forms.called(aten.relu.default), "ReLU in place of SiLU", "nn.ReLU()", _AGAIN
    ),
    _rewrite_rule(
        *(_GELU, forms.gelu_tanh, "GELU's tanh form", "nn.GELU(approximate='tanh')"),
        "At most 0.0005 away from exact GELU.",
    ),
    _rewrite_rule(
        *(_GELU, forms.gelu_sigmoid, "GELU's sigmoid form", "x * torch.sigmoid(1.702 * x)"),
        f"At most 0.02 away from exact GELU. {_TUNE}",
    ),
    _rewrite_rule(
        *(_GELU, forms.gelu_parts, "GELU with a hard sigmoid"),
        *("x * F.relu6(1.702 * x + 3) * (1 / 6)", f"Up to 0.13 away from exact GELU. {_TUNE}"),
    ),
    _rewrite_rule(
        _GELU, forms.called(aten.relu.default), "ReLU in place of GELU", "nn.ReLU()", _AGAIN
    ),
    _rewrite_rule(
        *((aten.hardswish.default,), forms.swish_parts, "hard-swish in parts"),
        "x * F.relu6(x + 3) * (1 / 6)",
    ),
    _rewrite_rule(
        *((aten.hardsigmoid.default,), forms.gate_parts, "hard sigmoid in parts"),
        "F.relu6(x + 3) * (1 / 6)",
    ),
    _rewrite_rule(
        *((aten.sigmoid.default,), forms.gate_parts, "hard sigmoid"),
        *("F.relu6(x + 3) * (1 / 6)  # nn.Hardsigmoid()", _GATE),
    ),
    _rewrite_rule(
        *((aten.mish.default,), forms.called(aten.hardswish.default), "hard-swish"),
        *("nn.Hardswish()", f"Up to 0.4 away from Mish. {_TUNE}"),
    ),
    _rewrite_rule(
        *((aten.mish.default,), forms.swish_parts, "hard-swish in parts"),
        *("x * F.relu6(x + 3) * (1 / 6)", f"Up to 0.4 away from Mish. {_TUNE}"),
    ),
    _rewrite_rule(
        *((aten.tanh.default,), forms.clipped(-1.0, 1.0), "hard tanh", "nn.Hardtanh()"),
        f"Up to 0.24 away from tanh. {_TUNE}",
    ),
    _rewrite_rule(
        *((aten.leaky_relu.default,), forms.larger_of_both, "leaky ReLU as a maximum"),
        "torch.maximum(x, slope * x)",
    ),
    _rewrite_rule(
        (aten.elu.default, aten.celu.default, aten.selu.default, aten.softplus.default),
        *(forms.called(aten.relu.default), "ReLU", "nn.ReLU()", _AGAIN),
    ),
    # Arithmetic
    _rewrite_rule((aten.neg.default,), forms.negated, "a product with -1", "x * -1.0"),
    _rewrite_rule(
        *((aten.abs.default,), forms.relu_of_both, "absolute value by ReLU"),
        "torch.relu(x) + torch.relu(-x)",
    ),
    _rewrite_rule((aten.pow.Tensor_Scalar,), forms.squared, "a product with itself", "x * x"),
    _rewrite_rule(
        *((aten.div.Tensor,), forms.times_reciprocal, "a product with the reciprocal"),
        "x * (1 / c)",
    ),
    # Images
    _rewrite_rule(
        *(_BILINEAR, forms.half_pixels, "bilinear without align_corners"),
        "F.interpolate(x, scale_factor=s, mode='bilinear', align_corners=False)",
        f"Pixels shift by up to half of one. {_TUNE}",
    ),
    _rewrite_rule(
        *(_BILINEAR, forms.nearest, "nearest neighbour"),
        *("F.interpolate(x, scale_factor=s, mode='nearest')", f"Edges turn blocky. {_TUNE}"),
    ),
    _rewrite_rule(
        *(_BILINEAR, forms.shuffled_pixels, "nearest neighbour by a pixel shuffle"),
        *("F.pixel_shuffle(nn.Conv2d(c, s * s * c, 1, bias=False)(x), s)  # weight: copies",),
        f"Edges turn blocky, until the weights are trained. {_TUNE}",
    ),
    _rewrite_rule(
        *(_BILINEAR, forms.spread_pixels, "transposed convolution with bilinear weights"),
        "nn.ConvTranspose2d(c, c, 2 * s, stride=s, padding=s // 2, bias=False)"
        "  # weight[i, i]: a tent",
        "As bilinear without align_corners, except for one pixel at the border; the weights can be"
        " trained.",
    ),
    _rewrite_rule(
        *(_BILINEAR, forms.copied_pixels, "transposed convolution that copies pixels"),
        "nn.ConvTranspose2d(c, c, s, stride=s, bias=False)  # weight[i, i] = 1, else 0",
        f"Nearest neighbour: edges turn blocky, until the weights are trained. {_TUNE}",
    ),
    _rewrite_rule(
        *(_NEAREST, forms.shuffled_pixels, "pixel shuffle of copied channels"),
        "F.pixel_shuffle(nn.Conv2d(c, s * s * c, 1, bias=False)(x), s)  # weight: copies",
    ),
    _rewrite_rule(
        *(_NEAREST, forms.copied_pixels, "transposed convolution that copies pixels"),
        "nn.ConvTranspose2d(c, c, s, stride=s, bias=False)  # weight[i, i] = 1, else 0",
    ),
    _rewrite_rule(
        *((aten.mean.dim,), forms.pooled_mean, "average pooling"),
        "F.avg_pool2d(x, x.shape[2:])",
    ),
    _rewrite_rule(
        *((aten.convolution.default,), forms.dense_groups, "a convolution without groups"),
        "nn.Conv2d(c_in, c_out, k, groups=1)  # weights between groups are zero",
    ),
    _rewrite_rule(
        *((aten.channel_shuffle.default,), forms.shuffling_weights, "convolution that shuffles"),
        "nn.Conv2d(c, c, 1, bias=False)  # weight: a permutation",
    ),
    # Norms
    _rewrite_rule(
        *((aten.batch_norm.default,), forms.batch_norm_parts, "batch norm as scale and shift"),
        "x * scale + shift  # scale = weight / sqrt(var + eps), shift = bias - mean * scale",
    ),
    _rewrite_rule(
        (aten.layer_norm.default,),
        *(forms.scaled_and_shifted(("weight", "bias"), image=False), "batch norm for layer norm"),
        *("nn.BatchNorm1d(features)  # folds into the layer before it", _AGAIN),
    ),
    _rewrite_rule(
        (aten.group_norm.default, aten.instance_norm.default),
        *(forms.scaled_and_shifted(("weight", "bias"), image=True), "batch norm"),
        *("nn.BatchNorm2d(channels)  # folds into the convolution before it", _AGAIN),
    ),
    # Types and layouts
    _rewrite_rule(
        *((aten._to_copy.default,), forms.single_precision, "float32 in place of float64"),
        *("x.float()  # and no .double() before it", "float32 has 24 bits of 53."),
    ),
    _rewrite_rule(
        *((aten.permute.default,), forms.without_permutes, "the same without permutes"),
        "op(x, dim=the dimension before permuting)  # nn.Linear on NHWC: nn.Conv2d(c, d, 1)",
    ),
)

LEFT_OUT = Rewrite(
    "leaving it out",
    "x  # or an operation that the accelerator runs",
    "Only to see what it costs: the model must be trained without it, or compute it at its end.",
)
"""Of operations without a known rewrite."""


def rules_for(operator: Any) -> tuple[KnownRewrite, ...]:
    """The rows for an overload, those that change least first."""
    return tuple(rule for rule in RULES if operator in rule.operators)
