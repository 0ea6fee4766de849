"""The partitioner and the fitted cost model agree on what every region costs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from nnapi_prof.api.objective import ObjectiveCosts
from nnapi_prof.costs.estimate.costs import Estimate, EstimatedCosts, fill
from nnapi_prof.costs.measurement import Status
from nnapi_prof.costs.model.fit import fit
from nnapi_prof.costs.model.region import Price
from nnapi_prof.costs.model.views import OptimisticCosts
from nnapi_prof.graph.plan import CPU, HOST, Plan
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.partition import CostProvider, baselines, evaluate, make_problem
from nnapi_prof.partition.blocks import members
from nnapi_prof.partition.problem import arrays_by_asking, arrays_of
from tests.partition.cases import solve
from tests.partition.pairs import all_ideals
from tests.reports.sample import NPU, TARGETS, cnn, measure


def test_every_convex_region_costs_the_same() -> None:
    graph = cnn(12, (4,))
    costs = fit(graph, measure(graph, (4,)))
    problem = make_problem(graph, costs)
    ideals = all_ideals(problem)
    assert problem.targets[0] == CPU
    for small in ideals:
        for large in ideals:
            if small == large or small & ~large:
                continue
            units = members(large & ~small)
            for k, target in enumerate(problem.targets):
                told = costs.region_cost(units, target)
                expected = math.inf if told is None else told.ns
                assert problem.segment_ns(units, k) == pytest.approx(expected, rel=1e-6)


def test_plans_carry_the_models_marks_and_survive_json() -> None:
    graph = cnn(12, (4,))
    costs = fit(graph, measure(graph, (4,)))
    plan = solve(graph, costs)
    assert plan.simulated
    for segment in plan.segments:
        told = costs.region_cost(segment.units, segment.target)
        assert told is not None and told.measured == segment.measured
        assert 4 not in segment.units or segment.target not in NPU
    for each_plan in (plan, *baselines(make_problem(graph, costs))):
        again = Plan.from_json(each_plan.to_json())
        assert again == each_plan
        assert evaluate(make_problem(graph, costs), again.segments) == each_plan.predicted_ns


def test_what_nobody_runs_goes_to_the_host_alone() -> None:
    graph = cnn(8)
    rows = [r for r in measure(graph, ()) if r.n_units == 1]
    lost = graph.units[4].signature
    rows = [
        replace(r, status=Status.REFUSED, samples_ns=()) if r.signature == lost else r for r in rows
    ]
    costs = fit(graph, rows)
    for plan in (solve(graph, costs), *baselines(make_problem(graph, costs))):
        (host,) = [s for s in plan.segments if s.target == HOST]
        assert host.units == (4,) and host.estimated
    assert set(costs.targets) == {*TARGETS, HOST}


def check_arrays(graph: UnitGraph, costs: CostProvider) -> None:
    """The arrays of a cost model say what its functions do."""
    told, expected = arrays_of(graph, costs), arrays_by_asking(graph, costs)
    assert told.targets == expected.targets
    for name in ("unit_ns", "overhead_ns", "in_ns_per_byte", "out_ns_per_byte"):
        assert getattr(told, name) == pytest.approx(getattr(expected, name), rel=1e-9), name
    assert told.region_ns == expected.region_ns
    assert (told.estimated == expected.estimated).all()


def test_arrays_are_what_functions_say() -> None:
    graph = cnn(12, (4,))
    rows = measure(graph, (4,))
    costs = fit(graph, rows)
    models: list[CostProvider] = [costs, OptimisticCosts(costs)]
    lost = graph.units[6].signature
    models.append(fit(graph, [r for r in rows if r.signature != lost or r.target not in NPU]))
    models.append(
        ObjectiveCosts(
            costs,
            graph,
            lambda unit, target, ns: None if target == CPU and unit.index == 3 else 2 * ns + 1,
            {"nnapi:*": 0.5},
        )
    )
    for model in models:
        assert hasattr(model, "arrays")
        check_arrays(graph, model)
    assert models[2].partial  # type: ignore[attr-defined]


def test_estimated_arrays_are_what_functions_say() -> None:
    graph = cnn(12, (4,))
    target = NPU[0]
    estimates = {
        (u, t): Estimate(1e5 * (u + 1)) for u in range(len(graph.units)) for t in (CPU, target)
    }
    del estimates[4, target]
    prices = {CPU: Price(), target: Price(2e5, 0.1, 0.2)}
    estimated = EstimatedCosts(graph, prices, estimates, {(4, target): "not there"})
    check_arrays(graph, estimated)
    rows = [r for r in measure(graph, (4,)) if r.target == CPU]
    some = {graph.units[u].signature for u in (0, 1, 2, 3)}
    filled = fill(graph, [r for r in rows if some.issuperset(r.members)], estimated)
    assert target in filled.targets and filled.filled
    check_arrays(graph, filled)
    check_arrays(graph, replace(filled, targets=(CPU,)))
