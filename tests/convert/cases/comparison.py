"""Cases of comparisons, logic, choice and element types."""

import math

import torch

from tests.convert.cases.common import INTEGERS, MASK, X, all_levels
from tests.convert.harness import FIRST, Case, aten, image

OTHER = image(3, 5, seed=2) > 0
ROWS = image(3, 5)
TIES = torch.tensor([[1.0, 2.0, 3.0, -1.0, 0.0]])
SPECIAL = torch.tensor([math.nan, math.inf, -math.inf, 0.0, 1.5])


def from_3(function, *inputs, reason="exists from level 3", **options):
    return Case(function, inputs, refused=all_levels(reason, 29), **options)


def comparisons(name, code, tensors, number):
    """One comparison: of tensors, of a tensor and a number, of every element type."""
    return {
        name: from_3(
            lambda x, y: tensors(x, y), TIES * 2, image(3, 5).round(), operations={29: code}
        ),
        f"{name} with a number": from_3(lambda x: number(x, 2), TIES, operations={29: code}),
        f"{name} of images": from_3(lambda x, y: tensors(x, y), X, X.round()),
        f"{name} of integers with a fraction": from_3(
            lambda x: number(x, 2.5), INTEGERS, operations={29: f"CAST {code}"}
        ),
        f"{name} of integers": from_3(
            lambda x, y: tensors(x, y), INTEGERS, INTEGERS.abs(), operations={29: code}
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
    "eq of integers and floats": from_3(
        lambda x, y: aten.eq.Tensor(x, y), INTEGERS, INTEGERS.abs() + 0.0
    ),
    "eq of bools with a number": from_3(lambda x: aten.eq.Scalar(x, 1), MASK),
    "eq of bools with a bool": from_3(
        lambda x: aten.eq.Scalar(x, True), MASK, operations={29: "EQUAL"}
    ),
    "gt of integers with too large a number": Case(
        lambda x: aten.gt.Scalar(x, 2**40),
        (INTEGERS,),
        refused=all_levels(r"the constant \[1099511627776\] is not int32", 31),
    ),
    "eq of rank 0": from_3(lambda x: aten.eq.Scalar(x, 1.0), torch.tensor(1.0)),
    "logical and": from_3(
        lambda a, b: aten.logical_and.default(a, b), MASK, OTHER, operations={29: "LOGICAL_AND"}
    ),
    "logical or": from_3(
        lambda a, b: aten.logical_or.default(a, b), MASK, OTHER[0], operations={29: "LOGICAL_OR"}
    ),
    "logical xor": from_3(
        lambda a, b: aten.logical_xor.default(a, b), MASK, OTHER, operations={29: "NOT_EQUAL"}
    ),
    "logical not": from_3(
        lambda a: aten.logical_not.default(a), MASK, operations={29: "LOGICAL_NOT"}
    ),
    "logical not of numbers": from_3(
        lambda a: aten.logical_not.default(a), TIES, operations={29: "EQUAL"}
    ),
    "logical and of numbers": from_3(
        lambda a, b: aten.logical_and.default(a, b),
        TIES,
        INTEGERS[:, :1],
        operations={29: "NOT_EQUAL NOT_EQUAL LOGICAL_AND"},
    ),
    "bitwise and": from_3(lambda a, b: aten.bitwise_and.Tensor(a, b), MASK, OTHER),
    "bitwise or": from_3(lambda a, b: aten.bitwise_or.Tensor(a, b), MASK, OTHER),
    "bitwise xor": from_3(lambda a, b: aten.bitwise_xor.Tensor(a, b), MASK, OTHER),
    "bitwise and with a number": from_3(lambda a: aten.bitwise_and.Scalar(a, True), MASK),
    "bitwise or with a number": from_3(lambda a: aten.bitwise_or.Scalar(a, False), MASK),
    "bitwise xor with a number": from_3(lambda a: aten.bitwise_xor.Scalar(a, True), MASK),
    "bitwise not": from_3(lambda a: aten.bitwise_not.default(a), MASK),
    "bitwise not of integers": Case(
        lambda a: aten.bitwise_not.default(a),
        (INTEGERS,),
        refused=all_levels("of int64, NNAPI has bitwise logic of bools only", 31),
    ),
    "bitwise and of integers": Case(
        lambda a: aten.bitwise_and.Scalar(a, 3),
        (INTEGERS,),
        refused=all_levels("of int64, NNAPI has bitwise logic of bools only", 31),
    ),
    "add of bools": from_3(lambda a, b: aten.add.Tensor(a, b), MASK, OTHER),
    "mul of bools": from_3(lambda a, b: aten.mul.Tensor(a, b), MASK, OTHER),
    "maximum of bools": from_3(lambda a, b: aten.maximum.default(a, b), MASK, OTHER),
    "isnan": from_3(lambda x: aten.isnan.default(x), SPECIAL),
    "isinf": from_3(lambda x: aten.isinf.default(x), SPECIAL),
    "nan to num": from_3(lambda x: aten.nan_to_num.default(x), SPECIAL),
    "nan to given numbers": from_3(lambda x: aten.nan_to_num.default(x, 1.0, 2.0, -3.0), SPECIAL),
    "isfinite": from_3(lambda x: aten.isfinite.default(x), SPECIAL),
}

CHOICE = {
    "where": from_3(
        lambda c, x, y: aten.where.self(c, x, y), MASK, ROWS, -ROWS, operations={29: "SELECT"}
    ),
    "where with a row of conditions": from_3(
        lambda c, x, y: aten.where.self(c, x, y),
        MASK[0],
        ROWS,
        -ROWS,
        operations={29: "LOGICAL_OR SELECT"},
    ),
    "where with a column and a row": from_3(
        lambda c, x, y: aten.where.self(c, x, y), MASK, ROWS[:, :1], ROWS[0]
    ),
    "where of a number and a tensor": from_3(
        lambda c, x: aten.where.ScalarSelf(c, 2.0, x), MASK, ROWS, operations={29: "SELECT"}
    ),
    "where of a tensor and a number": from_3(
        lambda c, x: aten.where.ScalarOther(c, x, -math.inf), MASK, ROWS
    ),
    "where of two numbers": from_3(lambda c: aten.where.Scalar(c, 2.0, -1.0), MASK),
    "where with a constant condition": from_3(lambda x: aten.where.self(MASK, x, ROWS), -ROWS),
    "where of one element": from_3(
        lambda c, x, y: aten.where.self(c, x, y), MASK, torch.tensor(2.0), ROWS
    ),
    "where of many copies of a number": from_3(
        lambda c, x: aten.where.ScalarOther(c, x, 7.0),
        image(40, 41) > 0,
        image(40, 41),
        operations={29: "TILE SELECT"},
    ),
    "where of integers": from_3(
        lambda c, x: aten.where.ScalarOther(c, x, 9), INTEGERS > 0, INTEGERS
    ),
    "where of integers and floats": from_3(
        lambda c, x, y: aten.where.self(c, x, y),
        INTEGERS > 0,
        INTEGERS,
        INTEGERS + 0.5,
        operations={29: "CAST SELECT"},
    ),
    "where of bools": from_3(lambda c, x, y: aten.where.self(c, x, y), MASK, OTHER, MASK[:, :1]),
    "where of images": from_3(
        lambda x, y: aten.where.self(aten.gt.Tensor(x, y), x, y),
        X,
        -X / 2,
        operations={29: "GREATER SELECT"},
    ),
    "where with a condition for each pixel": from_3(
        lambda c, x: aten.where.ScalarOther(c, x, 0.5), X[:, :1] > 0, X, order=FIRST
    ),
    "where with a condition of numbers": Case(
        lambda c, x: aten.where.self(aten.add.Tensor(c, 0), x, x),
        ((INTEGERS > 0).to(torch.uint8), INTEGERS),
        refused=all_levels("c is? .*uint8|value is uint8", 31),
    ),
    "masked fill": from_3(
        lambda x, m: aten.masked_fill.Scalar(x, m, -5.0), ROWS, MASK, operations={29: "SELECT"}
    ),
    "masked fill with infinity, broadcast": from_3(
        lambda x, m: aten.masked_fill.Scalar(x, m, -math.inf), image(2, 3, 5), MASK[:, :1]
    ),
    "masked fill with a tensor": from_3(
        lambda x, m: aten.masked_fill.Tensor(x, m, torch.tensor(3.0)), ROWS, MASK[0]
    ),
    "masked fill of integers": from_3(
        lambda x, m: aten.masked_fill.Scalar(x, m, 3), INTEGERS, INTEGERS > 1
    ),
    "masked fill of bools": from_3(lambda x, m: aten.masked_fill.Scalar(x, m, True), MASK, OTHER),
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
    return Case(
        function,
        (HUGE,),
        refused=all_levels("RESHAPE|TRANSPOSE|CONCATENATION|STRIDED_SLICE", 30),
        rtol=0,
        atol=0,
    )


MOVES = {
    "view of bools": from_3(lambda m: aten.view.default(m, [5, 3]), MASK),
    "view of bools with one more axis": from_3(lambda m: aten.view.default(m, [3, 1, 5]), MASK),
    "permute of bools": from_3(lambda m: aten.permute.default(m, [1, 0]), MASK),
    "slice of bools": from_3(lambda m: aten.slice.Tensor(m, 1, 1, 4), MASK),
    "cat of bools": from_3(lambda m: aten.cat.default([m, OTHER], 0), MASK),
    "view of integers": integer_move(lambda i: aten.view.default(i, [4, 2])),
    "view of integers as a row": integer_move(lambda i: aten.view.default(i, [8])),
    "permute of integers": integer_move(lambda i: aten.permute.default(i, [1, 0])),
    "cat of integers": integer_move(lambda i: aten.cat.default([i, HUGE, i], 1)),
    "every second integer": integer_move(lambda i: aten.slice.Tensor(i, 1, 0, 4, 2)),
    "clone of a bool image": from_3(
        lambda m: aten.logical_not.default(aten.clone.default(m)),
        X > 0,
        orders={"m": FIRST},
    ),
    "row of bools against an image": from_3(
        lambda m, x: aten.where.ScalarOther(m, x, 0.5), MASK[0], image(2, 4, 7, 5)
    ),
    "bools of the other order": from_3(
        lambda m, x: aten.where.ScalarOther(m, x, 0.5), X > 0, X, orders={"m": FIRST}
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
        lambda x: aten._to_copy.default(x, dtype=torch.float16),
        torch.tensor([2049.0, 2051.0, 65504.0, 1e-7, 3e-8]),
    ),
    "float32 to float64": Case(
        lambda x: aten._to_copy.default(x, dtype=torch.float64),
        (FRACTIONS,),
        refused=all_levels("works on float64, which NNAPI does not have", 31),
    ),
    "bools times floats": from_3(lambda m, x: aten.mul.Tensor(m, x), MASK, ROWS),
    "bools plus a number": Case(
        lambda m: aten.add.Tensor(m, 1),
        (MASK,),
        refused=all_levels("SELECT exists|ADD takes TENSOR_INT32 from level 4", 30),
    ),
    "integers times floats": from_3(
        lambda i, x: aten.mul.Tensor(i, x), INTEGERS, image(4), operations={29: "CAST MUL"}
    ),
    "integers plus a fraction": from_3(lambda i: aten.add.Tensor(i, 0.5), INTEGERS),
    "integers over integers": from_3(
        lambda i, j: aten.div.Tensor(i, j),
        INTEGERS,
        INTEGERS.abs() + 1,
        operations={29: "CAST CAST DIV"},
    ),
    "floats plus constant integers": Case(
        lambda x: aten.add.Tensor(x, torch.arange(5)), (ROWS,), operations={27: "ADD"}
    ),
    "half precision plus single": from_3(
        lambda x, y: aten.add.Tensor(x, y), ROWS.half(), ROWS, operations={29: "CAST ADD"}
    ),
}
