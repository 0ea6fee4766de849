"""Stretches between articulation units, against brute force."""

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.problem import Problem
from nnapi_prof.partition.search import SearchLimits, Watch, articulation
from nnapi_prof.partition.search.anytime import search
from nnapi_prof.partition.search.articulation import Stretches, articulation_units
from nnapi_prof.partition.search.relaxation import relax
from nnapi_prof.partition.search.tables import free_prices, unit_shares
from tests.partition.drawing import draw_case
from tests.partition.families import wide_problem
from tests.partition.precisions import optimum, with_formats
from tests.partition.problems import check_plan, draw_plan

MOST_UNITS = 9


@pytest.fixture
def stretches_of_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(articulation, "SHORTEST", 1)
    monkeypatch.setattr(articulation, "LARGEST_SHARE", 1.0)


def draw_articulated() -> Iterator[tuple[int, Problem]]:
    """Graphs with articulation units, every other one in two formats."""
    for seed in itertools.count():
        problem = draw_case(f"articulation/{seed}").problem
        problem = with_formats(problem, seed) if seed % 2 else problem
        runs = np.isfinite(problem.unit_ns).any(axis=1).all()
        if problem.n <= MOST_UNITS and runs and articulation_units(problem):
            yield seed, problem


@pytest.mark.slow
@pytest.mark.usefixtures("stretches_of_any_length")
def test_no_plan_costs_less_than_the_bound() -> None:
    solved = tight = 0
    for seed, problem in itertools.islice(draw_articulated(), 25):
        least = optimum(problem)
        relaxation = relax(problem)
        if relaxation is None or math.isinf(least):
            continue
        start = draw_plan(problem, random.Random(seed))
        for prices in (relaxation.prices, free_prices(problem, unit_shares(problem))):
            stretches = Stretches(problem, prices)
            for effort in (seed % 50, 1e8):
                watch = Watch(SearchLimits(seconds=100.0, effort=effort))
                bound_ns, plan = stretches.solve(start, watch)
                assert bound_ns <= least * (1 + 1e-9), seed
                check_plan(problem, plan)
                ns = total_ns(problem, plan)
                if not problem.region_ns:
                    assert ns <= total_ns(problem, start) * (1 + 1e-9), seed
            assert ns >= least * (1 - 1e-9), seed
            tight += ns <= least * (1 + 1e-8) and bound_ns >= least * (1 - 1e-8)
            if not problem.region_ns:
                assert bound_ns >= least * (1 - 1e-8) and ns <= least * (1 + 1e-8), seed
        solved += 2
    assert tight > 0.9 * solved


@pytest.mark.usefixtures("stretches_of_any_length")
def test_what_passes_a_unit_by_keeps_it_from_being_one(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = wide_problem("blocks", 51, 2, 0)
    assert articulation_units(problem) == [25]
    around = replace(problem.values[1], readers=(1, 26))
    values = (problem.values[0], around, *problem.values[2:])
    assert articulation_units(replace(problem, values=values)) == []
    cheaper = {(frozenset({24, 25}), 0): 1.0}
    assert articulation_units(replace(problem, region_ns=cheaper)) == []
    dearer = {(frozenset({24, 25}), 0): 1e12, (frozenset({25}), 0): 1.0}
    assert articulation_units(replace(problem, region_ns=dearer)) == [25]
    monkeypatch.setattr(articulation, "SHORTEST", 26)
    assert articulation_units(problem) == []


def test_blocks_are_proven() -> None:
    problem = wide_problem("blocks", 126, 3, 1)
    result = search(problem, Watch(SearchLimits(seconds=100.0)))
    assert result is not None and result.is_optimal
    check_plan(problem, result.placements)
