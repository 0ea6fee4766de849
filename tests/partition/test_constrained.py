"""Plans within budgets, against every plan of small graphs."""

import math
from dataclasses import replace

import numpy as np
import pytest

from nnapi_prof.costs.table import CompileTimes
from nnapi_prof.graph.plan import Engine
from nnapi_prof.partition import Partitioning
from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.constraints import Budget, Constraints, add_prices, compile_budget
from nnapi_prof.partition.problem import Problem
from nnapi_prof.partition.search import SearchLimits, SearchResult, Watch
from nnapi_prof.partition.search.lagrangian import search_within
from tests.partition.judge import Case
from tests.partition.problems import check_plan, draw_problem, every_plan, stem_problem
from tests.partition.verdict import ask, judge


def compile_times(problem: Problem, seed: int) -> CompileTimes:
    """Whole numbers, so that sums and limits are exact; nothing off accelerators."""
    chance = np.random.default_rng(seed)
    accelerated = np.array([target.engine is Engine.NNAPI for target in problem.targets])
    regions = [region for region in problem.region_ns if accelerated[region[1]]]
    return CompileTimes(
        chance.integers(0, 30, len(accelerated)) * accelerated.astype(np.float64),
        chance.integers(0, 30, problem.unit_ns.shape) * accelerated.astype(np.float64),
        {region: float(chance.integers(0, 30)) for region in regions},
    )


def test_a_limit_of_compile_time_and_both() -> None:
    for seed in range(60):
        problem = draw_problem(seed, 4)
        time = Constraints(max_compile_ns=float(seed % 7) * 10)
        for constraints in (time, replace(time, max_regions=seed % 3)):
            case = Case(problem, constraints, compile_times(problem, seed))
            answers = []

            def recorded(case: Case, answers: list[Partitioning] = answers) -> Partitioning:
                answers.append(ask(case))
                return answers[0]

            assert judge(case, recorded) == [], seed
            for answer in answers:  # so few units have few ideals
                assert answer.best.proof is not None and answer.best.proof.is_optimal


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

    def within(limits: SearchLimits) -> SearchResult:
        result = search_within(problem, [budget], Watch(limits))
        assert result is not None and budget.keeps(result.placements)
        check_plan(problem, result.placements)
        return result

    whole, hasty = within(SearchLimits(seconds=60.0, effort=4e6)), within(SearchLimits(1e-6))
    assert max(whole.bound_ns, hasty.bound_ns) <= whole.ns <= hasty.ns * (1 + 1e-9)
