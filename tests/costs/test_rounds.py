"""Rounds: their medians, and what two measurements that took turns say of each other."""

import math

import pytest

from nnapi_prof.costs.measurement import Round, log_ratios, medians, steady


def test_medians_of_rounds():
    rounds = (Round(3), Round(0), Round(2, throttled=True), Round(1))
    assert medians((5, 1, 3, 90, 90, 7), rounds) == (3, None, None, 7)
    assert medians((5, 1, 3), ()) == (3,)
    assert medians((5, 1, 3), (Round(2),)) == (3,)  # a fault in the middle of a round
    assert medians((), ()) == ()


def test_rounds_are_compared_with_their_like():
    # A clock that drops by half from one round to the next says nothing of which is faster.
    result = log_ratios((100, 200, None, 400), (110, 220, 1, None))
    assert result == pytest.approx([math.log(1.1)] * 2)
    assert log_ratios((None,), (1,)) == ()


def test_samples_of_steady_rounds_count_where_there_are_any():
    whole, moved, hot = Round(2), Round(1, moved=True), Round(1, throttled=True)
    assert steady((5, 6, 7, 90), (whole, moved, hot)) == (5, 6)
    assert steady((7, 90), (moved, hot)) == (7,)
    assert steady((90,), (hot,)) == (90,)
    assert steady((5, 6), (whole, moved)) == (5, 6)  # a fault in the middle of a round
