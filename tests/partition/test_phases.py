"""Programmes over phases, against every plan of small graphs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.constraints import Budget
from nnapi_prof.partition.search.phases import chain_within, solve_phases
from tests.partition.pairs import optimum
from tests.partition.problems import check_plan, draw_problem, every_plan


def test_no_plan_within_the_segments_costs_less_than_the_bound() -> None:
    met = bounded = 0
    for seed in range(160):
        problem = draw_problem(seed, 7, regions=seed % 2 > 0)
        for most in (0, 1, 2):
            budget = Budget.accelerated(problem, most)
            chain = chain_within(problem, [budget], 2)
            result = None if chain is None else solve_phases(problem, chain, 60.0, [budget])
            if result is None:
                continue
            least = optimum(problem, most)
            assert result.bound_ns <= least * (1 + 1e-9), (seed, most)
            bounded += 1
            if result.placements is None:
                assert math.isinf(least), (seed, most)
                continue
            check_plan(problem, result.placements)
            assert budget.keeps(result.placements)
            if not problem.region_ns:
                ns = total_ns(problem, result.placements)
                assert ns == pytest.approx(least, rel=1e-5), (seed, most)
                met += 1
    assert met > 60 and bounded > met


def test_a_chain_of_two_targets_gives_the_best_of_its_plans() -> None:
    for seed in range(40):
        problem = draw_problem(seed, 6, regions=False)
        if len(problem.targets) < 2:
            continue
        chain = [(0,), (1,), (0,)]
        result = solve_phases(problem, chain, 60.0)
        assert result is not None and result.placements is not None
        check_plan(problem, result.placements)
        rivals = [
            total_ns(problem, plan)
            for plan in every_plan(problem)
            if [k for _, k in plan] in ([0], [1], [0, 1], [1, 0], [0, 1, 0])
        ]
        assert total_ns(problem, result.placements) == pytest.approx(min(rivals), rel=1e-5), seed


def test_budgets_tell_how_many_segments_there_can_be() -> None:
    problem = draw_problem(7, 6, regions=False)
    t = len(problem.targets)
    assert t > 1
    others = tuple(range(1, t))
    budget = Budget.accelerated(problem, 2)
    assert chain_within(problem, [budget], 2) == [(0,), others, (0,), others, (0,)]
    assert chain_within(problem, [budget], 1) is None
    assert chain_within(problem, [Budget.segments(problem, 2)], 2) == [(0, *others)] * 2
    assert chain_within(problem, [Budget.error(np.ones((problem.n, t)), 2.0)], 2) is None
