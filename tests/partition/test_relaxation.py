"""The linear relaxation bounds every plan, and its prices what remains of one."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from nnapi_prof.partition.blocks import members
from nnapi_prof.partition.problem import GRAPH_INPUT, Problem, ValueFlow
from nnapi_prof.partition.search.relaxation import Relaxation, relax
from nnapi_prof.partition.search.tables import free_prices
from nnapi_prof.partition.search.windows import subproblem
from tests.partition.cases import lower_bound
from tests.partition.families import wide_problem
from tests.partition.judge import ideals_of
from tests.partition.networks import problem_on
from tests.partition.precisions import optimum, with_formats
from tests.partition.problems import draw_problem, with_regions


def relaxed(problem: Problem) -> Relaxation:
    relaxation = relax(problem)
    assert relaxation is not None
    return relaxation


@pytest.mark.parametrize("formats", [False, True])
def test_no_plan_costs_less_than_the_bound(formats: bool) -> None:
    tight = solved = 0
    for seed in range(200):
        problem = draw_problem(seed, 8 if formats else 9)
        problem = with_formats(problem, seed) if formats else problem
        relaxation, least = relax(problem), optimum(problem)
        if formats and (relaxation is None or math.isinf(least)):
            continue
        assert relaxation is not None, seed
        assert relaxation.bound_ns <= least * (1 + 1e-9), seed
        assert relaxation.bound_ns >= lower_bound(problem) * (1 - 1e-6), seed
        assert relaxation.share.sum(axis=1) == pytest.approx(1.0), seed
        solved += 1
        tight += relaxation.bound_ns >= least * (1 - 1e-6)
    assert tight > 0.5 * solved  # else it would be of little use


def test_units_that_read_from_none_have_no_order() -> None:
    problem = wide_problem("random", 9, 3, 1)
    loose = replace(
        problem,
        predecessors=((),) * problem.n,
        values=tuple(ValueFlow(u, (), 50_000, True) for u in range(problem.n)),
    )
    relaxation = relax(loose, in_order=True)
    assert relaxation is not None
    assert 0 < relaxation.bound_ns <= optimum(loose) * (1 + 1e-9)


def test_a_unit_elsewhere_costs_what_is_said() -> None:
    for seed in range(60):
        problem = draw_problem(seed, 6)
        relaxation = relaxed(problem)
        extra = relaxation.cost_ns - relaxation.cost_ns.min(axis=1, keepdims=True)
        for u, k in np.ndindex(extra.shape):
            elsewhere = np.zeros(extra.shape, dtype=np.bool_)
            elsewhere[u] = np.arange(extra.shape[1]) != k
            least = optimum(problem.without(elsewhere))
            assert relaxation.bound_ns + extra[u, k] <= least * (1 + 1e-9), (seed, u, k)


def test_regions_that_the_best_plan_has_keep_their_price() -> None:
    ruled_out = 0
    for seed in range(120):
        problem = draw_problem(seed, 7)
        least = optimum(problem)
        small = relaxed(problem).without_regions(problem, least * (1 + 1e-9))
        ruled_out += len(problem.region_ns) - len(small.region_ns)
        assert optimum(small) == pytest.approx(least, rel=1e-9), seed
    assert ruled_out > 20


def test_prices_bound_what_remains_after_any_prefix() -> None:
    for seed in range(60):
        problem = draw_problem(seed, 7)
        prices = relaxed(problem).prices
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


def test_rows_of_cycles_know_the_order_of_segments_and_bound_every_plan() -> None:
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


def test_a_unit_that_runs_nowhere_has_no_relaxation() -> None:
    problem = draw_problem(3, regions=False)
    problem.unit_ns[0] = math.inf
    assert relax(problem) is None


def test_free_prices_know_units_alone() -> None:
    problem = draw_problem(5)
    prices = free_prices(problem, problem.unit_ns.min(axis=1))
    assert not prices.enters.any() and not prices.leaves.any() and not prices.switch.any()
    assert prices.slack == 0.0
