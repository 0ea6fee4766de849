"""Plans of most frames per second against every mixture of every plan, and against their rivals."""

import random
from functools import partial

import numpy as np
import pytest

from nnapi_prof.costs.model.fit import fit
from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import ProofKind
from nnapi_prof.partition import SearchLimits, Watch, evaluate, plan_throughput
from nnapi_prof.partition.queues import Dispatch, FrameStrategy
from tests.partition.cases import problem_of
from tests.partition.families import cells_problem, heads_problem
from tests.partition.problems import draw_problem
from tests.partition.throughput_trial import draw_contention, judge_mixture
from tests.partition.trial import EXAMPLES
from tests.parts import again_but
from tests.reports.sample import cnn, measure


@pytest.mark.parametrize("part", again_but(range(2), 0, why="more random graphs"))
def test_mixtures_are_the_best_of_all_plans(part: int) -> None:
    judged = [judge_mixture(seed) for seed in range(part, EXAMPLES // 2, 2)]
    assert [wrong for wrong in judged if wrong] == []
    assert sum(wrong is not None for wrong in judged) > EXAMPLES // 20


def test_the_whole_answer_is_no_slower_than_any_rival() -> None:
    for seed in range(1, 30, 4):
        problem = draw_problem(seed, 7)
        contention = draw_contention(problem, random.Random(seed))
        plan = plan_throughput(problem, contention=contention)
        least = min(rate.period_ns for rate in plan.baselines)
        assert plan.period_ns <= least * (1 + 1e-9)
        assert plan.proof.bound_ns <= plan.period_ns * (1 + 1e-9)
        assert plan.proof.kind is ProofKind.BOUND_MET and plan.chosen is None
        assert plan.most_per_second >= plan.frames_per_second * (1 - 1e-9)
        serial = plan.baseline(FrameStrategy.SERIAL)
        assert serial is not None and plan.curve[0].period_ns <= serial.period_ns * (1 + 1e-9)
        for point in plan.curve:
            assert point.period_ns >= plan.period_ns * (1 - 1e-9)
        for each in plan.plans:
            evaluate(problem, each.segments)


def test_a_graph_with_measured_costs_has_a_throughput() -> None:
    graph = cnn(12, (4,))
    costs = fit(graph, measure(graph, (4,)))
    plan = plan_throughput(problem_of(graph, costs), contention=1.1, frames_in_flight=4)
    assert plan.chosen is not None and plan.chosen.frames_in_flight <= 4
    assert plan.plans[0].simulated and plan.proof.constrained
    assert plan.frames_per_second <= plan.most_per_second
    weights = sum(unit.constant_bytes for unit in graph.units)
    assert all(point.memory_bytes >= weights for point in plan.curve)


@pytest.mark.slow
def test_limits_of_frames_latency_and_memory_are_kept() -> None:
    short = SearchLimits(seconds=1.0)
    plan = partial(plan_throughput, heads_problem(2, 0), contention=1.1, limits=short)
    free, few = plan(), plan(frames_in_flight=3)
    assert few.chosen is not None and few.chosen.frames_in_flight <= 3
    assert few.frames_per_second <= free.frames_per_second * (1 + 1e-6)
    latency = few.chosen.latency_ns[1] * 0.8
    prompt = plan(max_latency_ns=latency)
    assert prompt.chosen is not None and prompt.chosen.latency_ns[1] <= latency
    memory = few.chosen.memory_bytes // 2
    small = plan(max_memory_bytes=memory)
    assert small.chosen is not None and small.chosen.memory_bytes <= memory
    with pytest.raises(PartitionError, match="one alone takes"):
        plan(max_latency_ns=1.0)
    with pytest.raises(PartitionError, match="at least 1"):
        plan(frames_in_flight=0)
    oldest = plan(frames_in_flight=4, dispatches=[Dispatch.OLDEST])
    assert {point.dispatch for point in oldest.curve} == {Dispatch.OLDEST}


def test_a_large_network_comes_with_a_gap() -> None:
    problem = cells_problem("nasnet", 0)
    plan = plan_throughput(problem, contention=1.1, limits=SearchLimits(seconds=4.0))
    best = plan.baseline(FrameStrategy.BEST_SINGLE)
    assert best is not None and plan.frames_per_second > 1.4 * best.frames_per_second
    assert plan.proof.gap < 0.1
    assert np.array(plan.loads_ns).max() <= plan.period_ns


@pytest.mark.slow
def test_ctrl_c_keeps_the_best_until_then() -> None:
    problem = cells_problem("nasnet", 1)
    told: list[str] = []

    def interrupt(watch: Watch) -> None:
        told.append(watch.stage)
        if watch.stage == "mixture":
            raise KeyboardInterrupt

    plan = plan_throughput(problem, contention=1.1, limits=SearchLimits(2.0), report=interrupt)
    assert told.count("mixture") == 1
    assert 0.0 < plan.proof.bound_ns <= plan.period_ns
