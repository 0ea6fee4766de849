"""Quantised convolutions and linear layers, and the rules for their scales."""

import torch

from tests.convert.cases.common import NEEDS_3
from tests.convert.cases.quantised_common import (
    BELOW_3,
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


def conv(weight, bias, *, stride=1, padding=0, dilation=1, transposed=False, groups=1, then=None):
    """A convolution by a quantised weight, and an activation."""
    pairs = [[size] * 2 for size in (stride, padding, dilation)]

    def function(x):
        args = (x, weight(x), bias, *pairs, transposed, [0, 0], groups)
        result = aten.convolution.default(*args)
        return result if then is None else then(result)

    return function


def linear(weight, bias):
    return lambda x: aten.linear.default(x, weight(x), bias)


PLAIN, CHANNELS = per_tensor(weights(6, 4, 3, 3)), per_channel(weights(6, 4, 3, 3))
DEPTH = weights(4, 1, 3, 3)
SIX = floats(6)
BY_CHANNELS = f"a filter with a scale for each channel needs {NEEDS_3}"

QUANTISED_LAYERS = {
    "conv": quantised(conv(PLAIN, SIX, padding=1), IMAGE, operations="CONV_2D"),
    "conv relu": quantised(
        conv(PLAIN, None, stride=2, then=aten.relu.default), IMAGE, operations="CONV_2D"
    ),
    "conv relu6": quantised(conv(PLAIN, SIX, then=relu6), IMAGE, operations="CONV_2D"),
    "conv weight with a zero point": quantised(
        conv(per_tensor(weights(6, 4, 3, 3), 0.01, -20), SIX), IMAGE, operations="CONV_2D"
    ),
    "conv small scale": quantised(
        conv(PLAIN, SIX),
        IMAGE,
        out=(0.0004, 3),
        below_3="above input x filter scale below .*, found 0.0004 and",
        operations={29: "CONV_2D"},
    ),
    "conv channels": quantised(
        conv(CHANNELS, SIX, padding=1), IMAGE, below_3=BY_CHANNELS, operations={29: "CONV_2D"}
    ),
    "conv channels with zero points": quantised(
        conv(per_channel(weights(6, 4, 3, 3), zeros=torch.tensor([0, 1, 0, 0, 0, 0])), SIX),
        IMAGE,
        below_3=BY_CHANNELS,
        operations=in_floats("CONV_2D"),
    ),
    "conv input channels": quantised(
        conv(per_channel(weights(6, 4, 3, 3), axis=1), SIX),
        IMAGE,
        below_3=BY_CHANNELS,
        operations=in_floats("CONV_2D"),
    ),
    "conv large bias": quantised(
        conv(per_tensor(weights(6, 4, 3, 3), 1e-7), SIX * 100),
        IMAGE,
        out=(4.0, 100),
        below_3="the bias goes to .*INT32 is what NNAPI takes",
        operations=in_floats("CONV_2D"),
    ),
    "conv float weights": quantised(
        conv(lambda x: floats(6, 4, 3, 3), SIX),
        IMAGE,
        below_3="float32 weights, quantised ones are required",
        operations=in_floats("CONV_2D"),
    ),
    "conv depthwise": quantised(
        conv(per_tensor(DEPTH), floats(4), padding=1, groups=4),
        IMAGE,
        operations="DEPTHWISE_CONV_2D",
    ),
    "conv depthwise channels": quantised(
        conv(per_channel(weights(8, 1, 3, 3)), floats(8), groups=4),
        IMAGE,
        below_3=BY_CHANNELS,
        operations={29: "DEPTHWISE_CONV_2D"},
    ),
    "conv grouped": quantised(
        conv(per_tensor(weights(6, 2, 3, 3)), SIX, groups=2),
        IMAGE,
        below_2="groups=2",
        operations={
            28: "STRIDED_SLICE STRIDED_SLICE CONV_2D CONV_2D CONCATENATION",
            29: "GROUPED_CONV_2D",
        },
    ),
    "conv grouped channels": quantised(
        conv(per_channel(weights(6, 2, 3, 3)), SIX, groups=2),
        IMAGE,
        below_2="groups=2",
        below_3=BY_CHANNELS,
        operations={29: "GROUPED_CONV_2D"},
    ),
    "conv dilated": quantised(
        conv(PLAIN, SIX, padding=2, dilation=2),
        IMAGE,
        below_2="dilation",
        below_3="zero point not 0 needs",
        operations={29: "CONV_2D"},
    ),
    "conv padded": quantised(
        lambda x: conv(PLAIN, SIX)(aten.constant_pad_nd.default(x, [0, 1, 2, 1], 0.0)),
        IMAGE,
        operations="CONV_2D",
    ),
    "conv signed": quantised(
        conv(CHANNELS, SIX),
        weights(1, 4, 6, 8),
        given=((0.05, -3),),
        out=(0.1, 5),
        limits=I8,
        refused={**dict.fromkeys(BELOW_3, BY_CHANNELS), 29: "SIGNED from level 4"},
        operations={30: "CONV_2D"},
    ),
    "conv signed per tensor": quantised(
        conv(PLAIN, SIX, then=relu6),
        weights(1, 4, 6, 8),
        given=((0.05, -3),),
        out=(0.1, 5),
        limits=I8,
        below_4="SIGNED from level 4",
        operations={30: "CONV_2D"},
    ),
    "conv transposed": quantised(
        conv(per_tensor(weights(4, 6, 3, 3)), SIX, stride=2, transposed=True),
        IMAGE,
        below_3=".",
        operations={29: "TRANSPOSE_CONV_2D"},
    ),
    "conv transposed channels": quantised(
        conv(per_channel(weights(4, 6, 3, 3), axis=1), SIX, stride=2, transposed=True),
        IMAGE,
        below_3=".",
        operations={29: "TRANSPOSE_CONV_2D"},
    ),
    "linear": quantised(
        linear(per_tensor(weights(5, 8)), floats(5)), ROWS, operations="FULLY_CONNECTED"
    ),
    "linear relu": quantised(
        lambda x: aten.relu.default(linear(per_tensor(weights(5, 8)), None)(x)),
        ROWS,
        operations="FULLY_CONNECTED",
    ),
    "linear rank 3": quantised(
        linear(per_tensor(weights(5, 8)), floats(5)),
        integers(2, 3, 8),
        operations="FULLY_CONNECTED RESHAPE",
    ),
    "linear channels": quantised(
        linear(per_channel(weights(5, 8)), floats(5)),
        ROWS,
        below_3=BY_CHANNELS,
        operations={29: "RESHAPE CONV_2D RESHAPE"},
    ),
}
