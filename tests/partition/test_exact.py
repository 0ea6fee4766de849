"""The exact programme over ideals: optimal, and honest about what it leaves out."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.constraints import Budget
from nnapi_prof.partition.problem import GRAPH_INPUT, Problem, Region
from nnapi_prof.partition.search import SearchLimits, Watch, exact
from nnapi_prof.partition.search.exact import ExactResult, search_ideals
from nnapi_prof.partition.search.relaxation import relax
from nnapi_prof.partition.search.tables import Prices, free_prices, unit_shares, value_slots
from tests.partition.pairs import all_ideals, optimum
from tests.partition.problems import check_plan, draw_problem, every_plan, stem_problem


def unhurried() -> Watch:
    return Watch(SearchLimits(seconds=1e6, effort=math.inf))


def prices_of(problem: Problem, seed: int) -> Prices:
    """Of the relaxation, or of every other problem those that know nothing."""
    relaxation = relax(problem) if seed % 2 else None
    if relaxation is None:
        return free_prices(problem, unit_shares(problem))
    return relaxation.prices


def costlier(problem: Problem) -> list[Region]:
    return [
        (units, k)
        for (units, k), ns in problem.region_ns.items()
        if ns > problem.additive_ns(units, k)
    ]


def searched(
    problem: Problem, seed: int, upper_ns: float = math.inf, width: int = 1 << 40
) -> ExactResult:
    result = search_ideals(
        problem,
        prices_of(problem, seed),
        upper_ns,
        unhurried(),
        watched=costlier(problem),
        width=width,
    )
    assert result is not None
    return result


def test_finds_the_optimum_of_all_plans() -> None:
    for seed in range(150):
        problem = draw_problem(seed, 9)
        least = optimum(problem)
        result = searched(problem, seed)
        assert result.complete, seed
        check_plan(problem, result.placements)
        assert total_ns(problem, result.placements) == pytest.approx(least, rel=1e-9), seed
        assert result.fronts[0][0] == pytest.approx(least, rel=1e-9), seed
        assert result.bound_ns == pytest.approx(least, rel=1e-9), seed


def test_an_upper_bound_loses_nothing_below_it() -> None:
    for seed in range(60):
        problem = draw_problem(seed)
        least = optimum(problem)
        result = searched(problem, seed, least * (1 + 1e-8))
        assert total_ns(problem, result.placements) == pytest.approx(least, rel=1e-9), seed
        below = searched(problem, seed, least * 0.99 - 1)
        assert below.complete and not below.placements, seed
        assert below.bound_ns == least * 0.99 - 1, seed


def test_a_narrow_search_proves_how_good_it_is() -> None:
    left_out = 0
    for seed in range(120):
        problem = draw_problem(seed, 9)
        least = optimum(problem)
        result = searched(problem, seed, width=(1, 2, 5)[seed % 3])
        assert result.bound_ns <= least * (1 + 1e-9), seed
        left_out += not result.complete
        if result.placements:
            check_plan(problem, result.placements)
            assert total_ns(problem, result.placements) >= least * (1 - 1e-9), seed
        if result.complete:
            assert total_ns(problem, result.placements) == pytest.approx(least, rel=1e-9), seed
    assert left_out > 20


def test_one_that_is_broken_off_proves_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(0)
    broken_off = 0
    for seed in range(120):
        problem = draw_problem(seed, 9)
        monkeypatch.setattr(exact, "SLICE", chance.randint(1, 60))
        result = search_ideals(
            problem,
            prices_of(problem, seed),
            math.inf,
            unhurried(),
            watched=costlier(problem),
            steps=chance.randint(0, 200),
        )
        assert result is not None and result.bound_ns <= optimum(problem) * (1 + 1e-9), seed
        assert result.complete == bool(result.placements), seed
        broken_off += not result.complete
    assert broken_off > 20


def test_without_memory_it_ends_with_a_bound() -> None:
    problem = stem_problem(12)
    prices = free_prices(problem, unit_shares(problem))
    whole = search_ideals(problem, prices, math.inf, unhurried())
    poor = search_ideals(problem, prices, math.inf, unhurried(), memory_bytes=0)
    assert whole is not None and whole.complete
    assert poor is not None and not poor.complete and not poor.placements
    assert 0 < poor.bound_ns <= whole.bound_ns and poor.steps < whole.steps


def test_a_watch_that_is_over_ends_it() -> None:
    problem = stem_problem(14)
    prices = free_prices(problem, unit_shares(problem))
    watch = Watch(SearchLimits(seconds=0.0))
    over = search_ideals(problem, prices, math.inf, watch)
    assert over is not None and not over.complete and watch.steps == over.steps
    relaxation = relax(problem)
    assert relaxation is not None
    insisting = search_ideals(problem, relaxation.prices, math.inf, watch, width=10, insist=True)
    assert insisting is not None and insisting.placements
    check_plan(problem, insisting.placements)


def test_a_costlier_region_counts_once_it_is_watched() -> None:
    met = 0
    for seed in range(400):
        problem = draw_problem(seed)
        several = [region for region in costlier(problem) if len(region[0]) > 1]
        least = optimum(problem)
        if not several or math.isinf(least):
            continue
        prices = prices_of(problem, seed)
        blind = search_ideals(problem, prices, math.inf, unhurried())
        assert blind is not None and blind.fronts[0][0] <= least * (1 + 1e-9), seed
        met += total_ns(problem, blind.placements) > least * (1 + 1e-9)
        watching = searched(problem, seed)
        assert total_ns(problem, watching.placements) == pytest.approx(least, rel=1e-9), seed
    assert met > 1  # the others had no reason to be blind


def test_budgets_give_the_whole_front() -> None:
    for seed in range(30):
        problem = draw_problem(seed, 5)
        chance = np.random.default_rng(seed)
        budgets = [
            Budget.segments(problem),
            Budget(
                "points",
                chance.integers(0, 4, len(problem.targets)).astype(np.float64),
                chance.integers(0, 4, problem.unit_ns.shape).astype(np.float64),
                limit=float(chance.integers(0, 30)),
                region_use={region: float(chance.integers(0, 9)) for region in problem.region_ns},
            ),
        ]
        watched = [*problem.region_ns]
        prices = prices_of(problem, seed)
        result = search_ideals(
            problem, prices, math.inf, unhurried(), budgets=budgets, watched=watched
        )
        assert result is not None and result.complete
        for _, use, plan in result.fronts:
            check_plan(problem, plan)
            assert use == pytest.approx([b.of(plan) for b in budgets]), seed
        uses = [
            (total_ns(problem, plan), *(b.of(plan) for b in budgets))
            for plan in every_plan(problem)
            if all(b.keeps(plan) for b in budgets)
        ]
        for rival in uses:  # some plan of the front is no worse in anything
            assert any(
                ns <= rival[0] * (1 + 1e-9)
                and all(a <= b + 1e-9 for a, b in zip(use, rival[1:], strict=True))
                for ns, use, _ in result.fronts
            ), seed
        assert bool(uses) == bool(result.fronts)


def test_values_alive_at_once_have_different_slots() -> None:
    for seed in range(60):
        problem = draw_problem(seed)
        slots = value_slots(problem)
        assert slots is not None
        for ideal in all_ideals(problem):
            alive = [
                int(slots[v])
                for v, value in enumerate(problem.values)
                if (value.producer == GRAPH_INPUT or ideal >> value.producer & 1)
                and any(not ideal >> r & 1 for r in value.readers)
            ]
            assert len(set(alive)) == len(alive) and -1 not in alive, seed


def test_what_a_unit_takes_alone_needs_no_watching() -> None:
    met = 0
    for seed in range(60):
        problem = draw_problem(seed)
        chance = random.Random(seed)
        alone = {
            (frozenset((u,)), k): problem.additive_ns((u,), k) * chance.choice((0.9, 1.02, 1.1))
            for u in range(problem.n)
            for k in range(len(problem.targets))
            if math.isfinite(problem.unit_ns[u, k]) and chance.random() < 0.7
        }
        problem = replace(problem, region_ns=alone)
        least = optimum(problem)
        if math.isinf(least):
            continue
        blind = search_ideals(problem, prices_of(problem, seed), math.inf, unhurried())
        assert blind is not None and blind.complete, seed
        assert blind.fronts[0][0] == pytest.approx(least, rel=1e-9), seed
        assert total_ns(problem, blind.placements) == pytest.approx(least, rel=1e-9), seed
        dear = {region for region in alone if alone[region] > problem.additive_ns(*region)}
        met += any((frozenset(units), k) in dear for units, k in blind.placements)
    assert met > 5  # with a dear unit by itself in the best plan
