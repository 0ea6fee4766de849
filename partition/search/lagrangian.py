"""Plans within budgets: at most so many segments, so much compile time, so much error.

For every price p >= 0 on the steps of a budget,

    min over plans (latency + p * (use - limit))

is no more than the latency of any plan within the limit. The price is raised until plans keep to
the limit, then narrowed down. Budgets that are sums over units (an error) are rows of the
relaxation, which prices them all at once. Then the exact programme, with budgets carried by its
labels and pruned by the best price, closes the remaining gap, where the graph allows it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from nnapi_prof.partition.baselines import find_baselines, total_ns
from nnapi_prof.partition.constraints import Budget, add_prices
from nnapi_prof.partition.problem import Problem, Region
from nnapi_prof.partition.search import BOUND_MET, Plan, Pool, SearchResult, Watch
from nnapi_prof.partition.search.anytime import CLOSE, PATIENCE, search
from nnapi_prof.partition.search.exact import search_repeatedly
from nnapi_prof.partition.search.relaxation import Relaxation, relax
from nnapi_prof.partition.search.tables import NEGLIGIBLE, Prices, free_prices, unit_shares

RAISES = 12
"""Largest number of tenfold raises of the price before the limit counts as out of reach."""
CUTS = 10
"""Largest number of new prices of one limit, each where the plans found so far promise most."""
NEAR = 1.25
"""Factor between such prices near the relaxation's, where few plans beyond the limit are known."""
EXACT_STEPS = 10_000_000
FACTORS = (1.0, 1.02, 1.1, 1.3, 2.0, 5.0, 20.0, 1e3)
"""Factors of the relaxation's rates, tried until a plan keeps to the budgets."""
WIDTHS = (300, 3_000)
"""Labels of a level in the exact programmes of budgets that are rows of the relaxation."""
LOOK = 0.2
"""Share of the time for the best plan without budgets."""
IMPROVED, IMPROVING = 3, 0.3
"""Number of factors that get the whole search, and the share of the remaining time for each."""
SUM_STEPS = 2e9
"""Steps of each exact programme; some 20 seconds."""


def search_within(
    problem: Problem,
    budgets: Sequence[Budget],
    watch: Watch,
    *,
    starts: Iterable[tuple[str, Plan]] = (),
    costlier: Collection[Region] = (),
) -> SearchResult | None:
    """Returns the fastest plan found that keeps to the budgets; None where none was found.

    If the plan without budgets keeps to them, it is the answer. ``kind`` is EXACT with no plan
    (None) only where the programme proved that there is none.
    """
    known_plans = list(starts)

    def keeps(plan: Plan) -> bool:
        return all(budget.keeps(plan) for budget in budgets)

    free = _look(problem, watch, known_plans, costlier) if budgets else None
    if free is not None:
        known_plans.insert(0, (free.found_by, free.placements))
    if free is None or (keeps(free.placements) and not free.is_optimal):
        free = search(problem, watch, starts=known_plans, costlier=costlier)
    if free is None or keeps(free.placements):
        return free
    best = Pool(problem, budgets)
    best.raise_bound(free.bound_ns, free.bounded_by)
    lagrange = _Lagrange(problem, budgets, watch, best, free)
    lagrange.meet((baseline.placements for baseline in find_baselines(problem)), "baseline")
    for step, plan in known_plans:
        lagrange.meet([plan], step)
    lagrange.meet(free.plans, "search")
    try:
        lagrange.price()
        lagrange.finish()
    except KeyboardInterrupt:
        if best.best is None:
            raise
        watch.interrupted = True
    return best.result(lagrange.costlier, watch.steps, rates=lagrange.rates)


def _look(
    problem: Problem,
    watch: Watch,
    starts: Sequence[tuple[str, Plan]],
    costlier: Collection[Region],
) -> SearchResult | None:
    """Returns the best plan without budgets found in a little time: most of the time is for plans
    that keep to them."""
    own = watch.part(LOOK)
    result = search(problem, own, starts=starts, costlier=costlier, patience=0)
    watch.absorb(own)
    return result


class _Lagrange:
    """Prices of budgets, and the exact programme that they prune."""

    def __init__(
        self,
        problem: Problem,
        budgets: Sequence[Budget],
        watch: Watch,
        pool: Pool,
        free: SearchResult,
    ) -> None:
        self._in_rows = [i for i, budget in enumerate(budgets) if not budget.region_use]
        self._problem = problem
        self._budgets = budgets
        self._watch = watch
        self._pool = pool
        self._free = free
        self.rates = [0.0] * len(budgets)
        """Worth of a step of each budget, in ns"""
        self.costlier: set[Region] = set(free.costlier)
        self._met: dict[Plan, float] = {}
        """Plans, within the budgets or not, with their latencies in ns."""
        self._relaxation: Relaxation | None = None
        """Relaxation of the problem in which budgets that are not sums over units have prices."""

    # ---- prices --------------------------------------------------------------------------

    def price(self) -> None:
        """Finds the rates at which priced plans just keep to the budgets: one after the other,
        except those that are rows of the relaxation."""
        for i in range(len(self._budgets)):
            if i not in self._in_rows:
                self._raise(i)
        if not self._in_rows or self._watch.is_over:
            return
        self._relaxation = relax(
            add_prices(self._problem, self._budgets, self.rates),
            self._watch.seconds_left * 0.5,
            [self._budgets[i] for i in self._in_rows],
        )
        if self._relaxation is None:
            for i in self._in_rows:
                self._raise(i)
            return
        self._pool.raise_bound(self._relaxation.bound_ns - self._worth(), "price, relaxation")
        for i, rate in zip(self._in_rows, self._relaxation.rates, strict=True):
            self.rates[i] = float(rate)
        self._raise_together()
        for i in self._in_rows:
            self._settle(i, NEAR)

    def _raise(self, i: int) -> None:
        """Raises a rate until a plan keeps to its limit, then settles it; does nothing where the
        free plan keeps to it."""
        budget = self._budgets[i]
        if budget.keeps(self._free.placements):
            return
        self.rates[i] = self._free.ns / max(budget.of(self._free.placements), 1e-300)
        for _ in range(RAISES):
            if self._keeps_at(self.rates) or self._watch.is_over:
                break
            self.rates[i] *= 10
        self.rates[i] = self._settle(i, math.inf)

    def _settle(self, i: int, step: float) -> float:
        """Looks for the rate of the best bound, and so for plans near the limit: the rate at which
        the plans found so far promise most, between one whose best plan keeps to the limit and one
        whose does not. ``step`` is the largest factor of a change of the rate."""
        rates = list(self.rates)
        low, high = 0.0, math.inf
        for _ in range(CUTS):
            rate = self._crossing(i)
            if rate is None or self._watch.is_over or self._pool.is_within(BOUND_MET):
                break
            rate = min(max(rate, rates[i] / step), rates[i] * step)
            if not low < rate < high:
                break
            rates[i] = rate
            low, high = (low, rate) if self._keeps_at(rates) else (rate, high)
        return rates[i]

    def _crossing(self, i: int) -> float | None:
        """Finds the rate at which plans within a limit and beyond it, priced, cost the same: that
        of the pair with the least common cost, less the worth of the limit."""
        within: list[tuple[float, float]] = []
        beyond: list[tuple[float, float]] = []
        for plan, ns in self._met.items():
            uses = [budget.of(plan) for budget in self._budgets]
            others = sum(self.rates[j] * uses[j] for j in range(len(uses)) if j != i)
            more = uses[i] - self._budgets[i].limit
            (beyond if more > 0 else within).append((ns + others, more))
        pairs = [
            (low_ns - low * (low_ns - high_ns) / (low - high), (low_ns - high_ns) / (high - low))
            for low_ns, low in within
            for high_ns, high in beyond
            if low_ns > high_ns
        ]
        return min(pairs)[1] if pairs else None

    def _raise_together(self) -> None:
        """Solves at the relaxation's rates, and at higher ones until a plan keeps to the budgets,
        for the exact programme to improve on."""
        for factor in FACTORS:
            rates = list(self.rates)
            for i in self._in_rows:
                rates[i] *= factor
            if self._watch.is_over or self._keeps_at(rates):
                return

    def _keeps_at(
        self, rates: Sequence[float], watch: Watch | None = None, patience: int = 0
    ) -> bool:
        """Solves at some rates; returns whether that plan keeps to the budgets."""
        rival = add_prices(self._problem, self._budgets, rates)
        starts = [("search", self._pool.best)] if self._pool.best is not None else []
        own = watch or self._watch
        result = search(rival, own, starts=starts, patience=patience, with_stretches=False)
        if result is None:
            return True
        self._pool.raise_bound(result.bound_ns - self._worth(rates), f"price, {result.bounded_by}")
        self.meet((result.placements, *result.plans), "price")
        return all(budget.keeps(result.placements) for budget in self._budgets)

    def meet(self, plans: Iterable[Plan], step: str) -> None:
        """Notes plans, within the budgets or not."""
        for plan in plans:
            ns = total_ns(self._problem, plan)
            if math.isfinite(ns):
                self._met[plan] = ns
                self._pool.offer(plan, step)

    def _worth(self, rates: Sequence[float] | None = None) -> float:
        """Returns the worth of the limits in ns."""
        pairs = zip(rates or self.rates, self._budgets, strict=True)
        return sum(rate * budget.limit for rate, budget in pairs if rate)

    # ---- the exact programme -------------------------------------------------------------

    def finish(self) -> None:
        """Runs the exact programme with budgets: where they are rows of the relaxation, first at
        limited width, so that the best plan rules out more of the rest."""
        if self._relaxation is None:
            self._finish_priced()
            return
        for width in WIDTHS:
            if self._watch.is_over and self._pool.best is not None:
                return
            if self._exact(self._relaxation, self._relaxation.prices, SUM_STEPS, width):
                return
        self._improve()

    def _improve(self) -> None:
        """Searches at prices, where the exact programme of a wide graph leaves plans out; then runs
        the exact programme without a limit of width."""
        for factor in FACTORS[:IMPROVED]:
            if self._watch.is_over or self._is_close:
                return
            rates = list(self.rates)
            for i in self._in_rows:
                rates[i] *= factor
            own = self._watch.part(IMPROVING)
            self._keeps_at(rates, own, PATIENCE)
            self._watch.absorb(own)
        if self._relaxation is not None and not self._watch.is_over:
            self._exact(self._relaxation, self._relaxation.prices, SUM_STEPS)

    @property
    def _is_close(self) -> bool:
        return self._pool.best_ns <= self._pool.bound_ns * (1 + CLOSE)

    def _finish_priced(self) -> None:
        rival = add_prices(self._problem, self._budgets, self.rates)
        relaxation = None
        if any(self.rates) or self._problem.n > 12:
            relaxation = relax(rival, self._watch.seconds_left * 0.5)
        if relaxation is None:
            self._exact(None, free_prices(rival, unit_shares(rival)), EXACT_STEPS)
            return
        self._pool.raise_bound(relaxation.bound_ns - self._worth(), "price, relaxation")
        self._exact(None, relaxation.prices, EXACT_STEPS)

    def _exact(
        self, relaxation: Relaxation | None, prices: Prices, steps: float, width: int = 1 << 40
    ) -> bool:
        """Runs the exact programme; returns whether it left nothing out. It skips placements that,
        by reduced costs, no better plan than the best one has."""
        pool, problem = self._pool, self._problem
        if relaxation is not None:
            most_ns = pool.best_ns * (1 + NEGLIGIBLE) + self._worth_of_others()
            problem = relaxation.fixed(problem, most_ns)
        for result, is_true in search_repeatedly(
            problem,
            prices,
            lambda: pool.best_ns * (1 - NEGLIGIBLE / 2),
            self._watch,
            self.costlier,
            budgets=self._budgets,
            rates=self.rates,
            width=width,
            steps=steps,
            memory_share=0.5,
            insist=lambda: pool.best is None,
        ):
            if math.isfinite(result.bound_ns):
                pool.raise_bound(min(result.bound_ns, pool.best_ns) * (1 - 1e-12), "exact")
            if result.placements:
                pool.offer(result.placements, "exact")
            if is_true:
                pool.is_exact = result.complete and pool.best is not None
                return result.complete
        return False

    def _worth_of_others(self) -> float:
        """Returns the worth in ns of the limits of budgets that are not rows of the relaxation."""
        return self._worth() - sum(self.rates[i] * self._budgets[i].limit for i in self._in_rows)
