"""Plans of random graphs against the truth; the truth against the definition; liars are caught."""

import math
from collections.abc import Callable
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import CPU, ProofKind
from nnapi_prof.partition import Partitioning
from nnapi_prof.partition.constraints import Constraints
from nnapi_prof.partition.problem import ValueFlow
from tests.partition.cases import NPU
from tests.partition.drawing import draw_case
from tests.partition.judge import Case, region_costs, truth_of
from tests.partition.networks import problem_on
from tests.partition.test_plan_problem import lucky_chain
from tests.partition.trial import EXAMPLES, ask, judge, judge_plans
from tests.parts import slow_but

PARTS = 4
"""Tests among which the graphs are shared out, for runs in parallel."""


@pytest.mark.parametrize("part", slow_but(range(PARTS), 0))
def test_plans_of_random_graphs(part):
    for seed in range(part, EXAMPLES, PARTS):
        assert judge_plans(seed) == [], draw_case(f"1/{seed}")


# ---- the truth ---------------------------------------------------------------------------------


def test_the_truth_is_that_of_the_definition():
    problems = [draw_case(f"small/{number}").problem for number in range(60)]
    for problem in [each for each in problems if each.n <= 8]:
        for (mask, k), ns in np.ndenumerate(region_costs(problem)):
            units = [u for u in range(problem.n) if mask >> u & 1]
            assert not units or ns == pytest.approx(problem.segment_ns(units, k), rel=1e-12)
    assert truth_of(HEADS).optimum_ns == 82.0
    assert truth_of(HEADS).least_ns.tolist() == [94.0, 82.0, 82.0, 82.0]
    assert judge(HEADS) == [] and ask(HEADS).best.proof.is_optimal


# ---- liars -------------------------------------------------------------------------------------

HEADS = Case(
    problem_on(
        [[], [0], [0], [0]],
        [[29, math.inf], [18, 5], [17, 4], [30, 8]],
        sizes=[16, 16, 1, 4],
        inputs=[ValueFlow(-1, (0,), 1)],
        targets=(CPU, NPU),
        overhead_ns=[0, 2],
        ns_per_byte=[0, 1],
    )
)
"""Three heads read one value: on the accelerator it is brought in once."""

LUCKY = Case(lucky_chain(), tolerance=0.01)


def on_the_cpu(answer: Partitioning) -> Partitioning:
    """The whole model on the CPU, 94 ns, with a proof that it is the best."""
    units = (0, 1, 2, 3)
    segment = replace(answer.best.segments[0], units=units, target=CPU, predicted_ns=94.0)
    proof = replace(answer.best.proof, kind=ProofKind.EXACT, least_ns=94.0, bound_ns=94.0)
    plan = replace(answer.best, segments=(segment,), proof=proof)
    point = replace(answer.curve[0], n_segments=1, ns=94.0, bound_ns=94.0, placements=((units, 0),))
    return replace(answer, best=plan, default=plan, curve=(point,))


def with_best(answer: Partitioning, **changes: object) -> Partitioning:
    return replace(answer, best=replace(answer.best, **changes))


def with_proof(answer: Partitioning, **changes: object) -> Partitioning:
    proof = replace(answer.best.proof, **changes)
    best, default = (replace(plan, proof=proof) for plan in (answer.best, answer.default))
    return replace(answer, best=best, default=default)


def with_last_point(answer: Partitioning, **changes: object) -> Partitioning:
    return replace(answer, curve=(replace(answer.curve[-1], **changes),))


def with_cheaper_default(answer: Partitioning) -> Partitioning:
    first, *rest = answer.default.segments
    cheaper = replace(first, predicted_ns=first.predicted_ns / 2)
    return replace(answer, default=replace(answer.default, segments=(cheaper, *rest)))


LIARS: tuple[tuple[str, Callable[[Partitioning], Partitioning]], ...] = (
    ("exact bound rival", on_the_cpu),
    ("bound", lambda answer: with_proof(answer, bound_ns=82.1)),
    ("met", lambda answer: with_proof(answer, kind=ProofKind.BOUND_MET, bound_ns=81.0)),
    ("gap", lambda answer: with_proof(answer, kind=ProofKind.GAP)),
    ("proof", lambda answer: with_proof(answer, least_ns=81.0, bound_ns=80.0)),
    ("unproven", lambda answer: with_best(answer, proof=None)),
    ("invalid", with_cheaper_default),
    ("invalid", lambda answer: with_best(answer, segments=answer.best.segments[::-1])),
    ("curve", lambda answer: with_last_point(answer, bound_ns=83.0)),
    ("invalid curve", lambda answer: with_last_point(answer, ns=81.0)),
    ("curve", lambda answer: with_last_point(answer, n_segments=1, bound_ns=0.0)),
    ("curve", lambda answer: replace(answer, curve=())),
    ("refused", Mock(side_effect=PartitionError("no plan"))),
    ("crashed", Mock(side_effect=ZeroDivisionError)),
)


@pytest.mark.parametrize(("kinds", "liar"), LIARS)
def test_liars_are_caught(kinds, liar):
    complaints = judge(HEADS, lambda case: liar(ask(case)))
    assert {complaint.partition(":")[0] for complaint in complaints} == set(kinds.split())


@pytest.mark.parametrize(
    ("case", "answered", "complaint"),
    [
        (LUCKY, LUCKY, "simplest"),
        (replace(HEADS, constraints=Constraints(max_regions=0)), HEADS, "limit: best: 1 regions"),
        (replace(HEADS, constraints=Constraints(pinned={0: NPU})), HEADS, "impossible"),
    ],
)
def test_a_plan_for_another_case_is_caught(case, answered, complaint):
    """More segments than the tolerance asks for, over its limits, or where no plan exists."""
    assert judge(case) == []
    answer = ask(answered)
    best = replace(answer, default=answer.best)
    assert any(each.startswith(complaint) for each in judge(case, lambda case: best))


@pytest.mark.parametrize("seed", ["1/13977", "1/11701"])
def test_without_time_there_is_a_plan_and_it_is_what_it_says(seed):
    """Two that once were not: one has a unit that runs only inside of measured regions, the other
    begins with a plan that joining betters by a fifth."""
    case = draw_case(seed)
    assert case.seconds == 0 and judge(case) == []
