"""The devices of a cost table: what they are called, and what was measured on each."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from nnapi_prof.costs.store import CostStore, Tally
from nnapi_prof.costs.store.rows import DeviceRow
from nnapi_prof.errors import UsageError


@dataclass(frozen=True)
class NamedDevice:
    """A device of the table, as people call it."""

    fingerprint: str
    name: str


@dataclass(frozen=True)
class Measured(NamedDevice):
    """A device and how much was measured on it."""

    simulated: bool
    rows: int
    kinds: Mapping[str, int]
    statuses: Mapping[str, int]
    targets: tuple[str, ...]
    first: str
    """UTC, ISO 8601: the first measurement's time."""
    last: str


def name_of(device: DeviceRow | None) -> str:
    """In two or three words, as phones name themselves; ``unknown`` of a table without it."""
    if device is None:
        return "unknown"
    description: Mapping[str, Any] = device.description
    properties = description.get("properties") or {}
    parts = [properties.get(f"ro.product.{part}") for part in ("manufacturer", "model")]
    name = (
        " ".join(part for part in parts if part)
        or description.get("phone")
        or _machine(description)
    )
    return f"{name} (simulated)" if device.simulated and "simulated" not in name else str(name)


def _machine(description: Mapping[str, Any]) -> str:
    return f"{description.get('os', 'some')} machine, {description.get('abi', 'unknown')}"


D = TypeVar("D", bound=NamedDevice)
_MOST_LISTED = 20
"""Devices that a message names."""


def named(store: CostStore) -> list[NamedDevice]:
    """Every device with rows, in order of first sight: its rows are not counted, which of millions
    takes seconds."""
    there = set(store.fingerprints())
    devices = {row.fingerprint: name_of(row) for row in store.devices() if row.fingerprint in there}
    devices |= dict.fromkeys(sorted(there - devices.keys()), name_of(None))
    return [NamedDevice(*each) for each in devices.items()]


def measured(store: CostStore) -> list[Measured]:
    """Every device with rows, the one measured last at the end."""
    rows_by_name = {device.fingerprint: device for device in store.devices()}
    devices = []
    tallies: dict[str, list[Tally]] = {}
    for tally in store.tally():
        tallies.setdefault(tally.fingerprint, []).append(tally)
    for fingerprint, parts in tallies.items():
        kinds: Counter[str] = Counter()
        statuses: Counter[str] = Counter()
        for part in parts:
            kinds[part.kind] += part.rows
            statuses[part.status] += part.rows
        devices.append(
            Measured(
                fingerprint=fingerprint,
                name=name_of(rows_by_name.get(fingerprint)),
                simulated=any(part.simulated for part in parts),
                rows=kinds.total(),
                kinds=dict(kinds),
                statuses=dict(statuses),
                targets=tuple(sorted({part.target for part in parts})),
                first=min(part.first for part in parts),
                last=max(part.last for part in parts),
            )
        )
    return sorted(devices, key=lambda each: each.last)


def find(devices: Sequence[D], words: str) -> list[D]:
    """Those whose fingerprint begins with ``words``, or whose name fits them as a pattern.

    Raises UsageError where there is none.
    """
    pattern = words.lower()
    matches = [
        each
        for each in devices
        if each.fingerprint.startswith(pattern)
        or fnmatch.fnmatchcase(each.name.lower(), pattern)
        or fnmatch.fnmatchcase(each.name.lower().removesuffix(" (simulated)"), pattern)
    ]
    if not matches:
        there = listed(devices) or "none"
        raise UsageError(
            f"no device of the cost table is called {words!r}; there are: {there}; "
            "`nnapi-prof costs list` shows them"
        )
    return matches


def find_one(devices: Sequence[D], words: str) -> D:
    """Finds the one device that :func:`find` finds; raises UsageError where there are several,
    too."""
    matches = find(devices, words)
    if len(matches) > 1:
        raise UsageError(
            f"{words!r} may be any of {listed(matches)}", "name one by its fingerprint"
        )
    return matches[0]


def listed(devices: Sequence[NamedDevice]) -> str:
    """In a sentence, of many the first."""
    words = [f"{each.fingerprint} ({each.name})" for each in devices[:_MOST_LISTED]]
    more = len(devices) - len(words)
    return ", ".join([*words, *([f"{more} more"] if more else [])])
