"""What planning finds: the plan, its baselines, the fastest plan of all, and what lies between."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from nnapi_prof.api.start_up import StartUp
from nnapi_prof.graph.plan import Plan
from nnapi_prof.partition import CurvePoint

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
    start_ups: Mapping[int, StartUp] = field(default_factory=dict)
    """Number of segments -> what the plan of that point of the curve takes before it runs at its
    pace."""

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
