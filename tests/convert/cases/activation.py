"""Cases of activations and softmax."""

import torch

from tests.convert.cases.common import INTEGERS, NEEDS_2, W, X, all_levels, case
from tests.convert.harness import FIRST, LAST, aten, image

IN_PLACE = (("softmax", 1, LAST), ("softmax", -1, FIRST))
"""Where the axis lies last in memory, which level 1 knows too."""
LATER = r"level \d|exists from"
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
    "sqrt": unary(aten.sqrt.default, X.abs(), first=3),
    "rsqrt": unary(aten.rsqrt.default, X.abs() + 0.1, first=3),
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
    "threshold": case(
        aten.threshold, X, 0.25, -3.0, below_3="GREATER exists", gives="GREATER SELECT"
    ),
    "hardshrink": case(aten.hardshrink, X, 0.25, below_3="GREATER exists"),
    "softshrink": case(aten.softshrink, X, 0.25),
    "hardsigmoid": case(aten.hardsigmoid, X * 3, gives="ADD MUL"),
    "hardswish": case(aten.hardswish, X * 3, gives={27: "ADD MUL MUL", 30: "HARD_SWISH"}),
    "silu": case(aten.silu, X, gives="LOGISTIC MUL"),
    "silu then relu": case(
        lambda x: aten.relu.default(aten.silu.default(x)), X, gives="LOGISTIC MUL"
    ),
    "elu": case(
        aten.elu,
        X,
        1.5,
        below_2="DIV exists",
        gives={29: "MINIMUM RELU EXP SUB MUL ADD", 30: "ELU"},
    ),
    "elu with scales": case(aten.elu, X, 1.5, 2.0, 0.5, below_2="DIV exists"),
    "elu with a scale": case(aten.elu, X, 0.5, -2.0, below_2="DIV exists", gives="ELU MUL"),
    "selu": case(aten.selu, X, below_2="DIV exists"),
    "celu": case(aten.celu, X, 0.7, below_2="DIV exists"),
    "leaky relu": case(aten.leaky_relu, X, 0.1, gives={27: "RELU MUL RELU MUL ADD", 29: "PRELU"}),
    "prelu": case(
        lambda x: aten.prelu.default(x, W["channels"]),
        X,
        gives={27: "RELU MUL RELU MUL ADD", 29: "PRELU"},
    ),
    "prelu of rows": case(lambda x: aten.prelu.default(x, W["channels"]), image(3, 4)),
    "prelu with one slope": case(lambda x: aten.prelu.default(x, torch.tensor([0.3])), X),
    "prelu with computed slopes": case(
        lambda x, w: aten.prelu.default(x, w),
        X,
        image(4),
        never="w is computed by the model, a constant is required",
    ),
    "gelu": case(
        aten.gelu,
        X * 3,
        gives="MUL MUL " + "MUL ADD " * 6 + "MUL LOGISTIC MUL",
        rtol=1e-6,
        atol=1e-6,
    ),
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
        aten.gelu,
        X * 3,
        approximate="tanh",
        gives="MUL MUL ADD MUL LOGISTIC MUL",
        rtol=1e-6,
        atol=1e-6,
    ),
    "gelu then relu": case(lambda x: aten.relu.default(aten.gelu.default(x)), X),
    "mish": case(aten.mish, X * 10, below_2="SUB|DIV exists", atol=1e-6),
    "glu over channels": case(aten.glu, X, 1, below_2="STRIDED_SLICE exists"),
    "glu over the last axis": case(aten.glu, image(3, 8), below_2="STRIDED_SLICE exists"),
    "glu of a contiguous image": case(aten.glu, X, -3, order=FIRST, below_2="STRIDED_SLICE exists"),
    "mul with relu": case(lambda x: aten.relu.default(aten.mul.Tensor(x, -1.0)), X, gives="MUL"),
    "softmax of rank 2": case(aten.softmax.int, image(3, 5), -1, gives="SOFTMAX"),
    "softmax of rank 1": case(
        aten.softmax.int, image(5), 0, gives={27: "RESHAPE SOFTMAX RESHAPE", 29: "SOFTMAX"}
    ),
    "softmax of rank 3": case(aten.softmax.int, image(2, 3, 5), 2),
    "softmax over channels": case(aten.softmax.int, X, 1, gives={27: "SOFTMAX", 30: "SOFTMAX"}),
    "softmax over rows": case(
        aten.softmax.int,
        X,
        3,
        below_2=f"TRANSPOSE exists {NEEDS_2}",
        gives={28: "TRANSPOSE SOFTMAX TRANSPOSE", 29: "SOFTMAX"},
    ),
    "softmax over the first of two": case(
        aten.softmax.int,
        image(3, 5),
        0,
        below_2="TRANSPOSE exists",
        gives={28: "TRANSPOSE SOFTMAX TRANSPOSE", 29: "SOFTMAX"},
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
        aten.softmax.int,
        image(3, 5),
        1,
        torch.float64,
        never="gives float64, which NNAPI does not have",
    ),
}
