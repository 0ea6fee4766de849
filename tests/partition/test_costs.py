"""The partitioner and the fitted cost model agree on what every region costs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from nnapi_prof.costs.measurement import Status
from nnapi_prof.costs.region import fit
from nnapi_prof.graph.plan import CPU, HOST, Plan
from nnapi_prof.partition import baselines, evaluate, make_problem, solve
from nnapi_prof.partition.ideals import members
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
                wanted = math.inf if told is None else told.ns
                assert problem.segment_ns(units, k) == pytest.approx(wanted, rel=1e-6)


def test_plans_carry_the_models_marks_and_survive_json() -> None:
    graph = cnn(12, (4,))
    costs = fit(graph, measure(graph, (4,)))
    plan = solve(graph, costs)
    assert plan.simulated
    for segment in plan.segments:
        told = costs.region_cost(segment.units, segment.target)
        assert told is not None and told.measured == segment.measured
        assert 4 not in segment.units or segment.target not in NPU
    for made in (plan, *baselines(graph, costs)):
        again = Plan.from_json(made.to_json())
        assert again == made
        assert evaluate(make_problem(graph, costs), again.segments) == made.predicted_ns


def test_what_nobody_runs_goes_to_the_host_alone() -> None:
    graph = cnn(8)
    rows = [r for r in measure(graph, ()) if r.n_units == 1]
    lost = graph.units[4].signature
    rows = [
        replace(r, status=Status.REFUSED, samples_ns=()) if r.signature == lost else r for r in rows
    ]
    costs = fit(graph, rows)
    for plan in (solve(graph, costs), *baselines(graph, costs)):
        (host,) = [s for s in plan.segments if s.target == HOST]
        assert host.units == (4,) and host.estimated
    assert set(costs.targets) == {*TARGETS, HOST}
