"""Plans to ship: the fewest segments at almost no extra cost, and the gain of each further segment.

Latency against number of segments is an ordinary trade-off: a price on segments leads to the plans
on its lower hull, each with a bound for every number of segments. The exact programme, with the
number carried by its labels, gives the rest where the graph allows it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nnapi_prof.graph.plan import Engine
from nnapi_prof.partition.baselines import Baseline, total_ns
from nnapi_prof.partition.constraints import Budget, add_prices
from nnapi_prof.partition.problem import Problem
from nnapi_prof.partition.search import Plan, Pool, SearchResult, Watch
from nnapi_prof.partition.search.anytime import LONG, search
from nnapi_prof.partition.search.exact import search_repeatedly
from nnapi_prof.partition.search.expansion import MOST_TO_JOIN, join_segments
from nnapi_prof.partition.search.relaxation import MANY_COLUMNS, relax
from nnapi_prof.partition.search.tables import NEGLIGIBLE

MOST_PRICES = 14
MIDDLE = 3.0
"""First price of a segment, in shares of the tolerance, and the factor to the next one."""
SPARE, MUCH_TO_SPARE = 1.5, 10.0
"""Time that must be left for the next search, as a multiple of the last one's. HiGHS's interior
points, for large programmes, take up to ten times as long at another price, and have no time
limit."""
MOST_STARTS = 6
"""Number of plans that a search with a price on segments begins with."""
FRONT_STEPS = 2_000_000
FULL_FRONT_STEPS = 4_000_000


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The least latency of plans of at most so many segments."""

    n_segments: int
    ns: float
    bound_ns: float
    """Lower bound of plans of at most so many segments."""
    placements: Plan

    @property
    def exact(self) -> bool:
        """Whether no plan of at most so many segments is faster."""
        return self.ns <= self.bound_ns * (1 + 1e-9)

    @property
    def gap(self) -> float:
        """Largest possible excess over the optimum for its number, relative to the bound."""
        return max(0.0, self.ns / self.bound_ns - 1) if self.bound_ns > 0 else math.inf


class TradeOff:
    """Plans of one problem with few segments, based on the best plan of a search.

    Plans also keep to the ``budgets``.
    """

    def __init__(
        self,
        problem: Problem,
        best: SearchResult,
        rivals: Sequence[Baseline],
        budgets: Sequence[Budget],
        watch: Watch,
    ) -> None:
        self._problem = problem
        self._best = best
        self._rivals = [r for r in rivals if all(b.keeps(r.placements) for b in budgets)]
        self._budgets = list(budgets)
        self._watch = watch
        self._priced = [
            (budget, rate)
            for budget, rate in zip(budgets, best.rates, strict=False)
            if budget.is_sum_over_units
        ]
        """Budgets with the worth of a step of each in ns; none where the best plan keeps to all"""
        self._pool = Pool(problem, budgets, bound_ns=best.bound_ns, bounded_by=best.bounded_by)
        self._prices: list[tuple[float, float]] = []
        """Prices of a segment, each with the bound of latency and price together."""
        self._exact_to: dict[int, float] = {}
        """Number of segments -> proven bound of the latency."""
        self._costlier = set(best.costlier)
        self._last_s = 0.0
        """Seconds of the last search with a price on segments."""
        for plan in (best.placements, *best.plans, *(r.placements for r in self._rivals)):
            self._offer(plan)
        if len(best.placements) > 1:
            self._offer(join_segments(problem, best.placements))

    def _offer(self, plan: Plan) -> None:
        self._pool.offer(plan, "trade-off")

    @property
    def best(self) -> SearchResult:
        """The best plan: the search's own, or a better one found since."""
        own = self._best
        if self._pool.best_ns < own.ns and not own.is_optimal:
            better = self._pool.result(own.costlier, own.steps, own.relaxation, own.rates)
            assert better is not None
            self._best = better
        return self._best

    def fewest(self, tolerance: float) -> Plan:
        """Returns the plan of fewest segments within the tolerance of the best one, and no slower
        than any baseline; among such plans, one of segments that were measured whole, and of few
        targets. Ctrl-C ends the search for simpler ones."""
        try:
            best = self.best
            plan = self._fewest(tolerance)
            # The search for simpler plans may find a faster one.
            return plan if self.best is best else self._fewest(tolerance)
        except KeyboardInterrupt:
            self._watch.interrupted = True
            return self.best.placements

    def _fewest(self, tolerance: float) -> Plan:
        best_ns = self._best.ns
        close = min(
            [best_ns * (1 + tolerance), *(max(r.predicted_ns, best_ns) for r in self._rivals)]
        )
        segments = len(self._best.placements)
        if tolerance > 0 and segments > 1 and self._fewest_known(close)[0] > 1:
            if not self._front(close * (1 + 1e-12), FRONT_STEPS):
                price = MIDDLE * best_ns * tolerance / segments
                self._at(price)
                within = self._fewest_known(close)[0] < segments
                if self._has_time:
                    self._at(price * MIDDLE if within else price / MIDDLE)
        self._offer(join_segments(self._problem, self._fewest_known(close)[-1]))
        if tolerance > 0 and self._problem.region_ns and self._has_time:
            count, unmeasured, *_ = self._fewest_known(close)
            if count > 1 and unmeasured:
                self._at(best_ns * tolerance / segments, caution=tolerance / 2)
        *_, ns, plan = self._fewest_known(close)
        if tolerance > 0 and len(plan) <= MOST_TO_JOIN:
            plan = self._on_fewer_targets(plan, max(close, ns))
            self._offer(plan)  # for the curve
        return plan

    def _fewest_known(self, close: float) -> tuple[int, int, float, Plan]:
        """Returns the number of segments, those of them not measured whole, ns, and the plan."""
        within = [plan for plan, ns in self._pool.plans.items() if ns <= close * (1 + 1e-12)]
        return min(self._simplicity(plan) for plan in within or [self._best.placements])

    def _simplicity(self, plan: Plan) -> tuple[int, int, float, Plan]:
        measured = sum((frozenset(units), k) in self._problem.region_ns for units, k in plan)
        ns = self._pool.plans.get(plan, self._best.ns)
        return len(plan), len(plan) - measured, ns, plan

    def _on_fewer_targets(self, plan: Plan, close: float) -> Plan:
        """Returns the plan with the segments of one target on another, where that stays close:
        noise may have chosen between two names of one device."""
        changed = True
        while changed:
            changed = False
            used = sorted({k for _, k in plan}, key=lambda k: sum(t == k for _, t in plan))
            options = []
            for rare in used:
                if self._problem.targets[rare].engine is not Engine.NNAPI:
                    continue
                for other in used:
                    if other == rare:
                        continue
                    moved = tuple((u, other if k == rare else k) for u, k in plan)
                    candidate = join_segments(self._problem, moved)
                    ns = total_ns(self._problem, candidate)
                    if ns <= close and all(b.keeps(candidate) for b in self._budgets):
                        options.append((len(candidate), ns, candidate))
            if options:
                plan = min(options)[2]
                changed = True
        return plan

    def curve(self) -> tuple[CurvePoint, ...]:
        """Returns a point for each number of segments, up to the best plan's. If Ctrl-C ends the
        search for more, the curve consists of those known then."""
        try:
            self._explore()
        except KeyboardInterrupt:
            self._watch.interrupted = True
        return self._points()

    def _explore(self) -> None:
        """Looks for plans of few segments, and for their bounds."""
        most = len(self._best.placements)
        simplest = min((len(plan), ns) for plan, ns in self._pool.plans.items())
        if most > 1 and not self._front(simplest[1], FULL_FRONT_STEPS):
            price = self._best.ns / most / 64
            for _ in range(MOST_PRICES):
                if not self._has_time:
                    break
                if self._at(price) <= simplest[0]:
                    break
                price *= 2.5

    def _points(self) -> tuple[CurvePoint, ...]:
        most = len(self.best.placements)
        least: dict[int, tuple[float, Plan]] = {}
        for plan, ns in self._pool.plans.items():
            count = len(plan)
            if count not in least or ns < least[count][0]:
                least[count] = (ns, plan)
        points: list[CurvePoint] = []
        ns, plan = math.inf, ()
        for count in range(1, most + 1):
            ns, plan = min((ns, plan), least.get(count, (math.inf, ())))
            if not plan:
                continue
            points.append(CurvePoint(count, ns, min(ns, self._bound(count)), plan))
        return tuple(points)

    def _bound(self, count: int) -> float:
        exact = [ns for c, ns in self._exact_to.items() if c == count]
        prices = [bound - price * count for price, bound in self._prices]
        return max([self._best.bound_ns, *exact, *prices])

    def _at(self, price: float, caution: float = 0.0) -> int:
        """Solves with a price on segments; returns the plan's number of segments. With ``caution``,
        regions not measured whole cost as much more than the sum of their parts, relative."""
        began = self._watch.elapsed_s
        small = self._problem
        if caution:
            small = replace(
                small,
                unit_ns=small.unit_ns * (1 + caution),
                overhead_ns=small.overhead_ns * (1 + caution),
                in_ns_per_byte=small.in_ns_per_byte * (1 + caution),
                out_ns_per_byte=small.out_ns_per_byte * (1 + caution),
            )
        budgets, rates = [Budget.segments(small)], [price]
        for budget, rate in self._priced:
            budgets.append(budget)
            rates.append(rate)
        rival = add_prices(small, budgets, rates)
        nearest = sorted(
            self._pool.plans, key=lambda plan: self._pool.plans[plan] + price * len(plan)
        )
        starts = [("known", plan) for plan in nearest[:MOST_STARTS]]
        result = search(rival, self._watch, starts=starts, costlier=self._costlier, patience=0)
        self._last_s = self._watch.elapsed_s - began
        if result is None:
            return 0
        if not caution:
            worth_ns = sum(rate * budget.limit for budget, rate in self._priced if rate)
            self._prices.append((price, result.bound_ns - worth_ns))
        for plan in result.plans:
            self._offer(plan)
        return len(result.placements)

    @property
    def _has_time(self) -> bool:
        """Whether there is time for another search as long as the last one."""
        problem = self._problem
        by_points = 2 * problem.n * len(problem.targets) > MANY_COLUMNS
        needed_s = (MUCH_TO_SPARE if by_points else SPARE) * self._last_s
        return not self._watch.is_over and self._watch.seconds_left > needed_s

    def _front(self, upper_ns: float, steps: float) -> bool:
        """Finds all undominated plans below ``upper_ns`` in latency and segments, by the exact
        programme; returns whether it finished."""
        problem = self._problem
        relaxation = None if self._budgets else self._best.relaxation
        sums = [budget for budget in self._budgets if budget.is_sum_over_units]
        if relaxation is None and problem.n <= LONG:
            relaxation = relax(problem, self._watch.seconds_left * 0.3, sums)
        if relaxation is None:
            return False
        prices = iter(relaxation.rates.tolist() if self._budgets else ())
        rates = [next(prices) if budget.is_sum_over_units else 0.0 for budget in self._budgets]
        for result, is_true in search_repeatedly(
            problem,
            relaxation.prices,
            lambda: upper_ns * (1 + NEGLIGIBLE),
            self._watch,
            self._costlier,
            budgets=[Budget.segments(problem), *self._budgets],
            rates=[0.0, *rates],
            steps=steps,
            memory_share=0.3,
        ):
            if not result.complete:
                return False
            for _, _, plan in result.fronts:
                self._offer(plan)
            if is_true:
                self._note_front(result.fronts, upper_ns)
                return True
        return False

    def _note_front(
        self, fronts: Sequence[tuple[float, tuple[float, ...], Plan]], upper_ns: float
    ) -> None:
        counts: Mapping[int, float] = {round(use[0]): ns for ns, use, _ in fronts}
        best = upper_ns
        for count in range(1, len(self._best.placements) + 1):
            best = min(best, counts.get(count, math.inf))
            self._exact_to[count] = max(self._exact_to.get(count, 0.0), best * (1 - 1e-12))
