"""Constraints on plans, and the baselines that keep to rules of others."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import CPU, Engine, Preference, Target
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.partition import Constraints, baselines, is_optimum
from tests.partition.cases import NPU, NPU_LOW, SETTINGS, Table, cases, chain, problem_of, solve
from tests.partition.milp import solve_milp
from tests.partition.pairs import optimum


def costs_of(
    graph: UnitGraph, cpu: float, npu: list[float | None], targets: tuple[Target, ...] = (CPU, NPU)
) -> Table:
    n = len(graph.units)
    unit = {(u, CPU): cpu for u in range(n)}
    for target in targets[1:]:
        unit |= {(u, target): ns for u, ns in enumerate(npu) if ns is not None}
    return Table(targets, unit, dict.fromkeys(targets, 1.0), dict.fromkeys(targets, (0.0, 0.0)))


def test_a_plan_that_was_constrained_is_not_called_the_optimum_of_all() -> None:
    graph = chain(4)
    costs = costs_of(graph, 100.0, [1.0] * 4, (CPU, NPU, NPU_LOW))
    assert is_optimum(solve(graph, costs))
    for constraints, text in (
        (Constraints(pinned={1: CPU}), "1 unit pinned"),
        (Constraints(forbidden={u: frozenset({NPU}) for u in (0, 1)}), "2 units kept off targets"),
        (Constraints(preference=Preference.LOW_POWER), "preference low_power only"),
        (Constraints(max_regions=0), "at most 0 on accelerators"),
        (Constraints(pinned={1: CPU}, max_regions=1), "1 unit pinned, at most 1 on accelerators"),
    ):
        plan = solve(graph, costs, constraints=constraints)
        assert not is_optimum(plan)
        assert f"within the constraints ({text})" in plan.notes[0]


def test_forbidden_pinned_and_one_preference() -> None:
    graph = chain(4)
    costs = costs_of(graph, 100.0, [1.0] * 4, (CPU, NPU, NPU_LOW))
    free = solve(graph, costs)
    assert [s.target.engine for s in free.segments] == [Engine.NNAPI]
    low = solve(graph, costs, constraints=Constraints(preference=Preference.LOW_POWER))
    assert [s.target for s in low.segments] == [NPU_LOW]
    split = solve(graph, costs, constraints=Constraints(pinned={1: CPU}))
    assert [s.units for s in split.segments] == [(0,), (1,), (2, 3)]
    assert split.segments[1].cause == "stays on the CPU: kept off sim-npu: pinned to cpu"
    off = solve(graph, costs, constraints=Constraints(forbidden={1: frozenset({CPU})}))
    assert [s.target.engine for s in off.segments] == [Engine.NNAPI]
    one = solve(graph, costs, constraints=Constraints(pinned={1: CPU}, max_regions=1))
    assert sum(s.target.engine is Engine.NNAPI for s in one.segments) == 1


@pytest.mark.parametrize(
    ("constraints", "words"),
    [
        (Constraints(forbidden={1: frozenset({CPU, NPU})}), r"op1 .*nowhere to run.*forbidden"),
        (Constraints(pinned={9: CPU}), "names unit 9; there are 3"),
        (Constraints(pinned={0: NPU_LOW}), "no costs for target"),
        (Constraints(max_regions=0, pinned={0: NPU}), "at most 0 on accelerators"),
    ],
)
def test_what_cannot_be_kept_is_said(constraints: Constraints, words: str) -> None:
    graph = chain(3)
    with pytest.raises(PartitionError, match=words):
        solve(graph, costs_of(graph, 10.0, [1.0] * 3), constraints=constraints)


@settings(SETTINGS, max_examples=60)
@given(cases(max_units=5), st.integers(0, 2))
def test_milp_keeps_to_the_number_of_regions(case: tuple[UnitGraph, Table], most: int) -> None:
    problem = problem_of(*case)
    free = {k for k, t in enumerate(problem.targets) if t.engine is not Engine.NNAPI}
    least = optimum(problem, most, frozenset(free))
    if math.isinf(least):
        with pytest.raises(PartitionError, match="has no solution"):
            solve_milp(problem, max_regions=most)
        return
    judged = solve_milp(problem, max_regions=most)
    assert judged.ns == pytest.approx(least, rel=1e-6, abs=1e-3)
    on_accelerators = [k for _, k in judged.placements if k not in free]
    assert len(on_accelerators) <= most


def test_baselines_of_tflite_and_of_a_list() -> None:
    graph = chain(11)
    npu: list[float | None] = [None if u % 2 else 1.0 for u in range(11)]
    npu[1] = npu[3] = 1.0  # the first region has five units
    costs = costs_of(graph, 3.0, npu)
    result = {plan.name: plan for plan in baselines(problem_of(graph, costs), listed=[6])}
    three = result[f"largest-3 {NPU}"]
    on_npu = [s.units for s in three.segments if s.target == NPU]
    assert on_npu == [(0, 1, 2, 3, 4), (6,), (8,)]
    listed = result[f"listed {NPU}"]
    assert [s.units for s in listed.segments if s.target == NPU] == [(0, 1, 2, 3, 4)]
    assert result[f"best-single {CPU}"].predicted_ns == result["all-cpu"].predicted_ns
