"""Cases of rounding, and of division that rounds."""

import torch

from tests.convert.cases.common import INTEGERS, X, all_levels
from tests.convert.harness import Case, aten, image

HALVES = torch.tensor(
    [
        -4.5,
        -3.5,
        -2.5,
        -1.5,
        -0.5,
        -0.49999997,
        0.0,
        0.49999997,
        0.5,
        1.5,
        2.5,
        3.5,
        4.5,
        1e-09,
        -1e-09,
        8388607.5,
        8388609.0,
        -8388609.0,
        16777217.0,
        3000000000.0,
        0.1,
        -0.9,
        2.4999998,
        2.5000002,
    ]
)
DIVIDENDS = torch.cat([image(200) * 30, HALVES, torch.arange(-40, 40) * 0.1, torch.arange(9.0)])
CONSTANTS = torch.tensor([3.0, -0.3, 7.7])
NEEDS_DIV = r"DIV exists from level 2"
EXACT = r"an exact division .* needs level 3"


def exactly(function, *inputs, refused=None, **options):
    return Case(function, inputs, refused=refused or {}, rtol=0, atol=0, **options)


def by_numbers(name, function):
    """By powers of two, which every level can, and by others, all to the last bit."""

    def case(number, values, refused):
        return exactly(lambda x: function(x, number), values, refused=refused)

    wide = {f"{name} by {n}": case(n, DIVIDENDS, {}) for n in (2.0, -0.25, 1)}
    near = DIVIDENDS[DIVIDENDS.abs() < 1e4]
    refused = {27: EXACT, 28: EXACT}
    return wide | {f"{name} by {n}": case(n, near, refused) for n in (2.5, 0.1, -0.7, 3, 1e-3)}


def by_tensors(name, function):
    values = DIVIDENDS[DIVIDENDS.abs() < 1e4]
    divisors = image(values.numel(), seed=5)
    divisors = torch.where(divisors.abs() < 0.01, 0.3, divisors)
    return {
        f"{name} by a tensor": exactly(
            lambda x, y: function(x, y), values, divisors, refused={27: EXACT, 28: EXACT}
        ),
        f"{name} of integers": exactly(
            lambda x, y: function(x, y),
            INTEGERS,
            torch.tensor([[3], [-2]]),
            refused=all_levels("exists from|TENSOR_INT32 from level 4", 30),
        ),
        f"{name} by constants": exactly(
            lambda x: function(x, CONSTANTS), image(50, 3) * 20, refused={27: EXACT, 28: EXACT}
        ),
    }


ROUNDING = {
    "floor": exactly(lambda x: aten.floor.default(x), HALVES, operations={27: "FLOOR"}),
    "ceil": exactly(lambda x: aten.ceil.default(x), HALVES, operations={29: "NEG FLOOR NEG"}),
    "trunc": exactly(lambda x: aten.trunc.default(x), HALVES),
    "frac": exactly(lambda x: aten.frac.default(x), HALVES[:-3]),
    "round": exactly(lambda x: aten.round.default(x), HALVES),
    "round of an image": exactly(lambda x: aten.round.default(x), X * 4),
    "round of integers": Case(
        lambda x: aten.round.default(x),
        (INTEGERS,),
        refused=all_levels("of int64, which has no fraction", 31),
    ),
    "sign": exactly(
        lambda x: aten.sign.default(x), HALVES, refused=all_levels("telling signs apart", 29)
    ),
    "sign of integers": exactly(
        lambda x: aten.sgn.default(x), INTEGERS, refused=all_levels("telling signs apart", 29)
    ),
    **by_numbers("remainder", aten.remainder.Scalar),
    **by_numbers("fmod", aten.fmod.Scalar),
    **by_numbers("floor divide", aten.floor_divide.Scalar),
    **by_tensors("remainder", aten.remainder.Tensor),
    **by_tensors("fmod", aten.fmod.Tensor),
    **by_tensors("floor divide", aten.floor_divide.default),
    "div rounded down": exactly(
        lambda x: aten.div.Scalar_mode(x, 0.1, rounding_mode="floor"),
        DIVIDENDS,
        refused={27: EXACT, 28: EXACT},
    ),
    "div cut off": exactly(
        lambda x, y: aten.div.Tensor_mode(x, y, rounding_mode="trunc"),
        DIVIDENDS,
        DIVIDENDS.abs() / 3 + 0.5,
        refused={27: NEEDS_DIV},
    ),
    "div by a number cut off": exactly(
        lambda x: aten.div.Scalar_mode(x, 0.7, rounding_mode="trunc"),
        DIVIDENDS,
        refused={27: NEEDS_DIV},
    ),
    "div of integers cut off": exactly(
        lambda x, y: aten.div.Tensor_mode(x, y, rounding_mode="trunc"),
        INTEGERS,
        torch.tensor([[3], [-2]]),
        refused=all_levels("exists from|TENSOR_INT32 from level 4", 30),
    ),
    "div of integers rounded down": exactly(
        lambda x: aten.div.Scalar_mode(x, 3, rounding_mode="floor"),
        INTEGERS,
        refused=all_levels("DIV exists|TENSOR_INT32 from level 4", 30),
    ),
    "div that does not round": Case(
        lambda x: aten.div.Scalar_mode(x, 3.0, rounding_mode=None),
        (X,),
        refused={27: NEEDS_DIV},
    ),
    "floor divide of half precision": Case(
        lambda x: aten.floor_divide.Scalar(x, 0.3),
        (X.half(),),
        refused=all_levels("divides float16 exactly|FLOAT16", 31),
    ),
}
