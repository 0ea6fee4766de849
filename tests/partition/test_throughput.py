"""Plans of most frames per second against every mixture of plans; simulated queues of frames."""

import random
from functools import partial

import numpy as np
import pytest

from nnapi_prof.bundle.plan_set import PlanChoice, PlanSet, SelectionRule
from nnapi_prof.costs.model.fit import fit
from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import CPU, Preference, ProofKind, Target
from nnapi_prof.partition import SearchLimits, Watch, evaluate, plan_throughput
from nnapi_prof.partition.lanes import LaneStep, make_lanes
from nnapi_prof.partition.queues import Dispatch, FrameStrategy, plan_of_frame, simulate
from tests.partition.cases import problem_of
from tests.partition.families import cells_problem, heads_problem
from tests.partition.problems import draw_problem
from tests.partition.throughput_trial import draw_contention, judge_mixture
from tests.partition.trial import EXAMPLES
from tests.parts import again_but
from tests.reports.sample import cnn, measure


@pytest.mark.parametrize("part", again_but(range(2), 0, why="more random graphs"))
def test_mixtures_are_the_best_of_all_plans(part):
    judged = [judge_mixture(seed) for seed in range(part, EXAMPLES // 2, 2)]
    assert [wrong for wrong in judged if wrong] == []
    assert sum(wrong is not None for wrong in judged) > EXAMPLES // 20


def test_the_whole_answer_is_no_slower_than_any_rival():
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
        assert plan.curve[0].period_ns <= serial.period_ns * (1 + 1e-9)
        for point in plan.curve:
            assert point.period_ns >= plan.period_ns * (1 - 1e-9)
        for each in plan.plans:
            evaluate(problem, each.segments)


def test_a_graph_with_measured_costs_has_a_throughput():
    graph = cnn(12, (4,))
    costs = fit(graph, measure(graph, (4,)))
    plan = plan_throughput(problem_of(graph, costs), contention=1.1, frames_in_flight=4)
    assert plan.chosen.frames_in_flight <= 4
    assert plan.plans[0].simulated and plan.proof.constrained
    assert plan.frames_per_second <= plan.most_per_second
    weights = sum(unit.constant_bytes for unit in graph.units)
    assert all(point.memory_bytes >= weights for point in plan.curve)


@pytest.mark.slow
def test_limits_of_frames_latency_and_memory_are_kept():
    short = SearchLimits(seconds=1.0)
    plan = partial(plan_throughput, heads_problem(2, 0), contention=1.1, limits=short)
    free, few = plan(), plan(frames_in_flight=3)
    assert few.chosen.frames_in_flight <= 3
    assert few.frames_per_second <= free.frames_per_second * (1 + 1e-6)
    latency = few.chosen.latency_ns[1] * 0.8
    prompt = plan(max_latency_ns=latency)
    assert prompt.chosen.latency_ns[1] <= latency
    memory = few.chosen.memory_bytes // 2
    small = plan(max_memory_bytes=memory)
    assert small.chosen.memory_bytes <= memory
    with pytest.raises(PartitionError, match="one alone takes"):
        plan(max_latency_ns=1.0)
    with pytest.raises(PartitionError, match="at least 1"):
        plan(frames_in_flight=0)
    oldest = plan(frames_in_flight=4, dispatches=[Dispatch.OLDEST])
    assert {point.dispatch for point in oldest.curve} == {Dispatch.OLDEST}


def test_a_large_network_comes_with_a_gap():
    problem = cells_problem("nasnet", 0)
    plan = plan_throughput(problem, contention=1.1, limits=SearchLimits(seconds=4.0))
    best = plan.baseline(FrameStrategy.BEST_SINGLE)
    assert plan.frames_per_second > 1.4 * best.frames_per_second
    assert plan.proof.gap < 0.1
    assert np.array(plan.loads_ns).max() <= plan.period_ns


@pytest.mark.slow
def test_ctrl_c_keeps_the_best_until_then():
    problem = cells_problem("nasnet", 1)
    told: list[str] = []

    def interrupt(watch: Watch) -> None:
        told.append(watch.stage)
        if watch.stage == "mixture":
            raise KeyboardInterrupt

    plan = plan_throughput(problem, contention=1.1, limits=SearchLimits(2.0), report=interrupt)
    assert told.count("mixture") == 1
    assert 0.0 < plan.proof.bound_ns <= plan.period_ns


# ---- simulated queues of frames ------------------------------------------------------------------

GPU = Target.nnapi("gpu", Preference.FAST_SINGLE_ANSWER)
OLDEST = Dispatch.OLDEST


def test_frames_take_plans_as_a_bundle_selects_them():
    shares = (0.6, 0.3, 0.1)
    choices = tuple(PlanChoice(plan, share=share) for plan, share in enumerate(shares))
    plans = PlanSet(SelectionRule.MIXTURE, choices)
    assert [plan_of_frame(shares, f) for f in range(500)] == [plans.select(f) for f in range(500)]


def test_one_frame_in_flight_takes_its_steps_one_after_the_other():
    way = LaneStep(0, 3.0), LaneStep(1, 5.0), LaneStep(0, 1.0)
    figures = simulate(make_lanes((CPU, GPU), 1.3), [way], (1.0,), 1, OLDEST)
    assert figures.period_ns == pytest.approx(9.0)
    assert figures.latency_ns == pytest.approx((9.0, 9.0, 9.0))
    assert simulate(make_lanes((CPU,), 1.0), [()], (1.0,), 2, OLDEST).period_ns == 0.0


def test_a_pipeline_runs_at_its_slowest_stage_and_frames_in_turn_keep_both_lanes_busy():
    lanes, way = make_lanes((CPU, GPU), 1.0), (LaneStep(0, 4.0), LaneStep(1, 5.0))
    assert simulate(lanes, [way], (1.0,), 2, OLDEST).period_ns == 5.0
    slowed = simulate(make_lanes((CPU, GPU), 1.1), [way], (1.0,), 4, OLDEST)
    assert slowed.period_ns == pytest.approx(5.0 + 0.1 * 4.0)
    ways = [(LaneStep(0, 6.0),), (LaneStep(1, 3.0),)]
    figures = simulate(lanes, ways, (1 / 3, 2 / 3), 8, OLDEST)
    assert figures.period_ns == pytest.approx(2.0, rel=0.02)
    assert figures.latency_ns[0] <= 8 * 2.0 * 1.02


@pytest.mark.parametrize("dispatch", list(Dispatch))
def test_no_queue_betters_the_time_that_lanes_are_busy(dispatch):
    for seed in range(10):
        chance = random.Random(seed)
        targets = (CPU, GPU, Target.nnapi("npu", Preference.LOW_POWER))[: chance.randint(1, 3)]
        lanes = make_lanes(targets, chance.choice((1.0, 1.1, 1.4)))
        ways = []
        for _ in range(chance.randint(1, 3)):
            steps = []
            for _ in range(chance.randint(1, 6)):
                lane, ns = chance.randrange(lanes.count), chance.uniform(0.5, 9.0)
                moved = (chance.uniform(0, 0.3) * ns, chance.uniform(0, 0.3) * ns) if lane else ()
                steps.append(LaneStep(lane, ns, *moved))
            ways.append(tuple(steps))
        shares = np.array([chance.uniform(0.1, 1.0) for _ in ways])
        shares /= shares.sum()
        own, moved = np.zeros((2, lanes.count))
        for share, way in zip(shares, ways, strict=True):
            for step in way:
                own[step.lane] += share * step.ns
                moved[0] += share * (step.into_ns + step.out_ns)
        # Values that move slow no other lane down but the CPU.
        least = max(lanes.busy_ns(own), float((own + moved).max()))
        periods = []
        for in_flight in (1, 2, 4, 16):
            figures = simulate(lanes, ways, tuple(shares), in_flight, dispatch)
            assert figures == simulate(lanes, ways, tuple(shares), in_flight, dispatch)
            assert figures.period_ns >= least * 0.98
            assert figures.latency_ns == tuple(sorted(figures.latency_ns))
            # Little: frames in flight are rate times latency, here of the mean.
            assert figures.latency_ns[2] >= figures.period_ns * in_flight * 0.9
            periods.append(figures.period_ns)
        # Accelerators that move values at the same time wait for each other.
        assert periods[-1] <= lanes.busy_ns(own + moved) * 1.2
        assert periods[0] == pytest.approx(own.sum(), rel=0.1)


def test_a_lane_takes_the_frame_that_keeps_the_other_one_busy():
    lanes = make_lanes((CPU, GPU), 1.0)
    ways = [(LaneStep(0, 1.0), LaneStep(1, 8.0)), (LaneStep(1, 1.0), LaneStep(0, 8.0))]
    oldest, shortest = (simulate(lanes, ways, (0.5, 0.5), 4, d).period_ns for d in Dispatch)
    assert shortest == pytest.approx(4.5, rel=0.01) and oldest > 5.5


def test_the_cpu_stands_still_while_an_accelerator_moves_values():
    lanes = make_lanes((CPU, GPU), 1.5)
    ways = [(LaneStep(0, 6.0),), (LaneStep(1, 3.0, 1.0, 0.5),)]
    figures = simulate(lanes, ways, (1 / 3, 2 / 3), 8, OLDEST)
    # Of 3 ns of a frame there 1.5 move; for 6 ns here two such frames slow both lanes, 1.5 times.
    assert figures.period_ns == pytest.approx((2 * (1.5 + 1.5 * 1.5) + (6 - 3)) / 3, rel=0.03)
    alone = simulate(lanes, ways[1:], (1.0,), 1, OLDEST)
    assert alone.latency_ns == pytest.approx((3.0,) * 3)
