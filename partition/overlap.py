"""A lower bound of every schedule, from the programme of :mod:`.overlap_rows`.

Of its linear relaxation the bound is taken from the dual side, so that rounding in the solver
cannot raise it above the truth (as in :mod:`.search.relaxation`); with every unit on one target,
HiGHS branches for a while and says what it has proven.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from nnapi_prof.partition.arrays import Floats
from nnapi_prof.partition.lanes import Lanes
from nnapi_prof.partition.overlap_rows import OverlapProgramme
from nnapi_prof.partition.problem import Problem

MOST_ENTRIES = 2_000_000
"""Non-zeros; a larger programme would take minutes."""
MANY_COLUMNS = 15_000
"""From here on HiGHS's interior points are faster than its simplex."""


MOST_WHOLE = 800
"""Units and targets together, of which some seconds of branching raise the bound."""
TOLERANCE = 1e-5
"""Relative; HiGHS's own is 1e-6."""


@dataclass(frozen=True, eq=False)
class OverlapBound:
    """No schedule takes less; and where the programme would run what."""

    ns: float
    share: Floats
    """[n, t], between 0 and 1"""


def lower_bound(problem: Problem, lanes: Lanes, seconds: float = math.inf) -> OverlapBound | None:
    """The bound for a problem whose targets all belong to lanes; None where the programme is too
    large, or not solved within ``seconds``."""
    programme = OverlapProgramme(_discounted(problem), lanes)
    if programme.n_entries > MOST_ENTRIES:
        return None
    cost, limit, matrix, x = programme.cost, programme.limit, programme.matrix, programme.x
    solve: Any = linprog  # its stubs know no time limit beside a method
    answer = solve(
        cost,
        A_ub=-matrix,
        b_ub=np.zeros(programme.n_rows),
        A_eq=programme.one,
        b_eq=np.ones(problem.n),
        bounds=np.stack([np.zeros(len(cost)), limit], axis=1),
        method="highs-ds" if len(cost) < MANY_COLUMNS else "highs-ipm",
        options={"presolve": True, "time_limit": max(0.05, min(seconds, 1e6))},
    )
    if answer.status != 0:
        return None
    price = np.maximum(0.0, -answer.ineqlin.marginals)
    reduced = cost - matrix.T @ price
    least = np.full(problem.unit_ns.shape, np.inf)
    least[programme.place] = reduced[x]
    reduced[x] = 0.0
    bound = float(least.min(axis=1).sum() + np.minimum(reduced, 0.0) @ limit)
    return OverlapBound(
        max(0.0, bound * (1 - 1e-12)) / programme.scale,
        _assignment_shares(problem, programme, answer.x),
    )


def integral_bound(problem: Problem, lanes: Lanes, seconds: float) -> OverlapBound | None:
    """:func:`lower_bound` with no unit shared out among targets, as far as HiGHS proves it within
    ``seconds``, and the best targets that it found; None where it found none, or they are too many
    to try. For what it proves, its own tolerance is taken off."""
    if np.isfinite(problem.unit_ns).sum() > MOST_WHOLE:
        return None
    programme = OverlapProgramme(_discounted(problem), lanes)
    whole = np.zeros(programme.n_columns, dtype=np.int8)
    whole[programme.x] = 1
    answer = milp(
        programme.cost,
        integrality=whole,
        bounds=Bounds(0.0, programme.limit),
        constraints=[
            LinearConstraint(programme.matrix, 0.0, np.inf),
            LinearConstraint(programme.one, 1.0, 1.0),
        ],
        options={"time_limit": seconds},
    )
    told = getattr(answer, "mip_dual_bound", None)
    if answer.x is None or told is None or not math.isfinite(told):
        return None
    bound = max(0.0, float(told) * (1 - TOLERANCE)) / programme.scale
    return OverlapBound(bound, _assignment_shares(problem, programme, answer.x))


def _discounted(problem: Problem) -> Problem:
    """The problem with costs so low that no region measured whole takes less than its parts."""
    regions = problem.regions
    useful = np.isfinite(regions.ns) & ~(regions.ns >= regions.parts_ns)
    if not useful.any():
        return replace(problem, region_ns={})
    unit_ns = problem.unit_ns.copy()
    only = np.zeros(unit_ns.shape, dtype=np.bool_)
    factor, border = np.ones(unit_ns.shape), np.ones(len(problem.targets))
    for g in np.flatnonzero(useful).tolist():
        units = regions.units[regions.unit_at[g] : regions.unit_at[g + 1]]
        k, ns, border_ns = int(regions.target[g]), float(regions.ns[g]), float(regions.border_ns[g])
        own = problem.unit_ns[units, k]
        only[units, k] |= ~np.isfinite(own)
        work = float(own[np.isfinite(own)].sum())
        if ns < border_ns:
            border[k] = min(border[k], ns / border_ns)
        share = max(0.0, ns - border_ns) / work if work > 0 else 1.0
        factor[units, k] = np.minimum(factor[units, k], min(1.0, share))
    unit_ns[only & ~np.isfinite(unit_ns)] = 0.0
    finite = np.isfinite(unit_ns)
    unit_ns[finite] *= factor[finite]
    return replace(
        problem,
        unit_ns=unit_ns,
        overhead_ns=problem.overhead_ns * border,
        in_ns_per_byte=problem.in_ns_per_byte * border,
        out_ns_per_byte=problem.out_ns_per_byte * border,
        region_ns={},
    )


def _assignment_shares(problem: Problem, programme: OverlapProgramme, solution: Floats) -> Floats:
    """[n, t]: where a solution runs what."""
    share = np.zeros(problem.unit_ns.shape)
    share[programme.place] = np.clip(solution[programme.x], 0.0, 1.0)
    return share
