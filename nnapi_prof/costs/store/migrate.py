"""Databases of released versions become those of this one, in place.

A migration takes the tables from one version of the schema to the next, in the transaction that
opens the database.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, update

from nnapi_prof.costs.store.schema import SCHEMA


def _to_8(connection: Connection) -> None:
    """Add how often a measurement was tried. Digests stay: they do not tell of it."""
    connection.exec_driver_sql("ALTER TABLE measurements ADD COLUMN attempts INTEGER")


def _to_9(connection: Connection) -> None:
    """Add how many compilations a driver holds at once. Digests stay: they do not tell of it."""
    connection.exec_driver_sql("ALTER TABLE measurements ADD COLUMN room INTEGER")


def _to_10(connection: Connection) -> None:
    """Add what copies of inputs and outputs took, of which digests do not tell either."""
    connection.exec_driver_sql("ALTER TABLE measurements ADD COLUMN copies_ns JSON")


MIGRATIONS: dict[int, Callable[[Connection], None]] = {8: _to_8, 9: _to_9, 10: _to_10}
"""Version -> what makes it of the version before; the last is the schema's version."""


def migrate(connection: Connection, version: int) -> int:
    """Run what comes after ``version``; return the version reached, which is ``version`` where no
    migration begins with it."""
    while (step := MIGRATIONS.get(version + 1)) is not None:
        step(connection)
        version += 1
        connection.execute(update(SCHEMA).values(version=version))
    return version
