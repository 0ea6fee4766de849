"""Arithmetic, comparison, logic, element types."""

import torch

from tests.convert.coverage.rows import numbers, row

X, Y = numbers(2, 3, 5), numbers(2, 3, 5, seed=1)
POSITIVE = X.abs() + 0.1
MASK = X > 0
ROW = numbers(5)

ROWS = {
    "add / sub / mul / div (tensor,tensor)": row(
        lambda x, y: ((x + y) * y - torch.sub(x, y, alpha=2)) / (y.abs() + 1), X, numbers(3, 1)
    ),
    "add / mul with Python scalar": row(lambda x: x * 3 + 2.5, X),
    "add_ / mul_ (in-place)": row(lambda x: (x * 1.5).add_(2).mul_(x), X),
    "add with constant tensor": row(lambda x: x + ROW, X),
    "rsub": row(lambda x: 2 - x, X),
    "floor_divide / div rounding": row(
        lambda x: torch.floor_divide(x * 7, 2.0) + torch.div(x * 7, 2.0, rounding_mode="trunc"), X
    ),
    "remainder / atan2": row(lambda x: torch.remainder(x * 7, 2.5), X),
    "pow": row(lambda x: x**2 + (x.abs() + 1) ** 0.5 + (x.abs() + 1) ** x, X),
    "maximum / minimum": row(lambda x, y: torch.maximum(x, y) + torch.minimum(x, y), X, Y),
    "eq/ne/gt/ge/lt/le": row(
        lambda x, y: ((x > y), (x >= 0), (x < y), (x <= 0), (x == y), (x != 0)), X, Y
    ),
    "logical_and/or/not": row(
        lambda a, b: (a & b, torch.logical_or(a, b), torch.logical_not(a), a ^ b), MASK, ~MASK
    ),
    "where": row(lambda x, y: torch.where(x > y, x, 0.5), X, Y),
    "masked_fill": row(lambda x, mask: x.masked_fill(mask, -5.0), X, MASK[0]),
    "abs/exp/log/neg/sqrt": row(
        lambda x: x.exp() + x.log() + x.neg() + x.sqrt() + (-x).abs(), POSITIVE
    ),
    "rsqrt": row(torch.rsqrt, POSITIVE),
    "sin": row(torch.sin, X),
    "cos": row(torch.cos, X),
    "floor": row(lambda x: torch.floor(x * 3), X),
    "ceil / round / sign": row(lambda x: torch.ceil(x * 3) + torch.round(x * 3) + torch.sign(x), X),
    "reciprocal": row(torch.reciprocal, POSITIVE),
    "square": row(torch.square, X),
    "to(dtype)": row(lambda x: (x.to(torch.int32), (x * 3).to(torch.float16).float()), X),
    "to(device) / detach": row(lambda x: x.to("cpu").detach() + 1, X),
    "zeros_like / full": row(
        lambda x: x + torch.zeros_like(x) + torch.full((3, 5), 0.5) + torch.ones(5), X
    ),
    "cumsum / sort / triu": row(lambda x: torch.cumsum(x, 1), X),
}
