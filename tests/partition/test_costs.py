"""The partitioner and the fitted cost model agree on what every region costs."""

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from nnapi_prof.costs.estimate.costs import EstimatedCosts, fill
from nnapi_prof.costs.measurement import Status
from nnapi_prof.costs.model import CostModel, TabulatedCosts
from nnapi_prof.costs.model.fit import fit
from nnapi_prof.costs.table import (
    Estimate,
    Price,
    adjusted_table,
    drop_dominated_targets,
    optimistic,
)
from nnapi_prof.errors import CostError, PartitionError
from nnapi_prof.graph.causes import ReasonSource, source_of
from nnapi_prof.graph.plan import CPU, HOST, Plan
from nnapi_prof.partition import baselines, evaluate, make_problem
from nnapi_prof.partition.blocks import convex_sets, members
from tests.partition.cases import problem_of, solve
from tests.reports.sample import NPU, TARGETS, cnn, measure

GRAPH = cnn(12, (4,))


@pytest.fixture(scope="module")
def costs() -> CostModel:
    return fit(GRAPH, measure(GRAPH, (4,)))


def check_regions(costs: TabulatedCosts, regions: Iterable[tuple[int, ...]] = ()) -> None:
    """Regions cost the solver what reports show: those, or units alone, pairs of neighbours and
    everything."""
    problem, n = problem_of(costs.graph, costs), len(costs.graph.units)
    regions = regions or [(u,) for u in range(n)] + [(u, u + 1) for u in range(n - 1)]
    for k, target in enumerate(problem.targets):
        for units in (*regions, tuple(range(n))):
            told = costs.region_cost(units, target)
            expected = math.inf if told is None else told.ns
            assert problem.segment_ns(units, k) == pytest.approx(expected, rel=1e-9)
            assert told is None or told.estimated == problem.is_estimated(units, k)


def test_every_convex_region_costs_the_same(costs: CostModel) -> None:
    problem = problem_of(GRAPH, costs)
    assert problem.targets[0] == CPU
    sets = convex_sets(problem.predecessors, 10_000)
    assert sets is not None
    check_regions(costs, map(members, sets))


def test_plans_carry_the_models_marks_and_survive_json(costs: CostModel) -> None:
    plan, problem = solve(GRAPH, costs), problem_of(GRAPH, costs)
    assert plan.simulated
    for segment in plan.segments:
        told = costs.region_cost(segment.units, segment.target)
        assert told is not None and told.measured == segment.measured
        assert 4 not in segment.units or segment.target not in NPU
    for each_plan in (plan, *baselines(problem)):
        again = Plan.from_json(each_plan.to_json())
        assert again == each_plan
        assert evaluate(problem, again.segments) == each_plan.predicted_ns


def test_what_nobody_runs_goes_to_the_host_alone() -> None:
    graph = cnn(8)
    lost = graph.units[4].signature
    rows = [
        replace(row, status=Status.REFUSED, samples_ns=()) if row.signature == lost else row
        for row in measure(graph, ())
        if row.n_units == 1
    ]
    costs = fit(graph, rows)
    for plan in (solve(graph, costs), *baselines(problem_of(graph, costs))):
        (host,) = [s for s in plan.segments if s.target == HOST]
        assert host.units == (4,) and host.estimated
    assert set(costs.targets) == {*TARGETS, HOST}


def test_estimates_fill_what_was_not_measured() -> None:
    n, target = len(GRAPH.units), NPU[0]
    estimates = {(u, t): Estimate(1e5 * (u + 1)) for u in range(n) for t in (CPU, target)}
    del estimates[4, target]
    prices = {CPU: Price(), target: Price(2e5, 0.1, 0.2)}
    estimated = EstimatedCosts(GRAPH, prices, estimates, {(4, target): "not there"})
    check_regions(estimated)
    table = estimated.table
    assert table.price(target) == prices[target] and table.noise is None
    assert table.unit_cost(4, target) is None and table.refusals == {(4, target): "not there"}
    assert drop_dominated_targets(table) is table and optimistic(table) is table
    rows = [r for r in measure(GRAPH, (4,)) if r.target == CPU]
    some = {GRAPH.units[u].signature for u in (0, 1, 2, 3)}
    costs = fill(GRAPH, [r for r in rows if some.issuperset(r.members)], estimated)
    assert {u for u, t in costs.filled if t == CPU} == set(range(4, n))
    assert not costs.table.is_estimated(0, CPU) and costs.table.is_estimated(0, target)
    assert costs.table.unit_cost(5, CPU) == 6e5 and costs.price(target) == prices[target]
    check_regions(costs)
    check_regions(replace(costs, targets=(CPU,)))


def test_an_objective_changes_units_invocations_and_measured_regions(costs: CostModel) -> None:
    check_regions(costs)
    before, npu = costs.table, NPU[0]
    after = adjusted_table(
        GRAPH,
        before,
        lambda unit, target, ns: None if target == CPU and unit.index == 3 else 2 * ns + 1,
        {"nnapi:*": 0.5},
    )
    assert after.unit_cost(3, CPU) is None
    assert source_of(after.refusals[3, CPU]) is ReasonSource.COST_FUNCTION
    for unit, target, factor in ((2, CPU, 1.0), (2, npu, 0.5)):
        ns = before.unit_cost(unit, target)
        assert ns is not None and after.unit_cost(unit, target) == (2 * ns + 1) * factor
    assert after.price(npu) == Price(*(each / 2 for each in dataclasses.astuple(before.price(npu))))
    for (units, target), ns in before.region_ns.items():
        own = [before.unit_cost(unit, target) for unit in units]
        if target == npu and None not in own:
            expected = 0.5 * (ns + sum(own) + len(own))  # type: ignore[arg-type]
            assert after.region_ns[units, target] == pytest.approx(expected)
        elif target == CPU and 3 in units:
            assert math.isinf(after.region_ns[units, target])
    assert after.noise is None and after.slack is None
    assert after.compile_times() is not None, "compile times never change"


def test_a_table_says_what_does_not_fit() -> None:
    graph = cnn(8)
    table = fit(graph, measure(graph, ())).table
    with pytest.raises(CostError, match="overhead_ns has shape"):
        replace(table, overhead_ns=np.zeros(1))
    with pytest.raises(PartitionError, match="costs are of 8 units"):
        make_problem(cnn(9), table)
    assert table.on([CPU]).targets == (CPU,) and table.on([CPU]).unit_ns.shape == (8, 1)
