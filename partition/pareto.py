"""Exact plans under a limit of compile time, for graphs of few ideals.

For each ideal (downward-closed set) the triples of latency, compile time and segments on
accelerators (counted where they are limited) that some plan of it has and no other plan betters in
all; a segment is the difference of two ideals. Triples beyond a limit are dropped, and those whose
latency, with the least that remains, exceeds a known plan's.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.graph.plan import Engine
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
    max_regions: int | None = None,
) -> tuple[Placement, ...] | None:
    """The fastest plan that compiles within ``limit_ns``, has at most ``max_regions`` segments on
    accelerators and takes less than ``upper_ns``; an empty one where there is none, None where the
    graph has too many ideals."""
    t = len(problem.targets)
    ideals = all_ideals(problem.predecessors, int((2 * MAX_SEGMENTS / t) ** 0.5))
    if ideals is None:
        return None
    counted = [max_regions is not None and k.engine is Engine.NNAPI for k in problem.targets]
    most = math.inf if max_regions is None else max_regions
    ordered = sorted(ideals, key=int.bit_count)
    share = unit_shares(problem)
    left = [float(share.sum() - share[list(members(ideal))].sum()) for ideal in ordered]
    # Of each ideal: [latency, compile time, segments, ideal before, triple there, target].
    fronts = [np.zeros((1, 6))]
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
                step = np.empty((len(fronts[i]), 6))
                step[:, :3] = fronts[i][:, :3] + (ns, compile_ns(units, k), counted[k])
                step[:, 3:] = i, 0, k
                step[:, 4] = np.arange(len(step))
                good = (step[:, 0] <= rest) & (step[:, 1] <= limit_ns * (1 + _SLACK))
                steps.append(step[good & (step[:, 2] <= most)])
        fronts.append(_front(np.concatenate(steps)) if steps else np.zeros((0, 6)))
    if not len(fronts[-1]) or fronts[-1][0, 0] >= upper_ns:
        return ()
    path: list[Placement] = []
    j, triple = len(ordered) - 1, 0
    while j:
        before, at, k = fronts[j][triple, 3:]
        path.append((members(ordered[j] & ~ordered[int(before)]), int(k)))
        j, triple = int(before), int(at)
    return tuple(path[::-1])


def _front(steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """The triples that no other betters in all, fastest first."""
    ordered = steps[np.lexsort((steps[:, 2], steps[:, 1], steps[:, 0]))]
    compiling, segments = ordered[:, 1], ordered[:, 2]
    keep = np.zeros(len(ordered), dtype=np.bool_)
    for count in np.unique(segments):
        rivals = np.where(segments <= count, compiling, np.inf)
        least = np.concatenate([[np.inf], np.minimum.accumulate(rivals)])[: len(ordered)]
        keep |= (segments == count) & (compiling < least)
    found: NDArray[np.float64] = ordered[keep]
    return found
