"""Plans within budgets, against every plan of small graphs."""

import math

import numpy as np
import pytest

from nnapi_prof.costs.table import CompileTimes
from nnapi_prof.graph.plan import Engine, ProofKind
from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.constraints import Budget, add_prices, compile_budget
from nnapi_prof.partition.problem import Problem
from nnapi_prof.partition.search import SearchLimits, SearchResult, Watch
from nnapi_prof.partition.search.lagrangian import search_within
from tests.partition.problems import check_plan, draw_problem, every_plan, stem_problem


def compile_times(problem: Problem, seed: int) -> CompileTimes:
    """Whole numbers, so that sums and limits are exact; nothing off accelerators."""
    chance = np.random.default_rng(seed)
    shape = problem.unit_ns.shape
    accelerated = np.array([target.engine is Engine.NNAPI for target in problem.targets])
    return CompileTimes(
        chance.integers(0, 30, shape[1]) * accelerated.astype(np.float64),
        chance.integers(0, 30, shape) * accelerated.astype(np.float64),
        {
            (units, k): float(chance.integers(0, 30))
            for units, k in problem.region_ns
            if accelerated[k]
        },
    )


def within(
    problem: Problem, *budgets: Budget, limits: SearchLimits | None = None
) -> SearchResult | None:
    return search_within(problem, budgets, Watch(limits or SearchLimits(seconds=100.0)))


def check(problem: Problem, result: SearchResult | None, least: float, *budgets: Budget) -> None:
    if math.isinf(least):
        assert result is None
        return
    assert result is not None
    check_plan(problem, result.placements)
    assert all(budget.keeps(result.placements) for budget in budgets)
    assert result.kind is not ProofKind.GAP  # so few units have few ideals
    assert result.ns == pytest.approx(total_ns(problem, result.placements))
    assert result.ns == pytest.approx(least, rel=2e-6)
    assert result.bound_ns <= least * (1 + 1e-9)


def test_a_limit_of_compile_time_and_both() -> None:
    for seed in range(60):
        problem = draw_problem(seed, 4)
        time = compile_budget(compile_times(problem, seed), float(seed % 7) * 10)
        regions = Budget.accelerated(problem, seed % 3)
        plans = every_plan(problem)
        for budgets in ([time], [time, regions]):
            latencies = (total_ns(problem, p) for p in plans if all(b.keeps(p) for b in budgets))
            check(problem, within(problem, *budgets), min(latencies, default=math.inf), *budgets)


def test_a_price_on_a_budget_is_a_problem_of_the_same_kind() -> None:
    for seed in range(20):
        problem = draw_problem(seed, 4)
        budget = compile_budget(compile_times(problem, seed), math.inf)
        rival = add_prices(problem, [budget], [2.5])
        for plan in every_plan(problem):
            expected = total_ns(problem, plan) + 2.5 * budget.of(plan)
            assert total_ns(rival, plan) == pytest.approx(expected), seed


def test_out_of_time_there_is_a_plan_and_a_bound() -> None:
    problem = stem_problem(40, length=2)
    budget = Budget.accelerated(problem, 2)
    whole = within(problem, budget, limits=SearchLimits(seconds=60.0, effort=4e6))
    hasty = within(problem, budget, limits=SearchLimits(seconds=1e-6))
    assert whole is not None and hasty is not None and budget.keeps(hasty.placements)
    assert max(whole.bound_ns, hasty.bound_ns) <= whole.ns <= hasty.ns * (1 + 1e-9)
