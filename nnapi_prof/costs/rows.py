"""A measurement as a row of the table ``measurements`` and back, and what tells two rows apart."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from nnapi_prof.costs.conditions import Conditions
from nnapi_prof.costs.measurement import Kind, Measurement, Status
from nnapi_prof.costs.rounds import Round
from nnapi_prof.costs.schema import MEASUREMENTS
from nnapi_prof.graph.plan import Target

LISTS = ("members", "offsets", "samples_ns", "hardware_ns", "driver_ns")
CONTENT = tuple(c.name for c in MEASUREMENTS.columns if c.name not in ("id", "digest"))
"""Columns that say something; the others are how the database finds a row."""
_CONDITIONS = ("precision", "mode", "threads", "cpus")
_FIELDS = tuple(
    f.name for f in dataclasses.fields(Measurement) if f.name not in ("conditions", "rounds")
)


def to_row(m: Measurement, now: str) -> dict[str, Any]:
    """Everything but the id; ``now`` is the time of what was measured at no stated one."""
    row: dict[str, Any] = {name: getattr(m, name) for name in _FIELDS}
    row |= m.conditions.to_json()
    row["rounds"] = [each.to_json() for each in m.rounds]
    for name in LISTS:
        row[name] = list(row[name])
    row.update(
        kind=m.kind.value,
        target=m.target.key,
        status=m.status.value,
        message=_storable(m.message),
        n_units=m.n_units,
        measured_at=m.measured_at or now,
    )
    row["digest"] = digest(row)
    return row


def from_row(row: Mapping[str, Any]) -> Measurement:
    """Raises ValueError, KeyError or TypeError where a row is none of ours."""
    fields: dict[str, Any] = {name: row[name] for name in _FIELDS}
    for name in LISTS:
        fields[name] = tuple(fields[name])
    fields["conditions"] = Conditions.from_json({name: row[name] for name in _CONDITIONS})
    fields["rounds"] = rounds_of(row)
    fields["kind"] = Kind(fields["kind"])
    fields["target"] = Target(fields["target"])
    fields["status"] = Status(fields["status"])
    return Measurement(**fields)


def rounds_of(row: Mapping[str, Any]) -> tuple[Round, ...]:
    return tuple(Round.from_json(each) for each in row["rounds"])


def digest(row: Mapping[str, Any]) -> str:
    """SHA-256, in hex, of all a row says: the same for the same measurement, wherever it went."""
    said = {name: row[name] for name in CONTENT}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def utc_now() -> str:
    """Fine enough that what is measured twice is two measurements."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _storable(text: str | None) -> str | None:
    """Without what PostgreSQL cannot keep: NUL, and halves of surrogate pairs. Drivers say both."""
    if text is None:
        return None
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
