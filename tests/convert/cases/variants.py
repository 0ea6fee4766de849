"""Every function of one tensor again: in half precision, of rank 0, of images of either order, of
vectors that broadcast, and at the edges of its domain."""

import torch

from tests.convert.cases.common import all_levels, case
from tests.convert.harness import FIRST, LAST, aten, image

LATER = "exists from level|needs level|FLOAT16 from level"

FUNCTIONS = {
    # name: (function, first level, least input)
    "relu": (lambda x: aten.relu.default(x), 1, None),
    "sigmoid": (lambda x: aten.sigmoid.default(x), 1, None),
    "tanh": (lambda x: aten.tanh.default(x), 1, None),
    "abs": (lambda x: aten.abs.default(x), 1, None),
    "neg": (lambda x: aten.neg.default(x), 1, None),
    "floor": (lambda x: aten.floor.default(x), 1, None),
    "ceil": (lambda x: aten.ceil.default(x), 1, None),
    "trunc": (lambda x: aten.trunc.default(x), 1, None),
    "round": (lambda x: aten.round.default(x), 1, None),
    "sign": (lambda x: aten.sign.default(x), 3, None),
    "square": (lambda x: aten.square.default(x), 1, None),
    "reciprocal": (lambda x: aten.reciprocal.default(x), 2, 0.2),
    "sqrt": (lambda x: aten.sqrt.default(x), 3, 0.0),
    "rsqrt": (lambda x: aten.rsqrt.default(x), 3, 0.2),
    "exp": (lambda x: aten.exp.default(x), 2, None),
    "expm1": (lambda x: aten.expm1.default(x), 2, None),
    "log": (lambda x: aten.log.default(x), 3, 0.2),
    "log1p": (lambda x: aten.log1p.default(x), 3, 0.0),
    "sin": (lambda x: aten.sin.default(x), 3, None),
    "cos": (lambda x: aten.cos.default(x), 3, None),
    "erf": (lambda x: aten.erf.default(x), 1, None),
    "gelu": (lambda x: aten.gelu.default(x), 1, None),
    "silu": (lambda x: aten.silu.default(x), 1, None),
    "mish": (lambda x: aten.mish.default(x), 2, None),
    "softplus": (lambda x: aten.softplus.default(x), 3, None),
    "elu": (lambda x: aten.elu.default(x), 2, None),
    "selu": (lambda x: aten.selu.default(x), 2, None),
    "celu": (lambda x: aten.celu.default(x, 0.5), 2, None),
    "leaky relu": (lambda x: aten.leaky_relu.default(x, 0.2), 1, None),
    "hardswish": (lambda x: aten.hardswish.default(x), 1, None),
    "hardsigmoid": (lambda x: aten.hardsigmoid.default(x), 1, None),
    "hardtanh": (lambda x: aten.hardtanh.default(x, -0.5, 0.75), 1, None),
    "softshrink": (lambda x: aten.softshrink.default(x), 1, None),
    "hardshrink": (lambda x: aten.hardshrink.default(x), 3, None),
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
    return {
        f"{name}, half precision": case(function, half, below_3=LATER, rtol=5e-3, atol=5e-3),
        f"{name}, rank 0": case(function, _within(image(1)[0], least), refused=refused),
        f"{name}, rank 1": case(function, _within(image(7), least), refused=refused),
        f"{name}, rank 3": case(function, _within(image(2, 3, 4), least), refused=refused),
        f"{name}, image": case(function, _within(image(2, 3, 4, 5), least), refused=refused),
        f"{name}, contiguous image": case(
            function, _within(image(2, 3, 4, 5), least), order=FIRST, refused=refused
        ),
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
