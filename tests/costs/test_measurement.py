"""Conditions and rounds of measurements, and what differs between two sets beyond their noise."""

import argparse
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnapi_prof.costs import ALL, BIG, CONDITIONAL, ConditionOptions, Conditions, Mode, parse_cpus
from nnapi_prof.costs.diff import CostDiff, Difference, DiffVerdict, compare
from nnapi_prof.costs.measurement import (
    Measurement,
    Round,
    Status,
    log_ratios,
    medians,
    quality_flags,
    steady,
    summarise,
)
from nnapi_prof.errors import CostError, UsageError
from nnapi_prof.graph.plan import CPU, CPU_ALONE, Preference, Target
from tests.costs.test_store import measurement


def test_medians_of_rounds():
    rounds = (Round(3), Round(0), Round(2, throttled=True), Round(1))
    assert medians((5, 1, 3, 90, 90, 7), rounds) == (3, None, None, 7)
    assert medians((5, 1, 3), ()) == (3,)
    assert medians((5, 1, 3), (Round(2),)) == (3,)  # a fault in the middle of a round
    assert medians((), ()) == ()


def test_rounds_are_compared_with_their_like():
    # A clock that drops by half from one round to the next says nothing of which is faster.
    ratios = log_ratios((100, 200, None, 400), (110, 220, 1, None))
    assert ratios == pytest.approx([math.log(1.1)] * 2) and log_ratios((None,), (1,)) == ()


def test_samples_of_steady_rounds_count_where_there_are_any():
    whole, moved, hot = Round(2), Round(1, moved=True), Round(1, throttled=True)
    assert steady((5, 6, 7, 90), (whole, moved, hot)) == (5, 6)
    assert steady((7, 90), (moved, hot)) == (7,)
    assert steady((90,), (hot,)) == (90,)
    assert steady((5, 6), (whole, moved)) == (5, 6)  # a fault in the middle of a round


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=30))
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


CONDITIONS = st.builds(
    Conditions,
    st.sampled_from(CONDITIONAL),
    st.sampled_from(Mode),
    st.integers(1, 64),
    st.sampled_from([BIG, ALL]) | st.integers(1, 2**64 - 1).map(hex),
)


@given(CONDITIONS)
def test_there_and_back(conditions):
    assert Conditions.from_json(conditions.to_json()) == conditions
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--mode", default="sync")
    parser.add_argument("--cpus", type=parse_cpus, default=BIG)
    for flag in ("--relaxed", "--float16"):
        parser.add_argument(flag, action="store_true")
    asked = ConditionOptions(**vars(parser.parse_args(conditions.options.split())))
    assert asked.conditions == conditions and ConditionOptions.of(conditions) == asked


@given(CONDITIONS)
def test_a_target_has_its_own_conditions(conditions):
    accelerator = Target.nnapi("npu", Preference.LOW_POWER)
    cpu, nnapi = conditions.on(CPU), conditions.on(accelerator)
    precision, cpus = conditions.precision, conditions.cpus
    assert cpu == Conditions(precision, threads=conditions.threads, cpus=cpus)
    assert nnapi == Conditions(precision, conditions.mode, 1, cpus)
    assert cpu.on(CPU) == cpu and nnapi.on(accelerator) == nnapi
    assert conditions.on(CPU_ALONE) == replace(cpu, threads=1)


@pytest.mark.parametrize("text", ["", "0", "0x0", "f0", "-1", "0x" + "f" * 17, "little", "0x1g"])
def test_masks_have_one_spelling(text):
    assert [parse_cpus(mask) for mask in ("0XF0", "0x00f", "big")] == ["0xf0", "0xf", "big"]
    with pytest.raises(ValueError, match="is neither big nor all nor a mask like 0xf0"):
        parse_cpus(text)


def test_broken_conditions_are_refused():
    for broken in ({"threads": "2"}, {"mode": "fast"}, {"cpus": "x"}):
        with pytest.raises((ValueError, TypeError)):
            Conditions.from_json({**Conditions().to_json(), **broken})
    with pytest.raises(UsageError, match="float16 has no float32"):
        ConditionOptions(1, BIG, "sync", True, True)


N_ROUNDS, RUNS = 5, 8


def noisy(
    random: np.random.Generator, signature: str, scale: float = 1.0, drift: float = 0.0
) -> Measurement:
    """Runs with 5 % of noise, and ``drift`` that is common to a round."""
    noise = 0.05 * random.standard_normal((N_ROUNDS, RUNS))
    common = drift * random.standard_normal((N_ROUNDS, 1))
    samples = 1e6 * scale * np.exp(noise + common)
    return measurement(
        signature, samples_ns=tuple(map(int, samples.ravel())), rounds=(Round(RUNS),) * N_ROUNDS
    )


def both(scale: float, drift: float, count: int = 300) -> CostDiff:
    random = np.random.default_rng(7)
    first = [noisy(random, f"{i}", drift=drift) for i in range(count)]
    return compare(first, [noisy(random, f"{i}", scale, drift) for i in range(count)])


@pytest.mark.slow
@pytest.mark.parametrize("drift", [0.0, 0.05])
def test_noise_alone_is_seldom_called_a_change(drift):
    """At 99 % one in a hundred is allowed; five rounds are few, so up to four are."""
    result = both(1.0, drift)
    assert len(result.changed) <= 0.04 * len(result.differences)
    assert result.median_ratio == pytest.approx(1, abs=0.01)
    assert both(1.05, 0.02, 20) == both(1.05, 0.02, 20)


def test_a_change_is_found_and_its_interval_holds_it():
    result = both(1.2, 0.0)
    assert {each.verdict for each in result.differences} == {DiffVerdict.SLOWER}
    assert np.mean([each.low <= 1.2 <= each.high for each in result.differences]) > 0.97
    assert {each.verdict for each in both(1 / 1.2, 0.0).differences} == {DiffVerdict.FASTER}


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
    assert [(d.first.signature, d.verdict, d.ratio) for d in comparison.differences] == [
        ("s", DiffVerdict.STATUS, None),
        ("b", DiffVerdict.FASTER, 0.5),
        ("a", DiffVerdict.SLOWER, 1.5),
        ("c", DiffVerdict.SAME, 1.001),  # beyond its noise, but by less than 2 %
    ]
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


@pytest.mark.parametrize(("level", "runs", "ratio"), [(10, 4, 10), (0, 9, None)])
def test_few_runs_and_coarse_clocks_decide_nothing(level, runs, ratio):
    first, second = (measurement(samples_ns=(n,) * runs, rounds=()) for n in (level, 100))
    difference = only(first, second)
    assert (difference.verdict, difference.ratio) == (DiffVerdict.UNSURE, ratio)
    assert difference.low is None


def test_words_of_a_refusal_and_throttled_rounds_are_no_change():
    refused = (measurement(status=Status.REFUSED, samples_ns=(), message=m) for m in "ab")
    difference = only(*refused)
    assert difference.verdict is DiffVerdict.SAME and not difference.changed
    rounds = (Round(9, throttled=True), Round(9))
    hot = measurement(samples_ns=(900,) * 9 + (100,) * 9, rounds=rounds)
    difference = only(hot, measurement(samples_ns=(100,) * 9, rounds=(Round(9),)))
    assert (difference.verdict, difference.ratio, difference.low) == (DiffVerdict.SAME, 1, 1)
