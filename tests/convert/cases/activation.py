"""Cases of activations and softmax."""

import torch

from tests.convert.cases.common import INTEGERS, NEEDS_2, W, X, all_levels
from tests.convert.harness import FIRST, Case, aten, image

DENSE = torch.linspace(-12, 12, 4001)


def unary(function, x=X, operations=None, first=1, **options):
    """A case that converts from a level on."""
    refused = all_levels("exists from level", 26 + first)
    return Case(
        lambda y: function(y), (x,), refused=refused, operations=operations or {}, **options
    )


ACTIVATIONS = {
    "relu": unary(aten.relu.default, operations={27: "RELU"}),
    "relu of integers": unary(aten.relu.default, INTEGERS, {29: "MAXIMUM"}, first=3),
    "sigmoid": unary(aten.sigmoid.default, operations={27: "LOGISTIC"}),
    "sigmoid of integers": unary(aten.sigmoid.default, INTEGERS, {29: "CAST LOGISTIC"}, first=3),
    "tanh": unary(aten.tanh.default, operations={27: "TANH"}),
    "abs": unary(aten.abs.default, operations={27: "RELU MUL RELU ADD", 29: "ABS"}),
    "abs of integers": unary(aten.abs.default, INTEGERS, {29: "NEG MAXIMUM", 30: "ABS"}, first=3),
    "neg": unary(aten.neg.default, operations={27: "MUL", 29: "NEG"}),
    "neg of integers": unary(aten.neg.default, INTEGERS, {29: "NEG"}, first=3),
    "sqrt": unary(aten.sqrt.default, X.abs(), first=3),
    "rsqrt": unary(aten.rsqrt.default, X.abs() + 0.1, first=3),
    "relu6": Case(lambda x: aten.hardtanh.default(x, 0.0, 6.0), (X * 5,), operations={27: "RELU6"}),
    "relu1": Case(lambda x: aten.hardtanh.default(x), (X,), operations={27: "RELU1"}),
    "hardtanh of other bounds": Case(
        lambda x: aten.hardtanh.default(x, -0.5, 0.25),
        (X,),
        operations={27: "MUL ADD MUL ADD", 29: "MAXIMUM MINIMUM"},
    ),
    "hardtanh of equal bounds on both sides": Case(
        lambda x: aten.hardtanh.default(x, -0.5, 0.5),
        (X,),
        operations={27: "MUL MUL", 29: "MAXIMUM MINIMUM"},
    ),
    "clamp below": Case(lambda x: aten.clamp.default(x, 0), (X,), operations={27: "RELU"}),
    "clamp above": Case(
        lambda x: aten.clamp.default(x, None, 0.5),
        (X,),
        operations={27: "MUL ADD MUL ADD", 29: "MINIMUM"},
    ),
    "clamp below something": Case(
        lambda x: aten.clamp.default(x, 0.5),
        (X,),
        operations={27: "ADD ADD", 29: "MAXIMUM"},
    ),
    "clamp to bounds in the wrong order": Case(
        lambda x: aten.clamp.default(x, 0.5, -0.5),
        (X,),
        refused=all_levels(r"clamps to \[0.5, -0.5\], which is one number", 29),
    ),
    "clamp integers": Case(
        lambda x: aten.clamp.default(x, -2, 3),
        (INTEGERS,),
        refused=all_levels("MAXIMUM exists", 29),
    ),
    "clamp integers to a fraction": Case(
        lambda x: aten.clamp.default(x, -2, 2.5),
        (INTEGERS,),
        refused=all_levels("CAST exists", 29),
        operations={29: "CAST MAXIMUM MINIMUM"},
    ),
    "clamp by tensors": Case(
        lambda x, y: aten.clamp.Tensor(x, y, W["grid"] + 1),
        (X, -X.abs()),
        refused=all_levels("MAXIMUM exists", 29),
    ),
    "clamp above by a tensor": Case(
        lambda x, y: aten.clamp.Tensor(x, None, y),
        (X, image(8)),
        refused=all_levels("MINIMUM exists", 29),
    ),
    "threshold": Case(
        lambda x: aten.threshold.default(x, 0.25, -3.0),
        (X,),
        refused=all_levels("GREATER exists", 29),
        operations={29: "GREATER SELECT"},
    ),
    "hardshrink": Case(
        lambda x: aten.hardshrink.default(x, 0.25),
        (X,),
        refused=all_levels("GREATER exists", 29),
    ),
    "softshrink": Case(lambda x: aten.softshrink.default(x, 0.25), (X,)),
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
    "elu": Case(
        lambda x: aten.elu.default(x, 1.5),
        (X,),
        refused={27: "DIV exists"},
        operations={29: "MINIMUM RELU EXP SUB MUL ADD", 30: "ELU"},
    ),
    "elu with scales": Case(
        lambda x: aten.elu.default(x, 1.5, 2.0, 0.5), (X,), refused={27: "DIV exists"}
    ),
    "elu with a scale": Case(
        lambda x: aten.elu.default(x, 0.5, -2.0),
        (X,),
        refused={27: "DIV exists"},
        operations={30: "ELU MUL"},
    ),
    "selu": Case(lambda x: aten.selu.default(x), (X,), refused={27: "DIV exists"}),
    "celu": Case(lambda x: aten.celu.default(x, 0.7), (X,), refused={27: "DIV exists"}),
    "leaky relu": Case(
        lambda x: aten.leaky_relu.default(x, 0.1),
        (X,),
        operations={27: "RELU MUL RELU MUL ADD", 29: "PRELU"},
    ),
    "prelu": Case(
        lambda x: aten.prelu.default(x, W["channels"]),
        (X,),
        operations={27: "RELU MUL RELU MUL ADD", 29: "PRELU"},
    ),
    "prelu of a contiguous image": Case(
        lambda x: aten.prelu.default(x, W["channels"]), (X,), FIRST
    ),
    "prelu of rows": Case(lambda x: aten.prelu.default(x, W["channels"]), (image(3, 4),)),
    "prelu of rank 3": Case(lambda x: aten.prelu.default(x, W["channels"]), (image(2, 4, 5),)),
    "prelu with one slope": Case(lambda x: aten.prelu.default(x, torch.tensor([0.3])), (X,)),
    "prelu with computed slopes": Case(
        lambda x, w: aten.prelu.default(x, w),
        (X, image(4)),
        refused=all_levels("w is computed by the model, a constant is required", 31),
    ),
    "gelu": Case(
        lambda x: aten.gelu.default(x),
        (X * 3,),
        operations={27: "MUL MUL " + "MUL ADD " * 6 + "MUL LOGISTIC MUL"},
        rtol=1e-6,
        atol=1e-6,
    ),
    "gelu everywhere, over max(1, |x|)": Case(
        lambda x: aten.mul.Tensor(aten.gelu.default(x), 1 / DENSE.abs().clamp(1)),
        (DENSE,),
        rtol=0,
        atol=3e-7,
    ),
    "gelu of large numbers": Case(
        lambda x: aten.gelu.default(x),
        (torch.tensor([20.0, 1e3, 1e9, 1e30, -20.0, -30.0]),),
        rtol=3e-7,
        atol=6e-7,
    ),
    "gelu by tanh": Case(
        lambda x: aten.gelu.default(x, approximate="tanh"),
        (X * 3,),
        operations={27: "MUL MUL ADD MUL LOGISTIC MUL"},
        rtol=1e-6,
        atol=1e-6,
    ),
    "gelu then relu": Case(lambda x: aten.relu.default(aten.gelu.default(x)), (X,)),
    "mish": Case(
        lambda x: aten.mish.default(x), (X * 10,), refused={27: "SUB|DIV exists"}, atol=1e-6
    ),
    "glu over channels": Case(
        lambda x: aten.glu.default(x, 1), (X,), refused={27: "STRIDED_SLICE exists"}
    ),
    "glu over the last axis": Case(
        lambda x: aten.glu.default(x), (image(3, 8),), refused={27: "STRIDED_SLICE exists"}
    ),
    "glu of a contiguous image": Case(
        lambda x: aten.glu.default(x, -3), (X,), FIRST, refused={27: "STRIDED_SLICE exists"}
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
