"""What differs between two sets of measurements beyond their noise."""

import numpy as np
import pytest

from nnapi_prof.costs import Conditions
from nnapi_prof.costs.diff import CostDiff, Difference, DiffVerdict, compare
from nnapi_prof.costs.measurement import Measurement, Round, Status
from nnapi_prof.graph.plan import CPU
from tests.costs.test_store import measurement

N_ROUNDS, RUNS = 5, 8


def noisy(
    random: np.random.Generator, signature: str, scale: float = 1.0, drift: float = 0.0
) -> Measurement:
    """Runs with 5 % of noise, and ``drift`` that is common to a round."""
    noise = 0.05 * random.standard_normal((N_ROUNDS, RUNS))
    common = drift * random.standard_normal((N_ROUNDS, 1))
    samples = 1e6 * scale * np.exp(noise + common)
    return measurement(
        signature,
        samples_ns=tuple(int(x) for x in samples.ravel()),
        rounds=tuple(Round(RUNS) for _ in range(N_ROUNDS)),
    )


def both(scale: float, drift: float, count: int = 300) -> CostDiff:
    random = np.random.default_rng(7)
    first = [noisy(random, f"{i}", drift=drift) for i in range(count)]
    second = [noisy(random, f"{i}", scale, drift) for i in range(count)]
    return compare(first, second)


@pytest.mark.slow
@pytest.mark.parametrize("drift", [0.0, 0.05])
def test_noise_alone_is_seldom_called_a_change(drift):
    """At 99 % one in a hundred is allowed; five rounds are few, so up to four are."""
    result = both(1.0, drift)
    assert len(result.changed) <= 0.04 * len(result.differences)
    assert result.median_ratio == pytest.approx(1, abs=0.01)


def test_a_change_is_found_and_its_interval_holds_it():
    result = both(1.2, 0.0)
    assert {each.verdict for each in result.differences} == {DiffVerdict.SLOWER}
    held = [each.low <= 1.2 <= each.high for each in result.differences]
    assert np.mean(held) > 0.97
    assert {each.verdict for each in both(1 / 1.2, 0.0).differences} == {DiffVerdict.FASTER}


def test_the_same_two_sides_give_the_same_answer():
    assert both(1.05, 0.02, 20) == both(1.05, 0.02, 20)


def at(signature: str, level: int, **more: object) -> Measurement:
    samples = (level, level + 1, level, level - 1, level, level)
    return measurement(signature, samples_ns=samples, rounds=(Round(6),), **more)


def test_order_and_counts():
    again = at("again", 1000)
    first = [at("a", 1000), at("b", 1000), at("c", 1000), at("s", 5), at("one", 1), again]
    second = [
        at("a", 1500), at("b", 500), at("c", 1001), at("s", 5, status=Status.CRASHED),
        at("two", 1), at("three", 1), again,
    ]  # fmt: skip
    comparison = compare(first, second, threshold=0.02)
    assert [(d.first.signature, d.verdict) for d in comparison.differences] == [
        ("s", DiffVerdict.STATUS),
        ("b", DiffVerdict.FASTER),
        ("a", DiffVerdict.SLOWER),
        ("c", DiffVerdict.SAME),  # beyond its noise, but by less than 2 %
    ]
    assert [d.ratio for d in comparison.differences] == [None, 0.5, 1.5, 1.001]
    assert (comparison.only_first, comparison.only_second, comparison.same_row) == (1, 2, 1)
    assert len(comparison.changed) == 3 and comparison.median_ratio == 1.001


def test_only_like_is_compared_with_like():
    other = [at("a", 10, target=CPU), at("b", 9, conditions=Conditions(cpus="all"))]
    comparison = compare([at("a", 10), at("b", 10)], other)
    assert (comparison.differences, comparison.only_first, comparison.only_second) == ((), 2, 2)
    assert comparison.median_ratio is None


def only(first: Measurement, second: Measurement) -> Difference:
    (difference,) = compare([first], [second]).differences
    return difference


@pytest.mark.parametrize(
    ("levels", "runs", "ratio"), [((10, 100), 4, 10), ((0, 100), 9, None)], ids=["few", "coarse"]
)
def test_few_runs_and_coarse_clocks_decide_nothing(levels, runs, ratio):
    difference = only(*(measurement(samples_ns=(n,) * runs, rounds=()) for n in levels))
    assert (difference.verdict, difference.ratio) == (DiffVerdict.UNSURE, ratio)
    assert difference.low is None


def test_words_of_a_refusal_are_no_change():
    refused = (measurement(status=Status.REFUSED, samples_ns=(), message=m) for m in "ab")
    difference = only(*refused)
    assert difference.verdict is DiffVerdict.SAME and not difference.changed


def test_throttled_rounds_take_no_part():
    rounds = (Round(9, throttled=True), Round(9))
    hot = measurement(samples_ns=(900,) * 9 + (100,) * 9, rounds=rounds)
    difference = only(hot, measurement(samples_ns=(100,) * 9, rounds=(Round(9),)))
    assert (difference.verdict, difference.ratio, difference.low) == (DiffVerdict.SAME, 1, 1)
