"""A measurement as a row of the table ``measurements`` and back, and checks of others' rows."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, Boolean, Integer, String

from nnapi_prof.costs.conditions import CONDITIONAL, Conditions, Mode, parse_cpus
from nnapi_prof.costs.measurement import Kind, Measurement, Round, Status
from nnapi_prof.costs.store.schema import MEASUREMENTS
from nnapi_prof.errors import visible
from nnapi_prof.graph.plan import TARGET_SPELLINGS, Target, is_target

LISTS = ("members", "offsets", "samples_ns", "hardware_ns", "driver_ns", "alone_ns", "cpu_ns")
_MAYBE_LISTS = ("alone_ns", "cpu_ns")
"""None where they are empty: those of what did not run side by side."""
CONTENT = tuple(c.name for c in MEASUREMENTS.columns if c.name not in ("id", "digest"))
"""Columns that say something; the others are how the database finds a row."""
MARKS = ("drift_percent",)
"""Columns that a row gets later, which is the same row then."""
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
_SHOWN = ("label", "message", "driver_version", "agent_version", "memory", "cpu_mask", "clock")
_FIELDS = tuple(
    f.name
    for f in dataclasses.fields(Measurement)
    if f.name not in ("conditions", "rounds", "statistic")
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


def shown(measurement: Measurement) -> Measurement:
    """With control characters made visible, which tables of older versions have as drivers said
    them."""
    words = {name: getattr(measurement, name) or "" for name in _SHOWN}
    bad: dict[str, Any] = {
        name: visible(text, 2000) for name, text in words.items() if not text.isprintable()
    }
    return dataclasses.replace(measurement, **bad) if bad else measurement


class Impossible(ValueError):
    """What cannot be in a row that the table has, as the end of a sentence."""


def possible(row: Mapping[str, Any]) -> Measurement:
    """The row as a measurement, with what drivers said as they said it (:func:`shown`).

    A table is read whoever wrote into it: an older nnapi-prof believed what phones said, and other
    programs may write what they like. The few checks are those on which everything later relies.
    Raises Impossible.
    """
    why = _impossible(row)
    if why is not None:
        raise Impossible(why)
    try:
        measurement = from_row(row)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Impossible(visible(str(error), 100)) from error
    for each in measurement.rounds:
        if not _is_number(each.runs, 0, MAX_NS):
            raise Impossible(f"rounds has {_shown(each.runs)} runs")
    return measurement


def _impossible(row: Mapping[str, Any]) -> str | None:
    for name, kinds in _KINDS.items():
        if not isinstance(row[name], kinds):
            return f"{name} is {_shown(row[name])}"
    if not is_target(row["target"]):
        return f"target is {_shown(row['target'])}"
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
    return visible(repr(value), 60)


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


# ---- rows that others wrote: every refusal names the column --------------------------------------


_INT64 = 1 << 63
_INT32 = 1 << 31
_EXACT = 1 << 53  # whole numbers up to here are exact as floating-point numbers
_ROUND = {"runs", "cpu_khz", "thermal_mc", "throttled", "repeats"}
_COUNTS = ("n_units", "n_operations", "input_bytes", "output_bytes")


class BadCell(ValueError):
    """A cell that cannot be; ``column`` names it."""

    def __init__(self, column: str, words: str) -> None:
        super().__init__(words)
        self.column = column


_ABSENT = {"sustained_s": 0}
"""What columns say where a file is older than they are."""


def checked(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row as the table takes it, without id and digest. Raises BadCell.

    Columns that may be empty may be missing. A number that is whole may be floating: pandas and
    spreadsheets make such where a column has gaps.
    """
    values: dict[str, Any] = {}
    for name in CONTENT:
        column = MEASUREMENTS.c[name]
        value = row.get(name, _ABSENT.get(name))
        if isinstance(value, float) and math.isnan(value):
            value = None
        try:
            if value is None and not column.nullable:
                raise ValueError("is empty" if name in row else "is missing")
            values[name] = None if value is None else _cell(name, value)
        except (ValueError, TypeError, KeyError) as error:
            raise BadCell(name, str(error)) from error
    if values["n_units"] != len(values["members"]):
        raise BadCell("n_units", f"{values['n_units']} for {len(values['members'])} members")
    from_row(values)
    return values


def checked_device(fingerprint: str, text: str) -> DeviceRow:
    """Of the column ``device_info``. Raises BadCell."""
    try:
        data = json.loads(text)
        description, simulated = data["description"], data["simulated"]
        if not isinstance(description, dict) or not isinstance(simulated, bool):
            raise ValueError("no description")
        return DeviceRow(fingerprint, description, simulated, _time(data["first_seen"]))
    except (ValueError, TypeError, KeyError) as error:
        words = f"{_cell_words(text)} is not a JSON object of description, simulated and first_seen"
        raise BadCell("device_info", words) from error


def _cell(name: str, value: Any) -> Any:
    kind = MEASUREMENTS.c[name].type
    if name == "rounds":
        return [_round(each) for each in _list(value)]
    if name in LISTS:
        check = _text if name == "members" else _time_ns if name.endswith("_ns") else _whole
        return [check(each) for each in _list(value)]
    if isinstance(kind, Boolean):
        return _truth(value)
    if isinstance(kind, Integer):
        number = _whole(value, _INT64 if isinstance(kind, BigInteger) else _INT32)
        if name.endswith("_ns"):
            return _time_ns(number)
        if number < (1 if name == "threads" else 0 if name in _COUNTS else -_INT64):
            raise ValueError(f"{number} is too small")
        return number
    text = _text(value)
    length = kind.length if isinstance(kind, String) else None
    if length is not None and len(text) > length:
        raise ValueError(f"{_cell_words(text)} is longer than {length} characters")
    return _SPECIAL[name](text) if name in _SPECIAL else text


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{_cell_words(value)} is not text")
    if "\0" in value:
        raise ValueError(f"{_cell_words(value)} has a NUL, which databases cannot keep")
    return value


def _whole(value: Any, limit: int = _INT64) -> int:
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{_cell_words(value)} is not a whole number")
    if not -limit <= value < limit:
        raise ValueError(f"{value} does not fit {limit.bit_length()} bits")
    return value


def _time_ns(value: Any) -> int:
    number = _whole(value)
    if not 0 <= number <= MAX_NS:
        raise ValueError(f"{number} ns cannot be")
    return number


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{_cell_words(value)} is neither true nor false")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{_cell_words(value)} is not a list")
    return value


def _round(value: Any) -> dict[str, Any]:
    """As :meth:`Round.to_json` writes it."""
    if not isinstance(value, dict) or set(value) != _ROUND:
        raise ValueError(f"{_cell_words(value)} is not an object of {', '.join(sorted(_ROUND))}")
    pairs = {name: [_maybe(_whole, each) for each in _list(value[name])] for name in _PAIRS}
    if any(len(pair) != 2 for pair in pairs.values()):
        raise ValueError(f"{_cell_words(value)} is not of one value before and one after")
    throttled, repeats = _maybe(_truth, value["throttled"]), _maybe(_whole, value["repeats"])
    runs = _whole(value["runs"])
    return {"runs": runs, **pairs, "throttled": throttled, "repeats": repeats}


_PAIRS = ("cpu_khz", "thermal_mc")


def _maybe(check: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else check(value)


def _one_of(*words: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if text not in words:
            raise ValueError(f"{_cell_words(text)} is none of {', '.join(words)}")
        return text

    return check


def _target(text: str) -> str:
    if not is_target(text):
        raise ValueError(f"{_cell_words(text)} is none of {', '.join(TARGET_SPELLINGS)}")
    return text


def _time(text: Any) -> str:
    try:
        moment = datetime.fromisoformat(_text(text))
    except ValueError as error:
        raise ValueError(f"{_cell_words(text)} is not a time in ISO 8601") from error
    if moment.utcoffset() != timedelta(0):
        raise ValueError(f"{_cell_words(text)} is not in UTC (+00:00)")
    return str(text)


def _filled(text: str) -> str:
    if not text:
        raise ValueError("is empty")
    return text


_SPECIAL: Mapping[str, Callable[[str], str]] = {
    "kind": _one_of(*(kind.value for kind in Kind)),
    "status": _one_of(*(status.value for status in Status)),
    "precision": _one_of(*(precision.value for precision in CONDITIONAL)),
    "mode": _one_of(*(mode.value for mode in Mode)),
    "target": _target,
    "beside": _target,
    "cpus": parse_cpus,
    "measured_at": _time,
    "signature": _filled,
    "fingerprint": _filled,
}


def _cell_words(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
