"""Programmes over phases, against every plan of small graphs."""

import pytest

from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.search.windows import solve_phases
from tests.partition.precisions import with_formats
from tests.partition.problems import check_plan, draw_problem, every_plan


@pytest.mark.slow
@pytest.mark.parametrize("converts", [False, True])
def test_a_chain_of_two_targets_gives_the_best_of_its_plans(converts: bool) -> None:
    for seed in range(40):
        problem = draw_problem(seed, 6, regions=False)
        problem = with_formats(problem, seed) if converts else problem
        if len(problem.targets) < 2:
            continue
        plan = solve_phases(problem, [0, 1, 0], 60.0)
        assert plan is not None
        check_plan(problem, plan)
        rivals = [
            total_ns(problem, rival)
            for rival in every_plan(problem)
            if [k for _, k in rival] in ([0], [1], [0, 1], [1, 0], [0, 1, 0])
        ]
        assert total_ns(problem, plan) == pytest.approx(min(rivals), rel=1e-5), seed
