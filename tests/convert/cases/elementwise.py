"""Cases of arithmetic, normalisation, rounding, and division that rounds."""

import torch

from tests.convert.cases.common import INTEGERS, NO_TRANSPOSE, POSITIVE, W, X, all_levels, case
from tests.convert.harness import FIRST, Case, aten, image

NO_INTEGERS = "ADD takes TENSOR_INT32 from level 4"
NO_ZEROS = "dividing by a constant with zeros .* needs level 3"


def batch_norm(x, weight=None, bias=None, training=False, then=None, **known):
    mean, variance = W["channels"].clone(), POSITIVE.clone()  # training writes to them

    def function(y):
        args = (weight, bias, mean, variance, training, 0.1, 1e-5, False)
        y = aten.batch_norm.default(y, *args)
        return y if then is None else then(y)

    return case(function, x, **known)


ZEROS = torch.tensor([0.0, -0.0, 2.0, 0.0])

ARITHMETIC = {
    "add": Case(lambda x, y: aten.add.Tensor(x, y), (X, image(2, 4, 7, 8, seed=5))),
    "add with relu": Case(
        lambda x, y: aten.relu.default(aten.add.Tensor(x, y)), (X, -X / 2), operations={27: "ADD"}
    ),
    "add a number": case(aten.add.Tensor, X, 2.5),
    "add an integer": case(aten.add.Tensor, image(5), 3),
    "add with alpha": case(
        lambda x: aten.add.Tensor(x, x, alpha=2), X, never="alpha=2, only 1 is lowered"
    ),
    "add a constant of rank 1 to an image": case(lambda x: aten.add.Tensor(x, W["row"]), X),
    "add a constant of rank 3 to an image": case(lambda x: aten.add.Tensor(x, W["grid"]), X),
    "add a constant of rank 0": case(lambda x: aten.add.Tensor(x, torch.tensor(2.0)), X),
    "add a row to an image": case(aten.add.Tensor, X, image(8), gives="RESHAPE ADD"),
    "add a plane to an image": case(
        aten.add.Tensor, image(4, 1, 8), X, below_2=NO_TRANSPOSE, gives="RESHAPE TRANSPOSE ADD"
    ),
    "add vectors to a contiguous image": case(
        aten.add.Tensor, X, image(7, 8), order=FIRST, gives="ADD"
    ),
    "add an image of the other order": case(
        aten.add.Tensor, X, X + 1, orders={"y": FIRST}, below_2=NO_TRANSPOSE, gives="TRANSPOSE ADD"
    ),
    "add of rank 5": case(aten.add.Tensor, image(1, 2, 1, 2, 3), 1, never="a tensor of rank 5"),
    "add of rank 0": case(aten.add.Tensor, torch.tensor(1.0), 1, gives="ADD"),
    "add of nothing": case(aten.add.Tensor, torch.zeros(2, 0), 1, never=r"an empty tensor \(2x0\)"),
    "add of int64": case(aten.add.Tensor, torch.arange(4), 1, below_4=NO_INTEGERS),
    "add of int32 rows": case(
        aten.add.Tensor, INTEGERS.int(), INTEGERS[0].int(), below_4=NO_INTEGERS
    ),
    "mul broadcasting both": case(aten.mul.Tensor, image(2, 4, 1, 1), image(1, 1, 7, 8)),
    "mul by itself": case(lambda x: aten.mul.Tensor(x, x), X),
    "sub": case(aten.sub.Tensor, X, image(2, 4, 7, 8, seed=4), gives={27: "MUL ADD", 28: "SUB"}),
    "sub a number": case(aten.sub.Tensor, X, 1.5),
    "sub from a constant": case(lambda x: aten.sub.Tensor(W["row"], x), image(3, 8)),
    "div by a number": case(aten.div.Tensor, X, 3.0, gives={27: "MUL", 28: "DIV"}),
    "div by 0": case(aten.div.Tensor, X, 0.0, below_3=NO_ZEROS, gives="GREATER LESS SELECT SELECT"),
    "div by some zeros": case(
        lambda x: aten.div.Tensor(x, ZEROS),
        torch.tensor([[1.0, -2.0, 3.0, -4.0], [-7.0, 5.0, 0.0, 6.0]]),
        below_3=NO_ZEROS,
    ),
    "div of zeros by zeros": case(
        lambda x: aten.isnan.default(aten.div.Tensor(x, ZEROS)),
        torch.tensor([[0.0, 0.0, 0.0, 1.0], [1.0, -0.0, 1.0, -0.0]]),
        below_3=NO_ZEROS,
    ),
    "div by a constant": case(lambda x: aten.div.Tensor(x, POSITIVE), image(3, 4)),
    "div": case(aten.div.Tensor, X, X.abs() + 1, below_2="a computed tensor needs DIV of level 2"),
    "reciprocal": case(aten.reciprocal, X.abs() + 1, below_2="DIV exists", gives="DIV"),
    "square": case(lambda x: aten.relu.default(aten.pow.Tensor_Scalar(x, 2)), X, gives="MUL"),
    "power": case(aten.pow.Tensor_Scalar, X.abs(), 1.5, below_3="POW exists", gives="POW"),
    "fmax": case(aten.fmax, X, image(8), refused=all_levels("MAXIMUM exists from level 3", 29)),
    "fmin": case(aten.fmin, X, image(8), refused=all_levels("MINIMUM exists from level 3", 29)),
    "maximum": case(lambda x: aten.maximum.default(x, W["grid"]), X, below_3="MAXIMUM exists"),
    "minimum": case(lambda x: aten.minimum.default(x, W["eight"]), X, below_3="MINIMUM exists"),
    "batch norm of an image": batch_norm(X, W["channels"], POSITIVE, gives="MUL ADD"),
    "batch norm of a contiguous image with relu": batch_norm(
        X, then=aten.relu.default, order=FIRST, gives="MUL ADD"
    ),
    "batch norm of rank 2": batch_norm(image(3, 4), W["channels"]),
    "batch norm in training": batch_norm(
        X, training=True, never="training=True, its statistics come from the input"
    ),
}


EDGES = [-0.49999997, 0.0, 0.49999997, 1e-09, -1e-09, 0.1, -0.9, 2.4999998, 2.5000002]
LARGE = [8388607.5, 8388609.0, -8388609.0, 16777217.0, 3000000000.0]
HALVES = torch.cat([torch.arange(-4.5, 5), torch.tensor([*LARGE, *EDGES])])
DIVIDENDS = torch.cat([image(200) * 30, HALVES, torch.arange(-40, 40) * 0.1, torch.arange(9.0)])
INTEGER_DIVISORS = torch.tensor([[3], [-2]])
CONSTANTS = torch.tensor([3.0, -0.3, 7.7])
NEEDS_DIV = r"DIV exists from level 2"
NO_QUOTIENTS = "exists from|TENSOR_INT32 from level 4"
EXACT = r"an exact division .* needs level 3"


def exactly(function, *inputs, **options):
    return case(function, *inputs, rtol=0, atol=0, **options)


def divided(function, value, divisor, mode, **options):
    return exactly(function, value, divisor, rounding_mode=mode, **options)


def by_numbers(name, function):
    """By powers of two, which every level can, and by others, all to the last bit."""
    near = DIVIDENDS[DIVIDENDS.abs() < 1e4]
    return {
        **{f"{name} by {n}": exactly(function, DIVIDENDS, n) for n in (2.0, -0.25, 1)},
        **{
            f"{name} by {n}": exactly(function, near, n, below_3=EXACT)
            for n in (2.5, 0.1, -0.7, 3, 1e-3)
        },
    }


def by_tensors(name, function):
    values = DIVIDENDS[DIVIDENDS.abs() < 1e4]
    divisors = image(values.numel(), seed=5)
    divisors = torch.where(divisors.abs() < 0.01, 0.3, divisors)
    return {
        f"{name} by a tensor": exactly(function, values, divisors, below_3=EXACT),
        f"{name} of integers": exactly(function, INTEGERS, INTEGER_DIVISORS, below_4=NO_QUOTIENTS),
        f"{name} by constants": exactly(
            lambda x: function(x, CONSTANTS), image(50, 3) * 20, below_3=EXACT
        ),
    }


ROUNDING = {
    "floor": exactly(aten.floor, HALVES, gives="FLOOR"),
    "ceil": exactly(aten.ceil, HALVES, gives={29: "NEG FLOOR NEG"}),
    "trunc": exactly(aten.trunc, HALVES),
    "frac": exactly(aten.frac, HALVES[:-3]),
    "round": exactly(aten.round, HALVES),
    "round of integers": case(aten.round, INTEGERS, never="of int64, which has no fraction"),
    "sign": exactly(aten.sign, HALVES, below_3="telling signs apart"),
    "sign of integers": exactly(aten.sgn, INTEGERS, below_3="telling signs apart"),
    **by_numbers("remainder", aten.remainder.Scalar),
    **by_numbers("fmod", aten.fmod.Scalar),
    **by_numbers("floor divide", aten.floor_divide.Scalar),
    **by_tensors("remainder", aten.remainder.Tensor),
    **by_tensors("fmod", aten.fmod.Tensor),
    **by_tensors("floor divide", aten.floor_divide.default),
    "div rounded down": divided(aten.div.Scalar_mode, DIVIDENDS, 0.1, "floor", below_3=EXACT),
    "div cut off": divided(
        aten.div.Tensor_mode, DIVIDENDS, DIVIDENDS.abs() / 3 + 0.5, "trunc", below_2=NEEDS_DIV
    ),
    "div by a number cut off": divided(
        aten.div.Scalar_mode, DIVIDENDS, 0.7, "trunc", below_2=NEEDS_DIV
    ),
    "div of integers cut off": divided(
        aten.div.Tensor_mode, INTEGERS, INTEGER_DIVISORS, "trunc", below_4=NO_QUOTIENTS
    ),
    "div of integers rounded down": divided(
        aten.div.Scalar_mode, INTEGERS, 3, "floor", below_4="DIV exists|TENSOR_INT32 from level 4"
    ),
    "div that does not round": case(
        aten.div.Scalar_mode, X, 3.0, rounding_mode=None, below_2=NEEDS_DIV
    ),
    "floor divide of half precision": case(
        aten.floor_divide.Scalar, X.half(), 0.3, never="divides float16 exactly|FLOAT16"
    ),
}
