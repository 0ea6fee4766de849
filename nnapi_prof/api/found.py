"""What planning finds: the plan, its baselines, the fastest plan of all, and what lies between."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

from nnapi_prof.errors import UsageError
from nnapi_prof.graph.plan import Plan
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.partition import Costs, CurvePoint, make_problem
from nnapi_prof.partition.compiling import CompileCosts, CompileTimes

INTERRUPTED = "planning was interrupted: the best plan until then"


@dataclass(frozen=True)
class Found:
    """Plans of one model under some costs."""

    plan: Plan
    """What was asked for: :attr:`default`, or :attr:`best`."""
    baselines: tuple[Plan, ...]
    default: Plan
    """The fewest segments within noise of the best plan."""
    best: Plan
    """Of least latency, whatever its segments."""
    curve: tuple[CurvePoint, ...] = ()
    """The least latency for each number of segments; empty from HiGHS."""
    compile_ns: tuple[float, float] | None = None
    """What compiling takes for ``default`` and ``best``; None where they have as many segments, or
    nothing of it is known."""

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plan, then its baselines."""
        return (self.plan, *self.baselines)

    def each(self, changed: Callable[[Plan], Plan]) -> Found:
        """With every plan changed."""
        return replace(
            self,
            plan=changed(self.plan),
            baselines=tuple(map(changed, self.baselines)),
            default=changed(self.default),
            best=changed(self.best),
        )


def compile_times(
    graph: UnitGraph, costs: Costs, default: Plan, best: Plan
) -> tuple[float, float] | None:
    """:attr:`Found.compile_ns`."""
    if len(default.segments) == len(best.segments) or not hasattr(costs, "compile_overhead"):
        return None
    problem = make_problem(graph, costs)
    try:
        budget = CompileTimes.read(problem, cast("CompileCosts", costs)).budget(math.inf)
    except UsageError:  # adjusted costs over others that tell no compile times
        return None
    few, many = (
        budget.of([(s.units, problem.targets.index(s.target)) for s in plan.segments])
        for plan in (default, best)
    )
    return (few, many) if max(few, many) > 0 else None
