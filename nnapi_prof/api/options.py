"""Checks arguments of the Python interface, and holds the options of a plan."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from numbers import Real

from nnapi_prof.costs.conditions import (
    BY_TRIAL,
    MOST_SUSTAINED_S,
    MOST_THREADS,
    Conditions,
    Mode,
    Precision,
    parse_cpus,
)
from nnapi_prof.device.protocol.actions import MAX_RUNS
from nnapi_prof.device.state import Gates
from nnapi_prof.errors import UsageError, for_caller, option_name
from nnapi_prof.execution.options import (
    LEAST_SECONDS,
    MOST_MEMORY_MB,
    MOST_SECONDS,
    MOST_WAIT_S,
    Boundary,
)
from nnapi_prof.graph.plan import Engine, Preference, Target
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.partition import Constraints


def number(name: str, value: object, least: float, most: float | None = None) -> None:
    """Raises UsageError where ``value`` is no number from ``least`` to ``most``; None, which means
    what the function says it does, is let through."""
    if value is None:
        return
    limits = f"at least {least:g}" if most is None else f"from {least:g} to {most:g}"
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not least <= float(value) <= (float("inf") if most is None else most):  # type: ignore[arg-type]
        raise UsageError(f"{name} is {value!r}: a number {limits} is wanted")


def one_of(name: str, value: object, choices: Sequence[str]) -> None:
    """Raises UsageError where ``value`` is none of ``known``; None is let through."""
    if value is not None and value not in choices:
        raise UsageError(f"{name} is {value!r}: one of {', '.join(choices)} is wanted")


def names(name: str, value: Sequence[str]) -> tuple[str, ...]:
    """Several texts; a text alone is one. Raises UsageError where there is anything else."""
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        raise UsageError(f"{name} is {value!r}: texts are wanted")
    texts = (value,) if isinstance(value, str) else tuple(value)
    if not all(isinstance(text, str) for text in texts):
        raise UsageError(f"{name} is {value!r}: texts are wanted")
    return texts


def placements(name: str, value: str | Sequence[str] | Mapping[str, str]) -> tuple[str, ...]:
    """:func:`names` of patterns that may say where, as ``"softmax*=cpu"``; a mapping from units to
    targets says it, too. Raises UsageError where there is anything else."""
    if not isinstance(value, Mapping):
        return names(name, value)
    if not all(isinstance(text, str) for pair in value.items() for text in pair):
        raise UsageError(f"{name} is {value!r}: units and targets as text are wanted")
    return tuple(f"{unit}={where}" for unit, where in value.items())


def table(costs: str | os.PathLike[str] | None) -> str | None:
    """Returns the location of a cost table as text. Raises UsageError where it is no path and no
    URL."""
    if costs is None or isinstance(costs, str | os.PathLike):
        return None if costs is None else str(costs)
    raise UsageError(
        f"costs is a {type(costs).__name__}: the path or URL of a cost table is wanted"
    )


def preferences_of(preferences: Sequence[str] | None) -> tuple[Preference, ...]:
    """Returns the preferences of these names, all for None. Raises UsageError where a name is
    unknown."""
    if preferences is None:
        return tuple(Preference)
    chosen = names("preferences", preferences)
    for name in chosen:
        one_of("preferences", name, [each.short for each in Preference])
    return tuple(each for each in Preference if each.short in chosen)


def device_name(device: str | None) -> None:
    """Raises UsageError where a device is not named by text."""
    if device is not None and not isinstance(device, str):
        raise UsageError(
            f"device is {device!r}: a serial, HOST:PORT, 'local' or 'sim:NAME' is wanted"
        )


def repeats(runs: int | None, cooldown_s: float | None, memory_mb: int | None) -> None:
    """Checks the options that :func:`nnapi_prof.profile`, ``run`` and ``go`` share."""
    number("runs", runs, 1, MAX_RUNS)
    number("cooldown_s", cooldown_s, 0, MOST_WAIT_S)
    number("memory_mb", memory_mb, 1, MOST_MEMORY_MB)


def boundary_of(boundary: str) -> Boundary:
    """Returns the boundary of this name. Raises UsageError where there is none."""
    one_of("boundary", boundary, [each.value for each in Boundary])
    return Boundary(boundary)


USUAL = Conditions()
"""Whose fields are the defaults of ``cpus`` and ``mode`` everywhere; that of ``threads`` is
:data:`.BY_TRIAL`."""


def conditions_of(
    threads: int | str = BY_TRIAL,
    cpus: str = USUAL.cpus,
    mode: str = USUAL.mode.value,
    relaxed: bool = False,
    float16: bool = False,
    sustained: int = USUAL.sustained_s,
) -> Conditions:
    """The conditions; where ``threads`` is ``auto``, before a trial decides, one thread.

    Raises UsageError where one of them is none, or two exclude each other.
    """
    if relaxed and float16:
        raise UsageError(
            for_caller(
                "--relaxed lets float32 be computed as float16, --float16 has no float32: choose"
                " one",
                "relaxed lets float32 be computed as float16, float16 has no float32",
            )
        )
    n_threads = USUAL.threads
    if isinstance(threads, str):
        one_of("threads", threads, (BY_TRIAL,))
    else:
        number("threads", threads, 1, MOST_THREADS)
        n_threads = threads
    number("sustained", sustained, 0, MOST_SUSTAINED_S)
    one_of("mode", mode, [each.value for each in Mode])
    try:
        cores = parse_cpus(cpus)
    except ValueError as error:
        raise UsageError(f"cpus: {error}") from error
    precision = Precision.FLOAT32
    if relaxed or float16:
        precision = Precision.RELAXED if relaxed else Precision.FLOAT16
    return Conditions(precision, Mode(mode), n_threads, cores, sustained)


def gates_of(
    max_temp_c: float | None,
    min_battery: int | None,
    max_load: int | None,
    wait_s: float,
    anchor_s: float | None,
) -> Gates:
    """Raises UsageError where one of them is none."""
    number("max_temp_c", max_temp_c, 0, 120)
    number("min_battery", min_battery, 0, 100)
    number("max_load", max_load, 0, 100)
    number("wait_s", wait_s, 0)
    number("anchor_s", anchor_s, 0)
    return Gates(max_temp_c, min_battery, max_load, wait_s, anchor_s)


def precisions_of(
    words: Sequence[str | Precision] | None, relaxed: bool = False, float16: bool = False
) -> tuple[Precision, ...] | None:
    """The precisions that regions may compute in, float32 always first; None where none are asked
    for. Raises UsageError where one is none, or the conditions say one for all."""
    if words is None:
        return None
    if relaxed or float16:
        raise UsageError(
            for_caller(
                "--relaxed and --float16 are for the whole model: name them in --precisions",
                "relaxed and float16 are for the whole model: name them in precisions",
            )
        )
    chosen = [Precision.FLOAT32]
    for word in [words] if isinstance(words, str) else words:
        try:
            chosen.append(Precision(word))
        except ValueError as error:
            names = ", ".join(precision.value for precision in Precision)
            raise UsageError(f"precision {word!r} is not one of {names}") from error
    return tuple(dict.fromkeys(chosen))


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The user's demands on a plan, as given; the default asks for nothing but speed."""

    forbid: tuple[str, ...] = ()
    pin: tuple[str, ...] = ()
    preference: str | None = None
    max_regions: int | None = None
    listed: tuple[str, ...] = ()
    """Units that the baseline `listed` keeps off accelerators; constrains nothing."""
    max_compile_ms: float | None = None
    max_error: float | None = None
    """Of a unit in less than float32, relative to the largest of its values."""
    best: bool = False
    """The least latency, however many segments it takes; constrains nothing."""
    seconds: float | None = None
    """The search for a plan may take; None is the partitioner's own limit."""

    def __post_init__(self) -> None:
        """Raises UsageError where something is asked that does not exist."""
        one_of("preference", self.preference, [each.short for each in Preference])
        for name in ("max_regions", "max_compile_ms", "max_error"):
            number(name, getattr(self, name), 0)
        number("seconds", self.seconds, LEAST_SECONDS, MOST_SECONDS)

    @property
    def constrain(self) -> bool:
        """Whether plans that the user did not ask for may break what was asked."""
        limits = (self.max_regions, self.max_compile_ms, self.max_error)
        asked = self.forbid or self.pin or self.preference
        return bool(asked) or any(limit is not None for limit in limits)

    def constraints(self, graph: UnitGraph, targets: Sequence[Target]) -> Constraints:
        """Raises UsageError where a pattern matches nothing, or a pin more than one target."""
        forbidden: dict[int, frozenset[Target]] = {}
        for text in self.forbid:
            pattern, where = _halves(text)
            everywhere = "qnn:*" if any(t.engine is Engine.QNN for t in targets) else "nnapi:*"
            matches = _matching_targets(targets, where or everywhere, option_name("forbid", text))
            for unit in units_like(graph, pattern, option_name("forbid", text)):
                forbidden[unit] = forbidden.get(unit, frozenset()) | frozenset(matches)
        pinned: dict[int, Target] = {}
        for text in self.pin:
            pattern, where = _halves(text)
            if where is None:
                raise UsageError(
                    f"{option_name('pin', text)}: say where, as in "
                    + for_caller(f"--pin '{text}=cpu'", f"pin={{{text!r}: 'cpu'}}")
                )
            matches = _matching_targets(targets, where, option_name("pin", text))
            if len(matches) > 1:
                names = ", ".join(target.key for target in matches)
                raise UsageError(
                    f"{option_name('pin', text)}: one target wanted, {where!r} matches {names}"
                )
            for unit in units_like(graph, pattern, option_name("pin", text)):
                if pinned.setdefault(unit, matches[0]) != matches[0]:
                    raise UsageError(
                        f"{option_name('pin', text)}: {graph.units[unit].label} is pinned to"
                        f" {pinned[unit]}, too",
                        "choose one",
                    )
        preference = None
        if self.preference is not None:
            preference = next(p for p in Preference if p.short == self.preference)
            offered = {t.preference for t in targets if t.engine is Engine.NNAPI}
            if preference not in offered:
                raise UsageError(
                    f"{option_name('preference', self.preference)}: nothing was measured under it;"
                    " run"
                    + for_caller(
                        " `nnapi-prof profile` without limiting --preference",
                        " profile() without limiting preferences",
                    )
                )
        limit = None if self.max_compile_ms is None else self.max_compile_ms * 1e6
        return Constraints(forbidden, pinned, preference, self.max_regions, limit)

    def listed_units(self, graph: UnitGraph) -> tuple[int, ...]:
        """The units of ``listed``, ascending. Raises UsageError where a pattern matches nothing."""
        units = {
            u
            for pattern in self.listed
            for u in units_like(graph, pattern, option_name("list", pattern))
        }
        return tuple(sorted(units))


def units_like(graph: UnitGraph, pattern: str, asked: str) -> list[int]:
    """Units whose name or label a pattern matches. Raises UsageError where there are none, which
    says what ``asked`` for them."""
    units = [
        unit.index
        for unit in graph.units
        if fnmatchcase(unit.name, pattern) or fnmatchcase(unit.label, pattern)
    ]
    if not units:
        some = ", ".join(unit.label.split()[0] for unit in graph.units[:3])
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
