"""Random expressions of pointwise operators, over random shapes that broadcast and behind a
convolution, through the whole front end and converter."""

import random

import pytest
import torch
import torch.nn.functional as F

from nnapi_prof.errors import UnsupportedOp
from nnapi_prof.frontend import prepare
from tests.convert.coverage.rows import Function
from tests.convert.harness import run_whole, traced

UNARY = [
    *(torch.relu, torch.tanh, torch.sigmoid, torch.abs, torch.sin, torch.cos),
    *(F.gelu, F.silu, F.mish, F.elu, F.softplus, F.hardswish),
    lambda a: a.clamp(-0.5, 0.7),
    lambda a: a * 1.5 - 0.2,
    lambda a: 2 - a,
    lambda a: a**2,
    lambda a: F.leaky_relu(a, 0.2),
    lambda a: a.mean(-1, keepdim=True),
    lambda a: a.masked_fill(a > 0.3, -1.0),
    lambda a: torch.where(a < 0, a, 0.1),
    lambda a: (a > 0).float(),
]
BINARY = [
    *(torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum),
    lambda a, b: a / (b.abs() + 1),
    lambda a, b: torch.where(a > b, a, b),
    lambda a, b: a * (b > 0),
    lambda a, b: torch.atan2(a, b + 0.013),
]
IMAGE = [6, 5, 4]


def drawn(seed):
    """A function of two tensors, the tensors and a level."""
    draw = random.Random(seed)
    random_numbers = torch.Generator().manual_seed(seed)
    full = [draw.choice([1, 2, 3, 5]) for _ in range(draw.choice([1, 2, 3, 4, 4]))]
    if len(full) == 4:
        full[1:] = IMAGE
    smaller = [n if draw.random() < 0.7 else 1 for n in full]
    cut = draw.choice([0, 1]) if len(full) > 1 else 0
    inputs = tuple(torch.randn(s, generator=random_numbers) for s in (full, smaller[cut:]))
    weight = torch.randn(6, 6, 3, 3, generator=random_numbers) / 10
    convolves = len(full) == 4 and draw.random() < 0.7
    steps = []
    for _ in range(draw.randint(3, 8)):
        one = draw.random() < 0.5
        steps.append((one, draw.choice(UNARY if one else BINARY), draw.random(), draw.random()))

    def function(x, y):
        values = [x, y]
        if convolves:
            values.append(F.conv2d(x, weight, padding=1))
        for one, step, first, second in steps:
            late = values[-3:]
            a, b = late[int(first * len(late))], values[int(second * len(values))]
            values.append(step(a) if one else step(a, b))
        return values[-1] + 0.5

    return function, inputs, draw.choice([28, 29, 30, 30, 1000007])


@pytest.mark.parametrize("seed", range(100))
def test_an_expression_is_right_or_refused_below_level_3(seed, nnapi_library):
    function, inputs, level = drawn(seed)
    program = prepare(traced(Function(function), inputs), inputs, "expression")
    try:
        (result,) = run_whole(program, inputs, level)
    except UnsupportedOp:
        assert level == 28
        return
    torch.testing.assert_close(result, function(*inputs), rtol=1e-4, atol=1e-5)
