"""Regions measured whole as arrays, held against the problem's own dictionaries."""

import random
from dataclasses import replace

import numpy as np
import pytest

from nnapi_prof.partition.arrays import Regions
from nnapi_prof.partition.problem import Problem
from tests.partition.problems import draw_problem

PROBLEMS = [problem for seed in range(60) if (problem := draw_problem(seed, 9)).region_ns]


def members(regions: Regions) -> list[frozenset[int]]:
    return [
        frozenset(regions.units[begin:end].tolist())
        for begin, end in zip(regions.unit_at[:-1], regions.unit_at[1:], strict=True)
    ]


assert sum(len(problem.region_ns) > 1 for problem in PROBLEMS) > 15


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_arrays_say_what_the_problem_says(problem: Problem) -> None:
    regions = problem.regions
    assert list(zip(members(regions), regions.target.tolist(), strict=True)) == [*problem.region_ns]
    assert regions.ns.tolist() == [*problem.region_ns.values()]
    assert np.all(np.diff(regions.region) >= 0)
    for (units, k), parts_ns in problem.region_parts_ns.items():
        assert parts_ns == pytest.approx(problem.additive_ns(units, k), rel=1e-12)
    free = replace(problem, unit_ns=np.zeros_like(problem.unit_ns))
    borders = [free.additive_ns(*region) for region in problem.region_ns]
    assert regions.border_ns == pytest.approx(borders)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_subset_has_the_chosen_regions_in_their_order(problem: Problem) -> None:
    regions, chance = problem.regions, random.Random(problem.n)
    chosen = chance.sample(range(regions.count), chance.randint(0, regions.count))
    subset = regions.subset(np.array(chosen, dtype=np.int64))
    assert members(subset) == [members(regions)[g] for g in chosen]
    for name in ("target", "ns", "border_ns", "parts_ns"):
        assert getattr(subset, name).tolist() == [getattr(regions, name)[g] for g in chosen]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_regions_that_hold_one_unit_and_not_another(problem: Problem) -> None:
    chance = random.Random(problem.n)
    pairs = [chance.choices(range(-1, problem.n), k=2) for _ in range(18)]
    inside, outside = (np.array(ends, dtype=np.int64) for ends in zip(*pairs, strict=True))
    held = zip(*problem.regions.holding(inside, outside), strict=True)
    assert sorted((int(pair), int(region)) for pair, region in held) == [
        (pair, region)
        for pair, (unit, other) in enumerate(pairs)
        for region, units in enumerate(members(problem.regions))
        if unit in units and other not in units
    ]
