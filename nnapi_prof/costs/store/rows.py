"""A measurement as a row of the table ``measurements`` and back."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from nnapi_prof.costs.conditions import Conditions
from nnapi_prof.costs.measurement import Kind, Measurement, Status
from nnapi_prof.costs.samples import Round
from nnapi_prof.costs.store.schema import MEASUREMENTS
from nnapi_prof.errors import escape_untrusted
from nnapi_prof.graph.plan import Engine, Target, is_target

_MAYBE_LISTS = ("copies_ns", "alone_ns", "cpu_ns")
"""None where they are empty: nothing was copied, or it did not run side by side."""
LISTS = ("members", "offsets", "samples_ns", "hardware_ns", "driver_ns", *_MAYBE_LISTS)
CONTENT = tuple(c.name for c in MEASUREMENTS.columns if c.name not in ("id", "digest"))
"""Columns that say something; the others are how the database finds a row."""
MARKS = ("drift_percent", "room", "attempts", "copies_ns")
"""Columns that do not tell one row from another: drift and room are marked later, tables of schema
7 did not know attempts, nor those of 9 copies."""
_CONDITIONS = ("precision", "mode", "threads", "cpus", "sustained_s")
MAX_NS = 10**16
"""116 days: no latency is longer."""
_TIMES = ("compile_ns", "first_ns")
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(
        ("signature", "kind", "label", "target", "precision", "mode", "cpus", "fingerprint",
         "driver_version", "agent_version", "status", "clock", "measured_at"), str),
    **dict.fromkeys(
        ("n_units", "n_operations", "threads", "sustained_s", "input_bytes", "output_bytes"), int),
    "message": (str, type(None)),
    "memory": (str, type(None)),
    "beside": (str, type(None)),
    "cpu_mask": (str, type(None)),
}  # fmt: skip
SHOWN = ("label", "message", "driver_version", "agent_version", "memory", "cpu_mask", "clock")
"""Columns of texts that drivers and devices say."""
_FIELDS = tuple(
    f.name for f in dataclasses.fields(Measurement) if f.name not in ("conditions", "rounds")
)


@dataclass(frozen=True)
class DeviceRow:
    """A device that was measured. ``description`` is what its agent's info said."""

    fingerprint: str
    description: Mapping[str, Any]
    simulated: bool
    first_seen: str


def to_row(m: Measurement, now: str) -> dict[str, Any]:
    """Everything but the id; ``now`` is the time of what was measured at no stated one."""
    row: dict[str, Any] = {name: getattr(m, name) for name in _FIELDS}
    row |= m.conditions.to_json()
    row["rounds"] = [each.to_json() for each in m.rounds]
    for name in LISTS:
        row[name] = list(row[name])
    for name in _MAYBE_LISTS:
        row[name] = row[name] or None
    row.update(
        kind=m.kind.value,
        target=m.target.key,
        beside=None if m.beside is None else m.beside.key,
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
        fields[name] = tuple(fields[name] or ())
    fields["conditions"] = Conditions.from_json({name: row[name] for name in _CONDITIONS})
    fields["rounds"] = rounds_of(row)
    fields["kind"] = Kind(fields["kind"])
    fields["target"] = Target(fields["target"])
    fields["beside"] = None if fields["beside"] is None else Target(fields["beside"])
    fields["status"] = Status(fields["status"])
    return Measurement(**fields)


def escape_texts(measurement: Measurement) -> Measurement:
    """With control characters made visible, which tables of older versions have as drivers said
    them."""
    words = {name: getattr(measurement, name) or "" for name in SHOWN}
    bad: dict[str, Any] = {
        name: escape_untrusted(text, 2000) for name, text in words.items() if not text.isprintable()
    }
    return dataclasses.replace(measurement, **bad) if bad else measurement


class InvalidRow(ValueError):
    """A value that no row of the table can have, as the end of a sentence."""


def validate_row(row: Mapping[str, Any]) -> Measurement:
    """The row as a measurement, with what drivers said as they said it (:func:`escape_texts`).

    A table is read whoever wrote into it: an older nnapi-prof believed what phones said, and other
    programs may write what they like. The few checks are those on which everything later relies.
    Raises InvalidRow.
    """
    why = _row_error(row)
    if why is not None:
        raise InvalidRow(why)
    try:
        measurement = from_row(row)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidRow(escape_untrusted(str(error), 100)) from error
    for each in measurement.rounds:
        if not _is_number(each.runs, 0, MAX_NS):
            raise InvalidRow(f"rounds has {_shown(each.runs)} runs")
    return measurement


def _row_error(row: Mapping[str, Any]) -> str | None:
    for name, kinds in _KINDS.items():
        if not isinstance(row[name], kinds):
            return f"{name} is {_shown(row[name])}"
    if not is_target(row["target"]):
        return f"target is {_shown(row['target'])}"
    if Target(row["target"]).engine is Engine.QNN:
        return f"target is {_shown(row['target'])}: a simulator's estimate is no measurement"
    if row["beside"] is not None and not is_target(row["beside"]):
        return f"beside is {_shown(row['beside'])}"
    for name in _TIMES:
        value = row[name]
        if value is not None and not _is_number(value, 0, MAX_NS):
            return f"{name} is {_shown(value)}"
    for name in LISTS:
        values = row[name]
        if values is None and name in _MAYBE_LISTS:
            continue
        if not isinstance(values, list):
            return f"{name} is {_shown(values)}"
        if not values:
            continue
        kind = str if name == "members" else int
        if set(map(type, values)) != {kind}:
            return f"{name} has {_shown(next(v for v in values if type(v) is not kind))}"
        if name.endswith("_ns") and not (min(values) >= 0 and max(values) <= MAX_NS):
            return f"{name} has {_shown(min(values) if min(values) < 0 else max(values))}"
    if not isinstance(row["rounds"], list):
        return f"rounds is {_shown(row['rounds'])}"
    return None


def _is_number(value: object, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def _shown(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 200:
        return f"a number of {value.bit_length()} bits"
    return escape_untrusted(repr(value), 60)


def rounds_of(row: Mapping[str, Any]) -> tuple[Round, ...]:
    return tuple(Round.from_json(each) for each in row["rounds"])


def digest(row: Mapping[str, Any]) -> str:
    """SHA-256, in hex, of all a row says: the same for the same measurement, wherever it went."""
    content = {name: row[name] for name in CONTENT if name not in MARKS}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def utc_now() -> str:
    """Fine enough that what is measured twice is two measurements."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _storable(text: str | None) -> str | None:
    """Without what PostgreSQL cannot keep: NUL, and halves of surrogate pairs. Drivers say both."""
    if text is None:
        return None
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
