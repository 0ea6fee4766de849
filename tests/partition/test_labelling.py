"""Plans as labellings, plans with segments joined, and parts of a problem on their own."""

import itertools
import math
import random

import pytest

from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.search.expansion import (
    is_plan,
    join_segments,
    labelling_of_plan,
    plan_of_labelling,
)
from nnapi_prof.partition.search.windows import subproblem, windows
from tests.partition.precisions import optimum
from tests.partition.problems import check_plan, draw_plan, drawn, stem_problem


def test_a_labelling_is_the_plan_again() -> None:
    for _, problem, plan in drawn(40, 9):
        phase, phase_target = labelling_of_plan(plan, problem.n, range(len(problem.targets)))
        assert plan_of_labelling(phase, phase_target) == plan
        assert len(phase_target) == len(plan) * (len(problem.targets) + 1) + len(problem.targets)
        assert all(phase[p] <= phase[u] for u in range(problem.n) for p in problem.predecessors[u])


def test_joined_plans_are_legal_and_no_costlier() -> None:
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


def test_segments_with_others_between_are_joined_around_them() -> None:
    problem = stem_problem(3)  # u0 -> u1, u2, u3 -> u4
    plan = (((0,), 0), ((1,), 1), ((2,), 2), ((3,), 1), ((4,), 0))
    assert join_segments(problem, plan) == (((0,), 0), ((2,), 2), ((1, 3), 1), ((4,), 0))
    apart = (((0,), 1), ((1, 2, 3), 0), ((4,), 1))  # what is between needs one and is needed
    assert join_segments(problem, apart) == apart


def test_what_is_a_plan() -> None:
    problem = stem_problem(2)  # u0 -> u1, u2 -> u3
    assert is_plan(problem, (((0, 1), 0), ((2, 3), 1)))
    assert not is_plan(problem, (((0, 1), 0), ((2,), 1)))  # u3 is missing
    assert not is_plan(problem, (((0, 1), 0), ((1, 2, 3), 1)))  # u1 twice
    assert not is_plan(problem, (((1, 2, 3), 0), ((0,), 1)))  # too early
    assert not is_plan(problem, (((), 0), ((0, 1, 2, 3), 1)))


@pytest.mark.parametrize("formats", [False, True])
def test_a_part_costs_on_its_own_what_it_costs_in_the_plan(formats: bool) -> None:
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
def test_windows_cover_the_plan_and_overlap(turn: int) -> None:
    plan = tuple(((u,), u % 2) for u in range(200))
    stretches = list(windows(stem_problem(198), plan, turn))
    assert stretches[0][0] == 0 and stretches[-1][1] == len(plan)
    for (first, last), (following, _) in itertools.pairwise(stretches):
        assert first < following < last
