"""What a plan may use up, beside its latency: segments on accelerators, compile time, error.

A budget is the sum over a plan's segments of a fixed part by target and a part by unit and target,
or what is known of that very region. Like the latency it adds up, so a price on it, in ns for each
step of it, leaves a problem of the same kind (Lagrange's relaxation; H. Everett, "Generalized
Lagrange Multiplier Method for Solving Problems of Optimum Allocation of Resources", Oper. Res. 11,
1963).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.graph.plan import Engine
from nnapi_prof.partition.problem import Placement, Problem, Region


@dataclass(frozen=True, eq=False)
class Budget:
    """A limit on what the segments of a plan use together."""

    name: str
    open_use: NDArray[np.float64]
    """[t], of each segment"""
    unit_use: NDArray[np.float64]
    """[n, t]"""
    limit: float = math.inf
    region_use: Mapping[Region, float] = field(default_factory=dict)
    """Of a region that is a whole segment, where that is known better than by its parts."""

    @classmethod
    def segments(cls, problem: Problem, limit: float = math.inf) -> Budget:
        """The number of segments."""
        return cls("segments", np.ones(len(problem.targets)), np.zeros_like(problem.unit_ns), limit)

    @classmethod
    def accelerated(cls, problem: Problem, limit: float = math.inf) -> Budget:
        """The number of segments on accelerators."""
        counted = [target.engine is Engine.NNAPI for target in problem.targets]
        return cls(
            "segments on accelerators",
            np.array(counted, dtype=np.float64),
            np.zeros_like(problem.unit_ns),
            limit,
        )

    def additive(self, units: Iterable[int], k: int) -> float:
        """Use of a region on target ``k`` by its parts."""
        return float(self.open_use[k] + self.unit_use[sorted(units), k].sum())

    def of_region(self, units: Iterable[int], k: int) -> float:
        """Use of one segment."""
        region = frozenset(units)
        known = self.region_use.get((region, k))
        return self.additive(region, k) if known is None else known

    def of(self, placements: Sequence[Placement]) -> float:
        """Use of a plan."""
        return sum(self.of_region(units, k) for units, k in placements)

    def keeps(self, placements: Sequence[Placement]) -> bool:
        """Whether a plan is within the limit."""
        return self.of(placements) <= self.limit * (1 + 1e-9)


def priced(problem: Problem, budgets: Sequence[Budget], rates: Sequence[float]) -> Problem:
    """The problem in which each step of a budget costs its rate, in ns, on top."""
    overhead, unit = problem.overhead_ns, problem.unit_ns
    known: dict[Region, None] = dict.fromkeys(problem.region_ns)
    for budget, rate in zip(budgets, rates, strict=True):
        overhead = overhead + rate * budget.open_use
        unit = unit + rate * budget.unit_use
        known |= dict.fromkeys(budget.region_use)
    regions = {}
    for units, k in known:
        ns = problem.segment_ns(units, k)
        for budget, rate in zip(budgets, rates, strict=True):
            ns += rate * budget.of_region(units, k)
        regions[units, k] = ns
    return replace(problem, overhead_ns=overhead, unit_ns=unit, region_ns=regions)
