"""Programmes over phases, against every plan of small graphs."""

import pytest

from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.search.windows import solve_phases
from tests.partition.problems import check_plan, drawn, every_plan


@pytest.mark.slow
@pytest.mark.parametrize("formats", [False, True])
def test_a_chain_of_two_targets_gives_the_best_of_its_plans(formats: bool) -> None:
    for seed, problem, _ in drawn(40, 6, formats=formats, regions=False):
        if len(problem.targets) < 2:
            continue
        plan = solve_phases(problem, [0, 1, 0], 60.0)
        assert plan is not None
        check_plan(problem, plan)
        least = min(
            total_ns(problem, rival)
            for rival in every_plan(problem)
            if [k for _, k in rival] in ([0], [1], [0, 1], [1, 0], [0, 1, 0])
        )
        assert total_ns(problem, plan) == pytest.approx(least, rel=1e-5), seed
