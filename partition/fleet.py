"""A few plans for many phones: the choice of K plans, and the plan that each phone uses.

The cost of a plan on a phone is its regret: its latency divided by the least known latency on that
phone, minus 1. K plans are chosen by the mean regret, weighted by phones, or by the worst. HiGHS
solves both: the mean as a p-median (a column for each plan, and for each plan on each phone), the
worst as set covers, one for each regret tried. The mean decides between choices of equal worst
regret.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array, csr_array

from nnapi_prof.errors import PartitionError

MOST_EXACT = 50
"""Largest number of candidate plans without a time limit."""
SECONDS = 20.0
"""Default time limit in seconds of one choice among more plans."""
CLOSE = 1e-9
Matrix = NDArray[np.float64]


class FleetObjective(StrEnum):
    """Objective of a choice of plans."""

    MEAN = "mean"
    """Mean regret, weighted by phones."""
    WORST = "worst"
    """Largest regret of a phone with a weight above 0."""


@dataclass(frozen=True)
class FleetChoice:
    """Chosen plans, by index, and the plan of each phone."""

    plans: tuple[int, ...]
    """At most K plans, by descending weight; at least one phone uses each."""
    plan_of: tuple[int, ...]
    """[phones]: index of the fastest plan there among :attr:`plans`."""
    regrets: tuple[float, ...]
    """[phones]; inf for a phone with weight 0 where none of the plans runs."""
    mean: float
    """Mean regret by the weights."""
    worst: float
    objective: FleetObjective
    bound: float
    """Lower bound of the objective of any K candidate plans."""

    @property
    def value(self) -> float:
        """Value of the objective."""
        return self.mean if self.objective is FleetObjective.MEAN else self.worst

    @property
    def is_optimal(self) -> bool:
        """Whether no other K plans are better by more than 1e-6."""
        return self.value <= self.bound + 1e-6


def regrets(latency_ns: Matrix, least_ns: Sequence[float] | Matrix) -> Matrix:
    """Returns [plans, phones]: excess over the least latency, 0.1 for 10 %; inf if not runnable.

    ``latency_ns`` is [plans, phones], ``least_ns`` [phones], the least known latency of any plan.
    Raises PartitionError where one of them is not above 0, or a phone has no plan at all.
    """
    latency = np.asarray(latency_ns, dtype=np.float64)
    least = np.asarray(least_ns, dtype=np.float64)
    if latency.ndim != 2 or latency.shape[1:] != least.shape or not latency.size:
        raise PartitionError(f"latencies {latency.shape} do not fit {least.shape} phones")
    if np.isnan(latency).any() or (latency <= 0).any():
        raise PartitionError("a plan's latency is above 0 ns, or inf where it cannot run")
    best = np.minimum(least, latency.min(axis=0))
    if not (np.isfinite(best) & (best > 0)).all():
        phone = int(np.flatnonzero(~(np.isfinite(best) & (best > 0)))[0])
        raise PartitionError(f"no plan runs on phone {phone}", "add one that does, such as all-cpu")
    regret: Matrix = latency / best - 1.0
    return regret


def choose_plans(
    regret: Matrix,
    k: int,
    *,
    objective: FleetObjective = FleetObjective.MEAN,
    weights: Sequence[float] | Matrix | None = None,
    seconds: float | None = None,
) -> FleetChoice:
    """Returns the best ``k`` plans of a matrix of regrets [plans, phones].

    ``weights`` are by phone, in any unit (None: all equal). Up to :data:`MOST_EXACT` plans the
    choice is optimal unless ``seconds`` limits it; for more, it is the best one found in
    ``seconds`` (None: :data:`SECONDS`), with a bound. Raises PartitionError where no ``k`` of the
    plans serve every phone.
    """
    if k < 1:
        raise PartitionError(f"{k} plans were asked for, 1 is the least")
    share = _normalised_shares(weights, regret.shape[1])
    if seconds is None and len(regret) > MOST_EXACT:
        seconds = SECONDS
    every = np.flatnonzero(share > 0)
    part, part_share = regret[:, every], share[every]
    plans = _undominated(part)
    part = part[plans]
    if objective is FleetObjective.MEAN:
        chosen, bound = _least_mean(part, part_share, k, seconds)
    else:
        limit, bound, cover = _least_worst(part, k, seconds)
        within = np.where(part <= limit + CLOSE, part, np.inf)
        chosen, _ = _least_mean(within, part_share, k, seconds, cover)
    return _choice(regret, share, [plans[i] for i in chosen], objective, bound)


def _normalised_shares(weights: Sequence[float] | Matrix | None, n: int) -> Matrix:
    share = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    if share.shape != (n,) or not np.isfinite(share).all() or (share < 0).any() or not share.any():
        raise PartitionError(f"weights of {n} phones are finite, at least 0, and not all 0")
    return np.asarray(share / share.sum(), dtype=np.float64)


def _undominated(regret: Matrix) -> list[int]:
    """Returns the plans to which no other plan is as good on every phone; the first of equals."""
    alive: list[int] = []
    order = np.argsort(np.where(np.isfinite(regret), regret, 1e9).sum(axis=1), kind="stable")
    for plan in order.tolist():
        if not any((regret[other] <= regret[plan]).all() for other in alive):
            alive.append(plan)
    return sorted(alive)


def _choice(
    regret: Matrix, share: Matrix, plans: Sequence[int], objective: FleetObjective, bound: float
) -> FleetChoice:
    own = np.asarray(plans)[regret[list(plans)].argmin(axis=0)]
    got = regret[own, np.arange(regret.shape[1])]
    weight = {plan: float(share[own == plan].sum()) for plan in plans if (own == plan).any()}
    counted = share > 0
    mean = float((share[counted] * got[counted]).sum())
    worst = float(got[counted].max())
    value = mean if objective is FleetObjective.MEAN else worst
    return FleetChoice(
        plans=tuple(sorted(weight, key=lambda plan: (-weight[plan], plan))),
        plan_of=tuple(own.tolist()),
        regrets=tuple(got.tolist()),
        mean=mean,
        worst=worst,
        objective=objective,
        bound=min(bound, value),
    )


def _least_mean(
    regret: Matrix, share: Matrix, k: int, seconds: float | None, known: Sequence[int] = ()
) -> tuple[list[int], float]:
    """Returns plans of the least mean regret, and a bound; ``known`` are some that serve all."""
    n, phones = regret.shape
    start = (_swaps(regret, share, k) if k < n else list(range(n))) or list(known)
    at_least = float((share * regret.min(axis=0)).sum())
    if math.isinf(at_least):
        raise PartitionError(_NONE.format(k=k))
    if start and _mean_regret(regret, share, start) <= at_least + CLOSE:
        return start, at_least
    plan, phone = np.nonzero(np.isfinite(regret))
    columns = n + np.arange(len(plan))
    cost = np.concatenate([np.zeros(n), share[phone] * regret[plan, phone]])
    scale = float(cost.max()) or 1.0
    pairs = np.arange(len(plan))
    ones = np.ones(len(plan))
    serve = csr_array(coo_array((ones, (phone, columns)), shape=(phones, len(cost))))
    linked = csr_array(
        coo_array(
            (
                np.concatenate([ones, -ones]),
                (np.concatenate([pairs, pairs]), np.concatenate([columns, plan])),
            ),
            shape=(len(plan), len(cost)),
        )
    )
    few = csr_array(np.concatenate([np.ones(n), np.zeros(len(plan))])[None, :])
    result = milp(
        cost / scale,
        integrality=np.concatenate([np.ones(n), np.zeros(len(plan))]).astype(np.int8),
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(serve, 1, 1),
            LinearConstraint(linked, -np.inf, 0),
            LinearConstraint(few, 0, k),
        ],
        options={"mip_rel_gap": 0.0, "time_limit": math.inf if seconds is None else seconds},
    )
    bound = getattr(result, "mip_dual_bound", None)
    least = at_least if bound is None else max(at_least, float(bound) * scale)
    rivals = [start] if start else []
    if result.x is not None:
        rivals.append(np.flatnonzero(result.x[:n] > 0.5).tolist())
    if not rivals:
        raise PartitionError(_NONE.format(k=k))
    return min(rivals, key=lambda plans: _mean_regret(regret, share, plans)), least


_NONE = "no {k} of the plans serve every phone: allow more, or add a plan that runs on all of them"


def _mean_regret(regret: Matrix, share: Matrix, plans: Sequence[int]) -> float:
    return float((share * regret[list(plans)].min(axis=0)).sum())


def _swaps(regret: Matrix, share: Matrix, k: int) -> list[int]:
    """Returns plans that no single exchange improves; none where they do not serve all phones."""
    finite = np.where(np.isfinite(regret), regret, 1e6)  # a phone without a plan weighs most
    chosen: list[int] = []
    best = np.full(regret.shape[1], 1e12)
    for _ in range(min(k, len(regret))):
        plan = int((np.minimum(finite, best) @ share).argmin())
        if plan in chosen:
            break
        chosen.append(plan)
        best = np.minimum(best, finite[plan])
    improved = True
    while improved and chosen:
        improved = False
        for place in range(len(chosen)):
            others = chosen[:place] + chosen[place + 1 :]
            rest = finite[others].min(axis=0) if others else np.full(regret.shape[1], 1e12)
            values = np.minimum(finite, rest) @ share
            plan = int(values.argmin())
            if values[plan] < float(np.minimum(finite[chosen[place]], rest) @ share) - CLOSE:
                chosen[place], improved = plan, True
    return chosen if np.isfinite(regret[chosen].min(axis=0)).all() else []


def _least_worst(regret: Matrix, k: int, seconds: float | None) -> tuple[float, float, list[int]]:
    """Returns the least regret that ``k`` plans can cover all phones with, a bound, and the
    plans."""
    levels = np.unique(regret[np.isfinite(regret)])
    levels = levels[levels >= regret.min(axis=0).max() - CLOSE]
    low, high = 0, len(levels)  # below `low` none is proven to suffice; at `high` one does
    bound_at, cover = 0, list[int]()
    while low < high:
        middle = (low + high) // 2
        plans, least = _cover(regret <= levels[middle], seconds)
        if 0 < len(plans) <= k:
            high, cover = middle, plans
            continue
        if least > k:
            bound_at = middle + 1
        low = middle + 1
    if high == len(levels):
        raise PartitionError(_NONE.format(k=k))
    return float(levels[high]), float(levels[min(bound_at, high)]), cover


def _cover(able: NDArray[np.bool_], seconds: float | None) -> tuple[list[int], float]:
    """Returns the smallest cover found (empty: none), and a lower bound of the number of plans."""
    if not able.any(axis=0).all():
        return [], math.inf
    result = milp(
        np.ones(len(able)),
        integrality=np.ones(len(able), dtype=np.int8),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(able.T.astype(np.float64), 1, np.inf),
        options={"mip_rel_gap": 0.0, "time_limit": math.inf if seconds is None else seconds},
    )
    least = float(getattr(result, "mip_dual_bound", None) or 0.0)
    plans = [] if result.x is None else np.flatnonzero(result.x > 0.5).tolist()
    return plans, least - 1e-6
