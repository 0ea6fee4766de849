"""Plans of most frames per second against every mixture of every plan, and against their rivals."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from nnapi_prof.costs.model.fit import fit
from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import ProofKind
from nnapi_prof.partition import SearchLimits, Watch, evaluate, plan_throughput
from nnapi_prof.partition.flights import RateRule
from nnapi_prof.partition.lanes import make_lanes, on_lanes
from nnapi_prof.partition.mixture import best_mixture
from nnapi_prof.partition.problem import Problem
from nnapi_prof.partition.queues import Dispatch
from nnapi_prof.partition.search.anytime import search
from nnapi_prof.partition.throughput import throughput_of
from tests.partition.drawing import draw_case
from tests.partition.families import cells_problem, heads_problem
from tests.partition.lanes_judge import all_loads, lane_names, least_bottleneck
from tests.partition.precisions import with_formats
from tests.partition.problems import draw_problem
from tests.partition.trial import EXAMPLES
from tests.reports.sample import cnn, measure


def draw_small(seed: int) -> Problem | None:
    """A problem of up to seven units; None where the draw has more, or no processor."""
    problem = draw_problem(seed, 7) if seed % 2 else draw_case(f"lanes/{seed}").problem
    if problem.n <= 5 and seed % 4 == 1:
        problem = with_formats(problem, seed)
    return problem if problem.n <= 7 and lane_names(problem) else None


def draw_contention(
    problem: Problem, chance: random.Random
) -> float | dict[tuple[str, str], float]:
    names = lane_names(problem)
    if chance.random() < 0.5:
        return chance.choice((1.0, 1.1, 1.3, 2.5))
    pairs = [(a, b) for a in names for b in names if a != b]
    return {pair: chance.choice((1.0, 1.1, 1.3, 1.8, 3.0)) for pair in pairs}


@pytest.mark.parametrize("part", range(2))
def test_mixtures_are_the_best_of_all_plans(part: int) -> None:
    judged = 0
    for seed in range(part, EXAMPLES // 2, 2):
        problem = draw_small(seed)
        if problem is None:
            continue
        contention = draw_contention(problem, random.Random(seed))
        lanes = make_lanes(problem.targets, contention)
        try:
            problem = on_lanes(problem, lanes)
        except PartitionError:
            continue
        known = search(problem, Watch(SearchLimits(seconds=20.0)))
        loads = all_loads(problem)
        assert (known is None) == (not loads)
        if known is None:
            continue
        truth = least_bottleneck(loads, lanes.slowdown)
        result = best_mixture(problem, lanes, Watch(SearchLimits(seconds=20.0)), known.plans)
        judged += 1
        assert result.is_optimal, seed
        assert result.mixture.busy_ns == pytest.approx(truth, rel=1e-5, abs=1e-12), seed
        assert result.bound_ns <= truth * (1 + 1e-6), seed
        assert len(result.mixture.columns) <= lanes.count
        assert math.fsum(result.mixture.shares) == pytest.approx(1.0)
    assert judged > EXAMPLES // 20


def test_the_whole_answer_is_no_slower_than_any_rival() -> None:
    for seed in range(1, 30, 2):
        problem = draw_problem(seed, 7)
        contention = draw_contention(problem, random.Random(seed))
        plan = throughput_of(problem, contention=contention)
        least = min(rate.period_ns for rate in plan.baselines)
        assert plan.period_ns <= least * (1 + 1e-9)
        assert plan.proof.bound_ns <= plan.period_ns * (1 + 1e-9)
        assert plan.proof.kind is ProofKind.BOUND_MET and plan.chosen is None
        assert plan.most_per_second >= plan.frames_per_second * (1 - 1e-9)
        serial = plan.baseline(RateRule.SERIAL)
        assert serial is not None and plan.curve[0].period_ns <= serial.period_ns * (1 + 1e-9)
        for point in plan.curve:
            assert point.period_ns >= plan.period_ns * (1 - 1e-9)
        for each in plan.plans:
            evaluate(problem, each.segments)


def test_a_graph_with_measured_costs_has_a_throughput() -> None:
    graph = cnn(12, (4,))
    costs = fit(graph, measure(graph, (4,)))
    plan = plan_throughput(graph, costs, contention=1.1, frames_in_flight=4)
    assert plan.chosen is not None and plan.chosen.frames_in_flight <= 4
    assert plan.plans[0].simulated and plan.proof.constrained
    assert plan.frames_per_second <= plan.most_per_second
    weights = sum(unit.constant_bytes for unit in graph.units)
    assert all(point.memory_bytes >= weights for point in plan.curve)


def test_limits_of_frames_latency_and_memory_are_kept() -> None:
    problem = heads_problem(2, 0)
    short = SearchLimits(seconds=2.0)
    free = throughput_of(problem, contention=1.1, limits=short)
    few = throughput_of(problem, contention=1.1, frames_in_flight=3, limits=short)
    assert few.chosen is not None and few.chosen.frames_in_flight <= 3
    assert few.frames_per_second <= free.frames_per_second * (1 + 1e-6)
    latency = few.chosen.latency_ns[1] * 0.8
    prompt = throughput_of(problem, contention=1.1, max_latency_ns=latency, limits=short)
    assert prompt.chosen is not None and prompt.chosen.latency_ns[1] <= latency
    memory = few.chosen.memory_bytes // 2
    small = throughput_of(problem, contention=1.1, max_memory_bytes=memory, limits=short)
    assert small.chosen is not None and small.chosen.memory_bytes <= memory
    with pytest.raises(PartitionError, match="one alone takes"):
        throughput_of(problem, contention=1.1, max_latency_ns=1.0, limits=short)
    with pytest.raises(PartitionError, match="1 at least"):
        throughput_of(problem, contention=1.1, frames_in_flight=0)
    oldest = throughput_of(
        problem, contention=1.1, frames_in_flight=4, dispatches=[Dispatch.OLDEST], limits=short
    )
    assert {point.dispatch for point in oldest.curve} == {Dispatch.OLDEST}


def test_a_large_network_comes_with_a_gap() -> None:
    problem = cells_problem("nasnet", 0)
    plan = throughput_of(problem, contention=1.1, limits=SearchLimits(seconds=4.0))
    best = plan.baseline(RateRule.BEST_SINGLE)
    assert best is not None and plan.frames_per_second > 1.4 * best.frames_per_second
    assert plan.proof.gap < 0.1
    assert np.array(plan.loads_ns).max() <= plan.period_ns


def test_ctrl_c_keeps_the_best_until_then() -> None:
    problem = cells_problem("nasnet", 1)
    told: list[str] = []

    def interrupt(watch: Watch) -> None:
        told.append(watch.stage)
        if watch.stage == "mixture":
            raise KeyboardInterrupt

    plan = throughput_of(problem, contention=1.1, limits=SearchLimits(4.0), report=interrupt)
    assert told.count("mixture") == 1
    assert 0.0 < plan.proof.bound_ns <= plan.period_ns
