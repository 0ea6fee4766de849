"""Operations between dequantize and quantize nodes, and NNAPI's rules for their scales."""

import torch

from nnapi_prof.graph.quantisation import DEQUANTIZE, QUANTIZE
from tests.convert.cases.common import NEEDS_3, all_levels
from tests.convert.cases.quantised_common import (
    BELOW_3,
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
from tests.convert.harness import FIRST, LEVELS, Case, aten

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
    "add": quantised(aten.add.Tensor, IMAGE, OTHER, operations={27: "ADD"}),
    "add relu": quantised(
        lambda x, y: aten.relu.default(aten.add.Tensor(x, y)),
        IMAGE,
        OTHER,
        operations={27: "ADD RELU", 29: "ADD"},
    ),
    "add relu6": quantised(
        lambda x, y: relu6(aten.add.Tensor(x, y)),
        IMAGE,
        OTHER,
        operations={27: "ADD RELU6", 29: "ADD"},
    ),
    "add relu, broadcast": quantised(
        lambda x, y: aten.relu.default(aten.add.Tensor(x, y)),
        IMAGE,
        integers(1, 4, 1, 1),
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
    "clamp": quantised(
        lambda x: aten.clamp.default(x, -0.4, 0.7),
        IMAGE,
        out=IN,
        refused=dict.fromkeys(BELOW_3, "would round what was rounded before"),
        operations={29: "MAXIMUM MINIMUM"},
    ),
    "clamp to a scale that has no number for its bounds": quantised(
        lambda x: aten.clamp.default(x, -0.43, 0.71),
        IMAGE,
        refused=dict.fromkeys(BELOW_3, "would round what was rounded before"),
        operations={29: "MAXIMUM MINIMUM"},
    ),
    "hardswish": quantised(
        aten.hardswish.default,
        IMAGE,
        operations={27: "ADD MUL MUL", 30: "HARD_SWISH"},
    ),
    "silu": quantised(aten.silu.default, IMAGE, operations={27: "LOGISTIC MUL"}),
    "gelu": quantised(aten.gelu.default, IMAGE, operations={27: "MUL MUL ADD MUL LOGISTIC MUL"}),
    "gelu of finer steps than the way": quantised(
        aten.gelu.default,
        IMAGE,
        out=(0.01, 100),
        refused=dict.fromkeys(BELOW_3, "would move results by 2.6 steps, less than one is"),
    ),
    "neg": quantised(aten.neg.default, IMAGE, operations={27: "MUL"}),
    "div by a number": quantised(lambda x: aten.div.Tensor(x, 0.7), IMAGE, operations={27: "MUL"}),
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
        operations={27: "CONCATENATION", 28: "RESHAPE PAD RESHAPE", 29: "PAD"},
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
