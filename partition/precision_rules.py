"""What one would do about precision without the front: rules, each with its best placement.

uniform             every unit that can be in one precision is; the others in floats
greedy by error     from the fastest float plan, unit after unit to 8 bits, those first whose own
                    error is least, until a budget is spent: "A Practical Mixed Precision Algorithm
                    for Post-Training Quantization" (arXiv 2302.05397, what AIMET does) and MLMP
                    (T. Tan and G. Cao, IPSN 2021, doi 10.1145/3412382.3458272), which chooses
                    layers by what they cost in accuracy on an NPU
greedy by error/ns  the same by error for each ns that the unit takes less, the order of knapsacks
                    (G. B. Dantzig, "Discrete-Variable Extremum Problems", Oper. Res. 5, 1957);
                    units that take no less stay as they are

The rules choose precisions alone. Where units run in these is then solved for least latency as any
problem is, so that what a rule loses against the front it loses by its choice of precisions.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.graph.plan import Precision
from nnapi_prof.partition.constraints import Budget
from nnapi_prof.partition.front import LIMITS, Noise, noise_arrays
from nnapi_prof.partition.problem import Problem, check_runnable
from nnapi_prof.partition.search.anytime import search
from nnapi_prof.partition.search.bicriteria import CLOSE
from nnapi_prof.partition.search.result import Plan, Report, SearchLimits, Watch

MOST_PLANS = 32
"""Of one order, spread over it; each takes some hundredths of a second."""
SECONDS = 2.0
"""Of one placement at most."""
STEPS_BACK = 8
"""Tried at most where a plan's noise is above what its precisions promised."""


class GreedyOrder(enum.Enum):
    """By what units are lowered to 8 bits."""

    BY_ERROR = "error"
    BY_ERROR_PER_NS = "error for each ns saved"


@dataclass(frozen=True, slots=True)
class RulePlan:
    """A plan whose precisions a rule chose."""

    placements: Plan
    ns: float
    noise: float
    """Power; of several outputs the largest."""
    n_int8: int
    """Units in 8 bits"""

    @property
    def error(self) -> float:
        """The root of the noise."""
        return math.sqrt(self.noise)


def uniform(
    problem: Problem,
    precision: Precision,
    noise: Noise,
    *,
    limits: SearchLimits | None = None,
    report: Report | None = None,
) -> RulePlan | None:
    """The fastest plan in which every unit that can be in a precision is, the others in floats.

    Engines without targets in that precision of theirs take part in float32, as the CPU does where
    accelerators relax. None where no plan was found.
    """
    check_runnable(problem)
    targets = problem.targets
    of_it = np.array([target.precision is precision for target in targets])
    able = (_runs(problem) & of_it[None, :]).any(axis=1, keepdims=True)
    own = of_it.copy()
    if precision is not Precision.INT8:
        engines = {target.engine for target in targets if target.precision is precision}
        for k, target in enumerate(targets):
            own[k] |= target.precision is Precision.FLOAT32 and target.engine not in engines
    allowed = np.where(able, own[None, :], _is_float(problem)[None, :])
    watch = Watch(limits or LIMITS, report)
    return _placed(problem, noise_arrays(problem, noise), allowed, watch)


def greedy_orders(
    problem: Problem,
    noise: Noise,
    *,
    budgets: Sequence[float] = (),
    most: int = MOST_PLANS,
    limits: SearchLimits | None = None,
    report: Report | None = None,
) -> Mapping[GreedyOrder, tuple[RulePlan, ...]]:
    """The plans of both orders as more and more units are lowered, from the fastest float plan on.

    ``noise`` is as :func:`.front.front` takes it. Of long orders there are about ``most`` plans,
    and those at which each of the ``budgets``, noise powers, is spent; :func:`.front.best_within`
    says which is an order's answer. An order is empty where no plan in floats was found; limits and
    Ctrl-C end both with what there is.
    """
    check_runnable(problem)
    watch = Watch(limits or LIMITS, report)
    plans: dict[GreedyOrder, tuple[RulePlan, ...]] = dict.fromkeys(GreedyOrder, ())
    arrays = noise_arrays(problem, noise)
    floats = _is_float(problem)
    start = _placed(problem, arrays, np.broadcast_to(floats, problem.unit_ns.shape), watch)
    if start is None:
        return plans
    run = _Greedy(problem, arrays, start, watch)
    for order in GreedyOrder:
        try:
            plans[order] = run.plans(order, budgets, most)
        except KeyboardInterrupt:
            watch.interrupted = True
            break
    return plans


def _is_float(problem: Problem) -> NDArray[np.bool_]:
    """[t]"""
    return np.asarray(problem.arrays.format == 0)


def _runs(problem: Problem) -> NDArray[np.bool_]:
    """[n, t]: where units run, by themselves or in a region that was measured whole."""
    runs = np.isfinite(problem.unit_ns)
    for (units, k), ns in problem.region_ns.items():
        if math.isfinite(ns):
            runs[list(units), k] = True
    return np.asarray(runs)


def _placed(
    problem: Problem,
    noise: Sequence[NDArray[np.float64]],
    allowed: NDArray[np.bool_],
    watch: Watch,
) -> RulePlan | None:
    """The fastest plan of units on the targets that are allowed, [n, t]."""
    unknown = np.any([np.isinf(array) for array in noise], axis=0)
    own = watch.part(min(1.0, SECONDS / max(watch.seconds_left, 1e-9)))
    result = search(problem.without(~allowed | unknown), own)
    watch.absorb(own)
    if result is None:
        return None
    power = max(Budget.error(array).of(result.placements) for array in noise)
    formats = problem.arrays.format
    n_int8 = sum(len(units) for units, k in result.placements if formats[k])
    return RulePlan(result.placements, result.ns, power, n_int8)


class _Greedy:
    """Both orders from one float plan."""

    def __init__(
        self,
        problem: Problem,
        noise: Sequence[NDArray[np.float64]],
        start: RulePlan,
        watch: Watch,
    ) -> None:
        self._problem, self._noise, self._start, self._watch = problem, noise, start, watch
        self._target = np.zeros(problem.n, dtype=np.int64)
        for units, k in start.placements:
            self._target[list(units)] = k
        precision = np.array([target.precision.value for target in problem.targets])
        self._as_started = precision[None, :] == precision[self._target][:, None]
        self._as_started &= _is_float(problem)[None, :]
        self._int8 = ~_is_float(problem)
        able = _runs(problem) & self._int8[None, :]
        powers = np.stack([np.where(able, array, np.inf) for array in noise]).min(axis=2)
        now = np.stack([array[np.arange(problem.n), self._target] for array in noise])
        self._more = powers - now
        """[outputs, n]: noise that a unit adds in 8 bits; inf where it cannot be"""
        fastest = np.where(able, problem.unit_ns, np.inf).min(axis=1)
        here = problem.unit_ns[np.arange(problem.n), self._target]
        self._saved = np.where(np.isfinite(here) & np.isfinite(fastest), here - fastest, 0.0)

    def units(self, order: GreedyOrder) -> list[int]:
        """The units in the order in which they are lowered."""
        more = np.maximum(self._more.max(axis=0), 0.0)
        if order is GreedyOrder.BY_ERROR:
            able = np.isfinite(more)
            key = more
        else:
            able = np.isfinite(more) & (self._saved > 0)
            key = np.divide(more, self._saved, out=np.full_like(more, np.inf), where=able)
        return [int(u) for u in np.argsort(key, kind="stable") if able[u]]

    def plans(
        self, order: GreedyOrder, budgets: Sequence[float], most: int
    ) -> tuple[RulePlan, ...]:
        """Plans of an order by the number of units lowered."""
        units = self.units(order)
        counts = np.unique(np.linspace(1, len(units), min(most, len(units))).round().astype(int))
        plans: dict[int, RulePlan] = {0: self._start}
        steps = np.cumsum(self._more[:, units], axis=1) if units else np.zeros((1, 0))
        begin = np.array([Budget.error(a).of(self._start.placements) for a in self._noise])
        powers = (begin[:, None] + steps).max(axis=0) if units else np.zeros(0)
        for budget in budgets:
            count = int(np.searchsorted(powers, budget * (1 + CLOSE), side="right"))
            for back in range(STEPS_BACK):
                plan = self._plan(plans, units, count - back) if count >= back else None
                if plan is None or plan.noise <= budget * (1 + CLOSE):
                    break
        for count in counts.tolist() if units else []:
            if self._watch.is_over:
                break
            self._plan(plans, units, count)
        return tuple(plans[count] for count in sorted(plans))

    def _plan(self, plans: dict[int, RulePlan], units: list[int], count: int) -> RulePlan | None:
        """With the first so many units lowered; None where no plan is found."""
        if count not in plans and not self._watch.is_over:
            allowed = self._as_started.copy()
            allowed[units[:count]] = self._int8
            plan = _placed(self._problem, self._noise, allowed, self._watch)
            if plan is not None:
                plans[count] = plan
        return plans.get(count)
