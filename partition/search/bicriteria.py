"""Latency against noise: plans met by prices and by limits, and what is proven of every noise.

Noise powers of units on targets add up to a plan's, as a budget does (:mod:`.constraints`). The
front is met from two sides:

* *prices*: least latency + price x noise, for prices between the fastest plan and the quietest,
  gives the plans on its lower hull (H. Everett, Oper. Res. 11, 1963; the prices are those of
  Y. P. Aneja and K. P. K. Nair, "Bicriteria Transportation Problem", Manag. Sci. 25, 1979: the
  slope between two neighbours), and a bound for every noise;
* *limits*: least latency within a limit of noise, first for the budgets that the caller names, then
  in the widest gaps.

All plans that were met on the way, by either, are candidates for every point. Of small graphs the
exact programme gives the whole front at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.graph.plan import ProofKind
from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.constraints import Budget, ErrorLimit, add_prices
from nnapi_prof.partition.problem import Problem, check_runnable
from nnapi_prof.partition.search.anytime import search
from nnapi_prof.partition.search.exact import search_repeatedly
from nnapi_prof.partition.search.lagrangian import search_within
from nnapi_prof.partition.search.result import BOUND_MET, Plan, SearchResult, Watch
from nnapi_prof.partition.search.tables import free_prices, unit_shares

STARTS = 4
"""Plans that a search begins with."""
WHOLE_STEPS = 5_000_000
"""Of the exact programme for the whole front: some 50 ms."""
LEAST_DROP = 1e-3
"""Relative: latency between two neighbours that is worth no further point."""
SHARE = 0.25
"""Of the time that is left, for one search that nobody asked for."""
CLOSE = 1e-9
"""Relative: noises that differ by less are the same."""


@dataclass(frozen=True, slots=True)
class Bound:
    """No plan of at most so much noise costs less than ``ns - price x noise``."""

    ns: float
    bounded_by: str
    price: float = 0.0
    limit: float = math.inf
    is_exact: bool = False

    def at(self, noise: float) -> float:
        if noise > self.limit * (1 + CLOSE):
            return 0.0
        return self.ns - self.price * noise if self.price else self.ns


@dataclass
class Bicriteria:
    """Plans met so far, and what is proven."""

    problem: Problem
    noise: Sequence[NDArray[np.float64]]
    watch: Watch
    plans: dict[Plan, tuple[float, float]] = field(default_factory=dict)
    """Latency in ns, and noise"""
    bounds: list[Bound] = field(default_factory=list)
    answers: dict[Plan, float] = field(default_factory=dict)
    """Plans that were the best at a price or within a limit, with the largest such limit"""
    is_whole: bool = False
    """No plan is missing that none betters."""

    def __post_init__(self) -> None:
        unknown = np.any([np.isinf(array) for array in self.noise], axis=0)
        self.problem = self.problem.without(unknown)
        check_runnable(self.problem)
        self._hull: list[Plan] = []
        self._hull_of = 0

    def _budgets(self, limit: float) -> list[Budget]:
        return [Budget.error(array, limit) for array in self.noise]

    # ---- plans and bounds ----------------------------------------------------------------

    def offer(self, plan: Plan) -> None:
        """Notes a plan."""
        if plan not in self.plans:
            ns = total_ns(self.problem, plan)
            if math.isfinite(ns):
                noise = max(budget.of(plan) for budget in self._budgets(math.inf))
                self.plans[plan] = ns, noise

    def _answer(self, result: SearchResult, limit: float | None = None) -> None:
        """Notes what a search came to, within a limit or at a price."""
        for plan in (result.placements, *result.plans):
            self.offer(plan)
        noise = self.plans[result.placements][1]
        limit = noise if limit is None else max(limit, noise)
        self.answers[result.placements] = max(self.answers.get(result.placements, 0.0), limit)

    def best(self, limit: float) -> Plan | None:
        """The fastest plan of at most so much noise."""
        return next((p for p in self.hull() if self.plans[p][1] <= limit * (1 + CLOSE)), None)

    def bound(self, limit: float) -> Bound:
        """The best bound of plans of at most so much noise."""
        if self.is_whole:
            best = self.best(limit)
            return Bound(math.inf if best is None else self.plans[best][0], "exact", is_exact=True)
        return max(self.bounds, key=lambda b: (b.at(limit), b.is_exact), default=Bound(0.0, ""))

    def is_proven(self, limit: float) -> bool:
        """Whether the best plan within a limit is known for certain."""
        plan = self.best(limit)
        if plan is None:
            return False
        return self.plans[plan][0] <= self.bound(limit).at(limit) * (1 + BOUND_MET)

    def hull(self) -> list[Plan]:
        """All plans that none betters in both, the fastest first."""
        if self._hull_of == len(self.plans):
            return self._hull
        self._hull_of = len(self.plans)
        front = self._hull = []
        least = math.inf
        for plan, (_, noise) in sorted(self.plans.items(), key=lambda row: (row[1], len(row[0]))):
            if noise < least * (1 - CLOSE):
                front.append(plan)
                least = noise
        return front

    # ---- searches ------------------------------------------------------------------------

    def _starts(self, price: float, limit: float = math.inf) -> list[tuple[str, Plan]]:
        def priced(plan: Plan) -> float:
            ns, noise = self.plans[plan]
            return ns + price * noise

        within = [p for p, (_, noise) in self.plans.items() if noise <= limit * (1 + CLOSE)]
        return [("front", plan) for plan in sorted(within, key=priced)[:STARTS]]

    def _at(self, price: float) -> None:
        """Solves with a price on noise, the same for all outputs."""
        own = self.watch.part(SHARE)
        rates = [price / len(self.noise)] * len(self.noise)
        rival = add_prices(self.problem, self._budgets(math.inf), rates)
        result = search(rival, own, starts=self._starts(price), patience=0)
        self.watch.absorb(own)
        if result is not None:
            by = f"price, {result.bounded_by}"
            self.bounds.append(Bound(result.bound_ns, by, price))
            self._answer(result)

    def _within(self, limit: float, share: float) -> None:
        """Solves within a limit of noise."""
        own = self.watch.part(share)
        starts = self._starts(0.0, limit)
        result = search_within(self.problem, self._budgets(limit), own, starts=starts)
        self.watch.absorb(own)
        if result is not None:
            is_exact = result.kind is ProofKind.EXACT
            bound = Bound(result.bound_ns, result.bounded_by, 0.0, limit, is_exact)
            self.bounds.append(bound)
            self._answer(result, limit)

    def ends(self) -> None:
        """The fastest plan, and the quietest."""
        own = self.watch.part(SHARE)
        result = search(self.problem, own, starts=self._starts(0.0), with_baselines=True)
        self.watch.absorb(own)
        if result is None:
            return
        is_exact = result.kind is ProofKind.EXACT
        self.bounds.append(Bound(result.bound_ns, result.bounded_by, is_exact=is_exact))
        self._answer(result, math.inf)
        quiet = np.sum([np.where(np.isfinite(a), a, 0.0) for a in self.noise], axis=0)
        runs = np.where(np.isfinite(self.problem.unit_ns), quiet, np.inf)
        own = self.watch.part(SHARE)
        result = search(self.problem.without(quiet > runs.min(axis=1, keepdims=True)), own)
        self.watch.absorb(own)
        if result is None:  # units run only inside regions that are noisier
            ns, noise = min(self.plans.values())
            self._at(1e3 * ns / noise if noise > 0 else 0.0)
            return
        self._answer(result)
        if len(self.noise) == 1 and np.isfinite(self.problem.unit_ns).any(axis=1).all():
            limit = self.plans[result.placements][1]
            is_exact = result.kind is ProofKind.EXACT
            bound = Bound(result.bound_ns, result.bounded_by, 0.0, limit, is_exact)
            self.bounds.append(bound)

    def whole(self) -> bool:
        """Looks for the whole front at once; whether that was finished."""
        upper = math.inf
        if self.hull() and len(self.noise) == 1:
            ns, noise = self.plans[self.hull()[-1]]
            least = ErrorLimit(self.noise[0], math.inf).least(self.problem)
            if noise <= least**2 * (1 + CLOSE):
                upper = ns * (1 + CLOSE)  # who is slower is no quieter
        prices = free_prices(self.problem, unit_shares(self.problem))
        own = self.watch.part(SHARE)
        for result, is_true in search_repeatedly(
            self.problem,
            prices,
            lambda: upper,
            own,
            set(),
            budgets=self._budgets(math.inf),
            steps=WHOLE_STEPS,
            memory_share=0.5,
        ):
            if not result.complete:
                break
            for _, _, plan in result.fronts:
                self.offer(plan)
            if is_true:
                self.is_whole = True
                self.answers.update({plan: self.plans[plan][1] for plan in self.hull()})
        self.watch.absorb(own)
        return self.is_whole

    def prices(self, most: int) -> None:
        """The plans on the lower hull, those first that are furthest apart."""
        tried: set[tuple[Plan, Plan]] = set()
        for _ in range(most):
            ends = self._supported()
            pairs = [pair for pair in itertools.pairwise(ends) if pair not in tried]
            if not pairs or self.watch.is_over:
                return
            pair = max(pairs, key=lambda pair: self._drop(*pair))
            if self._drop(*pair) <= LEAST_DROP:
                return
            tried.add(pair)
            (fast_ns, much), (slow_ns, little) = (self.plans[plan] for plan in pair)
            self._at((slow_ns - fast_ns) / (much - little))

    def _supported(self) -> list[Plan]:
        """Those of :meth:`hull` on its lower hull."""
        ends: list[Plan] = []
        for plan in self.hull():
            ns, noise = self.plans[plan]
            while len(ends) > 1:
                (first_ns, first), (middle_ns, middle) = (self.plans[end] for end in ends[-2:])
                if (middle_ns - first_ns) * (first - noise) < (ns - first_ns) * (first - middle):
                    break
                ends.pop()
            ends.append(plan)
        return ends

    def _drop(self, fast: Plan, slow: Plan) -> float:
        return 1 - self.plans[fast][0] / self.plans[slow][0] if self.plans[slow][0] > 0 else 0.0

    def within(self, budgets: Sequence[float]) -> None:
        """The best plans within some budgets."""
        waiting = sorted(set(budgets))
        for number, limit in enumerate(waiting):
            if self.watch.is_over:
                return
            if not self.is_proven(limit):
                self._within(limit, 1 / (len(waiting) - number))

    def gaps(self, most: int) -> None:
        """Points where neighbours that are answers are furthest apart in latency, halfway between
        them in error."""
        asked = 0
        closed: set[tuple[float, float]] = set()
        while len(self.answers) < most and asked < 2 * most and not self.watch.is_over:
            rows = sorted((limit, *self.plans[plan]) for plan, limit in self.answers.items())
            gaps = [
                (1 - fast_ns / slow_ns, limit, noise)
                for (limit, slow_ns, _), (_, fast_ns, noise) in itertools.pairwise(rows)
                if slow_ns > 0 and noise > limit * (1 + CLOSE) and (limit, noise) not in closed
            ]
            if not gaps:
                return
            drop, low, high = max(gaps)
            if drop <= LEAST_DROP:
                return
            closed.add((low, high))
            middle = (0.5 * (math.sqrt(low) + math.sqrt(high))) ** 2
            if self.is_proven(middle):
                best = self.best(middle)
                assert best is not None
                self.answers[best] = max(middle, self.answers.get(best, 0.0))
            else:
                self._within(middle, SHARE)
            asked += 1

    def unmatched(self, rivals: Collection[Plan]) -> list[float]:
        """Noises of rivals that no answer matches, those first that need the least latency."""
        rows = [self.plans[rival] for rival in rivals if rival in self.plans]
        return [noise for ns, noise in sorted(rows) if not self.is_matched(ns, noise, self.answers)]

    def is_matched(self, ns: float, noise: float, plans: Iterable[Plan]) -> bool:
        rows = (self.plans[plan] for plan in plans)
        return any(own <= ns * (1 + CLOSE) and n <= noise * (1 + CLOSE) for own, n in rows)
