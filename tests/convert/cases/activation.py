"""Cases of activations, softmax, and norms by statistics of their own input."""

import torch

from tests.convert.cases.common import INTEGERS, NO_SLICE, NO_TRANSPOSE, W, X, all_levels, case
from tests.convert.harness import FIRST, LAST, aten, image

PRELU = {27: "RELU MUL RELU MUL ADD", 29: "PRELU"}
TURNED = {28: "TRANSPOSE SOFTMAX TRANSPOSE", 29: "SOFTMAX"}
IN_PLACE = (("softmax", 1, LAST), ("softmax", -1, FIRST))
"""Where the axis lies last in memory, which level 1 knows too."""
CLOSE = {"rtol": 1e-6, "atol": 1e-6}
LATER = r"level \d|exists from"
NO_DIV, NO_GREATER = "DIV exists", "GREATER exists"
DENSE = torch.linspace(-12, 12, 4001)


def unary(function, x=X, first=1, **options):
    """A case that converts from a level on."""
    return case(function, x, refused=all_levels("exists from level", 26 + first), **options)


ACTIVATIONS = {
    "relu": unary(aten.relu.default, gives="RELU"),
    "relu of integers": unary(aten.relu.default, INTEGERS, first=3, gives="MAXIMUM"),
    "sigmoid": unary(aten.sigmoid.default, gives="LOGISTIC"),
    "sigmoid of integers": unary(aten.sigmoid.default, INTEGERS, first=3, gives="CAST LOGISTIC"),
    "tanh": unary(aten.tanh.default, gives="TANH"),
    "abs": unary(aten.abs.default, gives={27: "RELU MUL RELU ADD", 29: "ABS"}),
    "abs of integers": unary(
        aten.abs.default, INTEGERS, first=3, gives={29: "NEG MAXIMUM", 30: "ABS"}
    ),
    "neg": unary(aten.neg.default, gives={27: "MUL", 29: "NEG"}),
    "neg of integers": unary(aten.neg.default, INTEGERS, first=3, gives="NEG"),
    "relu6": case(aten.hardtanh, X * 5, 0.0, 6.0, gives="RELU6"),
    "relu1": case(aten.hardtanh, X, gives="RELU1"),
    "hardtanh of other bounds": case(
        aten.hardtanh, X, -0.5, 0.25, gives={27: "MUL ADD MUL ADD", 29: "MAXIMUM MINIMUM"}
    ),
    "hardtanh of equal bounds on both sides": case(
        aten.hardtanh, X, -0.5, 0.5, gives={27: "MUL MUL", 29: "MAXIMUM MINIMUM"}
    ),
    "clamp below": case(aten.clamp, X, 0, gives="RELU"),
    "clamp above": case(aten.clamp, X, None, 0.5, gives={27: "MUL ADD MUL ADD", 29: "MINIMUM"}),
    "clamp below something": case(aten.clamp, X, 0.5, gives={27: "ADD ADD", 29: "MAXIMUM"}),
    "clamp to bounds in the wrong order": case(
        aten.clamp, X, 0.5, -0.5, below_3=r"clamps to \[0.5, -0.5\], which is one number"
    ),
    "clamp integers": case(aten.clamp, INTEGERS, -2, 3, below_3="MAXIMUM exists"),
    "clamp integers to a fraction": case(
        aten.clamp, INTEGERS, -2, 2.5, below_3="CAST exists", gives="CAST MAXIMUM MINIMUM"
    ),
    "clamp by tensors": case(
        lambda x, y: aten.clamp.Tensor(x, y, W["grid"] + 1), X, -X.abs(), below_3="MAXIMUM exists"
    ),
    "clamp above by a tensor": case(aten.clamp.Tensor, X, None, image(8), below_3="MINIMUM exists"),
    "threshold": case(aten.threshold, X, 0.25, -3.0, below_3=NO_GREATER, gives="GREATER SELECT"),
    "hardshrink": case(aten.hardshrink, X, 0.25, below_3=NO_GREATER),
    "softshrink": case(aten.softshrink, X, 0.25),
    "hardsigmoid": case(aten.hardsigmoid, X * 3, gives="ADD MUL"),
    "hardswish": case(aten.hardswish, X * 3, gives={27: "ADD MUL MUL", 30: "HARD_SWISH"}),
    "silu": case(aten.silu, X, gives="LOGISTIC MUL"),
    "silu then relu": case(
        lambda x: aten.relu.default(aten.silu.default(x)), X, gives="LOGISTIC MUL"
    ),
    "elu": case(
        aten.elu, X, 1.5, below_2=NO_DIV, gives={29: "MINIMUM RELU EXP SUB MUL ADD", 30: "ELU"}
    ),
    "elu with scales": case(aten.elu, X, 1.5, 2.0, 0.5, below_2=NO_DIV),
    "elu with a scale": case(aten.elu, X, 0.5, -2.0, below_2=NO_DIV, gives={30: "ELU MUL"}),
    "leaky relu": case(aten.leaky_relu, X, 0.1, gives=PRELU),
    "prelu": case(lambda x: aten.prelu.default(x, W["channels"]), X, gives=PRELU),
    "prelu of rows": case(lambda x: aten.prelu.default(x, W["channels"]), image(3, 4)),
    "prelu with one slope": case(lambda x: aten.prelu.default(x, torch.tensor([0.3])), X),
    "prelu with computed slopes": case(
        aten.prelu, X, image(4), never="y is computed by the model, a constant is required"
    ),
    "gelu": case(aten.gelu, X * 3, gives="MUL MUL " + "MUL ADD " * 6 + "MUL LOGISTIC MUL", **CLOSE),
    "gelu everywhere, over max(1, |x|)": case(
        lambda x: aten.mul.Tensor(aten.gelu.default(x), 1 / DENSE.abs().clamp(1)),
        DENSE,
        rtol=0,
        atol=3e-7,
    ),
    "gelu of large numbers": case(
        aten.gelu, torch.tensor([20.0, 1e3, 1e9, 1e30, -20.0, -30.0]), rtol=3e-7, atol=6e-7
    ),
    "gelu by tanh": case(
        aten.gelu, X * 3, approximate="tanh", gives="MUL MUL ADD MUL LOGISTIC MUL", **CLOSE
    ),
    "gelu then relu": case(lambda x: aten.relu.default(aten.gelu.default(x)), X),
    "mish": case(aten.mish, X * 10, below_2="SUB|DIV exists", atol=1e-6),
    "glu over channels": case(aten.glu, X, 1, below_2=NO_SLICE),
    "glu over the last axis": case(aten.glu, image(3, 8), below_2=NO_SLICE),
    "glu of a contiguous image": case(aten.glu, X, -3, order=FIRST, below_2=NO_SLICE),
    "mul with relu": case(lambda x: aten.relu.default(aten.mul.Tensor(x, -1.0)), X, gives="MUL"),
    "softmax of rank 2": case(aten.softmax.int, image(3, 5), -1, gives="SOFTMAX"),
    "softmax of rank 1": case(
        aten.softmax.int, image(5), 0, gives={27: "RESHAPE SOFTMAX RESHAPE", 29: "SOFTMAX"}
    ),
    "softmax of rank 3": case(aten.softmax.int, image(2, 3, 5), 2),
    "softmax over channels": case(aten.softmax.int, X, 1, gives="SOFTMAX"),
    "softmax over rows": case(aten.softmax.int, X, 3, below_2=NO_TRANSPOSE, gives=TURNED),
    "softmax over the first of two": case(
        aten.softmax.int, image(3, 5), 0, below_2=NO_TRANSPOSE, gives=TURNED
    ),
    "softmax over an axis before a single one": case(
        aten.softmax.int,
        image(3, 5, 1),
        1,
        gives={27: "RESHAPE RESHAPE SOFTMAX RESHAPE RESHAPE", 29: "SOFTMAX"},
    ),
    **{
        f"{name} along {dim}, {order.value}": case(
            op,
            X,
            dim,
            order=order,
            refused={} if (name, dim, order) in IN_PLACE else all_levels(LATER, below),
        )
        for name, op, below in (
            ("softmax", aten.softmax.int, 28),
            ("log_softmax", aten.log_softmax.int, 29),
        )
        for dim in (0, 1, -1)
        for order in (LAST, FIRST)
    },
    "log softmax": case(aten.log_softmax.int, image(3, 5), 1, below_3="LOG_SOFTMAX exists"),
    "softmax to its own type": case(aten.softmax.int, image(3, 5), 1, torch.float32),
    "softmax to another type": case(
        aten.softmax.int, image(3, 5), 1, torch.float64, never="gives float64, which NNAPI does not"
    ),
}


NO_MOVES = "(TRANSPOSE|STRIDED_SLICE) exists from level"
IMAGE = image(2, 6, 4, 5) * 3 + 1
W6, B6 = image(6, seed=7), image(6, seed=8)
W5, B5 = image(5, seed=7), image(5, seed=8)
W45 = image(4, 5, seed=7)


def normed(function, x, order=FIRST, **known):
    if "never" not in known:
        known.setdefault("below_2", NO_SLICE if order is FIRST else NO_MOVES)
    return case(function, x, order=order, **known)


def layer_norm(shape, weight=None, bias=None, x=IMAGE, eps=1e-5, **known):
    return normed(lambda y: aten.layer_norm.default(y, shape, weight, bias, eps), x, **known)


def rms_norm(weight, x, eps=None):
    return normed(lambda y: aten.rms_norm.default(y, [5], weight, eps), x)


def group_norm(groups, weight=W6, bias=B6, x=IMAGE, **known):
    return normed(lambda y: aten.group_norm.default(y, groups, weight, bias), x, **known)


def instance_norm(x, weight=None, bias=None, mean=None, variance=None, **known):
    args = (weight, bias, mean, variance, mean is None, 0.1, 1e-5, False)
    return normed(lambda y: aten.instance_norm.default(y, *args), x, **known)


STORED = "use_input_stats=False, statistics of the input are required"
CENTRED = "RESHAPE MEAN SUB INSTANCE_NORMALIZATION RESHAPE"
ONE = "RESHAPE INSTANCE_NORMALIZATION RESHAPE"
EQUAL = image(2, 3, 1).expand(2, 3, 5).clone()
ROUNDING = 1e-4
"""Rounding of the mean of equal numbers, divided by sqrt(eps)."""

NORMS = {
    "layer norm": layer_norm([5], W5, B5, gives={29: f"{CENTRED} MUL ADD", 30: f"{ONE} MUL ADD"}),
    "layer norm without weights": layer_norm([5]),
    "layer norm without a bias": layer_norm([5], W5),
    "layer norm of rank 3": layer_norm([5], W5, B5, image(2, 3, 5) * 10),
    "layer norm of a vector": layer_norm([5], W5, B5, image(5)),
    "layer norm over two axes": layer_norm([4, 5], W45, W45 + 1),
    "layer norm over all": layer_norm([6], W6, B6, image(6)),
    "layer norm of an image": layer_norm([5], W5, B5, order=LAST),
    "layer norm of equal numbers": layer_norm([5], W5, B5, EQUAL, atol=ROUNDING),
    "layer norm with a large eps": layer_norm([5], W5, B5, eps=0.5),
    "layer norm without an eps": layer_norm(
        [5], eps=0.0, below_2="eps=0", below_3="eps=0 below level 3: a number above 0 is required"
    ),
    "layer norm far from zero": layer_norm([5], W5, B5, image(2, 3, 5) + 30),
    "layer norm of long rows": layer_norm([640], x=image(2, 640) * 5 + 20),
    "layer norm of float16": layer_norm(
        [5], x=IMAGE.half(), never="a norm of float16, float32 is required"
    ),
    "RMS norm": rms_norm(W5, IMAGE),
    "RMS norm without weights": rms_norm(None, image(2, 3, 5)),
    "RMS norm with an eps": rms_norm(W5, image(3, 5), 0.1),
    "group norm": group_norm(3, gives={29: f"{CENTRED} MUL ADD", 30: f"{ONE} MUL ADD"}),
    "group norm of one group": group_norm(1),
    "group norm of single channels": group_norm(6),
    "group norm without weights": group_norm(2, None, None, gives={29: CENTRED, 30: ONE}),
    "group norm of lines": group_norm(3, x=image(2, 6, 7)),
    "group norm of rank 2": group_norm(3, x=image(2, 6)),
    "group norm, channels last": group_norm(
        2, order=LAST, gives={29: "RESHAPE MEAN SUB MUL MEAN ADD RSQRT MUL RESHAPE MUL ADD"}
    ),
    "group norm without weights, channels last": group_norm(3, None, None, order=LAST),
    "instance norm": instance_norm(IMAGE, gives={29: CENTRED, 30: ONE}),
    "instance norm with weights": instance_norm(IMAGE, W6, B6),
    "instance norm, channels last": instance_norm(
        IMAGE,
        order=LAST,
        gives={29: "MEAN SUB INSTANCE_NORMALIZATION", 30: "INSTANCE_NORMALIZATION"},
    ),
    "instance norm with weights, channels last": instance_norm(
        IMAGE, W6, B6, order=LAST, gives={30: "INSTANCE_NORMALIZATION MUL ADD"}
    ),
    "instance norm far from zero": instance_norm(IMAGE + 30),
    "instance norm far from zero, channels last": instance_norm(IMAGE + 30, W6, B6, order=LAST),
    "instance norm of lines": instance_norm(image(2, 6, 7), W6, B6),
    "instance norm with stored statistics": instance_norm(
        IMAGE, mean=B6, variance=W6.abs(), order=LAST, never=STORED
    ),
}
