"""What counts as agreement with eager PyTorch."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nnapi_prof.run.compare import compare


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


def test_zeros_and_empty_outputs() -> None:
    assert relative([0.0], [0.0]) == 0.0
    assert relative([1e-9], [0.0]) == math.inf
    assert relative(np.zeros((0, 3)), np.zeros((0, 3))) == 0.0


def test_a_missing_output_is_no_agreement() -> None:
    with pytest.raises(ValueError, match="zip"):
        compare(["a", "b"], [np.zeros(1)], [np.zeros(1), np.zeros(1)])
