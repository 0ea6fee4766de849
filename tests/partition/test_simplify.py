"""Fewest segments and the curve, against all plans by their number of segments."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from nnapi_prof.graph.plan import CPU, Preference, Target
from nnapi_prof.partition.baselines import find_baselines, total_ns
from nnapi_prof.partition.problem import Problem
from nnapi_prof.partition.search import SearchLimits, Watch
from nnapi_prof.partition.search.anytime import search
from nnapi_prof.partition.search.tradeoff import TradeOff
from tests.partition.networks import problem_on
from tests.partition.problems import stem_problem


def trade_off(problem: Problem, seconds: float = 100.0) -> TradeOff:
    watch = Watch(SearchLimits(seconds=seconds))
    best = search(problem, watch)
    assert best is not None
    return TradeOff(problem, best, find_baselines(problem), [], watch)


@pytest.mark.slow
def test_a_curve_by_prices_has_valid_bounds() -> None:
    # Too wide for the exact front.
    points = trade_off(stem_problem(30, length=2), 2.0).curve()
    assert len(points) > 1
    for one, more in itertools.pairwise(points):
        assert more.ns <= one.ns and more.n_segments == one.n_segments + 1
    assert all(0 < p.bound_ns <= p.ns for p in points)


def near_ties(n: int, overhead_ns: float = 80.0) -> Problem:
    """A chain on a CPU that is slow, and two names of one accelerator that noise tells apart."""
    chance = np.random.default_rng(0)
    unit_ns = np.full((n, 3), 1e6)
    unit_ns[:, 1:] = 1e5 * chance.normal(1.0, 0.001, (n, 2))
    named = [Target.nnapi(f, Preference.FAST_SINGLE_ANSWER) for f in ("npu", "auto")]
    reads = [[u - 1] if u else [] for u in range(n)]
    overheads = [0.0, overhead_ns, overhead_ns]
    return problem_on(reads, unit_ns, targets=(CPU, *named), overhead_ns=overheads)


def test_noise_between_two_names_of_one_thing_does_not_split_a_plan() -> None:
    trade = trade_off(near_ties(12))
    assert len(trade.best.placements) > 1
    ((_, k),) = trade.fewest(0.01)
    assert k in (1, 2)


def test_segments_that_a_refusal_keeps_apart_run_on_one_target() -> None:
    problem = near_ties(9, 400.0)
    problem.unit_ns[[2, 5], 1:] = np.inf
    problem.unit_ns[7, 0] = problem.unit_ns[7, 1:].min() - 10.0  # so that greedy is slower
    trade = trade_off(problem)
    assert len({k for _, k in trade.best.placements}) == 3
    plan = trade.fewest(0.01)
    assert len(plan) == 5 and len({k for _, k in plan}) == 2


def test_the_curve_knows_the_plan_that_is_shipped() -> None:
    problem = near_ties(12)
    best = search(problem, Watch(SearchLimits()))
    assert best is not None and len(best.placements) > 1
    # No time is left to find that plan otherwise.
    over = Watch(SearchLimits(seconds=1e-9))
    trade = TradeOff(problem, replace(best, plans=()), [], [], over)
    shipped = trade.fewest(0.01)
    assert len(shipped) == 1
    (point,) = (p for p in trade.curve() if p.n_segments == len(shipped))
    assert point.ns <= total_ns(problem, shipped)
