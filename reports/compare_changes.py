"""What differs between the sides of a comparison: placement, latencies, refusals, conditions."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nnapi_prof.costs.conditions import Conditions
from nnapi_prof.costs.diff import Comparison, Verdict, compare
from nnapi_prof.costs.diff import Difference as LatencyDifference
from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.device.protocol.description import description_parts
from nnapi_prof.graph.plan import AUTO, CPU, Segment
from nnapi_prof.reports.compare_sides import Column, Side
from nnapi_prof.reports.facts import device_facts
from nnapi_prof.reports.frames import all_targets
from nnapi_prof.reports.words import targets_words

THRESHOLD = 0.05
"""A latency that changed by less is left out: clock rates drift by some from one session to the
next, which no measurement's own noise shows."""


@dataclass(frozen=True, slots=True)
class Stay:
    """Where one side runs some units."""

    target: str
    cause: str


@dataclass(frozen=True, slots=True)
class Move:
    """Neighbouring units that not all sides run on the same target. Every side has them."""

    columns: tuple[int, ...]
    """Places in the matched units."""
    units: tuple[tuple[int, ...], ...]
    """Their indices in the graph of each side."""
    label: str
    stays: tuple[Stay, ...]
    """Of each side."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something that one side's target refuses, and another's does not or in other words."""

    unit: int
    """Index in the first side's graph."""
    label: str
    targets: tuple[str, ...]
    reasons: tuple[str | None, ...]
    """Of each side; None where the unit runs there."""


@dataclass(frozen=True, slots=True)
class TargetChange:
    """What both sides measured on one target, the other side against the first."""

    target: str
    compared: int
    slower: int
    """Beyond noise, as the next."""
    faster: int
    median_ratio: float


@dataclass(frozen=True, slots=True)
class Difference:
    """A fact that not all sides share; None where a side does not know it."""

    name: str
    values: tuple[str | None, ...]


def moves(sides: Sequence[Side], columns: Sequence[Column]) -> tuple[Move, ...]:
    """Units that every side has and not every side runs on the same target, neighbours together
    where they share the segment on each side."""
    where = [_segments_of(side) for side in sides]
    moved_units: list[tuple[int, tuple[int, ...]]] = []  # column, segment number of each side
    for at, column in enumerate(columns):
        numbers = _numbers(where, column)
        if numbers is not None and len(set(_targets(sides, numbers))) > 1:
            moved_units.append((at, numbers))
    grouped = []
    for _, same in itertools.groupby(
        enumerate(moved_units), key=lambda e: (e[1][0] - e[0], e[1][1])
    ):
        stretch = [entry for _, entry in same]
        grouped.append(_move(sides, columns, [at for at, _ in stretch], stretch[0][1]))
    return tuple(grouped)


def _segments_of(side: Side) -> dict[int, int]:
    """Unit -> number of its segment."""
    segments = side.data.plan.segments
    return {unit: number for number, s in enumerate(segments) for unit in s.units}


def _numbers(where: Sequence[Mapping[int, int]], column: Column) -> tuple[int, ...] | None:
    own = [of.get(unit) for of, unit in zip(where, column.units, strict=True) if unit is not None]
    numbers = tuple(number for number in own if number is not None)
    return numbers if len(numbers) == len(where) else None


def _targets(sides: Sequence[Side], numbers: Sequence[int]) -> list[str]:
    return [s.target.key for s in _segments(sides, numbers)]


def _segments(sides: Sequence[Side], numbers: Sequence[int]) -> list[Segment]:
    return [side.data.plan.segments[number] for side, number in zip(sides, numbers, strict=True)]


def _move(
    sides: Sequence[Side], columns: Sequence[Column], places: list[int], numbers: tuple[int, ...]
) -> Move:
    units = tuple(
        tuple(u for at in places if (u := columns[at].units[side]) is not None)
        for side in range(len(sides))
    )
    return Move(
        columns=tuple(places),
        units=units,
        label=sides[0].data.graph.label(units[0]),
        stays=tuple(Stay(s.target.key, s.cause) for s in _segments(sides, numbers)),
    )


def latencies(first: Side, other: Side) -> Comparison:
    """What both sides measured, region by region and target by target.

    Each side is measured under its plan's own conditions; where these differ, so may the
    latencies, and the comparison shows it.
    """
    shared = {unit.signature for unit in first.data.graph.units}
    shared &= {unit.signature for unit in other.data.graph.units}
    return compare(_rows(first, shared), _rows(other, shared), THRESHOLD)


def _rows(side: Side, signatures: set[str]) -> list[Measurement]:
    """Of units that both models have, as if under the same conditions."""
    return [
        dataclasses.replace(m, conditions=Conditions())
        for m in side.data.own_measurements
        if signatures.issuperset(m.members)
    ]


def by_target(comparison: Comparison) -> tuple[TargetChange, ...]:
    """A comparison of latencies in a row for each target, the one that changed most first."""
    rows: defaultdict[str, list[LatencyDifference]] = defaultdict(list)
    for each in comparison.differences:
        if each.ratio is not None:
            rows[each.first.target.key].append(each)
    changes = [
        TargetChange(
            target=key,
            compared=len(every),
            slower=sum(each.verdict is Verdict.SLOWER for each in every),
            faster=sum(each.verdict is Verdict.FASTER for each in every),
            median_ratio=statistics.median(each.ratio or 1.0 for each in every),
        )
        for key, every in rows.items()
    ]
    return tuple(sorted(changes, key=lambda each: -abs(math.log(each.median_ratio))))


def shared_targets(sides: Sequence[Side]) -> tuple[str, ...]:
    """Keys of targets that every side knows."""
    keys = [[t.key for t in all_targets(side.data.cost_model)] for side in sides]
    return tuple(key for key in keys[0] if all(key in rest for rest in keys[1:]))


def refusals(sides: Sequence[Side], columns: Sequence[Column]) -> tuple[Refusal, ...]:
    """What came, went or reads otherwise, on the targets that every side has; targets of the same
    words together."""
    targets = {t.key: t for side in sides for t in all_targets(side.data.cost_model)}
    rows: dict[tuple[int, tuple[str | None, ...]], list[str]] = defaultdict(list)
    for column in columns:
        if not column.everywhere:
            continue
        for key in shared_targets(sides):
            reasons = tuple(
                side.data.cost_model.refusals.get((unit, targets[key]))
                for side, unit in zip(sides, column.units, strict=True)
                if unit is not None
            )
            if len(set(reasons)) > 1 and column.units[0] is not None:
                rows[column.units[0], reasons].append(key)
    graph = sides[0].data.graph
    return tuple(
        Refusal(unit, graph.units[unit].label, tuple(keys), reasons)
        for (unit, reasons), keys in rows.items()
    )


def conditions(sides: Sequence[Side]) -> tuple[Difference, ...]:
    """Of models, devices, drivers, agents and conditions what differs."""
    shared = set(shared_targets(sides))
    return _differing([_conditions(side, shared) for side in sides])


def descriptions(sides: Sequence[Side]) -> tuple[Difference, ...]:
    """Facts of the device's own description that differ."""
    return _differing([dict(device_facts(side.data.device_info)) for side in sides])


def _differing(facts: Sequence[Mapping[str, str]]) -> tuple[Difference, ...]:
    names = dict.fromkeys(name for side in facts for name in side)
    rows = (Difference(name, tuple(side.get(name) for side in facts)) for name in names)
    return tuple(row for row in rows if len(set(row.values)) > 1)


def _conditions(side: Side, shared: set[str]) -> dict[str, str]:
    """``shared`` are the targets of all sides, which need not be told."""
    rows = side.data.own_measurements
    timed = [m for m in rows if m.usable]
    on_cpu = [m for m in timed if m.target == CPU]
    on_nnapi = [m for m in timed if m.target != CPU]
    drivers: defaultdict[str, set[str]] = defaultdict(set)
    for m in rows:
        if m.driver_version and m.target.accelerator != AUTO:  # which names all of them
            drivers[m.target.accelerator or m.target.key].add(m.driver_version)
    run = side.data.run
    foreign = run is not None and run.fingerprint not in {m.fingerprint for m in rows}
    keys = [target.key for target in all_targets(side.data.cost_model)]
    conditions = {
        "model": side.data.model,
        "costs measured on": _device_of_costs(side),
        "latencies": "simulated" if side.simulated else "measured on hardware",
        "precision on NNAPI": _all({m.conditions.precision.value for m in on_nnapi}),
        "NNAPI execution": _all({m.conditions.mode.value for m in on_nnapi}),
        "CPU threads": _all({str(m.threads) for m in on_cpu}),
        "cores asked for": _all({m.conditions.cpus for m in timed}),
        "agent": _all({m.agent_version for m in rows}),
        **{f"driver of {name}": _all(versions) for name, versions in sorted(drivers.items())},
        "targets only here": targets_words([key for key in keys if key not in shared], keys),
        "last measured": max((m.measured_at for m in rows), default="")[:19].replace("T", " "),
        "run at": run.created_at[:19].replace("T", " ") if run else "not run",
        "run on another device": description_parts(run.device)[0] if run and foreign else "",
        "run with": run.conditions if run else "",
    }
    return {name: value for name, value in conditions.items() if value}


def _device_of_costs(side: Side) -> str:
    fingerprints = sorted({m.fingerprint for m in side.data.own_measurements})
    name = dataclasses.replace(side.data, run=None).device_name
    return f"{name} ({', '.join(fingerprints)})" if fingerprints else name


def _all(values: set[str]) -> str:
    return ", ".join(sorted(values))
