"""Operations between dequantize and quantize nodes, and NNAPI's rules for their scales."""

import torch

from nnapi_prof.graph.quantisation import DEQUANTIZE, QUANTIZE
from tests.convert.cases.common import NEEDS_3, case
from tests.convert.cases.quantised_common import (
    I8,
    IMAGE,
    IN,
    OTHER,
    OUT,
    ROWS,
    U8,
    floats,
    in_floats,
    integers,
    per_tensor,
    quantised,
    relu6,
    weights,
)
from tests.convert.harness import FIRST, aten


def added(then):
    return lambda x, y: then(aten.add.Tensor(x, y))


def joined(x, y):
    return aten.cat.default([x, y], 1)


AVERAGE = (aten.avg_pool2d, IMAGE, [3, 3], [2, 2], [1, 1], False, False)
CHANNELS = integers(1, 4, 1, 1)
SIGMOID = (1 / 256, 0)
SIGNED = {"given": ((0.05, 3),), "out": (1 / 256, -128), "limits": I8}
TWICE = "would round what was rounded before"
FROM_29 = {"below_3": "."}

QUANTISED = {
    "quantize": case(
        QUANTIZE,
        floats(1, 4, 3, 5),
        *(0.05, 7, *U8),
        below_3=f"QUANTIZE needs {NEEDS_3}",
        gives="QUANTIZE",
        atol=1,
        rtol=0,
    ),
    "quantize to part of a type": case(
        QUANTIZE,
        floats(3, 5),
        *(0.05, 7, 0, 127, torch.uint8),
        never="integers of torch.uint8 from 0 to 127",
    ),
    "dequantize": case(DEQUANTIZE, IMAGE, 0.05, 7, *U8, gives="DEQUANTIZE"),
    "dequantize signed": case(
        DEQUANTIZE,
        weights(3, 4),
        *(0.05, -7, *I8),
        below_4="takes TENSOR_QUANT8_ASYMM_SIGNED from level 4",
        gives="DEQUANTIZE",
    ),
    "requantize": quantised(
        lambda x: x,
        ROWS,
        below_3=f"no requantising; .*QUANTIZE needs {NEEDS_3}",
        gives="DEQUANTIZE QUANTIZE",
    ),
    "add": quantised(aten.add.Tensor, IMAGE, OTHER, gives="ADD"),
    "add relu": quantised(
        added(aten.relu.default), IMAGE, OTHER, gives={27: "ADD RELU", 29: "ADD"}
    ),
    "add relu6": quantised(added(relu6), IMAGE, OTHER, gives={27: "ADD RELU6", 29: "ADD"}),
    "add relu, broadcast": quantised(added(aten.relu.default), IMAGE, CHANNELS, gives="ADD"),
    "add broadcast": quantised(aten.add.Tensor, IMAGE, CHANNELS, gives="ADD"),
    "add number": quantised(aten.add.Tensor, IMAGE, -1.5, gives="ADD"),
    "add constant": quantised(
        lambda x: aten.add.Tensor(x, per_tensor(weights(8), 0.03, 4)(x)), ROWS, gives="ADD"
    ),
    "add float constant": quantised(
        lambda x: aten.add.Tensor(x, floats(8)),
        ROWS,
        below_3="a float constant of several values",
        gives=in_floats("ADD"),
    ),
    "mul": quantised(aten.mul.Tensor, IMAGE, OTHER, gives="MUL"),
    "mul number": quantised(aten.mul.Tensor, IMAGE, 2.5, gives="MUL"),
    "mul small scale": quantised(
        aten.mul.Tensor,
        *(IMAGE, OTHER),
        out=(0.001, 3),
        below_3="MUL wants a scale of its result above the product",
        gives=in_floats("DEQUANTIZE MUL"),
    ),
    "sub": quantised(aten.sub.Tensor, IMAGE, OTHER, **FROM_29, gives="SUB"),
    "div": quantised(
        aten.div.Tensor,
        *(IMAGE, integers(1, 4, 6, 8, low=150)),
        **FROM_29,
        gives=in_floats("DEQUANTIZE DIV"),
    ),
    "maximum": quantised(aten.maximum, IMAGE, OTHER, **FROM_29, gives="MAXIMUM"),
    "cat of one scale": quantised(joined, IMAGE, OTHER, given=(OUT, OUT), gives="CONCATENATION"),
    "cat": quantised(
        joined,
        *(IMAGE, OTHER),
        below_3="CONCATENATION below .* wants one scale and zero point",
        gives="CONCATENATION",
    ),
    "max_pool2d": quantised(aten.max_pool2d, IMAGE, [2, 2], out=IN, gives="MAX_POOL_2D"),
    "avg_pool2d": quantised(*AVERAGE, out=IN, gives="AVERAGE_POOL_2D"),
    "avg_pool2d to another scale": quantised(
        *AVERAGE,
        below_3="NNAPI gives QUANT8_ASYMM of scale 0.05 and zero point 120",
        gives=in_floats("AVERAGE_POOL_2D"),
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
        below_3="scale 0.00390625 and zero point 0 here, the model wants .*0.0078125",
        gives=in_floats("LOGISTIC"),
    ),
    "sigmoid signed": quantised(
        aten.sigmoid, weights(3, 4), **SIGNED, below_4="SIGNED from level 4", gives="LOGISTIC"
    ),
    "tanh": quantised(
        aten.tanh,
        IMAGE,
        out=(1 / 128, 128),
        below_3="TANH takes TENSOR_QUANT8_ASYMM from level 3",
        gives="TANH",
    ),
    "softmax": quantised(aten.softmax.int, ROWS, -1, out=SIGMOID, gives="SOFTMAX"),
    "clamp": quantised(
        *(aten.clamp, IMAGE, -0.4, 0.7), out=IN, below_3=TWICE, gives="MAXIMUM MINIMUM"
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
        *(aten.upsample_nearest2d.vec, IMAGE, [12, 16], None),
        out=IN,
        gives="RESIZE_NEAREST_NEIGHBOR",
    ),
    "pad of zero point 0": quantised(
        *(aten.constant_pad_nd, ROWS, [1, 2], 0.0),
        given=((0.05, 0),),
        out=(0.05, 0),
        gives={27: "CONCATENATION", 28: "RESHAPE PAD RESHAPE", 29: "PAD"},
    ),
    "pad": quantised(
        *(aten.constant_pad_nd, ROWS, [1, 2], 0.0),
        out=IN,
        refused={28: "with a zero point not 0 needs level 3"},
        gives={27: "CONCATENATION", 29: "PAD"},
    ),
    "pad by a value": quantised(
        *(aten.constant_pad_nd, ROWS, [1, 2], 1.0),
        out=IN,
        gives={27: "CONCATENATION", 29: "PAD_V2"},
    ),
    "view": case(
        lambda x: DEQUANTIZE(aten.view.default(x, [4, 48]), 0.05, 7, *U8),
        IMAGE,
        order=FIRST,
        gives="RESHAPE DEQUANTIZE",
    ),
    "permute and slice": case(
        lambda x: DEQUANTIZE(
            aten.slice.Tensor(aten.permute.default(x, [1, 0]), 0, 1, 6, 2), 0.05, 7, *U8
        ),
        ROWS,
        below_2="TRANSPOSE",
        gives="TRANSPOSE STRIDED_SLICE DEQUANTIZE",
    ),
    "integers of a quantised value": case(
        lambda x: aten.add.Tensor(aten.relu.default(x), DEQUANTIZE(x, 0.05, 7, *U8)),
        ROWS,
        never="uint8",
    ),
}
