"""Plans of random graphs against the truth; the truth against the definition; liars are caught."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import CPU, Plan, Preference, ProofKind, Target
from nnapi_prof.partition import Partitioning
from nnapi_prof.partition.constraints import Constraints
from nnapi_prof.partition.problem import Problem, ValueFlow
from tests.partition.drawing import draw_case
from tests.partition.judge import Case, region_costs, truth_of
from tests.partition.trial import EXAMPLES, SEED, tally
from tests.partition.verdict import ask, judge, report
from tests.parts import slow_but

NPU = Target.nnapi("sim-npu", Preference.FAST_SINGLE_ANSWER)


PARTS = 4
"""Tests among which the graphs are shared out, for runs in parallel."""


@pytest.mark.parametrize("part", slow_but(range(PARTS), 0))
def test_plans_of_random_graphs(part: int) -> None:
    total = tally([f"{SEED}/{i}" for i in range(part, EXAMPLES, PARTS)])
    for seeds in total.failed.values():
        pytest.fail(f"{total.words}\n{report(seeds[0])}", pytrace=False)


# ---- the truth ---------------------------------------------------------------------------------


def test_costs_of_regions_are_those_of_the_definition() -> None:
    problems = [draw_case(f"small/{number}").problem for number in range(60)]
    for problem in [each for each in problems if each.n <= 8]:
        costs = region_costs(problem)
        for mask in range(1, len(costs)):
            units = [u for u in range(problem.n) if mask >> u & 1]
            for k, ns in enumerate(costs[mask]):
                assert ns == pytest.approx(problem.segment_ns(units, k), rel=1e-12)


# ---- liars -------------------------------------------------------------------------------------


def heads() -> Case:
    """Three heads read one value: on the accelerator it is brought in once."""
    return Case(
        Problem(
            labels=("u0", "u1", "u2", "u3"),
            predecessors=((), (0,), (0,), (0,)),
            values=(
                ValueFlow(-1, (0,), 1),
                ValueFlow(0, (1, 2, 3), 16),
                ValueFlow(1, (), 16, True),
                ValueFlow(2, (), 1, True),
                ValueFlow(3, (), 4, True),
            ),
            targets=(CPU, NPU),
            unit_ns=np.array([[29.0, math.inf], [18.0, 5.0], [17.0, 4.0], [30.0, 8.0]]),
            overhead_ns=np.array([0.0, 2.0]),
            in_ns_per_byte=np.array([0.0, 1.0]),
            out_ns_per_byte=np.array([0.0, 1.0]),
        )
    )


def test_the_truth_about_heads() -> None:
    assert truth_of(heads()).optimum_ns == 82.0
    assert truth_of(heads()).least_ns.tolist() == [94.0, 82.0, 82.0, 82.0]
    verdict = judge(heads())
    assert not verdict.complaints and verdict.proof != ProofKind.GAP.name


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


def cheaper(plan: Plan) -> Plan:
    first, *rest = plan.segments
    return replace(plan, segments=(replace(first, predicted_ns=first.predicted_ns / 2), *rest))


def without_a_plan(answer: Partitioning) -> Partitioning:
    raise PartitionError("no plan")


def stopped(answer: Partitioning) -> Partitioning:
    raise ZeroDivisionError


LIARS: tuple[tuple[str, Callable[[Partitioning], Partitioning]], ...] = (
    ("exact bound rival", on_the_cpu),
    ("bound", lambda answer: with_proof(answer, bound_ns=82.1)),
    ("met", lambda answer: with_proof(answer, kind=ProofKind.BOUND_MET, bound_ns=81.0)),
    ("gap", lambda answer: with_proof(answer, kind=ProofKind.GAP)),
    ("proof", lambda answer: with_proof(answer, least_ns=81.0, bound_ns=80.0)),
    ("unproven", lambda answer: with_best(answer, proof=None)),
    ("invalid", lambda answer: replace(answer, default=cheaper(answer.default))),
    ("invalid", lambda answer: with_best(answer, segments=answer.best.segments[::-1])),
    ("curve", lambda answer: with_last_point(answer, bound_ns=83.0)),
    ("invalid curve", lambda answer: with_last_point(answer, ns=81.0)),
    ("curve", lambda answer: with_last_point(answer, n_segments=1, bound_ns=0.0)),
    ("curve", lambda answer: replace(answer, curve=())),
    ("refused", without_a_plan),
    ("crashed", stopped),
)


@pytest.mark.parametrize(("kinds", "liar"), LIARS)
def test_liars_are_caught(kinds: str, liar: Callable[[Partitioning], Partitioning]) -> None:
    assert judge(heads(), lambda case: liar(ask(case))).kinds == set(kinds.split())


def lucky() -> Case:
    """Four units on the CPU, two pairs of which were measured a little below their parts."""
    return Case(
        Problem(
            labels=("u0", "u1", "u2", "u3"),
            predecessors=((), (0,), (1,), (2,)),
            values=tuple(ValueFlow(u, (u + 1,), 1) for u in range(3)),
            targets=(CPU,),
            unit_ns=np.full((4, 1), 100.0),
            overhead_ns=np.zeros(1),
            in_ns_per_byte=np.zeros(1),
            out_ns_per_byte=np.zeros(1),
            region_ns={(frozenset({0, 1}), 0): 198.0, (frozenset({2, 3}), 0): 199.0},
        ),
        tolerance=0.01,
    )


def test_more_segments_than_the_tolerance_asks_for_are_caught() -> None:
    answer = ask(lucky())
    assert not judge(lucky()).complaints
    assert (len(answer.best.segments), len(answer.default.segments)) == (2, 1)
    split = replace(answer, default=answer.best)
    (complaint,) = judge(lucky(), lambda case: split).complaints
    assert complaint.startswith("simplest")


def test_a_plan_over_its_limits_is_caught() -> None:
    answer = ask(heads())
    limited = replace(heads(), constraints=Constraints(max_regions=0))
    assert not judge(limited).complaints
    complaints = judge(limited, lambda case: answer).complaints
    assert "limit: best: 1 regions, 0 allowed" in complaints


def test_a_plan_where_none_exists_is_caught() -> None:
    nowhere = replace(heads(), constraints=Constraints(pinned={0: NPU}))
    assert not judge(nowhere).complaints
    (complaint,) = judge(nowhere, lambda case: ask(heads())).complaints
    assert complaint.startswith("impossible")


@pytest.mark.parametrize("seed", ["1/13977", "1/11701"])
def test_without_time_there_is_a_plan_and_it_is_what_it_says(seed: str) -> None:
    """Two that once were not: one has a unit that runs only inside of measured regions, the other
    begins with a plan that joining betters by a fifth."""
    case = draw_case(seed)
    assert case.seconds == 0
    assert judge(case).complaints == []
