"""Cases of exponentials, logarithms, angles and running sums."""

import math

import torch

from tests.convert.cases.common import INTEGERS, MASK, X, all_levels
from tests.convert.harness import FIRST, Case, aten, image

WIDE = torch.cat([torch.linspace(-80, 80, 321), image(40), image(20) * 1e-4])
POSITIVE = torch.cat([torch.linspace(1e-3, 4, 200), torch.logspace(-30, 30, 60)])
SMALL = torch.cat([torch.linspace(-0.9, 3, 100), torch.logspace(-9, 4, 50), torch.zeros(1)])
ALL_SIGNS = torch.tensor([[1.0, 2.0], [-1.0, 3.0], [-2.0, -0.5], [2.0, -3.0], [0.0, 0.0]])
ZEROS = torch.tensor([0.0, -0.0, 0.0, -0.0, 2.0, 2.0, -2.0, -2.0])
DIV_LATER = {27: "DIV exists from level 2"}


def from_3(function, *inputs, reason="exists from level 3", **options):
    return Case(function, inputs, refused=all_levels(reason, 29), **options)


def relative(function, *inputs, refused, **options):
    """A case whose result is right in every digit of its own, however small it is."""
    return Case(function, inputs, refused=refused, atol=0, **options)


FORMULAS = {
    "exp": relative(
        lambda x: aten.exp.default(x),
        WIDE,
        refused=DIV_LATER,
        operations={28: "LOGISTIC MUL LOGISTIC DIV", 29: "EXP"},
    ),
    "exp of integers": from_3(lambda x: aten.exp.default(x), INTEGERS, reason="CAST exists"),
    "exp2": from_3(lambda x: aten.exp2.default(x), WIDE, operations={29: "POW"}),
    "expm1": relative(lambda x: aten.expm1.default(x), WIDE, refused=DIV_LATER),
    "log": from_3(lambda x: aten.log.default(x), POSITIVE, operations={29: "LOG"}),
    "log2": from_3(lambda x: aten.log2.default(x), POSITIVE),
    "log10": from_3(lambda x: aten.log10.default(x), POSITIVE),
    "log1p": Case(  # as right as the device's LOG near 1, where XNNPACK's is one unit off
        lambda x: aten.log1p.default(x),
        (SMALL,),
        refused=all_levels("exists from level", 29),
        atol=1.5e-7,
    ),
    "logit": from_3(
        lambda x: aten.logit.default(x), torch.linspace(0.01, 0.99, 50), reason="exists"
    ),
    "logit with an eps": from_3(
        lambda x: aten.logit.default(x, 0.1), torch.linspace(0, 1, 50), reason="exists"
    ),
    "logaddexp": from_3(
        lambda x, y: aten.logaddexp.default(x, y), WIDE, image(WIDE.numel()), reason="exists"
    ),
    "softplus": from_3(lambda x: aten.softplus.default(x), WIDE, reason="exists", atol=2e-7),
    "softplus with beta": from_3(lambda x: aten.softplus.default(x, 2.5), X, reason="exists"),
    "softplus with a low threshold": from_3(
        lambda x: aten.softplus.default(x, 1.5, 0.5), X, reason="exists"
    ),
    "softplus with a negative beta": Case(
        lambda x: aten.softplus.default(x, -1),
        (X,),
        refused=all_levels("beta=-1, a positive one is required", 31),
    ),
    "log sigmoid": from_3(lambda x: aten.log_sigmoid.default(x), WIDE, reason="exists", atol=2e-7),
    "erf": Case(  # 2.5e-7 where the device's TANH is rounded well; XNNPACK's adds half a unit
        lambda x: aten.erf.default(x), (WIDE / 8,), rtol=0, atol=3e-7
    ),
    "erf near 0": relative(lambda x: aten.erf.default(x), WIDE / 1e5, refused={}),
    "erfc": Case(lambda x: aten.erfc.default(x), (WIDE / 8,), rtol=0, atol=5e-7),
    "sin": from_3(lambda x: aten.sin.default(x), X, operations={29: "SIN"}),
    "cos": from_3(lambda x: aten.cos.default(x), WIDE, rtol=0, atol=3e-7),
    "cos of an image": from_3(lambda x: aten.cos.default(x), X),
    "cos of large numbers": from_3(lambda x: aten.cos.default(x), WIDE * 100, rtol=0, atol=3e-7),
    "tan": from_3(lambda x: aten.tan.default(x), torch.linspace(-1.4, 1.4, 60)),
    "sinh": relative(lambda x: aten.sinh.default(x), WIDE, refused=DIV_LATER),
    "cosh": relative(lambda x: aten.cosh.default(x), WIDE, refused=DIV_LATER),
    "atan": from_3(lambda x: aten.atan.default(x), WIDE, reason="exists", rtol=0, atol=3e-7),
    "atan2": from_3(
        lambda y, x: aten.atan2.default(y, x),
        image(300),
        image(300, seed=1),
        reason="exists",
        rtol=0,
        atol=4e-7,
    ),
    "atan2 in every quadrant": from_3(
        lambda x: aten.atan2.default(x, ALL_SIGNS), ALL_SIGNS.flip(1), reason="exists"
    ),
    "atan2 with zeros of either sign": from_3(
        lambda y: aten.atan2.default(y, torch.cat([ZEROS[2:], ZEROS[:2]])), ZEROS, reason="exists"
    ),
    "atan2 of zeros of either sign": from_3(
        lambda y: aten.atan2.default(y, torch.tensor([0.0, -0.0, -0.0, 0.0])),
        ZEROS[:4],
        reason="exists",
    ),
    "atan2 of half precision": Case(
        lambda y, x: aten.atan2.default(y, x),
        (X.half(), X.half()),
        refused=all_levels("exists from level|FLOAT16|an angle of float16", 31),
    ),
    "square of integers": Case(
        lambda x: aten.square.default(x), (INTEGERS,), refused=all_levels("TENSOR_INT32", 30)
    ),
    "squared": Case(lambda x: aten.square.default(x), (X,), operations={27: "MUL"}),
    "cube": Case(lambda x: aten.pow.Tensor_Scalar(x, 3), (X,), operations={27: "MUL MUL"}),
    "seventh power": Case(lambda x: aten.pow.Tensor_Scalar(x, 7.0), (X,)),
    "power of 1": Case(lambda x: aten.pow.Tensor_Scalar(x, 1), (X,), operations={27: "RESHAPE"}),
    "power of -2": Case(lambda x: aten.pow.Tensor_Scalar(x, -2), (X.abs() + 1,), refused=DIV_LATER),
    "power of 0.5": from_3(
        lambda x: aten.pow.Tensor_Scalar(x, 0.5), X.abs(), operations={29: "SQRT"}
    ),
    "power of -0.5": from_3(
        lambda x: aten.pow.Tensor_Scalar(x, -0.5), X.abs() + 0.1, operations={29: "RSQRT"}
    ),
    "power of 0": from_3(lambda x: aten.pow.Tensor_Scalar(x, 0), X),
    "power of a tensor": from_3(lambda x, y: aten.pow.Tensor_Tensor(x, y), X.abs() + 0.1, image(8)),
    "power of a number": from_3(lambda x: aten.pow.Scalar(2.5, x), X),
    "power of integers": Case(
        lambda x: aten.pow.Tensor_Scalar(x, 3), (INTEGERS,), refused=all_levels("TENSOR_INT32", 30)
    ),
    "power of integers below 1": Case(
        lambda x: aten.pow.Tensor_Scalar(x, 9),
        (INTEGERS,),
        refused=all_levels("POW exists|POW takes no TENSOR_INT32", 31),
    ),
    "addcmul": Case(
        lambda x, y: aten.addcmul.default(x, y, x, value=0.5), (X, image(8)), order=FIRST
    ),
    "addcdiv": Case(
        lambda x, y: aten.addcdiv.default(x, x, y, value=2), (X, X.abs() + 1), refused=DIV_LATER
    ),
    "lerp": Case(lambda x, y: aten.lerp.Scalar(x, y, 0.3), (X, -X)),
    "lerp by a tensor": Case(lambda x, y: aten.lerp.Tensor(x, y, x), (X, -X)),
    "cumprod of columns": Case(
        lambda x: aten.cumprod.default(x, 0), (image(5, 3),), refused={27: "TRANSPOSE exists"}
    ),
    "cumprod of rows": Case(
        lambda x: aten.cumprod.default(x, -1),
        (image(2, 4, 9),),
        refused={27: "STRIDED_SLICE exists"},
    ),
    "cumsum of columns": Case(
        lambda x: aten.cumsum.default(x, 0),
        (image(5, 3),),
        refused={27: "TRANSPOSE exists"},
        operations={28: "TRANSPOSE FULLY_CONNECTED TRANSPOSE"},
    ),
    "cumsum of rows": Case(
        lambda x: aten.cumsum.default(x, -1), (image(5, 3),), operations={27: "FULLY_CONNECTED"}
    ),
    "cumsum of an image": Case(
        lambda x: aten.cumsum.default(x, 1),
        (X,),
        operations={27: "RESHAPE FULLY_CONNECTED RESHAPE"},
    ),
    "cumsum of bools": from_3(lambda x: aten.cumsum.default(x, 1), MASK, reason="SELECT exists"),
    "cumsum of integers": Case(
        lambda x: aten.cumsum.default(x, 1),
        (INTEGERS,),
        refused=dict.fromkeys((27, 28, 29), "sums int64 before level 4, NNAPI's FULLY_CONNECTED"),
    ),
    "cumsum of large integers": Case(
        lambda x: aten.cumsum.default(x, 0),
        (torch.tensor([[2**30, -(2**31), 7], [2**29 + 1, 2**31 - 1, -(2**24) - 1]]),),
        refused=dict.fromkeys((27, 28, 29), "sums int64 before level 4, NNAPI's FULLY_CONNECTED"),
    ),
    "pad of bools": from_3(
        lambda x: aten.constant_pad_nd.default(x, [1, 2], True), MASK, reason="SELECT exists"
    ),
    "pad of integers": Case(
        lambda x: aten.constant_pad_nd.default(x, [1, 0, 0, 2]),
        (INTEGERS,),
        refused=all_levels("PAD exists|PAD takes no TENSOR_INT32", 30),
    ),
    "pad of integers with a number": Case(
        lambda x: aten.constant_pad_nd.default(x, [1, 0], 3),
        (INTEGERS,),
        refused=all_levels("PAD_V2 exists|PAD_V2 takes no|pads integers with 3", 31),
    ),
    "cumsum of too much": Case(
        lambda x: aten.cumsum.default(x, 0),
        (torch.ones(3000),),
        refused=all_levels("sums along 3000 elements, up to 2048", 31),
    ),
    "tril": from_3(lambda x: aten.tril.default(x), image(2, 4, 5), reason="SELECT exists"),
    "triu": from_3(lambda x: aten.triu.default(x, 1), image(4, 5), reason="SELECT exists"),
    "triu of bools": from_3(lambda x: aten.triu.default(x), MASK, reason="LOGICAL_AND exists"),
    "infinite attention mask": from_3(
        lambda x: aten.triu.default(x, 1), torch.full((4, 4), -math.inf), reason="SELECT exists"
    ),
}
