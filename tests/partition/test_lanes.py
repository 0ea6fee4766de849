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
from tests.partition.networks import problem_on
from tests.partition.problems import drawn

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


def test_without_a_processor_there_are_no_lanes_and_nowhere_to_go() -> None:
    with pytest.raises(PartitionError, match="measure the CPU"):
        make_lanes((AUTO, HOST), 1.0)
    problem = problem_on([[], [0]], [[1, 1], [1, np.inf]], targets=(HOST, CPU))
    with pytest.raises(PartitionError, match="can run on no target"):
        on_lanes(problem, make_lanes(problem.targets, 1.0))


def test_loads_are_sums_and_prices_of_lanes_make_a_problem_of_the_same_kind() -> None:
    for seed, problem, plan in drawn(120, 7):
        lanes = make_lanes(problem.targets, 1.1)
        loads = loads_of(problem, lanes, plan)
        if not np.isfinite(loads).all():
            continue
        own = region_loads(problem)
        told = [own[sum(1 << u for u in units), k] for units, k in plan]
        assert loads == pytest.approx(np.sum(told, axis=0))
        prices = np.array(random.Random(seed).choices((0.0, 0.3, 1.0), k=lanes.count))
        weighted = priced(problem, lanes, prices)
        assert total_ns(weighted, plan) == pytest.approx(float(prices @ loads))
        assert np.isfinite(weighted.unit_ns).tolist() == np.isfinite(problem.unit_ns).tolist()


def test_a_hand_over_between_accelerators_loads_both_and_the_cpu_twice() -> None:
    problem = problem_on(
        [[], [0]],
        np.full((2, 3), 10.0),
        sizes=[7, 0],
        overhead_ns=[0, 2, 3],
        in_ns_per_byte=[0, 1, 2],
        out_ns_per_byte=[0, 4, 5],
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


@pytest.mark.parametrize(
    ("targets", "contention", "loads", "busy_ns"),
    [
        ((CPU, NPU), 1.0, [30, 100], 100.0),
        ((CPU, NPU), 1.1, [30, 100], 100.0 + 0.1 * 30),
        ((CPU, NPU), 1.5, [30, 100], 100.0 + 0.5 * 30),
        ((CPU, NPU), 3.0, [30, 100], 130.0),  # better never at once
        # The CPU needs 1.5 ns for each of its own while the NPU does 1 / 1.2: 45 ns, 37.5 of its.
        ((CPU, NPU), {("cpu", "npu"): 1.5, ("npu", "cpu"): 1.2}, [30, 100], 45.0 + 62.5),
        ((CPU, NPU, GPU), 1.2, [10, 50, 20], 50.0 + 0.2 * 30.0),
    ],
)
def test_lanes_are_busy_for_the_largest_load_and_what_the_others_slow(
    targets: tuple[Target, ...], contention: float, loads: list[float], busy_ns: float
) -> None:
    lanes = make_lanes(targets, contention)
    assert lanes.busy_ns(np.array(loads, dtype=np.float64)) == pytest.approx(busy_ns)


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
