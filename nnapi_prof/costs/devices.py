"""The devices of a cost table: what they are called, and what was measured on each."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nnapi_prof.costs.frame import frame
from nnapi_prof.costs.store import CostStore, DeviceRow
from nnapi_prof.errors import UsageError


@dataclass(frozen=True)
class Measured:
    """A device and how much was measured on it."""

    fingerprint: str
    name: str
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
    said: Mapping[str, Any] = device.description
    properties = said.get("properties") or {}
    parts = [properties.get(f"ro.product.{part}") for part in ("manufacturer", "model")]
    name = " ".join(part for part in parts if part) or said.get("phone") or _machine(said)
    return f"{name} (simulated)" if device.simulated else str(name)


def _machine(said: Mapping[str, Any]) -> str:
    return f"{said.get('os', 'some')} machine, {said.get('abi', 'unknown')}"


def measured(store: CostStore) -> list[Measured]:
    """Every device with rows, the one measured last at the end."""
    known = {device.fingerprint: device for device in store.devices()}
    found = []
    for fingerprint, rows in frame(store).groupby("fingerprint", sort=False):
        times = sorted(rows.measured_at)
        found.append(
            Measured(
                fingerprint=str(fingerprint),
                name=name_of(known.get(str(fingerprint))),
                simulated=bool(rows.simulated.any()),
                rows=len(rows),
                kinds=dict(Counter(rows.kind)),
                statuses=dict(Counter(rows.status)),
                targets=tuple(sorted(set(rows.target))),
                first=times[0],
                last=times[-1],
            )
        )
    return sorted(found, key=lambda each: each.last)


def find(devices: list[Measured], words: str) -> list[Measured]:
    """Those whose fingerprint begins with ``words``, or whose name fits them as a pattern.

    Raises UsageError where there is none.
    """
    pattern = words.lower()
    found = [
        each
        for each in devices
        if each.fingerprint.startswith(pattern)
        or fnmatch.fnmatchcase(each.name.lower(), pattern)
        or fnmatch.fnmatchcase(each.name.lower().removesuffix(" (simulated)"), pattern)
    ]
    if not found:
        there = ", ".join(f"{each.fingerprint} ({each.name})" for each in devices) or "none"
        raise UsageError(
            f"no device of the cost table is called {words!r}; there are: {there}; "
            "`nnapi-prof costs list` shows them"
        )
    return found


def find_one(devices: list[Measured], words: str) -> Measured:
    """As :func:`find`; raises UsageError where there are several, too."""
    found = find(devices, words)
    if len(found) > 1:
        names = ", ".join(f"{each.fingerprint} ({each.name})" for each in found)
        raise UsageError(f"{words!r} may be any of {names}: name one by its fingerprint")
    return found[0]
