"""The whole search against all pairs of ideals, and its proofs."""

import math

import pytest

from nnapi_prof.graph.plan import ProofKind
from nnapi_prof.partition.baselines import find_baselines, total_ns
from nnapi_prof.partition.problem import Problem
from nnapi_prof.partition.search import SearchLimits, SearchResult, Watch
from nnapi_prof.partition.search.anytime import search
from tests.partition.problems import check_plan, draw_problem, stem_problem


def searched(problem: Problem, limits: SearchLimits | None = None) -> SearchResult:
    result = search(problem, Watch(limits or SearchLimits(seconds=100.0)))
    assert result is not None
    check_plan(problem, result.placements)
    assert result.ns == pytest.approx(total_ns(problem, result.placements))
    return result


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
