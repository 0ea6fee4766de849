"""Fewest segments and the curve, against all plans by their number of segments."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from nnapi_prof.graph.plan import CPU, Preference, Target
from nnapi_prof.partition.baselines import Baseline, find_baselines, total_ns
from nnapi_prof.partition.problem import Problem, ValueFlow
from nnapi_prof.partition.search import SearchLimits, Watch
from nnapi_prof.partition.search.anytime import search
from nnapi_prof.partition.search.tradeoff import TradeOff
from tests.partition.problems import stem_problem


def trade_off(problem: Problem, seconds: float = 100.0) -> tuple[TradeOff, tuple[Baseline, ...]]:
    watch = Watch(SearchLimits(seconds=seconds))
    best, rivals = search(problem, watch), find_baselines(problem)
    assert best is not None
    return TradeOff(problem, best, rivals, [], watch), rivals


@pytest.mark.slow
def test_a_curve_by_prices_has_valid_bounds() -> None:
    problem = stem_problem(30, length=2)  # too wide for the exact front
    trade, _ = trade_off(problem, 2.0)
    points = trade.curve()
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
    return Problem(
        labels=tuple(f"u{u}" for u in range(n)),
        predecessors=tuple((u - 1,) if u else () for u in range(n)),
        values=tuple(ValueFlow(u, (u + 1,) if u + 1 < n else (), 10, u + 1 == n) for u in range(n)),
        targets=(CPU, *named),
        unit_ns=unit_ns,
        overhead_ns=np.array([0.0, overhead_ns, overhead_ns]),
        in_ns_per_byte=np.zeros(3),
        out_ns_per_byte=np.zeros(3),
    )


def test_noise_between_two_names_of_one_thing_does_not_split_a_plan() -> None:
    trade, _ = trade_off(near_ties(12))
    assert len(trade.best.placements) > 1
    ((_, k),) = trade.fewest(0.01)
    assert k in (1, 2)


def test_segments_that_a_refusal_keeps_apart_run_on_one_target() -> None:
    problem = near_ties(9, 400.0)
    problem.unit_ns[[2, 5], 1:] = np.inf
    problem.unit_ns[7, 0] = problem.unit_ns[7, 1:].min() - 10.0  # so that greedy is slower
    trade, _ = trade_off(problem)
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
