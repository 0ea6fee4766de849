"""Bounds of every plan: relaxation, minimum cuts, and stretches between articulation units."""

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from nnapi_prof.graph.plan import CPU
from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.blocks import members
from nnapi_prof.partition.problem import GRAPH_INPUT, Problem, ValueFlow
from nnapi_prof.partition.search import SearchLimits, Watch, articulation
from nnapi_prof.partition.search.anytime import search
from nnapi_prof.partition.search.articulation import Stretches, articulation_units
from nnapi_prof.partition.search.minimum_cut import Network, minimum_cut
from nnapi_prof.partition.search.relaxation import relax
from nnapi_prof.partition.search.tables import free_prices, unit_shares
from nnapi_prof.partition.search.windows import subproblem
from tests.partition.drawing import draw_case
from tests.partition.judge import ideals_of
from tests.partition.networks import problem_on, wide_problem
from tests.partition.precisions import optimum, with_formats
from tests.partition.problems import check_plan, draw_plan, draw_problem, draws, with_regions


@pytest.mark.parametrize("formats", [False, True])
def test_no_plan_costs_less_than_the_bound(formats):
    tight = solved = 0
    for seed, problem in draws(200, 8 if formats else 9, formats=formats):
        relaxation, least = relax(problem), optimum(problem)
        if formats and (relaxation is None or math.isinf(least)):
            continue
        assert relaxation.bound_ns <= least * (1 + 1e-9), seed
        assert relaxation.bound_ns >= unit_shares(problem).sum() * (1 - 1e-6), seed
        assert relaxation.share.sum(axis=1) == pytest.approx(1.0), seed
        solved += 1
        tight += relaxation.bound_ns >= least * (1 - 1e-6)
    assert tight > 0.5 * solved  # else it would be of little use


def test_units_that_read_from_none_have_no_order():
    problem = wide_problem("random", 9, 3, 1)
    values = tuple(ValueFlow(u, (), 50_000, True) for u in range(problem.n))
    loose = replace(problem, predecessors=((),) * problem.n, values=values)
    assert 0 < relax(loose, in_order=True).bound_ns <= optimum(loose) * (1 + 1e-9)


def test_a_unit_elsewhere_costs_what_is_said():
    for seed, problem in draws(60, 6):
        relaxation = relax(problem)
        extra = relaxation.cost_ns - relaxation.cost_ns.min(axis=1, keepdims=True)
        for u, k in np.ndindex(extra.shape):
            elsewhere = np.zeros(extra.shape, dtype=np.bool_)
            elsewhere[u] = np.arange(extra.shape[1]) != k
            least = optimum(problem.without(elsewhere))
            assert relaxation.bound_ns + extra[u, k] <= least * (1 + 1e-9), (seed, u, k)


def test_regions_that_the_best_plan_has_keep_their_price():
    ruled_out = 0
    for seed, problem in draws(120, 7):
        least = optimum(problem)
        small = relax(problem).without_regions(problem, least * (1 + 1e-9))
        ruled_out += len(problem.region_ns) - len(small.region_ns)
        assert optimum(small) == pytest.approx(least, rel=1e-9), seed
    assert ruled_out > 20


def test_prices_bound_what_remains_after_any_prefix():
    for seed, problem in draws(60, 7):
        prices = relax(problem).prices
        for ideal in ideals_of(problem).tolist():
            rest = [u for u in range(problem.n) if not ideal >> u & 1]
            if rest:
                least = optimum(subproblem(problem, rest))
                bound = prices.least[rest].sum() + prices.slack
                assert bound <= least * (1 + 1e-9) + 1e-9, (seed, members(ideal))


def tangled_problem(seed: int) -> Problem:
    """Values that several units read, and transfers that cost about what units do: what shares a
    segment by the sums alone is often forced apart by others."""
    chance = random.Random(f"tangled/{seed}")
    n, t = chance.randint(7, 10), chance.choice((2, 2, 3))
    reads = [
        sorted(chance.sample(range(max(0, u - 4), u), min(u, chance.choice((1, 2, 2)))))
        for u in range(n)
    ]
    accelerated = np.arange(t) > 0
    ns_per_byte = chance.choice((0.1, 0.3, 0.5)) * accelerated
    problem = problem_on(
        reads,
        inputs=[ValueFlow(GRAPH_INPUT, tuple(sorted(chance.sample(range(n), 2))), 1)],
        sizes=[1] * n,
        unit_ns=[[chance.random() for _ in range(t)] for _ in range(n)],
        overhead_ns=chance.choice((0.0, 0.0, 0.3)) * accelerated,
        in_ns_per_byte=ns_per_byte,
        out_ns_per_byte=chance.choice((0, 1, 1)) * ns_per_byte,
    )
    return with_regions(problem, chance) if seed % 3 == 0 else problem


def test_rows_of_cycles_know_the_order_of_segments_and_bound_every_plan():
    met, met_before = 0, 0
    for seed in range(60):
        problem = tangled_problem(seed)
        plain, ordered = relax(problem), relax(problem, in_order=True)
        if plain is None or ordered is None:
            continue
        least = optimum(problem)
        assert plain.bound_ns <= ordered.bound_ns <= least * (1 + 1e-9), seed
        met_before += plain.bound_ns >= least * (1 - 1e-6)
        met += ordered.bound_ns >= least * (1 - 1e-6)
        elsewhere = ordered.cost_ns - ordered.cost_ns.min(axis=1, keepdims=True)
        room = least * (1 + 1e-9) - ordered.bound_ns
        assert optimum(problem.without(elsewhere > room)) == pytest.approx(least, rel=1e-9), seed
    assert met > met_before + 5 and met > 50


def test_a_unit_that_runs_nowhere_has_no_relaxation_and_free_prices_know_units_alone():
    problem = draw_problem(5)
    prices = free_prices(problem, problem.unit_ns.min(axis=1))
    assert not prices.enters.any() and not prices.leaves.any() and not prices.switch.any()
    assert prices.slack == 0.0
    problem = draw_problem(3, regions=False)
    problem.unit_ns[0] = math.inf
    assert relax(problem) is None


# ---- minimum cuts --------------------------------------------------------------------------------

NODES = 5


def cost(arcs: list[tuple[int, int, float]], far: int) -> float:
    """Of a cut with the nodes of ``far`` on the sink's side."""

    def is_far(node: int) -> bool:
        return node == Network.SINK or (node >= 0 and bool(far >> node & 1))

    return sum(ns for tail, head, ns in arcs if not is_far(tail) and is_far(head))


def test_the_cut_is_the_least_of_all():
    impossible = 0
    for seed in range(150):
        chance = random.Random(seed)
        ends = [Network.SOURCE, Network.SINK, *range(NODES)]
        arcs = []
        for _ in range(chance.randint(0, 14)):
            tail, head = chance.sample(ends, 2)
            if tail != Network.SINK and head != Network.SOURCE:
                ns = math.inf if chance.random() < 0.2 else chance.choice((0.0, 1.0, 1e6)) * 3
                arcs.append((tail, head, ns))
        net = Network(NODES)
        for tail, head, ns in arcs:
            net.arc(np.array([tail]), np.array([head]), ns)
        least = min(cost(arcs, far) for far in range(1 << NODES))
        result = net.cut()
        if result is None:
            assert math.isinf(least), seed
            impossible += 1
            continue
        ns, far_side = result
        rounding = 1e-7 * sum(own for *_, own in arcs if math.isfinite(own))
        assert least - rounding <= ns <= least, seed
        far = sum(1 << u for u in np.flatnonzero(far_side).tolist())
        assert least <= cost(arcs, far) <= least + rounding, seed
    assert 1 < impossible < 100


def test_terminals_and_what_they_forbid():
    net = Network(1)
    assert list(net.nodes(1)) == [1]
    net.terminal(np.array([0, 1]), np.array([5.0, 9.0]), np.array([7.0, 2.0]))
    assert net.sink_side().tolist() == [True, False]
    net.forbid(np.array([1]), np.array([0]))  # not 1 near and 0 far
    ns, side = net.cut()
    assert ns == pytest.approx(2.0) and not side.any()  # beyond what both pay: 0 stays
    net.forbid_source(np.array([0]))
    assert net.sink_side().tolist() == [True, True]
    net.forbid_sink(np.array([1]))
    assert net.sink_side() is None


def test_no_plan_costs_less_than_a_cut():
    result = 0
    for seed in range(150):
        problem = draw_problem(seed, 9, regions=seed % 2 == 0)
        least = optimum(problem)
        assert unit_shares(problem).sum() <= least * (1 + 1e-9), seed
        cut = minimum_cut(problem)
        if cut is None:
            continue
        result += 1
        assert cut.ns <= least * (1 + 1e-9), seed
        check_plan(problem, cut.plan(problem))
    assert result > 40


def chain_problem(seed: int) -> Problem:
    """CPU and one accelerator that takes values for a price: values that leave do not come back."""
    chance = np.random.default_rng(seed)
    n = int(chance.integers(1, 10))
    reads = [[u - 1] if u else [] for u in range(n)]
    costs = chance.integers(0, 60, (n, 2))
    return problem_on(reads, costs, in_ns_per_byte=[0.0, 0.5], out_ns_per_byte=[0.0, 1.0])


def test_of_additive_costs_the_cut_is_the_optimum():
    for seed in range(60):
        problem = chain_problem(seed)
        assert minimum_cut(problem).ns == pytest.approx(optimum(problem), rel=1e-6, abs=1e-4), seed


def test_where_no_plan_goes_without_an_accelerator_its_overhead_is_in_the_bound():
    problem = chain_problem(4)
    assert problem.n > 2 and problem.targets[0] == CPU
    problem.unit_ns[1, 0] = np.inf
    paid = replace(problem, overhead_ns=np.array([0.0, 50.0]))
    cut_ns = minimum_cut(paid).ns
    assert cut_ns == pytest.approx(minimum_cut(problem).ns + 50.0)
    assert cut_ns <= optimum(paid) * (1 + 1e-9)


# ---- stretches between articulation units -------------------------------------------------------


@pytest.fixture
def stretches_of_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(articulation, "SHORTEST", 1)
    monkeypatch.setattr(articulation, "LARGEST_SHARE", 1.0)


def draw_articulated() -> Iterator[tuple[int, Problem]]:
    """Graphs with articulation units, every other one in two formats."""
    for seed in itertools.count():
        problem = draw_case(f"articulation/{seed}").problem
        problem = with_formats(problem, seed) if seed % 2 else problem
        runs = np.isfinite(problem.unit_ns).any(axis=1).all()
        if problem.n <= 9 and runs and articulation_units(problem):
            yield seed, problem


@pytest.mark.slow
def test_no_plan_costs_less_than_the_bound_of_stretches(stretches_of_any_length):
    solved = tight = 0
    for seed, problem in itertools.islice(draw_articulated(), 25):
        least = optimum(problem)
        relaxation = relax(problem)
        if relaxation is None or math.isinf(least):
            continue
        start = draw_plan(problem, random.Random(seed))
        for prices in (relaxation.prices, free_prices(problem, unit_shares(problem))):
            stretches = Stretches(problem, prices)
            for effort in (seed % 50, 1e8):
                limits = SearchLimits(seconds=100.0, effort=effort)
                bound_ns, plan = stretches.solve(start, Watch(limits))
                assert bound_ns <= least * (1 + 1e-9), seed
                check_plan(problem, plan)
                ns = total_ns(problem, plan)
                if not problem.region_ns:
                    assert ns <= total_ns(problem, start) * (1 + 1e-9), seed
            assert ns >= least * (1 - 1e-9), seed
            tight += ns <= least * (1 + 1e-8) and bound_ns >= least * (1 - 1e-8)
            if not problem.region_ns:
                assert bound_ns >= least * (1 - 1e-8) and ns <= least * (1 + 1e-8), seed
        solved += 2
    assert tight > 0.9 * solved


def test_what_passes_a_unit_by_keeps_it_from_being_one(stretches_of_any_length, monkeypatch):
    problem = wide_problem("blocks", 51, 2, 0)
    assert articulation_units(problem) == [25]
    around = replace(problem.values[1], readers=(1, 26))
    values = (problem.values[0], around, *problem.values[2:])
    assert articulation_units(replace(problem, values=values)) == []
    cheaper = {(frozenset({24, 25}), 0): 1.0}
    assert articulation_units(replace(problem, region_ns=cheaper)) == []
    dearer = {(frozenset({24, 25}), 0): 1e12, (frozenset({25}), 0): 1.0}
    assert articulation_units(replace(problem, region_ns=dearer)) == [25]
    monkeypatch.setattr(articulation, "SHORTEST", 26)
    assert articulation_units(problem) == []


@pytest.mark.parametrize(("units", "targets", "by"), [(101, 2, "order"), (76, 3, "exact")])
def test_blocks_are_proven(units, targets, by):
    problem = wide_problem("blocks", units, targets, 0)
    result = search(problem, Watch(SearchLimits(seconds=100.0)))
    assert result.is_optimal and result.bounded_by == by
    check_plan(problem, result.placements)
