"""The error of sums that are rounded to float16 at every step, as Arm's kernels add them up.

A sum of K products p_i that is rounded after each is off by a random walk: step k moves it by a
part of the partial sum s_k, uniform within half a unit in the last place. Over the mantissas of
floats that has a variance of :data:`STEP` s_k^2, and the mean of s_k^2 over the steps is about
sum(p_i^2) / 2 + (b^2 + b y + y^2) / 3 where products come in no order: a random part, and the way
from the bias b to the result y. So the result is off by a normal error of variance K STEP times
that, and sum(p_i^2) is the same operation on squares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

STEP = 2.0**-20 / 12 * (3 / (8 * math.log(2)))
"""A unit in the last place is 2^-10 of the power of two below a number; squared and relative to the
number, its mean over mantissas from 1 to 2 is 3 / (8 ln 2) of that."""


def _last_axis(args: tuple[Any, ...]) -> int:
    return int(args[0].shape[-1])


def _taps(args: tuple[Any, ...]) -> int:
    """Products of one output of a convolution; of a transposed one at most."""
    weight, transposed = args[1], bool(args[6])
    if transposed:
        return math.ceil(int(weight[:, 0].numel()) / int(math.prod(args[3])))
    return int(weight[0].numel())


TERMS: Mapping[Any, Callable[[tuple[Any, ...]], int]] = {
    aten.convolution.default: _taps,
    aten.linear.default: _last_axis,
    aten.addmm.default: lambda args: int(args[1].shape[-1]),
    aten.mm.default: _last_axis,
    aten.bmm.default: _last_axis,
    aten.matmul.default: _last_axis,
}
"""Operator -> products that one of its results is the sum of. Means, pools and softmax add up in
float32 there, too."""


def to_half(value: object) -> object:
    """A tensor of floats, each rounded to float16; anything else as it is."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.half().to(value.dtype)
    return value


def error_spread(target: Any, args: tuple[Any, ...], result: Any) -> Tensor | None:
    """The standard deviation of each number's error, of an operator called with ``args``, as
    :data:`TERMS` have it; None where nothing is added up in float16."""
    terms = TERMS.get(target)
    if terms is None:
        return None
    squared = [arg.square() if isinstance(arg, Tensor) else arg for arg in args]
    first: Any = 0.0
    if target is aten.addmm.default:
        first, squared[0] = args[0], torch.zeros_like(args[0])
    elif target in (aten.convolution.default, aten.linear.default) and len(args) > 2:
        first, squared[2] = 0.0 if args[2] is None else args[2], None
        if target is aten.convolution.default and args[2] is not None:
            first = first.reshape(-1, *[1] * (result.ndim - 2))
    power: Tensor = target(*squared)
    way = (first * first + first * result + result.square()) / 3
    return torch.sqrt(terms(args) * STEP * (power / 2 + way))
