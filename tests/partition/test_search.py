"""Steps of the search against brute force: the exact programme over ideals, moves between plans."""

import itertools
import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nnapi_prof.partition.arrays import Ints
from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.constraints import Budget
from nnapi_prof.partition.problem import Problem, Region
from nnapi_prof.partition.search import SearchLimits, Watch, annealing, exact
from nnapi_prof.partition.search.annealing import Annealer, Labelling, MoveTables
from nnapi_prof.partition.search.exact import ExactResult, search_ideals
from nnapi_prof.partition.search.expansion import (
    _best_move,
    expand,
    is_plan,
    join_segments,
    labelling_of_plan,
    plan_of_labelling,
)
from nnapi_prof.partition.search.relaxation import relax
from nnapi_prof.partition.search.tables import free_prices, unit_shares
from nnapi_prof.partition.search.windows import solve_phases, subproblem, windows
from tests.partition.precisions import optimum
from tests.partition.problems import (
    Plan,
    check_plan,
    draw_plan,
    draw_problem,
    drawn,
    draws,
    every_plan,
    stem_problem,
)

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


@pytest.mark.parametrize("formats", [False, True])
def test_finds_the_optimum_of_all_plans(formats):
    for seed, problem in draws(150, 9 - formats, formats=formats):
        check_optimal(problem, searched(problem, seed), optimum(problem))


def test_an_upper_bound_loses_nothing_below_it():
    for seed, problem in draws(60):
        least = optimum(problem)
        result = searched(problem, seed, least * (1 + 1e-8))
        assert total_ns(problem, result.placements) == pytest.approx(least, rel=1e-9), seed
        bound_ns = least * 0.99 - 1
        below = searched(problem, seed, bound_ns)
        assert below.complete and not below.placements and below.bound_ns == bound_ns, seed


@pytest.mark.parametrize("formats", [False, True])
def test_a_narrow_search_proves_how_good_it_is(formats):
    left_out = 0
    for seed, problem in draws(120, 9 - formats, formats=formats):
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
    for seed, problem in draws(120, 9):
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
    for seed, problem in draws(400):
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


def annealed(problem: Problem, plan: Plan, seed: int) -> Plan:
    hot = float(np.max(problem.unit_ns, initial=0.0, where=np.isfinite(problem.unit_ns))) + 1.0
    annealer = Annealer(problem, range(len(problem.targets)))
    watch = Watch(SearchLimits(seconds=1e6, effort=math.inf))
    return annealer.run(plan, 3_000, hot, hot * 0.03, seed, watch)


def test_plans_are_legal_never_worse_and_often_best():
    optimal = tried = 0
    for seed, problem, plan in drawn(80):
        after = annealed(problem, plan, seed)
        check_plan(problem, after)
        assert total_ns(problem, after) <= total_ns(problem, plan) * (1 + 1e-9), seed
        tried += 1
        optimal += total_ns(problem, after) <= optimum(problem) * (1 + 1e-9)
    assert optimal > 0.8 * tried


@pytest.mark.parametrize("formats", [False, True])
def test_what_moves_cost_adds_up_to_what_the_plan_costs(monkeypatch, formats):
    """``Labelling.cost`` holds the change since the start, and the least one met."""
    calls: list[tuple[MoveTables, Labelling]] = []
    anneal = annealing.anneal

    def recorded(tables: MoveTables, labelling: Labelling, *rest: float) -> None:
        anneal(tables, labelling, *rest)
        calls.append((tables, labelling))

    monkeypatch.setattr(annealing, "anneal", recorded)
    if not formats:
        monkeypatch.setattr(annealing, "MANY_READERS", 2)  # so that some are counted
    for seed, problem, plan in drawn(60, 9, formats=formats):
        before = total_ns(problem, plan)
        annealed(problem, plan, seed)
        tables, labelling = calls[-1]
        for phase, change in zip((labelling.phase, labelling.best), labelling.cost, strict=True):
            after = total_ns(problem, plan_of_labelling(phase, tables.phase_target))
            if math.isfinite(before) and math.isfinite(after):
                assert before + change == pytest.approx(after, rel=1e-9, abs=1e-6), seed


def test_the_same_seed_gives_the_same_plan_and_spends_its_moves():
    problem = stem_problem(20)
    plan, annealer = draw_plan(problem, random.Random(1)), Annealer(problem, [0, 1])
    assert annealed(problem, plan, seed=4) == annealed(problem, plan, seed=4)
    watch, none = Watch(SearchLimits()), Watch(SearchLimits(seconds=0.0))
    annealer.run(plan, 5_000, 10.0, 1.0, 0, watch)
    assert watch.steps == 5_000
    assert annealer.run(plan, 5_000, 10.0, 1.0, 0, none) == plan


def test_a_labelling_is_the_plan_again():
    for _, problem, plan in drawn(40, 9):
        phase, phase_target = labelling_of_plan(plan, problem.n, range(len(problem.targets)))
        assert plan_of_labelling(phase, phase_target) == plan
        assert len(phase_target) == len(plan) * (len(problem.targets) + 1) + len(problem.targets)
        assert all(phase[p] <= phase[u] for u in range(problem.n) for p in problem.predecessors[u])


def test_joined_plans_are_legal_and_no_costlier():
    shorter = 0
    for seed, problem, plan in drawn(150, 9):
        singles = tuple(((u,), k) for units, k in plan for u in units)  # in topological order
        for start in (plan, singles):
            after = join_segments(problem, start)
            check_plan(problem, after)
            assert len(after) <= len(start)
            assert total_ns(problem, after) <= total_ns(problem, start) * (1 + 1e-9), seed
            shorter += len(after) < len(start)
    assert shorter > 50


def test_segments_with_others_between_are_joined_around_them_and_what_is_a_plan():
    problem = stem_problem(3)  # u0 -> u1, u2, u3 -> u4
    plan = (((0,), 0), ((1,), 1), ((2,), 2), ((3,), 1), ((4,), 0))
    assert join_segments(problem, plan) == (((0,), 0), ((2,), 2), ((1, 3), 1), ((4,), 0))
    apart = (((0,), 1), ((1, 2, 3), 0), ((4,), 1))  # what is between needs one and is needed
    assert join_segments(problem, apart) == apart
    problem = stem_problem(2)  # u0 -> u1, u2 -> u3
    assert is_plan(problem, (((0, 1), 0), ((2, 3), 1)))
    assert not is_plan(problem, (((0, 1), 0), ((2,), 1)))  # u3 is missing
    assert not is_plan(problem, (((0, 1), 0), ((1, 2, 3), 1)))  # u1 twice
    assert not is_plan(problem, (((1, 2, 3), 0), ((0,), 1)))  # too early
    assert not is_plan(problem, (((), 0), ((0, 1, 2, 3), 1)))


@pytest.mark.parametrize("formats", [False, True])
def test_a_part_costs_on_its_own_what_it_costs_in_the_plan(formats):
    """With formats, up to what the rest costs: two plans differ by as much as their parts."""
    better = 0
    for seed, problem, plan in drawn(150, 9, formats=formats):
        chance = random.Random(seed)
        first = chance.randrange(len(plan))
        last = chance.randint(first + 1, len(plan))
        units = sorted(u for segment, _ in plan[first:last] for u in segment)
        part = subproblem(problem, units, plan)
        costs = []
        for own in (draw_plan(part, chance), draw_plan(part, chance)):
            there = tuple((tuple(units[i] for i in segment), k) for segment, k in own)
            whole = (*plan[:first], *there, *plan[last:])
            check_plan(problem, whole)
            costs.append((total_ns(part, own), total_ns(problem, whole)))
            if not formats:
                assert costs[-1][0] == pytest.approx(total_ns(problem, there), rel=1e-9), seed
        (a, whole_a), (b, whole_b) = costs
        if math.isfinite(whole_a) and math.isfinite(whole_b):
            assert a - b == pytest.approx(whole_a - whole_b, rel=1e-9, abs=1e-6 * whole_a), seed
        if not formats:
            now = total_ns(problem, plan[first:last])
            assert optimum(part) <= now * (1 + 1e-9), seed
            better += optimum(part) < now * (1 - 1e-9)
    assert formats or better > 20


@pytest.mark.parametrize("turn", range(5))
def test_windows_cover_the_plan_and_overlap(turn):
    plan = tuple(((u,), u % 2) for u in range(200))
    stretches = list(windows(stem_problem(198), plan, turn))
    assert stretches[0][0] == 0 and stretches[-1][1] == len(plan)
    for (first, last), (following, _) in itertools.pairwise(stretches):
        assert first < following < last


def best_of_all(problem: Problem, phase: Ints, phase_target: Ints, g: int) -> float:
    least = math.inf
    for moving in range(1 << problem.n):
        moved = [g if moving >> u & 1 else int(phase[u]) for u in range(problem.n)]
        if all(moved[p] <= moved[u] for u in range(problem.n) for p in problem.predecessors[u]):
            plan = plan_of_labelling(np.array(moved), phase_target)
            least = min(least, total_ns(problem, plan))
    return least


@pytest.mark.parametrize("formats", [False, True])
def test_a_move_is_the_best_of_all_to_that_phase(formats):
    for seed, problem, plan in drawn(50, 6, formats=formats, regions=False):
        phase, phase_target = labelling_of_plan(plan, problem.n, range(len(problem.targets)))
        n_phases = len(phase_target)
        for g in random.Random(seed).sample(range(n_phases), min(4, n_phases)):
            moved = _best_move(problem, phase, phase_target, g)
            after = plan if moved is None else plan_of_labelling(moved, phase_target)
            check_plan(problem, after)
            least = best_of_all(problem, phase, phase_target, g)
            assert total_ns(problem, after) == pytest.approx(least, rel=1e-6), (seed, g)


def test_sweeps_never_make_a_plan_worse():
    better = 0
    for seed, problem, plan in drawn(60):
        after = expand(problem, plan, Watch(SearchLimits()))
        check_plan(problem, after)
        assert total_ns(problem, after) <= total_ns(problem, plan), seed
        better += total_ns(problem, after) < total_ns(problem, plan)
    assert better > 15
    problem = stem_problem(6)
    plan = draw_plan(problem, random.Random(1))
    assert expand(problem, plan, Watch(SearchLimits(seconds=0.0))) == plan


@pytest.mark.slow
@pytest.mark.parametrize("formats", [False, True])
def test_a_chain_of_two_targets_gives_the_best_of_its_plans(formats):
    for seed, problem, _ in drawn(40, 6, formats=formats, regions=False):
        if len(problem.targets) < 2:
            continue
        plan = solve_phases(problem, [0, 1, 0], 60.0)
        check_plan(problem, plan)
        orders = [0], [1], [0, 1], [1, 0], [0, 1, 0]
        rivals = [rival for rival in every_plan(problem) if [k for _, k in rival] in orders]
        least = min(total_ns(problem, rival) for rival in rivals)
        assert total_ns(problem, plan) == pytest.approx(least, rel=1e-5), seed
