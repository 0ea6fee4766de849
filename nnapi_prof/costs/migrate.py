"""Databases of older versions become those of this one, in place.

Each step takes the tables from one version of the schema to the next. It is written in SQL as it
was, not with the tables of :mod:`nnapi_prof.costs.schema`, which go on changing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlalchemy import Connection

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


STEPS: Mapping[int, Callable[[Connection], None]] = {1: _to_2}
"""Version -> what makes the next one of it."""
