"""Operations between dequantize and quantize nodes, and NNAPI's rules for their scales."""

import torch
from torch import fx

from nnapi_prof.graph.quantisation import DEQUANTIZE, DEQUANTIZE_CHANNELS, QUANTIZE
from tests.convert.cases.common import NEEDS_3, all_levels
from tests.convert.harness import FIRST, LEVELS, Case, aten

U8, I8 = (0, 255, torch.uint8), (-128, 127, torch.int8)
BELOW_3 = (27, 28)
IN, OUT = (0.05, 120), (0.1, 100)


def integers(*shape, low=0, high=256, dtype=torch.uint8, seed=0):
    numbers = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randint(low, high, shape, generator=numbers).to(dtype)


def weights(*shape):
    return integers(*shape, low=-127, high=128, dtype=torch.int8)


def floats(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


IMAGE, OTHER = integers(1, 4, 6, 8), integers(1, 4, 6, 8, seed=5)
ROWS = integers(3, 8)


def quantised(function, *inputs, given=(IN, (0.04, 110)), out=OUT, limits=U8, **options):
    """A case of ``function`` on the numbers of ``inputs``, quantized to the scale and zero point
    ``out``. ``given`` has those of the inputs. One step is allowed."""

    def one(x):
        return QUANTIZE(function(DEQUANTIZE(x, *given[0], *limits)), *out, *limits)

    def two(x, y):
        numbers = function(DEQUANTIZE(x, *given[0], *limits), DEQUANTIZE(y, *given[1], *limits))
        return QUANTIZE(numbers, *out, *limits)

    options = {"atol": 1, "rtol": 0, **options}
    return Case(one if len(inputs) == 1 else two, inputs, **options)


def constant(beside, values):
    """A constant of its own in the graph that is traced: a call on none but constants is not."""
    if not isinstance(beside, fx.Proxy):
        return values
    return fx.Proxy(beside.tracer.create_arg(values), beside.tracer)


def per_tensor(values, scale=0.01, zero=0):
    return lambda x: DEQUANTIZE(constant(x, values), scale, zero, *I8)


def per_channel(values, axis=0, zeros=None):
    n = values.shape[axis]
    scales = torch.linspace(0.004, 0.012, n, dtype=torch.float64)
    zeros = torch.zeros(n, dtype=torch.int64) if zeros is None else zeros
    return lambda x: DEQUANTIZE_CHANNELS(constant(x, values), scales, zeros, axis, *I8)


def conv(weight, bias, *, stride=1, padding=0, dilation=1, transposed=False, groups=1, then=None):
    """A convolution by a quantised weight, and an activation."""
    pairs = [[size] * 2 for size in (stride, padding, dilation)]

    def function(x):
        args = (x, weight(x), bias, *pairs, transposed, [0, 0], groups)
        found = aten.convolution.default(*args)
        return found if then is None else then(found)

    return function


def linear(weight, bias):
    return lambda x: aten.linear.default(x, weight(x), bias)


def relu6(x):
    return aten.hardtanh.default(x, 0.0, 6.0)


PLAIN, CHANNELS = per_tensor(weights(6, 4, 3, 3)), per_channel(weights(6, 4, 3, 3))
DEPTH = weights(4, 1, 3, 3)
SIX = floats(6)
BY_CHANNELS = f"a filter with a scale for each channel needs {NEEDS_3}"
IN_FLOATS = "DEQUANTIZE {} QUANTIZE"


def in_floats(*names):
    """The operations of a composition that is not quant8."""
    return {29: IN_FLOATS.format(" ".join(names))}


QUANTISED = {
    "quantize": Case(
        lambda x: QUANTIZE(x, 0.05, 7, *U8),
        (floats(1, 4, 3, 5),),
        refused=all_levels(f"QUANTIZE needs {NEEDS_3}", 29),
        operations={29: "QUANTIZE"},
        atol=1,
        rtol=0,
    ),
    "quantize to part of a type": Case(
        lambda x: QUANTIZE(x, 0.05, 7, 0, 127, torch.uint8),
        (floats(3, 5),),
        refused=dict.fromkeys(LEVELS, "integers of torch.uint8 from 0 to 127"),
    ),
    "dequantize": Case(
        lambda x: DEQUANTIZE(x, 0.05, 7, *U8), (IMAGE,), operations={27: "DEQUANTIZE"}
    ),
    "dequantize signed": Case(
        lambda x: DEQUANTIZE(x, 0.05, -7, *I8),
        (weights(3, 4),),
        refused=all_levels("takes TENSOR_QUANT8_ASYMM_SIGNED from level 4", 30),
        operations={30: "DEQUANTIZE"},
    ),
    "requantize": quantised(
        lambda x: x,
        ROWS,
        refused=dict.fromkeys(BELOW_3, f"no requantising; .*QUANTIZE needs {NEEDS_3}"),
        operations={29: "DEQUANTIZE QUANTIZE"},
    ),
    "conv": quantised(conv(PLAIN, SIX, padding=1), IMAGE, operations={27: "CONV_2D"}),
    "conv relu": quantised(
        conv(PLAIN, None, stride=2, then=aten.relu.default), IMAGE, operations={27: "CONV_2D"}
    ),
    "conv relu6": quantised(conv(PLAIN, SIX, then=relu6), IMAGE, operations={27: "CONV_2D"}),
    "conv weight with a zero point": quantised(
        conv(per_tensor(weights(6, 4, 3, 3), 0.01, -20), SIX), IMAGE, operations={27: "CONV_2D"}
    ),
    "conv small scale": quantised(
        conv(PLAIN, SIX),
        IMAGE,
        out=(0.0004, 3),
        refused=dict.fromkeys(BELOW_3, "above input x filter scale below .*, found 0.0004 and"),
        operations={29: "CONV_2D"},
    ),
    "conv channels": quantised(
        conv(CHANNELS, SIX, padding=1),
        IMAGE,
        refused=dict.fromkeys(BELOW_3, BY_CHANNELS),
        operations={29: "CONV_2D"},
    ),
    "conv channels with zero points": quantised(
        conv(per_channel(weights(6, 4, 3, 3), zeros=torch.tensor([0, 1, 0, 0, 0, 0])), SIX),
        IMAGE,
        refused=dict.fromkeys(BELOW_3, BY_CHANNELS),
        operations=in_floats("CONV_2D"),
    ),
    "conv input channels": quantised(
        conv(per_channel(weights(6, 4, 3, 3), axis=1), SIX),
        IMAGE,
        refused=dict.fromkeys(BELOW_3, BY_CHANNELS),
        operations=in_floats("CONV_2D"),
    ),
    "conv large bias": quantised(
        conv(per_tensor(weights(6, 4, 3, 3), 1e-7), SIX * 100),
        IMAGE,
        out=(4.0, 100),
        refused=dict.fromkeys(BELOW_3, "the bias goes to .*INT32 is what NNAPI takes"),
        operations=in_floats("CONV_2D"),
    ),
    "conv float weights": quantised(
        conv(lambda x: floats(6, 4, 3, 3), SIX),
        IMAGE,
        refused=dict.fromkeys(BELOW_3, "float32 weights, quantised ones are wanted"),
        operations=in_floats("CONV_2D"),
    ),
    "conv depthwise": quantised(
        conv(per_tensor(DEPTH), floats(4), padding=1, groups=4),
        IMAGE,
        operations={27: "DEPTHWISE_CONV_2D"},
    ),
    "conv depthwise channels": quantised(
        conv(per_channel(weights(8, 1, 3, 3)), floats(8), groups=4),
        IMAGE,
        refused=dict.fromkeys(BELOW_3, BY_CHANNELS),
        operations={29: "DEPTHWISE_CONV_2D"},
    ),
    "conv grouped": quantised(
        conv(per_tensor(weights(6, 2, 3, 3)), SIX, groups=2),
        IMAGE,
        refused={27: "groups=2"},
        operations={
            28: "STRIDED_SLICE STRIDED_SLICE CONV_2D CONV_2D CONCATENATION",
            29: "GROUPED_CONV_2D",
        },
    ),
    "conv grouped channels": quantised(
        conv(per_channel(weights(6, 2, 3, 3)), SIX, groups=2),
        IMAGE,
        refused={27: "groups=2", 28: BY_CHANNELS},
        operations={29: "GROUPED_CONV_2D"},
    ),
    "conv dilated": quantised(
        conv(PLAIN, SIX, padding=2, dilation=2),
        IMAGE,
        refused={27: "dilation", 28: "zero point not 0 needs"},
        operations={29: "CONV_2D"},
    ),
    "conv padded": quantised(
        lambda x: conv(PLAIN, SIX)(aten.constant_pad_nd.default(x, [0, 1, 2, 1], 0.0)),
        IMAGE,
        operations={27: "CONV_2D"},
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
        refused=all_levels("SIGNED from level 4", 30),
        operations={30: "CONV_2D"},
    ),
    "conv transposed": quantised(
        conv(per_tensor(weights(4, 6, 3, 3)), SIX, stride=2, transposed=True),
        IMAGE,
        refused=dict.fromkeys(BELOW_3, "."),
        operations={29: "TRANSPOSE_CONV_2D"},
    ),
    "conv transposed channels": quantised(
        conv(per_channel(weights(4, 6, 3, 3), axis=1), SIX, stride=2, transposed=True),
        IMAGE,
        refused=dict.fromkeys(BELOW_3, "."),
        operations={29: "TRANSPOSE_CONV_2D"},
    ),
    "linear": quantised(
        linear(per_tensor(weights(5, 8)), floats(5)), ROWS, operations={27: "FULLY_CONNECTED"}
    ),
    "linear relu": quantised(
        lambda x: aten.relu.default(linear(per_tensor(weights(5, 8)), None)(x)),
        ROWS,
        operations={27: "FULLY_CONNECTED"},
    ),
    "linear rank 3": quantised(
        linear(per_tensor(weights(5, 8)), floats(5)),
        integers(2, 3, 8),
        operations={27: "FULLY_CONNECTED RESHAPE"},
    ),
    "linear channels": quantised(
        linear(per_channel(weights(5, 8)), floats(5)),
        ROWS,
        refused=dict.fromkeys(BELOW_3, BY_CHANNELS),
        operations={29: "RESHAPE CONV_2D RESHAPE"},
    ),
    "add": quantised(aten.add.Tensor, IMAGE, OTHER, operations={27: "ADD"}),
    "add relu": quantised(
        lambda x, y: aten.relu.default(aten.add.Tensor(x, y)),
        IMAGE,
        OTHER,
        operations={27: "ADD"},
    ),
    "add broadcast": quantised(
        aten.add.Tensor, IMAGE, integers(1, 4, 1, 1), operations={27: "ADD"}
    ),
    "add number": quantised(lambda x: aten.add.Tensor(x, -1.5), IMAGE, operations={27: "ADD"}),
    "add constant": quantised(
        lambda x: aten.add.Tensor(x, per_tensor(weights(8), 0.03, 4)(x)),
        ROWS,
        operations={27: "ADD"},
    ),
    "add float constant": quantised(
        lambda x: aten.add.Tensor(x, floats(8)),
        ROWS,
        refused=dict.fromkeys(BELOW_3, "a float constant of several values"),
        operations=in_floats("ADD"),
    ),
    "mul": quantised(aten.mul.Tensor, IMAGE, OTHER, operations={27: "MUL"}),
    "mul number": quantised(lambda x: aten.mul.Tensor(x, 2.5), IMAGE, operations={27: "MUL"}),
    "mul small scale": quantised(
        aten.mul.Tensor,
        IMAGE,
        OTHER,
        out=(0.001, 3),
        refused=dict.fromkeys(BELOW_3, "MUL wants a scale of its result above the product"),
        operations=in_floats("DEQUANTIZE MUL"),
    ),
    "sub": quantised(
        aten.sub.Tensor,
        IMAGE,
        OTHER,
        refused=dict.fromkeys(BELOW_3, "."),
        operations={29: "SUB"},
    ),
    "div": quantised(
        lambda x, y: aten.div.Tensor(x, y),
        IMAGE,
        integers(1, 4, 6, 8, low=150),
        refused=dict.fromkeys(BELOW_3, "."),
        operations=in_floats("DEQUANTIZE DIV"),
    ),
    "maximum": quantised(
        aten.maximum.default,
        IMAGE,
        OTHER,
        refused=dict.fromkeys(BELOW_3, "."),
        operations={29: "MAXIMUM"},
    ),
    "cat of one scale": quantised(
        lambda x, y: aten.cat.default([x, y], 1),
        IMAGE,
        OTHER,
        given=(OUT, OUT),
        operations={27: "CONCATENATION"},
    ),
    "cat": quantised(
        lambda x, y: aten.cat.default([x, y], 1),
        IMAGE,
        OTHER,
        refused=dict.fromkeys(BELOW_3, "CONCATENATION below .* wants one scale and zero point"),
        operations={29: "CONCATENATION"},
    ),
    "max_pool2d": quantised(
        lambda x: aten.max_pool2d.default(x, [2, 2], [2, 2], [0, 0], [1, 1], False),
        IMAGE,
        out=IN,
        operations={27: "MAX_POOL_2D"},
    ),
    "avg_pool2d": quantised(
        lambda x: aten.avg_pool2d.default(x, [3, 3], [2, 2], [1, 1], False, False, None),
        IMAGE,
        out=IN,
        operations={27: "AVERAGE_POOL_2D"},
    ),
    "avg_pool2d to another scale": quantised(
        lambda x: aten.avg_pool2d.default(x, [3, 3], [2, 2], [1, 1], False, False, None),
        IMAGE,
        refused=dict.fromkeys(BELOW_3, "NNAPI gives QUANT8_ASYMM of scale 0.05 and zero point 120"),
        operations=in_floats("AVERAGE_POOL_2D"),
    ),
    "adaptive_avg_pool2d": quantised(
        lambda x: aten.adaptive_avg_pool2d.default(x, [1, 1]),
        IMAGE,
        out=IN,
        operations={27: "AVERAGE_POOL_2D"},
    ),
    "mean of images": quantised(
        lambda x: aten.mean.dim(x, [2, 3], False),
        IMAGE,
        out=IN,
        operations={27: "AVERAGE_POOL_2D RESHAPE"},
    ),
    "relu": quantised(aten.relu.default, IMAGE, out=IN, operations={27: "RELU"}),
    "relu6": quantised(relu6, IMAGE, out=IN, operations={27: "RELU6"}),
    "sigmoid": quantised(
        aten.sigmoid.default, IMAGE, out=(1 / 256, 0), operations={27: "LOGISTIC"}
    ),
    "sigmoid to another scale": quantised(
        aten.sigmoid.default,
        IMAGE,
        out=(1 / 128, 0),
        refused=dict.fromkeys(
            BELOW_3, "scale 0.00390625 and zero point 0 here, the model wants .*0.0078125"
        ),
        operations=in_floats("LOGISTIC"),
    ),
    "sigmoid signed": quantised(
        aten.sigmoid.default,
        weights(3, 4),
        given=((0.05, 3),),
        out=(1 / 256, -128),
        limits=I8,
        refused=all_levels("SIGNED from level 4", 30),
        operations={30: "LOGISTIC"},
    ),
    "tanh": quantised(
        aten.tanh.default,
        IMAGE,
        out=(1 / 128, 128),
        refused=dict.fromkeys(BELOW_3, "TANH takes TENSOR_QUANT8_ASYMM from level 3"),
        operations={29: "TANH"},
    ),
    "softmax": quantised(
        lambda x: aten.softmax.int(x, -1), ROWS, out=(1 / 256, 0), operations={27: "SOFTMAX"}
    ),
    "hardswish": quantised(
        aten.hardswish.default,
        IMAGE,
        refused=dict.fromkeys(BELOW_3, "would round what was rounded before"),
        operations={29: IN_FLOATS.format("ADD MUL MUL"), 30: "HARD_SWISH"},
    ),
    "leaky_relu": quantised(
        lambda x: aten.leaky_relu.default(x, 0.1),
        IMAGE,
        refused=dict.fromkeys(BELOW_3, "."),
        operations={29: "PRELU"},
    ),
    "upsample_nearest2d": quantised(
        lambda x: aten.upsample_nearest2d.vec(x, [12, 16], None),
        IMAGE,
        out=IN,
        operations={29: "RESIZE_NEAREST_NEIGHBOR"},
    ),
    "pad of zero point 0": quantised(
        lambda x: aten.constant_pad_nd.default(x, [1, 2], 0.0),
        ROWS,
        given=((0.05, 0),),
        out=(0.05, 0),
        operations={27: "CONCATENATION", 28: "PAD"},
    ),
    "pad": quantised(
        lambda x: aten.constant_pad_nd.default(x, [1, 2], 0.0),
        ROWS,
        out=IN,
        refused={28: "with a zero point not 0 needs level 3"},
        operations={27: "CONCATENATION", 29: "PAD"},
    ),
    "pad by a value": quantised(
        lambda x: aten.constant_pad_nd.default(x, [1, 2], 1.0),
        ROWS,
        out=IN,
        operations={27: "CONCATENATION", 29: "PAD_V2"},
    ),
    "view": Case(
        lambda x: DEQUANTIZE(aten.view.default(x, [4, 48]), 0.05, 7, *U8),
        (IMAGE,),
        order=FIRST,
        operations={27: "RESHAPE DEQUANTIZE"},
    ),
    "permute and slice": Case(
        lambda x: DEQUANTIZE(
            aten.slice.Tensor(aten.permute.default(x, [1, 0]), 0, 1, 6, 2), 0.05, 7, *U8
        ),
        (ROWS,),
        refused={27: "TRANSPOSE"},
        operations={28: "TRANSPOSE STRIDED_SLICE DEQUANTIZE"},
    ),
    "integers of a quantised value": Case(
        lambda x: aten.add.Tensor(aten.relu.default(x), DEQUANTIZE(x, 0.05, 7, *U8)),
        (ROWS,),
        refused=dict.fromkeys(LEVELS, "uint8"),
    ),
}
