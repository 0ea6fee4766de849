"""Plans of precision by a simple rule, without the front: every unit that can be in one precision
is, the others are in floats.

The rule chooses precisions alone. Where units run in these is then solved for least latency as any
problem is, so that what it loses against the front it loses by its choice of precisions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.graph.plan import Precision
from nnapi_prof.partition.constraints import Budget
from nnapi_prof.partition.front import LIMITS, Noise, noise_arrays
from nnapi_prof.partition.problem import Problem, check_runnable
from nnapi_prof.partition.search.anytime import search
from nnapi_prof.partition.search.result import Plan, Report, SearchLimits, Watch

SECONDS = 2.0
"""Of one placement at most."""


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
    able = (runnable(problem) & of_it[None, :]).any(axis=1, keepdims=True)
    own = of_it.copy()
    if precision is not Precision.INT8:
        engines = {target.engine for target in targets if target.precision is precision}
        for k, target in enumerate(targets):
            own[k] |= target.precision is Precision.FLOAT32 and target.engine not in engines
    allowed = np.where(able, own[None, :], float_targets(problem)[None, :])
    watch = Watch(limits or LIMITS, report)
    return fastest_plan(problem, noise_arrays(problem, noise), allowed, watch)


def float_targets(problem: Problem) -> NDArray[np.bool_]:
    """[t]"""
    return np.asarray(problem.arrays.format == 0)


def runnable(problem: Problem) -> NDArray[np.bool_]:
    """[n, t]: where units run, by themselves or in a region that was measured whole."""
    runs = np.isfinite(problem.unit_ns)
    for (units, k), ns in problem.region_ns.items():
        if math.isfinite(ns):
            runs[list(units), k] = True
    return np.asarray(runs)


def fastest_plan(
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
