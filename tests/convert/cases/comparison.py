"""Cases of comparisons, logic, choice and element types."""

import math

import torch

from tests.convert.cases.common import INTEGERS, MASK, X, case, from_3
from tests.convert.harness import FIRST, aten, image

where = aten.where
OTHER = image(3, 5, seed=2) > 0
BOOLS_ONLY = "of int64, NNAPI has bitwise logic of bools only"
ROWS = image(3, 5)
TIES = torch.tensor([[1.0, 2.0, 3.0, -1.0, 0.0]])
SPECIAL = torch.tensor([math.nan, math.inf, -math.inf, 0.0, 1.5])


def comparisons(name, code, tensors, number):
    """One comparison: of tensors, of a tensor and a number, of every element type."""
    return {
        name: from_3(lambda x, y: tensors(x, y), TIES * 2, image(3, 5).round(), gives={29: code}),
        f"{name} with a number": from_3(lambda x: number(x, 2), TIES, gives={29: code}),
        f"{name} of images": from_3(lambda x, y: tensors(x, y), X, X.round()),
        f"{name} of integers with a fraction": from_3(
            lambda x: number(x, 2.5), INTEGERS, gives=f"CAST {code}"
        ),
        f"{name} of integers": from_3(
            lambda x, y: tensors(x, y), INTEGERS, INTEGERS.abs(), gives={29: code}
        ),
        f"{name} with NaN and infinity": from_3(lambda x: tensors(x, SPECIAL), SPECIAL.flip(0)),
    }


COMPARISON = {
    **comparisons("eq", "EQUAL", aten.eq.Tensor, aten.eq.Scalar),
    **comparisons("ne", "NOT_EQUAL", aten.ne.Tensor, aten.ne.Scalar),
    **comparisons("lt", "LESS", aten.lt.Tensor, aten.lt.Scalar),
    **comparisons("le", "LESS_EQUAL", aten.le.Tensor, aten.le.Scalar),
    **comparisons("gt", "GREATER", aten.gt.Tensor, aten.gt.Scalar),
    **comparisons("ge", "GREATER_EQUAL", aten.ge.Tensor, aten.ge.Scalar),
    "eq of integers and floats": from_3(aten.eq.Tensor, INTEGERS, INTEGERS.abs() + 0.0),
    "eq of bools with a number": from_3(aten.eq.Scalar, MASK, 1),
    "eq of bools with a bool": from_3(aten.eq.Scalar, MASK, True, gives="EQUAL"),
    "gt of integers with too large a number": case(
        aten.gt.Scalar, INTEGERS, 2**40, never=r"the constant \[1099511627776\] is not int32"
    ),
    "eq of rank 0": from_3(aten.eq.Scalar, torch.tensor(1.0), 1.0),
    "logical and": from_3(aten.logical_and, MASK, OTHER, gives="LOGICAL_AND"),
    "logical or": from_3(aten.logical_or, MASK, OTHER[0], gives="LOGICAL_OR"),
    "logical xor": from_3(aten.logical_xor, MASK, OTHER, gives="NOT_EQUAL"),
    "logical not": from_3(aten.logical_not, MASK, gives="LOGICAL_NOT"),
    "logical not of numbers": from_3(aten.logical_not, TIES, gives="EQUAL"),
    "logical and of numbers": from_3(
        aten.logical_and, TIES, INTEGERS[:, :1], gives="NOT_EQUAL NOT_EQUAL LOGICAL_AND"
    ),
    "bitwise and": from_3(aten.bitwise_and.Tensor, MASK, OTHER),
    "bitwise or": from_3(aten.bitwise_or.Tensor, MASK, OTHER),
    "bitwise xor": from_3(aten.bitwise_xor.Tensor, MASK, OTHER),
    "bitwise and with a number": from_3(aten.bitwise_and.Scalar, MASK, True),
    "bitwise or with a number": from_3(aten.bitwise_or.Scalar, MASK, False),
    "bitwise xor with a number": from_3(aten.bitwise_xor.Scalar, MASK, True),
    "bitwise not": from_3(aten.bitwise_not, MASK),
    "bitwise not of integers": case(aten.bitwise_not, INTEGERS, never=BOOLS_ONLY),
    "bitwise and of integers": case(aten.bitwise_and.Scalar, INTEGERS, 3, never=BOOLS_ONLY),
    "add of bools": from_3(aten.add.Tensor, MASK, OTHER),
    "mul of bools": from_3(aten.mul.Tensor, MASK, OTHER),
    "maximum of bools": from_3(aten.maximum, MASK, OTHER),
    "isnan": from_3(aten.isnan, SPECIAL),
    "isinf": from_3(aten.isinf, SPECIAL),
    "nan to num": from_3(aten.nan_to_num, SPECIAL),
    "nan to given numbers": from_3(aten.nan_to_num, SPECIAL, 1.0, 2.0, -3.0),
    "isfinite": from_3(aten.isfinite, SPECIAL),
}

CHOICE = {
    "where": from_3(where.self, MASK, ROWS, -ROWS, gives="SELECT"),
    "where with a row of conditions": from_3(
        where.self, MASK[0], ROWS, -ROWS, gives="LOGICAL_OR SELECT"
    ),
    "where with a column and a row": from_3(where.self, MASK, ROWS[:, :1], ROWS[0]),
    "where of a number and a tensor": from_3(where.ScalarSelf, MASK, 2.0, ROWS, gives="SELECT"),
    "where of a tensor and a number": from_3(where.ScalarOther, MASK, ROWS, -math.inf),
    "where of two numbers": from_3(where.Scalar, MASK, 2.0, -1.0),
    "where with a constant condition": from_3(lambda x: where.self(MASK, x, ROWS), -ROWS),
    "where of one element": from_3(where.self, MASK, torch.tensor(2.0), ROWS),
    "where of many copies of a number": from_3(
        where.ScalarOther, image(40, 41) > 0, image(40, 41), 7.0, gives="TILE SELECT"
    ),
    "where of integers": from_3(where.ScalarOther, INTEGERS > 0, INTEGERS, 9),
    "where of integers and floats": from_3(
        where.self, INTEGERS > 0, INTEGERS, INTEGERS + 0.5, gives="CAST SELECT"
    ),
    "where of bools": from_3(where.self, MASK, OTHER, MASK[:, :1]),
    "where of images": from_3(
        lambda x, y: where.self(aten.gt.Tensor(x, y), x, y), X, -X / 2, gives="GREATER SELECT"
    ),
    "where with a condition for each pixel": from_3(
        where.ScalarOther, X[:, :1] > 0, X, 0.5, order=FIRST
    ),
    "where with a condition of numbers": case(
        lambda c, x: where.self(aten.add.Tensor(c, 0), x, x),
        (INTEGERS > 0).to(torch.uint8),
        INTEGERS,
        never="c is? .*uint8|value is uint8",
    ),
    "masked fill": from_3(aten.masked_fill.Scalar, ROWS, MASK, -5.0, gives="SELECT"),
    "masked fill with infinity, broadcast": from_3(
        aten.masked_fill.Scalar, image(2, 3, 5), MASK[:, :1], -math.inf
    ),
    "masked fill with a tensor": from_3(
        lambda x, m: aten.masked_fill.Tensor(x, m, torch.tensor(3.0)), ROWS, MASK[0]
    ),
    "masked fill of integers": from_3(aten.masked_fill.Scalar, INTEGERS, INTEGERS > 1, 3),
    "masked fill of bools": from_3(aten.masked_fill.Scalar, MASK, OTHER, True),
}

FRACTIONS = torch.tensor([[-2.7, -1.5, -0.2, 0.0], [0.4, 0.9, 1.5, 3.999]])


SOURCES = {
    torch.float32: FRACTIONS,
    torch.float16: FRACTIONS.half(),
    torch.int32: INTEGERS.int(),
    torch.int64: INTEGERS,
    torch.bool: INTEGERS > 0,
}


def conversion(dtype, source):
    return from_3(lambda x: aten._to_copy.default(x, dtype=dtype), source)


HUGE = torch.tensor([[2**31 - 1, -(2**31), 65535, -65536], [16777217, -1, 65536, -16777219]])


def integer_move(function):
    return case(
        function, HUGE, below_4="RESHAPE|TRANSPOSE|CONCATENATION|STRIDED_SLICE", rtol=0, atol=0
    )


MOVES = {
    "view of bools": from_3(aten.view, MASK, [5, 3]),
    "view of bools with one more axis": from_3(aten.view, MASK, [3, 1, 5]),
    "permute of bools": from_3(aten.permute, MASK, [1, 0]),
    "slice of bools": from_3(aten.slice.Tensor, MASK, 1, 1, 4),
    "cat of bools": from_3(lambda m: aten.cat.default([m, OTHER], 0), MASK),
    "view of integers": integer_move(lambda i: aten.view.default(i, [4, 2])),
    "view of integers as a row": integer_move(lambda i: aten.view.default(i, [8])),
    "permute of integers": integer_move(lambda i: aten.permute.default(i, [1, 0])),
    "cat of integers": integer_move(lambda i: aten.cat.default([i, HUGE, i], 1)),
    "every second integer": integer_move(lambda i: aten.slice.Tensor(i, 1, 0, 4, 2)),
    "clone of a bool image": from_3(
        lambda m: aten.logical_not.default(aten.clone.default(m)), X > 0, orders={"m": FIRST}
    ),
    "row of bools against an image": from_3(where.ScalarOther, MASK[0], image(2, 4, 7, 5), 0.5),
    "bools of the other order": from_3(
        lambda m, x: where.ScalarOther(m, x, 0.5), X > 0, X, orders={"m": FIRST}
    ),
}

CASTS = {
    **{
        f"{source.dtype} to {dtype}": conversion(dtype, source)
        for source in SOURCES.values()
        for dtype in SOURCES
        if dtype != source.dtype
    },
    "large float32 to float16": from_3(
        aten._to_copy, torch.tensor([2049.0, 2051.0, 65504.0, 1e-7, 3e-8]), dtype=torch.float16
    ),
    "float32 to float64": case(
        aten._to_copy, FRACTIONS, dtype=torch.float64, never="works on float64, which NNAPI"
    ),
    "bools times floats": from_3(aten.mul.Tensor, MASK, ROWS),
    "bools plus a number": case(
        aten.add.Tensor, MASK, 1, below_4="SELECT exists|ADD takes TENSOR_INT32 from level 4"
    ),
    "integers times floats": from_3(aten.mul.Tensor, INTEGERS, image(4), gives="CAST MUL"),
    "integers plus a fraction": from_3(aten.add.Tensor, INTEGERS, 0.5),
    "integers over integers": from_3(
        aten.div.Tensor, INTEGERS, INTEGERS.abs() + 1, gives="CAST CAST DIV"
    ),
    "floats plus constant integers": case(
        lambda x: aten.add.Tensor(x, torch.arange(5)), ROWS, gives="ADD"
    ),
    "half precision plus single": from_3(aten.add.Tensor, ROWS.half(), ROWS, gives="CAST ADD"),
}
