"""Schedules of one frame against every schedule, the bound against the truth, and serial plans."""

import random
from dataclasses import replace

import numpy as np
import pytest

from nnapi_prof.costs.model.fit import fit
from nnapi_prof.graph.plan import ProofKind
from nnapi_prof.partition import SearchLimits, Watch, evaluate, plan_parallel
from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.blocks import best_targets, find_blocks, starts_of
from nnapi_prof.partition.lanes import make_lanes
from nnapi_prof.partition.overlap import lower_bound
from nnapi_prof.partition.parallel import Scheduler, makespan, timeline
from tests.partition.cases import problem_of
from tests.partition.families import wide_problem
from tests.partition.problems import check_plan, draw_plan, drawn, stem_problem
from tests.partition.throughput_trial import judge_schedule
from tests.partition.trial import EXAMPLES
from tests.parts import again_but
from tests.reports.sample import cnn, measure


@pytest.mark.slow
@pytest.mark.parametrize("part", again_but(range(2), 0, why="more random graphs"))
def test_schedules_are_the_best_of_all_and_bounds_are_below(part: int) -> None:
    judged = [judge_schedule(seed) for seed in range(part, EXAMPLES // 4, 2)]
    assert [wrong for wrong in judged if wrong] == []
    assert sum(wrong is not None for wrong in judged) > EXAMPLES // 60


def test_a_time_line_keeps_to_lanes_and_dependencies() -> None:
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


def test_annealed_schedules_are_legal_and_never_worse() -> None:
    watch = Watch(SearchLimits(seconds=1e6, effort=1e18))
    for seed, problem, start in drawn(40, 12):
        lanes = make_lanes(problem.targets, 1.2)
        scheduler = Scheduler(problem, lanes, best_targets(problem, lanes))
        before = makespan(problem, lanes, start)
        if not np.isfinite(before):
            continue
        after = scheduler.run(start, 4_000, before / 4, before / 400, seed, watch)
        check_plan(problem, after)
        assert makespan(problem, lanes, after) <= before * (1 + 1e-9), seed
        assert after == scheduler.run(start, 4_000, before / 4, before / 400, seed, watch)


def test_starts_are_plans() -> None:
    for problem in (stem_problem(6, length=2), wide_problem("blocks", 60, 3, 0)):
        lanes = make_lanes(problem.targets, 1.0)
        plan = draw_plan(problem, random.Random(0))
        bound = lower_bound(problem, lanes)
        assert bound is not None
        for start in starts_of(problem, plan, [bound.share]):
            check_plan(problem, start)


def test_blocks_part_a_graph_at_its_cuts() -> None:
    problem = wide_problem("blocks", 51, 2, 0)  # two times eight chains of three, between cuts
    blocks = find_blocks(problem)
    assert blocks.cuts == (0, 25)
    assert blocks.block[:1] == (0,) and set(blocks.block[1:26]) == {1}
    assert set(blocks.block[26:]) == {2}
    stray = replace(problem, unit_ns=problem.unit_ns.copy())
    stray.unit_ns[3] = 1.0
    assert find_blocks(stray).count >= blocks.count


@pytest.mark.slow
def test_branches_on_processors_of_like_speed_overlap() -> None:
    problem = wide_problem("blocks", 101, 2, 1)
    limits = SearchLimits(seconds=4.0)
    answer = plan_parallel(problem, contention=1.1, limits=limits)
    assert answer.tried and answer.gain > 1.2
    assert answer.latency_ns == pytest.approx(max(span.end_ns for span in answer.spans))
    assert answer.proof.bound_ns <= answer.latency_ns <= answer.serial_ns
    evaluate(problem, answer.plan.segments)


def test_a_chain_has_nothing_to_overlap() -> None:
    graph = cnn(12, (4,))
    answer = plan_parallel(problem_of(graph, fit(graph, measure(graph, (4,)))), contention=1.0)
    assert not answer.tried and answer.gain == 1.0
    assert answer.plan.segments == answer.serial.segments
    assert answer.spans[-1].end_ns == pytest.approx(answer.serial_ns)
    assert answer.proof.kind in (ProofKind.GAP, ProofKind.BOUND_MET)
