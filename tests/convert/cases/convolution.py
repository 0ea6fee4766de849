"""Cases of convolutions in all their forms, and of linear layers."""

from tests.convert.cases.common import NO_SLICE, SQUARE, W, X, case
from tests.convert.harness import FIRST, aten, image


def pair(value):
    return [value, value] if isinstance(value, int) else list(value)


def convolve(weight, bias=None, stride=1, padding=0, dilation=1, groups=1, transposed=None):
    """A function of an image; ``transposed`` is the padding of the output, None where it is not."""
    sizes = map(pair, (stride, padding, dilation))
    rest = (transposed is not None, pair(transposed or 0), groups)
    args = (weight, bias, *sizes, *rest)
    return lambda x: aten.convolution.default(x, *args)


def conv(out, kernel=(3, 3), groups=1, bias=True, x=X, pad=None, pads_with=0.0, then=None, **known):
    """A convolution to ``out`` channels, behind a pad and before an activation."""
    sizes = {name: known.pop(name) for name in ("stride", "padding", "dilation") if name in known}
    weight = image(out, x.shape[1] // groups, *kernel, seed=4)
    layer = convolve(weight, image(out, seed=5) if bias else None, groups=groups, **sizes)

    def function(x):
        y = layer(x if pad is None else aten.constant_pad_nd.default(x, pad, pads_with))
        return y if then is None else then(y)

    return case(function, x, **known)


def relu6(x):
    return aten.hardtanh.default(x, 0.0, 6.0)


NO_GROUPS = r"groups=2 by slices \(STRIDED_SLICE\) needs level 2"
GROUPED = {28: "STRIDED_SLICE STRIDED_SLICE CONV_2D CONV_2D CONCATENATION", 29: "GROUPED_CONV_2D"}
DILATED = {28: "SPACE_TO_BATCH_ND CONV_2D BATCH_TO_SPACE_ND STRIDED_SLICE", 29: "CONV_2D"}
DEPTHWISE = "DEPTHWISE_CONV_2D"
IN_GROUPS = {29: "RESHAPE PAD RESHAPE PAD RESHAPE GROUPED_CONV_2D"}
BY_CHANNEL = {28: "RESHAPE PAD RESHAPE PAD RESHAPE DEPTHWISE_CONV_2D"}
MANY_GROUPS = "groups=65 without GROUPED_CONV_2D .*, at most 64 become convolutions"
SPLIT = {29: "SPLIT CONV_2D CONV_2D CONCATENATION"}
JOINED = "CONCATENATION CONCATENATION"
BEHIND_ONES = {27: f"{JOINED} CONV_2D", 29: "PAD_V2 CONV_2D"}
NO_PHASES = r"\(by SPACE_TO_BATCH_ND; itself from level 3\) needs level 2"
COMPUTED = "y is computed by the model, a constant is required"

CONVOLUTIONS = {
    "conv": conv(6, stride=2, padding=1, gives="CONV_2D"),
    "conv without bias": conv(6, bias=False),
    "conv pointwise": conv(6, (1, 1)),
    "conv of unequal sides": conv(5, (3, 5), stride=(1, 2), padding=(2, 1)),
    "conv dilated": conv(
        6, padding=2, dilation=(2, 1), below_2=rf"\(2, 1\) {NO_PHASES} \(API 28\)", gives=DILATED
    ),
    "conv depthwise": conv(4, groups=4, padding=1, gives=DEPTHWISE),
    "conv depthwise, two filters a channel": conv(
        8, groups=4, stride=2, padding=1, gives=DEPTHWISE
    ),
    "conv depthwise, dilated": conv(
        4, groups=4, padding=2, dilation=2, below_2=NO_PHASES, gives={29: DEPTHWISE}
    ),
    "conv grouped": conv(6, groups=2, padding=1, below_2=NO_GROUPS, gives=GROUPED),
    "conv padded asymmetrically": conv(6, x=SQUARE, pad=[0, 1, 2, 1], stride=2, gives="CONV_2D"),
    "conv padded twice": conv(6, x=SQUARE, pad=[1, 0], stride=2, padding=1, gives="CONV_2D"),
    "conv after a pad of ones": conv(
        6, x=SQUARE, pad=[0, 1, 0, 1], pads_with=1.0, stride=2, gives=BEHIND_ONES
    ),
    "conv after a crop": conv(
        6, x=SQUARE, pad=[0, -1, 0, 0], stride=2, below_2=NO_SLICE, gives="STRIDED_SLICE CONV_2D"
    ),
    "conv with relu": conv(6, then=aten.relu.default, gives="CONV_2D"),
    "conv with relu6": conv(6, then=relu6, gives="CONV_2D"),
    "conv grouped with relu1": conv(
        6, groups=2, then=aten.hardtanh.default, below_2=NO_GROUPS, gives=GROUPED
    ),
    "conv with sigmoid": conv(6, then=aten.sigmoid.default, gives="CONV_2D LOGISTIC"),
    "conv contiguous": conv(
        6, order=FIRST, never=r"float32\[2x4x7x8\], NNAPI expects channels_last images"
    ),
    "conv1d": case(
        lambda x: aten.convolution.default(x, image(6, 4, 3), None, [1], [0], [1], False, [0], 1),
        image(2, 4, 9),
        never=r"a 1-d convolution \(input of rank 3\), NNAPI has 2-d ones only",
    ),
    "conv of computed weights": case(
        lambda x, y: convolve(y)(x), X, image(6, 4, 3, 3), never=COMPUTED
    ),
    "conv dilated, padded unevenly": conv(
        6, (3, 2), padding=(2, 1), dilation=(2, 3), below_2=NO_PHASES
    ),
    "conv dilated with a stride": conv(6, stride=2, dilation=2, below_2=NO_PHASES, gives=DILATED),
    "conv dilated in one direction": conv(3, dilation=(1, 3), below_2=NO_PHASES),
    "conv padded by more than its kernel": conv(
        5, (2, 1), padding=(2, 3), gives={27: f"{JOINED} CONV_2D", 28: "PAD CONV_2D"}
    ),
    "conv padded to its kernel's end": conv(5, (3, 4), padding=(2, 3), gives="CONV_2D"),
    "conv in groups with a stride, dilated": conv(
        8, groups=2, stride=(2, 1), dilation=2, below_2=NO_PHASES, gives=SPLIT
    ),
    "conv in many groups": conv(
        130, (1, 1), 65, x=image(1, 130, 2, 2), below_2="groups=65 by slices", below_3=MANY_GROUPS
    ),
    "conv depthwise, dilated with three filters": conv(
        12, (3, 2), 4, dilation=(2, 1), below_2=NO_PHASES
    ),
    "conv of one channel": conv(3, x=image(1, 1, 6, 6), gives="CONV_2D"),
    **{
        f"conv kernel {kernel} stride {stride} padding {padding}": conv(
            5, kernel, stride=stride, padding=padding, bias=False, gives="CONV_2D"
        )
        for kernel in ((1, 1), (2, 3), (5, 4))
        for stride in (1, (2, 3))
        for padding in ((0, 0), (1, 2))
        if padding[0] < kernel[0]
    },
}


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
    function=lambda layer, x: layer(x),
    **known,
):
    """``out`` channels for each group; ``function`` may call the layer between others."""
    weight = image(x.shape[1], out, *kernel, seed=4)
    offsets = image(out * groups, seed=5) if bias else None
    before = [d * (k - 1) - p for d, k, p in zip(dilation, kernel, padding, strict=True)]
    after = [b + o - s + 1 for b, o, s in zip(before, outpad, stride, strict=True)]
    if min(before + after) < 0:
        known.setdefault("below_2", "STRIDED_SLICE exists from level 2")
    layer = convolve(weight, offsets, stride, padding, dilation, groups, outpad)
    return case(lambda x: function(layer, x), x, **known)


IN_ONE = {29: "TRANSPOSE_CONV_2D"}

TRANSPOSED = {
    **{
        f"conv transposed, kernel {kernel} stride {stride} padding {padding} more {outpad}": (
            transposed(5, kernel, stride, padding, outpad, gives=IN_ONE, x=x)
        )
        for x in (image(2, 4, 4, 5),)
        for kernel in ((3, 3), (2, 4))
        for stride in ((1, 1), (2, 2), (2, 3))
        for padding in ((0, 0), (1, 1), (0, 2))
        for outpad in ((0, 0), (1, 0), (1, 1))
        if outpad[0] < stride[0] or outpad == (0, 0)
        if outpad[1] < stride[1]
    },
    "conv transposed": transposed(4, (3, 5), bias=False, gives={27: "CONV_2D", **IN_ONE}),
    "conv transposed, kernel smaller than its stride": transposed(3, (1, 2), (3, 3), gives=IN_ONE),
    "conv transposed, kernel smaller than its stride, longer": transposed(
        3, (1, 2), (3, 3), outpad=(2, 2), gives=IN_ONE
    ),
    "conv transposed without bias": transposed(3, (3, 3), (2, 2), bias=False),
    "conv transposed with relu": transposed(
        3, (3, 3), (2, 2), function=lambda layer, x: aten.relu.default(layer(x)), gives=IN_ONE
    ),
    "conv transposed after a pad": transposed(
        3,
        (3, 3),
        (2, 2),
        (1, 1),
        function=lambda layer, x: layer(aten.constant_pad_nd.default(x, [1, 0, 2, 1], 0.0)),
        gives={29: "PAD TRANSPOSE_CONV_2D"},
    ),
    "conv transposed in groups": transposed(
        3, (3, 3), (2, 2), (1, 1), (1, 1), 2, below_2=NO_GROUPS, gives=IN_GROUPS
    ),
    "conv transposed in groups of one channel": transposed(
        1, (4, 4), (2, 2), (1, 1), groups=4, gives=BY_CHANNEL
    ),
    "conv transposed in groups of one channel, two filters each": transposed(
        2, (3, 3), (2, 1), groups=4
    ),
    "conv transposed, dilated": transposed(
        3, (3, 2), (2, 2), (1, 1), (1, 0), dilation=(2, 3), below_2=NO_PHASES
    ),
    "conv transposed, dilated and longer than a stride allows": transposed(
        3, (3, 3), outpad=(1, 1), dilation=(2, 2), below_2=NO_PHASES
    ),
    "conv transposed, cropped to less than the image": transposed(3, (2, 2), (1, 1), (2, 2)),
    "conv transposed of computed weights": case(
        lambda x, y: convolve(y, transposed=0)(x), X, image(4, 2, 3, 3), never=COMPUTED
    ),
}


def linear(x, bias=None, then=None, **known):
    def function(y):
        y = aten.linear.default(y, W["linear"], bias)
        return y if then is None else then(y)

    return case(function, x, **known)


LINEAR = {
    "linear": linear(image(3, 7), W["five"], gives="FULLY_CONNECTED"),
    "linear with relu": linear(image(3, 7), W["five"], aten.relu.default, gives="FULLY_CONNECTED"),
    "linear without bias": linear(image(3, 7)),
    "linear of rank 1": linear(image(7), gives="RESHAPE FULLY_CONNECTED RESHAPE"),
    "linear of rank 3": linear(image(2, 3, 7), gives="FULLY_CONNECTED RESHAPE"),
    "linear of rank 4": linear(image(2, 3, 2, 7), order=FIRST),
}
