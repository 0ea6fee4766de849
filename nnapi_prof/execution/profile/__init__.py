"""Choose what is worth measuring of a model on a device, and measure it into the cost table.

This module has the options of a profile, its progress and its outcome.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nnapi_prof.costs import Conditions
from nnapi_prof.device.protocol.actions import MAX_RUNS, Timing
from nnapi_prof.device.state import Gates
from nnapi_prof.execution import COOLDOWN, MEMORY, SPIN_NS, WARM_NS, cooldown_ms
from nnapi_prof.graph.plan import Plan, Preference
from nnapi_prof.options import names, option, validate

if TYPE_CHECKING:
    from nnapi_prof.costs.contention import Slowdowns
    from nnapi_prof.costs.model import CostModel
    from nnapi_prof.device.protocol import AgentInfo
    from nnapi_prof.partition import Report, Watch


MANY_RUNS = 200
MIN_RUNS = 5
MIN_WARMUP = 2
SIMULATED_RUNS = 30
MOST_ROUNDS = 1000
UNIT_SHARE = 1 / 3
UNIT_S = 5.0
"""Share of ``timeout_s`` that a single unit has, and its least number of seconds: a unit compiles
faster than a whole model, and drivers hang on units first."""
MOST_CORUN_S = 60.0
"""Largest number of seconds that both sides may be kept busy."""


@dataclass(frozen=True, kw_only=True)
class MeasureOptions:
    """Options of what to measure of a model, and how often."""

    fresh: bool = field(
        default=False, metadata=option("Measure again what is already in the cost table.")
    )
    accelerators: str | Sequence[str] | None = field(
        default=None,
        metadata=option(
            "Measure only this NNAPI accelerator (`auto`: NNAPI's own choice); repeatable."
            " Default: all.",
            flag="--accelerator",
            metavar="NAME",
        ),
    )
    preferences: str | Sequence[str] | None = field(
        default=None,
        metadata=option(
            "Measure only this PreferenceCode; repeatable. Default: all three.",
            choices=[each.short for each in Preference],
            flag="--preference",
        ),
    )
    every_preference: bool = field(
        default=False,
        metadata=option(
            "Measure every unit under every preference. Default: a sample under all, and the rest"
            " only if the sample shows that a preference is faster."
        ),
    )
    contention: bool = field(
        default=False,
        metadata=option(
            "Also measure how CPU and accelerators slow each other down, with some units of the"
            " model, separately and side by side."
        ),
    )
    contention_s: float = field(
        default=0.0,
        metadata=option(
            "Like --contention, and also keep both sides busy with one unit for this long, to"
            " measure how clocks fall.",
            0,
            MOST_CORUN_S,
        ),
    )
    refine: bool = field(
        default=True,
        metadata=option(
            "Measure the regions of the plan whole and plan again, until the plan no longer"
            " changes."
        ),
    )
    runs: int | None = field(
        default=None,
        metadata=option(
            f"Largest number of recorded runs of one region. Default: {MANY_RUNS}, on a simulated"
            f" phone {SIMULATED_RUNS}.",
            1,
            MAX_RUNS,
        ),
    )
    rounds: int = field(
        default=5,
        metadata=option(
            "Number of rounds in which a region's alternatives take turns.", 1, MOST_ROUNDS
        ),
    )
    budget_ms: float = field(
        default=60.0,
        metadata=option(
            f"Time limit for the recorded runs of one region (at least {MIN_RUNS} are made).", 0
        ),
    )
    warmup_ms: float = field(
        default=100.0,
        metadata=option(
            "Time limit for warm-up runs, which end when their times are stable (at least"
            f" {MIN_WARMUP} are made).",
            0,
        ),
    )
    cooldown_s: float | None = field(default=None, metadata=COOLDOWN)
    memory_mb: int | None = field(default=None, metadata=MEMORY)
    timeout_s: float = field(
        default=60.0,
        metadata=option(
            "Time limit for a region's compilation and warm-up, and for each of its rounds; a third"
            " for a unit.",
            0.001,
        ),
    )

    def __post_init__(self) -> None:
        validate(self)

    @property
    def preference_codes(self) -> tuple[Preference, ...]:
        """The preferences to measure under."""
        chosen = names("preferences", self.preferences or [each.short for each in Preference])
        return tuple(each for each in Preference if each.short in chosen)


@dataclass(frozen=True, kw_only=True)
class ProfileOptions(MeasureOptions):
    """The options of a profile, with those that :func:`nnapi_prof.profile` takes separately."""

    warmup_min: int = MIN_WARMUP
    warmup_max: int = 200
    min_runs: int = MIN_RUNS
    conditions: Conditions = field(default_factory=Conditions)
    threads_by_trial: bool = False
    """A trial decides the number of threads, instead of ``conditions``."""
    one_thread: bool = False
    """Segments on the CPU may also have one thread: a trial showed that short calls are faster."""
    gates: Gates = Gates()
    """Conditions that the device must meet before measurements, and the interval of checks."""
    copies: bool = True
    """Plans include the time to copy their inputs and outputs from and to an app's buffers."""

    def timing(self, simulated: bool, unit: bool = False) -> Timing:
        """Returns the timing of a region or a ``unit``; no budget ends a simulated phone's runs
        early."""
        most = self.runs or (SIMULATED_RUNS if simulated else MANY_RUNS)
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
        """Memory limit in kB; 0: the agent's own limit."""
        return 0 if self.memory_mb is None else self.memory_mb << 10


QUIET_S = 2.0
"""Seconds of planning before its progress is reported."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of one phase, in measurements or plans; ``label`` is the last one's."""

    phase: str
    done: int
    total: int
    label: str
    later: int = 0
    """Estimated number in the phases after it; 0 where there is no estimate."""


@dataclass(frozen=True)
class ProfileOutcome:
    """The outcome of a profile.

    Where the user interrupted it, ``costs`` and ``plan`` are those of the last round (None before
    there was one), and ``baselines`` are empty; all measurements so far are in the store.
    """

    fingerprint: str
    info: AgentInfo
    n_measured: int
    """Rows added that come from runs on the device."""
    n_failed: int
    """Number of these without a latency: the driver refused, crashed or hung."""
    n_refused: int
    """Rows added because a lowering refused."""
    n_reused: int
    """Required measurements that the store had before this profile."""
    rounds: int
    """Number of rounds of measuring whole regions."""
    stable: bool
    """Whether the last round measured nothing new: the plan rests on regions measured whole."""
    seconds: float
    n_rows: int = 0
    """Measurements that costs and plans rest on, known before or new."""
    n_regions: int = 0
    """Regions measured whole because a plan had them or could have had them."""
    n_exhaustive: int | None = None
    """Number of measurements of all convex regions on all targets; None where it is too large."""
    potential: float = 0.0
    """Largest share of the plan's latency that further measurements may still save: the saving if
    every unmeasured region took the lower end of its interval."""
    spent_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds by purpose: ``load`` the model where that was put off, ``convert`` models and make
    requests, ``send`` them until the first action begins, ``measure`` (the agent works, the host
    waits), ``store`` results, ``plan``."""
    doubts: Mapping[str, int] = field(default_factory=dict)
    """Number of new measurements with each of :attr:`.Measurement.flags`."""
    waited_s: float = 0.0
    """Seconds of waiting for a device that was too hot, those of ``measure`` included."""
    lost_s: float = 0.0
    """Seconds of ``measure`` spent waiting for drivers that died or hung."""
    simulated_s: float = 0.0
    """Seconds of measuring by the clock of a simulated phone, without the waits."""
    stayed_hot: bool = False
    """A wait for the device to cool down was in vain, and there was no further one."""
    interrupted: bool = False
    costs: CostModel | None = None
    plan: Plan | None = None
    contention: Slowdowns | None = None
    """Slow-downs of CPU and accelerators by each other; None where they were not measured."""
    baselines: tuple[Plan, ...] = ()


ProgressCallback = Callable[[Progress], None]


def tell_planning(tell: Callable[[str, int, int, str], None], phase: str) -> Report:
    """Returns a callback that reports a partitioner's progress, once a second after the first two:
    phase, seconds so far and allowed, and the largest distance of the best plan from the
    optimum."""
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
