"""What all searches of a problem look up."""

from __future__ import annotations

import math

from nnapi_prof.partition.bounds import unit_shares
from nnapi_prof.partition.ideals import mask
from nnapi_prof.partition.labels import Tables
from nnapi_prof.partition.problem import Problem

SLACK = 1e-9
"""Relative room for rounding wherever two sums of the same costs are compared."""

Region = tuple[frozenset[int], int]
"""Units and a target's index."""


class Ground:
    """A problem's tables, bounds and regions measured whole."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.tables = Tables.of(problem)
        self.needs = [mask(p) for p in problem.predecessors]
        self.follow = [list(s) for s in problem.successors]
        self.share = [float(s) for s in unit_shares(problem)]
        self.slower: dict[Region, float] = {}
        """ns of the regions that cost more whole than by their parts."""
        self.whole: dict[int, list[tuple[int, int, int, float]]] = {}
        """First unit -> (mask, what must have run, target, ns) of the other regions that run:
        each is worth a step."""
        for (units, k), ns in problem.region_ns.items():
            if ns > problem.additive_ns(units, k) * (1 + SLACK):
                self.slower[units, k] = ns
            elif not math.isinf(ns):
                region, needs = mask(units), 0
                for u in units:
                    needs |= self.needs[u]
                self.whole.setdefault(min(units), []).append((region, needs & ~region, k, ns))
