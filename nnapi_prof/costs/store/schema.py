"""Tables of the cost store, every column with its unit.

Rows are only ever added, until :mod:`.prune` is asked to delete some. A measurement that is
repeated (``--fresh``) becomes a second row, and readers take the one of each key that was measured
last.
"""

from __future__ import annotations

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

SCHEMA_VERSION = 10
"""Version of the tables below; a database of another version is refused.

The rule: every change of a table or a column raises it by one, and comes with a migration from the
version before, in place and in the transaction that opens the database
(:class:`.database.Database`). Released versions wrote tables from 7 on, and no measurement of
theirs may be lost. A migration is SQL for the tables as they were, not for those of this module,
which go on changing."""

METADATA = MetaData()
IN_BYTES = {"measured_at": 'COLLATE "C"'}
"""PostgreSQL's index of times: as :mod:`.selection` compares them, in every language."""


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
    _column("kind", String(8), "unit, chain, region, plan, beside, anchor or threads"),
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
    _column("beside", String(128), "of kind beside: the target that was busy meanwhile", null=True),
    _column("alone_ns", _LIST, "of kind beside: samples while nothing else ran", null=True),
    _column(
        "cpu_ns", _LIST, "of kind beside: CPU time of the agent in each of alone_ns", null=True
    ),
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
    _column("measured_at", String(32), "UTC, ISO 8601"),
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
