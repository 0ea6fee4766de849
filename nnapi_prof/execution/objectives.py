"""Objectives of :func:`nnapi_prof.partition`, each with the options that only it has, and options
of the functions that search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from nnapi_prof.bundle.plan_set import MOST_IN_FLIGHT
from nnapi_prof.errors import UsageError, for_caller, option_name
from nnapi_prof.execution import LEAST_SECONDS, MOST_SECONDS
from nnapi_prof.graph.plan import Engine, Preference, Target
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.options import names, option, placements, validate

if TYPE_CHECKING:
    from nnapi_prof.partition import Constraints


_UNITS = "UNITS is a unit's name, or a pattern of its label, as `softmax*`"

_CONTENTION = option(
    "Slow-down factor of a processor while another one is busy. Default: measured by"
    " `profile --contention`, else 1.1.",
    1,
)

Contention = float | Mapping[tuple[str, str], float]


@dataclass(frozen=True, kw_only=True)
class _OneFrame:
    """Options of every plan for one frame at a time; none of them limits the plan."""

    listed: str | Sequence[str] = field(
        default=(),
        metadata=option(
            "Show a baseline that keeps these units, and all that depend on them, off"
            " accelerators.",
            flag="--list",
            metavar="UNITS",
        ),
    )
    best: bool = field(
        default=False,
        metadata=option(
            "Take the plan with the lowest latency, whatever its number of segments. Default:"
            " the fewest segments within noise of it."
        ),
    )

    def __post_init__(self) -> None:
        validate(self)

    @property
    def unconstrained(self) -> Latency:
        """The objective of the serial plan that this one starts from."""
        return Latency(listed=self.listed, best=self.best)

    def listed_units(self, graph: UnitGraph) -> tuple[int, ...]:
        """Return the units of ``listed``, ascending. Raises UsageError where a pattern matches
        nothing."""
        units = {
            u
            for pattern in names("listed", self.listed)
            for u in units_like(graph, pattern, option_name("list", pattern))
        }
        return tuple(sorted(units))


@dataclass(frozen=True, kw_only=True)
class Latency(_OneFrame):
    """The lowest latency of one frame, within constraints: the default objective."""

    forbid: str | Sequence[str] | Mapping[str, str] = field(
        default=(),
        metadata=option(
            f"Keep units off targets (patterns; default: all accelerators). {_UNITS}.",
            metavar="UNITS[=TARGETS]",
        ),
    )
    pin: str | Sequence[str] | Mapping[str, str] = field(
        default=(),
        metadata=option(
            f"Run units on one target, as `conv2d*=cpu`. {_UNITS}.", metavar="UNITS=TARGET"
        ),
    )
    preference: str | None = field(
        default=None,
        metadata=option(
            "Use accelerators only under this PreferenceCode.",
            choices=[each.short for each in Preference],
        ),
    )
    max_regions: int | None = field(
        default=None, metadata=option("Largest number of segments on accelerators.", 0)
    )
    max_compile_ms: float | None = field(
        default=None,
        metadata=option(
            "Largest compile time of all segments on accelerators, measured or summed from parts.",
            0,
        ),
    )
    max_error: float | None = field(
        default=None,
        metadata=option(
            "In relaxed precision or float16: keep units off accelerators if they differ from"
            " float32 by more than this (relative to the largest value, in float16 on this host).",
            0,
        ),
    )

    @property
    def is_constrained(self) -> bool:
        """Whether baselines, which follow no constraint, may break one of these."""
        limits = (self.max_regions, self.max_compile_ms, self.max_error)
        asked = self.forbid or self.pin or self.preference
        return bool(asked) or any(limit is not None for limit in limits)

    def constraints(self, graph: UnitGraph, targets: Sequence[Target]) -> Constraints:
        """Return the constraints for the units and targets at hand.

        Raises UsageError where a pattern matches nothing, or a pin more than one target.
        """
        from nnapi_prof.partition import Constraints

        limit = None if self.max_compile_ms is None else self.max_compile_ms * 1e6
        return Constraints(
            self._forbidden(graph, targets),
            self._pinned(graph, targets),
            self._only_preference(targets),
            self.max_regions,
            limit,
        )

    def _forbidden(
        self, graph: UnitGraph, targets: Sequence[Target]
    ) -> dict[int, frozenset[Target]]:
        forbidden: dict[int, frozenset[Target]] = {}
        everywhere = "qnn:*" if any(t.engine is Engine.QNN for t in targets) else "nnapi:*"
        for text in placements("forbid", self.forbid):
            pattern, where = _halves(text)
            matches = _matching_targets(targets, where or everywhere, option_name("forbid", text))
            for unit in units_like(graph, pattern, option_name("forbid", text)):
                forbidden[unit] = forbidden.get(unit, frozenset()) | frozenset(matches)
        return forbidden

    def _pinned(self, graph: UnitGraph, targets: Sequence[Target]) -> dict[int, Target]:
        pinned: dict[int, Target] = {}
        for text in placements("pin", self.pin):
            pattern, where = _halves(text)
            if where is None:
                raise UsageError(
                    f"{option_name('pin', text)}: say where, as in "
                    + for_caller(f"--pin '{text}=cpu'", f"pin={{{text!r}: 'cpu'}}")
                )
            matches = _matching_targets(targets, where, option_name("pin", text))
            if len(matches) > 1:
                keys = ", ".join(target.key for target in matches)
                raise UsageError(
                    f"{option_name('pin', text)}: one target wanted, {where!r} matches {keys}"
                )
            for unit in units_like(graph, pattern, option_name("pin", text)):
                if pinned.setdefault(unit, matches[0]) != matches[0]:
                    raise UsageError(
                        f"{option_name('pin', text)}: {graph.units[unit].label} is pinned to"
                        f" {pinned[unit]}, too",
                        "choose one",
                    )
        return pinned

    def _only_preference(self, targets: Sequence[Target]) -> Preference | None:
        if self.preference is None:
            return None
        preference = next(p for p in Preference if p.short == self.preference)
        if preference not in {t.preference for t in targets if t.engine is Engine.NNAPI}:
            raise UsageError(
                f"{option_name('preference', self.preference)}: nothing was measured under it;"
                " run"
                + for_caller(
                    " `nnapi-prof profile` without limiting --preference",
                    " profile() without limiting preferences",
                )
            )
        return preference


@dataclass(frozen=True, kw_only=True)
class Parallel(_OneFrame):
    """The lowest latency of one frame whose branches may run at once on different processors.

    ``contention`` is one number for all, or (processor, the other one) -> number; a processor is
    ``"cpu"`` or an accelerator's name.
    """

    contention: Contention | None = field(default=None, metadata=_CONTENTION)


@dataclass(frozen=True)
class Within(_OneFrame):
    """The lowest latency within an error, with targets and precisions chosen together."""

    error: float = field(
        metadata=option(
            "Largest error of a plan by costs in several precisions, also on held-out data.",
            0,
            flag="--accuracy-budget",
        )
    )
    metric: str = field(
        default="relative",
        metadata=option(
            "Error metric: relative (root mean square, relative to the outputs' deviation), top1,"
            " or a function of (outputs, targets).",
            metavar="NAME|MODULE:FUNCTION",
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """The most frames per second, with processors that work at once on different frames.

    ``contention`` is one number for all, or (processor, the other one) -> number; a processor is
    ``"cpu"`` or an accelerator's name.
    """

    contention: Contention | None = field(default=None, metadata=_CONTENTION)
    frames_in_flight: int | None = field(
        default=None,
        metadata=option(
            "Largest number of frames that wait or run at once. Default: 4 for each processor.",
            1,
            MOST_IN_FLIGHT,
        ),
    )
    max_latency_ms: float | None = field(
        default=None,
        metadata=option("Latency limit for 95 % of frames, from submission to result.", 0),
    )
    max_memory_mb: int | None = field(
        default=None,
        metadata=option(
            "Memory limit for weights on all processors and values of frames in flight.", 1
        ),
    )

    def __post_init__(self) -> None:
        validate(self)


PlanObjective = Latency | Parallel | Within | Throughput


def units_like(graph: UnitGraph, pattern: str, asked: str) -> list[int]:
    """Return the units whose name or label a pattern matches. Raises UsageError where there are
    none, with ``asked`` in its message."""
    units = [
        unit.index
        for unit in graph.units
        if fnmatchcase(unit.name, pattern) or fnmatchcase(unit.label, pattern)
    ]
    if not units:
        some = ", ".join(unit.full_operation for unit in graph.units[:3])
        raise UsageError(
            f"{asked}: no unit is called so", f"name some of the model's, which begins with {some}"
        )
    return units


def _halves(text: str) -> tuple[str, str | None]:
    pattern, equals, where = text.rpartition("=")
    return (pattern, where) if equals else (text, None)


def _matching_targets(targets: Sequence[Target], pattern: str, asked: str) -> list[Target]:
    matches = [target for target in targets if fnmatchcase(target.key, pattern)]
    if not matches:
        there = ", ".join(target.key for target in targets)
        raise UsageError(f"{asked}: no target {pattern!r}; there are {there}")
    return matches


def seconds_option(search: str, default: str) -> float | None:
    """Declare the field ``seconds``; None stands for ``default``."""
    text = f"Most that {search} may take. Default: {default}."
    limit: float | None = field(default=None, metadata=option(text, LEAST_SECONDS, MOST_SECONDS))
    return limit


class ValidatedOptions:
    """Options that are checked when they are constructed."""

    def __post_init__(self) -> None:
        validate(self)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class SearchOptions(ValidatedOptions):
    """Options of every objective of :func:`nnapi_prof.partition`."""

    seconds: float | None = seconds_option(
        "the search for the plan", "10, of frames at once 30; --parallel takes it twice"
    )


@dataclass(frozen=True, kw_only=True)
class ParetoOptions(ValidatedOptions):
    """Options of :func:`nnapi_prof.pareto`."""

    budgets: Sequence[float] = field(
        default=(),
        metadata=option(
            "Additional error budget (2%, 0.02, 34dB) for which a plan is searched.",
            0,
            flag="--budget",
            metavar="ERROR",
        ),
    )
    seconds: float | None = seconds_option("the search for each plan", "10")
    accuracy_s: float = field(
        default=120.0, metadata=option("Approximate time limit for measuring errors.", 0)
    )


@dataclass(frozen=True, kw_only=True)
class AdviseOptions(ValidatedOptions):
    """Options of :func:`nnapi_prof.advise`."""

    tries: int = field(
        default=3, metadata=option("Largest number of rewrites that --try tries.", 1, 100)
    )
    seconds: float | None = seconds_option("looking", "30")


@dataclass(frozen=True, kw_only=True)
class BisectOptions(ValidatedOptions):
    """Options of :func:`nnapi_prof.bisect`."""

    budget: float | None = field(
        default=None,
        metadata=option(
            "Largest error of a value with reference inputs, as a share of its largest element."
            " Default: 1e-4, in less than float32 2e-2, in 8 bits what roundings of ties explain.",
            0,
            metavar="SHARE",
        ),
    )
    samples: int = field(
        default=2,
        metadata=option("Inputs to try: the model's own examples, then random ones.", 1, 64),
    )


@dataclass(frozen=True, kw_only=True)
class ChoiceOptions(ValidatedOptions):
    """Options of choosing among several partitioners by measuring."""

    seconds: float = field(
        default=600,
        metadata=option("With --partitioners: time limit for measuring units and regions.", 0),
    )
