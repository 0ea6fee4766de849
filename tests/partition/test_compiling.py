"""Plans within a limit of compile time, against every plan of small graphs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import CPU, Engine, Target
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.partition import Constraints, evaluate, make_problem, solve_problem
from nnapi_prof.partition.compiling import CompileTimes, solve_within
from nnapi_prof.partition.problem import Placement, Problem
from tests.partition.cases import NPU, SETTINGS, Table, cases, chain
from tests.partition.pairs import all_ideals


def every_plan(problem: Problem) -> list[tuple[Placement, ...]]:
    """All chains of ideals with all targets for each step."""
    ideals = all_ideals(problem)
    plans: dict[int, list[tuple[Placement, ...]]] = {0: [()]}
    for small, large in itertools.combinations(ideals, 2):
        if small & ~large:
            continue
        units = tuple(u for u in range(problem.n) if large >> u & 1 and not small >> u & 1)
        for k in range(len(problem.targets)):
            if math.isfinite(problem.segment_ns(units, k)):
                more = [(*plan, (units, k)) for plan in plans.get(small, [])]
                plans.setdefault(large, []).extend(more)
    return plans.get(ideals[-1], [])


def regions(problem: Problem, plan: tuple[Placement, ...]) -> int:
    return sum(problem.targets[k].engine is Engine.NNAPI for _, k in plan)


def times_of(problem: Problem, data: st.DataObject) -> CompileTimes:
    accelerated = np.array([target.engine is Engine.NNAPI for target in problem.targets])
    parts = st.integers(0, 30).map(float)
    fixed = np.array([data.draw(parts) for _ in problem.targets]) * accelerated
    shape = (problem.n, len(problem.targets))
    unit = np.array([data.draw(parts) for _ in range(math.prod(shape))]).reshape(shape)
    whole = {
        (units, k): data.draw(parts)
        for units, k in problem.region_ns
        if problem.targets[k].engine is Engine.NNAPI
    }
    return CompileTimes(fixed, unit * accelerated, whole)


@SETTINGS
@given(cases(max_units=4), st.data())
def test_within_the_limit_and_as_near_to_the_optimum_as_is_said(
    case: tuple[UnitGraph, Table], data: st.DataObject
) -> None:
    problem = make_problem(*case)
    times = times_of(problem, data)
    limit = float(data.draw(st.integers(0, 100)))
    most = data.draw(st.sampled_from([None, 0, 1, 2]))
    latency = {
        plan: sum(problem.segment_ns(units, k) for units, k in plan)
        for plan in every_plan(problem)
        if times.of(plan) <= limit and (most is None or regions(problem, plan) <= most)
    }
    found = solve_within(problem, times, limit, tolerance=0.0, max_regions=most)
    if not latency:
        assert found is None
        return
    least = min(latency.values())
    assert found is not None and found.compile_ns <= limit * (1 + 1e-9)
    assert times.of(found.solution.placements) == found.compile_ns
    assert most is None or regions(problem, found.solution.placements) <= most
    assert found.bound_ns <= least * (1 + 1e-9) <= found.solution.ns * (1 + 2e-9)
    assert found.solution.exact  # so few units have few ideals
    assert found.solution.ns == pytest.approx(least, rel=1e-6)


def problem_of(cpu: float, npu: float) -> tuple[Problem, CompileTimes]:
    graph = chain(6)
    unit: dict[tuple[int, Target], float] = {(u, CPU): cpu for u in range(6)}
    unit |= {(u, NPU): npu for u in range(6)}
    costs = Table((CPU, NPU), unit, {CPU: 0.0, NPU: 1e6}, {CPU: (0.0, 0.0), NPU: (0.0, 0.0)})
    problem = make_problem(graph, costs)
    return problem, CompileTimes(np.array([0.0, 1e7]), np.array([[0.0, 1e7]] * 6))


def test_the_plan_keeps_to_the_limit_and_says_what_is_proven() -> None:
    problem, times = problem_of(3e6, 1e6)
    free = solve_problem(problem, True)
    assert [s.target for s in free.segments] == [NPU]  # 70 ms to compile

    def plan(limit_ms: float) -> tuple[float, str]:
        wanted = Constraints(max_compile_ns=limit_ms * 1e6)
        found = solve_problem(problem, True, constraints=wanted, compiling=times)
        assert evaluate(problem, found.segments) == pytest.approx(found.predicted_ns)
        return found.predicted_ns / 1e6, found.notes[0]

    assert (
        plan(70)[0] == 7 and "70.0 ms together, of 70.0 ms allowed (0 of 1 measured)" in plan(70)[1]
    )
    ns, note = plan(40)  # three units in one region: 10 + 3 x 10 ms
    assert ns == 1 + 3 + 3 * 3 and "of 40.0 ms allowed" in note
    assert "optimal" in note
    assert plan(0)[0] == 18


def test_a_limit_that_a_solver_cannot_keep_is_refused() -> None:
    problem, times = problem_of(3e6, 1e6)
    limited = Constraints(max_compile_ns=1.0)
    with pytest.raises(PartitionError, match="needs costs that tell compile times"):
        solve_problem(problem, True, constraints=limited)
    with pytest.raises(PartitionError, match="has no compile times in it"):
        solve_problem(problem, True, constraints=limited, solver="milp", compiling=times)
