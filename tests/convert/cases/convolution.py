"""Cases of convolutions and linear layers."""

from tests.convert.cases.common import NEEDS_2, SQUARE, W, X, all_levels
from tests.convert.harness import FIRST, Case, aten, image


def conv(name, bias=None, stride=1, padding=0, dilation=1, groups=1, transposed=False):
    def pair(value):
        return [value, value] if isinstance(value, int) else list(value)

    return lambda x: aten.convolution.default(
        x, W[name], bias, pair(stride), pair(padding), pair(dilation), transposed, [0, 0], groups
    )


def padded_conv(pad, value=0.0, padding=(0, 0)):
    def function(x):
        padded = aten.constant_pad_nd.default(x, pad, value)
        return aten.convolution.default(
            padded, W["plain"], W["six"], [2, 2], list(padding), [1, 1], False, [0, 0], 1
        )

    return function


CONVOLUTIONS = {
    "conv": Case(conv("plain", W["six"], 2, 1), (X,), operations={27: "CONV_2D"}),
    "conv without bias": Case(conv("plain"), (X,)),
    "conv pointwise": Case(conv("point", W["six"]), (X,)),
    "conv of unequal sides": Case(conv("wide", W["five"], (1, 2), (2, 1)), (X,)),
    "conv dilated": Case(
        conv("plain", W["six"], 1, 2, (2, 1)),
        (X,),
        refused={27: r"dilation \(2, 1\) \(by SPACE_TO_BATCH_ND; .*\) needs level 2 \(API 28\)"},
        operations={28: "SPACE_TO_BATCH_ND CONV_2D BATCH_TO_SPACE_ND STRIDED_SLICE", 29: "CONV_2D"},
    ),
    "conv depthwise": Case(
        conv("depth", W["channels"], 1, 1, groups=4), (X,), operations={27: "DEPTHWISE_CONV_2D"}
    ),
    "conv depthwise, two filters a channel": Case(
        conv("depth2", W["eight"], 2, 1, groups=4), (X,), operations={27: "DEPTHWISE_CONV_2D"}
    ),
    "conv depthwise, dilated": Case(
        conv("depth", None, 1, 2, 2, groups=4),
        (X,),
        refused={27: "by SPACE_TO_BATCH_ND"},
        operations={29: "DEPTHWISE_CONV_2D"},
    ),
    "conv grouped": Case(
        conv("group", W["six"], 1, 1, groups=2),
        (X,),
        refused={27: r"groups=2 by slices \(STRIDED_SLICE\) needs level 2"},
        operations={
            28: "STRIDED_SLICE STRIDED_SLICE CONV_2D CONV_2D CONCATENATION",
            29: "GROUPED_CONV_2D",
        },
    ),
    "conv grouped, dilated": Case(
        conv("group", W["six"], 1, 2, 2, groups=2),
        (X,),
        refused={27: "by SPACE_TO_BATCH_ND"},
        operations={29: "SPLIT CONV_2D CONV_2D CONCATENATION"},
    ),
    "conv padded asymmetrically": Case(
        padded_conv([0, 1, 2, 1]), (SQUARE,), operations={27: "CONV_2D"}
    ),
    "conv padded twice": Case(
        padded_conv([1, 0], padding=(1, 1)), (SQUARE,), operations={27: "CONV_2D"}
    ),
    "conv after a pad of ones": Case(
        padded_conv([0, 1, 0, 1], 1.0),
        (SQUARE,),
        operations={27: "CONCATENATION CONCATENATION CONV_2D", 29: "PAD_V2 CONV_2D"},
    ),
    "conv after a crop": Case(
        padded_conv([0, -1, 0, 0]),
        (SQUARE,),
        refused={27: f"STRIDED_SLICE exists {NEEDS_2}"},
        operations={28: "STRIDED_SLICE CONV_2D"},
    ),
    "conv with relu": Case(
        lambda x: aten.relu.default(conv("plain", W["six"])(x)), (X,), operations={27: "CONV_2D"}
    ),
    "conv with relu6": Case(
        lambda x: aten.hardtanh.default(conv("plain", W["six"])(x), 0.0, 6.0),
        (X,),
        operations={27: "CONV_2D"},
    ),
    "conv grouped with relu1": Case(
        lambda x: aten.hardtanh.default(conv("group", W["six"], groups=2)(x)),
        (X,),
        refused={27: "groups=2"},
        operations={29: "GROUPED_CONV_2D"},
    ),
    "conv with sigmoid": Case(
        lambda x: aten.sigmoid.default(conv("plain")(x)), (X,), operations={27: "CONV_2D LOGISTIC"}
    ),
    "conv contiguous": Case(
        conv("plain"), (X,), FIRST,
        refused=all_levels(r"float32\[2x4x7x8\], NNAPI expects channels_last images", 31),
    ),
    "conv1d": Case(
        lambda x: aten.convolution.default(x, W["line"], None, [1], [0], [1], False, [0], 1),
        (image(2, 4, 9),),
        refused=all_levels(r"a 1-d convolution \(input of rank 3\), NNAPI has 2-d ones only", 31),
    ),
    "conv transposed": Case(
        lambda x: aten.convolution.default(
            x, W["wide"], None, [1, 1], [0, 0], [1, 1], True, [0, 0], 1
        ),
        (image(1, 5, 4, 4),),
        operations={27: "CONV_2D", 29: "TRANSPOSE_CONV_2D"},
    ),
    "conv of computed weights": Case(
        lambda x, w: aten.convolution.default(x, w, None, [1] * 2, [0] * 2, [1] * 2, False, [0], 1),
        (X, W["plain"]),
        refused=all_levels("w is computed by the model, a constant is required", 31),
    ),
}  # fmt: skip


LINEAR = {
    "linear": Case(
        lambda x: aten.linear.default(x, W["linear"], W["five"]),
        (image(3, 7),),
        operations={27: "FULLY_CONNECTED"},
    ),
    "linear with relu": Case(
        lambda x: aten.relu.default(aten.linear.default(x, W["linear"], W["five"])),
        (image(3, 7),),
        operations={27: "FULLY_CONNECTED"},
    ),
    "linear without bias": Case(lambda x: aten.linear.default(x, W["linear"]), (image(3, 7),)),
    "linear of rank 1": Case(
        lambda x: aten.linear.default(x, W["linear"]),
        (image(7),),
        operations={27: "RESHAPE FULLY_CONNECTED RESHAPE"},
    ),
    "linear of rank 3": Case(
        lambda x: aten.linear.default(x, W["linear"]),
        (image(2, 3, 7),),
        operations={27: "FULLY_CONNECTED RESHAPE"},
    ),
    "linear of rank 4": Case(
        lambda x: aten.linear.default(x, W["linear"]), (image(2, 3, 2, 7),), FIRST
    ),
}
