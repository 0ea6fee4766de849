"""Exact plans under a limit of compile time, for graphs of few ideals.

For each ideal (downward-closed set) the pairs of latency and compile time that some plan of it has
and no other plan betters in both; a segment is the difference of two ideals. Pairs beyond the limit
are dropped, and those whose latency, with the least that remains, exceeds a known plan's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.partition.bounds import unit_shares
from nnapi_prof.partition.ideals import all_ideals, members
from nnapi_prof.partition.problem import Placement, Problem

MAX_SEGMENTS = 60_000
"""Pairs of ideals times targets; some two seconds."""
_SLACK = 1e-9


def fastest_within(
    problem: Problem,
    compile_ns: Callable[[tuple[int, ...], int], float],
    limit_ns: float,
    upper_ns: float,
) -> tuple[Placement, ...] | None:
    """The fastest plan that compiles within ``limit_ns`` and takes less than ``upper_ns``; an empty
    one where there is none, None where the graph has too many ideals."""
    t = len(problem.targets)
    ideals = all_ideals(problem.predecessors, int((2 * MAX_SEGMENTS / t) ** 0.5))
    if ideals is None:
        return None
    ordered = sorted(ideals, key=int.bit_count)
    share = unit_shares(problem)
    left = [float(share.sum() - share[list(members(ideal))].sum()) for ideal in ordered]
    # Of each ideal: [latency, compile time, ideal before, pair there, target] of its pairs.
    fronts = [np.zeros((1, 5))]
    for j in range(1, len(ordered)):
        steps = []
        for i in range(j):
            if ordered[i] & ~ordered[j] or not len(fronts[i]):
                continue
            units = members(ordered[j] & ~ordered[i])
            for k in range(t):
                ns = problem.segment_ns(units, k)
                rest = upper_ns - left[j] * (1 - _SLACK)
                if not np.isfinite(ns) or ns > rest:
                    continue
                step = np.empty((len(fronts[i]), 5))
                step[:, 0] = fronts[i][:, 0] + ns
                step[:, 1] = fronts[i][:, 1] + compile_ns(units, k)
                step[:, 2:] = i, 0, k
                step[:, 3] = np.arange(len(step))
                good = (step[:, 0] <= rest) & (step[:, 1] <= limit_ns * (1 + _SLACK))
                steps.append(step[good])
        fronts.append(_front(np.concatenate(steps)) if steps else np.zeros((0, 5)))
    if not len(fronts[-1]) or fronts[-1][0, 0] >= upper_ns:
        return ()
    path: list[Placement] = []
    j, pair = len(ordered) - 1, 0
    while j:
        _, _, before, at, k = fronts[j][pair]
        path.append((members(ordered[j] & ~ordered[int(before)]), int(k)))
        j, pair = int(before), int(at)
    return tuple(path[::-1])


def _front(steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """The pairs that no other betters in both, fastest first."""
    ordered = steps[np.lexsort((steps[:, 1], steps[:, 0]))]
    least = np.minimum.accumulate(ordered[:, 1])
    keep = np.concatenate([[True], ordered[1:, 1] < least[:-1]])[: len(ordered)]
    found: NDArray[np.float64] = ordered[keep]
    return found
