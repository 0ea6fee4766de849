"""Convex sets, counted."""

import itertools

from nnapi_prof.partition.blocks import convex_sets, members
from tests.partition.judge import ideals_of
from tests.partition.problems import draw_problem


def test_sets_without_a_way_out_and_back_are_differences_of_ideals() -> None:
    for seed in range(120):
        problem = draw_problem(seed, 6, regions=False)
        pairs = itertools.combinations(ideals_of(problem).tolist(), 2)
        expected = {members(large & ~small) for small, large in pairs if not small & ~large}
        actual = convex_sets(problem.predecessors, 1000)
        assert actual is not None and {members(bits) for bits in actual} == expected


def test_too_many_are_not_counted() -> None:
    assert convex_sets([[] for _ in range(12)], 1000) is None
    assert convex_sets([[] for _ in range(3)], 1000) == set(range(1, 8))
