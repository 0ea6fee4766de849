"""Select among a bundle's own plans: by the share of runs or frames, by phone, or along a front.

A frame schedule states which plans many frames take, and how many are in flight at once. A bundle
for several phones identifies the current phone by names, the most specific first: its build
(``ro.build.fingerprint``), its SoC (``ro.soc.model``, before Android 12 ``ro.board.platform``), its
accelerators with their feature levels. The library for apps builds the same names on the phone
(device_agent/library/phones.c).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from nnapi_prof.costs import ALL, MOST_THREADS, parse_cpus
from nnapi_prof.errors import SerializationError, UsageError, escape_untrusted

OTHERS = ""
"""Name of every phone that has no other name in a bundle."""


@dataclass(frozen=True, slots=True)
class PhoneTraits:
    """The properties of a phone that the rule of a bundle for several phones reads."""

    keys: tuple[str, ...] = ()
    """Its names, the most specific first."""
    accelerators: frozenset[str] = frozenset()
    """Names of its NNAPI devices; a plan that names another does not fit."""


def phone_of(properties: Mapping[str, str], accelerators: Iterable[tuple[str, int]]) -> PhoneTraits:
    """Return the phone with these ``ro.*`` properties and NNAPI devices, each as its name and
    reported feature level."""
    ordered = sorted(accelerators, key=lambda each: each[0].encode())
    soc = properties.get("ro.soc.model") or properties.get("ro.board.platform")
    build = properties.get("ro.build.fingerprint")
    keys = [f"build:{build}"] if build else []
    keys += [f"soc:{soc}"] if soc else []
    if ordered:
        keys.append("nnapi:" + ",".join(f"{name}/{level}" for name, level in ordered))
    return PhoneTraits(tuple(keys), frozenset(name for name, _ in ordered))


VERSION = 1
"""Version of the rules; within one version a selection never gives another result."""

GOLDEN = (math.sqrt(5) - 1) / 2
"""Number whose multiples modulo 1 fill [0, 1) most evenly."""


class SelectionRule(StrEnum):
    """How a set selects among its choices."""

    FRONT = "front"
    """The best plan by the first criterion that meets the requested limits."""
    MIXTURE = "mixture"
    """By the number of the run, so that each plan gets its share of any sequence of runs."""
    PHONES = "phone names"
    """By the phone: the first of its names that belongs to a plan whose accelerators the phone has;
    otherwise the plan for all other phones."""


@dataclass(frozen=True, slots=True)
class PlanChoice:
    """One plan of a set, with the data that the set's rule uses."""

    plan: int
    """Index among the bundle's plans."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Criterion -> the plan's cost by it, the most important first; for a front."""
    share: float = 1.0
    """Share of the runs, above 0, 1 in total; for a mixture."""
    keys: tuple[str, ...] = ()
    """Names of the phones that the plan is for; :data:`OTHERS` covers all phones without another
    plan. This field and those below belong to sets for phones."""
    accelerators: tuple[str, ...] = ()
    """Accelerators that the plan needs."""
    device: str = ""
    """The phone whose latencies the plan predicts, for people."""
    fingerprint: str = ""
    """The same phone in cost tables."""
    all_cpu_ns: float = 0.0
    """Latency on that phone of the plan for all other phones."""
    threads: Mapping[str, int] = field(default_factory=dict)
    """Name of a phone -> threads of the CPU engine there; others use the bundle's conditions."""


@dataclass(frozen=True)
class PlanSet:
    """The choices and their rule. Raises SerializationError if they do not fit together."""

    rule: SelectionRule
    choices: tuple[PlanChoice, ...]

    def __post_init__(self) -> None:
        choices = self.choices
        _require(bool(choices), "it has no plan")
        _require(len({c.plan for c in choices}) == len(choices), "a plan occurs twice")
        if self.rule is SelectionRule.FRONT:
            criteria = list(choices[0].figures)
            alike = all(list(c.figures) == criteria for c in choices)
            _require(bool(criteria) and alike, "the plans of a front have the same criteria")
            finite = all(math.isfinite(n) for c in choices for n in c.figures.values())
            _require(finite, "the figures of a front are finite")
        if self.rule is SelectionRule.MIXTURE:
            _require(all(0 < c.share <= 1 for c in choices), "shares are above 0, and 1 at most")
            total = math.fsum(c.share for c in choices)
            _require(abs(total - 1) < 1e-6, f"the shares of a mixture are 1 in all, not {total:g}")
        if self.rule is SelectionRule.PHONES:
            keys = [key for c in choices for key in c.keys]
            _require(len(set(keys)) == len(keys), "a phone's name occurs twice")
            others = [c for c in choices if OTHERS in c.keys]
            _require(
                bool(others) and not others[0].accelerators,
                "one plan is for all other phones, and needs no accelerator",
            )

    def select(
        self,
        run: int = 0,
        phone: PhoneTraits | None = None,
        limits: Mapping[str, float] | None = None,
    ) -> int:
        """Return the index of the plan for the run of this number (from 0), on this phone, within
        ``limits`` (criterion -> largest value). Raises UsageError if no plan fits."""
        if self.rule is SelectionRule.MIXTURE:
            return self._of_mixture(run)
        if self.rule is SelectionRule.PHONES:
            return self.for_phone(phone or PhoneTraits())[0].plan
        return self._of_front(limits or {})

    def for_phone(self, phone: PhoneTraits) -> tuple[PlanChoice, str]:
        """Return the choice for a phone, and the phone's name that selected it."""
        by_key = {key: choice for choice in self.choices for key in choice.keys}
        for key in phone.keys:
            choice = by_key.get(key)
            if choice is not None and phone.accelerators.issuperset(choice.accelerators):
                return choice, key
        return by_key[OTHERS], OTHERS

    def _of_mixture(self, run: int) -> int:
        place = (run + 0.5) * GOLDEN % 1
        for choice in self.choices:
            place -= choice.share
            if place < 0:
                return choice.plan
        return self.choices[-1].plan

    def _of_front(self, limits: Mapping[str, float]) -> int:
        criteria = list(self.choices[0].figures)
        for name in limits:
            if name not in criteria:
                names = ", ".join(escape_untrusted(criterion, 100) for criterion in criteria)
                raise UsageError(f"the bundle's plans do not have {name}, only {names}")
        within = [
            c for c in self.choices if all(c.figures[name] <= most for name, most in limits.items())
        ]
        if not within:
            terms = ", ".join(f"{name} of {most:g} at most" for name, most in limits.items())
            raise UsageError(f"no plan of the bundle keeps {terms}")
        return min(within, key=lambda c: c.figures[criteria[0]]).plan

    def to_json(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "rule": self.rule.value,
            "choices": [_FIELDS[self.rule](choice) for choice in self.choices],
        }

    @classmethod
    def from_json(cls, data: Any, n_plans: int) -> PlanSet:
        """Read the JSON of :meth:`to_json`, for a bundle of ``n_plans`` plans.

        Raises SerializationError if it has another version or is not a set of these plans.
        """
        _require(isinstance(data, dict), "it is not an object")
        if data.get("version") != VERSION:
            raise SerializationError(
                "the set of plans is of version"
                f" {escape_untrusted(repr(data.get('version')), 100)}, {VERSION} is read"
            )
        rule = data.get("rule")
        _require(rule in list(SelectionRule), f"its rule is {escape_untrusted(repr(rule), 100)}")
        rows = data.get("choices")
        _require(isinstance(rows, list), "its choices are not a list")
        return cls(SelectionRule(rule), tuple(_choice(row, n_plans) for row in rows))


_FIELDS = {
    SelectionRule.FRONT: lambda c: {"plan": c.plan, "figures": dict(c.figures)},
    SelectionRule.MIXTURE: lambda c: {"plan": c.plan, "share": c.share},
    SelectionRule.PHONES: lambda c: {
        "plan": c.plan,
        "keys": list(c.keys),
        "accelerators": list(c.accelerators),
        "device": c.device,
        "fingerprint": c.fingerprint,
        "all_cpu_ns": c.all_cpu_ns,
        "threads": dict(c.threads),
    },
}


def _choice(row: Any, n_plans: int) -> PlanChoice:
    _require(isinstance(row, dict), "a choice is not an object")
    plan, figures = row.get("plan"), row.get("figures", {})
    _require(
        type(plan) is int and 0 <= plan < n_plans,
        f"it names plan {escape_untrusted(repr(plan), 100)} of {n_plans}",
    )
    _require(isinstance(figures, dict), "the figures of a plan are not an object")
    numbers = [*figures.values(), row.get("share", 1.0), row.get("all_cpu_ns", 0.0)]
    _require(all(type(n) in (int, float) for n in numbers), "a figure or share is not a number")
    _require(0 <= numbers[-1] < math.inf, "a latency is finite and at least 0")
    names = {field: row.get(field, []) for field in ("keys", "accelerators")}
    for listed in names.values():
        _require(
            isinstance(listed, list) and all(isinstance(name, str) for name in listed),
            "names of phones or accelerators are not a list of texts",
        )
    threads = row.get("threads", {})
    _require(
        isinstance(threads, dict)
        and all(type(n) is int and 1 <= n <= MOST_THREADS for n in threads.values()),
        "the threads of phones are not numbers",
    )
    device, fingerprint = row.get("device", ""), row.get("fingerprint", "")
    is_named = isinstance(device, str) and isinstance(fingerprint, str)
    _require(is_named, "a device is not a name")
    return PlanChoice(
        plan,
        {name: float(number) for name, number in figures.items()},
        float(row.get("share", 1.0)),
        keys=tuple(names["keys"]),
        accelerators=tuple(names["accelerators"]),
        device=device,
        fingerprint=fingerprint,
        all_cpu_ns=float(numbers[-1]),
        threads=dict(threads),
    )


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise SerializationError(f"the set of plans: {reason}")


MOST_IN_FLIGHT = 63
"""Capacity of the runtime library's queue, in frames."""
FRAMES_A_LANE = 4
"""Default number of frames in flight per lane, as in the runtime library."""
MOST_WAYS = 1000


def usual_in_flight(lanes: Collection[str]) -> int:
    """Return the runtime library's default number of frames in flight: 1 for a single lane."""
    return min(FRAMES_A_LANE * len(lanes), MOST_IN_FLIGHT) if len(lanes) > 1 else 1


@dataclass(frozen=True, slots=True)
class FrameSchedule:
    """One way of running many frames."""

    name: str
    """For people: ``mixture of plans``, ``all-cpu``."""
    choices: tuple[PlanChoice, ...]
    """Plans of the bundle, with their shares of the frames."""
    in_flight: int
    """Largest number of frames submitted but not yet returned."""
    predicted_per_second: float | None = None
    """Predicted frames per second; None if there is no prediction."""
    threads: int | None = None
    """Threads of the CPU engine; None uses the threads and cores of the bundle's conditions."""
    cpus: str = ALL
    """Cores of those threads, as in the conditions."""
    overlaps: bool = False
    """A frame's segments may run at once: each starts when its inputs are ready and the segments
    before it on its processor are done."""

    def __post_init__(self) -> None:
        PlanSet(SelectionRule.MIXTURE, self.choices)  # checks the shares
        if not 1 <= self.in_flight <= MOST_IN_FLIGHT:
            raise SerializationError(
                f"{self.in_flight} frames in flight: 1 to {MOST_IN_FLIGHT} are possible"
            )

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "plans": [[choice.plan, choice.share] for choice in self.choices],
            "in_flight": self.in_flight,
            "predicted_per_second": self.predicted_per_second,
            "threads": self.threads,
            "cpus": self.cpus,
            "overlaps": self.overlaps,
        }

    @classmethod
    def from_json(cls, data: Any, n_plans: int) -> FrameSchedule:
        """Read the JSON of :meth:`to_json`. Raises SerializationError if it is not a schedule of
        these plans."""
        rows = data["plans"]
        if not all(type(plan) is int and 0 <= plan < n_plans for plan, _ in rows):
            raise SerializationError(f"a way of running frames names plans beyond {n_plans}")
        rate, threads = data["predicted_per_second"], data["threads"]
        if type(data["in_flight"]) is not int:
            raise SerializationError("the number of frames in flight is not a number")
        if not (rate is None or (type(rate) in (int, float) and math.isfinite(rate))):
            raise SerializationError("a prediction of frames per second is not a number")
        if not (threads is None or (type(threads) is int and threads > 0)):
            raise SerializationError("a way of running frames has no number of threads")
        choices = tuple(PlanChoice(plan, share=float(share)) for plan, share in rows)
        name = escape_untrusted(str(data["name"]), 100)
        cpus = parse_cpus(str(data.get("cpus", ALL)))
        overlaps = data.get("overlaps", False) is True
        return cls(name, choices, data["in_flight"], rate, threads, cpus, overlaps)


@dataclass(frozen=True, slots=True)
class FramePlan:
    """The schedule of a bundle that runs many frames, and alternatives."""

    ways: tuple[FrameSchedule, ...]
    """The intended schedule, then its rivals."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.ways) <= MOST_WAYS:
            raise SerializationError(
                f"frames run in {len(self.ways)} ways: 1 to {MOST_WAYS} are possible"
            )

    @property
    def in_flight(self) -> int:
        """Largest number of frames in flight in the intended schedule."""
        return self.ways[0].in_flight

    @property
    def is_serial(self) -> bool:
        """Whether the intended schedule runs segments one after the other, and a rival overlaps
        them but is not faster."""
        own, *others = self.ways
        return not own.overlaps and any(way.overlaps for way in others)

    @property
    def plan_set(self) -> PlanSet | None:
        """The set that selects a frame's plan; None if all frames take the bundle's first plan."""
        choices = self.ways[0].choices
        is_first = [choice.plan for choice in choices] == [0]
        return None if is_first else PlanSet(SelectionRule.MIXTURE, choices)

    def to_json(self) -> dict[str, Any]:
        return {"ways": [way.to_json() for way in self.ways]}

    @classmethod
    def from_json(cls, data: Any, n_plans: int) -> FramePlan:
        """Read the JSON of :meth:`to_json`, for a bundle of ``n_plans`` plans. Raises
        SerializationError."""
        return cls(tuple(FrameSchedule.from_json(row, n_plans) for row in data["ways"]))
