"""Real graphs of up to 604 nodes: the search against the MILP and the minimum cut."""

from dataclasses import replace

import numpy as np
import pytest

from nnapi_prof.partition.baselines import find_baselines, total_ns
from nnapi_prof.partition.problem import Problem
from nnapi_prof.partition.search import SearchLimits, SearchResult, Watch
from nnapi_prof.partition.search.anytime import search
from nnapi_prof.partition.search.minimum_cut import minimum_cut
from tests.partition.milp import least_by_milp
from tests.partition.placement_graphs import names, placement_problem
from tests.partition.problems import check_plan
from tests.parts import again_but


def searched(problem: Problem) -> SearchResult:
    result = search(problem, Watch(SearchLimits(seconds=60.0)))
    check_plan(problem, result.placements)
    return result


@pytest.mark.slow
@pytest.mark.parametrize("name", again_but(names(), *names()[:2], why="larger graphs"))
def test_search_and_milp_agree(name):
    problem = placement_problem(name)
    result = searched(problem)
    assert result.gap < 0.01
    assert result.ns == pytest.approx(least_by_milp(problem, result.ns), rel=1e-6)
    assert result.ns <= min(b.predicted_ns for b in find_baselines(problem)) * (1 + 1e-9)


@pytest.mark.parametrize("name", [n for n in names() if "Layer" in n])
def test_with_refusals_the_cut_is_a_bound_and_without_overhead_nearly_all(name):
    problem = placement_problem(name, refused=0.1)
    result = searched(problem)
    assert result.gap < 1e-3
    cut = minimum_cut(problem)
    assert cut.ns <= result.ns
    free = replace(problem, overhead_ns=np.zeros(2))
    without = searched(free)
    assert without.gap < 1e-3
    assert total_ns(free, without.placements) == pytest.approx(without.ns)
    # A value that comes back into a second region is paid twice there, and once by the cut.
    cut = minimum_cut(free)
    assert cut.ns <= without.ns * (1 + 1e-6) <= cut.ns * 1.01
