"""Rounds: their medians, what two measurements that took turns say of each other, summaries."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnapi_prof.costs.measurement import (
    Round,
    log_ratios,
    medians,
    quality_flags,
    steady,
    summarise,
)
from nnapi_prof.errors import CostError


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


SAMPLES = st.lists(st.integers(1, 10**9), min_size=1, max_size=30)


@given(SAMPLES)
def test_median_lies_within_and_order_does_not_matter(samples):
    summary = summarise(samples)
    assert min(samples) == summary.minimum_ns <= summary.median_ns <= max(samples)
    assert summary.n == len(samples)
    assert summary.p95_ns == pytest.approx(np.quantile(samples, 0.95))
    assert summarise(sorted(samples)) == summary


def test_wild_samples_do_not_move_the_median():
    calm = summarise([100, 101, 99, 100, 102, 98, 100])
    wild = summarise([100, 101, 99, 100, 102, 10**9, 10**9])
    assert wild.median_ns == pytest.approx(calm.median_ns, rel=0.02)
    assert wild.spread_ns < 5
    assert summarise([1, 2, 3, 4, 5]).spread_ns == pytest.approx(1.4826)


def test_no_samples_no_latency():
    with pytest.raises(CostError, match="did not run to its end"):
        summarise([])


HOT, COOL = Round(2, throttled=True), Round(3, throttled=False)


@pytest.mark.parametrize(
    ("samples", "rounds", "median_ns", "n_left_out"),
    [
        ([90, 91, 10, 11, 12], (HOT, COOL), 11, 2),
        ([10, 11, 12, 90, 91], (COOL, HOT), 11, 2),
        ([90, 91, 10, 20], (HOT, Round(2, throttled=None)), 15, 2),
        ([90, 91, 92, 93], (HOT, HOT), 91.5, 0),  # better than nothing
        ([90, 91, 10], (HOT, Round(2)), 90, 0),  # they do not fit the samples
    ],
)
def test_samples_of_throttled_rounds_are_left_out(samples, rounds, median_ns, n_left_out):
    summary = summarise(samples, rounds)
    assert (summary.median_ns, summary.n_left_out) == (median_ns, n_left_out)
    assert summary.n == len(samples) - n_left_out


def test_doubts():
    assert quality_flags((COOL, COOL), True) == quality_flags((), None) == ()
    assert quality_flags((HOT, HOT), True) == ("throttled in every round",)
    throttled, cold = quality_flags((HOT, COOL), False)
    assert throttled == "1 of 2 rounds throttled and left out"
    assert cold.startswith("not warm: ")
