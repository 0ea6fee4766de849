"""What a profile measures, how often and under which conditions."""

from __future__ import annotations

from dataclasses import dataclass, field

from nnapi_prof.costs.conditions import Conditions
from nnapi_prof.device.action import Timing
from nnapi_prof.graph.plan import Preference

MANY_RUNS = 200
SIMULATED_RUNS = 30


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """What and how to measure. ``accelerators`` None means all of them and "auto"."""

    warmup_min: int = 2
    warmup_max: int = 200
    warmup_ms: float = 30.0
    """Warming up ends when the runs' times are stable, or after this long: a governor raises the
    clock within about 20 ms."""
    rounds: int = 5
    """Turns that the alternatives of a region take: what disturbs one disturbs the others."""
    min_runs: int = 5
    max_runs: int | None = None
    """Of all rounds; None is :data:`MANY_RUNS`, or :data:`SIMULATED_RUNS` on a simulated phone."""
    budget_ms: float = 60.0
    """Recorded runs of one action take about this long, once there are ``min_runs``: short units
    run often, long ones a few times."""
    cooldown_s: float = 60.0
    """How long a region's alternatives may wait for a hot device before rounds measured while it
    was throttled are repeated; 0 repeats none."""
    memory_mb: int | None = None
    """What one action's process may use; None leaves it to the agent."""
    timeout_s: float = 60.0
    """Watchdog over set-up, compilation and warm-up of an action, and over each of its rounds."""
    fresh: bool = False
    """Measure what the store has already as well."""
    conditions: Conditions = field(default_factory=Conditions)
    preferences: tuple[Preference, ...] = tuple(Preference)
    accelerators: tuple[str, ...] | None = None
    refine: bool = True
    """Measure the regions of the plan whole, and plan again, until the plan stands."""
    every_preference: bool = False
    """Measure every unit under every preference, even where a sample shows nothing to be had."""

    def timing(self, simulated: bool) -> Timing:
        """A simulated phone's time costs nothing, so that no budget ends the runs early there."""
        most = self.max_runs or (SIMULATED_RUNS if simulated else MANY_RUNS)
        least = most if simulated else min(self.min_runs, most)
        return Timing(
            warmup_min=self.warmup_min,
            warmup_max=self.warmup_min if simulated else max(self.warmup_min, self.warmup_max),
            warmup_ns=round(self.warmup_ms * 1e6),
            rounds=min(self.rounds, least),
            min_runs=least,
            max_runs=most,
            budget_ns=round(self.budget_ms * 1e6),
            cooldown_ms=round(self.cooldown_s * 1e3),
            timeout_ms=max(1, round(self.timeout_s * 1e3)),
        )

    @property
    def memory_kb(self) -> int:
        """0: the agent's own limit."""
        return 0 if self.memory_mb is None else self.memory_mb << 10
