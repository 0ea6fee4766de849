"""Find the front of latency against noise: the fastest plan for every allowed error.

Noise powers of units on targets add up to a plan's, as a budget does (:mod:`.constraints`). The
front is approached from two sides:

* *prices*: least latency + price x noise, for prices between the fastest plan and the quietest,
  gives the plans on its lower hull (H. Everett, Oper. Res. 11, 1963; the prices are those of
  Y. P. Aneja and K. P. K. Nair, "Bicriteria Transportation Problem", Manag. Sci. 25, 1979: the
  slope between two neighbours), and a bound for every noise;
* *limits*: least latency within a limit of noise, first for the budgets that the caller names, then
  in the widest gaps.

All plans found on the way, by either, are candidates for every point. For small graphs the exact
programme gives the whole front at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import Precision, Proof, ProofKind
from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.constraints import Budget, ErrorLimit, add_prices
from nnapi_prof.partition.problem import Problem, check_runnable
from nnapi_prof.partition.search import (
    BOUND_MET,
    Plan,
    Report,
    SearchLimits,
    SearchResult,
    Watch,
)
from nnapi_prof.partition.search.anytime import search
from nnapi_prof.partition.search.exact import search_repeatedly
from nnapi_prof.partition.search.lagrangian import search_within
from nnapi_prof.partition.search.tables import free_prices, unit_shares

STARTS = 4
"""Number of plans that a search begins with."""
WHOLE_STEPS = 5_000_000
"""Limit of the exact programme's steps for the whole front: some 50 ms."""
LEAST_DROP = 1e-3
"""Relative latency between two neighbours below which no further point is tried."""
SHARE = 0.25
"""Share of the remaining time for one search that the caller did not request."""
CLOSE = 1e-9
"""Relative difference below which noises count as equal."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Bound of latency: no plan of at most a given noise costs less than ``ns - price x noise``."""

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
    """Plans found so far, and proven bounds."""

    problem: Problem
    noise: Sequence[NDArray[np.float64]]
    watch: Watch
    plans: dict[Plan, tuple[float, float]] = field(default_factory=dict)
    """Latency in ns, and noise"""
    bounds: list[Bound] = field(default_factory=list)
    answers: dict[Plan, float] = field(default_factory=dict)
    """Plans that were the best at a price or within a limit, with the largest such limit"""
    is_whole: bool = False
    """Whether every plan that no other dominates is known."""

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
        """Notes the result of a search within a limit or at a price."""
        for plan in (result.placements, *result.plans):
            self.offer(plan)
        noise = self.plans[result.placements][1]
        limit = noise if limit is None else max(limit, noise)
        self.answers[result.placements] = max(self.answers.get(result.placements, 0.0), limit)

    def best(self, limit: float) -> Plan | None:
        """Returns the fastest plan of at most so much noise."""
        return next((p for p in self.hull() if self.plans[p][1] <= limit * (1 + CLOSE)), None)

    def bound(self, limit: float) -> Bound:
        """Returns the best bound of plans of at most so much noise."""
        if self.is_whole:
            best = self.best(limit)
            return Bound(math.inf if best is None else self.plans[best][0], "exact", is_exact=True)
        return max(self.bounds, key=lambda b: (b.at(limit), b.is_exact), default=Bound(0.0, ""))

    def is_proven(self, limit: float) -> bool:
        """Tells whether the best plan within a limit is proven."""
        plan = self.best(limit)
        if plan is None:
            return False
        return self.plans[plan][0] <= self.bound(limit).at(limit) * (1 + BOUND_MET)

    def hull(self) -> list[Plan]:
        """Returns all plans that no other dominates in latency and noise, the fastest first."""
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
        """Solves for the fastest plan and the one of least noise."""
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
        if result is None:  # some units run only inside regions of more noise
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
        """Looks for the whole front at once; returns whether the search finished."""
        upper = math.inf
        if self.hull() and len(self.noise) == 1:
            ns, noise = self.plans[self.hull()[-1]]
            least = ErrorLimit(self.noise[0], math.inf).least(self.problem)
            if noise <= least**2 * (1 + CLOSE):
                upper = ns * (1 + CLOSE)  # a slower plan has no less noise
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
        """Solves for plans on the lower hull, between the most distant neighbours first."""
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
        """Returns the plans of :meth:`hull` on its lower hull."""
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
        """Solves for the best plans within some budgets."""
        waiting = sorted(set(budgets))
        for number, limit in enumerate(waiting):
            if self.watch.is_over:
                return
            if not self.is_proven(limit):
                self._within(limit, 1 / (len(waiting) - number))

    def gaps(self, most: int) -> None:
        """Solves for points between the neighbouring answers that are furthest apart in latency,
        halfway between them in error."""
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
        """Returns the noises of rivals that no answer matches, by ascending latency."""
        rows = [self.plans[rival] for rival in rivals if rival in self.plans]
        return [noise for ns, noise in sorted(rows) if not self.is_matched(ns, noise, self.answers)]

    def is_matched(self, ns: float, noise: float, plans: Iterable[Plan]) -> bool:
        rows = (self.plans[plan] for plan in plans)
        return any(own <= ns * (1 + CLOSE) and n <= noise * (1 + CLOSE) for own, n in rows)


LIMITS = SearchLimits(seconds=60.0, effort=4e9)
"""Default limits of a whole front, which takes as long as some dozens of plans."""
SECONDS = 2.0
"""Longest search in seconds for one plan of given precisions."""
MOST_POINTS = 16
PRICES_A_POINT = 2
"""Largest number of prices tried for each requested point, each some hundredths of a second."""

Noise = NDArray[np.float64] | Sequence[NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class NoisePoint:
    """The fastest plan within a budget of noise."""

    placements: Plan
    ns: float
    noise: float
    """Noise power; the largest of several outputs."""
    proof: Proof
    """Proof for the least latency of all plans within the budget."""
    budget: float
    """Budget of noise; at least ``noise``."""

    @property
    def error(self) -> float:
        """Square root of the noise."""
        return math.sqrt(self.noise)


def front(
    problem: Problem,
    noise: Noise,
    *,
    limits: SearchLimits | None = None,
    report: Report | None = None,
    budgets: Sequence[float] = (),
    rivals: Collection[Plan] = (),
    most: int = MOST_POINTS,
) -> tuple[NoisePoint, ...]:
    """Returns plans of least latency against noise, the fastest first.

    ``noise`` is the noise power of each unit on each target, [n, t]; for a model with several
    outputs that matter, one such array each, and the largest of a plan's counts. ``budgets`` are
    noise powers: the points include the best plan within each, where there is one. Each of the
    ``rivals``, plans of other tools, is matched or improved on by some point. There are about
    ``most`` points, more only where budgets and rivals need them. Where ``limits`` or Ctrl-C end
    the search, the points are the best plans until then.

    Raises PartitionError where some unit can run nowhere, or where no plan was found.
    """
    check_runnable(problem)
    watch = Watch(limits or LIMITS, report)
    run = Bicriteria(problem, noise_arrays(problem, noise), watch)
    for rival in rivals:
        run.offer(rival)
    try:
        run.ends()
        if not run.whole():
            run.prices(PRICES_A_POINT * most)
            run.within([budget for budget in budgets if budget >= 0])
            run.gaps(most)
            run.within(run.unmatched(rivals)[:most])
    except KeyboardInterrupt:
        watch.interrupted = True
        if not run.plans:
            raise
    points = _points(run, budgets, rivals, most)
    if not points:
        raise PartitionError(
            f"no plan was found within {watch.limits.seconds:g} s",
            "allow more time, or more targets",
        )
    return points


def noise_arrays(problem: Problem, noise: Noise) -> list[NDArray[np.float64]]:
    """Returns one array for each output. Raises PartitionError where one is not of noise powers."""
    is_one = isinstance(noise, np.ndarray) and noise.ndim == 2
    arrays = [np.asarray(array, dtype=np.float64) for array in ((noise,) if is_one else noise)]
    for array in arrays:
        if array.shape != problem.unit_ns.shape or np.isnan(array).any() or (array < 0).any():
            raise PartitionError(
                f"noise powers of the shape {array.shape}, wanted {problem.unit_ns.shape}, each at "
                "least 0 (inf if unknown)"
            )
    return arrays


def best_within(plans: Iterable[NoisePoint], budget: float) -> NoisePoint | None:
    """Returns the fastest of some plans of at most so much noise; None where there is none."""
    within = (plan for plan in plans if plan.noise <= budget * (1 + CLOSE))
    return min(within, key=lambda plan: plan.ns, default=None)


def uniform(
    problem: Problem, precision: Precision, noise: Noise, *, limits: SearchLimits | None = None
) -> NoisePoint | None:
    """Returns the fastest plan in which every unit that can run in a precision does, and the others
    run in floats: a simple rule that chooses only the precisions.

    Engines without targets in that precision take part in float32, as the CPU does where
    accelerators relax. None where no plan was found.
    """
    check_runnable(problem)
    targets = problem.targets
    of_it = np.array([target.precision is precision for target in targets])
    able = (problem.runs & of_it).any(axis=1, keepdims=True)
    own = of_it.copy()
    if precision is not Precision.INT8:
        engines = {target.engine for target in targets if target.precision is precision}
        for k, target in enumerate(targets):
            own[k] |= target.precision is Precision.FLOAT32 and target.engine not in engines
    allowed = np.where(able, own, problem.arrays.format == 0)
    return fastest_point(problem, noise_arrays(problem, noise), allowed, Watch(limits or LIMITS))


def fastest_point(
    problem: Problem,
    noise: Sequence[NDArray[np.float64]],
    allowed: NDArray[np.bool_],
    watch: Watch,
) -> NoisePoint | None:
    """Returns the fastest plan on the allowed targets, [n, t], with any noise."""
    unknown = np.any([np.isinf(array) for array in noise], axis=0)
    own = watch.part(min(1.0, SECONDS / max(watch.seconds_left, 1e-9)))
    result = search(problem.without(~allowed | unknown), own)
    watch.absorb(own)
    if result is None:
        return None
    power = max(Budget.error(array).of(result.placements) for array in noise)
    proof = Proof(result.kind, result.ns, result.bound_ns, result.found_by, result.bounded_by, True)
    return NoisePoint(result.placements, result.ns, power, proof, math.inf)


def _points(
    run: Bicriteria, budgets: Sequence[float], rivals: Collection[Plan], most: int
) -> tuple[NoisePoint, ...]:
    """Returns the requested points, and the most informative of the other answers."""
    hull = run.hull()
    limit_of: dict[Plan, float] = {}
    for limit in (math.inf, *budgets, min((run.plans[p][1] for p in hull), default=0.0)):
        best = run.best(limit)
        if best is not None:
            limit_of[best] = max(limit_of.get(best, 0.0), limit)
    others = [plan for plan in hull if plan in run.answers and plan not in limit_of]
    for plan in _telling(run, [*limit_of, *others], set(limit_of), most):
        limit_of[plan] = run.answers[plan]
    for rival in rivals:
        ns, noise = run.plans.get(rival, (math.inf, 0.0))
        if math.isfinite(ns) and not run.is_matched(ns, noise, limit_of):
            best = run.best(noise)
            assert best is not None
            limit_of[best] = noise
    rows = sorted(limit_of, key=lambda plan: run.plans[plan])
    return tuple(_point(run, plan, limit_of[plan]) for plan in rows)


def _telling(
    run: Bicriteria, plans: Sequence[Plan], fixed: Collection[Plan], most: int
) -> list[Plan]:
    """Picks the plans that a front of so many points needs most: those far below their slower
    neighbour. The fixed ones compete but are not returned."""
    rows = sorted(plans, key=lambda plan: run.plans[plan][1])
    while len(rows) > most:
        ns = [run.plans[plan][0] for plan in rows]
        losses = [
            (slower / own if own > 0 else math.inf, i)
            for i, (slower, own) in enumerate(itertools.pairwise(ns), 1)
            if rows[i] not in fixed
        ]
        if not losses:
            break
        del rows[min(losses)[1]]
    return [plan for plan in rows if plan not in fixed]


def _point(run: Bicriteria, plan: Plan, limit: float) -> NoisePoint:
    ns, noise = run.plans[plan]
    if run.best(limit) != plan:
        limit = noise
    bound = run.bound(limit)
    if ns > bound.at(limit) * (1 + BOUND_MET):
        limit, bound = noise, run.bound(noise)
    bound_ns = min(ns, bound.at(limit))
    kind = ProofKind.GAP
    if ns <= bound_ns * (1 + BOUND_MET):
        kind = ProofKind.EXACT if bound.is_exact else ProofKind.BOUND_MET
    proof = Proof(kind, ns, bound_ns, "front", bound.bounded_by, math.isfinite(limit))
    return NoisePoint(plan, ns, noise, proof, limit)
