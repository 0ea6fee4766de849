"""Why a plan is as it is: facts with their numbers, and the one place where they become sentences.

Times are ns, or of what is made least in their place; targets are named by their keys.
"""

from __future__ import annotations

import enum
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

MANY = 3
"""Of more reasons than this, the rest is counted."""
MS = "ms"


class ReasonSource(enum.Enum):
    """The decision that keeps a unit off a target."""

    REFUSAL = "refusal"
    FAILURE = "failure"
    """It was tried and crashed, failed or hung, rather than being refused."""
    COST_FUNCTION = "cost function"
    """Of a user's own costs; nothing refused it."""


class Reason(str):
    """Why a target does not run a unit, as tables show it, with what it is made of."""

    detail: str
    """Without the word that says how it ended, where that is "refused"."""
    source: ReasonSource

    @classmethod
    def of(cls, status: str, message: str, *, failed: bool) -> Reason:
        """A trial's status and message."""
        reason = cls(f"{status}: {message}" if message else status)
        reason.detail = message if message and not failed else str(reason)
        reason.source = ReasonSource.FAILURE if failed else ReasonSource.REFUSAL
        return reason

    @classmethod
    def kept_off(cls) -> Reason:
        """A cost function gives the unit no cost there."""
        reason = cls("kept off by the cost function")
        reason.detail, reason.source = str(reason), ReasonSource.COST_FUNCTION
        return reason


def source_of(reason: str) -> ReasonSource:
    """Return what a reason comes from; one that is a sentence only is a converter's refusal."""
    return reason.source if isinstance(reason, Reason) else ReasonSource.REFUSAL


def detail(reason: str) -> str:
    """A reason without the status that says no more than "refused"."""
    return reason.detail if isinstance(reason, Reason) else reason


class CauseKind(enum.Enum):
    """The reason for a placement, or a part of it."""

    FASTEST = "fastest"
    ONLY_TARGET = "only target"
    TOO_SMALL = "too small"
    STAYS_ON_CPU = "stays on the CPU"
    ON_HOST = "on the host"
    # Parts of the above: why other targets do not have it.
    REFUSED = "refused"
    FAILED = "failed"
    KEPT_OFF = "kept off"
    KEPT_OFF_BY_COSTS = "kept off by the cost function"
    NOT_MEASURED_ON_IT = "not measured on it"
    NOT_MEASURED = "not measured"
    OUTWEIGHED = "outweighed"
    SLOWER = "slower"
    # Of baselines: their rules.
    BEST_SINGLE = "best single"
    SUPPORTED = "supported"
    NOT_SUPPORTED = "not supported"
    LISTED = "listed"
    NOT_LARGEST = "not largest"
    ALL_CPU = "all CPU"
    NOT_ON_CPU = "not on the CPU"
    GREEDY = "greedy"


class Fact(ABC):
    """Something that becomes a sentence, and equals it: files keep no more of it."""

    __slots__ = ()

    @abstractmethod
    def words(self, unit: str = MS) -> str:
        """The sentence; ``unit`` is of a million of what was made least."""

    def __str__(self) -> str:
        return self.words()

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, Fact | str) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))


@dataclass(frozen=True, slots=True, eq=False)
class Cause(Fact):
    """Why a segment stands where it does."""

    kind: CauseKind
    target: str = ""
    """The one that it is about: the segment's own, or the one that does not have it."""
    here_ns: float = 0.0
    """Of the segment where it stands."""
    elsewhere: tuple[tuple[str, float], ...] = ()
    """Targets and what the segment would take there, fastest first."""
    around_ns: float = 0.0
    """Invocation and transfer there."""
    units: tuple[int, ...] = ()
    """That it is about, where these are not all of the segment."""
    places: tuple[str, ...] = ()
    """Accelerators that give ``reasons``."""
    reasons: tuple[str, ...] = ()
    """As targets, constraints or labels of units have them, one for each unit."""
    because: tuple[Cause, ...] = ()
    """What it comes from, the first first."""
    unit: str = ""
    """Of a million of the numbers, where they are no latencies."""

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
                return reasons  # they name it
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
    """How good the best plan is, and how this one differs from it."""

    is_optimal: bool
    least_ns: float
    bound_ns: float
    gap: float
    asked: str
    """What the plan must keep to, in the words of those who asked; empty for nothing."""
    simulated: bool = False
    """To be said of this plan."""
    n_best: int = 0
    """Segments of the best plan, where this one has fewer ..."""
    n_segments: int = 0
    more: float = 0.0
    """... and takes so much more, relative, ..."""
    tolerance: float = 0.0
    """... which is no more than noise."""

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
    """The compile time of the plan's regions, under any objective."""

    ns: float
    limit_ns: float

    def words(self, unit: str = MS) -> str:
        return f"regions compile in {amount(self.ns)} together, of {amount(self.limit_ns)} allowed"


def amount(ns: float, unit: str = MS) -> str:
    """A millionth with three significant digits: ``1.23 ms``, ``0.0456 ms``, ``123 ms``."""
    value = ns / 1e6
    if value == 0:
        return f"0 {unit}"
    digits = max(0, 2 - math.floor(math.log10(value)))
    return f"{value:.{min(digits, 6)}f} {unit}"


def distinct(texts: Iterable[str]) -> str:
    """Each text once, of many the first."""
    unique = list(dict.fromkeys(texts))
    more = f" and {len(unique) - MANY} more" if len(unique) > MANY else ""
    return ", ".join(unique[:MANY]) + more
