"""Costs in, plan out: which units run where, in which segments, and why.

Knows neither torch nor any device; numpy and scipy only.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, cast

from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import Engine, Plan, Segment
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.partition.baselines import find_baselines
from nnapi_prof.partition.compiling import CompileCosts, CompileTimes, solve_within
from nnapi_prof.partition.constraints import Constraints, constrain
from nnapi_prof.partition.explain import cause_of_baseline, cause_of_optimum, ms
from nnapi_prof.partition.problem import (
    Costs,
    Placement,
    Problem,
    check_runnable,
    evaluate,
    make_problem,
)
from nnapi_prof.partition.solver import MAX_WORK, Memory, Solution, solve_placements

__all__ = [
    "MAX_WORK",
    "TOLERANCE",
    "Constraints",
    "Costs",
    "Memory",
    "Problem",
    "baselines",
    "baselines_of",
    "evaluate",
    "is_optimum",
    "make_problem",
    "solve",
    "solve_problem",
]

TOLERANCE = 0.01
"""Plans this close are told apart by noise only: repeats of one measurement on a phone's big cores
vary by 0.1 to 1 %, and the cheapest of many sums is the luckiest. Of such plans the simplest wins.
"""

MILP_SECONDS = 60.0
"""HiGHS stops then with the best plan it has, and says what it has proven."""

_OPTIMUM = "optimal over all plans under these costs"


def solve(
    graph: UnitGraph,
    costs: Costs,
    *,
    tolerance: float = TOLERANCE,
    constraints: Constraints | None = None,
    solver: Literal["search", "milp"] = "search",
    max_work: float = MAX_WORK,
    memory: Memory | None = None,
) -> Plan:
    """The plan ``dp``: of least sequential latency under ``costs``.

    Exact over all plans unless the graph is so wide that ``max_work`` (steps of the search) does
    not suffice; the plan's notes then say how far from the optimum it can be at most. Of the plans
    within ``tolerance`` of the least latency, and no slower than any baseline, one with few
    segments is taken. ``constraints`` hold for the plan, not for the baselines. ``solver`` "milp"
    asks HiGHS for the optimum instead, which takes long beyond some dozens of units. ``memory``
    makes solving one graph under one cost model after the other faster.

    Raises PartitionError where a unit can run nowhere, or no plan keeps to the constraints.
    """
    problem = make_problem(graph, costs)
    compiling = None
    if constraints is not None and constraints.max_compile_ns is not None:
        compiling = CompileTimes.read(problem, cast("CompileCosts", costs))
    return solve_problem(
        problem,
        costs.simulated,
        tolerance=tolerance,
        constraints=constraints,
        solver=solver,
        max_work=max_work,
        compiling=compiling,
        memory=memory,
    )


def solve_problem(
    problem: Problem,
    simulated: bool,
    *,
    tolerance: float = TOLERANCE,
    constraints: Constraints | None = None,
    solver: Literal["search", "milp"] = "search",
    max_work: float = MAX_WORK,
    compiling: CompileTimes | None = None,
    memory: Memory | None = None,
) -> Plan:
    """:func:`solve` for a problem that is arrays already; ``compiling`` where the constraints limit
    compile time."""
    check_runnable(problem)
    constraints = constraints or Constraints()
    problem = constrain(problem, constraints)
    if constraints.max_compile_ns is not None:
        if compiling is None:
            raise PartitionError("a limit of compile time needs costs that tell compile times")
        if solver == "milp":
            raise PartitionError(
                "the mixed-integer programme has no compile times in it, so that it cannot limit "
                "them: leave --solver milp out, the search keeps to --max-compile-ms"
            )
        return _within(problem, simulated, compiling, constraints, tolerance, max_work)
    most = constraints.max_regions
    found = solve_placements(
        problem, tolerance=tolerance, max_regions=most, max_work=max_work, memory=memory
    )
    if found is None:
        limit = "" if most is None else f" with at most {most} on accelerators"
        raise PartitionError(
            f"no chain of segments{limit} runs every unit: allow more segments, or more targets"
        )
    if solver == "milp":
        return _judged(problem, simulated, found, constraints)
    segments = tuple(_segment(problem, p, cause_of_optimum(problem, p)) for p in found.placements)
    note = _scope(found, constraints)
    simpler = len(segments) < found.least_segments
    if simpler:
        note += (
            f"; {found.least_segments} segments would take {ms(found.least_ns)}, which is within "
            f"{tolerance:.1%} of this plan's {ms(found.ns)} with {len(segments)}"
        )
    if simulated and (simpler or not found.exact):
        note += "; these latencies are simulated"
    return Plan("dp", segments, simulated, (note,))


def _within(
    problem: Problem,
    simulated: bool,
    compiling: CompileTimes,
    constraints: Constraints,
    tolerance: float,
    max_work: float,
) -> Plan:
    """The plan under a limit of compile time."""
    limit = constraints.max_compile_ns
    assert limit is not None
    found = solve_within(
        problem,
        compiling,
        limit,
        tolerance=tolerance,
        max_regions=constraints.max_regions,
        max_work=max_work,
    )
    if found is None:
        raise PartitionError(
            f"no chain of segments compiles within {ms(limit)}: allow more time, or the CPU for "
            "more units"
        )
    placements = found.solution.placements
    segments = tuple(_segment(problem, p, cause_of_optimum(problem, p)) for p in placements)
    proven = (
        _scope(found.solution, constraints)
        if found.solution.exact
        else f"no plan within the limit is faster than {ms(found.bound_ns)}, which is at most "
        f"{found.gap:.2%} less than this one's {ms(found.solution.ns)}"
    )
    known = sum((frozenset(units), k) in compiling.region_ns for units, k in placements)
    regions = sum(problem.targets[k].engine is Engine.NNAPI for _, k in placements)
    note = (
        f"regions compile in {ms(found.compile_ns)} together, of {ms(limit)} allowed "
        f"({known} of {regions} measured): {proven}"
    )
    return Plan("dp", segments, simulated, (note,))


def _judged(problem: Problem, simulated: bool, found: Solution, constraints: Constraints) -> Plan:
    """The plan of the mixed-integer programme."""
    from nnapi_prof.partition.milp import solve_milp  # HiGHS takes a while to import

    judged = solve_milp(
        problem,
        upper_ns=found.least_ns,
        time_limit_s=MILP_SECONDS,
        max_regions=constraints.max_regions,
    )
    segments = tuple(_segment(problem, p, cause_of_optimum(problem, p)) for p in judged.placements)
    proven = "the optimum" if judged.proven else f"no plan is faster than {ms(judged.bound_ns)}"
    note = (
        f"by HiGHS, {judged.slots} slots: {ms(judged.ns)}, {proven}; "
        f"the search found {ms(found.least_ns)}"
    )
    return Plan("milp", segments, simulated, (note,))


def is_optimum(plan: Plan) -> bool:
    """Whether no plan at all is faster than this one by more than the tolerance, by its costs: the
    search was whole, and nothing was asked for that rules plans out."""
    return any(note.startswith(_OPTIMUM) for note in plan.notes)


def _scope(found: Solution, constraints: Constraints) -> str:
    """What is proven about a plan."""
    asked = constraints.words
    if found.exact:
        proven = f"optimal over all plans that keep to what was asked ({asked})"
        return f"{proven if asked else _OPTIMUM}: {found.n_ideals} downward-closed sets"
    which = f"no plan that keeps to what was asked ({asked})" if asked else "no plan at all"
    return (
        f"the graph is too wide to search whole: {which} is faster than "
        f"{ms(found.bound_ns)}, this search found {ms(found.least_ns)}, which is at most "
        f"{found.gap:.2%} more"
    )


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
    for found in find_baselines(problem, listed):
        segments = tuple(
            _segment(problem, p, cause_of_baseline(problem, p, found)) for p in found.placements
        )
        whole = found.favoured is not None and len(segments) == 1
        notes = ("the whole model on one target",) if whole else ()
        plans.append(Plan(found.name, segments, simulated, notes))
    return tuple(plans)


def _segment(problem: Problem, placement: Placement, cause: str) -> Segment:
    units, k = placement
    return Segment(
        units=units,
        target=problem.targets[k],
        predicted_ns=problem.segment_ns(units, k),
        cause=cause,
        measured=(frozenset(units), k) in problem.region_ns,
        estimated=problem.is_estimated(units, k),
    )
