"""Costs in, plan out: which units run where, in which segments, and why.

Knows neither torch nor any device; numpy and scipy only.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypedDict, Unpack, cast

from nnapi_prof.costs.model.region import CostArrays
from nnapi_prof.graph.plan import Plan
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.partition.baselines import find_baselines
from nnapi_prof.partition.constraints import (
    CompileCosts,
    CompileTimes,
    Constraints,
    ErrorLimit,
)
from nnapi_prof.partition.explain import cause_of_baseline
from nnapi_prof.partition.front import NoisePoint, best_within, front
from nnapi_prof.partition.parallel import ParallelPlan, plan_parallel
from nnapi_prof.partition.precision_rules import (
    RulePlan,
    uniform,
)
from nnapi_prof.partition.problem import (
    CostProvider,
    Problem,
    check_runnable,
    evaluate,
    make_problem,
)
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
    "CostProvider",
    "CurvePoint",
    "ErrorLimit",
    "NoisePoint",
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


class SolveOptions(TypedDict, total=False):
    """The options of both functions below (see :func:`plan_problem`)."""

    tolerance: float
    constraints: Constraints | None
    limits: SearchLimits | None
    report: Report | None
    warm: WarmStart | None
    with_curve: bool


def plan_graph(
    graph: UnitGraph, costs: CostProvider, **options: Unpack[SolveOptions]
) -> Partitioning:
    """:func:`plan_problem` for a graph and a cost model."""
    problem = make_problem(graph, costs)
    constraints = options.get("constraints")
    compiling = None
    if constraints is not None and constraints.max_compile_ns is not None:
        compiling = CompileTimes.read(problem, cast("CompileCosts", costs))
    return plan_problem(problem, costs.simulated, compiling=compiling, **options)


def solve(graph: UnitGraph, costs: CostProvider, **options: Unpack[SolveOptions]) -> Plan:
    """Return the plan ``dp``: of the plans within ``tolerance`` of the least sequential latency
    under ``costs``, and no slower than any baseline, one with the fewest segments.

    Its ``proof`` says what is known of the least latency. ``constraints`` hold for the plan, not
    for the baselines. ``warm`` is what an earlier call for the same graph left.

    Raises PartitionError where a unit can run nowhere, or no plan keeps to the constraints.
    """
    options["with_curve"] = False
    return plan_graph(graph, costs, **options).default


def is_optimum(plan: Plan) -> bool:
    """Whether no plan at all is faster than this one by more than the tolerance, by its costs: it
    is proven, and nothing was asked for that rules plans out."""
    return plan.proof is not None and plan.proof.is_optimal and not plan.proof.constrained


def baselines(
    graph: UnitGraph, costs: CostProvider, listed: Collection[int] = ()
) -> tuple[Plan, ...]:
    """Plans by simple rules, without the partitioner, all-cpu first (see the module ``baselines``).

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
