"""Quantised convolutions and linear layers, and the rules for their scales."""

import torch

from tests.convert.cases.common import NEEDS_3
from tests.convert.cases.quantised_common import (
    I8,
    IMAGE,
    ROWS,
    floats,
    in_floats,
    integers,
    per_channel,
    per_tensor,
    quantised,
    relu6,
    weights,
)
from tests.convert.harness import aten

PLAIN, CHANNELS = per_tensor(weights(6, 4, 3, 3)), per_channel(weights(6, 4, 3, 3))
GROUPED, UP = weights(6, 2, 3, 3), weights(4, 6, 3, 3)
LINES = per_tensor(weights(5, 8))
SIX, FIVE = floats(6), floats(5)
BY_CHANNELS = f"a filter with a scale for each channel needs {NEEDS_3}"
SIGNED = {"x": weights(1, 4, 6, 8), "given": ((0.05, -3),), "out": (0.1, 5), "limits": I8}


def conv(weight, bias=SIX, x=IMAGE, then=None, transposed=False, groups=1, pad=None, **known):
    """A convolution by a quantised weight, behind a pad and before an activation."""
    sizes = [[known.pop(name, least)] * 2 for name, least in SIZES.items()]

    def function(x):
        x = x if pad is None else aten.constant_pad_nd.default(x, pad, 0.0)
        args = (x, weight(x), bias, *sizes, transposed, [0, 0], groups)
        result = aten.convolution.default(*args)
        return result if then is None else then(result)

    return quantised(function, x, **known)


SIZES = {"stride": 1, "padding": 0, "dilation": 1}


def linear(weight, bias=FIVE, x=ROWS, then=None, **known):
    def function(x):
        result = aten.linear.default(x, weight(x), bias)
        return result if then is None else then(result)

    return quantised(function, x, **known)


QUANTISED_LAYERS = {
    "conv": conv(PLAIN, padding=1, gives="CONV_2D"),
    "conv relu": conv(PLAIN, None, stride=2, then=aten.relu.default, gives="CONV_2D"),
    "conv relu6": conv(PLAIN, then=relu6, gives="CONV_2D"),
    "conv weight with a zero point": conv(
        per_tensor(weights(6, 4, 3, 3), 0.01, -20), gives="CONV_2D"
    ),
    "conv small scale": conv(
        PLAIN,
        out=(0.0004, 3),
        below_3="above input x filter scale below .*, found 0.0004 and",
        gives="CONV_2D",
    ),
    "conv channels": conv(CHANNELS, padding=1, below_3=BY_CHANNELS, gives="CONV_2D"),
    "conv channels with zero points": conv(
        per_channel(weights(6, 4, 3, 3), zeros=torch.tensor([0, 1, 0, 0, 0, 0])),
        below_3=BY_CHANNELS,
        gives=in_floats("CONV_2D"),
    ),
    "conv input channels": conv(
        per_channel(weights(6, 4, 3, 3), axis=1), below_3=BY_CHANNELS, gives=in_floats("CONV_2D")
    ),
    "conv large bias": conv(
        per_tensor(weights(6, 4, 3, 3), 1e-7),
        SIX * 100,
        out=(4.0, 100),
        below_3="the bias goes to .*INT32 is what NNAPI takes",
        gives=in_floats("CONV_2D"),
    ),
    "conv float weights": conv(
        lambda x: floats(6, 4, 3, 3),
        below_3="float32 weights, quantised ones are required",
        gives=in_floats("CONV_2D"),
    ),
    "conv depthwise": conv(
        per_tensor(weights(4, 1, 3, 3)), floats(4), padding=1, groups=4, gives="DEPTHWISE_CONV_2D"
    ),
    "conv depthwise channels": conv(
        per_channel(weights(8, 1, 3, 3)),
        floats(8),
        groups=4,
        below_3=BY_CHANNELS,
        gives="DEPTHWISE_CONV_2D",
    ),
    "conv grouped": conv(
        per_tensor(GROUPED),
        groups=2,
        below_2="groups=2",
        gives={
            28: "STRIDED_SLICE STRIDED_SLICE CONV_2D CONV_2D CONCATENATION",
            29: "GROUPED_CONV_2D",
        },
    ),
    "conv grouped channels": conv(
        per_channel(GROUPED),
        groups=2,
        below_2="groups=2",
        below_3=BY_CHANNELS,
        gives="GROUPED_CONV_2D",
    ),
    "conv dilated": conv(
        PLAIN,
        padding=2,
        dilation=2,
        below_2="dilation",
        below_3="zero point not 0 needs",
        gives="CONV_2D",
    ),
    "conv padded": conv(PLAIN, pad=[0, 1, 2, 1], gives="CONV_2D"),
    "conv signed": conv(
        CHANNELS,
        **SIGNED,
        below_3=BY_CHANNELS,
        refused={29: "SIGNED from level 4"},
        gives="CONV_2D",
    ),
    "conv signed per tensor": conv(
        PLAIN, then=relu6, **SIGNED, below_4="SIGNED from level 4", gives="CONV_2D"
    ),
    "conv transposed": conv(
        per_tensor(UP), stride=2, transposed=True, below_3=".", gives="TRANSPOSE_CONV_2D"
    ),
    "conv transposed channels": conv(
        per_channel(UP, axis=1), stride=2, transposed=True, below_3=".", gives="TRANSPOSE_CONV_2D"
    ),
    "linear": linear(LINES, gives="FULLY_CONNECTED"),
    "linear relu": linear(LINES, None, then=aten.relu.default, gives="FULLY_CONNECTED"),
    "linear rank 3": linear(LINES, x=integers(2, 3, 8), gives="FULLY_CONNECTED RESHAPE"),
    "linear channels": linear(
        per_channel(weights(5, 8)), below_3=BY_CHANNELS, gives="RESHAPE CONV_2D RESHAPE"
    ),
}
