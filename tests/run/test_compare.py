"""What counts as agreement with eager PyTorch."""

import math

import numpy as np
import pytest
import torch

from nnapi_prof.execution.compare import compare, limit_notes, notes_on
from nnapi_prof.execution.report import Evidence
from nnapi_prof.graph.program import as_array


def relative(found: object, wanted: object) -> float:
    (check,) = compare(["y"], [np.asarray(found)], [np.asarray(wanted)])
    return check.relative


def test_the_difference_is_relative_to_the_largest_value() -> None:
    (check,) = compare(["y"], [np.array([1.0, -8.002])], [np.array([1.0, -8.0])])
    assert check.max_abs == pytest.approx(0.002)
    assert check.relative == pytest.approx(0.002 / 8)
    assert not check.ok
    (check,) = compare(["y"], [np.array([1.0, -8.0004])], [np.array([1.0, -8.0])])
    assert check.ok


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
        (check,) = compare(["y"], [actual], [expected])
        assert check.ok and check.evidence is Evidence.DENORMAL
    (check,) = compare(["y"], [np.float32([1e-37])], [np.float32([1.05e-37])])
    assert check.ok and check.evidence is Evidence.VALUES
    (check,) = compare(["y"], [np.float32([1e-36])], [np.float32([1.05e-37])])
    assert not check.ok
    (check,) = compare(["y"], [expected * np.float32(0.8)], [expected], tolerance=0)
    assert not check.ok  # nothing is allowed


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
    (check,) = compare(["y"], [wanted], [wanted])
    assert check.ok and check.evidence is evidence
    assert check.tells == (evidence is Evidence.VALUES) == (not notes_on([check]))


def test_a_missing_output_is_no_agreement() -> None:
    with pytest.raises(ValueError, match="zip"):
        compare(["a", "b"], [np.zeros(1)], [np.zeros(1), np.zeros(1)])


def test_two_steps_of_a_quantised_output_are_allowed() -> None:
    expected = [np.array([1.0, 0.5])]
    (check,) = compare(["y"], [np.array([1.0, 1.0])], expected, steps=[0.25])
    assert check.ok
    (check,) = compare(["y"], [np.array([1.0, 1.1])], expected, steps=[0.25])
    assert not check.ok
    (check,) = compare(["y"], [np.array([1.0, 0.501])], expected, steps=[0.0])
    assert not check.ok
    (check,) = compare(["y"], [np.array([0.2])], [np.array([0.0])], steps=[0.1])
    assert check.ok
    (check,) = compare(["y"], [np.array([0.3])], [np.array([0.0])], steps=[0.1])
    assert not check.ok and check.relative == math.inf


def test_both_parts_of_complex_numbers_and_bfloat16_are_compared() -> None:
    theirs = torch.complex(torch.ones(2, 3), torch.ones(2, 3))
    mine = torch.complex(torch.ones(2, 3), -torch.ones(2, 3))
    (wrong,) = compare(["y"], [as_array(mine)], [as_array(theirs)])
    (right,) = compare(["y"], [as_array(theirs)], [as_array(theirs)])
    assert (wrong.ok, right.ok, right.shape) == (False, True, (2, 3))
    half = torch.linspace(0, 1, 8).to(torch.bfloat16)
    assert compare(["y"], [as_array(half)], [as_array(half)])[0].ok


def test_integers_must_be_equal_unless_a_tolerance_was_asked_for() -> None:
    """One token of 50,000 is another word, however near its number."""
    theirs, mine = np.array([7, 50_000]), np.array([7, 49_999])
    assert not compare(["y"], [mine], [theirs])[0].ok
    assert compare(["y"], [mine], [theirs], integers=1e-3)[0].ok
    assert compare(["y"], [mine], [theirs], steps=[1.0])[0].ok  # of 8 bits: one step
    assert not compare(["y"], [np.array([True])], [np.array([False])])[0].ok
