"""Lower bounds of latencies, as shares of the units that any plan pays at least."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.partition.problem import Problem


def unit_shares(problem: Problem) -> NDArray[np.float64]:
    """[n], ns: shares of the units such that no segment costs less than the shares of its units.

    A unit's share is its cheapest marginal cost; where a region measured whole is cheaper than its
    units' shares, all of them shrink in proportion.
    """
    cheapest = problem.unit_ns.min(axis=1, initial=np.inf)
    finite = np.where(np.isfinite(cheapest), cheapest, 0.0)
    factor = np.ones(problem.n)
    for (units, _), ns in problem.region_ns.items():
        rows = sorted(units)
        total = finite[rows].sum()
        if total > ns:
            factor[rows] = np.minimum(factor[rows], ns / total)
    shares: NDArray[np.float64] = finite * factor
    return shares


def lower_bound(problem: Problem) -> float:
    """No plan is faster, in ns: each unit at its cheapest, invocations and hand-over free."""
    return float(unit_shares(problem).sum())
