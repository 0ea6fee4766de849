"""A judge for graphs too large for a brute force: all pairs of ideals as segments.

``best[J] = min over ideals I < J and targets t of best[I] + cost(J - I, t)``, with every segment's
cost asked of :meth:`Problem.segment_ns`. It shares nothing with the search but the definition.
"""

import math

from nnapi_prof.partition.blocks import members
from nnapi_prof.partition.problem import Problem


def all_ideals(problem: Problem) -> list[int]:
    """Downward-closed sets, each after its subsets."""
    needs = [sum(1 << p for p in preds) for preds in problem.predecessors]
    result, level = [0], {0}
    for _ in range(problem.n):
        level = {
            ideal | 1 << u
            for ideal in level
            for u in range(problem.n)
            if not ideal >> u & 1 and needs[u] & ~ideal == 0
        }
        result += sorted(level)
    return result


def optimum(
    problem: Problem, max_regions: int | None = None, free: frozenset[int] = frozenset({0})
) -> float:
    """Least latency in ns over all plans; inf where there is none.

    ``max_regions`` bounds the segments on targets other than those in ``free``.
    """
    layers = 1 if max_regions is None else max_regions + 1
    ideals = all_ideals(problem)
    memo: dict[int, list[float]] = {}
    best = {ideal: [math.inf] * layers for ideal in ideals}
    best[0][0] = 0.0
    for i, ideal in enumerate(ideals):
        for bigger in ideals[i + 1 :]:
            if ideal & ~bigger:
                continue
            region = bigger & ~ideal
            if region not in memo:
                units = members(region)
                memo[region] = [problem.segment_ns(units, k) for k in range(len(problem.targets))]
            for layer, reached in enumerate(best[ideal]):
                for k, ns in enumerate(memo[region]):
                    into = layer if max_regions is None or k in free else layer + 1
                    if into < layers:
                        best[bigger][into] = min(best[bigger][into], reached + ns)
    return min(best[ideals[-1]])
