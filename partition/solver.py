"""The optimal placement of a problem, as far as the effort allows, with what is proven about it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from nnapi_prof.graph.plan import Engine, Target
from nnapi_prof.partition.baselines import Baseline, find_baselines, total_ns
from nnapi_prof.partition.bounds import lower_bound
from nnapi_prof.partition.cut import minimum_cut
from nnapi_prof.partition.ground import Region
from nnapi_prof.partition.limits import Found, Limits
from nnapi_prof.partition.problem import Placement, Problem
from nnapi_prof.partition.reduce import Reduced, reduce_problem
from nnapi_prof.partition.search import Searcher

WIDTHS = (200, 2_000, 20_000, 100_000)
"""Labels that a level may hold, one attempt after the other."""
MAX_WORK = 3_000_000.0
"""Of all attempts together; some three seconds. Counted and not timed: same plan on every run."""
CLOSE_ENOUGH = 1e-3
"""A plan proven to be this close to the optimum needs no wider search."""


@dataclass
class Memory:
    """What solving a graph leaves for solving it again under other costs. Plans are the same with
    it, but for the choice among such of equal latency."""

    met: Collection[tuple[frozenset[int], Target]] = ()
    """Regions that cost more whole than by their parts, and that searches ran into."""


@dataclass(frozen=True, slots=True)
class Solution:
    """The best plan found and what is known about it."""

    placements: tuple[Placement, ...]
    ns: float
    bound_ns: float
    """No plan costs less."""
    exact: bool
    """The plan before simplification is the optimum."""
    least_ns: float
    """Latency of the best plan found; ``ns`` may be within the tolerance above it."""
    least_segments: int
    n_ideals: int
    n_labels: int

    @property
    def gap(self) -> float:
        """How far the best plan found can be above the optimum, relative to the bound."""
        return self.least_ns / self.bound_ns - 1 if self.bound_ns > 0 else math.inf


def solve_placements(
    problem: Problem,
    *,
    tolerance: float,
    max_regions: int | None = None,
    max_work: float = MAX_WORK,
    rivals: Sequence[Baseline] | None = None,
    memory: Memory | None = None,
) -> Solution | None:
    """The cheapest plan, and of those within ``tolerance`` of it, and no slower than a baseline,
    one with few segments. None where no plan keeps to the limits.

    ``max_regions`` bounds the number of segments on accelerators; ``memory`` is what solving the
    same graph under other costs left.
    """
    rivals = find_baselines(problem) if rivals is None else rivals
    memory = memory or Memory()
    reduced = reduce_problem(problem)
    regions = dict(zip(problem.region_ns, reduced.problem.region_ns, strict=True))
    known = [
        smaller
        for (units, k), smaller in regions.items()
        if (units, problem.targets[k]) in memory.met
    ]
    attempt = _Attempts(problem, reduced, max_regions, max_work, known)
    for rival in rivals:
        attempt.offer(rival.placements)
    attempt.widen()
    if attempt.best is None:
        return None
    bound = max(attempt.bound_ns, lower_bound(problem))
    if not attempt.exact and (cut := minimum_cut(problem)) is not None:
        bound = max(bound, cut.ns)
    least, segments = attempt.best_ns, len(attempt.best)
    close = min([least * (1 + tolerance), *(max(r.predicted_ns, least) for r in rivals)])
    placements = attempt.simplest(close, tolerance)
    memory.met = {
        (units, problem.targets[k])
        for (units, k), smaller in regions.items()
        if smaller in attempt.met
    }
    return Solution(
        placements,
        total_ns(problem, placements),
        min(bound, least),
        attempt.exact,
        least,
        segments,
        attempt.n_ideals,
        attempt.n_labels,
    )


class _Attempts:
    """Searches of growing width, and the plans met on the way."""

    def __init__(
        self,
        problem: Problem,
        reduced: Reduced,
        max_regions: int | None,
        max_work: float,
        known: Iterable[Region],
    ) -> None:
        self._problem = problem
        self._reduced = reduced
        self._searcher = Searcher(reduced.problem, known)
        self._max_regions = max_regions
        self._work_left = max_work
        self._accelerated = frozenset(
            k for k, target in enumerate(problem.targets) if target.engine is Engine.NNAPI
        )
        self._plans: dict[tuple[Placement, ...], float] = {}
        self.best: tuple[Placement, ...] | None = None
        self.best_ns = math.inf
        self.bound_ns = 0.0
        self.exact = False
        self.n_ideals = 0
        self.n_labels = 0

    @property
    def met(self) -> Collection[Region]:
        """Of the reduced problem: regions to watch, see :class:`Searcher`."""
        return self._searcher.watched

    def offer(self, placements: tuple[Placement, ...]) -> None:
        """Notes a plan that keeps to the limits."""
        regions = sum(k in self._accelerated for _, k in placements)
        ns = total_ns(self._problem, placements)
        if not math.isfinite(ns) or (self._max_regions is not None and regions > self._max_regions):
            return
        self._plans[placements] = ns
        if self.best is None or (ns, len(placements)) < (self.best_ns, len(self.best)):
            self.best, self.best_ns = placements, ns

    def widen(self) -> None:
        """Searches until the optimum is proven, or a plan close to it, or the effort is spent."""
        for width in WIDTHS:
            found = self._search(width, self.best_ns, 0.0)
            self.bound_ns = max(self.bound_ns, found.bound_ns)
            self.exact = found.exact
            self.n_ideals, self.n_labels = found.n_ideals, found.n_labels
            near = self.best_ns <= self.bound_ns * (1 + CLOSE_ENOUGH)
            if found.exact or near or self._work_left <= 0:
                return

    def simplest(self, close: float, tolerance: float) -> tuple[Placement, ...]:
        """Of the plans met, and of those that a price on segments leads to, the one with fewest
        segments that costs at most ``close`` ns.

        A price of ``tolerance x least / segments`` gives a plan within the tolerance: what it
        costs more it saves in segments. A higher one may.
        """
        assert self.best is not None
        segments = len(self.best)
        if tolerance > 0 and segments > 1 and self.exact:
            for price in (self.best_ns * tolerance / segments * factor for factor in (2.0, 1.0)):
                known = set(self._plans)
                self._search(WIDTHS[-1], self.best_ns + price * segments, price)
                if any(self._plans[plan] <= close for plan in set(self._plans) - known):
                    break
        within = [p for p, ns in self._plans.items() if ns <= close * (1 + 1e-12)]
        return min(within, key=lambda p: (len(p), self._plans[p]), default=self.best)

    def _search(self, width: int, upper_bound: float, price: float) -> Found:
        found = self._searcher.search(
            Limits(
                upper_bound=upper_bound,
                max_labels=width,
                max_work=self._work_left,
                segment_penalty=price,
                max_segments=self._max_regions,
                counted=self._accelerated if self._max_regions is not None else None,
            ),
        )
        self._work_left -= found.work
        if found.placements:
            self.offer(tuple((self._reduced.expand(u), k) for u, k in found.placements))
        return found
