"""Run actions on a device: profile a model's regions, run, verify and compare plans.

Here are the options of a run, and of one action. The command line's defaults are these, too.
"""

from __future__ import annotations

import enum
import itertools
from dataclasses import dataclass, field, replace

from nnapi_prof.costs import Conditions
from nnapi_prof.device.protocol.actions import MAX_RUNS, Timing
from nnapi_prof.options import option, validate

LEAST_SECONDS, MOST_SECONDS = 0.1, 86_400
"""Of planning, and of what looks for something else."""
MOST_WAIT_S = 3600
"""For a device that is too hot."""
MOST_MEMORY_MB = (1 << 22) - 1
USUAL_COOLDOWN_S = 60.0
"""For a hot device, unless the user says how long."""
WARM_NS = 50_000_000
"""Busy time of a warm-up at least: governors take up to about that long to raise a clock."""
SPIN_NS = 20_000_000
"""The same of each round: the clock falls again while others take their turns."""


COOLDOWN = option(
    "Longest wait for a phone that is too hot, each time; measurements made while it was hot are"
    " repeated. 0 disables this. Default: 60; profile waits for a tenth of its measuring time at"
    " most, all waits together.",
    0,
    MOST_WAIT_S,
)
MEMORY = option(
    "Memory limit of one measurement's process. Default: three quarters of the available memory.",
    1,
    MOST_MEMORY_MB,
)


def cooldown_ms(cooldown_s: float | None, sustained_s: int) -> int:
    """How long a group may wait for a hot device. A device that is kept busy is measured as hot as
    it is."""
    return (
        0 if sustained_s else round(1e3 * (USUAL_COOLDOWN_S if cooldown_s is None else cooldown_s))
    )


class Boundary(enum.StrEnum):
    """The place where a plan's latency begins and ends."""

    APP = "app"
    """The caller's buffers, as in an app: inputs and outputs are copied where a driver maps
    memory."""
    MODEL = "model"
    """The memory that the plan's segments read and write."""


@dataclass(frozen=True, slots=True)
class ActionOptions:
    """How an action runs, beside its timing."""

    conditions: Conditions
    memory_kb: int = 0
    group: int = 0
    untimed: bool = False
    """Run for the outputs only."""
    corun: bool = False
    """Alone and then all at once, each with inputs of its own."""
    copies: bool = True
    """Runs go from the caller's buffers to the caller's buffers."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a bundle's plans run, and how often: ``runs`` recorded runs in all, spread over
    ``repeats`` processes."""

    runs: int = field(
        default=30, metadata=option("Number of recorded runs of each plan.", 1, MAX_RUNS)
    )
    baselines: bool = True
    """Times the baselines, too."""
    boundary: str = field(
        default=Boundary.APP,
        metadata=option(
            "Latency: app: from an app's buffers to its buffers, copies included; model: without"
            " them.",
            choices=Boundary,
        ),
    )
    tolerance: float | None = field(
        default=None,
        metadata=option(
            "Largest allowed difference of an output, relative to its largest value. Default: 1e-4,"
            " with float16 or relaxed precision 2e-2; integers must be equal.",
            0,
        ),
    )
    cpus: str | None = None
    """Cores to keep to; None: those that the bundle was planned for."""
    repeats: int = 3
    """Times that all plans run in new processes, each for its share of the runs; one on a simulated
    phone, which repeats itself exactly."""
    rounds: int = 5
    """Of one process, at most; one on a simulated phone, which does not drift."""
    warmup_min: int = 2
    warmup_max: int = 50
    warmup_ms: int = 200
    """Of each process of a plan, at most."""
    budget_ms: int = 10_000
    """Per plan, over all repeats: a slow plan stops early, after at least two runs a round."""
    cooldown_s: float | None = field(default=None, metadata=COOLDOWN)
    timeout_s: int = 120
    conditions: Conditions = Conditions()
    memory_mb: int | None = field(default=None, metadata=MEMORY)
    frames: int = field(
        default=0,
        metadata=option(
            "Also run this number of frames, several at once, in each way that the bundle has.",
            0,
            MAX_RUNS,
        ),
    )
    seed: int | None = None
    """Of random inputs; None: the model's bundled inputs, else always the same."""

    def __post_init__(self) -> None:
        validate(self)

    def under(self, conditions: Conditions) -> RunOptions:
        """The same under the conditions that a bundle was planned for, but on the cores that were
        asked for."""
        return replace(self, conditions=replace(conditions, cpus=self.cpus or conditions.cpus))

    def timings(self, simulated: bool) -> list[Timing]:
        """One of each repeat."""
        repeats = 1 if simulated else max(1, min(self.repeats, self.runs))
        ends = [self.runs * n // repeats for n in range(repeats + 1)]
        return [
            self._timing(simulated, end - begin, repeats) for begin, end in itertools.pairwise(ends)
        ]

    def _timing(self, simulated: bool, runs: int, repeats: int) -> Timing:
        rounds = 1 if simulated else min(self.rounds, runs)
        return Timing(
            warmup_min=self.warmup_min,
            warmup_max=self.warmup_min if simulated else self.warmup_max,
            warmup_ns=self.warmup_ms * 1_000_000,
            warm_ns=WARM_NS,
            spin_ns=SPIN_NS,
            rounds=rounds,
            min_runs=runs if simulated else min(2 * rounds, runs),
            max_runs=runs,
            budget_ns=self.budget_ms * 1_000_000 // repeats,
            cooldown_ms=cooldown_ms(self.cooldown_s, self.conditions.sustained_s),
            timeout_ms=self.timeout_s * 1000,
        )

    def action(self, group: int = 0) -> ActionOptions:
        copies = self.boundary == Boundary.APP
        return ActionOptions(self.conditions, (self.memory_mb or 0) << 10, group, copies=copies)


QUICK = RunOptions(runs=20, repeats=1, warmup_ms=60, budget_ms=600)
"""How plans run in ``nnapi-prof go``: in one process each, for about this long, and ``runs`` times
at most."""
