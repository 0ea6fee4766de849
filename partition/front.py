"""The front of latency against noise: for every error that one may allow, the fastest plan.

:mod:`.search.bicriteria` meets plans and proves bounds; here are the points that are told.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import Precision, Proof, ProofKind
from nnapi_prof.partition.constraints import Budget
from nnapi_prof.partition.problem import Problem, check_runnable
from nnapi_prof.partition.search.anytime import search
from nnapi_prof.partition.search.bicriteria import CLOSE, Bicriteria
from nnapi_prof.partition.search.result import BOUND_MET, Plan, Report, SearchLimits, Watch

LIMITS = SearchLimits(seconds=60.0, effort=4e9)
"""Of a whole front: it takes as long as some dozens of plans."""
SECONDS = 2.0
"""Of one plan of given precisions, at most."""
MOST_POINTS = 16
PRICES_A_POINT = 2
"""Prices tried at most, for each point that is asked for; one takes some hundredths of a second."""

Noise = NDArray[np.float64] | Sequence[NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class NoisePoint:
    """The fastest plan within a budget of noise."""

    placements: Plan
    ns: float
    noise: float
    """Power; of several outputs the largest."""
    proof: Proof
    """What is known of the least latency of all plans within the budget."""
    budget: float
    """No less than the noise"""

    @property
    def error(self) -> float:
        """The root of the noise."""
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
    """Plans of least latency against noise, the fastest first.

    ``noise`` is the noise power of each unit on each target, [n, t]; of a model with several
    outputs that matter one such array each, and the largest of a plan's counts. ``budgets`` are
    noise powers: the best plan within each is among the points, where there is one. Of the
    ``rivals``, plans that others would make, each is matched or bettered by some point. There are
    about ``most`` points, more only where budgets and rivals ask for them. Where ``limits`` or
    Ctrl-C end the search, the points are the best plans until then.

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
    """One array for each output. Raises PartitionError where one is none of noise powers."""
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
    """The fastest of some plans of at most so much noise; None where there is none."""
    within = (plan for plan in plans if plan.noise <= budget * (1 + CLOSE))
    return min(within, key=lambda plan: plan.ns, default=None)


def uniform(
    problem: Problem, precision: Precision, noise: Noise, *, limits: SearchLimits | None = None
) -> NoisePoint | None:
    """The fastest plan in which every unit that can be in a precision is, the others in floats: a
    simple rule that chooses precisions alone.

    Engines without targets in that precision of theirs take part in float32, as the CPU does where
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
    """The fastest plan of units on the targets that are allowed, [n, t], whatever its noise."""
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
    """Returns the points that were asked for, and of the other answers those that say most."""
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
    """Picks the plans that a front of so many lacks most where one leaves them out: those that are
    far below their slower neighbour. The fixed ones are among them, and not counted."""
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
