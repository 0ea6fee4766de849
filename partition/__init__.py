"""Costs in, plan out: which units run where, in which segments, and why.

Knows neither torch nor any device; numpy and scipy only.
"""

from __future__ import annotations

import math

from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import Plan, Segment
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.partition.baselines import find_baselines, total_ns
from nnapi_prof.partition.dp import Placement, lower_bound, shortest_path
from nnapi_prof.partition.explain import cause_of_baseline, cause_of_optimum, ms
from nnapi_prof.partition.ideals import chain_ideals, enumerate_ideals, linear_ideals, sort_ideals
from nnapi_prof.partition.problem import Costs, Problem, check_runnable, evaluate, make_problem

__all__ = [
    "MAX_IDEALS",
    "TOLERANCE",
    "Costs",
    "Problem",
    "baselines",
    "baselines_of",
    "evaluate",
    "make_problem",
    "solve",
    "solve_problem",
]

MAX_IDEALS = 3000
"""Above this many ideals the search is over linear orders: a few seconds of numpy at the most."""


TOLERANCE = 0.01
"""Plans this close are told apart by noise only: repeats of one measurement on a phone's big cores
vary by 0.1 to 1 %, and the cheapest of many sums is the luckiest. Of such plans the simplest wins.
"""


def solve(
    graph: UnitGraph,
    costs: Costs,
    *,
    max_ideals: int = MAX_IDEALS,
    tolerance: float = TOLERANCE,
) -> Plan:
    """The plan ``dp``: of least sequential latency under ``costs``.

    Exact over all plans where the graph has at most ``max_ideals`` ideals; else over the linear
    orders and baselines named in the plan's notes. Of the plans within ``tolerance`` of the least
    latency, and no slower than any baseline, it is the fastest of those with fewest segments.
    Raises PartitionError where a unit can run nowhere.
    """
    return solve_problem(
        make_problem(graph, costs), costs.simulated, max_ideals=max_ideals, tolerance=tolerance
    )


def solve_problem(
    problem: Problem,
    simulated: bool,
    *,
    max_ideals: int = MAX_IDEALS,
    tolerance: float = TOLERANCE,
) -> Plan:
    """:func:`solve` for a problem that is arrays already."""
    check_runnable(problem)
    rivals = find_baselines(problem)
    ideals = enumerate_ideals(problem, max_ideals)
    exact = ideals is not None
    if ideals is None:
        family = set(linear_ideals(problem))
        for rival in rivals:
            family.update(chain_ideals(units for units, _ in rival.placements))
        ideals = sort_ideals(family)
    bound = min((b.predicted_ns for b in rivals), default=math.inf)
    found = shortest_path(problem, ideals, bound)
    if not found:
        raise PartitionError("no chain of segments runs every unit")
    ((n_segments, path),) = found.items()
    least = total_ns(problem, path)
    if n_segments > 1 and tolerance > 0:
        close = min(bound, least * (1 + tolerance))
        simpler = shortest_path(problem, ideals, close, max_segments=n_segments - 1)
        path = simpler[min(simpler)] if simpler else path
    segments = tuple(_segment(problem, p, cause_of_optimum(problem, p)) for p in path)
    note = _scope(problem, exact, len(ideals), max_ideals, least)
    if len(path) < n_segments:
        note += (
            f"; {n_segments} segments would take {ms(least)}, which is within {tolerance:.1%} of "
            f"this plan's {ms(total_ns(problem, path))} with {len(path)}"
        )
    if simulated and (len(path) < n_segments or not exact):
        note += "; these latencies are simulated"
    return Plan("dp", segments, simulated, (note,))


def _scope(problem: Problem, exact: bool, n_ideals: int, max_ideals: int, least: float) -> str:
    """What the plan was searched among."""
    if exact:
        return f"optimal over all plans under these costs: {n_ideals} downward-closed sets"
    return (
        f"the graph has more than {max_ideals} downward-closed sets, so the plan is "
        "optimal only over three linear orders (the model's, depth first, breadth first) "
        "and the baselines; "
        f"no plan at all is faster than {ms(lower_bound(problem))}, this search found {ms(least)}"
    )


def baselines(graph: UnitGraph, costs: Costs) -> tuple[Plan, ...]:
    """What one would do without the partitioner, all-cpu first (see the module ``baselines``).

    Raises PartitionError where a unit can run nowhere.
    """
    return baselines_of(make_problem(graph, costs), costs.simulated)


def baselines_of(problem: Problem, simulated: bool) -> tuple[Plan, ...]:
    """:func:`baselines` for a problem that is arrays already."""
    check_runnable(problem)
    plans = []
    for found in find_baselines(problem):
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
