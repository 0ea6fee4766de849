"""Find what would make a plan faster: hindrances, rewrites in PyTorch, and plans with them applied.

The package uses neither devices nor files: it takes models, costs and plans and returns advice.
This module holds advice as facts with numbers (times in ns) and the sentences made of them, so that
reports and bundles can contain advice without knowing how it is found.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nnapi_prof.errors import SerializationError
from nnapi_prof.graph.causes import amount, distinct

LEAST_GAIN = 0.01
"""Smallest saving worth reporting, as a share of the plan's latency; less is noise."""


GOOD_ENOUGH = 0.85
"""Share of the best rewrite's saving that a rewrite which changes less must reach to be chosen."""


NEGLIGIBLE = 0.05
"""Share of a saving up to which its margin of error is not printed."""


MOST_NS = 1e15
"""Longest latency accepted from a file, in ns: eleven days."""


class Hindrance(enum.Enum):
    """An obstacle to a faster plan."""

    REFUSED = "refused"
    """Accelerators do not run these units."""
    CUT = "cut"
    """These units stand between two segments of one accelerator."""
    KEPT_OFF = "kept off"
    """The plan's constraints (an accuracy, a list) keep them off accelerators that run them."""
    SLOW = "slow"
    """They take longer than other work of their size on the same target."""
    LAYOUT = "layout"
    """They compute nothing and only move values into another order."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Another way to write an operation in PyTorch."""

    name: str
    """``hard-swish``"""
    code: str
    """PyTorch code, one line or several."""
    accuracy: str
    """Effect on the outputs, in a sentence."""
    exact: bool = False
    """The result is the same except for rounding."""


@dataclass(frozen=True, slots=True)
class Verified:
    """Measured effect of a rewrite: both models ran whole, one after the other."""

    before_ns: float = 0.0
    after_ns: float = 0.0
    """Medians, end to end."""
    moved: float = 0.0
    """Largest change of an output, relative to the largest value of that output."""
    failure: str = ""
    """Reason why it could not be measured; the numbers are then 0."""
    margin_ns: float = 0.0
    """Half of the saving's 95 % interval, from the spread of both models' runs."""

    @property
    def saves_ns(self) -> float:
        return self.before_ns - self.after_ns


@dataclass(frozen=True, slots=True)
class Advice:
    """One change that would help, and its predicted saving."""

    kind: Hindrance
    units: tuple[int, ...]
    """Units that it concerns, ascending."""
    labels: tuple[str, ...]
    operations: tuple[str, ...]
    """Operations of the units, for people."""
    targets: tuple[str, ...]
    """Targets that do not run the units, or run them slowly."""
    reasons: tuple[str, ...]
    """Reasons that these targets gave."""
    before_ns: float
    """Predicted latency of the current plan."""
    after_ns: float
    """Predicted latency of the plan with the change."""
    rewrite: Rewrite | None = None
    """None where no rewrite is known: the prediction then assumes that the target runs the units at
    the price of other work of their size."""
    sure: bool = True
    """Every operation of the rewrite ran on this device before, or is one that every driver has."""
    simulated: bool = False
    estimated: bool = False
    """A vendor's simulator estimated it: nothing was measured, nor can be without the device."""
    verified: Verified | None = None
    margin_ns: float = 0.0
    """Half of the saving's 95 % interval, as far as the costs have intervals."""

    @property
    def saves_ns(self) -> float:
        """The predicted saving."""
        return self.before_ns - self.after_ns

    @property
    def cause(self) -> str:
        """The obstacle, as a sentence."""
        what, where = _count_units(self.labels, self.operations), ", ".join(self.targets)
        one = len(self.labels) == 1
        match self.kind:
            case Hindrance.REFUSED:
                does = "does" if len(self.targets) == 1 else "do"
                return f"{where} {does} not run {what}: {distinct(self.reasons)}"
            case Hindrance.CUT:
                return f"{what} {'divides' if one else 'divide'} what {where} could run in one call"
            case Hindrance.KEPT_OFF:
                return f"{what} {'is' if one else 'are'} kept off {where} by the plan's constraints"
            case Hindrance.SLOW:
                are, their = ("is", "its") if one else ("are", "their")
                return f"{what} {are} slow on {where} for {their} size"
            case Hindrance.LAYOUT:
                return f"{what} only {'moves' if one else 'move'} values into another order"

    @property
    def remedy(self) -> str:
        """The remedy, in a few words."""
        if self.rewrite is not None:
            return self.rewrite.name
        match self.kind:
            case Hindrance.KEPT_OFF:
                return "allow it there"
            case Hindrance.LAYOUT:
                return "keep one order of dimensions"
            case Hindrance.SLOW:
                return "give it sizes and options like those of the faster layers"
            case _:
                return "replace it by what the accelerator runs, or move it to an end of the model"

    def __str__(self) -> str:
        simulated = " (simulated)" if self.simulated else " (estimated)" if self.estimated else ""
        text = (
            f"{self.cause}. {self.remedy[0].upper()}{self.remedy[1:]}: that would save"
            f" {amount(max(0.0, self.saves_ns))}{simulated} of {amount(self.before_ns)}, predicted"
            f"{_margin_words(self.saves_ns, self.margin_ns, self.estimated)}"
        )
        if not self.sure:
            text += "; whether the accelerator runs it was never tried on this device"
        if self.verified is not None:
            text += f"; {verified_words(self.verified)}"
        return text


def verified_words(verified: Verified) -> str:
    """Describes the measured effect of a rewrite."""
    if verified.failure:
        return f"tried: {verified.failure}"
    change = "saves" if verified.saves_ns >= 0 else "costs"
    return (
        f"measured, it {change} {amount(abs(verified.saves_ns))}"
        f"{_margin_words(verified.saves_ns, verified.margin_ns)}; outputs move by at most"
        f" {verified.moved:.1e} of their largest value"
    )


def _margin_words(saves_ns: float, margin_ns: float, estimated: bool = False) -> str:
    """Describes the margin of error of a saving; empty where it is negligible."""
    if margin_ns <= NEGLIGIBLE * abs(saves_ns):
        return ""
    words = f", give or take {amount(margin_ns)}"
    if margin_ns < abs(saves_ns):
        return words
    what = "within the estimate's error" if estimated else "not distinguishable from noise"
    return f"{words}: {what}"


def _count_units(labels: Sequence[str], operations: Sequence[str]) -> str:
    """Names units: ``silu 1x8x4x4`` for one, ``silu (3 units)`` for several."""
    if len(labels) == 1:
        return labels[0]
    return f"{distinct(operations)} ({len(labels)} units)"


# As JSON, for bundles


def advice_to_json(advice: Sequence[Advice]) -> str:
    """Returns every field as JSON; :func:`advice_from_json` restores equal advice."""
    rows = [{**dataclasses.asdict(one), "kind": one.kind.value} for one in advice]
    return json.dumps({"advice": rows}, indent=1)


def advice_from_json(text: str) -> tuple[Advice, ...]:
    """Reads advice. Raises SerializationError where ``text`` is not advice."""
    try:
        return tuple(_advice(row) for row in json.loads(text)["advice"])
    except (ValueError, KeyError, TypeError) as error:
        raise SerializationError(
            f"this is not advice: {error!r}; write it anew with `nnapi-prof advise`"
        ) from error


def _advice(row: dict[str, Any]) -> Advice:
    rewrite, verified = row["rewrite"], row["verified"]
    if rewrite is not None:
        texts = {name: str(rewrite[name]) for name in ("name", "code", "accuracy")}
        rewrite = Rewrite(**texts, exact=bool(rewrite["exact"]))
    if verified is not None:
        names = ("before_ns", "after_ns", "moved", "margin_ns")
        numbers = {name: float(verified.get(name, 0.0)) for name in names}
        if not all(0 <= numbers[name] <= MOST_NS for name in ("before_ns", "after_ns")):
            raise ValueError(f"plans took {numbers}")
        verified = Verified(**numbers, failure=str(verified["failure"]))
    before, after = float(row["before_ns"]), float(row["after_ns"])
    if not all(0 <= ns <= MOST_NS for ns in (before, after)):
        raise ValueError(f"a plan takes {before} ns, or {after}")
    return Advice(
        kind=Hindrance(row["kind"]),
        units=tuple(map(int, row["units"])),
        labels=tuple(map(str, row["labels"])),
        operations=tuple(map(str, row.get("operations", row["labels"]))),
        targets=tuple(map(str, row["targets"])),
        reasons=tuple(map(str, row["reasons"])),
        before_ns=before,
        after_ns=after,
        rewrite=rewrite,
        sure=bool(row["sure"]),
        simulated=bool(row["simulated"]),
        estimated=bool(row.get("estimated", False)),
        verified=verified,
        margin_ns=float(row.get("margin_ns", 0.0)),
    )
