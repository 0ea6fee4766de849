"""Regions: convex sets, measured ones as arrays, and what a fitted cost model says of each."""

import dataclasses
import itertools
import math
import random
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
from nnapi_prof.partition.arrays import Regions
from nnapi_prof.partition.blocks import convex_sets, members
from tests.partition.cases import problem_of, solve
from tests.partition.judge import ideals_of
from tests.partition.problems import draws
from tests.reports.sample import NPU, TARGETS, cnn, measure

PROBLEMS = [problem for _, problem in draws(60, 9) if problem.region_ns]


def units_of(regions: Regions) -> list[frozenset[int]]:
    ends = itertools.pairwise(regions.unit_at)
    return [frozenset(regions.units[begin:end].tolist()) for begin, end in ends]


assert sum(len(problem.region_ns) > 1 for problem in PROBLEMS) > 15


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_arrays_say_what_the_problem_says(problem):
    regions = problem.regions
    places = zip(units_of(regions), regions.target.tolist(), strict=True)
    assert list(places) == [*problem.region_ns]
    assert regions.ns.tolist() == [*problem.region_ns.values()]
    assert np.all(np.diff(regions.region) >= 0)
    for (units, k), parts_ns in problem.region_parts_ns.items():
        assert parts_ns == pytest.approx(problem.additive_ns(units, k), rel=1e-12)
    free = replace(problem, unit_ns=np.zeros_like(problem.unit_ns))
    borders = [free.additive_ns(*region) for region in problem.region_ns]
    assert regions.border_ns == pytest.approx(borders)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_subsets_of_regions_and_those_that_hold_one_unit_and_not_another(problem):
    regions, chance = problem.regions, random.Random(problem.n)
    chosen = chance.sample(range(regions.count), chance.randint(0, regions.count))
    subset = regions.subset(np.array(chosen, dtype=np.int64))
    assert units_of(subset) == [units_of(regions)[g] for g in chosen]
    for name in ("target", "ns", "border_ns", "parts_ns"):
        assert getattr(subset, name).tolist() == [getattr(regions, name)[g] for g in chosen]
    pairs = [chance.choices(range(-1, problem.n), k=2) for _ in range(18)]
    inside, outside = (np.array(ends, dtype=np.int64) for ends in zip(*pairs, strict=True))
    held = np.array(regions.holding(inside, outside)).T.tolist()
    assert sorted(held) == [
        [pair, region]
        for pair, (unit, other) in enumerate(pairs)
        for region, units in enumerate(units_of(regions))
        if unit in units and other not in units
    ]


def test_sets_without_a_way_out_and_back_are_differences_of_ideals():
    for _, problem in draws(120, 6, regions=False):
        pairs = itertools.combinations(ideals_of(problem).tolist(), 2)
        expected = {members(large & ~small) for small, large in pairs if not small & ~large}
        assert set(map(members, convex_sets(problem.predecessors, 1000))) == expected
    assert convex_sets([[] for _ in range(12)], 1000) is None, "too many are not counted"
    assert convex_sets([[] for _ in range(3)], 1000) == set(range(1, 8))


# ---- as the fitted cost model has them -----------------------------------------------------------

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


def test_every_convex_region_costs_the_same(costs):
    problem = problem_of(GRAPH, costs)
    assert problem.targets[0] == CPU
    check_regions(costs, map(members, convex_sets(problem.predecessors, 10_000)))


def test_plans_carry_the_models_marks_and_survive_json(costs):
    plan, problem = solve(GRAPH, costs), problem_of(GRAPH, costs)
    assert plan.simulated
    for segment in plan.segments:
        assert costs.region_cost(segment.units, segment.target).measured == segment.measured
        assert 4 not in segment.units or segment.target not in NPU
    for each_plan in (plan, *baselines(problem)):
        again = Plan.from_json(each_plan.to_json())
        assert again == each_plan
        assert evaluate(problem, again.segments) == each_plan.predicted_ns


def test_what_nobody_runs_goes_to_the_host_alone():
    graph, rows = cnn(8), []
    for row in measure(graph, ()):
        lost = row.signature == graph.units[4].signature
        if row.n_units == 1:
            rows.append(replace(row, status=Status.REFUSED, samples_ns=()) if lost else row)
    costs = fit(graph, rows)
    for plan in (solve(graph, costs), *baselines(problem_of(graph, costs))):
        (host,) = [s for s in plan.segments if s.target == HOST]
        assert host.units == (4,) and host.estimated
    assert set(costs.targets) == {*TARGETS, HOST}


def test_estimates_fill_what_was_not_measured():
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


def test_an_objective_changes_units_invocations_and_measured_regions(costs):
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
        assert after.unit_cost(unit, target) == (2 * ns + 1) * factor
    assert after.price(npu) == Price(*(each / 2 for each in dataclasses.astuple(before.price(npu))))
    for (units, target), ns in before.region_ns.items():
        own = [before.unit_cost(unit, target) for unit in units]
        if target == npu and None not in own:
            expected = 0.5 * (ns + sum(own) + len(own))
            assert after.region_ns[units, target] == pytest.approx(expected)
        elif target == CPU and 3 in units:
            assert math.isinf(after.region_ns[units, target])
    assert after.noise is None and after.slack is None
    assert after.compile_times() is not None, "compile times never change"


def test_a_table_says_what_does_not_fit():
    graph = cnn(8)
    table = fit(graph, measure(graph, ())).table
    with pytest.raises(CostError, match="overhead_ns has shape"):
        replace(table, overhead_ns=np.zeros(1))
    with pytest.raises(PartitionError, match="costs are of 8 units"):
        make_problem(cnn(9), table)
    assert table.on([CPU]).targets == (CPU,) and table.on([CPU]).unit_ns.shape == (8, 1)
