"""The operator harness's table: id -> what is converted, and where it is refused and why."""

import torch

from tests.convert.harness import FIRST, LAST, Case, aten, image

W = {name: image(*shape, seed=9) for name, shape in {
    "plain": (6, 4, 3, 3),
    "point": (6, 4, 1, 1),
    "wide": (5, 4, 3, 5),
    "depth": (4, 1, 3, 3),
    "depth2": (8, 1, 3, 3),
    "group": (6, 2, 3, 3),
    "line": (6, 4, 3),
    "linear": (5, 7),
    "channels": (4,),
    "grid": (4, 1, 1),
    "row": (8,),
    "six": (6,),
    "eight": (8,),
    "five": (5,),
    "seven": (7,),
}.items()}  # fmt: skip
POSITIVE = image(4, seed=3).abs() + 0.5
X = image(2, 4, 7, 8)
SQUARE = image(1, 4, 8, 8)


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


def all_levels(reason, below):
    return {level: reason for level in (27, 28, 29, 30) if level < below}


NEEDS_2 = r"from level 2 \(API 28\) on, wanted at level 1 \(API 27\)"
NEEDS_3 = r"level 3 \(API 29\)"
NEEDS_4 = r"level 4 \(API 30\)"

CONVOLUTIONS = {
    "conv": Case(conv("plain", W["six"], 2, 1), (X,), operations={27: "CONV_2D"}),
    "conv without bias": Case(conv("plain"), (X,)),
    "conv pointwise": Case(conv("point", W["six"]), (X,)),
    "conv of unequal sides": Case(conv("wide", W["five"], (1, 2), (2, 1)), (X,)),
    "conv dilated": Case(
        conv("plain", W["six"], 1, 2, (2, 1)),
        (X,),
        refused=all_levels(r"dilation \(2, 1\) needs level 3 \(API 29\), the device has", 29),
    ),
    "conv depthwise": Case(
        conv("depth", W["channels"], 1, 1, groups=4), (X,), operations={27: "DEPTHWISE_CONV_2D"}
    ),
    "conv depthwise, two filters a channel": Case(
        conv("depth2", W["eight"], 2, 1, groups=4), (X,), operations={27: "DEPTHWISE_CONV_2D"}
    ),
    "conv depthwise, dilated": Case(
        conv("depth", None, 1, 2, 2, groups=4), (X,), refused=all_levels(NEEDS_3, 29)
    ),
    "conv grouped": Case(
        conv("group", W["six"], 1, 1, groups=2),
        (X,),
        refused={27: r"groups=2 by slices \(STRIDED_SLICE\) needs level 2"},
        operations={
            28: "STRIDED_SLICE CONV_2D STRIDED_SLICE CONV_2D CONCATENATION",
            29: "GROUPED_CONV_2D",
        },
    ),
    "conv grouped, dilated": Case(
        conv("group", W["six"], 1, 2, 2, groups=2),
        (X,),
        refused=all_levels(NEEDS_3, 29),
        operations={30: "STRIDED_SLICE CONV_2D STRIDED_SLICE CONV_2D CONCATENATION"},
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
        refused=all_levels("PAD_V2 exists from level 3", 29),
        operations={29: "PAD_V2 CONV_2D"},
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
        refused=all_levels(r"a 1-d convolution, NNAPI has 2-d ones only", 31),
    ),
    "conv transposed": Case(
        lambda x: aten.convolution.default(
            x, W["wide"], None, [1, 1], [0, 0], [1, 1], True, [0, 0], 1
        ),
        (image(1, 5, 4, 4),),
        refused=all_levels("transposed=True, only plain convolutions are lowered", 31),
    ),
    "conv of computed weights": Case(
        lambda x, w: aten.convolution.default(x, w, None, [1] * 2, [0] * 2, [1] * 2, False, [0], 1),
        (X, W["plain"]),
        refused=all_levels("w is computed by the model, a constant is wanted", 31),
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
    "linear of rank 5": Case(
        lambda x: aten.linear.default(x, W["linear"]),
        (image(1, 2, 3, 2, 7),),
        refused=all_levels("FULLY_CONNECTED takes rank 4 at most, found 5", 31),
    ),
}

ARITHMETIC = {
    "add": Case(lambda x, y: aten.add.Tensor(x, y), (X, image(2, 4, 7, 8, seed=5))),
    "add with relu": Case(
        lambda x, y: aten.relu.default(aten.add.Tensor(x, y)), (X, -X / 2), operations={27: "ADD"}
    ),
    "add a number": Case(lambda x: aten.add.Tensor(x, 2.5), (X,)),
    "add an integer": Case(lambda x: aten.add.Tensor(x, 3), (image(5),)),
    "add with alpha": Case(
        lambda x: aten.add.Tensor(x, x, alpha=2),
        (X,),
        refused=all_levels("alpha=2, only 1 is lowered", 31),
    ),
    "add a constant of rank 1 to an image": Case(lambda x: aten.add.Tensor(x, W["row"]), (X,)),
    "add a constant of rank 3 to an image": Case(lambda x: aten.add.Tensor(x, W["grid"]), (X,)),
    "add a constant of rank 0": Case(lambda x: aten.add.Tensor(x, torch.tensor(2.0)), (X,)),
    "add a row to an image": Case(
        lambda x, y: aten.add.Tensor(x, y), (X, image(8)), operations={27: "RESHAPE ADD"}
    ),
    "add a plane to an image": Case(
        lambda x, y: aten.add.Tensor(y, x),
        (X, image(4, 1, 8)),
        refused={27: f"TRANSPOSE exists {NEEDS_2}"},
        operations={28: "RESHAPE TRANSPOSE ADD"},
    ),
    "add vectors to a contiguous image": Case(
        lambda x, y: aten.add.Tensor(x, y), (X, image(7, 8)), FIRST, operations={27: "ADD"}
    ),
    "add an image of the other order": Case(
        lambda x, y: aten.add.Tensor(x, y),
        (X, X + 1),
        orders={"y": FIRST},
        refused={27: f"TRANSPOSE exists {NEEDS_2}"},
        operations={28: "TRANSPOSE ADD"},
    ),
    "add of rank 5": Case(
        lambda x: aten.add.Tensor(x, 1),
        (image(1, 2, 1, 2, 3),),
        refused=all_levels("ADD takes rank 4 at most, found 5", 31),
    ),
    "add of rank 0": Case(
        lambda x: aten.add.Tensor(x, 1),
        (torch.tensor(1.0),),
        refused=all_levels("a tensor of rank 0, NNAPI's have rank 1", 31),
    ),
    "add of nothing": Case(
        lambda x: aten.add.Tensor(x, 1),
        (torch.zeros(2, 0),),
        refused=all_levels(r"an empty tensor \(2x0\)", 31),
    ),
    "add of int64": Case(
        lambda x: aten.add.Tensor(x, 1),
        (torch.arange(4),),
        refused=all_levels("its value is int64, inputs are float32 or int32", 31),
    ),
    "add of int32": Case(
        lambda x: aten.add.Tensor(x, 1),
        (torch.arange(4, dtype=torch.int32),),
        refused=all_levels("gives int32, only float32 is lowered", 31),
    ),
    "mul broadcasting both": Case(
        lambda x, y: aten.mul.Tensor(x, y), (image(2, 4, 1, 1), image(1, 1, 7, 8))
    ),
    "mul by itself": Case(lambda x: aten.mul.Tensor(x, x), (X,)),
    "sub": Case(
        lambda x, y: aten.sub.Tensor(x, y),
        (X, image(2, 4, 7, 8, seed=4)),
        operations={27: "MUL ADD", 28: "SUB"},
    ),
    "sub a number": Case(lambda x: aten.sub.Tensor(x, 1.5), (X,)),
    "sub from a constant": Case(lambda x: aten.sub.Tensor(W["row"], x), (image(3, 8),)),
    "div by a number": Case(
        lambda x: aten.div.Tensor(x, 3.0), (X,), operations={27: "MUL", 28: "DIV"}
    ),
    "div by a constant": Case(lambda x: aten.div.Tensor(x, POSITIVE), (image(3, 4),)),
    "div": Case(
        lambda x, y: aten.div.Tensor(x, y),
        (X, X.abs() + 1),
        refused={27: r"dividing by a computed tensor needs DIV of level 2"},
    ),
    "reciprocal": Case(
        lambda x: aten.reciprocal.default(x),
        (X.abs() + 1,),
        refused={27: "DIV exists"},
        operations={28: "DIV"},
    ),
    "square": Case(
        lambda x: aten.relu.default(aten.pow.Tensor_Scalar(x, 2)), (X,), operations={27: "MUL"}
    ),
    "power": Case(
        lambda x: aten.pow.Tensor_Scalar(x, 1.5),
        (X.abs(),),
        refused=all_levels("POW exists", 29),
        operations={29: "POW"},
    ),
    "maximum": Case(
        lambda x: aten.maximum.default(x, W["grid"]),
        (X,),
        refused=all_levels("MAXIMUM exists from level 3", 29),
    ),
    "minimum": Case(
        lambda x: aten.minimum.default(x, W["eight"]),
        (X,),
        refused=all_levels("MINIMUM exists", 29),
    ),
    "batch norm of an image": Case(
        lambda x: aten.batch_norm.default(
            x, W["channels"], POSITIVE, W["channels"], POSITIVE, False, 0.1, 1e-5, False
        ),
        (X,),
        operations={27: "MUL ADD"},
    ),
    "batch norm of a contiguous image with relu": Case(
        lambda x: aten.relu.default(
            aten.batch_norm.default(x, None, None, W["channels"], POSITIVE, False, 0.1, 1e-5, False)
        ),
        (X,),
        FIRST,
        operations={27: "MUL ADD"},
    ),
    "batch norm of rank 2": Case(
        lambda x: aten.batch_norm.default(
            x, W["channels"], None, W["channels"], POSITIVE, False, 0.1, 1e-5, False
        ),
        (image(3, 4),),
    ),
    "batch norm in training": Case(
        lambda x: aten.batch_norm.default(
            x, None, None, W["channels"].clone(), POSITIVE.clone(), True, 0.1, 1e-5, False
        ),
        (X,),
        refused=all_levels("training=True, its statistics come from the input", 31),
    ),
}


def unary(name, x, first, operations=None):
    function = getattr(aten, name).default
    refused = all_levels(f"{name.upper()} exists from level", 26 + first)
    return Case(lambda y: function(y), (x,), refused=refused, operations=operations or {})


ACTIVATIONS = {
    "relu": unary("relu", X, 1, {27: "RELU"}),
    "sigmoid": unary("sigmoid", X, 1, {27: "LOGISTIC"}),
    "tanh": unary("tanh", X, 1),
    "floor": unary("floor", X, 1),
    "abs": unary("abs", X, 3),
    "exp": unary("exp", X, 3),
    "neg": unary("neg", X, 3),
    "sqrt": unary("sqrt", X.abs(), 3),
    "rsqrt": unary("rsqrt", X.abs() + 0.1, 3),
    "log": unary("log", X.abs() + 0.1, 3),
    "sin": unary("sin", X, 3),
    "relu of rank 5": Case(
        lambda x: aten.relu.default(x),
        (image(1, 1, 1, 2, 3),),
        refused=all_levels("RELU takes rank 4 at most, found 5", 31),
    ),
    "relu6": Case(lambda x: aten.hardtanh.default(x, 0.0, 6.0), (X * 5,), operations={27: "RELU6"}),
    "relu1": Case(lambda x: aten.hardtanh.default(x), (X,), operations={27: "RELU1"}),
    "hardtanh of other bounds": Case(
        lambda x: aten.hardtanh.default(x, -0.5, 0.25),
        (X,),
        refused=all_levels(r"clamping to \[-0.5, 0.25\].*needs level 3", 29),
        operations={29: "MAXIMUM MINIMUM"},
    ),
    "clamp below": Case(lambda x: aten.clamp.default(x, 0), (X,), operations={27: "RELU"}),
    "clamp above": Case(
        lambda x: aten.clamp.default(x, None, 0.5),
        (X,),
        refused=all_levels(r"clamping to \[-inf, 0.5\]", 29),
        operations={29: "MINIMUM"},
    ),
    "hardsigmoid": Case(
        lambda x: aten.hardsigmoid.default(x), (X * 3,), operations={27: "ADD MUL"}
    ),
    "hardswish": Case(
        lambda x: aten.hardswish.default(x),
        (X * 3,),
        operations={27: "ADD MUL MUL", 30: "HARD_SWISH"},
    ),
    "silu": Case(lambda x: aten.silu.default(x), (X,), operations={27: "LOGISTIC MUL"}),
    "silu then relu": Case(
        lambda x: aten.relu.default(aten.silu.default(x)), (X,), operations={27: "LOGISTIC MUL"}
    ),
    "elu": Case(lambda x: aten.elu.default(x, 1.5), (X,), refused=all_levels("ELU exists", 30)),
    "elu with a scale": Case(
        lambda x: aten.elu.default(x, 1.0, 2.0),
        (X,),
        refused=all_levels(r"scale=2.0, ELU has none \(1\)", 31),
    ),
    "leaky relu": Case(
        lambda x: aten.leaky_relu.default(x, 0.1), (X,), refused=all_levels("PRELU exists", 29)
    ),
    "prelu": Case(
        lambda x: aten.prelu.default(x, W["channels"]), (X,), refused=all_levels("PRELU exists", 29)
    ),
    "prelu of a contiguous image": Case(
        lambda x: aten.prelu.default(x, W["channels"]),
        (X,),
        FIRST,
        refused=all_levels("PRELU exists", 29),
    ),
    "gelu": Case(
        lambda x: aten.gelu.default(x),
        (X,),
        refused=all_levels("aten.gelu.default cannot run on NNAPI: NNAPI has no such", 31),
    ),
    "mul with relu": Case(
        lambda x: aten.relu.default(aten.mul.Tensor(x, -1.0)), (X,), operations={27: "MUL"}
    ),
    "softmax of rank 2": Case(
        lambda x: aten.softmax.int(x, -1), (image(3, 5),), operations={27: "SOFTMAX"}
    ),
    "softmax of rank 1": Case(
        lambda x: aten.softmax.int(x, 0),
        (image(5),),
        operations={27: "RESHAPE SOFTMAX RESHAPE", 29: "SOFTMAX"},
    ),
    "softmax of rank 3": Case(lambda x: aten.softmax.int(x, 2), (image(2, 3, 5),)),
    "softmax over channels": Case(
        lambda x: aten.softmax.int(x, 1), (X,), operations={27: "SOFTMAX", 30: "SOFTMAX"}
    ),
    "softmax over rows": Case(
        lambda x: aten.softmax.int(x, 3),
        (X,),
        refused={27: f"TRANSPOSE exists {NEEDS_2}"},
        operations={28: "TRANSPOSE SOFTMAX TRANSPOSE", 29: "SOFTMAX"},
    ),
    "softmax over the first of two": Case(
        lambda x: aten.softmax.int(x, 0),
        (image(3, 5),),
        refused={27: "TRANSPOSE exists"},
        operations={28: "TRANSPOSE SOFTMAX TRANSPOSE", 29: "SOFTMAX"},
    ),
    "softmax over an axis before a single one": Case(
        lambda x: aten.softmax.int(x, 1),
        (image(3, 5, 1),),
        operations={27: "RESHAPE RESHAPE SOFTMAX RESHAPE RESHAPE", 29: "SOFTMAX"},
    ),
    "log softmax": Case(
        lambda x: aten.log_softmax.int(x, 1),
        (image(3, 5),),
        refused=all_levels("LOG_SOFTMAX exists", 29),
    ),
    "softmax to its own type": Case(
        lambda x: aten.softmax.int(x, 1, torch.float32), (image(3, 5),)
    ),
    "softmax to another type": Case(
        lambda x: aten.softmax.int(x, 1, torch.float64),
        (image(3, 5),),
        refused=all_levels("gives float64, only float32 is lowered", 31),
    ),
}


def avg_pool(x, kernel=3, stride=2, padding=0, ceil=False, include=True, divisor=None):
    return Case(
        lambda y: aten.avg_pool2d.default(
            y, [kernel] * 2, [stride] * 2, [padding] * 2, ceil, include, divisor
        ),
        (x,),
    )


POOLING = {
    "max pool": Case(lambda x: aten.max_pool2d.default(x, [3, 2], [2, 1], [1, 0]), (X,)),
    "max pool without a stride": Case(lambda x: aten.max_pool2d.default(x, [2]), (X,)),
    "max pool with relu": Case(
        lambda x: aten.relu.default(aten.max_pool2d.default(x, [2, 2])),
        (X - 1,),
        operations={27: "MAX_POOL_2D"},
    ),
    "max pool of negatives with padding": Case(
        lambda x: aten.max_pool2d.default(x, [3, 3], [2, 2], [1, 1]), (-X.abs() - 1,)
    ),
    "max pool in ceil mode": Case(
        lambda x: aten.max_pool2d.default(x, [3, 3], [2, 2], [0, 0], [1, 1], True), (SQUARE,)
    ),
    "max pool in ceil mode with padding": Case(
        lambda x: aten.max_pool2d.default(x, [3, 3], [2, 2], [1, 1], [1, 1], True), (SQUARE,)
    ),
    "max pool dilated": Case(
        lambda x: aten.max_pool2d.default(x, [2, 2], [1, 1], [0, 0], [2, 2]),
        (X,),
        refused=all_levels(r"dilation \(2, 2\), NNAPI's pooling has none", 31),
    ),
    "max pool of a contiguous image": Case(
        lambda x: aten.max_pool2d.default(x, [2, 2]),
        (X,),
        FIRST,
        refused=all_levels("NNAPI expects channels_last images of rank 4", 31),
    ),
    "max pool after a pad": Case(
        lambda x: aten.max_pool2d.default(aten.constant_pad_nd.default(x, [1, 1, 1, 1]), [3, 3]),
        (-X.abs() - 1,),
        refused={27: "PAD exists"},
        operations={28: "PAD MAX_POOL_2D"},
    ),
    "avg pool": avg_pool(X),
    "avg pool, padding counted": avg_pool(X, padding=1),
    "avg pool, padding left out": avg_pool(X, padding=1, include=False),
    "avg pool in ceil mode": avg_pool(SQUARE, ceil=True),
    "avg pool in ceil mode, padding counted": avg_pool(SQUARE, padding=1, ceil=True),
    "avg pool in ceil mode, padding left out": avg_pool(
        SQUARE, padding=1, ceil=True, include=False
    ),
    "avg pool with a divisor": avg_pool(X, padding=1, divisor=5),
    "avg pool with a divisor in ceil mode": avg_pool(
        SQUARE, padding=1, ceil=True, include=False, divisor=7
    ),
    "adaptive pool to one": Case(
        lambda x: aten.adaptive_avg_pool2d.default(x, [1, 1]),
        (X,),
        operations={27: "AVERAGE_POOL_2D"},
    ),
    "adaptive pool evenly": Case(lambda x: aten.adaptive_avg_pool2d.default(x, [4, 2]), (SQUARE,)),
    "adaptive pool unevenly": Case(
        lambda x: aten.adaptive_avg_pool2d.default(x, [3, 3]),
        (SQUARE,),
        refused=all_levels("from 8x8 to 3x3, only sizes that divide evenly", 31),
    ),
}


def mean(x, dim, keepdim=False, order=LAST, refused=None, operations=None):
    return Case(
        lambda y: aten.mean.dim(y, dim, keepdim),
        (x,),
        order,
        refused={27: f"MEAN exists {NEEDS_2}"} if refused is None else refused,
        operations=operations or {},
    )


SHAPES = {
    "mean of an image": mean(
        X, [2, 3], refused={}, operations={27: "AVERAGE_POOL_2D RESHAPE", 28: "MEAN"}
    ),
    "mean of an image, kept": mean(X, [-1, -2], True, refused={}, operations={28: "MEAN"}),
    "mean of a contiguous image": mean(X, [2, 3], order=FIRST),
    "mean over channels": mean(X, [1], operations={28: "MEAN"}),
    "mean over the batch": mean(X, [0], operations={28: "MEAN TRANSPOSE RESHAPE"}),
    "mean of rows": mean(image(3, 5), [1]),
    "mean over all, kept": mean(image(3, 5), None, True),
    "mean over all": mean(
        image(3, 5),
        None,
        refused=all_levels("gives a tensor of rank 0", 31),
    ),
    "sum over channels": Case(
        lambda x: aten.sum.dim_IntList(x, [1]), (X,), refused=all_levels("REDUCE_SUM exists", 29)
    ),
    "maximum over the batch, kept": Case(
        lambda x: aten.amax.default(x, [0], True), (X,), refused=all_levels("REDUCE_MAX exists", 29)
    ),
    "minimum over the batch": Case(
        lambda x: aten.amin.default(x, [0]), (X,), refused=all_levels("REDUCE_MIN exists", 29)
    ),
    "cat over channels": Case(
        lambda x, y: aten.cat.default([x, y], 1),
        (X, image(2, 3, 7, 8)),
        operations={27: "CONCATENATION"},
    ),
    "cat over a negative axis": Case(lambda x, y: aten.cat.default([x, y], -1), (X, X + 1)),
    "cat of three rows": Case(lambda x: aten.cat.default([x, x, x]), (image(2, 3),)),
    "cat with a constant": Case(lambda x: aten.cat.default([x, W["linear"]], 0), (image(2, 7),)),
    "cat with the legacy empty tensor": Case(
        lambda x: aten.cat.default([torch.zeros(0), x, x]), (image(2, 3),)
    ),
    "view of rank 2": Case(
        lambda x: aten.view.default(x, [3, 2, 4]), (image(6, 4),), operations={27: "RESHAPE"}
    ),
    "view of the same shape": Case(
        lambda x: aten.view.default(x, [6, 4]), (image(6, 4),), operations={27: "RESHAPE"}
    ),
    "view that drops one pixel": Case(
        lambda x: aten.view.default(x, [2, 4]), (image(2, 4, 1, 1),), operations={27: "RESHAPE"}
    ),
    "view that makes one pixel": Case(
        lambda x: aten.view.default(x, [2, 4, 1, 1]), (image(2, 4),), operations={27: "RESHAPE"}
    ),
    "view that flattens an image": Case(
        lambda x: aten.view.default(x, [2, 224]),
        (X,),
        refused={27: f"TRANSPOSE exists {NEEDS_2}"},
        operations={28: "TRANSPOSE RESHAPE"},
    ),
    "view that makes an image": Case(
        lambda x: aten.view.default(x, [2, 4, 7, 8]),
        (image(2, 224),),
        refused={27: "TRANSPOSE exists"},
        operations={28: "RESHAPE TRANSPOSE"},
    ),
    "reshape": Case(
        lambda x: aten.reshape.default(x, [8, -1]), (image(6, 4),), operations={27: "RESHAPE"}
    ),
    "view of rank 5": Case(
        lambda x: aten.view.default(x, [1, 2, 2, 3, 1]),
        (image(4, 3),),
        refused=all_levels("RESHAPE gives rank 4 at most, found 5", 31),
    ),
    "permute": Case(
        lambda x: aten.permute.default(x, [0, 2, 1]),
        (image(2, 3, 4),),
        refused={27: f"TRANSPOSE exists {NEEDS_2}"},
    ),
    "permute of an image": Case(
        lambda x: aten.permute.default(x, [0, -1, 1, 2]), (X,), refused={27: "TRANSPOSE exists"}
    ),
    "permute that the dim order undoes": Case(
        lambda x: aten.permute.default(x, [0, 2, 3, 1]),
        (X,),
        orders={"permute_default": FIRST},
        operations={27: "RESHAPE"},
    ),
    "clone to channels last": Case(
        lambda x: aten.clone.default(x, memory_format=torch.channels_last),
        (X,),
        orders={"x": FIRST},
        refused={27: f"TRANSPOSE exists {NEEDS_2}"},
        operations={28: "TRANSPOSE"},
    ),
    "clone of one channel": Case(
        lambda x: aten.clone.default(x, memory_format=torch.channels_last),
        (image(2, 1, 3, 4),),
        orders={"x": FIRST},
        operations={27: "RESHAPE"},
    ),
    "clone to contiguous": Case(
        lambda x: aten.clone.default(x, memory_format=torch.contiguous_format),
        (X,),
        orders={"clone_default": FIRST},
        refused={27: "TRANSPOSE exists"},
    ),
    "slice of channels": Case(
        lambda x: aten.slice.Tensor(x, 1, 1, 3),
        (X,),
        refused={27: f"STRIDED_SLICE exists {NEEDS_2}"},
    ),
    "slice with a step": Case(
        lambda x: aten.slice.Tensor(x, -1, 1, 8, 3), (X,), refused={27: "STRIDED_SLICE exists"}
    ),
    "slice with a step over all": Case(
        lambda x: aten.slice.Tensor(x, 0, None, None, 2),
        (image(5, 2),),
        refused={27: "STRIDED_SLICE exists"},
    ),
    "slice from the end": Case(
        lambda x: aten.slice.Tensor(x, 1, -3, 9223372036854775807),
        (image(2, 8),),
        refused={27: "STRIDED_SLICE exists"},
    ),
    "slice of everything": Case(
        lambda x: aten.slice.Tensor(x, 1, 0, 100), (image(2, 8),), operations={27: "RESHAPE"}
    ),
    "pad": Case(
        lambda x: aten.constant_pad_nd.default(x, [1, 2, 0, 1, 1, 0]),
        (X,),
        refused={27: f"PAD exists {NEEDS_2}"},
    ),
    "pad with ones": Case(
        lambda x: aten.constant_pad_nd.default(x, [1, 2], 1.0),
        (X,),
        refused=all_levels("PAD_V2 exists", 29),
    ),
    "pad and crop": Case(
        lambda x: aten.constant_pad_nd.default(x, [-1, 2, 1, -2]),
        (X,),
        refused={27: "STRIDED_SLICE exists"},
        operations={28: "STRIDED_SLICE PAD"},
    ),
    "pad by nothing": Case(
        lambda x: aten.constant_pad_nd.default(x, [0, 0]), (X,), operations={27: "RESHAPE"}
    ),
}


def nearest(size, scales=None):
    return lambda x: aten.upsample_nearest2d.vec(x, size, scales)


def bilinear(size, align, scales=None):
    return lambda x: aten.upsample_bilinear2d.vec(x, size, align, scales)


NEEDS_FLAGS = r"bilinear from 8x8 to .* needs level 4 \(API 30\)"

RESIZING = {
    "nearest twice": Case(
        nearest(None, [2.0, 2.0]),
        (SQUARE,),
        refused=all_levels("RESIZE_NEAREST_NEIGHBOR exists", 29),
    ),
    "nearest to a size": Case(
        nearest([5, 13]), (X,), refused=all_levels("RESIZE_NEAREST_NEIGHBOR exists", 29)
    ),
    "nearest by an odd scale": Case(
        nearest(None, [1.7, 2.0]),
        (SQUARE,),
        refused=all_levels("scale factor 1.7 from 8 to 13, NNAPI scales by 13/8", 31),
    ),
    "bilinear": Case(bilinear([16, 12], False), (SQUARE,), refused=all_levels(NEEDS_FLAGS, 30)),
    "bilinear, corners aligned": Case(
        bilinear([15, 12], True), (SQUARE,), refused=all_levels(NEEDS_FLAGS, 30)
    ),
    "bilinear downwards": Case(
        bilinear([5, 3], False), (SQUARE,), refused=all_levels(NEEDS_FLAGS, 30)
    ),
    "bilinear twice": Case(
        bilinear(None, False, [2.0, 2.0]), (SQUARE,), refused=all_levels(NEEDS_FLAGS, 30)
    ),
    "bilinear by an odd scale": Case(
        bilinear(None, False, [1.7, 2.0]),
        (SQUARE,),
        refused=all_levels("scale factor 1.7 from 8 to 13", 31),
    ),
    "bilinear of one pixel": Case(bilinear([4, 5], False), (image(2, 3, 1, 1),)),
    "bilinear to one pixel, corners aligned": Case(bilinear([1, 1], True), (SQUARE,)),
}

CASES = {**CONVOLUTIONS, **LINEAR, **ARITHMETIC, **ACTIVATIONS, **POOLING, **SHAPES, **RESIZING}
