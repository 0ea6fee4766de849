from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnapi_prof.costs.summary import summarise
from nnapi_prof.errors import CostError

SAMPLES = st.lists(st.integers(1, 10**9), min_size=1, max_size=30)


@given(SAMPLES)
def test_median_lies_within_and_order_does_not_matter(samples: list[int]) -> None:
    summary = summarise(samples)
    assert min(samples) == summary.minimum_ns <= summary.median_ns <= max(samples)
    assert summary.n == len(samples)
    assert summarise(sorted(samples)) == summary


def test_wild_samples_do_not_move_the_median() -> None:
    calm = summarise([100, 101, 99, 100, 102, 98, 100])
    wild = summarise([100, 101, 99, 100, 102, 10**9, 10**9])
    assert wild.median_ns == pytest.approx(calm.median_ns, rel=0.02)
    assert wild.spread_ns < 5


def test_spread_of_a_known_sample() -> None:
    assert summarise([1, 2, 3, 4, 5]).spread_ns == pytest.approx(1.4826)


def test_no_samples_no_latency() -> None:
    with pytest.raises(CostError, match="did not run to its end"):
        summarise([])
