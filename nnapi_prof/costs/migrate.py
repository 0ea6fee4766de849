"""Databases of older versions become those of this one, in place.

A migration takes the tables from one version of the schema to the next. It is written in SQL as it
was, not with the tables of :mod:`nnapi_prof.costs.schema`, which go on changing. All of them run
in the one transaction of :meth:`.database.Database.prepare`: all or nothing, and alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, delete, select, text, update

from nnapi_prof.costs.measurement import work_columns
from nnapi_prof.costs.rows import digest
from nnapi_prof.costs.schema import MEASUREMENTS, SCHEMA
from nnapi_prof.costs.static_label import unit_work

_ROWS_PER_STEP = 1000

_ADDED_2 = (
    "precision VARCHAR(8) NOT NULL DEFAULT 'float32'",
    "mode VARCHAR(8) NOT NULL DEFAULT 'sync'",
    # Affinity was left to the system.
    "cpus VARCHAR(18) NOT NULL DEFAULT 'all'",
    "rounds JSON NOT NULL DEFAULT '[]'",
    "warmup_runs INTEGER",
    "warm BOOLEAN",
    "cpu_mask VARCHAR(18)",
    "kernels_xnnpack INTEGER",
    "kernels_portable INTEGER",
    "memory VARCHAR(8)",
)


def _to_2(connection: Connection) -> None:
    """Rounds, precision and mode in place of two truth values, affinity, kernels."""
    for column in _ADDED_2:
        connection.exec_driver_sql(f"ALTER TABLE measurements ADD COLUMN {column}")
    connection.exec_driver_sql("UPDATE measurements SET precision = 'relaxed' WHERE relaxed")
    connection.exec_driver_sql("UPDATE measurements SET mode = 'burst' WHERE burst")
    for column in ("relaxed", "burst"):
        connection.exec_driver_sql(f"ALTER TABLE measurements DROP COLUMN {column}")


def _to_3(connection: Connection) -> None:
    """A digest, which keeps a row from being there twice; :func:`migrate` sets it."""
    connection.exec_driver_sql(
        "ALTER TABLE measurements ADD COLUMN digest VARCHAR(64) NOT NULL DEFAULT ''"
    )


_ADDED_4 = (
    "operation VARCHAR(64)",
    "element VARCHAR(16)",
    "kernel_class VARCHAR(96)",
    "macs BIGINT",
    "weight_bytes BIGINT",
    "pixels BIGINT",
    *(f"{name} INTEGER" for name in ("width", "in_channels", "out_channels", "kernel")),
    *(f"{name} INTEGER" for name in ("stride", "n_inputs", "rank")),
)


def _to_4(connection: Connection) -> None:
    """The work of units in columns: until then it was read out of their labels, which is done here
    for the last time."""
    for column in _ADDED_4:
        connection.exec_driver_sql(f"ALTER TABLE measurements ADD COLUMN {column}")
    rows = connection.execute(
        text(
            "SELECT DISTINCT signature, label, input_bytes, output_bytes FROM measurements"
            " WHERE kind = 'unit'"
        )
    )
    found = [
        {
            "s": row.signature,
            "l": row.label,
            "i": row.input_bytes,
            "o": row.output_bytes,
            **_fitting(work_columns([unit_work(row.label, row.input_bytes, row.output_bytes)])),
        }
        for row in rows
    ]
    if not found:
        return
    names = [column.split()[0] for column in _ADDED_4]
    sets = ", ".join(f"{name} = :{name}" for name in names)
    same = "signature = :s AND label = :l AND input_bytes = :i AND output_bytes = :o"
    connection.execute(
        text(f"UPDATE measurements SET {sets} WHERE kind = 'unit' AND {same}"), found
    )


def _fitting(columns: dict[str, Any]) -> dict[str, Any]:
    """None throughout where a label of another's making says what no column takes."""
    small = {"operation": 64, "element": 16, "kernel_class": 96}
    long = any(len(columns[name]) > size for name, size in small.items())
    limits = {"macs": 63, "weight_bytes": 63, "pixels": 63}
    large = any(columns[n] >= 1 << limits.get(n, 31) for n in columns if n not in small)
    return dict.fromkeys(columns) if long or large else columns


class Migration(NamedTuple):
    """What makes version ``to`` of version ``to - 1``."""

    to: int
    run: Callable[[Connection], None]


MIGRATIONS = (Migration(2, _to_2), Migration(3, _to_3), Migration(4, _to_4))
"""In order; the last leads to :data:`~nnapi_prof.costs.schema.SCHEMA_VERSION`."""


def migrate(connection: Connection, version: int) -> int:
    """Runs what comes after ``version``, in the caller's transaction; returns the version reached.

    What no migration starts from is left as it is.
    """
    ran = [step for step in MIGRATIONS if step.to > version >= MIGRATIONS[0].to - 1]
    for step in ran:
        step.run(connection)
    if ran:
        _set_digests(connection)
        version = ran[-1].to
        connection.execute(update(SCHEMA).values(version=version))
    return version


def _set_digests(connection: Connection) -> None:
    """Digests tell of every column, so they change with the columns.

    Of rows that say the very same, which version 2 let in, the first stays.
    """
    connection.exec_driver_sql("DROP INDEX IF EXISTS measurements_by_digest")
    m = MEASUREMENTS.c
    set_one = (
        update(MEASUREMENTS).where(m.id == bindparam("row")).values(digest=bindparam("new_digest"))
    )
    seen: set[str] = set()
    last = None
    while True:
        query = select(MEASUREMENTS).order_by(m.id).limit(_ROWS_PER_STEP)
        rows = connection.execute(query if last is None else query.where(m.id > last))
        named = [{"row": row["id"], "new_digest": digest(dict(row))} for row in rows.mappings()]
        if not named:
            break
        last = named[-1]["row"]
        first = []
        for each in named:
            if each["new_digest"] in seen:
                connection.execute(delete(MEASUREMENTS).where(m.id == each["row"]))
                continue
            seen.add(each["new_digest"])
            first.append(each)
        if first:
            connection.execute(set_one, first)
    connection.exec_driver_sql(
        "CREATE UNIQUE INDEX measurements_by_digest ON measurements (digest)"
    )
