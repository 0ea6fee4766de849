"""One call of the partitioner: best plan, plan to ship, curve, warm starts, limits and Ctrl-C."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from nnapi_prof.errors import BuildError
from nnapi_prof.graph.plan import ProofKind
from nnapi_prof.partition import (
    Constraints,
    Partitioning,
    Problem,
    SearchLimits,
    Watch,
    baselines,
    evaluate,
    is_optimum,
    plan_problem,
)
from nnapi_prof.partition.baselines import find_baselines, total_ns
from nnapi_prof.partition.search import library, pointers
from nnapi_prof.partition.search.anytime import search
from nnapi_prof.partition.search.tradeoff import TradeOff
from tests.partition.networks import problem_on
from tests.partition.precisions import optimum
from tests.partition.problems import draw_problem, draws, on_targets, stem_problem

WIDE = stem_problem(24, length=2)


def check(problem: Problem, answer: Partitioning) -> None:
    proof = answer.best.proof
    for plan in (answer.best, answer.default):
        assert evaluate(problem, plan.segments) == pytest.approx(plan.predicted_ns)
        assert plan.name == "dp" and plan.notes and plan.proof == proof
    assert proof.least_ns == pytest.approx(answer.best.predicted_ns)
    assert proof.bound_ns <= proof.least_ns and proof.found_by and proof.bounded_by


def lucky_chain() -> Problem:
    """Four units on the CPU, two pairs of which were measured a little below their parts."""
    pairs = {(frozenset({0, 1}), 0): 198.0, (frozenset({2, 3}), 0): 199.0}
    return problem_on([[], [0], [1], [2]], np.full((4, 1), 100.0), region_ns=pairs)


def test_the_plan_to_ship_needs_no_curve_and_says_what_it_gives_up():
    problem = draw_problem(11, 8)
    answer = plan_problem(problem, with_curve=False)
    assert answer.curve == () and answer.default == plan_problem(problem).default
    answer = plan_problem(lucky_chain())
    assert len(answer.best.segments) == 2 and len(answer.default.segments) == 1
    assert "2 segments, this plan 1, for 0.8% more latency" in answer.default.notes[0]


def test_a_warm_start_gives_no_worse_plan():
    cold = plan_problem(WIDE, limits=SearchLimits(seconds=60.0, effort=4e6))
    assert cold.warm.plans
    costlier = replace(WIDE, unit_ns=WIDE.unit_ns * 1.01)
    warm = plan_problem(costlier, limits=SearchLimits(effort=2e5), warm=cold.warm)
    check(costlier, warm)
    for plan in cold.warm.plans:
        ns = sum(costlier.segment_ns(units, costlier.target_index(t)) for units, t in plan)
        assert warm.best.predicted_ns <= ns * (1 + 1e-9)


def test_a_warm_start_with_a_target_that_is_gone_does_no_harm():
    for seed, problem in draws(30, 7):
        fewer = on_targets(problem, 1)
        least = optimum(fewer)
        if math.isfinite(least):
            answer = plan_problem(fewer, warm=plan_problem(problem).warm)
            assert answer.best.predicted_ns == pytest.approx(least, rel=2e-6), seed


@pytest.fixture(scope="module")
def fastest() -> float:
    """The latency of the best plan for the wide problem that a minute finds."""
    limits = SearchLimits(seconds=60.0, effort=4e6)
    return plan_problem(WIDE, limits=limits, with_curve=False).best.predicted_ns


@pytest.mark.parametrize(
    "limits",
    [dict(seconds=0.0), dict(seconds=1e-9), dict(seconds=0.05), dict(effort=0.0), dict(effort=1e5)],
)
def test_hardly_any_time_still_gives_a_plan_with_a_bound(limits, fastest):
    answer = plan_problem(WIDE, limits=SearchLimits(**limits))
    check(WIDE, answer)
    proof = answer.best.proof
    assert proof.kind is ProofKind.GAP and not is_optimum(answer.best)
    assert proof.least_ns == pytest.approx(proof.bound_ns * (1 + proof.gap))
    assert proof.bound_ns <= fastest <= proof.least_ns * (1 + 1e-9)
    assert proof.least_ns <= min(rival.predicted_ns for rival in baselines(WIDE))
    assert "no plan at all is faster than" in answer.best.notes[0]


def test_little_memory_is_no_reason_to_give_up():
    little = SearchLimits(seconds=60.0, effort=2e6, memory_bytes=1 << 16)
    roomy = plan_problem(stem_problem(14)).best.proof
    poor = plan_problem(stem_problem(14), limits=little).best.proof
    assert poor.bound_ns <= roomy.least_ns <= poor.least_ns * (1 + 1e-9)


def test_effort_alone_decides_which_plan_it_is():
    problem = stem_problem(30, seed=2, length=2)
    limits = SearchLimits(seconds=100.0, effort=3e6)
    one, two = search(problem, Watch(limits)), search(problem, Watch(limits))
    assert (one.placements, one.bound_ns, one.steps) == (two.placements, two.bound_ns, two.steps)
    assert one.kind is ProofKind.GAP and one.ns == pytest.approx(one.bound_ns * (1 + one.gap))
    problem.unit_ns[0] = math.inf
    assert search(problem, Watch(SearchLimits())) is None, "there is no plan"


def stop_after(reports: int) -> Callable[[Watch], None]:
    """Ctrl-C, once: whoever is told raises it at that report."""
    left = iter(range(reports - 1, -1, -1))

    def report(watch: Watch) -> None:
        if next(left, None) == 0:
            raise KeyboardInterrupt

    return report


def test_ctrl_c_during_the_search_keeps_the_best_plan():
    answer = plan_problem(WIDE, report=stop_after(2))
    check(WIDE, answer)
    assert answer.interrupted and not is_optimum(answer.best)
    rival_ns = min(rival.predicted_ns for rival in baselines(WIDE))
    assert answer.default.predicted_ns <= rival_ns * (1 + 1e-9)


@pytest.mark.parametrize(
    "constraints", [None, Constraints(max_regions=2)], ids=["free", "constrained"]
)
def test_ctrl_c_keeps_the_best_plan_wherever_it_comes(constraints):
    problem = stem_problem(9, length=2)
    seen: list[Watch] = []
    plan_problem(problem, constraints=constraints, report=seen.append)
    assert len(seen) > 3
    for reports in sorted({1, 2, 3, len(seen) // 2, len(seen) - 1, len(seen)}):
        try:
            answer = plan_problem(problem, constraints=constraints, report=stop_after(reports))
        except KeyboardInterrupt:  # as such it would end all tests
            pytest.fail(f"Ctrl-C at report {reports} of {len(seen)} loses the plan")
        check(problem, answer)
        assert answer.interrupted, reports
        assert math.isfinite(answer.best.predicted_ns)


# ---- fewest segments and the curve ---------------------------------------------------------------


def trade_off(problem: Problem, seconds: float = 100.0) -> TradeOff:
    watch = Watch(SearchLimits(seconds=seconds))
    return TradeOff(problem, search(problem, watch), find_baselines(problem), [], watch)


@pytest.mark.slow
def test_a_curve_by_prices_has_valid_bounds():
    points = trade_off(stem_problem(30, length=2), 2.0).curve()  # too wide for the exact front
    assert len(points) > 1 and all(0 < p.bound_ns <= p.ns for p in points)
    for one, more in itertools.pairwise(points):
        assert more.ns <= one.ns and more.n_segments == one.n_segments + 1


def near_ties(n: int, overhead_ns: float = 80.0) -> Problem:
    """A chain on a CPU that is slow, and two names of one accelerator that noise tells apart."""
    chance = np.random.default_rng(0)
    unit_ns = np.full((n, 3), 1e6)
    unit_ns[:, 1:] = 1e5 * chance.normal(1.0, 0.001, (n, 2))
    reads = [[u - 1] if u else [] for u in range(n)]
    return problem_on(reads, unit_ns, overhead_ns=[0.0, overhead_ns, overhead_ns])


def test_noise_between_two_names_of_one_thing_does_not_split_a_plan():
    trade = trade_off(near_ties(12))
    assert len(trade.best.placements) > 1
    ((_, k),) = trade.fewest(0.01)
    assert k in (1, 2)


def test_segments_that_a_refusal_keeps_apart_run_on_one_target():
    problem = near_ties(9, 400.0)
    problem.unit_ns[[2, 5], 1:] = np.inf
    problem.unit_ns[7, 0] = problem.unit_ns[7, 1:].min() - 10.0  # so that greedy is slower
    trade = trade_off(problem)
    assert len({k for _, k in trade.best.placements}) == 3
    plan = trade.fewest(0.01)
    assert len(plan) == 5 and len({k for _, k in plan}) == 2


def test_the_curve_knows_the_plan_that_is_shipped():
    problem = near_ties(12)
    best = search(problem, Watch(SearchLimits()))
    assert len(best.placements) > 1
    over = Watch(SearchLimits(seconds=1e-9))  # no time to find that plan otherwise
    trade = TradeOff(problem, replace(best, plans=()), [], [], over)
    shipped = trade.fewest(0.01)
    assert len(shipped) == 1
    (point,) = (p for p in trade.curve() if p.n_segments == len(shipped))
    assert point.ns <= total_ns(problem, shipped)


# ---- the loops in C, compiled on first use -------------------------------------------------------


@pytest.fixture
def no_library_yet() -> Iterator[None]:
    library.cache_clear()
    yield
    library.cache_clear()


def test_without_a_compiler_the_error_says_what_to_do(no_library_yet, tmp_path, monkeypatch):
    monkeypatch.setenv("NNAPI_PROF_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NNAPI_PROF_CC", "no-such-compiler")
    with pytest.raises(BuildError, match="not a working C compiler: name another"):
        plan_problem(stem_problem(4))


def test_an_unwritable_cache_is_done_without(no_library_yet, tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("NNAPI_PROF_CACHE_DIR", str(tmp_path / "file"))
    assert plan_problem(stem_problem(4)).best.segments
    assert "compiled for this once" in caplog.text


def test_arrays_that_c_would_misread_are_refused():
    with pytest.raises(ValueError, match="array 1 of 2 is not contiguous"):
        pointers([np.zeros(4), np.zeros((4, 4))[:, ::2]])
