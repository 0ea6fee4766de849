"""Lanes: what plans load them with, prices of their time, and how long they are busy."""

import random
from dataclasses import replace

import numpy as np
import pytest

from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import CPU, HOST, Preference, Target
from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.lanes import (
    NO_LANE,
    LaneStep,
    loads_of,
    make_lanes,
    moved_ns,
    on_lanes,
    priced,
    steps_of,
)
from tests.partition.lanes_judge import least_bottleneck, region_loads
from tests.partition.problems import TARGETS, draw_plan, draw_problem

FAST, LOW = Preference.FAST_SINGLE_ANSWER, Preference.LOW_POWER
NPU, NPU_LOW, GPU = Target.nnapi("npu", FAST), Target.nnapi("npu", LOW), Target.nnapi("gpu", FAST)
AUTO = Target.nnapi("auto", FAST)


def test_a_lane_is_the_cpu_or_an_accelerator_whatever_its_preference_and_precision() -> None:
    targets = (GPU, CPU, NPU, NPU_LOW, Target("nnapi:npu/fast@relaxed"), AUTO, HOST)
    lanes = make_lanes(targets, 1.0)
    assert lanes.names == ("cpu", "gpu", "npu")
    assert lanes.of_target.tolist() == [1, 0, 2, 2, 2, NO_LANE, NO_LANE]
    assert lanes.mover == 0 and make_lanes((GPU,), 1.0).mover == NO_LANE


@pytest.mark.parametrize(
    ("contention", "words"),
    [
        (0.9, "at least 1"),
        (float("nan"), "at least 1"),
        ({("cpu", "gpu"): 1.1}, "the processors are cpu, npu"),
        ({("cpu", "cpu"): 1.1}, "beside cpu"),
        ({("cpu", "npu"): 0.5}, "cpu beside npu is 0.5"),
    ],
)
def test_contention_that_is_none_is_refused(contention: object, words: str) -> None:
    with pytest.raises(PartitionError, match=words):
        make_lanes((CPU, NPU), contention)  # type: ignore[arg-type]


def test_without_a_processor_there_are_no_lanes() -> None:
    with pytest.raises(PartitionError, match="measure the CPU"):
        make_lanes((AUTO, HOST), 1.0)


def test_what_runs_on_no_lane_has_nowhere_to_go() -> None:
    problem = replace(draw_problem(1, 4, regions=False), targets=(HOST,))
    problem = replace(
        problem,
        targets=(HOST, CPU),
        unit_ns=np.array([[1.0, 1.0]] * (problem.n - 1) + [[1.0, np.inf]]),
        overhead_ns=np.zeros(2),
        in_ns_per_byte=np.zeros(2),
        out_ns_per_byte=np.zeros(2),
    )
    with pytest.raises(PartitionError, match="can run on no target"):
        on_lanes(problem, make_lanes(problem.targets, 1.0))


def test_loads_are_sums_and_prices_of_lanes_make_a_problem_of_the_same_kind() -> None:
    for seed in range(120):
        chance = random.Random(seed)
        problem = draw_problem(seed, 7)
        if not np.isfinite(problem.unit_ns).any(axis=1).all():
            continue
        lanes = make_lanes(problem.targets, 1.1)
        plan = draw_plan(problem, chance)
        loads = loads_of(problem, lanes, plan)
        if not np.isfinite(loads).all():
            continue
        own = region_loads(problem)
        told = [own[sum(1 << u for u in units), k] for units, k in plan]
        assert loads == pytest.approx(np.sum(told, axis=0))
        prices = np.array([chance.choice((0.0, 0.3, 1.0)) for _ in lanes.names])
        weighted = priced(problem, lanes, prices)
        assert total_ns(weighted, plan) == pytest.approx(float(prices @ loads))
        assert np.isfinite(weighted.unit_ns).tolist() == np.isfinite(problem.unit_ns).tolist()


def test_a_hand_over_between_accelerators_loads_both_and_the_cpu_twice() -> None:
    problem = replace(
        draw_problem(3, 2, regions=False, fewest_units=2),
        targets=TARGETS[:3],
        unit_ns=np.full((2, 3), 10.0),
        overhead_ns=np.array([0.0, 2.0, 3.0]),
        in_ns_per_byte=np.array([0.0, 1.0, 2.0]),
        out_ns_per_byte=np.array([0.0, 4.0, 5.0]),
    )
    problem = replace(
        problem,
        predecessors=((), (0,)),
        values=(replace(problem.values[-1], producer=0, readers=(1,), n_bytes=7, is_output=False),),
    )
    lanes = make_lanes(problem.targets, 1.0)
    plan = (((0,), 1), ((1,), 2))
    assert moved_ns(problem, lanes, plan[0]) == (0.0, 28.0)
    assert moved_ns(problem, lanes, plan[1]) == (14.0, 0.0)
    assert loads_of(problem, lanes, plan).tolist() == [42.0, 40.0, 27.0]
    assert steps_of(problem, lanes, plan) == (
        LaneStep(1, 40.0, 0.0, 28.0),
        LaneStep(2, 27.0, 14.0, 0.0),
    )
    measured = replace(problem, region_ns={(frozenset({0}), 1): 14.0})
    assert moved_ns(measured, lanes, plan[0]) == (0.0, 14.0)


def test_two_lanes_are_busy_for_the_larger_load_and_what_the_smaller_one_slows() -> None:
    for factor in (1.0, 1.1, 1.5):
        lanes = make_lanes((CPU, NPU), factor)
        busy = lanes.busy_ns(np.array([30.0, 100.0]))
        assert busy == pytest.approx(100.0 + (factor - 1) * 30.0)
    turns = make_lanes((CPU, NPU), 3.0)  # better never at once
    assert turns.busy_ns(np.array([30.0, 100.0])) == pytest.approx(130.0)
    uneven = make_lanes((CPU, NPU), {("cpu", "npu"): 1.5, ("npu", "cpu"): 1.2})
    # The CPU needs 1.5 ns for each of its own while the NPU does 1 / 1.2: 45 ns, 37.5 of the NPU's.
    assert uneven.busy_ns(np.array([30.0, 100.0])) == pytest.approx(45.0 + 62.5)


def test_one_factor_for_all_pairs_adds_the_others_loads() -> None:
    lanes = make_lanes((CPU, NPU, GPU), 1.2)
    assert lanes.busy_ns(np.array([10.0, 50.0, 20.0])) == pytest.approx(50.0 + 0.2 * 30.0)


def test_the_judge_agrees_on_busy_lanes() -> None:
    chance = random.Random(0)
    for _ in range(60):
        names = [CPU, NPU, GPU, Target.nnapi("dsp", FAST)][: chance.randint(1, 4)]
        keys = make_lanes(names, 1.0).names
        pairs = {(a, b): chance.uniform(1, 2.5) for a in keys for b in keys if a != b}
        lanes = make_lanes(names, pairs)
        loads = [chance.choice((0.0, chance.uniform(0, 9))) for _ in names]
        truth = least_bottleneck([tuple(loads)], lanes.slowdown)
        assert lanes.busy_ns(np.array(loads)) == pytest.approx(truth, abs=1e-9)
