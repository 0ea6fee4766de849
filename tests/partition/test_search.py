"""The whole search against all pairs of ideals, and its proofs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings

from nnapi_prof.graph.plan import ProofKind
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.partition import plan_problem
from nnapi_prof.partition.baselines import find_baselines, total_ns
from nnapi_prof.partition.problem import GRAPH_INPUT, Problem, ValueFlow
from nnapi_prof.partition.search.anytime import search
from nnapi_prof.partition.search.result import SearchLimits, SearchResult, Watch
from tests.partition.cases import SETTINGS, Table, cases, problem_of
from tests.partition.pairs import optimum
from tests.partition.problems import TARGETS, check_plan, draw_problem, stem_problem


def searched(problem: Problem, limits: SearchLimits | None = None) -> SearchResult:
    result = search(problem, Watch(limits or SearchLimits(seconds=100.0)))
    assert result is not None
    check_plan(problem, result.placements)
    assert result.ns == pytest.approx(total_ns(problem, result.placements))
    return result


@settings(SETTINGS, max_examples=40)
@given(cases(max_units=10))
def test_finds_the_optimum_of_all_plans(case: tuple[UnitGraph, Table]) -> None:
    problem = problem_of(*case)
    result = searched(problem)
    assert result.is_optimal and result.gap == 0.0
    assert result.ns == pytest.approx(optimum(problem), rel=2e-6)


def test_of_drawn_problems_too() -> None:
    for seed in range(150):
        problem = draw_problem(seed, 9)
        result = searched(problem)
        assert result.is_optimal, seed
        assert result.ns == pytest.approx(optimum(problem), rel=2e-6), seed
        assert result.bound_ns <= result.ns, seed


def test_a_limit_of_effort_or_time_leaves_a_plan_and_a_bound() -> None:
    problem = stem_problem(24, length=2)
    best = searched(problem, SearchLimits(seconds=60.0, effort=5e6))
    rivals = [b.predicted_ns for b in find_baselines(problem)]
    for limits in (
        SearchLimits(effort=0.0),
        SearchLimits(effort=1e5),
        SearchLimits(seconds=0.0),
        SearchLimits(seconds=0.1),
    ):
        result = searched(problem, limits)
        assert result.bound_ns <= best.ns <= result.ns * (1 + 1e-9)
        assert best.bound_ns <= result.ns <= min(rivals)
        if result.kind is ProofKind.GAP:
            assert result.ns == pytest.approx(result.bound_ns * (1 + result.gap))


def test_effort_alone_decides_which_plan_it_is() -> None:
    problem = stem_problem(30, seed=2, length=2)
    limits = SearchLimits(seconds=100.0, effort=3e6)
    one, two = searched(problem, limits), searched(problem, limits)
    assert (one.placements, one.bound_ns, one.steps) == (two.placements, two.bound_ns, two.steps)


def test_little_memory_is_no_reason_to_give_up() -> None:
    problem = stem_problem(14)
    roomy, poor = (
        searched(problem),
        searched(problem, SearchLimits(seconds=60.0, effort=2e6, memory_bytes=1 << 16)),
    )
    assert poor.bound_ns <= roomy.ns <= poor.ns * (1 + 1e-9)


def test_a_problem_without_any_plan_has_none() -> None:
    problem = draw_problem(2, regions=False)
    problem.unit_ns[0] = math.inf
    assert search(problem, Watch(SearchLimits())) is None


def test_heads_that_share_a_value_do_not_each_pay_for_it() -> None:
    """Of three readers of a value each counted bringing it in for itself: 85 was called optimal."""
    problem = Problem(
        labels=("u0", "u1", "u2", "u3"),
        predecessors=((), (0,), (0,), (0,)),
        values=(
            ValueFlow(GRAPH_INPUT, (0,), 1),
            ValueFlow(0, (1, 2, 3), 16),
            ValueFlow(1, (), 16, True),
            ValueFlow(2, (), 1, True),
            ValueFlow(3, (), 4, True),
        ),
        targets=TARGETS[:2],
        unit_ns=np.array([[29, np.inf], [18, 5], [17, 4], [30, 8]], dtype=np.float64),
        overhead_ns=np.array([0.0, 2.0]),
        in_ns_per_byte=np.array([0.0, 1.0]),
        out_ns_per_byte=np.array([0.0, 1.0]),
    )
    assert optimum(problem) == 82
    assert plan_problem(problem).best.predicted_ns == 82
