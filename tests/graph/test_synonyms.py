"""Operators by other names, tensors of one value, and masks as indices."""

import pytest
import torch

from nnapi_prof import frontend
from nnapi_prof.graph.node import op_name
from nnapi_prof.graph.program import verify
from nnapi_prof.passes.overloads import ALIASES
from tests.convert.coverage.rows import Function

FIRST = torch.tensor([[-2.5, -0.5, 0.0], [0.5, 1.5, 3.0]])
SECOND = torch.tensor([[-2.5, 0.5, 1.0], [0.5, -1.5, 2.0]])


def arguments_of(overload):
    """Arguments for a schema, plain and named: two tensors, bools for bitwise logic, a number."""
    bitwise = "bitwise" in op_name(ALIASES[overload])
    tensors = iter([FIRST > 0, SECOND > 0] if bitwise else [FIRST, SECOND, SECOND + 1])
    plain, named = [], {}
    for argument in overload._schema.arguments:
        kind = str(argument.type)
        if "Tensor" in kind:
            plain.append(next(tensors))
        elif kind == "number":
            plain.append(True if bitwise else 0.5)
        else:
            assert argument.name == "rounding_mode"
            named[argument.name] = "floor"
    return plain, named


@pytest.mark.parametrize("overload", ALIASES, ids=op_name)
def test_a_synonym_gives_the_same_numbers(overload):
    plain, named = arguments_of(overload)
    actual, expected = (each(*plain, **named) for each in (ALIASES[overload], overload))
    assert actual.dtype == expected.dtype
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


def prepared(function):
    program = frontend.prepare(Function(function).eval(), [FIRST], "function")
    with torch.no_grad():
        (expected,) = program.module(SECOND)
    torch.testing.assert_close(expected, function(SECOND))
    verify(program.module.graph, types=True)
    return [
        op_name(node.target).removeprefix("aten.")
        for node in program.module.graph.nodes
        if node.op == "call_function"
    ]


def assigned(x, mask, value):
    y = x * 2
    y[mask] = value
    return y


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        (lambda x: (x > 0) & (x < 1), ["gt.Scalar", "lt.Scalar", "bitwise_and.Tensor"]),
        (
            lambda x: x.greater(0) | x.less_equal(-1),
            ["gt.Scalar", "le.Scalar", "bitwise_or.Tensor"],
        ),
        (lambda x: torch.max(x, x.absolute()), ["abs.default", "maximum.default"]),
        (lambda x: x + torch.zeros_like(x) + torch.full_like(x, 2), ["add.Tensor"] * 2),
        (lambda x: x * x.new_full((3,), 2.0) + x.new_ones(3), ["mul.Tensor", "add.Tensor"]),
        (lambda x: assigned(x, x > 0, 1.0), ["gt.Scalar", "mul.Tensor", "where.self"]),
    ],
)
def test_normal_form(function, calls):
    assert prepared(function) == calls


def test_rows_chosen_by_a_mask_are_no_choice_of_elements():
    calls = prepared(lambda x: assigned(x, x[:, 0] > 0, 1.0))
    assert "where.self" not in calls
    assert any("index_put" in call for call in calls)
