"""Databases of older versions become those of this one, in place.

A migration takes the tables from one version of the schema to the next. It is written in SQL as it
was, not with the tables of :mod:`nnapi_prof.costs.schema`, which go on changing. All of them run
in the one transaction of :meth:`.database.Database.prepare`: all or nothing, and alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, select, update

from nnapi_prof.costs.rows import digest
from nnapi_prof.costs.schema import MEASUREMENTS, SCHEMA

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


class Migration(NamedTuple):
    """What makes version ``to`` of version ``to - 1``."""

    to: int
    run: Callable[[Connection], None]


MIGRATIONS = (Migration(2, _to_2), Migration(3, _to_3))
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
