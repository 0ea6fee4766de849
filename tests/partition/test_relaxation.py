"""The linear relaxation bounds every plan, and its prices what remains of one."""

from __future__ import annotations

import math

import pytest

from nnapi_prof.partition.search.ideals import members
from nnapi_prof.partition.search.prices import free_prices, lower_bound
from nnapi_prof.partition.search.relaxation import relax
from nnapi_prof.partition.search.windows import subproblem
from tests.partition.pairs import all_ideals, optimum
from tests.partition.problems import draw_problem


def test_no_plan_costs_less_than_the_bound() -> None:
    tight = 0
    for seed in range(150):
        problem = draw_problem(seed, 9)
        least = optimum(problem)
        relaxation = relax(problem)
        assert relaxation is not None, seed
        assert relaxation.bound_ns <= least * (1 + 1e-9), seed
        assert relaxation.bound_ns >= lower_bound(problem) * (1 - 1e-6), seed
        assert relaxation.share.sum(axis=1) == pytest.approx(1.0), seed
        tight += relaxation.bound_ns >= least * (1 - 1e-6)
    assert tight > 75  # else it would be of little use


def test_a_unit_elsewhere_costs_what_is_said() -> None:
    for seed in range(60):
        problem = draw_problem(seed, 6)
        relaxation = relax(problem)
        assert relaxation is not None
        extra = relaxation.cost_ns - relaxation.cost_ns.min(axis=1, keepdims=True)
        for u in range(problem.n):
            for k in range(len(problem.targets)):
                elsewhere = problem.unit_ns != problem.unit_ns  # all false
                elsewhere[u] = True
                elsewhere[u, k] = False
                least = optimum(problem.without(elsewhere))
                assert relaxation.bound_ns + extra[u, k] <= least * (1 + 1e-9), (seed, u, k)


def test_prices_bound_what_remains_after_any_prefix() -> None:
    for seed in range(60):
        problem = draw_problem(seed, 7)
        relaxation = relax(problem)
        assert relaxation is not None
        prices = relaxation.prices
        for ideal in all_ideals(problem):
            rest = [u for u in range(problem.n) if not ideal >> u & 1]
            if rest:
                least = optimum(subproblem(problem, rest))
                bound = prices.least[rest].sum() + prices.slack
                assert bound <= least * (1 + 1e-9) + 1e-9, (seed, members(ideal))


def test_a_unit_that_runs_nowhere_has_no_relaxation() -> None:
    problem = draw_problem(3, regions=False)
    problem.unit_ns[0] = math.inf
    assert relax(problem) is None


def test_free_prices_know_units_alone() -> None:
    problem = draw_problem(5)
    prices = free_prices(problem, problem.unit_ns.min(axis=1))
    assert not prices.enters.any() and not prices.leaves.any() and not prices.switch.any()
    assert prices.slack == 0.0
