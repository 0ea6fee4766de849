"""Simulated queues of frames against what can be worked out by hand, and against bounds."""

import random

import numpy as np
import pytest

from nnapi_prof.bundle.plan_set import PlanChoice, PlanSet, SelectionRule
from nnapi_prof.graph.plan import CPU, Preference, Target
from nnapi_prof.partition.lanes import LaneStep, make_lanes
from nnapi_prof.partition.queues import Dispatch, plan_of_frame, simulate

GPU = Target.nnapi("gpu", Preference.FAST_SINGLE_ANSWER)
OLDEST = Dispatch.OLDEST


def test_frames_take_plans_as_a_bundle_selects_them() -> None:
    shares = (0.6, 0.3, 0.1)
    choices = tuple(PlanChoice(plan, share=share) for plan, share in enumerate(shares))
    plans = PlanSet(SelectionRule.MIXTURE, choices)
    assert [plan_of_frame(shares, f) for f in range(500)] == [plans.select(f) for f in range(500)]


def test_one_frame_in_flight_takes_its_steps_one_after_the_other() -> None:
    lanes = make_lanes((CPU, GPU), 1.3)
    figures = simulate(
        lanes, [(LaneStep(0, 3.0), LaneStep(1, 5.0), LaneStep(0, 1.0))], (1.0,), 1, OLDEST
    )
    assert figures.period_ns == pytest.approx(9.0)
    assert figures.latency_ns == pytest.approx((9.0, 9.0, 9.0))


def test_a_pipeline_runs_at_its_slowest_stage() -> None:
    way = (LaneStep(0, 4.0), LaneStep(1, 5.0))
    assert simulate(make_lanes((CPU, GPU), 1.0), [way], (1.0,), 2, OLDEST).period_ns == 5.0
    slowed = simulate(make_lanes((CPU, GPU), 1.1), [way], (1.0,), 4, OLDEST)
    assert slowed.period_ns == pytest.approx(5.0 + 0.1 * 4.0)


def test_frames_in_turn_keep_both_lanes_busy() -> None:
    lanes = make_lanes((CPU, GPU), 1.0)
    ways = [(LaneStep(0, 6.0),), (LaneStep(1, 3.0),)]
    figures = simulate(lanes, ways, (1 / 3, 2 / 3), 8, OLDEST)
    assert figures.period_ns == pytest.approx(2.0, rel=0.02)
    assert figures.latency_ns[0] <= 8 * 2.0 * 1.02


@pytest.mark.parametrize("dispatch", list(Dispatch))
def test_no_queue_betters_the_time_that_lanes_are_busy(dispatch: Dispatch) -> None:
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
        alone = sum(
            share * sum(step.ns for step in way) for share, way in zip(shares, ways, strict=True)
        )
        assert periods[0] == pytest.approx(alone, rel=0.1)


def test_a_lane_takes_the_frame_that_keeps_the_other_one_busy() -> None:
    lanes = make_lanes((CPU, GPU), 1.0)
    ways = [(LaneStep(0, 1.0), LaneStep(1, 8.0)), (LaneStep(1, 1.0), LaneStep(0, 8.0))]
    oldest, shortest = (simulate(lanes, ways, (0.5, 0.5), 4, d).period_ns for d in Dispatch)
    assert shortest == pytest.approx(4.5, rel=0.01) and oldest > 5.5


def test_the_cpu_stands_still_while_an_accelerator_moves_values() -> None:
    lanes = make_lanes((CPU, GPU), 1.5)
    ways = [(LaneStep(0, 6.0),), (LaneStep(1, 3.0, 1.0, 0.5),)]
    figures = simulate(lanes, ways, (1 / 3, 2 / 3), 8, OLDEST)
    # Of 3 ns of a frame there 1.5 move; for 6 ns here two such frames slow both lanes, 1.5 times.
    assert figures.period_ns == pytest.approx((2 * (1.5 + 1.5 * 1.5) + (6 - 3)) / 3, rel=0.03)
    alone = simulate(lanes, ways[1:], (1.0,), 1, OLDEST)
    assert alone.latency_ns == pytest.approx((3.0,) * 3)


def test_plans_without_work_take_no_time() -> None:
    assert simulate(make_lanes((CPU,), 1.0), [()], (1.0,), 2, OLDEST).period_ns == 0.0
