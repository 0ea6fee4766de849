"""Cases of activations and softmax."""

import torch

from tests.convert.cases.common import NEEDS_2, W, X, all_levels
from tests.convert.harness import FIRST, Case, aten, image


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
        refused=all_levels("gives float64, which NNAPI does not have", 31),
    ),
}
