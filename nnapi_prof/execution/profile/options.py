"""The options of a profile, and its outcome."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nnapi_prof.costs.conditions import Conditions
from nnapi_prof.device.protocol.actions import Timing
from nnapi_prof.device.state import Gates
from nnapi_prof.execution.options import SPIN_NS, WARM_NS, cooldown_ms
from nnapi_prof.graph.plan import Plan, Preference

if TYPE_CHECKING:
    from nnapi_prof.costs.contention import Slowdowns
    from nnapi_prof.costs.model.region import CostModel
    from nnapi_prof.device.protocol.results import AgentInfo
    from nnapi_prof.partition import Report, Watch


MANY_RUNS = 200
SIMULATED_RUNS = 30
MOST_ROUNDS = 1000
UNIT_SHARE = 1 / 3
UNIT_S = 5.0
"""A unit alone has this share of the watchdog's time, and so many seconds at least: it compiles in
a part of the time that a whole model takes, and it is units that drivers hang on first."""
MOST_BESIDE_S = 60.0
"""Most seconds that both sides may be kept busy."""


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """The choice of what to measure, and how. ``accelerators`` None means all of them and
    "auto"."""

    warmup_min: int = 2
    warmup_max: int = 200
    warmup_ms: float = 100.0
    """Warming up ends when the runs' times are stable and the clock has risen as far as it will,
    not before :data:`WARM_NS`; times that stay unstable end it after this long."""
    rounds: int = 5
    """Turns that the alternatives of a region take: what disturbs one disturbs the others."""
    min_runs: int = 5
    max_runs: int | None = None
    """Of all rounds; None is :data:`MANY_RUNS`, or :data:`SIMULATED_RUNS` on a simulated phone."""
    budget_ms: float = 60.0
    """Recorded runs of one action take about this long, once there are ``min_runs``: short units
    run often, long ones a few times."""
    cooldown_s: float | None = None
    """How long a region's alternatives may wait for a hot device before rounds measured while it
    was throttled are repeated; 0 repeats none. None: as long as all waits together stay within
    :data:`~nnapi_prof.execution.profile.device_monitor.SHARE_OF_MEASURING`."""
    memory_mb: int | None = None
    """What one action's process may use; None leaves it to the agent."""
    timeout_s: float = 60.0
    """Watchdog over set-up, compilation and warm-up of an action, and over each of its rounds. A
    unit alone has :data:`UNIT_SHARE` of it."""
    fresh: bool = False
    """Measure what the store has already as well."""
    conditions: Conditions = field(default_factory=Conditions)
    threads_by_trial: bool = False
    """A trial decides the number of threads, in place of that of ``conditions``."""
    one_thread: bool = False
    """Segments of the CPU may have one thread, too: a trial showed that short calls are faster."""
    preferences: tuple[Preference, ...] = tuple(Preference)
    accelerators: tuple[str, ...] | None = None
    refine: bool = True
    """Measure the regions of the plan whole, and plan again, until the plan stands."""
    beside: bool = False
    """Measure how CPU and accelerators slow each other down, too."""
    beside_s: float = 0.0
    """And keep each pair busy for so long."""
    gates: Gates = Gates()
    """What the device must be like before something is measured, and how it is watched."""
    copies: bool = True
    """Plans count what it takes to copy their inputs and outputs from and to an app's buffers."""
    every_preference: bool = False
    """Measure every unit under every preference, even where a sample shows nothing to be had."""

    def timing(self, simulated: bool, unit: bool = False) -> Timing:
        """A simulated phone's time costs nothing, so that no budget ends the runs early there."""
        most = self.max_runs or (SIMULATED_RUNS if simulated else MANY_RUNS)
        least = most if simulated else min(self.min_runs, most)
        timeout_s = min(self.timeout_s, max(self.timeout_s * UNIT_SHARE, UNIT_S))
        return Timing(
            warmup_min=self.warmup_min,
            warmup_max=self.warmup_min if simulated else max(self.warmup_min, self.warmup_max),
            warmup_ns=round(self.warmup_ms * 1e6),
            warm_ns=min(WARM_NS, round(self.warmup_ms * 1e6)),
            spin_ns=min(SPIN_NS, round(self.warmup_ms * 1e6)),
            rounds=min(self.rounds, least),
            min_runs=least,
            max_runs=most,
            budget_ns=round(self.budget_ms * 1e6),
            cooldown_ms=cooldown_ms(self.cooldown_s, self.conditions.sustained_s),
            timeout_ms=max(1, round(1e3 * (timeout_s if unit else self.timeout_s))),
        )

    @property
    def memory_kb(self) -> int:
        """0: the agent's own limit."""
        return 0 if self.memory_mb is None else self.memory_mb << 10


QUIET_S = 2.0
"""Planning that takes no longer says nothing."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one phase is, in measurements or plans. ``label`` is what was measured last."""

    phase: str
    done: int
    total: int
    label: str
    later: int = 0
    """How many the phases after it are expected to need: an estimate, 0 where there is none."""


@dataclass(frozen=True)
class ProfileOutcome:
    """The outcome of a profile.

    Where the user interrupted it, ``costs`` and ``plan`` are those of the last round (None before
    there was one), and ``baselines`` are empty; what was measured until then is in the store.
    """

    fingerprint: str
    info: AgentInfo
    n_measured: int
    """Rows added that come from runs on the device."""
    n_failed: int
    """Of these, rows that say why there is no latency: the driver refused, crashed, hung."""
    n_refused: int
    """Rows added because a lowering refused."""
    n_reused: int
    """Measurements wanted that the store had before this profile; what it made itself is none."""
    rounds: int
    """Of measuring whole regions."""
    stable: bool
    """The last round had nothing new to measure: the plan rests on regions measured whole."""
    seconds: float
    n_rows: int = 0
    """Measurements that costs and plans rest on, known before or new."""
    n_regions: int = 0
    """Of these, regions measured whole because a plan had them or could have had."""
    n_exhaustive: int | None = None
    """Measurements of every convex region on every target; None where there are too many."""
    potential: float = 0.0
    """What further measurements may still save of the plan's latency at most: what it would be if
    every region that was not measured took the lower end of its interval."""
    spent_s: Mapping[str, float] = field(default_factory=dict)
    """Of these: ``load`` the model where that was put off, ``convert`` models and make requests,
    ``send`` them until the first action begins, ``measure`` (the agent works, the host waits),
    ``store`` results, ``plan``."""
    doubts: Mapping[str, int] = field(default_factory=dict)
    """:attr:`.Measurement.flags` of what was measured now, and of how many."""
    waited_s: float = 0.0
    """For a device that was too hot, of ``measure``."""
    stayed_hot: bool = False
    """It was waited for in vain, and then not again."""
    interrupted: bool = False
    costs: CostModel | None = None
    plan: Plan | None = None
    contention: Slowdowns | None = None
    """How CPU and accelerators slow each other down; None where it was not asked."""
    baselines: tuple[Plan, ...] = ()


ProgressCallback = Callable[[Progress], None]


def tell_planning(tell: Callable[[str, int, int, str], None], phase: str) -> Report:
    """Tells how far the partitioner is, once a second after the first two: the phase, the seconds
    that it took and those that it may take, and how good the best plan is at least."""
    began = told = time.monotonic()

    def report(watch: Watch) -> None:
        nonlocal told
        now = time.monotonic()
        if now - began < QUIET_S or now - told < 1.0:
            return
        told = now
        words = ""
        if 0 < watch.bound_ns <= watch.best_ns < math.inf:
            words = f"at most {watch.best_ns / watch.bound_ns - 1:.1%} from the optimum"
        done, total = int(watch.elapsed_s), math.ceil(watch.limits.seconds)
        tell(phase, min(done, total), total, words)

    return report
