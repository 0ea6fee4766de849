"""The exact programme over ideals: optimal, and honest about what it leaves out."""

import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.constraints import Budget
from nnapi_prof.partition.problem import GRAPH_INPUT, Problem, Region
from nnapi_prof.partition.search import SearchLimits, Watch, exact
from nnapi_prof.partition.search.exact import ExactResult, search_ideals
from nnapi_prof.partition.search.relaxation import relax
from nnapi_prof.partition.search.tables import free_prices, unit_shares, value_slots
from tests.partition.judge import ideals_of
from tests.partition.precisions import optimum
from tests.partition.problems import check_plan, draw_problem, every_plan, stem_problem

UNHURRIED = SearchLimits(seconds=1e6, effort=math.inf)


def costlier(problem: Problem) -> list[Region]:
    return [region for region, ns in problem.region_ns.items() if ns > problem.additive_ns(*region)]


def searched(
    problem: Problem, seed: int = 0, upper_ns: float = math.inf, **options: Any
) -> ExactResult:
    """By the prices of the relaxation, or for even seeds by those that know nothing."""
    relaxation = relax(problem) if seed % 2 else None
    prices = relaxation.prices if relaxation else free_prices(problem, unit_shares(problem))
    standard = dict(watch=Watch(UNHURRIED), watched=costlier(problem))
    return search_ideals(problem, prices, upper_ns, **standard | options)


def check_optimal(problem: Problem, result: ExactResult, least: float) -> None:
    assert result.complete
    check_plan(problem, result.placements)
    assert total_ns(problem, result.placements) == pytest.approx(least, rel=1e-9)
    assert (result.fronts[0][0], result.bound_ns) == pytest.approx((least, least), rel=1e-9)


def test_finds_the_optimum_of_all_plans():
    for seed in range(150):
        problem = draw_problem(seed, 9)
        check_optimal(problem, searched(problem, seed), optimum(problem))


def test_an_upper_bound_loses_nothing_below_it():
    for seed in range(60):
        problem = draw_problem(seed)
        least = optimum(problem)
        result = searched(problem, seed, least * (1 + 1e-8))
        assert total_ns(problem, result.placements) == pytest.approx(least, rel=1e-9), seed
        bound_ns = least * 0.99 - 1
        below = searched(problem, seed, bound_ns)
        assert below.complete and not below.placements and below.bound_ns == bound_ns, seed


def test_a_narrow_search_proves_how_good_it_is():
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
            check_optimal(problem, result, least)
    assert left_out > 20


def test_one_that_is_broken_off_proves_a_bound(monkeypatch):
    chance = random.Random(0)
    broken_off = 0
    for seed in range(120):
        problem = draw_problem(seed, 9)
        monkeypatch.setattr(exact, "SLICE", chance.randint(1, 60))
        result = searched(problem, seed, steps=chance.randint(0, 200))
        assert result.bound_ns <= optimum(problem) * (1 + 1e-9), seed
        assert result.complete == bool(result.placements), seed
        broken_off += not result.complete
    assert broken_off > 20


def test_without_memory_it_ends_with_a_bound_and_a_watch_that_is_over_ends_it():
    problem = stem_problem(12)
    whole, poor = searched(problem), searched(problem, memory_bytes=0)
    assert whole.complete and not poor.complete and not poor.placements
    assert 0 < poor.bound_ns <= whole.bound_ns and poor.steps < whole.steps
    problem, watch = stem_problem(14), Watch(SearchLimits(seconds=0.0))
    over = searched(problem, watch=watch)
    assert not over.complete and watch.steps == over.steps
    insisting = searched(problem, 1, watch=watch, width=10, insist=True)
    check_plan(problem, insisting.placements)


def test_a_costlier_region_counts_once_it_is_watched():
    met = 0
    for seed in range(400):
        problem = draw_problem(seed)
        least = optimum(problem)
        if math.isinf(least) or all(len(units) == 1 for units, _ in costlier(problem)):
            continue
        blind = searched(problem, seed, watched=())
        assert blind.fronts[0][0] <= least * (1 + 1e-9), seed
        met += total_ns(problem, blind.placements) > least * (1 + 1e-9)
        watching = searched(problem, seed)
        assert total_ns(problem, watching.placements) == pytest.approx(least, rel=1e-9), seed
    assert met > 1  # the others had no reason to be blind


def test_budgets_give_the_whole_front():
    for seed in range(30):
        problem, chance = draw_problem(seed, 5), np.random.default_rng(seed)
        points = Budget(
            "points",
            chance.integers(0, 4, len(problem.targets)).astype(np.float64),
            chance.integers(0, 4, problem.unit_ns.shape).astype(np.float64),
            limit=float(chance.integers(0, 30)),
            region_use={region: float(chance.integers(0, 9)) for region in problem.region_ns},
        )
        budgets = [Budget.segments(problem), points]
        result = searched(problem, seed, budgets=budgets, watched=[*problem.region_ns])
        assert result.complete
        for _, use, plan in result.fronts:
            check_plan(problem, plan)
            assert use == pytest.approx([b.of(plan) for b in budgets]), seed
        met = np.array([(ns * (1 - 1e-9), *use) for ns, use, _ in result.fronts])
        plans = [plan for plan in every_plan(problem) if all(b.keeps(plan) for b in budgets)]
        for plan in plans:  # some plan of the front is no worse in anything
            rival = (total_ns(problem, plan), *(b.of(plan) for b in budgets))
            assert np.any(np.all(met <= np.add(rival, 1e-9), axis=1)), seed
        assert bool(plans) == bool(result.fronts)


def test_values_alive_at_once_have_different_slots():
    for seed in range(60):
        problem = draw_problem(seed)
        slots = list(zip(value_slots(problem), problem.values, strict=True))
        for ideal in ideals_of(problem).tolist():
            alive = [
                slot
                for slot, value in slots
                if (value.producer == GRAPH_INPUT or ideal >> value.producer & 1)
                and any(not ideal >> r & 1 for r in value.readers)
            ]
            assert len(set(alive)) == len(alive) and -1 not in alive, seed


def test_what_a_unit_takes_alone_needs_no_watching():
    met = 0
    for seed in range(60):
        problem, chance = draw_problem(seed), random.Random(seed)
        alone = {
            (frozenset((u,)), k): problem.additive_ns((u,), k) * chance.choice((0.9, 1.02, 1.1))
            for u, k in np.argwhere(np.isfinite(problem.unit_ns)).tolist()
            if chance.random() < 0.7
        }
        problem = replace(problem, region_ns=alone)
        least = optimum(problem)
        if math.isinf(least):
            continue
        blind = searched(problem, seed, watched=())
        check_optimal(problem, blind, least)
        met += any((frozenset(units), k) in costlier(problem) for units, k in blind.placements)
    assert met > 5  # with a dear unit by itself in the best plan
