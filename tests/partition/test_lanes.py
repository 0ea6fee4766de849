"""Processors at once: loads of lanes, schedules of one frame, most frames a second, and queues."""

import random
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from nnapi_prof.bundle.plan_set import PlanChoice, PlanSet, SelectionRule
from nnapi_prof.costs.model.fit import fit
from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import CPU, HOST, Preference, ProofKind, Target
from nnapi_prof.partition import SearchLimits, Watch, evaluate, plan_parallel, plan_throughput
from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.blocks import best_targets, find_blocks, starts_of
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
from nnapi_prof.partition.overlap import lower_bound
from nnapi_prof.partition.parallel import Scheduler, makespan, timeline
from nnapi_prof.partition.queues import Dispatch, FrameStrategy, plan_of_frame, simulate
from tests.partition import throughput_trial
from tests.partition.cases import problem_of
from tests.partition.networks import problem_on, wide_problem
from tests.partition.problems import check_plan, draw_plan, draw_problem, drawn, stem_problem
from tests.partition.trial import EXAMPLES
from tests.parts import again_but
from tests.reports.sample import cnn, measure

FAST, LOW = Preference.FAST_SINGLE_ANSWER, Preference.LOW_POWER
NPU, NPU_LOW, GPU = Target.nnapi("npu", FAST), Target.nnapi("npu", LOW), Target.nnapi("gpu", FAST)
AUTO = Target.nnapi("auto", FAST)


def test_a_lane_is_the_cpu_or_an_accelerator_whatever_its_preference_and_precision():
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
def test_contention_that_is_none_is_refused(contention, words):
    with pytest.raises(PartitionError, match=words):
        make_lanes((CPU, NPU), contention)


def test_without_a_processor_there_are_no_lanes_and_nowhere_to_go():
    with pytest.raises(PartitionError, match="measure the CPU"):
        make_lanes((AUTO, HOST), 1.0)
    problem = problem_on([[], [0]], [[1, 1], [1, np.inf]], targets=(HOST, CPU))
    with pytest.raises(PartitionError, match="can run on no target"):
        on_lanes(problem, make_lanes(problem.targets, 1.0))


def test_loads_are_sums_and_prices_of_lanes_make_a_problem_of_the_same_kind():
    for seed, problem, plan in drawn(120, 7):
        lanes = make_lanes(problem.targets, 1.1)
        loads = loads_of(problem, lanes, plan)
        if not np.isfinite(loads).all():
            continue
        own = throughput_trial.region_loads(problem)
        told = [own[sum(1 << u for u in units), k] for units, k in plan]
        assert loads == pytest.approx(np.sum(told, axis=0))
        prices = np.array(random.Random(seed).choices((0.0, 0.3, 1.0), k=lanes.count))
        weighted = priced(problem, lanes, prices)
        assert total_ns(weighted, plan) == pytest.approx(float(prices @ loads))
        assert np.isfinite(weighted.unit_ns).tolist() == np.isfinite(problem.unit_ns).tolist()


def test_a_hand_over_between_accelerators_loads_both_and_the_cpu_twice():
    rates = dict(in_ns_per_byte=[0, 1, 2], out_ns_per_byte=[0, 4, 5])
    costs = np.full((2, 3), 10.0)
    problem = problem_on([[], [0]], costs, sizes=[7, 0], overhead_ns=[0, 2, 3], **rates)
    lanes = make_lanes(problem.targets, 1.0)
    plan = (((0,), 1), ((1,), 2))
    assert moved_ns(problem, lanes, plan[0]) == (0.0, 28.0)
    assert moved_ns(problem, lanes, plan[1]) == (14.0, 0.0)
    assert loads_of(problem, lanes, plan).tolist() == [42.0, 40.0, 27.0]
    steps = LaneStep(1, 40.0, 0.0, 28.0), LaneStep(2, 27.0, 14.0, 0.0)
    assert steps_of(problem, lanes, plan) == steps
    measured = replace(problem, region_ns={(frozenset({0}), 1): 14.0})
    assert moved_ns(measured, lanes, plan[0]) == (0.0, 14.0)


def test_lanes_are_busy_for_the_largest_load_and_the_others():
    """By hand and by the judge. The CPU needs 1.5 ns for each of its own while the NPU does 1 / 1.2
    ns: 45 ns, in which that does 37.5."""
    uneven = make_lanes((CPU, NPU), {("cpu", "npu"): 1.5, ("npu", "cpu"): 1.2})
    assert uneven.busy_ns(np.array([30.0, 100.0])) == pytest.approx(45.0 + 62.5)
    chance = random.Random(0)
    for _ in range(60):
        names = [CPU, NPU, GPU, Target.nnapi("dsp", FAST)][: chance.randint(1, 4)]
        keys = make_lanes(names, 1.0).names
        pairs = {(a, b): chance.uniform(1, 3) for a in keys for b in keys if a != b}
        lanes = make_lanes(names, chance.choice((pairs, 1.2)))
        loads = [chance.choice((0.0, chance.uniform(0, 9))) for _ in names]
        truth = throughput_trial.least_bottleneck([tuple(loads)], lanes.slowdown)
        assert lanes.busy_ns(np.array(loads)) == pytest.approx(truth, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("part", again_but(range(2), 0, why="more random graphs"))
def test_schedules_are_the_best_of_all_and_bounds_are_below(part):
    judged = [throughput_trial.judge_schedule(seed) for seed in range(part, EXAMPLES // 4, 2)]
    assert [wrong for wrong in judged if wrong] == []
    assert sum(wrong is not None for wrong in judged) > EXAMPLES // 60


def test_a_time_line_keeps_to_lanes_and_dependencies():
    for _, problem, plan in drawn(60):
        lanes = make_lanes(problem.targets, 1.0)
        ns = [problem.segment_ns(units, k) for units, k in plan]
        if not np.isfinite(ns).all():
            continue
        spans = timeline(problem, lanes, plan)
        home = {u: i for i, (units, _) in enumerate(plan) for u in units}
        for i, ((units, k), span) in enumerate(zip(plan, spans, strict=True)):
            assert span.end_ns - span.start_ns == pytest.approx(ns[i], rel=1e-6, abs=1e-9)
            assert span.lane == lanes.of_target[k]
            before = [spans[home[p]] for u in units for p in problem.predecessors[u] if home[p] < i]
            before += [other for other in spans[:i] if other.lane == span.lane]
            ready = max((other.end_ns for other in before), default=0.0)
            assert span.start_ns == pytest.approx(ready, rel=1e-9, abs=1e-9)
        slowed = makespan(problem, make_lanes(problem.targets, 1.4), plan)
        assert makespan(problem, lanes, plan) <= slowed * (1 + 1e-9)
        assert slowed <= 4.0 * total_ns(problem, plan) + 1e-9


def test_annealed_schedules_are_legal_and_never_worse():
    watch = Watch(SearchLimits(seconds=1e6, effort=1e18))
    for seed, problem, start in drawn(40, 12):
        lanes = make_lanes(problem.targets, 1.2)
        scheduler = Scheduler(problem, lanes, best_targets(problem, lanes))
        before = makespan(problem, lanes, start)
        if np.isfinite(before):
            effort = 4_000, before / 4, before / 400, seed, watch
            after = scheduler.run(start, *effort)
            check_plan(problem, after)
            assert makespan(problem, lanes, after) <= before * (1 + 1e-9), seed
            assert after == scheduler.run(start, *effort)


def test_starts_are_plans():
    for problem in (stem_problem(6, length=2), wide_problem("blocks", 60, 3, 0)):
        lanes = make_lanes(problem.targets, 1.0)
        plan = draw_plan(problem, random.Random(0))
        for start in starts_of(problem, plan, [lower_bound(problem, lanes).share]):
            check_plan(problem, start)


def test_blocks_part_a_graph_at_its_cuts():
    problem = wide_problem("blocks", 51, 2, 0)  # two times eight chains of three, between cuts
    blocks = find_blocks(problem)
    assert blocks.cuts == (0, 25) and blocks.block == (0, *[1] * 25, *[2] * 25)
    stray = replace(problem, unit_ns=problem.unit_ns.copy())
    stray.unit_ns[3] = 1.0
    assert find_blocks(stray).count >= blocks.count


@pytest.mark.slow
def test_branches_on_processors_of_like_speed_overlap():
    problem = wide_problem("blocks", 101, 2, 1)
    answer = plan_parallel(problem, contention=1.1, limits=SearchLimits(seconds=4.0))
    assert answer.tried and answer.gain > 1.2
    assert answer.latency_ns == pytest.approx(max(span.end_ns for span in answer.spans))
    assert answer.proof.bound_ns <= answer.latency_ns <= answer.serial_ns
    evaluate(problem, answer.plan.segments)


def test_a_chain_has_nothing_to_overlap():
    graph = cnn(12, (4,))
    answer = plan_parallel(problem_of(graph, fit(graph, measure(graph, (4,)))), contention=1.0)
    assert not answer.tried and answer.gain == 1.0
    assert answer.plan.segments == answer.serial.segments
    assert answer.spans[-1].end_ns == pytest.approx(answer.serial_ns)
    assert answer.proof.kind in (ProofKind.GAP, ProofKind.BOUND_MET)


@pytest.mark.parametrize("part", again_but(range(2), 0, why="more random graphs"))
def test_mixtures_are_the_best_of_all_plans(part):
    judged = [throughput_trial.judge_mixture(seed) for seed in range(part, EXAMPLES // 2, 2)]
    assert [wrong for wrong in judged if wrong] == []
    assert sum(wrong is not None for wrong in judged) > EXAMPLES // 20


def test_the_whole_answer_is_no_slower_than_any_rival():
    for seed in range(1, 30, 4):
        problem = draw_problem(seed, 7)
        contention = throughput_trial.draw_contention(problem, random.Random(seed))
        plan = plan_throughput(problem, contention=contention)
        assert plan.period_ns <= min(rate.period_ns for rate in plan.baselines) * (1 + 1e-9)
        assert plan.proof.bound_ns <= plan.period_ns * (1 + 1e-9)
        assert plan.proof.kind is ProofKind.BOUND_MET and plan.chosen is None
        assert plan.most_per_second >= plan.frames_per_second * (1 - 1e-9)
        assert plan.curve[0].period_ns <= plan.baseline(FrameStrategy.SERIAL).period_ns * (1 + 1e-9)
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
    plan = partial(plan_throughput, wide_problem("blocks", 26, 2, 0), contention=1.1, limits=short)
    free, few = plan(), plan(frames_in_flight=3)
    assert few.chosen.frames_in_flight <= 3
    assert few.frames_per_second <= free.frames_per_second * (1 + 1e-6)
    latency = few.chosen.latency_ns[1] * 0.8
    assert plan(max_latency_ns=latency).chosen.latency_ns[1] <= latency
    memory = few.chosen.memory_bytes // 2
    assert plan(max_memory_bytes=memory).chosen.memory_bytes <= memory
    with pytest.raises(PartitionError, match="one alone takes"):
        plan(max_latency_ns=1.0)
    with pytest.raises(PartitionError, match="at least 1"):
        plan(frames_in_flight=0)
    oldest = plan(frames_in_flight=4, dispatches=[Dispatch.OLDEST])
    assert {point.dispatch for point in oldest.curve} == {Dispatch.OLDEST}


def test_a_network_that_is_not_proven_comes_with_a_gap():
    problem, limits = wide_problem("random", 50, 2, 0), SearchLimits(seconds=100.0, effort=1e6)
    plan = plan_throughput(problem, contention=1.1, limits=limits)
    assert plan.frames_per_second > 1.4 * plan.baseline(FrameStrategy.BEST_SINGLE).frames_per_second
    assert 0 < plan.proof.gap < 0.1
    assert np.array(plan.loads_ns).max() <= plan.period_ns


def test_without_time_the_relaxation_bounds_frames(monkeypatch):
    problem, none = wide_problem("skips", 30, 2, 0), SearchLimits(seconds=0.0)
    gap = plan_throughput(problem, contention=1.1, limits=none).proof.gap
    monkeypatch.setattr("nnapi_prof.partition.mixture.relax", lambda *_: None)  # as if too large
    assert 0 < gap < 0.1 < plan_throughput(problem, contention=1.1, limits=none).proof.gap < 1


@pytest.mark.slow
def test_ctrl_c_keeps_the_best_until_then():
    problem = wide_problem("stem", 600, 2, 1)
    told: list[str] = []

    def interrupt(watch: Watch) -> None:
        told.append(watch.stage)
        if watch.stage == "mixture":
            raise KeyboardInterrupt

    plan = plan_throughput(problem, contention=1.1, limits=SearchLimits(2.0), report=interrupt)
    assert told.count("mixture") == 1 and 0.0 < plan.proof.bound_ns <= plan.period_ns


# ---- simulated queues of frames ------------------------------------------------------------------

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
    assert simulate(lanes, ways[1:], (1.0,), 1, OLDEST).latency_ns == pytest.approx((3.0,) * 3)
