"""Plans against numbers worked out by hand and every baseline, and their causes."""

import math
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.causes import Reason, amount
from nnapi_prof.graph.plan import CPU, HOST, Engine, Plan, Precision, Preference, Target
from nnapi_prof.partition import (
    Constraints,
    ErrorLimit,
    SearchLimits,
    baselines,
    evaluate,
    is_optimum,
    plan_problem,
)
from tests.partition.cases import GPU, NPU, NPU_LOW, build_graph, chain, problem_of, solve, table
from tests.partition.drawing import draw_case
from tests.partition.mixed import mixed_network
from tests.partition.networks import skips

AUTO = Target.nnapi("auto", Preference.FAST_SINGLE_ANSWER)

paid = partial(table, start={NPU: 100.0}, per_byte={NPU: (1.0, 1.0)})


def segments_of(plan: Plan) -> list[tuple[tuple[int, ...], Target]]:
    return [(segment.units, segment.target) for segment in plan.segments]


def test_each_value_crosses_once_and_branches_of_a_diamond_run_in_one_segment_each():
    diamond = build_graph([[], [0], [0], [1, 2]], [10, 10, 10, 10])
    plan = solve(diamond, paid({CPU: [1e4, 0, 0, 0], NPU: [0, None, None, None]}))
    # u0 reads x, 8 floats; its own value, of 40 bytes, has two readers and leaves once.
    assert plan.segments[0].target == NPU
    assert plan.segments[0].predicted_ns == 100 + 32 + 40
    plan = solve(diamond, paid({CPU: [10, 1e4, 10, 10], NPU: [None, 5, None, None]}))
    assert [s.target for s in plan.segments] == [CPU, NPU, CPU]
    assert plan.segments[1].units == (1,)  # u2 joins either side, so the CPU has two stretches


def test_measured_region_replaces_the_sum_and_may_hold_units_that_cannot_run_alone():
    def with_whole(ns: float) -> Plan:
        whole = {(frozenset(range(3)), NPU): ns}
        return solve(chain(3), paid({CPU: [100] * 3, NPU: [5] * 3}, whole=whole))

    assert segments_of(with_whole(1e6))[0] != ((0, 1, 2), NPU)
    assert with_whole(7.0).segments[0].measured and with_whole(7.0).predicted_ns == 7.0
    failed = with_whole(math.inf)
    assert failed.predicted_ns < math.inf and len(failed.segments) > 1
    whole = {(frozenset({0, 1}), NPU): 4.0}
    costs = paid({CPU: [5, None, 5], NPU: [1, None, 1]}, whole=whole)
    plan = solve(chain(3), costs)
    assert segments_of(plan) == [((0, 1), NPU), ((2,), CPU)]
    assert [s.measured for s in plan.segments] == [True, False]
    assert baselines(problem_of(chain(3), costs)) == ()


def test_host_units_stand_alone_and_are_called_estimates():
    rows = {CPU: [1, None, 1], HOST: [None, 5, None]}
    costs = table(rows, start={CPU: 1.0}, guessed=frozenset({(1, HOST)}))
    for plan in (solve(chain(3), costs), *baselines(problem_of(chain(3), costs))):
        assert segments_of(plan) == [((0,), CPU), ((1,), HOST), ((2,), CPU)]
        assert [s.estimated for s in plan.segments] == [False, True, False]
    (segment,) = solve(chain(1), table({HOST: [1]})).segments
    words = "no engine of the agent runs op0 (unit 0): eager PyTorch on the host, estimated"
    assert segment.cause == words


def test_units_without_target_and_costs_that_are_none_are_refused():
    costs = paid({CPU: [1, None], NPU: [1, None]}, refusals={(1, CPU): "no kernel for FOO"})
    with pytest.raises(PartitionError, match=r"op1 \(unit 1\).*no kernel for FOO"):
        solve(chain(2), costs)
    for bad in (-1.0, math.nan):
        with pytest.raises(PartitionError, match=r"op1 .* on cpu costs"):
            solve(chain(2), paid({CPU: [1, bad], NPU: [1, 1]}))


def test_evaluate_refuses_what_is_no_plan():
    problem = problem_of(chain(3), paid({CPU: [1] * 3, NPU: [1] * 3}))
    (segment,) = plan_problem(problem).default.segments
    part = replace(segment, units=(0, 1))
    for segments, words in (
        ([part], "in no segment"),
        ([part, part], "repeats a unit"),
        ([replace(segment, units=(1, 2)), replace(segment, units=(0,))], "runs before"),
        ([replace(segment, target=HOST)], "no costs for target"),
    ):
        with pytest.raises(PartitionError, match=words):
            evaluate(problem, segments)


@pytest.mark.parametrize(
    ("units", "targets", "seconds"), [(65, 12, 2.0), (300, 3, 6.0)], ids=["mobilenet", "long"]
)
def test_near_chains_are_exact_and_quick(units, targets, seconds):
    """The bars are 10 times what it takes on an idle core, for shared machines."""
    chance = np.random.default_rng(units)
    graph = build_graph(skips(units), [1000] * units)
    named = [Target.nnapi(f"acc{i // 3}", list(Preference)[i % 3]) for i in range(targets)]
    rows = {CPU: chance.uniform(2e4, 1e6, units).tolist()}
    for target in named:
        refused = chance.random(units) < 0.1
        rows[target] = np.where(refused, np.inf, chance.uniform(1e4, 3e5, units)).tolist()
    start = {CPU: 1e3} | dict.fromkeys(named, 2e5)
    problem = problem_of(graph, table(rows, start=start, per_byte=dict.fromkeys(named, (0.3, 0.3))))
    begin = time.perf_counter()
    plan = plan_problem(problem, with_curve=False).default
    assert time.perf_counter() - begin < seconds
    assert evaluate(problem, plan.segments) == pytest.approx(plan.predicted_ns)
    assert is_optimum(plan) and "optimal over all plans" in plan.notes[0]
    assert min(p.predicted_ns for p in baselines(problem)) > plan.predicted_ns


def test_the_whole_model_on_a_target_that_was_left_at_a_trial_is_a_baseline():
    def found(whole_ns: float) -> dict[str, Plan]:
        whole = {(frozenset(range(4)), AUTO): whole_ns}
        costs = table({CPU: [1e6] * 4, AUTO: []}, start={AUTO: 1e5}, whole=whole)
        return {plan.name: plan for plan in baselines(problem_of(chain(4), costs))}

    plan = found(5e6)[f"largest-supported {AUTO}"]
    assert segments_of(plan) == [((0, 1, 2, 3), AUTO)]
    assert plan.segments[0].measured and plan.predicted_ns == 5e6
    assert f"largest-supported {AUTO}" not in found(math.inf)


# ---- causes --------------------------------------------------------------------------------------


def test_times_have_three_digits():
    texts = list(map(amount, (0, 1.234e6, 45_600, 123.4e6, 5e9)))
    assert texts == ["0 ms", "1.23 ms", "0.0456 ms", "123 ms", "5000 ms"]


def causes(rows: dict[Target, list[float | None]], start_ms: float, **rest: object) -> list[str]:
    """Why each segment is where it is, of a chain of units with costs in ms."""
    costs = {t: [ms and ms * 1e6 for ms in row] for t, row in rows.items()}
    start = {NPU: start_ms * 1e6, GPU: 2e6}
    plan = solve(chain(len(rows[CPU])), table(costs, start=start, **rest))
    return [segment.cause for segment in plan.segments]


CRASH = Reason.of("crashed", "SIGSEGV during compilation", failed=True)
REFUSED = Reason.of("refused", "no RESIZE", failed=False)


@pytest.mark.parametrize(
    ("cpu", "npu", "start_ms", "rest", "cause"),
    [
        ([2, 1.4], [0.5, 0.5], 0.2, {}, "fastest: 1.20 ms here, 3.40 ms on cpu"),
        ([0.5, 0.5], [2, 2], 0.2, {}, "fastest: 1.00 ms here, 4.20 ms on nnapi:sim-npu/fast"),
        ([0.1, 9, 0.1], [0.05, None, 0.05], 0.5, {"refusals": {(1, NPU): "no ERF"}},
         "stays on the CPU: sim-npu refuses: no ERF; 2 more would not pay the hand-over"),
        ([0.5], [0.1], 0.8, {},
         "too small to pay 0.800 ms of invocation and transfer on nnapi:sim-npu/fast: "
         "0.500 ms here, 0.900 ms there"),
        # A region that takes less than its units is no loss around them.
        ([0.9, 0.9], [0.5, 0.5], 0.1,
         {"whole": {(frozenset({0, 1}), t): ns for t, ns in ((CPU, 0.7e6), (NPU, 0.9e6))}},
         "fastest: 0.700 ms here, 0.900 ms on nnapi:sim-npu/fast"),
        ([1], [None], 0.1, {"refusals": {(0, NPU): CRASH}},
         "stays on the CPU: sim-npu cannot run it: crashed: SIGSEGV during compilation"),
        ([1], [None], 0.1, {}, "stays on the CPU: sim-npu was not measured on it"),
    ],
)  # fmt: skip
def test_the_cause_of_a_single_segment(cpu, npu, start_ms, rest, cause):
    assert causes({CPU: cpu, NPU: npu}, start_ms, **rest) == [cause]


def test_refusal_is_the_cause_and_comes_before_what_other_accelerators_would_cost():
    rows = {CPU: [1, 9, 1], NPU: [0.1, None, 0.1]}
    _, cause, _ = causes(rows, 0.1, refusals={(1, NPU): "RESIZE_BILINEAR"})
    assert cause == "stays on the CPU: sim-npu refuses: RESIZE_BILINEAR"
    rows = {CPU: [1, 0.2, 1], NPU: [0.1, None, 0.1], GPU: [None, 0.1, None]}
    _, cause, _ = causes(rows, 0.1, refusals={(1, NPU): REFUSED})
    assert cause == (
        "stays on the CPU: sim-npu refuses: no RESIZE; too small to pay 2.00 ms of invocation and "
        "transfer on nnapi:sim-gpu/fast: 0.200 ms here, 2.10 ms there"
    )


def test_baselines_are_named_and_take_the_best_preference():
    rows = {CPU: [10] * 3, NPU_LOW: [3, None, 3], NPU: [2, None, 2], GPU: [9] * 3, AUTO: [4] * 3}
    costs = table(rows, start=dict.fromkeys(rows, 1.0), refusals={(1, NPU): "no RESIZE"})
    result = {plan.name: plan for plan in baselines(problem_of(chain(3), costs))}
    assert [(name, plan.predicted_ns) for name, plan in result.items()] == [
        ("all-cpu", 31),
        ("best-single nnapi:auto/fast", 13),
        ("largest-supported nnapi:sim-npu/fast", 3 + 11 + 3),
        ("largest-supported nnapi:sim-gpu/fast", 28),
        ("largest-supported nnapi:auto/fast", 13),
        ("greedy", 3 + 5 + 3),
    ]
    npu, runs = result["largest-supported nnapi:sim-npu/fast"], "nnapi:sim-npu/fast supports it"
    assert [s.cause for s in npu.segments] == [runs, "sim-npu refuses: no RESIZE", runs]
    assert result["largest-supported nnapi:auto/fast"].notes == ("the whole model on one target",)


def test_every_segment_has_a_one_line_cause():
    for number in range(120):
        problem = draw_case(f"small/{number}").problem
        if problem.n > 8 or not np.isfinite(problem.unit_ns).any(axis=1).all():
            continue
        for plan in (plan_problem(problem, with_curve=False).default, *baselines(problem)):
            for segment in plan.segments:
                assert segment.cause.strip() == segment.cause != ""
                assert "\n" not in segment.cause and "inf" not in segment.cause.split()


def test_causes_compare_targets_of_one_format():
    """What another format costs depends on its neighbours, and on what error is allowed."""
    problem, noise = mixed_network(16, 2, 3, preferences=1)
    mixed = plan_problem(problem, limits=SearchLimits(seconds=1e4)).best
    in_8_bits = [s for s in mixed.segments if s.target.precision is Precision.INT8]
    assert in_8_bits and in_8_bits[0].cause.endswith("here, 14.3 ms on cpu@int8")
    assert all("int8" not in s.cause for s in mixed.segments if s not in in_8_bits)
    on_npu = np.array([target.engine is Engine.NNAPI for target in problem.targets])
    left = problem.without(np.broadcast_to(on_npu & (problem.formats == 0), problem.unit_ns.shape))
    limit = Constraints(errors=(ErrorLimit(noise, 0.0),))
    (floats,) = plan_problem(left, constraints=limit).best.segments
    assert "kept off npu-1: it runs in 8 bits only" in floats.cause
