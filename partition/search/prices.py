"""Bounds the rest of a plan from below, by prices, and where there is no programme."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.partition.arrays import Floats
from nnapi_prof.partition.problem import Problem


@dataclass(frozen=True, eq=False)
class Prices:
    """A relaxation's prices for the rest of a plan, in ns.

    After an ideal has run and with a segment open on k, the rest of a plan costs at least the sum
    of ``least`` over the units that remain, plus ``switch_begin[k]`` and ``switch[u, k]`` of all
    units that have run, minus ``enters[e, k]`` of each remaining reading e of a value that is
    present, plus ``leaves[e, k]`` of each remaining reading of a value still to be handed over.
    With no segment open it is the first sum alone. Of each remaining reading of a value that is
    there as 8-bit integers, ``to_int8[e]`` goes off as well, and ``to_float[e]`` where it is there
    in floats.
    """

    least: Floats
    """[n]"""
    enters: Floats
    """[readings, t]"""
    leaves: Floats
    switch: Floats
    """[n, t]"""
    switch_begin: Floats
    """[t]"""
    to_int8: Floats
    """[readings]"""
    to_float: Floats
    slack: float = 0.0
    """At most 0: added once to every bound."""


def free_prices(problem: Problem, least: Floats) -> Prices:
    """Prices that know nothing of transfers and overheads; ``least`` is [n], ns."""
    arrays = problem.arrays
    nothing = np.zeros((len(arrays.readers), arrays.t))
    free = np.zeros(len(arrays.readers))
    switch = np.zeros((arrays.n, arrays.t))
    return Prices(least, nothing, nothing, switch, np.zeros(arrays.t), free, free)


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
