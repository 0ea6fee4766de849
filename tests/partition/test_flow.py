"""Minimum cuts against all cuts, and what a cut says about plans."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from nnapi_prof.graph.plan import CPU
from nnapi_prof.partition.problem import Problem
from nnapi_prof.partition.search.minimum_cut import Network, minimum_cut
from tests.partition.cases import lower_bound
from tests.partition.networks import problem_on
from tests.partition.precisions import optimum
from tests.partition.problems import check_plan, draw_problem

NODES = 5


def cost(arcs: list[tuple[int, int, float]], far: int) -> float:
    """Of a cut with the nodes of ``far`` on the sink's side."""

    def is_far(node: int) -> bool:
        return node == Network.SINK or (node >= 0 and bool(far >> node & 1))

    return sum(ns for tail, head, ns in arcs if not is_far(tail) and is_far(head))


def test_the_cut_is_the_least_of_all() -> None:
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


def test_terminals_and_what_they_forbid() -> None:
    net = Network(1)
    (hub,) = net.nodes(1)
    assert hub == 1
    net.terminal(np.array([0, 1]), np.array([5.0, 9.0]), np.array([7.0, 2.0]))
    side = net.sink_side()
    assert side is not None and side.tolist() == [True, False]
    net.forbid(np.array([1]), np.array([0]))  # not 1 near and 0 far
    result = net.cut()
    assert result is not None and result[0] == pytest.approx(2.0)  # beyond what both pay: 0 stays
    assert result[1].tolist() == [False, False]
    net.forbid_source(np.array([0]))
    side = net.sink_side()
    assert side is not None and side.tolist() == [True, True]
    net.forbid_sink(np.array([1]))
    assert net.sink_side() is None


def test_no_plan_costs_less_than_a_cut() -> None:
    result = 0
    for seed in range(150):
        problem = draw_problem(seed, 9, regions=seed % 2 == 0)
        least = optimum(problem)
        assert lower_bound(problem) <= least * (1 + 1e-9), seed
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


def test_of_additive_costs_the_cut_is_the_optimum() -> None:
    for seed in range(60):
        problem = chain_problem(seed)
        cut = minimum_cut(problem)
        assert cut is not None
        assert cut.ns == pytest.approx(optimum(problem), rel=1e-6, abs=1e-4), seed


def test_where_no_plan_goes_without_an_accelerator_its_overhead_is_in_the_bound() -> None:
    problem = chain_problem(4)
    assert problem.n > 2 and problem.targets[0] == CPU
    problem.unit_ns[1, 0] = np.inf
    paid = replace(problem, overhead_ns=np.array([0.0, 50.0]))
    cut, without = minimum_cut(paid), minimum_cut(problem)
    assert cut is not None and without is not None
    assert cut.ns == pytest.approx(without.ns + 50.0)
    assert cut.ns <= optimum(paid) * (1 + 1e-9)
