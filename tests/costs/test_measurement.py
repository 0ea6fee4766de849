"""Measurements: conditions, rounds, what differs between two sets, contention side by side."""

import argparse
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnapi_prof.costs import (
    ALL,
    BIG,
    CONDITIONAL,
    ConditionOptions,
    Conditions,
    Mode,
    contention,
    parse_cpus,
)
from nnapi_prof.costs.contention import ContentionBasis, Slowdown, corun_rows, lanes_of, slowdowns
from nnapi_prof.costs.diff import CostDiff, Difference, DiffVerdict, compare
from nnapi_prof.costs.measurement import (
    Kind,
    Measurement,
    Round,
    Status,
    log_ratios,
    medians,
    quality_flags,
    steady,
    summarise,
)
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.table import CostTable
from nnapi_prof.errors import CostError, UsageError
from nnapi_prof.graph.plan import AUTO, CPU, CPU_ALONE, HOST, Preference, Target
from nnapi_prof.graph.unit import UnitGraph, Work
from tests.costs.graphs import chain_graph
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


def test_a_change_is_found_and_its_interval_holds_it():
    result = both(1.2, 0.0)
    assert {each.verdict for each in result.differences} == {DiffVerdict.SLOWER}
    assert np.mean([each.low <= 1.2 <= each.high for each in result.differences]) > 0.97
    assert {each.verdict for each in both(1 / 1.2, 0.0).differences} == {DiffVerdict.FASTER}
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


GPU = Target.nnapi("gpu", Preference.SUSTAINED_SPEED)
FAST = Target.nnapi("gpu", Preference.FAST_SINGLE_ANSWER)


def of_operations(*kinds: str) -> UnitGraph:
    graph = chain_graph([1, 1, 1])
    works = [Work(kind, "float32", 64, 256, 256, 0, 8, 8, 8, 8) for kind in kinds]
    units = [replace(unit, work=work) for unit, work in zip(graph.units, works, strict=True)]
    return replace(graph, units=tuple(units))


def prices(ns: dict[int, float]) -> CostTable:
    """Units of each operation on the CPU and the GPU."""
    targets = (CPU, GPU, FAST, Target.nnapi(AUTO, Preference.LOW_POWER), HOST)
    unit_ns = np.full((3, len(targets)), np.inf)
    for unit, each in ns.items():
        unit_ns[unit, :2] = each
    return CostTable(targets, unit_ns, *np.zeros((3, len(targets))))


def row(
    target: Target, corunner: Target, operation: str, slower: float, **more: object
) -> Measurement:
    alone = (1000, 1010, 990) * 5
    base = measurement(
        signature=f"{operation} {target} {corunner}",
        kind=Kind.CORUN,
        target=target,
        conditions=Conditions().on(target),
        operation=operation,
        corunner=corunner,
        alone_ns=alone,
        samples_ns=tuple(round(ns * slower) for ns in alone),
        cpu_ns=(250,) * 15,
        rounds=(Round(3),) * 5,
    )
    return replace(base, **more)


GRAPH = of_operations("CONV_2D", "DEPTHWISE_CONV_2D")


def of_pair(rows: list[Measurement], conv_ns: float = 1.0, lane: str = "cpu") -> Slowdown:
    """What rows tell of a lane, of units that take so long and 1 ns."""
    pairs = slowdowns(GRAPH, prices({0: conv_ns, 1: 1.0}), rows).pairs
    return next(pair for pair in pairs if pair.lane == lane)


def test_operations_count_by_their_share_of_the_time():
    rows = [row(CPU, GPU, "CONV_2D", 1.0), row(CPU, GPU, "DEPTHWISE_CONV_2D", 1.5)]
    assert of_pair(rows).factor.value == pytest.approx(1.25)
    assert of_pair(rows, 4.0).factor.value == pytest.approx(1.1)
    assert of_pair(rows[:1], 4.0).factor.value == pytest.approx(1.0)
    others = [row(CPU, GPU, "ADD", 1.2), row(CPU, GPU, "MUL", 1.4)]
    assert of_pair(others).factor.value == pytest.approx(1.3)


def test_pairs_that_were_not_measured_are_assumed():
    table = prices({0: 1.0, 1: 1.0})
    found = slowdowns(GRAPH, table, [row(GPU, CPU, "CONV_2D", 1.3)])
    assert found.basis is ContentionBasis.PARTLY
    assert found.factors == {("cpu", "gpu"): contention.ASSUMED, ("gpu", "cpu"): pytest.approx(1.3)}
    cpu, gpu = sorted(found.pairs, key=lambda pair: pair.lane)
    assert (cpu.basis, gpu.basis) == (ContentionBasis.ASSUMED, ContentionBasis.MEASURED)
    assert gpu.cpu_share.value == pytest.approx(0.25, rel=0.02)
    assert slowdowns(GRAPH, table, []).basis is ContentionBasis.ASSUMED
    assert contention.given(table.targets, 1.2).factors == dict.fromkeys(found.factors, 1.2)
    assert lanes_of(table.targets) == ("cpu", "gpu")


def test_starting_and_waiting_is_told_by_the_same_unit_in_both_modes():
    in_call, waiting = row(GPU, CPU, "CONV_2D", 1.0), Conditions(mode=Mode.ASYNC).on(GPU)
    alone = tuple(ns + 40 for ns in in_call.alone_ns)
    waits = replace(in_call, signature="waiting", conditions=waiting, alone_ns=alone)
    wait_ns = of_pair([in_call, waits], lane="gpu").wait_ns
    assert wait_ns.value == pytest.approx(40) and wait_ns.low <= 40 <= wait_ns.high


def test_long_runs_say_how_clocks_do_and_nothing_else():
    ns = tuple(range(10**7, 2 * 10**7, 10**4))
    long = row(CPU, GPU, "ADD", 1.0, samples_ns=ns, alone_ns=ns, rounds=(Round(1000),), cpu_ns=())
    pair = of_pair([long, row(CPU, GPU, "CONV_2D", 1.2)])
    assert pair.factor.value == pytest.approx(1.2)
    assert pair.later.value == pytest.approx(1.95 / 1.05, rel=0.01)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(0.8, 3.0), min_size=5, max_size=5), st.floats(0.1, 10))
def test_factors_are_slowdowns_inside_their_interval(ratios, share):
    samples = tuple(round(1e6 * ratio) for ratio in ratios for _ in range(3))
    rows = [row(CPU, GPU, "CONV_2D", 1.0, alone_ns=(10**6,) * 15, samples_ns=samples)]
    factor = of_pair(rows, share).factor
    assert 1.0 <= factor.low <= factor.value <= factor.high <= max(1.0, *ratios) + 1e-6


def test_rows_come_back_under_their_conditions():
    one = row(CPU, GPU, "CONV_2D", 1.1)
    two = replace(one, conditions=Conditions(threads=2))
    waits = row(GPU, CPU, "CONV_2D", 1.1, conditions=Conditions(mode=Mode.ASYNC).on(GPU))
    with CostStore("sqlite://") as store:
        store.add(one, two, waits)
        rows = corun_rows(store, one.fingerprint, Conditions())
    assert [replace(each, measured_at=one.measured_at) for each in rows] == [one, waits]
