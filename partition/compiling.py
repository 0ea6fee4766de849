"""Plans whose regions compile within a limit.

A plan's compile time is the sum over its segments on accelerators: what was measured of a region
compiled whole, else a fixed part for each segment and a part for each unit. Like the latency it
adds up, so a price on it, in ns of latency per ns of compile time, leaves a problem of the same
kind, solved exactly as any other (Lagrange's relaxation; H. Everett, "Generalized Lagrange
Multiplier Method for Solving Problems of Optimum Allocation of Resources", Oper. Res. 11, 1963).
For every price p >= 0,

    min over plans (latency + p * (compile time - limit))

is no more than the latency of any plan within the limit. The price is raised until plans keep to
the limit and halved in between; the best plan met is within a proven distance of the optimum.
Graphs of few ideals, as most networks are, are then solved exactly (:mod:`.pareto`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.graph.plan import Target
from nnapi_prof.partition.pareto import fastest_within
from nnapi_prof.partition.problem import Placement, Problem
from nnapi_prof.partition.solver import Solution, solve_placements

DOUBLINGS = 60
"""Of the price, before the limit counts as out of reach."""
HALVINGS = 16
NEGLIGIBLE = 1e-9


class CompileCosts(Protocol):
    """What a limit asks of a cost model (:mod:`nnapi_prof.costs.region` has one)."""

    def compile_overhead(self, target: Target, /) -> float: ...
    def compile_cost(self, unit_index: int, target: Target, /) -> float: ...
    def compiled_regions(self) -> Mapping[tuple[frozenset[int], Target], float]: ...


@dataclass(frozen=True)
class CompileTimes:
    """What compiling regions takes, in ns; all zero on targets that are no accelerators."""

    fixed_ns: NDArray[np.float64]
    """[t], of each segment."""
    unit_ns: NDArray[np.float64]
    """[n, t]"""
    region_ns: Mapping[tuple[frozenset[int], int], float] = field(default_factory=dict)
    """(units, target index) -> ns, compiled whole."""

    @classmethod
    def read(cls, problem: Problem, costs: CompileCosts) -> CompileTimes:
        """A cost model's, as arrays."""
        targets = problem.targets
        return cls(
            np.array([costs.compile_overhead(t) for t in targets], dtype=np.float64),
            np.array(
                [[costs.compile_cost(u, t) for t in targets] for u in range(problem.n)],
                dtype=np.float64,
            ).reshape(problem.n, len(targets)),
            {
                (units, targets.index(target)): ns
                for (units, target), ns in costs.compiled_regions().items()
                if target in targets
            },
        )

    def of_region(self, units: Iterable[int], k: int) -> float:
        """ns of one segment."""
        region = frozenset(units)
        whole = self.region_ns.get((region, k))
        if whole is not None:
            return whole
        return float(self.fixed_ns[k] + self.unit_ns[sorted(region), k].sum())

    def of(self, placements: Sequence[Placement]) -> float:
        """ns of a plan."""
        return sum(self.of_region(units, k) for units, k in placements)


@dataclass(frozen=True, slots=True)
class Within:
    """A plan within the limit."""

    solution: Solution
    compile_ns: float
    bound_ns: float
    """No plan within the limit has less latency."""

    @property
    def gap(self) -> float:
        """How far the plan can be above the optimum within the limit, relative to the bound."""
        return max(0.0, self.solution.ns / self.bound_ns - 1) if self.bound_ns > 0 else math.inf


def solve_within(
    problem: Problem,
    times: CompileTimes,
    limit_ns: float,
    *,
    tolerance: float,
    max_regions: int | None = None,
    max_work: float = math.inf,
) -> Within | None:
    """The fastest plan found whose regions compile within ``limit_ns``; None where there is none.

    Where the plan without the limit keeps to it, that is the answer, and exact.
    """
    search = _Search(problem, times, limit_ns, max_regions, max_work)
    free = solve_placements(
        problem, tolerance=tolerance, max_regions=max_regions, max_work=max_work
    )
    if free is None:
        return None
    if times.of(free.placements) <= limit_ns:
        return Within(free, times.of(free.placements), free.bound_ns)
    search.bound_ns = free.bound_ns
    low, high = 0.0, max(free.ns, 1.0) / max(limit_ns, times.of(free.placements) * 1e-3, 1.0)
    for _ in range(DOUBLINGS):
        if search.at(high):
            break
        low, high = high, 2 * high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if search.at(middle):
            high = middle
        else:
            low = middle
    proven = False
    if search.bound_ns < search.best_ns * (1 - NEGLIGIBLE):
        better = fastest_within(problem, times.of_region, limit_ns, search.best_ns, max_regions)
        proven = better is not None
        if better:
            search.offer(better)
    if search.best is None:
        return None
    ns = search.best_ns
    bound = ns if proven else min(search.bound_ns, ns)
    solution = replace(
        free,
        placements=search.best,
        ns=ns,
        bound_ns=bound,
        exact=bound >= ns * (1 - NEGLIGIBLE),
        least_ns=ns,
        least_segments=len(search.best),
    )
    return Within(solution, times.of(search.best), bound)


class _Search:
    """Plans met at some prices, and the bound that the prices prove."""

    def __init__(
        self,
        problem: Problem,
        times: CompileTimes,
        limit_ns: float,
        max_regions: int | None,
        max_work: float,
    ) -> None:
        self._problem = problem
        self._times = times
        self._limit_ns = limit_ns
        self._max_regions = max_regions
        self._max_work = max_work
        self.best: tuple[Placement, ...] | None = None
        self.best_ns = math.inf
        self.bound_ns = 0.0

    def at(self, price: float) -> bool:
        """Solves at a price; whether that plan keeps to the limit."""
        found = solve_placements(
            self._priced(price),
            tolerance=0.0,
            max_regions=self._max_regions,
            max_work=self._max_work,
        )
        if found is None:
            return True
        self.bound_ns = max(self.bound_ns, found.bound_ns - price * self._limit_ns)
        return self.offer(found.placements)

    def offer(self, placements: tuple[Placement, ...]) -> bool:
        """Notes a plan; whether it keeps to the limit."""
        keeps = self._times.of(placements) <= self._limit_ns * (1 + NEGLIGIBLE)
        ns = sum(self._problem.segment_ns(units, k) for units, k in placements)
        if keeps and ns < self.best_ns:
            self.best, self.best_ns = placements, ns
        return keeps

    def _priced(self, price: float) -> Problem:
        known = {*self._problem.region_ns, *self._times.region_ns}
        return replace(
            self._problem,
            unit_ns=self._problem.unit_ns + price * self._times.unit_ns,
            overhead_ns=self._problem.overhead_ns + price * self._times.fixed_ns,
            region_ns={
                (units, k): self._problem.segment_ns(units, k)
                + price * self._times.of_region(units, k)
                for units, k in known
            },
        )
