"""Plans within budgets: at most so many segments, so much compile time.

For every price p >= 0 on the steps of a budget,

    min over plans (latency + p * (use - limit))

is no more than the latency of any plan within the limit. The price is raised until plans keep to
the limit and halved in between; then the exact programme, with budgets carried by its labels and
pruned by the best price, closes what is left, where the graph allows it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from nnapi_prof.graph.plan import ProofKind
from nnapi_prof.partition.baselines import find_baselines, total_ns
from nnapi_prof.partition.constraints import Budget, add_prices
from nnapi_prof.partition.problem import Problem, Region
from nnapi_prof.partition.search.anytime import BOUND_MET, search
from nnapi_prof.partition.search.exact import search_ideals
from nnapi_prof.partition.search.relaxation import free_prices, relax, unit_shares
from nnapi_prof.partition.search.result import Plan, SearchResult, Watch
from nnapi_prof.partition.search.tables import MOST_WATCHED, NEGLIGIBLE, is_underpriced

RAISES = 12
"""Of the price, tenfold each, before the limit counts as out of a price's reach."""
HALVINGS = 10
EXACT_STEPS = 10_000_000


@dataclass
class _Best:
    """The best plan within the budgets, and what is proven."""

    problem: Problem
    budgets: Sequence[Budget]
    plan: Plan | None = None
    ns: float = math.inf
    found_by: str = ""
    bound_ns: float = 0.0
    bounded_by: str = "unit costs"
    plans: dict[Plan, float] = field(default_factory=dict)

    def offer(self, placements: Plan, step: str) -> bool:
        """Whether a plan keeps to the budgets; noted if it is the best that does."""
        if not all(budget.keeps(placements) for budget in self.budgets):
            return False
        ns = total_ns(self.problem, placements)
        if math.isfinite(ns):
            self.plans[placements] = ns
        if ns < self.ns * (1 - NEGLIGIBLE) or (self.plan is None and math.isfinite(ns)):
            self.plan, self.ns, self.found_by = placements, ns, step
        return math.isfinite(ns)

    def raise_bound(self, bound_ns: float, step: str) -> None:
        if bound_ns > self.bound_ns:
            self.bound_ns, self.bounded_by = bound_ns, step


def search_within(
    problem: Problem,
    budgets: Sequence[Budget],
    watch: Watch,
    *,
    starts: Iterable[tuple[str, Plan]] = (),
    costlier: Collection[Region] = (),
) -> SearchResult | None:
    """The fastest plan found that keeps to the budgets; None where none was found.

    Where the plan without budgets keeps to them, that is the answer. ``kind`` is EXACT with no
    plan (None) only where the programme proved that there is none.
    """
    known_plans = list(starts)
    free = search(problem, watch, starts=known_plans, costlier=costlier)
    if free is None or not budgets:
        return free
    if all(budget.keeps(free.placements) for budget in budgets):
        return free
    best = _Best(problem, budgets)
    best.raise_bound(free.bound_ns, free.bounded_by)
    for baseline in find_baselines(problem):
        best.offer(baseline.placements, "baseline")
    for step, plan in (*known_plans, *(("search", plan) for plan in free.plans)):
        best.offer(plan, step)
    costlier = free.costlier
    try:
        rates = _price(problem, budgets, watch, best, free)
        costlier = frozenset(_finish(problem, budgets, watch, best, rates, free.costlier))
    except KeyboardInterrupt:
        if best.plan is None:
            raise
        watch.interrupted = True
    if best.plan is None:
        return None
    is_exact = best.bounded_by == "exact" and best.bound_ns >= best.ns * (1 - NEGLIGIBLE)
    is_met = best.ns <= best.bound_ns * (1 + BOUND_MET)
    kind = ProofKind.EXACT if is_exact else ProofKind.BOUND_MET if is_met else ProofKind.GAP
    return SearchResult(
        best.plan,
        best.ns,
        min(best.bound_ns, best.ns),
        kind,
        best.found_by,
        best.bounded_by,
        best.plans,
        frozenset(costlier),
        watch.steps,
    )


def _price(
    problem: Problem, budgets: Sequence[Budget], watch: Watch, best: _Best, free: SearchResult
) -> list[float]:
    """The rates, one after the other, at which priced plans just keep to the budgets."""
    rates = [0.0] * len(budgets)
    for i, budget in enumerate(budgets):
        use = budget.of(free.placements)
        if use <= budget.limit:
            continue
        low, high = 0.0, free.ns / max(use, 1e-300)
        for _ in range(RAISES):
            rates[i] = high
            if _at(problem, budgets, rates, watch, best) or watch.is_over:
                break
            low, high = high, 10 * high
        for _ in range(HALVINGS):
            if watch.is_over or high - low <= 0.02 * high:
                break
            rates[i] = (low + high) / 2
            if _at(problem, budgets, rates, watch, best):
                high = rates[i]
            else:
                low = rates[i]
        rates[i] = high
    return rates


def _at(
    problem: Problem, budgets: Sequence[Budget], rates: list[float], watch: Watch, best: _Best
) -> bool:
    """Solves at some rates; whether that plan keeps to the budgets."""
    rival = add_prices(problem, budgets, rates)
    starts = [("search", best.plan)] if best.plan is not None else []
    result = search(rival, watch, starts=starts, patience=0)
    if result is None:
        return True
    limits = sum(rate * budget.limit for rate, budget in zip(rates, budgets, strict=True) if rate)
    best.raise_bound(result.bound_ns - limits, f"price, {result.bounded_by}")
    for plan in result.plans:
        best.offer(plan, "price")
    return all(budget.keeps(result.placements) for budget in budgets)


def _finish(
    problem: Problem,
    budgets: Sequence[Budget],
    watch: Watch,
    best: _Best,
    rates: Sequence[float],
    costlier: Collection[Region],
) -> set[Region]:
    """The exact programme with budgets; the costlier regions it ran into."""
    rival = add_prices(problem, budgets, rates)
    relaxation = relax(rival, watch.seconds_left * 0.5) if any(rates) or problem.n > 12 else None
    prices = relaxation.prices if relaxation is not None else free_prices(rival, unit_shares(rival))
    if relaxation is not None:
        limits = sum(r * b.limit for r, b in zip(rates, budgets, strict=True) if r)
        best.raise_bound(relaxation.bound_ns - limits, "price, relaxation")
    watched = set(costlier)
    spent = 0.0
    while spent < EXACT_STEPS and not (watch.is_over and best.plan is not None):
        result = search_ideals(
            problem,
            prices,
            best.ns * (1 - NEGLIGIBLE / 2),
            watch,
            budgets=budgets,
            rates=rates,
            watched=watched,
            steps=EXACT_STEPS - spent,
            memory_bytes=watch.limits.memory_bytes * 0.5,
            insist=best.plan is None,
        )
        if result is None:
            break
        spent += result.steps
        if math.isfinite(result.bound_ns):
            best.raise_bound(min(result.bound_ns, best.ns) * (1 - 1e-12), "exact")
        if result.placements:
            best.offer(result.placements, "exact")
        new = {
            (frozenset(units), k)
            for units, k in result.placements
            if _is_costlier(problem, budgets, units, k) and (frozenset(units), k) not in watched
        }
        if not new or (not result.complete and watch.is_over):
            if result.complete and best.plan is not None:
                best.bound_ns, best.bounded_by = best.ns, "exact"
            break
        watched = new if len(watched | new) > MOST_WATCHED else watched | new
    return watched


def _is_costlier(
    problem: Problem, budgets: Sequence[Budget], units: tuple[int, ...], k: int
) -> bool:
    """Whether a region costs more whole than by its parts, in latency or of a budget."""
    return is_underpriced(problem, units, k) or any(
        budget.of_region(units, k) > budget.additive(units, k) * (1 + NEGLIGIBLE)
        for budget in budgets
    )
