"""Plans within a limit of compile time, as a user asks for them."""

import numpy as np
import pytest

from nnapi_prof.costs.table import CompileTimes
from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import CPU, Target
from nnapi_prof.partition import Constraints, evaluate, make_problem, plan_problem
from nnapi_prof.partition.constraints import compile_budget
from nnapi_prof.partition.problem import Problem
from tests.partition.cases import NPU, Table, chain


def problem_of(cpu: float, npu: float) -> tuple[Problem, CompileTimes]:
    graph = chain(6)
    unit: dict[tuple[int, Target], float] = {(u, CPU): cpu for u in range(6)}
    unit |= {(u, NPU): npu for u in range(6)}
    costs = Table((CPU, NPU), unit, {CPU: 0.0, NPU: 1e6}, {CPU: (0.0, 0.0), NPU: (0.0, 0.0)})
    problem = make_problem(graph, costs.of(graph))
    return problem, CompileTimes(np.array([0.0, 1e7]), np.array([[0.0, 1e7]] * 6))


def test_a_region_takes_what_was_measured_of_it_or_its_parts() -> None:
    _, times = problem_of(1.0, 1.0)
    whole = CompileTimes(times.fixed_ns, times.unit_ns, {(frozenset({0, 1}), 1): 5e6})
    budget = compile_budget(whole, 1e9)
    assert budget.of([((0, 1), 1), ((2,), 1), ((3, 4, 5), 0)]) == 5e6 + 2e7


def test_the_plan_keeps_to_the_limit_and_says_what_is_proven() -> None:
    problem, times = problem_of(3e6, 1e6)
    free = plan_problem(problem).default
    assert [s.target for s in free.segments] == [NPU]  # 70 ms to compile

    def plan(limit_ms: float) -> tuple[float, str]:
        expected = Constraints(max_compile_ns=limit_ms * 1e6)
        actual = plan_problem(problem, constraints=expected, compiling=times).default
        assert evaluate(problem, actual.segments) == pytest.approx(actual.predicted_ns)
        assert actual.proof is not None and actual.proof.is_optimal and actual.proof.constrained
        return actual.predicted_ns / 1e6, " ".join(actual.notes)

    ns, note = plan(70)
    assert ns == 7 and "regions compile in 70.0 ms together, of 70.0 ms allowed" in note
    ns, note = plan(40)  # three units in one region: 10 + 3 x 10 ms
    assert ns == 1 + 3 + 3 * 3 and "of 40.0 ms allowed" in note
    assert "within the constraints (at most 40 ms of compilation)" in note
    assert plan(0)[0] == 18


def test_a_limit_that_nothing_keeps_is_an_error() -> None:
    problem, times = problem_of(np.inf, 1e6)
    limited = Constraints(max_compile_ns=1e6)
    with pytest.raises(PartitionError, match=r"compiles within 1.00 ms"):
        plan_problem(problem, constraints=limited, compiling=times)


def test_a_limit_that_a_solver_cannot_keep_is_refused() -> None:
    problem, _times = problem_of(3e6, 1e6)
    limited = Constraints(max_compile_ns=1.0)
    with pytest.raises(PartitionError, match="needs costs that tell compile times"):
        plan_problem(problem, constraints=limited)
