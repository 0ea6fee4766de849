import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnapi_prof.costs.measurement import Round, quality_flags, summarise
from nnapi_prof.errors import CostError

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


def test_spread_of_a_known_sample():
    assert summarise([1, 2, 3, 4, 5]).spread_ns == pytest.approx(1.4826)


def test_no_samples_no_latency():
    with pytest.raises(CostError, match="did not run to its end"):
        summarise([])


def test_samples_of_throttled_rounds_are_left_out():
    hot, cool = Round(2, throttled=True), Round(3, throttled=False)
    assert summarise([90, 91, 10, 11, 12], (hot, cool)).median_ns == 11
    assert summarise([90, 91, 10, 11, 12], (hot, cool)).n_left_out == 2
    assert summarise([10, 11, 12, 90, 91], (cool, hot)).median_ns == 11
    unknown = Round(2, throttled=None)
    assert summarise([90, 91, 10, 20], (hot, unknown)).median_ns == 15


def test_all_rounds_throttled_are_better_than_nothing():
    hot = Round(2, throttled=True)
    summary = summarise([90, 91, 92, 93], (hot, hot))
    assert (summary.n, summary.n_left_out) == (4, 0)
    assert quality_flags((hot, hot), True) == ("throttled in every round",)


def test_rounds_that_do_not_fit_the_samples_leave_nothing_out():
    assert summarise([90, 91, 10], (Round(2, throttled=True), Round(2))).n == 3


def test_doubts():
    hot, cool = Round(1, throttled=True), Round(1, throttled=False)
    assert quality_flags((cool, cool), True) == quality_flags((), None) == ()
    throttled, cold = quality_flags((hot, cool), False)
    assert throttled == "1 of 2 rounds throttled and left out"
    assert cold.startswith("not warm: ")
