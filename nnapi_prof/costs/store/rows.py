"""Define the tables of the cost store, with the unit of every column, and convert rows.

Rows are only added, until ``costs prune`` deletes some. A repeated measurement (``--fresh``)
becomes a second row; readers take the last measurement of each key.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)

from nnapi_prof.costs import Conditions
from nnapi_prof.costs.measurement import Kind, Measurement, Round, Status
from nnapi_prof.errors import escape_untrusted
from nnapi_prof.graph.plan import Engine, Target, is_target

SCHEMA_VERSION = 11
"""Version of the tables below; a database of another version is refused.

Every change of a table or a column raises it by one, and comes with a migration from the version
before, which runs in place in the transaction that opens the database
(:class:`.database.Database`). Released versions wrote tables from 7 on, and none of their
measurements may be lost. A migration is SQL for the tables as they were then, since the tables of
this module go on changing."""

METADATA = MetaData()
IN_BYTES = {"measured_at": 'COLLATE "C"'}
"""Collation of PostgreSQL's index of times: byte order, which :mod:`.selection` compares by."""


def _column(name: str, kind: Any, comment: str, *, null: bool = False, key: bool = False) -> Any:
    return Column(name, kind, comment=comment, nullable=null, primary_key=key)


_LIST = JSON(none_as_null=True)
_ID = BigInteger().with_variant(Integer, "sqlite")  # SQLite counts up only INTEGER keys

SCHEMA = Table(
    "nnapi_prof_schema",
    METADATA,
    _column("id", Integer, "always 1", key=True),
    _column("version", Integer, "SCHEMA_VERSION of the nnapi-prof that made the tables"),
)

MEASUREMENTS = Table(
    "measurements",
    METADATA,
    _column("id", _ID, "order of arrival", key=True),
    _column("signature", String(96), "region_signature of what was run; of a unit, its own"),
    _column("kind", String(8), "unit, chain, region, plan, corun, anchor or threads"),
    _column("label", Text, "for people: operation and shapes"),
    _column("members", JSON, "signatures of the units, in topological order"),
    _column("offsets", JSON, "places of the members after the first, in the model measured"),
    _column("n_units", Integer, "count of members"),
    _column("n_operations", Integer, "NNAPI operations of the model that was run"),
    _column("target", String(128), "Target.key: cpu, or nnapi:ACCELERATOR/PREFERENCE"),
    _column("precision", String(8), "float32, relaxed or float16"),
    _column("mode", String(8), "of NNAPI: sync, burst, async or pointers"),
    _column("threads", Integer, "threads of the CPU engine"),
    _column("cpus", String(18), "affinity asked for: big, all or a mask in hex"),
    _column("sustained_s", Integer, "seconds that the device had been kept busy before"),
    _column("fingerprint", String(96), "the device: key of the table devices"),
    _column(
        "driver_version", Text, "the accelerator's version; of auto, all of them; of cpu, empty"
    ),
    _column("agent_version", String(64), "version text of the agent"),
    _column("status", String(8), "ok, refused, failed, crashed or timeout"),
    _column("message", Text, "why, where status is not ok", null=True),
    _column("samples_ns", JSON, "ns of wall clock, one per recorded run, in order; raw"),
    _column("hardware_ns", JSON, "ns on the accelerator by the driver, in further runs, or empty"),
    _column("driver_ns", JSON, "ns in the driver in those runs, or empty"),
    _column("copies_ns", _LIST, "ns to copy inputs and outputs, in the samples' order", null=True),
    _column(
        "corunner", String(128), "of kind corun: the target that was busy meanwhile", null=True
    ),
    _column("alone_ns", _LIST, "of kind corun: samples while nothing else ran", null=True),
    _column("cpu_ns", _LIST, "of kind corun: CPU time of the agent in each of alone_ns", null=True),
    _column("rounds", JSON, "in the samples' order: runs, cpu_khz, thermal_mc, throttled, repeats"),
    _column("warmup_runs", Integer, "unrecorded runs before the first round", null=True),
    _column("warm", Boolean, "the runs' times were stable before the first round", null=True),
    _column("cpu_mask", String(18), "affinity kept to, hex", null=True),
    _column("kernels_xnnpack", Integer, "operations of the CPU engine on XNNPACK", null=True),
    _column("kernels_portable", Integer, "operations of the CPU engine on ours", null=True),
    _column("memory", String(8), "of NNAPI's tensors: ashmem, file, memfd or pointers", null=True),
    _column("compile_ns", BigInteger, "ns to compile", null=True),
    _column("first_ns", BigInteger, "ns of the first run of all, warm-up included", null=True),
    _column("input_bytes", BigInteger, "bytes that enter per run"),
    _column("output_bytes", BigInteger, "bytes that leave per run"),
    _column("operation", String(64), "of a unit: NNAPI's name of its main operation", null=True),
    _column("element", String(16), "of a unit: float32, float16, quant8, ...", null=True),
    _column("kernel_class", String(96), "of a unit: operation, window or 1x1, element", null=True),
    _column("macs", BigInteger, "multiply-accumulates; elements written where none", null=True),
    _column("weight_bytes", BigInteger, "of a unit: constants read per run", null=True),
    _column("pixels", BigInteger, "of a unit: height x width x batch of the output", null=True),
    _column("width", Integer, "of a unit: pixels of an output row", null=True),
    _column("in_channels", Integer, "of a unit: of one group", null=True),
    _column("out_channels", Integer, "of a unit", null=True),
    _column("kernel", Integer, "of a unit: height x width of the window", null=True),
    _column("stride", Integer, "of a unit", null=True),
    _column("n_inputs", Integer, "of a unit: tensors read", null=True),
    _column("rank", Integer, "of a unit: the highest of its tensors", null=True),
    _column("simulated", Boolean, "latencies come from a phone description, not from a phone"),
    _column("clock", String(16), "monotonic or simulated"),
    _column("cpu_khz_before", Integer, "kHz of the first core, before", null=True),
    _column("cpu_khz_after", Integer, "kHz of the first core, after", null=True),
    _column("thermal_mc_before", Integer, "thousandths of a degree Celsius, before", null=True),
    _column("thermal_mc_after", Integer, "thousandths of a degree Celsius, after", null=True),
    _column("rss_peak_kb", Integer, "peak resident memory of the action, KiB", null=True),
    _column("skin_mc", Integer, "thousandths of a degree Celsius of the skin, before", null=True),
    _column("battery_percent", Integer, "charge of the battery, before", null=True),
    _column("charging", Boolean, "whether the device was on a charger, before", null=True),
    _column("load_percent", Integer, "share of the CPUs that others kept busy, before", null=True),
    _column("attempts", Integer, "how often it was tried; null where not known", null=True),
    _column("room", Integer, "compilations at once that the driver holds, where fewer", null=True),
    _column(
        "drift_percent", Integer, "how much longer a reference model took about then", null=True
    ),
    _column(
        "measured_at",
        String(32),
        "UTC, ISO 8601; later than that of rows it supersedes",
    ),
    _column("digest", String(64), "of all but what is marked later: no row is there twice"),
    Index("measurements_by_device", "fingerprint", "signature"),
    Index("measurements_by_signature", "signature"),
    Index("measurements_by_time", "measured_at", postgresql_ops=IN_BYTES),
    Index("measurements_by_digest", "digest", unique=True),
)

DEVICES = Table(
    "devices",
    METADATA,
    _column("fingerprint", String(96), "hash that names a device and its software", key=True),
    _column("description", JSON, "what the agent's info said"),
    _column("simulated", Boolean, "a simulated phone"),
    _column("first_seen", String(32), "UTC, ISO 8601"),
)


_MAYBE_LISTS = ("copies_ns", "alone_ns", "cpu_ns")
"""Lists that are None where they are empty: nothing was copied, or ran side by side."""
LISTS = ("members", "offsets", "samples_ns", "hardware_ns", "driver_ns", *_MAYBE_LISTS)
CONTENT = tuple(c.name for c in MEASUREMENTS.columns if c.name not in ("id", "digest"))
"""Columns of the measurement itself; the others only help the database to find a row."""
MARKS = ("drift_percent", "room", "attempts", "copies_ns")
"""Columns that the digest ignores: drift and room are set later; attempts are missing in tables of
schema 7, and copies in those of schema 9."""
_CONDITIONS = ("precision", "mode", "threads", "cpus", "sustained_s")
MAX_NS = 10**16
"""Longest possible latency: 116 days."""
_TIMES = ("compile_ns", "first_ns")
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(
        ("signature", "kind", "label", "target", "precision", "mode", "cpus", "fingerprint",
         "driver_version", "agent_version", "status", "clock", "measured_at"), str),
    **dict.fromkeys(
        ("n_units", "n_operations", "threads", "sustained_s", "input_bytes", "output_bytes"), int),
    "message": (str, type(None)),
    "memory": (str, type(None)),
    "corunner": (str, type(None)),
    "cpu_mask": (str, type(None)),
}  # fmt: skip
SHOWN = ("label", "message", "driver_version", "agent_version", "memory", "cpu_mask", "clock")
"""Columns with texts from drivers and devices."""
_FIELDS = tuple(
    f.name for f in dataclasses.fields(Measurement) if f.name not in ("conditions", "rounds")
)


@dataclass(frozen=True)
class DeviceRow:
    """Device that was measured; ``description`` is the info that its agent reported."""

    fingerprint: str
    description: Mapping[str, Any]
    simulated: bool
    first_seen: str


def to_row(m: Measurement, now: str) -> dict[str, Any]:
    """Returns a measurement as a row without its id; ``now`` is its time if it has none."""
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
        corunner=None if m.corunner is None else m.corunner.key,
        status=m.status.value,
        message=_storable(m.message),
        n_units=m.n_units,
        measured_at=m.measured_at or now,
    )
    row["digest"] = digest(row)
    return row


def from_row(row: Mapping[str, Any]) -> Measurement:
    """Converts a row to a measurement. Raises ValueError, KeyError or TypeError if that fails."""
    fields: dict[str, Any] = {name: row[name] for name in _FIELDS}
    for name in LISTS:
        fields[name] = tuple(fields[name] or ())
    fields["conditions"] = Conditions.from_json({name: row[name] for name in _CONDITIONS})
    fields["rounds"] = rounds_of(row)
    fields["kind"] = Kind(fields["kind"])
    fields["target"] = Target(fields["target"])
    fields["corunner"] = None if fields["corunner"] is None else Target(fields["corunner"])
    fields["status"] = Status(fields["status"])
    return Measurement(**fields)


def escape_texts(measurement: Measurement) -> Measurement:
    """Escapes control characters, which tables of older versions contain as drivers sent them."""
    words = {name: getattr(measurement, name) or "" for name in SHOWN}
    bad: dict[str, Any] = {
        name: escape_untrusted(text, 2000) for name, text in words.items() if not text.isprintable()
    }
    return dataclasses.replace(measurement, **bad) if bad else measurement


class InvalidRow(ValueError):
    """Row with a value that no row of the table can have; its text is the end of a sentence."""


def validate_row(row: Mapping[str, Any]) -> Measurement:
    """Returns a row as a measurement, without escaping drivers' texts (:func:`escape_texts`).

    Anyone may have written the table: an older nnapi-prof believed what phones reported, and other
    programs may write anything. The checks here are those that later code relies on. Raises
    InvalidRow.
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
    if row["corunner"] is not None and not is_target(row["corunner"]):
        return f"corunner is {_shown(row['corunner'])}"
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
    if not _is_time(row["measured_at"]):
        return f"measured_at is {_shown(row['measured_at'])}"
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
    """Returns the SHA-256, in hex, of a row's content, which is the same in every cost table.

    A column and a kind that were renamed (schema 11) have their old names here, so that the digests
    of older rows stay."""
    content = {name: row[name] for name in CONTENT if name not in MARKS}
    content["beside"] = content.pop("corunner")
    if content["kind"] == Kind.CORUN.value:
        content["kind"] = "beside"
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def utc_now() -> str:
    """Returns the time in microseconds, so that two measurements of the same thing differ."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def time_after(earlier: str | None) -> str:
    """Returns the time now, or a microsecond after ``earlier`` where the clock is not past that."""
    now = utc_now()
    if earlier is None or earlier < now or not _is_time(earlier):
        return now
    moment = datetime.fromisoformat(earlier)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (moment + timedelta(microseconds=1)).isoformat(timespec="microseconds")


def _is_time(text: str) -> bool:
    """Returns whether a text is an ISO 8601 time that is not in the last possible year."""
    try:
        return datetime.fromisoformat(text).year < datetime.max.year
    except ValueError:
        return False


def _storable(text: str | None) -> str | None:
    """Replaces what drivers send, but PostgreSQL cannot store: NUL, halves of surrogate pairs."""
    if text is None:
        return None
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
