"""What counts as agreement with eager PyTorch."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from nnapi_prof.execution.compare import compare, limit_notes, notes_on
from nnapi_prof.execution.report import Evidence, OutputCheck
from nnapi_prof.graph.program import as_array


def checked(actual: object, expected: object, **options: Any) -> OutputCheck:
    (check,) = compare(["y"], [np.asarray(actual)], [np.asarray(expected)], **options)
    return check


def relative(actual: object, expected: object) -> float:
    return checked(actual, expected).relative


def test_the_difference_is_relative_to_the_largest_value() -> None:
    check = checked([1.0, -8.002], [1.0, -8.0])
    assert check.max_abs == pytest.approx(0.002)
    assert check.relative == pytest.approx(0.002 / 8)
    assert not check.ok
    assert checked([1.0, -8.0004], [1.0, -8.0]).ok


@pytest.mark.parametrize("found", [[math.nan, 1.0], [math.inf, 1.0], [[1.0, 1.0]]])
def test_nan_infinity_and_another_shape_never_agree(found: object) -> None:
    assert relative(found, [1.0, 1.0]) == math.inf


def test_equal_specials_agree() -> None:
    assert relative([math.nan, math.inf, 2.0], [math.nan, math.inf, 2.0]) == 0.0
    assert relative([math.inf], [-math.inf]) == math.inf


def test_the_largest_number_in_place_of_infinity_agrees_and_is_told() -> None:
    """NNAPI's arithmetic ends there on phones."""
    most = np.finfo(np.float32).max
    expected = np.array([math.inf, -math.inf, 2.0], np.float32)
    actual = np.array([most, -most, 2.0], np.float32)
    assert relative(actual, expected) == 0.0
    assert relative(-actual, expected) == relative(expected, actual) == math.inf
    (note,) = limit_notes(["x", "y"], [actual, expected], [expected, expected])
    assert note.startswith("2 of 3 values of x are infinite in PyTorch and 3.403e+38 or its ")
    assert limit_notes(["y"], [actual], [actual[:1]]) == []


def test_zeros_and_empty_outputs() -> None:
    assert relative([0.0], [0.0]) == 0.0
    assert relative([1e-9], [0.0]) == math.inf
    assert relative(np.zeros((0, 3)), np.zeros((0, 3))) == 0.0


def test_differences_below_float32s_normal_numbers_are_none() -> None:
    """A device may flush them to zero."""
    expected = np.array([1e-41, -3e-42], np.float32)
    for actual in (expected * np.float32(0.8), np.zeros(2, np.float32)):
        check = checked(actual, expected)
        assert check.ok and check.evidence is Evidence.DENORMAL
    check = checked(np.float32([1e-37]), np.float32([1.05e-37]))
    assert check.ok and check.evidence is Evidence.VALUES
    assert not checked(np.float32([1e-36]), np.float32([1.05e-37])).ok
    assert not checked(expected * np.float32(0.8), expected, tolerance=0).ok  # nothing is allowed


@pytest.mark.parametrize(
    ("wanted", "evidence"),
    [
        (np.zeros((2, 3)), Evidence.ZEROS),
        (np.zeros((), np.int64), Evidence.ZEROS),
        (np.full(4, 0.5), Evidence.CONSTANT),
        (np.full(4, 7), Evidence.CONSTANT),
        (np.array(0.5), Evidence.VALUES),
        (np.array([0.5, 0.5, 0.6]), Evidence.VALUES),
        (np.float32([1e-41, 2e-41]), Evidence.DENORMAL),
        (np.array([np.nan, np.inf]), Evidence.NOT_FINITE),
        (np.array([0.5, np.inf]), Evidence.VALUES),
        (np.zeros((0, 3)), Evidence.EMPTY),
        (np.array([True, False]), Evidence.VALUES),
    ],
)
def test_what_an_output_gives_to_compare(wanted: np.ndarray, evidence: Evidence) -> None:
    check = checked(wanted, wanted)
    assert check.ok and check.evidence is evidence
    assert check.tells == (evidence is Evidence.VALUES) == (not notes_on([check]))


def test_a_missing_output_is_no_agreement() -> None:
    with pytest.raises(ValueError, match="zip"):
        compare(["a", "b"], [np.zeros(1)], [np.zeros(1), np.zeros(1)])


def test_two_steps_of_a_quantised_output_are_allowed() -> None:
    assert checked([1.0, 1.0], [1.0, 0.5], steps=[0.25]).ok
    assert not checked([1.0, 1.1], [1.0, 0.5], steps=[0.25]).ok
    assert not checked([1.0, 0.501], [1.0, 0.5], steps=[0.0]).ok
    assert checked([0.2], [0.0], steps=[0.1]).ok
    beyond = checked([0.3], [0.0], steps=[0.1])
    assert not beyond.ok and beyond.relative == math.inf


def test_both_parts_of_complex_numbers_and_bfloat16_are_compared() -> None:
    theirs = torch.complex(torch.ones(2, 3), torch.ones(2, 3))
    mine = torch.complex(torch.ones(2, 3), -torch.ones(2, 3))
    assert not checked(as_array(mine), as_array(theirs)).ok
    right = checked(as_array(theirs), as_array(theirs))
    assert right.ok and right.shape == (2, 3)
    half = as_array(torch.linspace(0, 1, 8).to(torch.bfloat16))
    assert checked(half, half).ok


def test_integers_must_be_equal_unless_a_tolerance_was_asked_for() -> None:
    """One token of 50,000 is another word, however near its number."""
    mine, theirs = [7, 49_999], [7, 50_000]
    assert not checked(mine, theirs).ok
    assert checked(mine, theirs, integers=1e-3).ok
    assert checked(mine, theirs, steps=[1.0]).ok  # of 8 bits: one step
    assert not checked([True], [False]).ok
