"""Plans within a limit of compile time, as a user asks for them."""

from typing import Any

import numpy as np
import pytest

from nnapi_prof.costs.table import CompileTimes
from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import CPU
from nnapi_prof.partition import Constraints, Partitioning, evaluate, plan_problem
from nnapi_prof.partition.constraints import compile_budget
from tests.partition.cases import NPU, chain, problem_of, table

TIMES = CompileTimes(np.array([0.0, 1e7]), np.array([[0.0, 1e7]] * 6))
CHAIN = problem_of(chain(6), table({CPU: [3e6] * 6, NPU: [1e6] * 6}, start={NPU: 1e6}))
ON_NPU = problem_of(chain(6), table({CPU: [], NPU: [1e6] * 6}, start={NPU: 1e6}))


def within(limit_ms: float, problem: Any = CHAIN, times: Any = TIMES) -> Partitioning:
    limited = Constraints(max_compile_ns=limit_ms * 1e6)
    return plan_problem(problem, constraints=limited, compiling=times)


def test_a_region_takes_what_was_measured_of_it_or_its_parts() -> None:
    whole = CompileTimes(TIMES.fixed_ns, TIMES.unit_ns, {(frozenset({0, 1}), 1): 5e6})
    budget = compile_budget(whole, 1e9)
    assert budget.of([((0, 1), 1), ((2,), 1), ((3, 4, 5), 0)]) == 5e6 + 2e7


@pytest.mark.parametrize(
    ("limit_ms", "ms", "words"),
    [
        (70, 7, ["regions compile in 70.0 ms together, of 70.0 ms allowed"]),
        # Three units in one region: 10 + 3 x 10 ms.
        (40, 1 + 3 + 3 * 3, ["of 40.0 ms", "the constraints (at most 40 ms of compilation)"]),
        (0, 18, []),
    ],
)
def test_the_plan_keeps_to_the_limit_and_says_what_is_proven(
    limit_ms: float, ms: float, words: list[str]
) -> None:
    plan = within(limit_ms).default
    assert evaluate(CHAIN, plan.segments) == pytest.approx(plan.predicted_ns)
    assert plan.proof is not None and plan.proof.is_optimal and plan.proof.constrained
    assert plan.predicted_ns == ms * 1e6
    assert all(each in " ".join(plan.notes) for each in words)


def test_a_limit_that_cannot_be_kept_is_an_error() -> None:
    with pytest.raises(PartitionError, match=r"compiles within 1.00 ms"):
        within(1, ON_NPU)
    with pytest.raises(PartitionError, match="needs costs that tell compile times"):
        within(1, times=None)
