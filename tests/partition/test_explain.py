"""Causes and baselines, read as a user reads them."""

import subprocess
import sys

import numpy as np
import pytest

from nnapi_prof.graph.causes import Reason, amount
from nnapi_prof.graph.plan import AUTO, CPU, HOST, Engine, Precision, Preference, Target
from nnapi_prof.partition import Constraints, ErrorLimit, SearchLimits, baselines, plan_problem
from tests.partition.cases import GPU, NPU, NPU_LOW, chain, problem_of, solve, table
from tests.partition.drawing import draw_case
from tests.partition.mixed import mixed_network

TIMES = {0: "0 ms", 1.234e6: "1.23 ms", 45_600: "0.0456 ms", 123.4e6: "123 ms", 5e9: "5000 ms"}


@pytest.mark.parametrize("ns", TIMES)
def test_times_have_three_digits(ns: float) -> None:
    assert amount(ns) == TIMES[ns]


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
        (
            [0.5, 0.5],
            [2, 2],
            0.2,
            {},
            "fastest: 1.00 ms here, 4.20 ms on nnapi:sim-npu/fast",
        ),
        (
            [0.1, 9, 0.1],
            [0.05, None, 0.05],
            0.5,
            {"refusals": {(1, NPU): "no ERF"}},
            "stays on the CPU: sim-npu refuses: no ERF; 2 more would not pay the hand-over",
        ),
        (
            [0.5],
            [0.1],
            0.8,
            {},
            "too small to pay 0.800 ms of invocation and transfer on nnapi:sim-npu/fast: "
            "0.500 ms here, 0.900 ms there",
        ),
        (
            [0.9, 0.9],  # a region that takes less than its units is no loss around them
            [0.5, 0.5],
            0.1,
            {"whole": {(frozenset({0, 1}), t): ns for t, ns in ((CPU, 0.7e6), (NPU, 0.9e6))}},
            "fastest: 0.700 ms here, 0.900 ms on nnapi:sim-npu/fast",
        ),
        (
            [1],
            [None],
            0.1,
            {"refusals": {(0, NPU): CRASH}},
            "stays on the CPU: sim-npu cannot run it: crashed: SIGSEGV during compilation",
        ),
        ([1], [None], 0.1, {}, "stays on the CPU: sim-npu was not measured on it"),
    ],
)
def test_the_cause_of_a_single_segment(cpu, npu, start_ms, rest, cause) -> None:
    assert causes({CPU: cpu, NPU: npu}, start_ms, **rest) == [cause]


def test_refusal_is_the_cause_and_comes_before_what_other_accelerators_would_cost() -> None:
    rows = {CPU: [1, 9, 1], NPU: [0.1, None, 0.1]}
    _, cause, _ = causes(rows, 0.1, refusals={(1, NPU): "RESIZE_BILINEAR"})
    assert cause == "stays on the CPU: sim-npu refuses: RESIZE_BILINEAR"
    rows = {CPU: [1, 0.2, 1], NPU: [0.1, None, 0.1], GPU: [None, 0.1, None]}
    _, cause, _ = causes(rows, 0.1, refusals={(1, NPU): REFUSED})
    assert cause == (
        "stays on the CPU: sim-npu refuses: no RESIZE; too small to pay 2.00 ms of invocation and "
        "transfer on nnapi:sim-gpu/fast: 0.200 ms here, 2.10 ms there"
    )


def test_host_is_called_an_estimate() -> None:
    (segment,) = solve(chain(1), table({HOST: [1]})).segments
    assert segment.cause == (
        "no engine of the agent runs op0 (unit 0): eager PyTorch on the host, estimated"
    )


def test_baselines_are_named_and_take_the_best_preference() -> None:
    auto = Target.nnapi(AUTO, Preference.FAST_SINGLE_ANSWER)
    rows = {CPU: [10] * 3, NPU_LOW: [3, None, 3], NPU: [2, None, 2], GPU: [9] * 3, auto: [4] * 3}
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
    npu = result["largest-supported nnapi:sim-npu/fast"]
    assert [s.cause for s in npu.segments] == [
        "nnapi:sim-npu/fast supports it",
        "sim-npu refuses: no RESIZE",
        "nnapi:sim-npu/fast supports it",
    ]
    assert result["largest-supported nnapi:auto/fast"].notes == ("the whole model on one target",)


def test_every_segment_has_a_one_line_cause() -> None:
    problems = [draw_case(f"small/{number}").problem for number in range(120)]
    for problem in problems:
        if problem.n > 8 or not np.isfinite(problem.unit_ns).any(axis=1).all():
            continue
        for plan in (plan_problem(problem, with_curve=False).default, *baselines(problem)):
            for segment in plan.segments:
                assert segment.cause.strip() == segment.cause != ""
                assert "\n" not in segment.cause and "inf" not in segment.cause.split()


def test_import_loads_neither_torch_nor_adb() -> None:
    code = (
        "import sys, nnapi_prof.partition\n"
        "bad = {'torch', 'adb_shell', 'usb1', 'pandas', 'sqlalchemy'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {sorted(bad)}' if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_causes_compare_targets_of_one_format() -> None:
    """What another format costs depends on its neighbours, and on what error is allowed."""
    problem, noise = mixed_network(16, 2, 3, preferences=1)
    mixed = plan_problem(problem, limits=SearchLimits(seconds=1e4)).best
    in_8_bits = [s for s in mixed.segments if s.target.precision is Precision.INT8]
    assert in_8_bits and in_8_bits[0].cause.endswith("here, 14.3 ms on cpu@int8")
    assert all("int8" not in s.cause for s in mixed.segments if s not in in_8_bits)
    floats_on_npu = [
        target.engine is Engine.NNAPI and target.precision is not Precision.INT8
        for target in problem.targets
    ]
    left = problem.without(np.broadcast_to(floats_on_npu, problem.unit_ns.shape))
    limit = Constraints(errors=(ErrorLimit(noise, 0.0),))
    (floats,) = plan_problem(left, constraints=limit).best.segments
    assert "kept off npu-1: it runs in 8 bits only" in floats.cause
