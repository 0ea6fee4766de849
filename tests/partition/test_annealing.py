"""Annealing: legal plans, true costs, never worse than the start."""

import math
import random

import numpy as np
import pytest

from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.problem import Problem
from nnapi_prof.partition.search import SearchLimits, Watch, annealing
from nnapi_prof.partition.search.annealing import Annealer, Labelling, MoveTables
from nnapi_prof.partition.search.expansion import plan_of_labelling
from tests.partition.pairs import optimum
from tests.partition.problems import Plan, check_plan, draw_plan, draw_problem, stem_problem


def annealed(problem: Problem, plan: Plan, moves: int = 3_000, seed: int = 0) -> Plan:
    hot = float(np.nanmax(np.where(np.isfinite(problem.unit_ns), problem.unit_ns, 0.0))) + 1.0
    annealer = Annealer(problem, range(len(problem.targets)))
    watch = Watch(SearchLimits(seconds=1e6, effort=math.inf))
    return annealer.run(plan, moves, hot, hot * 0.03, seed, watch)


def test_plans_are_legal_never_worse_and_often_best() -> None:
    optimal = tried = 0
    for seed in range(80):
        problem = draw_problem(seed)
        if not np.isfinite(problem.unit_ns).any(axis=1).all():
            continue
        plan = draw_plan(problem, random.Random(seed))
        after = annealed(problem, plan, seed=seed)
        check_plan(problem, after)
        assert total_ns(problem, after) <= total_ns(problem, plan) * (1 + 1e-9), seed
        tried += 1
        optimal += total_ns(problem, after) <= optimum(problem) * (1 + 1e-9)
    assert optimal > 0.8 * tried


def test_what_moves_cost_adds_up_to_what_the_plan_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """``Labelling.cost`` holds the change since the start, and the least one met."""
    calls: list[tuple[MoveTables, Labelling]] = []
    anneal = annealing.anneal

    def recorded(tables: MoveTables, labelling: Labelling, *rest: float) -> None:
        anneal(tables, labelling, *rest)  # type: ignore[arg-type]
        calls.append((tables, labelling))

    monkeypatch.setattr(annealing, "anneal", recorded)
    monkeypatch.setattr(annealing, "MANY_READERS", 2)  # so that some are counted
    for seed in range(60):
        problem = draw_problem(seed, 9)
        if not np.isfinite(problem.unit_ns).any(axis=1).all():
            continue
        plan = draw_plan(problem, random.Random(seed))
        before = total_ns(problem, plan)
        annealed(problem, plan, seed=seed)
        tables, labelling = calls[-1]
        for phase, change in zip((labelling.phase, labelling.best), labelling.cost, strict=True):
            after = total_ns(problem, plan_of_labelling(phase, tables.phase_target))
            if math.isfinite(before) and math.isfinite(after):
                assert before + change == pytest.approx(after, rel=1e-9, abs=1e-6), seed


def test_the_same_seed_gives_the_same_plan_and_spends_its_moves() -> None:
    problem = stem_problem(20)
    plan = draw_plan(problem, random.Random(1))
    assert annealed(problem, plan, seed=4) == annealed(problem, plan, seed=4)
    watch = Watch(SearchLimits())
    Annealer(problem, [0, 1]).run(plan, 5_000, 10.0, 1.0, 0, watch)
    assert watch.steps == 5_000
    none = Watch(SearchLimits(seconds=0.0))
    assert Annealer(problem, [0, 1]).run(plan, 5_000, 10.0, 1.0, 0, none) == plan
