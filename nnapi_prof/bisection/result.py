"""The outcome of a bisection, as values."""

from __future__ import annotations

from dataclasses import dataclass

from nnapi_prof.bisection.deviation import Deviation
from nnapi_prof.bisection.diagnosis import FaultKind, ValueFacts
from nnapi_prof.costs.conditions import Mode
from nnapi_prof.graph.plan import Target
from nnapi_prof.graph.source import Source

REUSED_RUNS, MANY_RUNS = 2, 16
"""Executions of a compilation that is used again: usually, and where nothing differed."""


@dataclass(frozen=True, slots=True)
class Way:
    """How executions reach the driver. A fault may show in some ways alone."""

    mode: Mode
    pointers: bool = False
    """Tensors are handed over as addresses instead of in shared memory."""
    delegate: bool = False
    """ExecuTorch's delegate runs the region on this host and hands over what it likes."""
    runs: int = REUSED_RUNS
    """Executions of a compilation in every second process."""

    @property
    def name(self) -> str:
        """Name of the way: ``burst, shared memory``."""
        memory = "addresses" if self.pointers else "shared memory"
        many = "" if self.runs == REUSED_RUNS else f", {self.runs} runs"
        return f"{self.mode.value}, {'ExecuTorch' if self.delegate else memory}{many}"


@dataclass(frozen=True, slots=True)
class WayCheck:
    """Whether a fault shows in one way."""

    way: Way
    differs: bool


@dataclass(frozen=True, slots=True)
class Cure:
    """A plan without the fault. Latencies are predicted, in ns, for one frame."""

    name: str
    """Where or how the units run instead, or how the operation is rewritten."""
    target: str | None
    """Key of the target that runs them, None where the plan stays."""
    before_ns: float | None = None
    after_ns: float | None = None
    code: str = ""
    """Of a rewrite: PyTorch, one line or several."""

    @property
    def costs_ns(self) -> float | None:
        """How much longer the plan takes with it; None where costs were not measured."""
        if self.before_ns is None or self.after_ns is None:
            return None
        return self.after_ns - self.before_ns


@dataclass(frozen=True)
class Culprit:
    """The smallest part of a model that differs: one unit, or several that differ together only."""

    units: tuple[int, ...]
    names: tuple[str, ...]
    """Names of the units in the graph."""
    label: str
    target: Target
    driver_version: str
    source: Source
    kind: FaultKind
    worst: Deviation
    """Of its values, with reference inputs."""
    final_error: float | None
    """Relative error of the model's outputs if nothing else were wrong; None where eager PyTorch
    cannot run the rest."""
    final_share: float | None
    """``final_error`` as a share of the whole model's error on the device."""
    facts: tuple[tuple[str, ValueFacts], ...] = ()
    """Name and description of each value that is off."""
    way: Way = Way(Mode.SYNC)
    """In which it was found."""
    ways: tuple[WayCheck, ...] = ()
    message: str | None = None
    """What the device said, where it does not run."""
    sample: int = 0
    """Number of the sample that shows it best."""
    cures: tuple[Cure, ...] = ()

    @property
    def only_in(self) -> tuple[Way, ...]:
        """The ways in which it shows, where it does not show in all that were tried."""
        showing = tuple(check.way for check in self.ways if check.differs)
        return showing if len(showing) < len(self.ways) else ()


@dataclass(frozen=True, slots=True)
class Unchecked:
    """A unit that a target does not execute, so that nothing is known of its results there."""

    unit: int
    label: str
    target: str
    """Key of the target."""
    reason: str


@dataclass(frozen=True)
class Bisection:
    """Outcome of :func:`nnapi_prof.bisect`."""

    model: str
    device: str
    fingerprint: str
    simulated: bool
    targets: tuple[str, ...]
    """Keys of the targets that were searched."""
    n_units: int
    n_samples: int
    budget: float | None
    """As asked for; None: the usual one of each precision."""
    culprits: tuple[Culprit, ...]
    unchecked: tuple[Unchecked, ...]
    """Units that targets did not execute; whatever they compute is not known."""
    runs: int
    """Requests to the device until the search ended."""
    executions: int
    """Executions on the device, every sample and repeat counted."""
    notes: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Nothing differs."""
        return not self.culprits
