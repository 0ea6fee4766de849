"""Cases of exponentials, logarithms, angles and running sums."""

import math

import torch

from tests.convert.cases.common import INTEGERS, MASK, X, all_levels, case, from_3
from tests.convert.harness import FIRST, Case, aten, image

WIDE = torch.cat([torch.linspace(-80, 80, 321), image(40), image(20) * 1e-4])
POSITIVE = torch.cat([torch.linspace(1e-3, 4, 200), torch.logspace(-30, 30, 60)])
SMALL = torch.cat([torch.linspace(-0.9, 3, 100), torch.logspace(-9, 4, 50), torch.zeros(1)])
ALL_SIGNS = torch.tensor([[1.0, 2.0], [-1.0, 3.0], [-2.0, -0.5], [2.0, -3.0], [0.0, 0.0]])
ZEROS = torch.tensor([0.0, -0.0, 0.0, -0.0, 2.0, 2.0, -2.0, -2.0])
DIV_LATER = "DIV exists from level 2"
DIV_FIRST = "exists from level [23]"
"""Operations of level 3 beside a quotient, which is refused first at level 1."""


def relative(function, *inputs, **options):
    """A case whose result is right in every digit of its own, however small it is."""
    return case(function, *inputs, atol=0, **options)


FORMULAS = {
    "exp": relative(
        aten.exp, WIDE, below_2=DIV_LATER, gives={28: "LOGISTIC MUL LOGISTIC DIV", 29: "EXP"}
    ),
    "exp of integers": from_3(aten.exp, INTEGERS, reason="CAST exists"),
    "exp2": from_3(aten.exp2, WIDE, gives="POW"),
    "expm1": relative(aten.expm1, WIDE, below_2=DIV_LATER),
    "log": from_3(aten.log, POSITIVE, gives="LOG"),
    "log2": from_3(aten.log2, POSITIVE),
    "log10": from_3(aten.log10, POSITIVE),
    "log1p": Case(  # as right as the device's LOG near 1, where XNNPACK's is one unit off
        lambda x: aten.log1p.default(x),
        (SMALL,),
        refused=all_levels("exists from level", 29),
        atol=1.5e-7,
    ),
    "logit": from_3(aten.logit, torch.linspace(0.01, 0.99, 50), reason=DIV_FIRST),
    "logit with an eps": from_3(aten.logit, torch.linspace(0, 1, 50), 0.1),
    "logaddexp": from_3(aten.logaddexp, WIDE, image(WIDE.numel()), reason=DIV_FIRST),
    "softplus": from_3(aten.softplus, WIDE, reason=DIV_FIRST, atol=2e-7),
    "softplus with beta": from_3(aten.softplus, X, 2.5, reason=DIV_FIRST),
    "softplus with a low threshold": from_3(aten.softplus, X, 1.5, 0.5, reason=DIV_FIRST),
    "softplus with a negative beta": case(
        aten.softplus, X, -1, never="beta=-1, a positive one is required"
    ),
    "log sigmoid": from_3(aten.log_sigmoid, WIDE, reason=DIV_FIRST, atol=2e-7),
    "erf": Case(  # 2.5e-7 where the device's TANH is rounded well; XNNPACK's adds half a unit
        lambda x: aten.erf.default(x), (WIDE / 8,), rtol=0, atol=3e-7
    ),
    "erf near 0": relative(aten.erf, WIDE / 1e5, refused={}),
    "erfc": case(aten.erfc, WIDE / 8, rtol=0, atol=5e-7),
    "sin": from_3(aten.sin, X, gives="SIN"),
    "cos": from_3(aten.cos, WIDE, rtol=0, atol=3e-7),
    "cos of large numbers": from_3(aten.cos, WIDE * 100, rtol=0, atol=3e-7),
    "tan": from_3(aten.tan, torch.linspace(-1.4, 1.4, 60)),
    "sinh": relative(aten.sinh, WIDE, below_2=DIV_LATER),
    "cosh": relative(aten.cosh, WIDE, below_2=DIV_LATER),
    "atan": from_3(aten.atan, WIDE, rtol=0, atol=3e-7),
    "atan2": from_3(aten.atan2, image(300), image(300, seed=1), reason="exists", rtol=0, atol=4e-7),
    "atan2 in every quadrant": from_3(
        lambda x: aten.atan2.default(x, ALL_SIGNS), ALL_SIGNS.flip(1)
    ),
    "atan2 with zeros of either sign": from_3(
        lambda y: aten.atan2.default(y, torch.cat([ZEROS[2:], ZEROS[:2]])), ZEROS
    ),
    "atan2 of zeros of either sign": from_3(
        lambda y: aten.atan2.default(y, torch.tensor([0.0, -0.0, -0.0, 0.0])),
        ZEROS[:4],
        reason="exists",
    ),
    "atan2 of half precision": case(
        aten.atan2, X.half(), X.half(), never="exists from level|FLOAT16|an angle of float16"
    ),
    "square of integers": case(aten.square, INTEGERS, below_4="TENSOR_INT32"),
    "squared": case(aten.square, X, gives="MUL"),
    "cube": case(aten.pow.Tensor_Scalar, X, 3, gives="MUL MUL"),
    "seventh power": case(aten.pow.Tensor_Scalar, X, 7.0),
    "power of 1": case(aten.pow.Tensor_Scalar, X, 1, gives="RESHAPE"),
    "power of -2": case(aten.pow.Tensor_Scalar, X.abs() + 1, -2, below_2=DIV_LATER),
    "power of 0.5": from_3(aten.pow.Tensor_Scalar, X.abs(), 0.5, gives="SQRT"),
    "power of -0.5": from_3(aten.pow.Tensor_Scalar, X.abs() + 0.1, -0.5, gives="RSQRT"),
    "power of 0": from_3(aten.pow.Tensor_Scalar, X, 0),
    "power of a tensor": from_3(aten.pow.Tensor_Tensor, X.abs() + 0.1, image(8)),
    "power of a number": from_3(aten.pow.Scalar, 2.5, X),
    "power of integers": case(aten.pow.Tensor_Scalar, INTEGERS, 3, below_4="TENSOR_INT32"),
    "power of integers below 1": case(
        aten.pow.Tensor_Scalar, INTEGERS, 9, never="POW exists|POW takes no TENSOR_INT32"
    ),
    "addcmul": case(
        lambda x, y: aten.addcmul.default(x, y, x, value=0.5), X, image(8), order=FIRST
    ),
    "addcdiv": case(
        lambda x, y: aten.addcdiv.default(x, x, y, value=2), X, X.abs() + 1, below_2=DIV_LATER
    ),
    "lerp": case(aten.lerp.Scalar, X, -X, 0.3),
    "lerp by a tensor": case(lambda x, y: aten.lerp.Tensor(x, y, x), X, -X),
    "cumprod of columns": case(aten.cumprod, image(5, 3), 0, below_2="TRANSPOSE exists"),
    "cumprod of rows": case(aten.cumprod, image(2, 4, 9), -1, below_2="STRIDED_SLICE exists"),
    "cumsum of columns": case(
        aten.cumsum,
        image(5, 3),
        0,
        below_2="TRANSPOSE exists",
        gives="TRANSPOSE FULLY_CONNECTED TRANSPOSE",
    ),
    "cumsum of rows": case(aten.cumsum, image(5, 3), -1, gives="FULLY_CONNECTED"),
    "cumsum of an image": case(aten.cumsum, X, 1, gives="RESHAPE FULLY_CONNECTED RESHAPE"),
    "cumsum of bools": from_3(aten.cumsum, MASK, 1, reason="SELECT exists"),
    "cumsum of integers": case(
        aten.cumsum, INTEGERS, 1, below_4="sums int64 before level 4, NNAPI's FULLY_CONNECTED"
    ),
    "cumsum of large integers": case(
        aten.cumsum,
        torch.tensor([[2**30, -(2**31), 7], [2**29 + 1, 2**31 - 1, -(2**24) - 1]]),
        0,
        below_4="sums int64 before level 4, NNAPI's FULLY_CONNECTED",
    ),
    "pad of bools": from_3(aten.constant_pad_nd, MASK, [1, 2], True, reason="SELECT exists"),
    "pad of integers": case(
        aten.constant_pad_nd, INTEGERS, [1, 0, 0, 2], below_4="PAD exists|PAD takes no TENSOR_INT32"
    ),
    "pad of integers with a number": case(
        aten.constant_pad_nd,
        INTEGERS,
        [1, 0],
        3,
        never="PAD_V2 exists|PAD_V2 takes no|pads integers with 3",
    ),
    "cumsum of too much": case(
        aten.cumsum, torch.ones(3000), 0, never="sums along 3000 elements, up to 2048"
    ),
    "tril": from_3(aten.tril, image(2, 4, 5), reason="SELECT exists"),
    "triu": from_3(aten.triu, image(4, 5), 1, reason="SELECT exists"),
    "triu of bools": from_3(aten.triu, MASK, reason="LOGICAL_AND exists"),
    "infinite attention mask": from_3(
        aten.triu, torch.full((4, 4), -math.inf), 1, reason="SELECT exists"
    ),
}
