"""What a call may spend, and a watch over it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

SECONDS = 10.0
MEMORY_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one whole call: time, memory, and effort; and what is good enough.

    ``effort`` counts steps of compiled loops (a label settled, a unit moved), so that plans do not
    depend on how fast a machine is as long as ``seconds`` suffice; inf leaves it to the time.
    """

    seconds: float = SECONDS
    memory_bytes: int = MEMORY_BYTES
    effort: float = 2e8
    gap: float = 0.0
    """Relative: a plan that is proven to be this close to the optimum is good enough."""


Report = Callable[["Watch"], None]


@dataclass
class Watch:
    """How much of the limits is spent; shared by all steps of a call."""

    limits: Limits
    report: Report | None = None
    """Called every now and then with this watch: for a line of progress."""
    began: float = field(default_factory=time.monotonic)
    steps: float = 0.0
    interrupted: bool = False
    """By Ctrl-C: what there is then is the answer."""
    stage: str = ""
    """What is being done."""
    best_ns: float = float("inf")
    bound_ns: float = 0.0

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began

    @property
    def seconds_left(self) -> float:
        return max(0.0, self.limits.seconds - self.elapsed_s)

    @property
    def is_over(self) -> bool:
        """Whether time or effort is spent, or the user has had enough."""
        return (
            self.interrupted
            or self.steps >= self.limits.effort
            or self.elapsed_s >= self.limits.seconds
        )

    def spend(self, steps: float) -> None:
        """Notes steps of work, and tells how far it is."""
        self.steps += steps
        if self.report is not None:
            self.report(self)
