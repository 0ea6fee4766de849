"""Whether rows that others wrote are rows of a cost table: every refusal names the column."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, Boolean, Integer, String

from nnapi_prof.costs.conditions import Mode, Precision, parse_cpus
from nnapi_prof.costs.measurement import Kind, Status
from nnapi_prof.costs.rows import CONTENT, LISTS, MAX_NS, TARGET, from_row
from nnapi_prof.costs.schema import MEASUREMENTS
from nnapi_prof.costs.store import DeviceRow

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


def checked(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row as the table takes it, without id and digest. Raises BadCell.

    Columns that may be empty may be missing. A number that is whole may be floating: pandas and
    spreadsheets make such where a column has gaps.
    """
    found: dict[str, Any] = {}
    for name in CONTENT:
        column = MEASUREMENTS.c[name]
        value = row.get(name)
        if isinstance(value, float) and math.isnan(value):
            value = None
        try:
            if value is None and not column.nullable:
                raise ValueError("is empty" if name in row else "is missing")
            found[name] = None if value is None else _cell(name, value)
        except (ValueError, TypeError, KeyError) as error:
            raise BadCell(name, str(error)) from error
    if found["n_units"] != len(found["members"]):
        raise BadCell("n_units", f"{found['n_units']} for {len(found['members'])} members")
    from_row(found)
    return found


def checked_device(fingerprint: str, text: str) -> DeviceRow:
    """Of the column ``device_info``. Raises BadCell."""
    try:
        data = json.loads(text)
        description, simulated = data["description"], data["simulated"]
        if not isinstance(description, dict) or not isinstance(simulated, bool):
            raise ValueError("no description")
        return DeviceRow(fingerprint, description, simulated, _time(data["first_seen"]))
    except (ValueError, TypeError, KeyError) as error:
        words = f"{_shown(text)} is no JSON object of description, simulated and first_seen"
        raise BadCell("device_info", words) from error


def _cell(name: str, value: Any) -> Any:
    kind = MEASUREMENTS.c[name].type
    if name == "rounds":
        return [_round(each) for each in _list(value)]
    if name in LISTS:
        wanted = _text if name == "members" else _time_ns if name.endswith("_ns") else _whole
        return [wanted(each) for each in _list(value)]
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
        raise ValueError(f"{_shown(text)} is longer than {length} characters")
    return _SPECIAL[name](text) if name in _SPECIAL else text


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{_shown(value)} is no text")
    if "\0" in value:
        raise ValueError(f"{_shown(value)} has a NUL, which databases cannot keep")
    return value


def _whole(value: Any, limit: int = _INT64) -> int:
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{_shown(value)} is no whole number")
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
        raise ValueError(f"{_shown(value)} is neither true nor false")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{_shown(value)} is no list")
    return value


def _round(value: Any) -> dict[str, Any]:
    """As :meth:`Round.to_json` writes it."""
    if not isinstance(value, dict) or set(value) != _ROUND:
        raise ValueError(f"{_shown(value)} is no object of {', '.join(sorted(_ROUND))}")
    pairs = {name: [_maybe(_whole, each) for each in _list(value[name])] for name in _PAIRS}
    if any(len(pair) != 2 for pair in pairs.values()):
        raise ValueError(f"{_shown(value)} is not of one value before and one after")
    throttled, repeats = _maybe(_truth, value["throttled"]), _maybe(_whole, value["repeats"])
    runs = _whole(value["runs"])
    return {"runs": runs, **pairs, "throttled": throttled, "repeats": repeats}


_PAIRS = ("cpu_khz", "thermal_mc")


def _maybe(wanted: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else wanted(value)


def _one_of(*words: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if text not in words:
            raise ValueError(f"{_shown(text)} is none of {', '.join(words)}")
        return text

    return check


def _target(text: str) -> str:
    if not TARGET.fullmatch(text):
        raise ValueError(f"{_shown(text)} is none of cpu, host, nnapi:ACCELERATOR/PREFERENCE")
    return text


def _time(text: Any) -> str:
    try:
        moment = datetime.fromisoformat(_text(text))
    except ValueError as error:
        raise ValueError(f"{_shown(text)} is no time in ISO 8601") from error
    if moment.utcoffset() != timedelta(0):
        raise ValueError(f"{_shown(text)} is not in UTC (+00:00)")
    return str(text)


def _filled(text: str) -> str:
    if not text:
        raise ValueError("is empty")
    return text


_SPECIAL: Mapping[str, Callable[[str], str]] = {
    "kind": _one_of(*(kind.value for kind in Kind)),
    "status": _one_of(*(status.value for status in Status)),
    "precision": _one_of(*(precision.value for precision in Precision)),
    "mode": _one_of(*(mode.value for mode in Mode)),
    "target": _target,
    "cpus": parse_cpus,
    "measured_at": _time,
    "signature": _filled,
    "fingerprint": _filled,
}


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
