"""The search against independent judges: all pairs of ideals, a brute force, cuts, a MILP."""

from __future__ import annotations

import math
import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnapi_prof.graph.plan import CPU
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.partition import make_problem, solve_problem
from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.bounds import lower_bound
from nnapi_prof.partition.cut import minimum_cut
from nnapi_prof.partition.limits import Limits
from nnapi_prof.partition.problem import GRAPH_INPUT, Problem
from nnapi_prof.partition.reduce import reduce_problem
from nnapi_prof.partition.search import search
from nnapi_prof.partition.solver import solve_placements
from tests.partition.cases import NPU, SETTINGS, Table, build_graph, cases, chain, graphs
from tests.partition.pairs import optimum

EXAMPLES = int(os.environ.get("NNAPI_PROF_EXAMPLES", "250"))
"""`make judge` sets 10,000."""

MANY = settings(SETTINGS, max_examples=EXAMPLES, derandomize=EXAMPLES <= 250, database=None)


def check_order(problem: Problem, placements: tuple[tuple[tuple[int, ...], int], ...]) -> None:
    done: set[int] = set()
    for units, _ in placements:
        assert not done & set(units)
        for u in units:
            assert set(problem.predecessors[u]) <= done | set(units)
        done |= set(units)
    assert done == set(range(problem.n))


@MANY
@given(cases(max_units=12))
def test_finds_the_optimum_of_all_plans(case: tuple[UnitGraph, Table]) -> None:
    problem = make_problem(*case)
    found = search(problem)
    check_order(problem, found.placements)
    assert found.exact
    least = total_ns(problem, found.placements)
    assert least == pytest.approx(optimum(problem), rel=1e-9)
    assert found.bound_ns == pytest.approx(least, rel=1e-9)


@MANY
@given(cases(max_units=8), st.integers(0, 3))
def test_keeps_to_a_number_of_regions(case: tuple[UnitGraph, Table], most: int) -> None:
    problem = make_problem(*case)
    counted = frozenset(range(1, len(problem.targets)))
    found = search(problem, Limits(max_segments=most, counted=counted))
    least = optimum(problem, most)
    if math.isinf(least):
        assert not found.placements
        return
    assert sum(k in counted for _, k in found.placements) <= most
    assert total_ns(problem, found.placements) == pytest.approx(least, rel=1e-9)


@SETTINGS
@given(cases(max_units=10), st.sampled_from([1, 2, 5, 20]))
def test_a_narrow_search_proves_how_good_it_is(case: tuple[UnitGraph, Table], room: int) -> None:
    problem = make_problem(*case)
    least = optimum(problem)
    found = search(problem, Limits(max_labels=room))
    assert found.bound_ns <= least * (1 + 1e-9)
    if found.placements:
        check_order(problem, found.placements)
        assert total_ns(problem, found.placements) >= least * (1 - 1e-9)
    if found.exact:
        assert total_ns(problem, found.placements) == pytest.approx(least, rel=1e-9)


@SETTINGS
@given(cases(max_units=10), st.integers(0, 300))
def test_giving_up_proves_a_bound(case: tuple[UnitGraph, Table], work: int) -> None:
    problem = make_problem(*case)
    found = search(problem, Limits(max_work=work))
    assert found.bound_ns <= optimum(problem) * (1 + 1e-9)
    assert found.exact == bool(found.placements)


@SETTINGS
@given(cases(max_units=8))
def test_an_upper_bound_loses_nothing_below_it(case: tuple[UnitGraph, Table]) -> None:
    problem = make_problem(*case)
    least = optimum(problem)
    found = search(problem, Limits(upper_bound=least))
    assert total_ns(problem, found.placements) == pytest.approx(least, rel=1e-9)
    below = search(problem, Limits(upper_bound=least * 0.99 - 1))
    assert not below.placements and below.exact


@SETTINGS
@given(cases(max_units=9))
def test_joining_units_first_changes_nothing(case: tuple[UnitGraph, Table]) -> None:
    problem = make_problem(*case)
    reduced = reduce_problem(problem)
    assert sorted(u for group in reduced.groups for u in group) == list(range(problem.n))
    found = search(reduced.problem)
    placements = tuple((reduced.expand(units), k) for units, k in found.placements)
    check_order(problem, placements)
    assert total_ns(problem, placements) == pytest.approx(optimum(problem), rel=1e-9)


def test_constants_and_dead_ends_join_their_neighbours() -> None:
    # u0, u1: free constants read by u2; u3 reads u2, is free and makes nothing; u4 reads u2.
    graph = build_graph([[], [], [0, 1], [2], [2]], [4] * 5)
    unit = {(u, t): 0.0 if u in (0, 1, 3) else 10.0 for u in range(5) for t in (CPU, NPU)}
    costs = Table(
        (CPU, NPU),
        unit | {(2, NPU): 100.0},
        {CPU: 0.0, NPU: 5.0},
        {CPU: (0.0, 0.0), NPU: (1.0, 1.0)},
    )
    problem = make_problem(graph, costs)
    values = tuple(
        replace(v, n_bytes=0, is_output=False) if v.producer == 3 else v
        for v in problem.values
        if v.producer != GRAPH_INPUT
    )
    reduced = reduce_problem(replace(problem, values=values))
    assert reduced.groups == ((0, 1, 2, 3), (4,))
    told_apart = {(frozenset({0, 2}), 1): 30.0}
    kept = reduce_problem(replace(problem, values=values, region_ns=told_apart))
    assert set(kept.groups) == {(0, 2), (1,), (3,), (4,)}


@st.composite
def additive(draw: st.DrawFn) -> tuple[UnitGraph, Table]:
    """CPU and one accelerator, nothing per segment, a chain: values that leave do not come back."""
    graph = chain(draw(st.integers(1, 10)))
    cost = st.integers(0, 60).map(float)
    n = len(graph.units)
    unit = {(u, CPU): draw(cost) for u in range(n)}
    unit |= {(u, NPU): draw(cost) for u in range(n) if draw(st.integers(0, 3))}
    rate = draw(st.sampled_from([0.25, 0.5, 1.0]))
    return graph, Table(
        (CPU, NPU), unit, {CPU: 0.0, NPU: 0.0}, {CPU: (0.0, 0.0), NPU: (rate, rate)}
    )


@SETTINGS
@given(additive())
def test_a_minimum_cut_agrees_where_costs_are_additive(case: tuple[UnitGraph, Table]) -> None:
    problem = make_problem(*case)
    cut = minimum_cut(problem)
    assert cut is not None
    assert total_ns(problem, search(problem).placements) == pytest.approx(
        cut.ns, rel=1e-5, abs=1e-5
    )


@SETTINGS
@given(cases(max_units=9))
def test_cuts_and_shares_bound_every_plan(case: tuple[UnitGraph, Table]) -> None:
    problem = make_problem(*case)
    least = optimum(problem)
    assert lower_bound(problem) <= least * (1 + 1e-9)
    cut = minimum_cut(problem)
    assert cut is None or cut.ns <= least * (1 + 1e-9)


@SETTINGS
@given(graphs(max_units=9), st.integers(0, 1 << 30))
def test_random_latencies_of_many_targets(graph: UnitGraph, seed: int) -> None:
    """Costs without ties: other paths through the search than small whole numbers take."""
    rng = np.random.default_rng(seed)
    n, targets = len(graph.units), (CPU, NPU)
    costs = Table(
        targets,
        {(u, t): float(rng.uniform(1, 100)) for u in range(n) for t in targets},
        {CPU: 0.1, NPU: float(rng.uniform(0, 80))},
        {CPU: (0.0, 0.0), NPU: (float(rng.uniform(0, 1)), float(rng.uniform(0, 1)))},
        {
            (frozenset(rng.permutation(n)[: rng.integers(1, n + 1)].tolist()), NPU): float(
                rng.uniform(1, 300)
            )
            for _ in range(3)
        },
    )
    problem = make_problem(graph, costs)
    found = solve_placements(problem, tolerance=0)
    assert found is not None and found.exact
    assert found.ns == pytest.approx(optimum(problem), rel=1e-9)


def test_too_wide_a_graph_says_how_far_off_the_plan_can_be() -> None:
    rng = np.random.default_rng(3)
    branches, depth = 5, 3
    reads: list[list[int]] = [[]]
    ends = []
    for _ in range(branches):
        for d in range(depth):
            reads.append([0 if d == 0 else len(reads) - 1])
        ends.append(len(reads) - 1)
    reads.append(ends)
    graph = build_graph(reads, [4] * len(reads))
    unit = {(u, t): float(rng.uniform(1e4, 1e6)) for u in range(len(reads)) for t in (CPU, NPU)}
    costs = Table(
        (CPU, NPU), unit, {CPU: 0.0, NPU: 2e5}, {CPU: (0.0, 0.0), NPU: (1.0, 1.0)}
    )  # fmt: skip
    problem = make_problem(graph, costs)
    plan = solve_problem(problem, True, max_work=500)
    assert "too wide to search whole" in plan.notes[0] and "simulated" in plan.notes[0]
    whole = solve_placements(problem, tolerance=0, max_work=math.inf)
    assert whole is not None and whole.exact
    narrow = solve_placements(problem, tolerance=0, max_work=500)
    assert narrow is not None and not narrow.exact
    assert narrow.bound_ns <= whole.ns <= narrow.ns <= narrow.bound_ns * (1 + narrow.gap) * 1.000001
