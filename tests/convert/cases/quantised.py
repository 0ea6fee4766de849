"""Quantised operations and layers, and NNAPI's rules for their scales."""

import torch
from torch import fx

from nnapi_prof.graph.quantisation import DEQUANTIZE, DEQUANTIZE_CHANNELS, QUANTIZE
from tests.convert.cases.common import NEEDS_3, call, case
from tests.convert.cases.convolution import DEPTHWISE
from tests.convert.cases.convolution import GROUPED as BY_GROUPS
from tests.convert.harness import FIRST, aten, image

STEP = {"atol": 1, "rtol": 0}
U8, I8 = (0, 255, torch.uint8), (-128, 127, torch.int8)
IN, OUT = (0.05, 120), (0.1, 100)


def integers(*shape, low=0, high=256, dtype=torch.uint8, seed=0):
    numbers = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randint(low, high, shape, generator=numbers).to(dtype)


def weights(*shape):
    return integers(*shape, low=-127, high=128, dtype=torch.int8)


floats = image


IMAGE, OTHER = integers(1, 4, 6, 8), integers(1, 4, 6, 8, seed=5)
ROWS = integers(3, 8)


def quantised(
    function, *arguments, given=(IN, (0.04, 110)), out=OUT, limits=U8, in_floats=None, **options
):
    """A case of a function, or of a call, on the numbers of its tensors, quantized to the scale and
    zero point ``out``. ``given`` has those of the tensors, ``in_floats`` the operations of a
    composition that is not quant8. One step is allowed."""
    if in_floats is not None:
        options["gives"] = f"DEQUANTIZE {in_floats} QUANTIZE"
    inputs = [value for value in arguments if isinstance(value, torch.Tensor)]
    function = call(function, arguments, {})

    def one(x):
        return QUANTIZE(function(DEQUANTIZE(x, *given[0], *limits)), *out, *limits)

    def two(x, y):
        numbers = function(DEQUANTIZE(x, *given[0], *limits), DEQUANTIZE(y, *given[1], *limits))
        return QUANTIZE(numbers, *out, *limits)

    return case(one if len(inputs) == 1 else two, *inputs, **STEP, **options)


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


def relu6(x):
    return aten.hardtanh.default(x, 0.0, 6.0)


def added(then):
    return lambda x, y: then(aten.add.Tensor(x, y))


def joined(x, y):
    return aten.cat.default([x, y], 1)


AVERAGE = (aten.avg_pool2d, IMAGE, [3, 3], [2, 2], [1, 1], False, False)
FOUR = integers(1, 4, 1, 1)
SIGMOID = (1 / 256, 0)
FINE, PART = (0.05, 7, *U8), (0, 127, torch.uint8)
LARGE = integers(1, 4, 6, 8, low=150)
NEAREST = {29: "RESIZE_NEAREST_NEIGHBOR"}
NO_QUANTIZE, NO_SIGNED = f"QUANTIZE needs {NEEDS_3}", "TENSOR_QUANT8_ASYMM_SIGNED from level 4"
NO_MUL = "MUL wants a scale of its result above the product"
NO_TANH = "TANH takes TENSOR_QUANT8_ASYMM from level 3"
NO_VALUES = "a float constant of several values"
TWO_SCALES = "CONCATENATION below .* wants one scale and zero point"
PADDED = {27: "CONCATENATION", 28: "RESHAPE PAD RESHAPE", 29: "PAD"}
SCALE = "NNAPI gives QUANT8_ASYMM of scale"
SIGNED = {"given": ((0.05, 3),), "out": (1 / 256, -128), "limits": I8}
TWICE = "would round what was rounded before"
FROM_29 = {"below_3": "."}
PAD = (aten.constant_pad_nd, ROWS, [1, 2])

QUANTISED = {
    "quantize": case(QUANTIZE, floats(3, 5), *FINE, below_3=NO_QUANTIZE, gives="QUANTIZE", **STEP),
    "quantize to part of a type": case(
        QUANTIZE, floats(3, 5), 0.05, 7, *PART, never="integers of torch.uint8 from 0 to 127"
    ),
    "dequantize": case(DEQUANTIZE, IMAGE, *FINE, gives="DEQUANTIZE"),
    "dequantize signed": case(
        DEQUANTIZE, weights(3, 4), 0.05, -7, *I8, below_4=NO_SIGNED, gives="DEQUANTIZE"
    ),
    "requantize": quantised(
        lambda x: x, ROWS, below_3=f"no requantising; .*{NO_QUANTIZE}", gives="DEQUANTIZE QUANTIZE"
    ),
    "add": quantised(aten.add.Tensor, IMAGE, OTHER, gives="ADD"),
    "add relu": quantised(
        added(aten.relu.default), IMAGE, OTHER, gives={27: "ADD RELU", 29: "ADD"}
    ),
    "add relu6": quantised(added(relu6), IMAGE, OTHER, gives={27: "ADD RELU6", 29: "ADD"}),
    "add relu, broadcast": quantised(added(aten.relu.default), IMAGE, FOUR, gives="ADD"),
    "add broadcast": quantised(aten.add.Tensor, IMAGE, FOUR, gives="ADD"),
    "add number": quantised(aten.add.Tensor, IMAGE, -1.5, gives="ADD"),
    "add constant": quantised(
        lambda x: aten.add.Tensor(x, per_tensor(weights(8), 0.03, 4)(x)), ROWS, gives="ADD"
    ),
    "add float constant": quantised(
        lambda x: aten.add.Tensor(x, floats(8)), ROWS, below_3=NO_VALUES, in_floats="ADD"
    ),
    "mul": quantised(aten.mul.Tensor, IMAGE, OTHER, gives="MUL"),
    "mul number": quantised(aten.mul.Tensor, IMAGE, 2.5, gives="MUL"),
    "mul small scale": quantised(
        aten.mul.Tensor, IMAGE, OTHER, out=(0.001, 3), below_3=NO_MUL, in_floats="DEQUANTIZE MUL"
    ),
    "sub": quantised(aten.sub.Tensor, IMAGE, OTHER, **FROM_29, gives="SUB"),
    "div": quantised(aten.div.Tensor, IMAGE, LARGE, **FROM_29, in_floats="DEQUANTIZE DIV"),
    "maximum": quantised(aten.maximum, IMAGE, OTHER, **FROM_29, gives="MAXIMUM"),
    "cat of one scale": quantised(joined, IMAGE, OTHER, given=(OUT, OUT), gives="CONCATENATION"),
    "cat": quantised(joined, IMAGE, OTHER, below_3=TWO_SCALES, gives="CONCATENATION"),
    "max_pool2d": quantised(aten.max_pool2d, IMAGE, [2, 2], out=IN, gives="MAX_POOL_2D"),
    "avg_pool2d": quantised(*AVERAGE, out=IN, gives="AVERAGE_POOL_2D"),
    "avg_pool2d to another scale": quantised(
        *AVERAGE, below_3=f"{SCALE} 0.05 and zero point 120", in_floats="AVERAGE_POOL_2D"
    ),
    "adaptive_avg_pool2d": quantised(
        aten.adaptive_avg_pool2d, IMAGE, [1, 1], out=IN, gives="AVERAGE_POOL_2D"
    ),
    "mean of images": quantised(
        aten.mean.dim, IMAGE, [2, 3], out=IN, gives="AVERAGE_POOL_2D RESHAPE"
    ),
    "relu": quantised(aten.relu, IMAGE, out=IN, gives="RELU"),
    "relu6": quantised(relu6, IMAGE, out=IN, gives="RELU6"),
    "sigmoid": quantised(aten.sigmoid, IMAGE, out=SIGMOID, gives="LOGISTIC"),
    "sigmoid to another scale": quantised(
        aten.sigmoid,
        IMAGE,
        out=(1 / 128, 0),
        below_3=f"{SCALE} 0.00390625 and zero point 0 here.*0.0078125",
        in_floats="LOGISTIC",
    ),
    "sigmoid signed": quantised(
        aten.sigmoid, weights(3, 4), **SIGNED, below_4=NO_SIGNED, gives="LOGISTIC"
    ),
    "tanh": quantised(aten.tanh, IMAGE, out=(1 / 128, 128), below_3=NO_TANH, gives="TANH"),
    "softmax": quantised(aten.softmax.int, ROWS, -1, out=SIGMOID, gives="SOFTMAX"),
    "clamp": quantised(
        aten.clamp, IMAGE, -0.4, 0.7, out=IN, below_3=TWICE, gives="MAXIMUM MINIMUM"
    ),
    "clamp to a scale that has no number for its bounds": quantised(
        aten.clamp, IMAGE, -0.43, 0.71, below_3=TWICE, gives="MAXIMUM MINIMUM"
    ),
    "hardswish": quantised(aten.hardswish, IMAGE, gives={27: "ADD MUL MUL", 30: "HARD_SWISH"}),
    "silu": quantised(aten.silu, IMAGE, gives="LOGISTIC MUL"),
    "gelu": quantised(aten.gelu, IMAGE, gives="MUL MUL ADD MUL LOGISTIC MUL"),
    "gelu of finer steps than the way": quantised(
        aten.gelu, IMAGE, out=(0.01, 100), below_3="would move results by 2.6 steps, less than one"
    ),
    "neg": quantised(aten.neg, IMAGE, gives="MUL"),
    "div by a number": quantised(aten.div.Tensor, IMAGE, 0.7, gives="MUL"),
    "leaky_relu": quantised(aten.leaky_relu, IMAGE, 0.1, **FROM_29, gives="PRELU"),
    "upsample_nearest2d": quantised(
        aten.upsample_nearest2d.vec, IMAGE, [12, 16], None, out=IN, gives=NEAREST
    ),
    "pad of zero point 0": quantised(*PAD, 0.0, given=((0.05, 0),), out=(0.05, 0), gives=PADDED),
    "pad": quantised(
        *PAD, 0.0, out=IN, refused={28: "with a zero point not 0 needs level 3"}, gives=PADDED
    ),
    "pad by a value": quantised(*PAD, 1.0, out=IN, gives={27: "CONCATENATION", 29: "PAD_V2"}),
    "view": case(
        lambda x: DEQUANTIZE(aten.view.default(x, [4, 48]), *FINE),
        IMAGE,
        order=FIRST,
        gives="RESHAPE DEQUANTIZE",
    ),
    "permute and slice": case(
        lambda x: DEQUANTIZE(aten.slice.Tensor(aten.permute.default(x, [1, 0]), 0, 1, 6, 2), *FINE),
        ROWS,
        below_2="TRANSPOSE",
        gives="TRANSPOSE STRIDED_SLICE DEQUANTIZE",
    ),
    "integers of a quantised value": case(
        lambda x: aten.add.Tensor(aten.relu.default(x), DEQUANTIZE(x, *FINE)), ROWS, never="uint8"
    ),
}


FILTERS = weights(6, 4, 3, 3)
PLAIN, CHANNELS = per_tensor(FILTERS), per_channel(FILTERS)
GROUPED, UP = weights(6, 2, 3, 3), weights(4, 6, 3, 3)
LINES = per_tensor(weights(5, 8))
SIX, FIVE = floats(6), floats(5)
CHANNELED = {"below_3": f"a filter with a scale for each channel needs {NEEDS_3}"}
SIGNED_IMAGE = {"x": weights(1, 4, 6, 8), "given": ((0.05, -3),), "out": (0.1, 5), "limits": I8}


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
    "conv weight with a zero point": conv(per_tensor(FILTERS, 0.01, -20), gives="CONV_2D"),
    "conv small scale": conv(
        PLAIN, out=(0.0004, 3), below_3="input x filter scale .*, found 0.0004 and", gives="CONV_2D"
    ),
    "conv channels": conv(CHANNELS, padding=1, **CHANNELED, gives="CONV_2D"),
    "conv channels with zero points": conv(
        per_channel(FILTERS, zeros=torch.arange(6) % 2), **CHANNELED, in_floats="CONV_2D"
    ),
    "conv input channels": conv(per_channel(FILTERS, axis=1), **CHANNELED, in_floats="CONV_2D"),
    "conv large bias": conv(
        per_tensor(FILTERS, 1e-7),
        SIX * 100,
        out=(4.0, 100),
        below_3="the bias goes to .*INT32 is what NNAPI takes",
        in_floats="CONV_2D",
    ),
    "conv float weights": conv(
        lambda x: floats(6, 4, 3, 3), below_3="float32 weights, quantised ones", in_floats="CONV_2D"
    ),
    "conv depthwise": conv(
        per_tensor(weights(4, 1, 3, 3)), floats(4), padding=1, groups=4, gives=DEPTHWISE
    ),
    "conv depthwise channels": conv(
        per_channel(weights(8, 1, 3, 3)), floats(8), groups=4, **CHANNELED, gives=DEPTHWISE
    ),
    "conv grouped": conv(per_tensor(GROUPED), groups=2, below_2="groups=2", gives=BY_GROUPS),
    "conv grouped channels": conv(
        per_channel(GROUPED), groups=2, below_2="groups=2", **CHANNELED, gives="GROUPED_CONV_2D"
    ),
    "conv dilated": conv(
        PLAIN, padding=2, dilation=2, below_2="dilation", below_3="zero point not", gives="CONV_2D"
    ),
    "conv padded": conv(PLAIN, pad=[0, 1, 2, 1], gives="CONV_2D"),
    "conv signed": conv(
        CHANNELS, **SIGNED_IMAGE, **CHANNELED, refused={29: NO_SIGNED}, gives="CONV_2D"
    ),
    "conv signed per tensor": conv(
        PLAIN, then=relu6, **SIGNED_IMAGE, below_4=NO_SIGNED, gives="CONV_2D"
    ),
    "conv transposed": conv(
        per_tensor(UP), stride=2, transposed=True, **FROM_29, gives="TRANSPOSE_CONV_2D"
    ),
    "conv transposed channels": conv(
        per_channel(UP, axis=1), stride=2, transposed=True, **FROM_29, gives="TRANSPOSE_CONV_2D"
    ),
    "linear": linear(LINES, gives="FULLY_CONNECTED"),
    "linear relu": linear(LINES, None, then=aten.relu.default, gives="FULLY_CONNECTED"),
    "linear rank 3": linear(LINES, x=integers(2, 3, 8), gives="FULLY_CONNECTED RESHAPE"),
    "linear channels": linear(
        per_channel(weights(5, 8)), **CHANNELED, gives="RESHAPE CONV_2D RESHAPE"
    ),
}
