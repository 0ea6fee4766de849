"""Costs in, plan out: which units run where, in which segments, and why.

Knows neither torch nor any device; numpy and scipy only.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, TypedDict, Unpack, cast

from nnapi_prof.costs.model.region import CostArrays
from nnapi_prof.errors import PartitionError, option
from nnapi_prof.graph.causes import SolverNote
from nnapi_prof.graph.plan import Plan, Proof, ProofKind
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.partition.baselines import find_baselines
from nnapi_prof.partition.constraints import (
    CompileCosts,
    CompileTimes,
    Constraints,
    ErrorLimit,
    constrain,
)
from nnapi_prof.partition.explain import cause_of_baseline
from nnapi_prof.partition.front import FrontPoint, best_within, front
from nnapi_prof.partition.parallel import ParallelPlan, plan_parallel
from nnapi_prof.partition.precision_rules import (
    GreedyOrder,
    RulePlan,
    greedy_orders,
    uniform,
)
from nnapi_prof.partition.problem import Costs, Problem, check_runnable, evaluate, make_problem
from nnapi_prof.partition.search.result import Report, SearchLimits, Watch
from nnapi_prof.partition.search.tradeoff import CurvePoint
from nnapi_prof.partition.solver import (
    TOLERANCE,
    Partitioning,
    WarmStart,
    plan_of_placements,
    plan_problem,
    segment_of,
)
from nnapi_prof.partition.throughput import ThroughputPlan, plan_throughput

__all__ = [
    "TOLERANCE",
    "Constraints",
    "CostArrays",
    "Costs",
    "CurvePoint",
    "ErrorLimit",
    "FrontPoint",
    "GreedyOrder",
    "ParallelPlan",
    "Partitioning",
    "Problem",
    "Report",
    "RulePlan",
    "SearchLimits",
    "ThroughputPlan",
    "WarmStart",
    "Watch",
    "baselines",
    "baselines_of",
    "best_within",
    "evaluate",
    "front",
    "greedy_orders",
    "is_optimum",
    "make_problem",
    "plan_graph",
    "plan_of_placements",
    "plan_parallel",
    "plan_problem",
    "plan_throughput",
    "solve",
    "uniform",
]

MILP_SECONDS = 60.0
"""HiGHS stops then with the best plan it has, and says what it has proven."""


class SolveOptions(TypedDict, total=False):
    """What both of these take (see :func:`plan_problem`)."""

    tolerance: float
    constraints: Constraints | None
    limits: SearchLimits | None
    report: Report | None
    warm: WarmStart | None
    with_curve: bool


def plan_graph(graph: UnitGraph, costs: Costs, **options: Unpack[SolveOptions]) -> Partitioning:
    """:func:`plan_problem` for a graph and a cost model."""
    problem = make_problem(graph, costs)
    constraints = options.get("constraints")
    compiling = None
    if constraints is not None and constraints.max_compile_ns is not None:
        compiling = CompileTimes.read(problem, cast("CompileCosts", costs))
    return plan_problem(problem, costs.simulated, compiling=compiling, **options)


def solve(
    graph: UnitGraph,
    costs: Costs,
    *,
    solver: Literal["search", "milp"] = "search",
    milp_seconds: float | None = None,
    **options: Unpack[SolveOptions],
) -> Plan:
    """The plan ``dp``: of the plans within ``tolerance`` of the least sequential latency under
    ``costs``, and no slower than any baseline, one with the fewest segments.

    Its ``proof`` says what is known of the least latency. ``constraints`` hold for the plan, not
    for the baselines. ``solver`` "milp" asks HiGHS for the optimum instead, which takes long beyond
    some dozens of units, ``milp_seconds`` at most (None: :data:`MILP_SECONDS`). ``warm`` is what an
    earlier call for the same graph left.

    Raises PartitionError where a unit can run nowhere, no plan keeps to the constraints, or HiGHS
    found none in its time.
    """
    constraints = options.get("constraints") or Constraints()
    if solver == "milp" and constraints.max_compile_ns is not None:
        raise PartitionError(
            "the mixed-integer programme has no compile times in it, so that it cannot limit "
            f"them: leave {option('solver', 'milp')} out, the search keeps to "
            f"{option('max-compile-ms')}"
        )
    if solver == "milp" and constraints.errors:
        raise PartitionError(
            "the mixed-integer programme has no errors in it, so that it cannot limit them: leave "
            f"{option('solver', 'milp')} out, the search keeps to {option('accuracy-budget')}"
        )
    options["with_curve"] = False
    answer = plan_graph(graph, costs, **options)
    if solver == "milp":
        seconds = MILP_SECONDS if milp_seconds is None else milp_seconds
        problem = make_problem(graph, costs)
        return _milp_plan(problem, costs.simulated, answer.best, constraints, seconds)
    return answer.default


def _milp_plan(
    problem: Problem, simulated: bool, best: Plan, constraints: Constraints, seconds: float
) -> Plan:
    """The plan of the mixed-integer programme."""
    from nnapi_prof.partition.milp import OutOfTimeError, solve_milp  # HiGHS: slow to import

    problem = constrain(problem, constraints)
    try:
        judged = solve_milp(
            problem,
            upper_ns=best.predicted_ns,
            time_limit_s=seconds,
            max_regions=constraints.max_regions,
        )
    except OutOfTimeError as error:
        raise PartitionError(
            f"{error}, of {problem.n} units on {len(problem.targets)} targets: give it more with "
            f"{option('seconds')}, or leave {option('solver', 'milp')} out, for the search has a "
            "plan already"
        ) from None
    note = SolverNote(judged.slots, judged.ns, judged.bound_ns, judged.proven, best.predicted_ns)
    kind = ProofKind.EXACT if judged.proven else ProofKind.GAP
    proof = Proof(kind, judged.ns, judged.bound_ns, "milp", "milp", bool(constraints.words))
    return plan_of_placements(problem, simulated, judged.placements, proof, (note,), "milp")


def is_optimum(plan: Plan) -> bool:
    """Whether no plan at all is faster than this one by more than the tolerance, by its costs: it
    is proven, and nothing was asked for that rules plans out."""
    return plan.proof is not None and plan.proof.is_optimal and not plan.proof.constrained


def baselines(graph: UnitGraph, costs: Costs, listed: Collection[int] = ()) -> tuple[Plan, ...]:
    """What one would do without the partitioner, all-cpu first (see the module ``baselines``).

    ``listed`` are units that the baseline of that name keeps off accelerators. Raises
    PartitionError where a unit can run nowhere.
    """
    return baselines_of(make_problem(graph, costs), costs.simulated, listed)


def baselines_of(
    problem: Problem, simulated: bool, listed: Collection[int] = ()
) -> tuple[Plan, ...]:
    """:func:`baselines` for a problem that is arrays already."""
    check_runnable(problem)
    plans = []
    for baseline in find_baselines(problem, listed):
        segments = tuple(
            segment_of(problem, p, cause_of_baseline(problem, p, baseline))
            for p in baseline.placements
        )
        whole = baseline.favoured is not None and len(segments) == 1
        notes = ("the whole model on one target",) if whole else ()
        converting_ns = problem.conversions_ns(baseline.placements)
        plans.append(Plan(baseline.name, segments, simulated, notes, conversions_ns=converting_ns))
    return tuple(plans)
