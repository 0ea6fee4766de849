"""Constraints on plans, and the baselines that keep to rules of others."""

import pytest

from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import CPU, Engine, Plan, Preference
from nnapi_prof.partition import Constraints, baselines, is_optimum
from tests.partition.cases import NPU, NPU_LOW, chain, problem_of, solve, table


def solved(**constraints: object) -> Plan:
    """Four units that are 100 times as fast on either of two names of an accelerator."""
    rows = {CPU: [100] * 4, NPU: [1] * 4, NPU_LOW: [1] * 4}
    costs = table(rows, start=dict.fromkeys(rows, 1.0))
    return solve(chain(4), costs, constraints=Constraints(**constraints))


@pytest.mark.parametrize(
    ("constraints", "words"),
    [
        (dict(pinned={1: CPU}), "1 unit pinned"),
        (dict(forbidden={u: frozenset({NPU}) for u in (0, 1)}), "2 units kept off targets"),
        (dict(preference=Preference.LOW_POWER), "preference low_power only"),
        (dict(max_regions=0), "at most 0 on accelerators"),
        (dict(pinned={1: CPU}, max_regions=1), "1 unit pinned, at most 1 on accelerators"),
    ],
)
def test_a_constrained_plan_is_not_called_the_optimum(constraints: dict, words: str) -> None:
    assert is_optimum(solved())
    plan = solved(**constraints)
    assert not is_optimum(plan)
    assert f"within the constraints ({words})" in plan.notes[0]


def test_forbidden_pinned_and_one_preference() -> None:
    assert [s.target.engine for s in solved().segments] == [Engine.NNAPI]
    low = solved(preference=Preference.LOW_POWER)
    assert [s.target for s in low.segments] == [NPU_LOW]
    split = solved(pinned={1: CPU})
    assert [s.units for s in split.segments] == [(0,), (1,), (2, 3)]
    assert split.segments[1].cause == "stays on the CPU: kept off sim-npu: pinned to cpu"
    off = solved(forbidden={1: frozenset({CPU})})
    assert [s.target.engine for s in off.segments] == [Engine.NNAPI]
    one = solved(pinned={1: CPU}, max_regions=1)
    assert sum(s.target.engine is Engine.NNAPI for s in one.segments) == 1


@pytest.mark.parametrize(
    ("constraints", "words"),
    [
        (Constraints(forbidden={1: frozenset({CPU, NPU})}), r"op1 .*nowhere to run.*forbidden"),
        (Constraints(pinned={9: CPU}), "names unit 9; there are 3"),
        (Constraints(pinned={0: NPU_LOW}), "no costs for target"),
        (Constraints(max_regions=0, pinned={0: NPU}), "at most 0 on accelerators"),
    ],
)
def test_what_cannot_be_kept_is_said(constraints: Constraints, words: str) -> None:
    with pytest.raises(PartitionError, match=words):
        solve(chain(3), table({CPU: [10] * 3, NPU: [1] * 3}), constraints=constraints)


def test_baselines_of_tflite_and_of_a_list() -> None:
    # The first region of the accelerator has five units.
    npu = [1.0 if u in (0, 1, 2, 3, 4, 6, 8, 10) else None for u in range(11)]
    costs = table({CPU: [3] * 11, NPU: npu}, start={CPU: 1.0, NPU: 1.0})
    result = {plan.name: plan for plan in baselines(problem_of(chain(11), costs), listed=[6])}

    def on_npu(name: str) -> list[tuple[int, ...]]:
        return [s.units for s in result[name].segments if s.target == NPU]

    assert on_npu(f"largest-3 {NPU}") == [(0, 1, 2, 3, 4), (6,), (8,)]
    assert on_npu(f"listed {NPU}") == [(0, 1, 2, 3, 4)]
    assert result[f"best-single {CPU}"].predicted_ns == result["all-cpu"].predicted_ns
