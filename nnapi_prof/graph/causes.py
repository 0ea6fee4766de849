"""Reasons for a plan: facts with their numbers, and the only place where they become sentences.

Times are in ns, or values of another objective; targets are named by their keys.
"""

from __future__ import annotations

import enum
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

MANY = 3
"""Most reasons that are listed; the others are counted."""
MS = "ms"


class ReasonSource(enum.Enum):
    """Decision that keeps a unit off a target."""

    REFUSAL = "refusal"
    FAILURE = "failure"
    """The unit was tried, and crashed, failed or hung, rather than being refused."""
    COST_FUNCTION = "cost function"
    """A user's cost function excludes the unit; nothing refused it."""


class Reason(str):
    """Reason why a target does not run a unit, as tables show it, with its parts."""

    detail: str
    """The reason without the status, where that is "refused"."""
    source: ReasonSource

    @classmethod
    def of(cls, status: str, message: str, *, failed: bool) -> Reason:
        """Makes a reason from the status and message of a trial."""
        reason = cls(f"{status}: {message}" if message else status)
        reason.detail = message if message and not failed else str(reason)
        reason.source = ReasonSource.FAILURE if failed else ReasonSource.REFUSAL
        return reason

    @classmethod
    def kept_off(cls) -> Reason:
        """Makes the reason of a unit that a cost function excludes."""
        reason = cls("kept off by the cost function")
        reason.detail, reason.source = str(reason), ReasonSource.COST_FUNCTION
        return reason


def source_of(reason: str) -> ReasonSource:
    """Returns the source of a reason; a plain sentence is a converter's refusal."""
    return reason.source if isinstance(reason, Reason) else ReasonSource.REFUSAL


def detail(reason: str) -> str:
    """Returns a reason without its status, where that is only "refused"."""
    return reason.detail if isinstance(reason, Reason) else reason


class CauseKind(enum.Enum):
    """Kind of reason for a placement, or for a part of it."""

    FASTEST = "fastest"
    ONLY_TARGET = "only target"
    TOO_SMALL = "too small"
    STAYS_ON_CPU = "stays on the CPU"
    ON_HOST = "on the host"
    # Parts of the kinds above: why the segment is not on other targets.
    REFUSED = "refused"
    FAILED = "failed"
    KEPT_OFF = "kept off"
    KEPT_OFF_BY_COSTS = "kept off by the cost function"
    NOT_MEASURED_ON_IT = "not measured on it"
    NOT_MEASURED = "not measured"
    OUTWEIGHED = "outweighed"
    SLOWER = "slower"
    # Rules of baselines.
    BEST_SINGLE = "best single"
    SUPPORTED = "supported"
    NOT_SUPPORTED = "not supported"
    LISTED = "listed"
    NOT_LARGEST = "not largest"
    ALL_CPU = "all CPU"
    NOT_ON_CPU = "not on the CPU"
    GREEDY = "greedy"


class Fact(ABC):
    """Fact that is shown as a sentence and compares equal to it: files store only the sentence."""

    __slots__ = ()

    @abstractmethod
    def words(self, unit: str = MS) -> str:
        """Returns the sentence; ``unit`` is the unit of a million of the objective's values."""

    def __str__(self) -> str:
        return self.words()

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, Fact | str) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))


@dataclass(frozen=True, slots=True, eq=False)
class Cause(Fact):
    """Reason why a segment is on its target."""

    kind: CauseKind
    target: str = ""
    """Target that the cause is about: the segment's own, or one that it is not on."""
    here_ns: float = 0.0
    """Latency of the segment on its own target."""
    elsewhere: tuple[tuple[str, float], ...] = ()
    """Other targets and the segment's latency in ns on each, fastest first."""
    around_ns: float = 0.0
    """Invocation and transfer on the other target."""
    units: tuple[int, ...] = ()
    """Units that the cause is about, where these are not all of the segment."""
    places: tuple[str, ...] = ()
    """Accelerators that give ``reasons``."""
    reasons: tuple[str, ...] = ()
    """Reasons of targets or constraints, or labels of units, one for each unit."""
    because: tuple[Cause, ...] = ()
    """Causes that this one follows from, in the order in which they are shown."""
    unit: str = ""
    """Unit of a million of the numbers, where they are not latencies."""

    def words(self, unit: str = MS) -> str:
        return _cause_words(self, self.unit or unit)


def _cause_words(cause: Cause, unit: str) -> str:
    here, places = amount(cause.here_ns, unit), ", ".join(cause.places)
    elsewhere = ", ".join(f"{amount(ns, unit)} on {target}" for target, ns in cause.elsewhere)
    reasons = distinct(cause.reasons)
    parts = [_cause_words(each, unit) for each in cause.because]
    match cause.kind:
        case CauseKind.FASTEST:
            return f"fastest: {here} here, {elsewhere}"
        case CauseKind.SLOWER:
            return f"{here} here, {elsewhere}"
        case CauseKind.ONLY_TARGET:
            return "; ".join([f"only {cause.target} can run all of it: {here}", *parts])
        case CauseKind.TOO_SMALL:
            ((_, there_ns),) = cause.elsewhere
            return (
                f"too small to pay {amount(cause.around_ns, unit)} of invocation and transfer on "
                f"{cause.target}: {here} here, {amount(there_ns, unit)} there"
            )
        case CauseKind.STAYS_ON_CPU:
            return f"stays on the CPU: {'; '.join(parts)}"
        case CauseKind.ON_HOST:
            return f"no engine of the agent runs {reasons}: eager PyTorch on the host, estimated"
        case CauseKind.REFUSED | CauseKind.FAILED:
            if reasons.startswith(f"{places} "):
                return reasons  # they name the accelerator
            verb = "refuses" if cause.kind is CauseKind.REFUSED else "cannot run it"
            return f"{places} {verb}: {reasons}"
        case CauseKind.KEPT_OFF:
            return f"kept off {places}: {reasons}"
        case CauseKind.KEPT_OFF_BY_COSTS:
            return f"kept off by the cost function: {places}"
        case CauseKind.NOT_MEASURED_ON_IT:
            return f"{places} was not measured on it"
        case CauseKind.NOT_MEASURED:
            return f"{cause.target} was not measured"
        case CauseKind.OUTWEIGHED:
            return f"{len(cause.units)} more would not pay the hand-over"
        case CauseKind.BEST_SINGLE:
            return f"of all targets that run the whole model, {cause.target} is the fastest"
        case CauseKind.SUPPORTED:
            return f"{cause.target} supports it"
        case CauseKind.NOT_SUPPORTED:
            return "; ".join(parts) or f"{cause.target} does not run it"
        case CauseKind.LISTED:
            return "on the list of what stays off accelerators, or behind it"
        case CauseKind.NOT_LARGEST:
            return "not among the largest regions, which are all that this baseline offloads"
        case CauseKind.ALL_CPU:
            return "the rule of this baseline: everything on the CPU"
        case CauseKind.NOT_ON_CPU:
            return "; ".join(parts) or "the CPU does not run it"
        case CauseKind.GREEDY:
            return f"{cause.target} is the fastest for each unit alone, hand-over ignored"


@dataclass(frozen=True, slots=True, eq=False)
class ProvenNote(Fact):
    """Note on the proof of the best plan, and on how this plan differs from it."""

    is_optimal: bool
    least_ns: float
    bound_ns: float
    gap: float
    asked: str
    """Constraints on the plan, in the user's words; empty without any."""
    simulated: bool = False
    """True where the plan's latencies are simulated."""
    n_best: int = 0
    """Number of segments of the best plan, where this plan has fewer."""
    n_segments: int = 0
    """Number of segments of this plan; 0 where it is the best one."""
    more: float = 0.0
    """Additional latency of this plan, relative to the best one."""
    tolerance: float = 0.0
    """Relative difference of latencies that is only noise."""

    def words(self, unit: str = MS) -> str:
        text = self._proof(unit)
        if self.n_segments:
            text += (
                f"; it has {self.n_best} segments, this plan {self.n_segments}, for {self.more:.1%}"
                f" more latency: {self.tolerance:.1%} is noise"
            )
        return text + ("; these latencies are simulated" if self.simulated else "")

    def _proof(self, unit: str) -> str:
        if self.is_optimal:
            if self.asked:
                return f"optimal over all plans within the constraints ({self.asked})"
            return "optimal over all plans under these costs"
        which = "no plan at all"
        if self.asked:
            which = f"no plan within the constraints ({self.asked})"
        return (
            f"{which} is faster than {amount(self.bound_ns, unit)}; the best one found takes "
            f"{amount(self.least_ns, unit)}, at most {self.gap:.2%} more"
        )


@dataclass(frozen=True, slots=True, eq=False)
class CompileNote(Fact):
    """Note on the compile time of the plan's regions, under any objective."""

    ns: float
    limit_ns: float

    def words(self, unit: str = MS) -> str:
        return f"regions compile in {amount(self.ns)} together, of {amount(self.limit_ns)} allowed"


def amount(ns: float, unit: str = MS) -> str:
    """Formats a millionth of a number with three digits: ``1.23 ms``, ``0.0456 ms``, ``123 ms``."""
    value = ns / 1e6
    if value == 0:
        return f"0 {unit}"
    digits = max(0, 2 - math.floor(math.log10(value)))
    return f"{value:.{min(digits, 6)}f} {unit}"


def distinct(texts: Iterable[str]) -> str:
    """Joins the distinct texts; where there are more than :data:`MANY`, counts the rest."""
    unique = list(dict.fromkeys(texts))
    more = f" and {len(unique) - MANY} more" if len(unique) > MANY else ""
    return ", ".join(unique[:MANY]) + more
