"""Cases of rounding, and of division that rounds."""

import torch

from tests.convert.cases.common import INTEGERS, X, case
from tests.convert.harness import aten, image

EDGES = [-0.49999997, 0.0, 0.49999997, 1e-09, -1e-09, 0.1, -0.9, 2.4999998, 2.5000002]
LARGE = [8388607.5, 8388609.0, -8388609.0, 16777217.0, 3000000000.0]
HALVES = torch.cat([torch.arange(-4.5, 5), torch.tensor([*LARGE, *EDGES])])
DIVIDENDS = torch.cat([image(200) * 30, HALVES, torch.arange(-40, 40) * 0.1, torch.arange(9.0)])
INTEGER_DIVISORS = torch.tensor([[3], [-2]])
CONSTANTS = torch.tensor([3.0, -0.3, 7.7])
NEEDS_DIV = r"DIV exists from level 2"
NO_INTEGERS = "exists from|TENSOR_INT32 from level 4"
EXACT = r"an exact division .* needs level 3"


def exactly(function, *inputs, **options):
    return case(function, *inputs, rtol=0, atol=0, **options)


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
        f"{name} of integers": exactly(function, INTEGERS, INTEGER_DIVISORS, below_4=NO_INTEGERS),
        f"{name} by constants": exactly(
            lambda x: function(x, CONSTANTS), image(50, 3) * 20, below_3=EXACT
        ),
    }


ROUNDING = {
    "floor": exactly(aten.floor, HALVES, gives="FLOOR"),
    "ceil": exactly(aten.ceil, HALVES, gives="NEG FLOOR NEG"),
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
    "div rounded down": exactly(
        aten.div.Scalar_mode, DIVIDENDS, 0.1, rounding_mode="floor", below_3=EXACT
    ),
    "div cut off": exactly(
        aten.div.Tensor_mode,
        DIVIDENDS,
        DIVIDENDS.abs() / 3 + 0.5,
        rounding_mode="trunc",
        below_2=NEEDS_DIV,
    ),
    "div by a number cut off": exactly(
        aten.div.Scalar_mode, DIVIDENDS, 0.7, rounding_mode="trunc", below_2=NEEDS_DIV
    ),
    "div of integers cut off": exactly(
        aten.div.Tensor_mode, INTEGERS, INTEGER_DIVISORS, rounding_mode="trunc", below_4=NO_INTEGERS
    ),
    "div of integers rounded down": exactly(
        aten.div.Scalar_mode,
        INTEGERS,
        3,
        rounding_mode="floor",
        below_4="DIV exists|TENSOR_INT32 from level 4",
    ),
    "div that does not round": case(
        aten.div.Scalar_mode, X, 3.0, rounding_mode=None, below_2=NEEDS_DIV
    ),
    "floor divide of half precision": case(
        aten.floor_divide.Scalar, X.half(), 0.3, never="divides float16 exactly|FLOAT16"
    ),
}
