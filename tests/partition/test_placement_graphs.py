"""Real graphs of up to 604 nodes: the search against the MILP and the minimum cut."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nnapi_prof.partition.baselines import find_baselines, total_ns
from nnapi_prof.partition.cut import minimum_cut
from nnapi_prof.partition.milp import solve_milp
from nnapi_prof.partition.problem import Problem
from nnapi_prof.partition.solver import solve_placements
from tests.partition.placement_graphs import names, placement_problem


def check(problem: Problem, placements: tuple[tuple[tuple[int, ...], int], ...]) -> None:
    done: set[int] = set()
    for units, _ in placements:
        for u in units:
            assert set(problem.predecessors[u]) <= done | set(units)
        assert not done & set(units)
        done |= set(units)
    assert len(done) == problem.n


@pytest.mark.parametrize("name", names())
def test_search_and_milp_agree(name: str) -> None:
    problem = placement_problem(name)
    found = solve_placements(problem, tolerance=0)
    assert found is not None
    check(problem, found.placements)
    assert found.exact or found.gap < 0.01
    judged = solve_milp(problem, upper_ns=found.ns)
    assert judged.proven
    assert found.ns == pytest.approx(judged.ns, rel=1e-6)
    assert found.ns <= min(b.predicted_ns for b in find_baselines(problem)) * (1 + 1e-9)


@pytest.mark.parametrize("name", [n for n in names() if "Layer" in n])
def test_with_refusals_the_cut_is_a_bound_and_without_overhead_nearly_all(name: str) -> None:
    problem = placement_problem(name, refused=0.1)
    found = solve_placements(problem, tolerance=0)
    assert found is not None and (found.exact or found.gap < 1e-3)
    check(problem, found.placements)
    cut = minimum_cut(problem)
    assert cut is not None and cut.ns <= found.ns
    free = replace(problem, overhead_ns=np.zeros(2))
    without = solve_placements(free, tolerance=0)
    assert without is not None and (without.exact or without.gap < 1e-3)
    assert total_ns(free, without.placements) == pytest.approx(without.ns)
    # A value that comes back into a second region is paid twice there, and once by the cut.
    assert cut.ns <= without.ns * (1 + 1e-6) <= cut.ns * 1.01
