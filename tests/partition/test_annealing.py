"""Annealing: legal plans, true costs, never worse than the start."""

import math
import random
from collections.abc import Iterable

import numpy as np
import pytest

from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.problem import Problem
from nnapi_prof.partition.search import SearchLimits, Watch, annealing
from nnapi_prof.partition.search.annealing import Annealer, Labelling, MoveTables
from nnapi_prof.partition.search.expansion import plan_of_labelling
from tests.partition.precisions import optimum
from tests.partition.problems import Plan, check_plan, draw_plan, drawn, stem_problem


def annealed(problem: Problem, plan: Plan, seed: int) -> Plan:
    hot = float(np.max(problem.unit_ns, initial=0.0, where=np.isfinite(problem.unit_ns))) + 1.0
    annealer = Annealer(problem, range(len(problem.targets)))
    watch = Watch(SearchLimits(seconds=1e6, effort=math.inf))
    return annealer.run(plan, 3_000, hot, hot * 0.03, seed, watch)


def test_plans_are_legal_never_worse_and_often_best() -> None:
    optimal = tried = 0
    for seed, problem, plan in drawn(80):
        after = annealed(problem, plan, seed)
        check_plan(problem, after)
        assert total_ns(problem, after) <= total_ns(problem, plan) * (1 + 1e-9), seed
        tried += 1
        optimal += total_ns(problem, after) <= optimum(problem) * (1 + 1e-9)
    assert optimal > 0.8 * tried


def check_moves_add_up(
    monkeypatch: pytest.MonkeyPatch, draws: Iterable[tuple[int, Problem, Plan]]
) -> None:
    """``Labelling.cost`` holds the change since the start, and the least one met."""
    calls: list[tuple[MoveTables, Labelling]] = []
    anneal = annealing.anneal

    def recorded(tables: MoveTables, labelling: Labelling, *rest: float) -> None:
        anneal(tables, labelling, *rest)  # type: ignore[arg-type]
        calls.append((tables, labelling))

    monkeypatch.setattr(annealing, "anneal", recorded)
    for seed, problem, plan in draws:
        before = total_ns(problem, plan)
        annealed(problem, plan, seed)
        tables, labelling = calls[-1]
        for phase, change in zip((labelling.phase, labelling.best), labelling.cost, strict=True):
            after = total_ns(problem, plan_of_labelling(phase, tables.phase_target))
            if math.isfinite(before) and math.isfinite(after):
                assert before + change == pytest.approx(after, rel=1e-9, abs=1e-6), seed


def test_what_moves_cost_adds_up_to_what_the_plan_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(annealing, "MANY_READERS", 2)  # so that some are counted
    check_moves_add_up(monkeypatch, drawn(60, 9))


def test_the_same_seed_gives_the_same_plan_and_spends_its_moves() -> None:
    problem = stem_problem(20)
    plan = draw_plan(problem, random.Random(1))
    assert annealed(problem, plan, seed=4) == annealed(problem, plan, seed=4)
    watch, none = Watch(SearchLimits()), Watch(SearchLimits(seconds=0.0))
    Annealer(problem, [0, 1]).run(plan, 5_000, 10.0, 1.0, 0, watch)
    assert watch.steps == 5_000
    assert Annealer(problem, [0, 1]).run(plan, 5_000, 10.0, 1.0, 0, none) == plan
