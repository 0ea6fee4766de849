"""Cases of convolutions in all their forms: groups, dilations, pads, transposition."""

from tests.convert.cases.common import X, all_levels
from tests.convert.harness import Case, aten, image

WIDE = image(2, 4, 9, 10)


def plain(
    out, kernel, groups=1, stride=(1, 1), padding=(0, 0), dilation=(1, 1), bias=True, x=X, **known
):
    weight = image(out, x.shape[1] // groups, *kernel, seed=4)
    offsets = image(out, seed=5) if bias else None
    return Case(
        lambda y: aten.convolution.default(
            y, weight, offsets, stride, padding, dilation, False, [0, 0], groups
        ),
        (x,),
        **known,
    )


def transposed(
    out,
    kernel,
    stride=(1, 1),
    padding=(0, 0),
    outpad=(0, 0),
    groups=1,
    dilation=(1, 1),
    bias=True,
    x=X,
    **known,
):
    """``out`` channels for each group."""
    weight = image(x.shape[1], out, *kernel, seed=4)
    offsets = image(out * groups, seed=5) if bias else None
    before = [d * (k - 1) - p for d, k, p in zip(dilation, kernel, padding, strict=True)]
    after = [b + o - s + 1 for b, o, s in zip(before, outpad, stride, strict=True)]
    if min(before + after) < 0:
        known.setdefault("refused", {27: "STRIDED_SLICE exists from level 2"})
    return Case(
        lambda y: aten.convolution.default(
            y, weight, offsets, stride, padding, dilation, True, outpad, groups
        ),
        (x,),
        **known,
    )


NO_PHASES = {27: r"\(by SPACE_TO_BATCH_ND; itself from level 3\) needs level 2"}

FORMS = {
    "conv dilated, padded unevenly": plain(
        6, (3, 2), padding=(2, 1), dilation=(2, 3), refused=NO_PHASES
    ),
    "conv dilated with a stride": plain(
        6,
        (3, 3),
        stride=(2, 2),
        dilation=(2, 2),
        refused=NO_PHASES,
        operations={28: "SPACE_TO_BATCH_ND CONV_2D BATCH_TO_SPACE_ND STRIDED_SLICE", 29: "CONV_2D"},
    ),
    "conv dilated in one direction": plain(3, (3, 3), dilation=(1, 3), refused=NO_PHASES),
    "conv padded by more than its kernel": plain(
        5,
        (2, 1),
        padding=(2, 3),
        operations={27: "CONCATENATION CONCATENATION CONV_2D", 28: "PAD CONV_2D"},
    ),
    "conv padded to its kernel's end": plain(5, (3, 4), padding=(2, 3), operations={27: "CONV_2D"}),
    "conv in three groups": plain(
        9,
        (3, 3),
        3,
        padding=(1, 1),
        x=image(1, 6, 5, 5),
        refused={27: r"groups=3 by slices \(STRIDED_SLICE\) needs level 2"},
        operations={29: "GROUPED_CONV_2D"},
    ),
    "conv in groups with a stride, dilated": plain(
        8,
        (3, 3),
        2,
        stride=(2, 1),
        dilation=(2, 2),
        refused=NO_PHASES,
        operations={29: "SPLIT CONV_2D CONV_2D CONCATENATION"},
    ),
    "conv in many groups": plain(
        130,
        (1, 1),
        65,
        x=image(1, 130, 2, 2),
        refused={
            27: "groups=65 by slices",
            28: r"groups=65 without GROUPED_CONV_2D .*, at most 64 become convolutions",
        },
    ),
    "conv depthwise, three filters a channel": plain(
        12, (3, 2), 4, stride=(2, 1), padding=(1, 0), operations={27: "DEPTHWISE_CONV_2D"}
    ),
    "conv depthwise, dilated with three filters": plain(
        12, (3, 2), 4, dilation=(2, 1), refused=NO_PHASES
    ),
    "conv of one channel": plain(3, (3, 3), x=image(1, 1, 6, 6), operations={27: "CONV_2D"}),
    "conv over all of the image": plain(3, (7, 8), operations={27: "CONV_2D"}),
    **{
        f"conv kernel {kernel} stride {stride} padding {padding}": plain(
            5, kernel, stride=stride, padding=padding, bias=False, operations={27: "CONV_2D"}
        )
        for kernel in ((1, 1), (2, 3), (5, 4))
        for stride in ((1, 1), (2, 3))
        for padding in ((0, 0), (1, 2))
        if padding[0] < kernel[0] and padding[1] < kernel[1]
    },
}

TRANSPOSED = {
    **{
        f"conv transposed, kernel {kernel} stride {stride} padding {padding} more {outpad}": (
            transposed(
                5, kernel, stride, padding, outpad, operations={29: "TRANSPOSE_CONV_2D"}, x=x
            )
        )
        for x in (image(2, 4, 4, 5),)
        for kernel in ((3, 3), (2, 4))
        for stride in ((1, 1), (2, 2), (2, 3))
        for padding in ((0, 0), (1, 1), (0, 2))
        for outpad in ((0, 0), (1, 0), (1, 1))
        if outpad[0] < stride[0] or outpad == (0, 0)
        if outpad[1] < stride[1]
    },
    "conv transposed, kernel smaller than its stride": transposed(
        3, (1, 2), (3, 3), operations={29: "TRANSPOSE_CONV_2D"}
    ),
    "conv transposed, kernel smaller than its stride, longer": transposed(
        3, (1, 2), (3, 3), outpad=(2, 2), operations={29: "TRANSPOSE_CONV_2D"}
    ),
    "conv transposed without bias": transposed(3, (3, 3), (2, 2), bias=False),
    "conv transposed with relu": Case(
        lambda x: aten.relu.default(transposed(3, (3, 3), (2, 2)).function(x)),
        (X,),
        operations={29: "TRANSPOSE_CONV_2D"},
    ),
    "conv transposed after a pad": Case(
        lambda x: transposed(3, (3, 3), (2, 2), (1, 1)).function(
            aten.constant_pad_nd.default(x, [1, 0, 2, 1], 0.0)
        ),
        (X,),
        operations={29: "PAD TRANSPOSE_CONV_2D"},
    ),
    "conv transposed in groups": transposed(
        3,
        (3, 3),
        (2, 2),
        (1, 1),
        (1, 1),
        groups=2,
        refused={27: r"groups=2 by slices"},
        operations={29: "RESHAPE PAD RESHAPE PAD RESHAPE GROUPED_CONV_2D"},
    ),
    "conv transposed in groups of one channel": transposed(
        1,
        (4, 4),
        (2, 2),
        (1, 1),
        groups=4,
        operations={28: "RESHAPE PAD RESHAPE PAD RESHAPE DEPTHWISE_CONV_2D"},
    ),
    "conv transposed in groups of one channel, two filters each": transposed(
        2, (3, 3), (2, 1), groups=4
    ),
    "conv transposed, dilated": transposed(
        3, (3, 2), (2, 2), (1, 1), (1, 0), dilation=(2, 3), refused=NO_PHASES
    ),
    "conv transposed, dilated and longer than a stride allows": transposed(
        3, (3, 3), (1, 1), outpad=(1, 1), dilation=(2, 2), refused=NO_PHASES
    ),
    "conv transposed, cropped to less than the image": transposed(
        3, (2, 2), (1, 1), (2, 2), dilation=(1, 1), refused={27: "STRIDED_SLICE exists"}
    ),
    "conv transposed of computed weights": Case(
        lambda x, w: aten.convolution.default(x, w, None, [1, 1], [0, 0], [1, 1], True, [0, 0], 1),
        (X, image(4, 2, 3, 3)),
        refused=all_levels("w is computed by the model, a constant is required", 31),
    ),
}
