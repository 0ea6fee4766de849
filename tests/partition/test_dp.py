"""Plans against a brute force by the definitions, a MILP and every baseline."""

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import CPU, HOST, Plan, Preference, Target
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.partition import baselines, evaluate
from tests.partition.cases import (
    NPU,
    SETTINGS,
    Table,
    build_graph,
    cases,
    chain,
    diamond,
    near_chain,
    problem_of,
    solve,
)
from tests.partition.milp import solve_milp


def check_valid(graph: UnitGraph, plan: Plan) -> None:
    """Every unit once, segments convex, in an order that makes values before they are read."""
    done: set[int] = set()
    for segment in plan.segments:
        assert list(segment.units) == sorted(set(segment.units))
        assert not done & set(segment.units)
        for u in segment.units:
            assert set(graph.predecessors(u)) <= done | set(segment.units)
        done |= set(segment.units)
        assert segment.cause
    assert done == set(range(len(graph.units)))


@settings(SETTINGS, max_examples=25)
@given(cases(max_units=4))
def test_milp_agrees(case: tuple[UnitGraph, Table]) -> None:
    problem = problem_of(*case)
    plan = solve(*case, tolerance=0)
    for upper_ns in (math.inf, plan.predicted_ns):
        judged = solve_milp(problem, upper_ns=upper_ns)
        assert judged.proven and plan.predicted_ns == pytest.approx(judged.ns, rel=1e-6)


def table(graph: UnitGraph, cpu: list[float], npu: list[float | None], **rest: object) -> Table:
    unit = {(u, CPU): ns for u, ns in enumerate(cpu)}
    unit |= {(u, NPU): ns for u, ns in enumerate(npu) if ns is not None}
    costs = Table((CPU, NPU), unit, {CPU: 0.0, NPU: 100.0}, {CPU: (0.0, 0.0), NPU: (1.0, 1.0)})
    return replace(costs, **rest)  # type: ignore[arg-type]


def test_chain_goes_to_the_accelerator_once_it_pays() -> None:
    graph = chain(4)
    # In and out of the accelerator: 100 + 32 (x, 8 floats) + 40 = 172 ns beside the work.
    pays = solve(graph, table(graph, [50] * 4, [5] * 4))
    assert [(s.units, s.target) for s in pays.segments] == [((0, 1, 2, 3), NPU)]
    assert pays.predicted_ns == 100 + 32 + 40 + 20
    does_not = solve(graph, table(graph, [40] * 4, [5] * 4))
    assert [(s.units, s.target) for s in does_not.segments] == [((0, 1, 2, 3), CPU)]


def test_each_value_crosses_once() -> None:
    graph = build_graph([[], [0], [0], [1, 2]], [10, 10, 10, 10])
    costs = table(graph, [1e4, 0, 0, 0], [0, None, None, None])
    plan = solve(graph, costs)
    assert plan.segments[0].target == NPU  # u0's value has two readers and leaves once: 40 bytes
    assert plan.segments[0].predicted_ns == 100 + 32 + 40


def test_branches_of_a_diamond_run_in_one_segment_each() -> None:
    graph = diamond()
    costs = table(graph, [10, 1e4, 10, 10], [None, 5, None, None])
    plan = solve(graph, costs)
    assert [s.target for s in plan.segments] == [CPU, NPU, CPU]
    assert plan.segments[1].units == (1,)  # u2 joins either side, so the CPU has two stretches


def test_measured_region_replaces_the_sum() -> None:
    graph = chain(3)
    base = table(graph, [100] * 3, [5] * 3)
    whole = frozenset(range(3))
    slow = solve(graph, replace(base, whole={(whole, NPU): 1e6}))
    assert (frozenset(slow.segments[0].units), slow.segments[0].target) != (whole, NPU)
    fast = solve(graph, replace(base, whole={(whole, NPU): 7.0}))
    assert fast.segments[0].measured and fast.predicted_ns == 7.0
    failed = solve(graph, replace(base, whole={(whole, NPU): float("inf")}))
    assert failed.predicted_ns < float("inf") and len(failed.segments) > 1


def test_measured_region_may_hold_units_that_cannot_run_alone() -> None:
    graph = chain(3)
    costs = table(graph, [5, 5, 5], [1, None, 1], whole={(frozenset({0, 1}), NPU): 4.0})
    costs = replace(costs, unit={k: v for k, v in costs.unit.items() if k != (1, CPU)})
    plan = solve(graph, costs)
    assert [(s.units, s.target, s.measured) for s in plan.segments] == [
        ((0, 1), NPU, True),
        ((2,), CPU, False),
    ]
    assert baselines(problem_of(graph, costs)) == ()


def test_host_units_stand_alone() -> None:
    graph = chain(3)
    unit = {(0, CPU): 1.0, (2, CPU): 1.0, (1, HOST): 5.0}
    costs = Table(
        (CPU, HOST), unit, {CPU: 1.0, HOST: 0.0}, {CPU: (0, 0), HOST: (0, 0)},
        guessed=frozenset({(1, HOST)}),
    )  # fmt: skip
    for plan in (solve(graph, costs), *baselines(problem_of(graph, costs))):
        assert [(s.units, s.target) for s in plan.segments] == [
            ((0,), CPU),
            ((1,), HOST),
            ((2,), CPU),
        ]
        assert [s.estimated for s in plan.segments] == [False, True, False]


def test_unit_without_target_is_an_error_that_names_it() -> None:
    graph = chain(2)
    costs = table(graph, [1, 1], [1, None], refusals={(1, CPU): "no kernel for FOO"})
    costs = replace(costs, unit={k: v for k, v in costs.unit.items() if k != (1, CPU)})
    with pytest.raises(PartitionError, match=r"op1 \(unit 1\).*no kernel for FOO"):
        solve(graph, costs)


@pytest.mark.parametrize("bad", [-1.0, float("nan")])
def test_costs_that_are_no_costs_are_refused(bad: float) -> None:
    graph = chain(2)
    with pytest.raises(PartitionError, match=r"op1 .* on cpu costs"):
        solve(graph, table(graph, [1, bad], [1, 1]))


def test_evaluate_refuses_what_is_no_plan() -> None:
    graph = chain(3)
    costs = table(graph, [1] * 3, [1] * 3)
    problem, (segment,) = problem_of(graph, costs), solve(graph, costs).segments
    part = replace(segment, units=(0, 1))
    with pytest.raises(PartitionError, match="in no segment"):
        evaluate(problem, [part])
    with pytest.raises(PartitionError, match="repeats a unit"):
        evaluate(problem, [part, part])
    with pytest.raises(PartitionError, match="runs before"):
        evaluate(problem, [replace(segment, units=(1, 2)), replace(segment, units=(0,))])
    with pytest.raises(PartitionError, match="no costs for target"):
        evaluate(problem, [replace(segment, target=HOST)])


def random_table(graph: UnitGraph, n_targets: int, seed: int) -> Table:
    """CPU and ``n_targets`` accelerators with costs like a phone's and one refusal in ten."""
    rng = np.random.default_rng(seed)
    named = [Target.nnapi(f"acc{i // 3}", list(Preference)[i % 3]) for i in range(n_targets)]
    unit = {}
    for u in range(len(graph.units)):
        unit[u, CPU] = float(rng.uniform(2e4, 1e6))
        for target in named:
            if rng.random() > 0.1:
                unit[u, target] = float(rng.uniform(1e4, 3e5))
    return Table(
        (CPU, *named),
        unit,
        {CPU: 1e3} | dict.fromkeys(named, 200000.0),
        {CPU: (0.0, 0.0)} | dict.fromkeys(named, (0.3, 0.3)),
    )


@pytest.mark.parametrize(
    ("units", "targets", "seconds"), [(65, 12, 2.0), (300, 3, 6.0)], ids=["mobilenet", "long"]
)
def test_near_chains_are_exact_and_quick(units: int, targets: int, seconds: float) -> None:
    """The bars are 10 times what it takes on an idle core, for shared machines."""
    graph = near_chain(units)
    costs = random_table(graph, targets, seed=units)
    start = time.perf_counter()
    plan = solve(graph, costs)
    assert time.perf_counter() - start < seconds
    check_valid(graph, plan)
    assert "optimal over all plans" in plan.notes[0]
    assert min(p.predicted_ns for p in baselines(problem_of(graph, costs))) > plan.predicted_ns


def test_the_whole_model_on_a_target_that_was_left_at_a_trial_is_a_baseline() -> None:
    graph = chain(4)
    auto = Target.nnapi("auto", Preference.FAST_SINGLE_ANSWER)
    whole = frozenset(range(4))
    costs = Table(
        (CPU, auto),
        {(u, CPU): 1e6 for u in range(4)},
        {CPU: 0.0, auto: 1e5},
        {CPU: (0.0, 0.0), auto: (0.0, 0.0)},
        {(whole, auto): 5e6},
    )
    result = {plan.name: plan for plan in baselines(problem_of(graph, costs))}
    plan = result[f"largest-supported {auto}"]
    assert [(s.units, s.target, s.measured) for s in plan.segments] == [((0, 1, 2, 3), auto, True)]
    assert plan.predicted_ns == 5e6
    slow = replace(costs, whole={(whole, auto): math.inf})
    assert f"largest-supported {auto}" not in {
        plan.name for plan in baselines(problem_of(graph, slow))
    }
