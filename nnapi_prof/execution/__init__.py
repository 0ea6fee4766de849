"""Run actions on a device: profile a model's regions, run, verify and compare plans.

This module has the options of a run and of one action; the command line has the same defaults.
"""

from __future__ import annotations

import enum
import itertools
from dataclasses import dataclass, field, replace

from nnapi_prof.costs import Conditions
from nnapi_prof.device.protocol.actions import MAX_RUNS, Timing
from nnapi_prof.options import option, validate

LEAST_SECONDS, MOST_SECONDS = 0.1, 86_400
"""Range of the ``seconds`` options, which limit planning and other searches."""
MOST_WAIT_S = 3600
"""Longest wait for a device that is too hot, each time."""
MOST_MEMORY_MB = (1 << 22) - 1
USUAL_COOLDOWN_S = 60.0
"""Default of the longest wait for a hot device."""
WARM_NS = 50_000_000
"""Shortest busy time of a warm-up: governors take up to about that long to raise a clock."""
SPIN_NS = 20_000_000
"""Shortest busy time before each round: the clock falls again while others take their turns."""


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
    """Returns the longest wait of a group for a hot device: 0 for a device that is kept busy, which
    is measured as hot as it is."""
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
    """Options of an action, without its timing."""

    conditions: Conditions
    memory_kb: int = 0
    group: int = 0
    untimed: bool = False
    """Run for the outputs only."""
    corun: bool = False
    """Run the segments alone and then all at once, each with its own inputs."""
    copies: bool = True
    """Runs go from the caller's buffers to the caller's buffers."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of running a bundle's plans: ``runs`` recorded runs of each plan, spread over
    ``repeats`` processes."""

    runs: int = field(
        default=30, metadata=option("Number of recorded runs of each plan.", 1, MAX_RUNS)
    )
    baselines: bool = True
    """Also time the baselines."""
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
    """Cores to run on; None: those that the bundle was planned for."""
    repeats: int = 3
    """Times that all plans run in new processes, each for its share of the runs; one on a simulated
    phone, which repeats itself exactly."""
    rounds: int = 5
    """Largest number of rounds of a process; one on a simulated phone, which does not drift."""
    warmup_min: int = 2
    warmup_max: int = 50
    warmup_ms: int = 200
    """Longest warm-up of each process of a plan."""
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
    """Seed of random inputs; None: the model's bundled inputs, else always the same ones."""

    def __post_init__(self) -> None:
        validate(self)

    def under(self, conditions: Conditions) -> RunOptions:
        """Returns these options under the conditions of a bundle, but on the cores asked for."""
        return replace(self, conditions=replace(conditions, cpus=self.cpus or conditions.cpus))

    def timings(self, simulated: bool) -> list[Timing]:
        """Returns the timing of each repeat."""
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
"""Options of running plans in ``nnapi-prof go``: in one process each, for about ``budget_ms`` and
``runs`` runs at most."""
