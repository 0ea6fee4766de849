"""Plans within constraints and budgets, and the baselines that keep to rules of others."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nnapi_prof.costs.table import CompileTimes
from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import CPU, Engine, Plan, Preference
from nnapi_prof.partition import (
    Constraints,
    Partitioning,
    baselines,
    evaluate,
    is_optimum,
    plan_problem,
)
from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.constraints import Budget, add_prices, compile_budget
from nnapi_prof.partition.problem import Problem
from nnapi_prof.partition.search import SearchLimits, SearchResult, Watch
from nnapi_prof.partition.search.lagrangian import search_within
from tests.partition.cases import NPU, NPU_LOW, chain, problem_of, solve, table
from tests.partition.judge import Case
from tests.partition.problems import check_plan, draws, every_plan, stem_problem
from tests.partition.trial import ask, judge


def solved(**constraints: object) -> Plan:
    """Four units that are 100 times as fast on either of two names of an accelerator."""
    rows = {CPU: [100] * 4, NPU: [1] * 4, NPU_LOW: [1] * 4}
    costs = table(rows, start=dict.fromkeys(rows, 1.0))
    return solve(chain(4), costs, constraints=Constraints(**constraints))


@pytest.mark.parametrize(
    ("constraints", "words", "targets"),
    [
        (dict(pinned={1: CPU}), "1 unit pinned", [NPU, CPU, NPU]),
        (dict(forbidden={0: {NPU}, 1: {NPU}}), "2 units kept off targets", [NPU_LOW]),
        (dict(forbidden={1: {CPU}}), "1 unit kept off targets", [NPU]),
        (dict(preference=Preference.LOW_POWER), "preference low_power only", [NPU_LOW]),
        (dict(max_regions=0), "at most 0 on accelerators", [CPU]),
        (
            dict(pinned={1: CPU}, max_regions=1),
            "1 unit pinned, at most 1 on accelerators",
            [CPU, NPU],
        ),
    ],
)
def test_a_constrained_plan_is_not_called_the_optimum(constraints, words, targets):
    assert is_optimum(solved())
    plan = solved(**constraints)
    assert not is_optimum(plan) and f"within the constraints ({words})" in plan.notes[0]
    assert [segment.target for segment in plan.segments] == targets


def test_a_pinned_unit_has_its_cause():
    split = solved(pinned={1: CPU})
    assert [s.units for s in split.segments] == [(0,), (1,), (2, 3)]
    assert split.segments[1].cause == "stays on the CPU: kept off sim-npu: pinned to cpu"


@pytest.mark.parametrize(
    ("constraints", "words"),
    [
        (Constraints(forbidden={1: frozenset({CPU, NPU})}), r"op1 .*nowhere to run.*forbidden"),
        (Constraints(pinned={9: CPU}), "names unit 9; there are 3"),
        (Constraints(pinned={0: NPU_LOW}), "no costs for target"),
        (Constraints(max_regions=0, pinned={0: NPU}), "at most 0 on accelerators"),
    ],
)
def test_what_cannot_be_kept_is_said(constraints, words):
    with pytest.raises(PartitionError, match=words):
        solve(chain(3), table({CPU: [10] * 3, NPU: [1] * 3}), constraints=constraints)


def test_baselines_of_tflite_and_of_a_list():
    # The first region of the accelerator has five units.
    npu = [1.0 if u in (0, 1, 2, 3, 4, 6, 8, 10) else None for u in range(11)]
    costs = table({CPU: [3] * 11, NPU: npu}, start={CPU: 1.0, NPU: 1.0})
    result = {plan.name: plan for plan in baselines(problem_of(chain(11), costs), listed=[6])}

    def on_npu(name: str) -> list[tuple[int, ...]]:
        return [s.units for s in result[name].segments if s.target == NPU]

    assert on_npu(f"largest-3 {NPU}") == [(0, 1, 2, 3, 4), (6,), (8,)]
    assert on_npu(f"listed {NPU}") == [(0, 1, 2, 3, 4)]
    assert result[f"best-single {CPU}"].predicted_ns == result["all-cpu"].predicted_ns


# ---- limits of compile time ----------------------------------------------------------------------

TIMES = CompileTimes(np.array([0.0, 1e7]), np.array([[0.0, 1e7]] * 6))
CHAIN = problem_of(chain(6), table({CPU: [3e6] * 6, NPU: [1e6] * 6}, start={NPU: 1e6}))


def within(limit_ms: float, problem: Any = CHAIN, times: Any = TIMES) -> Partitioning:
    limited = Constraints(max_compile_ns=limit_ms * 1e6)
    return plan_problem(problem, constraints=limited, compiling=times)


@pytest.mark.parametrize(
    ("limit_ms", "ms", "words"),
    [
        (70, 7, ["regions compile in 70.0 ms together, of 70.0 ms allowed"]),
        # Three units in one region: 10 + 3 x 10 ms.
        (40, 1 + 3 + 3 * 3, ["of 40.0 ms", "the constraints (at most 40 ms of compilation)"]),
        (0, 18, []),
    ],
)
def test_the_plan_keeps_to_the_limit_and_says_what_is_proven(limit_ms, ms, words):
    plan = within(limit_ms).default
    assert evaluate(CHAIN, plan.segments) == pytest.approx(plan.predicted_ns)
    assert plan.proof.is_optimal and plan.proof.constrained
    assert plan.predicted_ns == ms * 1e6
    assert all(each in " ".join(plan.notes) for each in words)


def test_a_region_takes_what_was_measured_of_it_or_its_parts_and_may_take_too_long():
    whole = replace(TIMES, region_ns={(frozenset({0, 1}), 1): 5e6})
    budget = compile_budget(whole, 1e9)
    assert budget.of([((0, 1), 1), ((2,), 1), ((3, 4, 5), 0)]) == 5e6 + 2e7
    with pytest.raises(PartitionError, match=r"compiles within 1.00 ms"):
        within(1, problem_of(chain(6), table({CPU: [], NPU: [1e6] * 6}, start={NPU: 1e6})))
    with pytest.raises(PartitionError, match="needs costs that tell compile times"):
        within(1, times=None)


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


def test_a_limit_of_compile_time_and_both():
    for seed, problem in draws(60, 4):
        time = Constraints(max_compile_ns=float(seed % 7) * 10)
        for constraints in (time, replace(time, max_regions=seed % 3)):
            case = Case(problem, constraints, compile_times(problem, seed))
            answers = []

            def recorded(case: Case, answers: list[Partitioning] = answers) -> Partitioning:
                answers.append(ask(case))
                return answers[0]

            assert judge(case, recorded) == [], seed
            for answer in answers:  # so few units have few ideals
                assert answer.best.proof.is_optimal


def test_a_price_on_a_budget_is_a_problem_of_the_same_kind():
    for seed, problem in draws(20, 4):
        budget = compile_budget(compile_times(problem, seed), math.inf)
        rival = add_prices(problem, [budget], [2.5])
        for plan in every_plan(problem):
            expected = total_ns(problem, plan) + 2.5 * budget.of(plan)
            assert total_ns(rival, plan) == pytest.approx(expected), seed


def test_out_of_time_there_is_a_plan_and_a_bound():
    problem = stem_problem(40, length=2)
    budget = Budget.accelerated(problem, 2)

    def within(limits: SearchLimits) -> SearchResult:
        result = search_within(problem, [budget], Watch(limits))
        assert budget.keeps(result.placements)
        check_plan(problem, result.placements)
        return result

    whole, hasty = within(SearchLimits(seconds=60.0, effort=4e6)), within(SearchLimits(1e-6))
    assert max(whole.bound_ns, hasty.bound_ns) <= whole.ns <= hasty.ns * (1 + 1e-9)
