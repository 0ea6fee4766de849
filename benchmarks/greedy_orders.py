"""Greedy orders of precision: rules that the front of latency against error should improve on.

greedy by error     from the fastest float plan, unit after unit to 8 bits, those of least own
                    error first, until a budget is spent: "A Practical Mixed Precision Algorithm
                    for Post-Training Quantization" (arXiv 2302.05397, used by AIMET) and MLMP
                    (T. Tan and G. Cao, IPSN 2021, doi 10.1145/3412382.3458272), which chooses
                    layers by their loss of accuracy on an NPU
greedy by error/ns  the same by error for each ns saved, the order of knapsacks (G. B. Dantzig,
                    "Discrete-Variable Extremum Problems", Oper. Res. 5, 1957); units that save no
                    time remain unchanged
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.partition.constraints import Budget
from nnapi_prof.partition.front import CLOSE, LIMITS, Noise, NoisePoint, fastest_point, noise_arrays
from nnapi_prof.partition.problem import Problem, check_runnable
from nnapi_prof.partition.search import Report, SearchLimits, Watch

MOST_PLANS = 32
"""Number of plans of one order, spread over it; each takes some hundredths of a second."""
STEPS_BACK = 8
"""Largest number of tries where a plan's noise exceeds the prediction for its precisions."""


class GreedyOrder(enum.Enum):
    """Order in which units are lowered to 8 bits."""

    BY_ERROR = "error"
    BY_ERROR_PER_NS = "error for each ns saved"


def greedy_orders(
    problem: Problem,
    noise: Noise,
    *,
    budgets: Sequence[float] = (),
    most: int = MOST_PLANS,
    limits: SearchLimits | None = None,
    report: Report | None = None,
) -> Mapping[GreedyOrder, tuple[NoisePoint, ...]]:
    """Returns the plans of both orders as more units are lowered, from the fastest float plan.

    ``noise`` is as for :func:`.front.front`. Long orders have about ``most`` plans, and those at
    which each of the ``budgets``, noise powers, is spent; :func:`.front.best_within` picks an
    order's answer. An order is empty where no plan in floats was found; limits and Ctrl-C end both
    with the plans so far.
    """
    check_runnable(problem)
    watch = Watch(limits or LIMITS, report)
    plans: dict[GreedyOrder, tuple[NoisePoint, ...]] = dict.fromkeys(GreedyOrder, ())
    arrays = noise_arrays(problem, noise)
    floats = np.broadcast_to(problem.arrays.format == 0, problem.unit_ns.shape)
    start = fastest_point(problem, arrays, floats, watch)
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


class _Greedy:
    """Both orders from one float plan."""

    def __init__(
        self,
        problem: Problem,
        noise: Sequence[NDArray[np.float64]],
        start: NoisePoint,
        watch: Watch,
    ) -> None:
        self._problem, self._noise, self._start, self._watch = problem, noise, start, watch
        self._target = np.zeros(problem.n, dtype=np.int64)
        for units, k in start.placements:
            self._target[list(units)] = k
        precision = np.array([target.precision.value for target in problem.targets])
        self._as_started = precision[None, :] == precision[self._target][:, None]
        self._int8 = problem.arrays.format != 0
        self._as_started &= ~self._int8
        able = problem.runs & self._int8
        powers = np.stack([np.where(able, array, np.inf) for array in noise]).min(axis=2)
        now = np.stack([array[np.arange(problem.n), self._target] for array in noise])
        self._more = powers - now
        """[outputs, n]: noise that a unit adds in 8 bits; inf where it cannot run so"""
        fastest = np.where(able, problem.unit_ns, np.inf).min(axis=1)
        here = problem.unit_ns[np.arange(problem.n), self._target]
        self._saved = np.where(np.isfinite(here) & np.isfinite(fastest), here - fastest, 0.0)

    def units(self, order: GreedyOrder) -> list[int]:
        """Returns the units in the order in which they are lowered."""
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
    ) -> tuple[NoisePoint, ...]:
        """Returns plans of an order, by the number of units lowered."""
        units = self.units(order)
        counts = np.unique(np.linspace(1, len(units), min(most, len(units))).round().astype(int))
        plans: dict[int, NoisePoint] = {0: self._start}
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

    def _plan(
        self, plans: dict[int, NoisePoint], units: list[int], count: int
    ) -> NoisePoint | None:
        """Returns the plan with the first ``count`` units lowered; None where no plan is found."""
        if count not in plans and not self._watch.is_over:
            allowed = self._as_started.copy()
            allowed[units[:count]] = self._int8
            plan = fastest_point(self._problem, self._noise, allowed, self._watch)
            if plan is not None:
                plans[count] = plan
        return plans.get(count)
