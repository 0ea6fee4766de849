"""One call of the partitioner: best plan, plan to ship, curve, warm starts, limits and Ctrl-C."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from nnapi_prof.graph.plan import CPU, ProofKind
from nnapi_prof.partition import (
    Constraints,
    Partitioning,
    Problem,
    SearchLimits,
    Watch,
    baselines,
    evaluate,
    is_optimum,
    plan_problem,
)
from tests.partition.pairs import optimum
from tests.partition.problems import draw_problem, stem_problem

WIDE = stem_problem(24, length=2)


def check(problem: Problem, answer: Partitioning) -> None:
    for plan in (answer.best, answer.default):
        assert evaluate(problem, plan.segments) == pytest.approx(plan.predicted_ns)
        assert plan.name == "dp" and plan.notes and plan.proof == answer.best.proof
    proof = answer.best.proof
    assert proof is not None and proof.least_ns == pytest.approx(answer.best.predicted_ns)
    assert proof.bound_ns <= proof.least_ns
    assert proof.found_by and proof.bounded_by


def test_the_plan_to_ship_needs_no_curve() -> None:
    problem = draw_problem(11, 8)
    answer = plan_problem(problem, with_curve=False)
    assert answer.curve == () and answer.default == plan_problem(problem).default


def test_the_plan_to_ship_says_what_it_gives_up() -> None:
    lucky = {(frozenset({0, 1}), 0): 198.0, (frozenset({2, 3}), 0): 199.0}
    chain = Problem(
        labels=tuple(f"u{u}" for u in range(4)),
        predecessors=((), (0,), (1,), (2,)),
        values=(),
        targets=(CPU,),
        unit_ns=np.full((4, 1), 100.0),
        overhead_ns=np.zeros(1),
        in_ns_per_byte=np.zeros(1),
        out_ns_per_byte=np.zeros(1),
        region_ns=lucky,
    )
    answer = plan_problem(chain)
    assert len(answer.best.segments) == 2 and len(answer.default.segments) == 1
    assert "2 segments, this plan 1, for 0.8% more latency" in answer.default.notes[0]


def test_a_warm_start_gives_no_worse_plan() -> None:
    hasty = SearchLimits(effort=2e5)
    cold = plan_problem(WIDE, limits=SearchLimits(seconds=60.0, effort=4e6))
    assert cold.warm.plans
    costlier = replace(WIDE, unit_ns=WIDE.unit_ns * 1.01)
    bound = min(
        sum(costlier.segment_ns(units, costlier.target_index(t)) for units, t in plan)
        for plan in cold.warm.plans
    )
    warm = plan_problem(costlier, limits=hasty, warm=cold.warm)
    check(costlier, warm)
    assert warm.best.predicted_ns <= bound * (1 + 1e-9)


def test_a_warm_start_with_a_target_that_is_gone_does_no_harm() -> None:
    for seed in range(30):
        problem = draw_problem(seed, 7)
        warm = plan_problem(problem).warm
        fewer = replace(
            problem,
            targets=problem.targets[:1],
            unit_ns=problem.unit_ns[:, :1],
            overhead_ns=problem.overhead_ns[:1],
            in_ns_per_byte=problem.in_ns_per_byte[:1],
            out_ns_per_byte=problem.out_ns_per_byte[:1],
            region_ns={(units, k): ns for (units, k), ns in problem.region_ns.items() if k == 0},
        )
        least = optimum(fewer)
        if math.isfinite(least):
            answer = plan_problem(fewer, warm=warm)
            assert answer.best.predicted_ns == pytest.approx(least, rel=2e-6), seed


def test_hardly_any_time_still_gives_a_plan_with_a_bound() -> None:
    best = plan_problem(WIDE, limits=SearchLimits(seconds=60.0, effort=4e6), with_curve=False).best
    for seconds in (0.0, 1e-9, 0.05):
        answer = plan_problem(WIDE, limits=SearchLimits(seconds=seconds))
        check(WIDE, answer)
        proof = answer.best.proof
        assert proof is not None and proof.kind is ProofKind.GAP and not is_optimum(answer.best)
        assert proof.bound_ns <= best.predicted_ns <= proof.least_ns * (1 + 1e-9)
        assert "no plan at all is faster than" in answer.best.notes[0]


def stop_after(reports: int) -> Callable[[Watch], None]:
    """Ctrl-C, once: whoever is told raises it at that report."""
    left = [reports]

    def report(watch: Watch) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    return report


def test_ctrl_c_during_the_search_keeps_the_best_plan() -> None:
    answer = plan_problem(WIDE, report=stop_after(2))
    check(WIDE, answer)
    assert answer.interrupted and not is_optimum(answer.best)
    fastest = min(rival.predicted_ns for rival in baselines(WIDE))
    assert answer.default.predicted_ns <= fastest * (1 + 1e-9)


@pytest.mark.parametrize(
    "constraints",
    [None, Constraints(max_regions=2)],
    ids=["free", "constrained"],
)
def test_ctrl_c_keeps_the_best_plan_wherever_it_comes(constraints: Constraints | None) -> None:
    problem = stem_problem(9, length=2)
    seen: list[str] = []
    plan_problem(problem, constraints=constraints, report=lambda watch: seen.append(watch.stage))
    assert len(seen) > 3
    for reports in sorted({1, 2, 3, len(seen) // 2, len(seen) - 1, len(seen)}):
        try:
            answer = plan_problem(problem, constraints=constraints, report=stop_after(reports))
        except KeyboardInterrupt:  # as such it would end all tests
            pytest.fail(f"Ctrl-C at report {reports} of {len(seen)} loses the plan")
        check(problem, answer)
        assert answer.interrupted, reports
        assert math.isfinite(answer.best.predicted_ns)
