"""Causes and baselines, read as a user reads them."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from nnapi_prof.graph.causes import Reason, amount
from nnapi_prof.graph.plan import AUTO, CPU, HOST, Engine, Precision, Preference, Target
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.partition import (
    Constraints,
    ErrorLimit,
    SearchLimits,
    baselines,
    plan_problem,
)
from tests.partition.cases import (
    GPU,
    NPU,
    NPU_LOW,
    SETTINGS,
    Table,
    cases,
    chain,
    problem_of,
    solve,
)
from tests.partition.mixed import mixed_network


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ms"),
        (1.234e6, "1.23 ms"),
        (45_600, "0.0456 ms"),
        (123.4e6, "123 ms"),
        (5e9, "5000 ms"),
    ],
)
def test_times_have_three_digits(ns: float, text: str) -> None:
    assert amount(ns) == text


def phone(cpu: list[float], npu: list[float | None], start: float, **rest: object) -> Table:
    unit = {(u, CPU): ns * 1e6 for u, ns in enumerate(cpu)}
    unit |= {(u, NPU): ns * 1e6 for u, ns in enumerate(npu) if ns is not None}
    costs = Table(
        (CPU, NPU), unit, {CPU: 0.0, NPU: start * 1e6}, {CPU: (0.0, 0.0), NPU: (0.0, 0.0)}
    )
    return replace(costs, **rest)  # type: ignore[arg-type]


def test_faster_says_by_how_much() -> None:
    (segment,) = solve(chain(2), phone([2, 1.4], [0.5, 0.5], 0.2)).segments
    assert segment.cause == "fastest: 1.20 ms here, 3.40 ms on cpu"


def test_slower_accelerator_says_so() -> None:
    (segment,) = solve(chain(2), phone([0.5, 0.5], [2, 2], 0.2)).segments
    assert segment.cause == "fastest: 1.00 ms here, 4.20 ms on nnapi:sim-npu/fast"


def test_refusal_is_the_cause() -> None:
    costs = phone([1, 9, 1], [0.1, None, 0.1], 0.1, refusals={(1, NPU): "RESIZE_BILINEAR"})
    plan = solve(chain(3), costs)
    assert [s.target for s in plan.segments] == [NPU, CPU, NPU]
    assert plan.segments[1].cause == "stays on the CPU: sim-npu refuses: RESIZE_BILINEAR"


def test_neighbours_of_a_refusal_are_counted() -> None:
    costs = phone([0.1, 9, 0.1], [0.05, None, 0.05], 0.5, refusals={(1, NPU): "no ERF"})
    (segment,) = solve(chain(3), costs).segments
    assert segment.cause == (
        "stays on the CPU: sim-npu refuses: no ERF; 2 more would not pay the hand-over"
    )


def test_too_small_names_what_it_cannot_pay() -> None:
    (segment,) = solve(chain(1), phone([0.5], [0.1], 0.8)).segments
    assert segment.cause == (
        "too small to pay 0.800 ms of invocation and transfer on nnapi:sim-npu/fast: "
        "0.500 ms here, 0.900 ms there"
    )


def test_a_region_that_takes_less_than_its_units_is_no_loss_around_them() -> None:
    units = frozenset({0, 1})
    whole = {(units, CPU): 0.7e6, (units, NPU): 0.9e6}
    (segment,) = solve(chain(2), phone([0.9, 0.9], [0.5, 0.5], 0.1, whole=whole)).segments
    assert segment.cause == "fastest: 0.700 ms here, 0.900 ms on nnapi:sim-npu/fast"


def test_refusal_comes_before_what_other_accelerators_would_cost() -> None:
    costs = phone(
        [1, 0.2, 1],
        [0.1, None, 0.1],
        0.1,
        refusals={(1, NPU): Reason.of("refused", "no RESIZE", failed=False)},
    )
    costs = replace(
        costs,
        targets=(CPU, NPU, GPU),
        unit=costs.unit | {(1, GPU): 0.1e6},
        start=costs.start | {GPU: 2e6},
        per_byte=costs.per_byte | {GPU: (0.0, 0.0)},
    )
    assert solve(chain(3), costs).segments[1].cause == (
        "stays on the CPU: sim-npu refuses: no RESIZE; too small to pay 2.00 ms of invocation and "
        "transfer on nnapi:sim-gpu/fast: 0.200 ms here, 2.10 ms there"
    )


def test_crash_is_no_refusal() -> None:
    crash = Reason.of("crashed", "SIGSEGV during compilation", failed=True)
    costs = phone([1], [None], 0.1, refusals={(0, NPU): crash})
    (segment,) = solve(chain(1), costs).segments
    assert segment.cause == (
        "stays on the CPU: sim-npu cannot run it: crashed: SIGSEGV during compilation"
    )


def test_what_was_not_measured_is_no_refusal() -> None:
    (segment,) = solve(chain(1), phone([1], [None], 0.1)).segments
    assert segment.cause == "stays on the CPU: sim-npu was not measured on it"


def test_host_is_called_an_estimate() -> None:
    costs = Table((HOST,), {(0, HOST): 1.0}, {HOST: 0.0}, {HOST: (0.0, 0.0)})
    (segment,) = solve(chain(1), costs).segments
    assert segment.cause == (
        "no engine of the agent runs op0 (unit 0): eager PyTorch on the host, estimated"
    )


def test_baselines_are_named_and_take_the_best_preference() -> None:
    graph = chain(3)
    auto = Target.nnapi(AUTO, Preference.FAST_SINGLE_ANSWER)
    unit = {(u, CPU): 10.0 for u in range(3)}
    unit |= {(u, NPU): 2.0 for u in (0, 2)} | {(u, NPU_LOW): 3.0 for u in (0, 2)}
    unit |= {(u, GPU): 9.0 for u in range(3)} | {(u, auto): 4.0 for u in range(3)}
    targets = (CPU, NPU_LOW, NPU, GPU, auto)
    free = dict.fromkeys(targets, (0.0, 0.0))
    costs = Table(
        targets, unit, dict.fromkeys(targets, 1.0), free, refusals={(1, NPU): "no RESIZE"}
    )
    result = {plan.name: plan for plan in baselines(problem_of(graph, costs))}
    assert list(result) == [
        "all-cpu",
        "best-single nnapi:auto/fast",
        "largest-supported nnapi:sim-npu/fast",
        "largest-supported nnapi:sim-gpu/fast",
        "largest-supported nnapi:auto/fast",
        "greedy",
    ]
    assert {name: plan.predicted_ns for name, plan in result.items()} == {
        "all-cpu": 31,
        "best-single nnapi:auto/fast": 13,
        "largest-supported nnapi:sim-npu/fast": 3 + 11 + 3,
        "largest-supported nnapi:sim-gpu/fast": 28,
        "largest-supported nnapi:auto/fast": 13,
        "greedy": 3 + 5 + 3,
    }
    npu = result["largest-supported nnapi:sim-npu/fast"]
    assert [s.cause for s in npu.segments] == [
        "nnapi:sim-npu/fast supports it",
        "sim-npu refuses: no RESIZE",
        "nnapi:sim-npu/fast supports it",
    ]
    assert result["largest-supported nnapi:auto/fast"].notes == ("the whole model on one target",)


@SETTINGS
@given(cases())
def test_every_segment_has_a_one_line_cause(case: tuple[UnitGraph, Table]) -> None:
    for plan in (solve(*case), *baselines(problem_of(*case))):
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
    on_npu = [target.engine is Engine.NNAPI for target in problem.targets]
    in_floats = [target.precision is not Precision.INT8 for target in problem.targets]
    left = problem.without(
        np.broadcast_to(np.logical_and(on_npu, in_floats), problem.unit_ns.shape)
    )
    limit = Constraints(errors=(ErrorLimit(noise, 0.0),))
    (floats,) = plan_problem(left, constraints=limit).best.segments
    assert "kept off npu-1: it runs in 8 bits only" in floats.cause
