"""Expansion moves: minimum cuts that are the best of all 2^n moves to a phase."""

import math
import random

import numpy as np
import pytest

from nnapi_prof.partition.arrays import Ints
from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.problem import Problem
from nnapi_prof.partition.search import SearchLimits, Watch
from nnapi_prof.partition.search.expansion import (
    _best_move,
    expand,
    labelling_of_plan,
    plan_of_labelling,
)
from tests.partition.problems import check_plan, draw_plan, drawn, stem_problem


def best_of_all(problem: Problem, phase: Ints, phase_target: Ints, g: int) -> float:
    least = math.inf
    for moving in range(1 << problem.n):
        moved = [g if moving >> u & 1 else int(phase[u]) for u in range(problem.n)]
        if all(moved[p] <= moved[u] for u in range(problem.n) for p in problem.predecessors[u]):
            plan = plan_of_labelling(np.array(moved), phase_target)
            least = min(least, total_ns(problem, plan))
    return least


@pytest.mark.parametrize("formats", [False, True])
def test_a_move_is_the_best_of_all_to_that_phase(formats: bool) -> None:
    for seed, problem, plan in drawn(50, 6, formats=formats, regions=False):
        phase, phase_target = labelling_of_plan(plan, problem.n, range(len(problem.targets)))
        n_phases = len(phase_target)
        for g in random.Random(seed).sample(range(n_phases), min(4, n_phases)):
            moved = _best_move(problem, phase, phase_target, g)
            after = plan if moved is None else plan_of_labelling(moved, phase_target)
            check_plan(problem, after)
            least = best_of_all(problem, phase, phase_target, g)
            assert total_ns(problem, after) == pytest.approx(least, rel=1e-6), (seed, g)


def test_sweeps_never_make_a_plan_worse() -> None:
    better = 0
    for seed, problem, plan in drawn(60):
        after = expand(problem, plan, Watch(SearchLimits()))
        check_plan(problem, after)
        assert total_ns(problem, after) <= total_ns(problem, plan), seed
        better += total_ns(problem, after) < total_ns(problem, plan)
    assert better > 15


def test_a_watch_that_is_over_ends_the_sweeps() -> None:
    problem = stem_problem(6)
    plan = draw_plan(problem, random.Random(1))
    assert expand(problem, plan, Watch(SearchLimits(seconds=0.0))) == plan
