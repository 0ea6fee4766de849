"""Cases of exponentials, logarithms, angles and running sums; and every function of one tensor
again: in half precision, of rank 0, of images of either order, of vectors that broadcast."""

import math

import torch

from tests.convert.cases.common import (
    INTEGERS,
    MASK,
    NO_SLICE,
    NO_TRANSPOSE,
    X,
    all_levels,
    case,
    from_3,
)
from tests.convert.harness import FIRST, LAST, Case, aten, image

ROWS = image(5, 3)
LARGE = torch.tensor([[2**30, -(2**31), 7], [2**29 + 1, 2**31 - 1, -(2**24) - 1]])
NO_PAD = "PAD_V2 (exists|takes no)|pads integers with 3"
NO_SUMS = "sums int64 before level 4, NNAPI's FULLY_CONNECTED"
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
    "cumprod of columns": case(aten.cumprod, ROWS, 0, below_2=NO_TRANSPOSE),
    "cumprod of rows": case(aten.cumprod, image(2, 4, 9), -1, below_2=NO_SLICE),
    "cumsum of columns": case(
        aten.cumsum, ROWS, 0, below_2=NO_TRANSPOSE, gives="TRANSPOSE FULLY_CONNECTED TRANSPOSE"
    ),
    "cumsum of rows": case(aten.cumsum, ROWS, -1, gives="FULLY_CONNECTED"),
    "cumsum of an image": case(aten.cumsum, X, 1, gives="RESHAPE FULLY_CONNECTED RESHAPE"),
    "cumsum of bools": from_3(aten.cumsum, MASK, 1, reason="SELECT exists"),
    "cumsum of integers": case(aten.cumsum, INTEGERS, 1, below_4=NO_SUMS),
    "cumsum of large integers": case(aten.cumsum, LARGE, 0, below_4=NO_SUMS),
    "pad of bools": from_3(aten.constant_pad_nd, MASK, [1, 2], True, reason="SELECT exists"),
    "pad of integers": case(
        aten.constant_pad_nd, INTEGERS, [1, 0, 0, 2], below_4="PAD exists|PAD takes no TENSOR_INT32"
    ),
    "pad of integers with a number": case(aten.constant_pad_nd, INTEGERS, [1, 0], 3, never=NO_PAD),
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


LATER = "exists from level|needs level|FLOAT16 from level"

BY_LEVEL = {
    1: (
        *(aten.relu, aten.sigmoid, aten.tanh, aten.abs, aten.neg, aten.floor, aten.ceil),
        *(aten.trunc, aten.round, aten.square, aten.erf, aten.gelu, aten.silu, aten.hardswish),
        *(aten.hardsigmoid, aten.softshrink),
    ),
    2: (aten.exp, aten.expm1, aten.mish, aten.elu, aten.selu),
    3: (aten.sign, aten.sin, aten.cos, aten.softplus, aten.hardshrink),
}
FUNCTIONS = {
    # name: (function, first level, least input)
    **{
        packet.__name__: (packet, level, None)
        for level, packets in BY_LEVEL.items()
        for packet in packets
    },
    "reciprocal": (aten.reciprocal, 2, 0.2),
    "sqrt": (aten.sqrt, 3, 0.0),
    "rsqrt": (aten.rsqrt, 3, 0.2),
    "log": (aten.log, 3, 0.2),
    "log1p": (aten.log1p, 3, 0.0),
    "celu": (lambda x: aten.celu.default(x, 0.5), 2, None),
    "leaky relu": (lambda x: aten.leaky_relu.default(x, 0.2), 1, None),
    "hardtanh": (lambda x: aten.hardtanh.default(x, -0.5, 0.75), 1, None),
    "threshold": (lambda x: aten.threshold.default(x, 0.1, 0.3), 3, None),
    "rsub": (lambda x: aten.add.Tensor(aten.mul.Tensor(x, -1), 2.0), 1, None),
    "cube": (lambda x: aten.pow.Tensor_Scalar(x, 3), 1, None),
    "positive": (lambda x: aten.gt.Scalar(x, 0.1), 3, None),
    "choice": (lambda x: aten.where.ScalarOther(aten.gt.Scalar(x, 0.1), x, -1.0), 3, None),
    "integer": (lambda x: aten._to_copy.default(x, dtype=torch.int64), 3, None),
    "remainder": (lambda x: aten.remainder.Scalar(x, 0.5), 1, None),
}


def _within(x, least):
    return x * 2 if least is None else x.abs() + least


def variants(name, function, first, least):
    """One function on other shapes, orders and element types."""
    refused = all_levels(LATER, 26 + first)
    half = _within(image(3, 5), least).half()
    shapes = {"rank 0": (), "rank 1": (7,), "rank 3": (2, 3, 4), "image": (2, 3, 4, 5)}
    inputs = {what: _within(image(*shape), least) for what, shape in shapes.items()}
    return {
        f"{name}, half precision": case(function, half, below_3=LATER, rtol=5e-3, atol=5e-3),
        **{f"{name}, {what}": case(function, x, refused=refused) for what, x in inputs.items()},
        f"{name}, contiguous image": case(function, inputs["image"], order=FIRST, refused=refused),
    }


BINARY = {
    "add": (aten.add.Tensor, 1),
    "mul": (aten.mul.Tensor, 1),
    "sub": (aten.sub.Tensor, 1),
    "div": (aten.div.Tensor, 2),
    "maximum": (aten.maximum.default, 3),
    "minimum": (aten.minimum.default, 3),
    "pow": (aten.pow.Tensor_Tensor, 3),
    "less": (aten.lt.Tensor, 3),
    "remainder": (aten.remainder.Tensor, 3),
    "floor divide": (aten.floor_divide.default, 3),
    "atan2": (aten.atan2.default, 3),
}
SHAPES = {
    "a row": (8,),
    "a plane": (7, 8),
    "channels": (4, 1, 1),
    "one element": (1,),
    "nothing but a number": (),
    "a column of the image": (2, 1, 7, 1),
    "channels of columns": (4, 7, 1),
}
MOVED = ("channels of columns",)
"""What has elements in another order in a channels_last image: a TRANSPOSE, of level 2."""


def broadcasts(name, function, first):
    """An image with what is smaller, on either side, in either dim order."""
    x = image(2, 4, 7, 8).abs() + 0.5
    cases = {}
    for what, shape in SHAPES.items():
        small = image(*shape or [1]).abs().reshape(shape) + 0.5
        for where, order in (("an image", LAST), ("a contiguous image", FIRST)):
            moves = order is LAST and what in MOVED
            refused = all_levels(f"{LATER}|dividing by", max(26 + first, 28 if moves else 27))
            for title, inputs in (
                (f"{name} of {where} and {what}", (x, small)),
                (f"{name} of {what} and {where}", (small, x)),
            ):
                cases[title] = case(function, *inputs, order=order, refused=refused)
    return cases


VARIANTS = {
    key: case
    for name, (function, first, least) in FUNCTIONS.items()
    for key, case in variants(name, function, first, least).items()
} | {
    key: case
    for name, (function, first) in BINARY.items()
    for key, case in broadcasts(name, function, first).items()
}
