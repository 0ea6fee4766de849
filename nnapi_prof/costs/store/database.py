"""Open the database of the cost store, migrate it, and run transactions with retries.

SQLite is a file that several processes of one machine write to; PostgreSQL is a server that a team
shares. Writing something twice does no harm (a row's digest is unique), so a transaction whose
commit was not confirmed is simply run again. A migration takes the tables from one version of the
schema to the next, in the transaction that opens the database.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    create_engine,
    event,
    insert,
    inspect,
    make_url,
    select,
    update,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from nnapi_prof.costs import VARIABLE, default_location
from nnapi_prof.costs.store.rows import DEVICES, MEASUREMENTS, METADATA, SCHEMA, SCHEMA_VERSION
from nnapi_prof.errors import CostError, escape_untrusted, non_regular_kind, option_name


def _to_8(connection: Connection) -> None:
    """Add the number of attempts. Digests stay, since they do not contain it."""
    connection.exec_driver_sql("ALTER TABLE measurements ADD COLUMN attempts INTEGER")


def _to_9(connection: Connection) -> None:
    """Add the number of compilations that a driver holds at once, which digests do not contain."""
    connection.exec_driver_sql("ALTER TABLE measurements ADD COLUMN room INTEGER")


def _to_10(connection: Connection) -> None:
    """Add the times to copy inputs and outputs, which digests do not contain."""
    connection.exec_driver_sql("ALTER TABLE measurements ADD COLUMN copies_ns JSON")


def _to_11(connection: Connection) -> None:
    """Rename the column and the kind of units that ran side by side. Digests keep the old names."""
    connection.exec_driver_sql("ALTER TABLE measurements RENAME COLUMN beside TO corunner")
    connection.exec_driver_sql("UPDATE measurements SET kind = 'corun' WHERE kind = 'beside'")


MIGRATIONS: dict[int, Callable[[Connection], None]] = {
    8: _to_8,
    9: _to_9,
    10: _to_10,
    11: _to_11,
}
"""Version -> migration from the version before; the last is :data:`SCHEMA_VERSION`."""


def migrate(connection: Connection, version: int) -> int:
    """Run the migrations after ``version`` and return the version reached, which is ``version``
    where no migration starts from it."""
    while (step := MIGRATIONS.get(version + 1)) is not None:
        step(connection)
        version += 1
        connection.execute(update(SCHEMA).values(version=version))
    return version


BUSY_TIMEOUT_MS = 30_000
"""Longest wait of a writer for another one; a commit takes well under a millisecond."""
RETRY_S = 30.0
"""Seconds for which a transaction is retried: longer than a server takes to restart."""

MAX_CELL_BYTES = 256 << 20
"""Largest cell, row or query in SQLite, in bytes."""

_BACKENDS = ("sqlite", "postgresql")
_OPENING_LOCK = 0x6E6E7066  # "nnpf": PostgreSQL's advisory lock for opening the database
_TRANSIENT = {
    "40001": "serialization failure",
    "40P01": "deadlock",
    "53300": "too many connections",
    "55P03": "lock not available",
    "57P01": "the server is shutting down",
    "57P02": "the server crashed",
    "57P03": "the server is starting",
}
T = TypeVar("T")


class Database:
    """Database with the tables of a cost store, created where it is new.

    ``url_or_path`` is that of :class:`~nnapi_prof.costs.store.CostStore`. Raises CostError where
    the database cannot be opened, belongs to another program, or has another schema version. With
    ``patient``, a server that does not answer is tried again for :data:`RETRY_S`.
    """

    def __init__(self, url_or_path: str | Path | None, patient: bool = False) -> None:
        where = str(url_or_path) if url_or_path is not None else default_location()
        url = table_url(where)
        self.is_sqlite = url.get_backend_name() == "sqlite"
        self.location = url.database or str(url) if self.is_sqlite else str(url)
        self._expected = patient
        what = non_regular_kind(Path(self.location)) if self.is_sqlite else None
        if what is not None:
            raise CostError(
                f"cost table {self.location}: it is {what}", "name a file, or a PostgreSQL URL"
            )
        try:
            # A server may have closed connections that were idle for a night.
            self._engine: Engine = create_engine(
                url, pool_pre_ping=not self.is_sqlite, json_deserializer=_lenient_json
            )
        except ImportError as error:
            raise CostError(
                f"cost table {url}: {error}; PostgreSQL needs `pip install nnapi-prof[postgres]`"
            ) from error
        except (ArgumentError, SQLAlchemyError) as error:
            raise CostError(f"cost table {url}: {error}") from error
        if self.is_sqlite:
            event.listen(self._engine, "connect", _set_up_sqlite)
        try:
            self._run("open", self._prepare)
            self._expected = True
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._engine.dispose()

    def read(self, work: Callable[[Connection], T]) -> T:
        """Runs ``work`` in one transaction and returns its result."""

        def call() -> T:
            with self._engine.connect() as connection:
                return work(connection)

        return self._run("read", call)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Runs ``work`` and commits what it writes; ``work`` may run several times."""

        def call() -> T:
            with self._engine.begin() as connection:
                return work(connection)

        return self._run("write", call)

    # ---- opening -----------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Creates the tables where the database is new, else checks and migrates them."""
        if not self.is_sqlite or Path(self.location).exists():
            with self._engine.connect() as connection:
                if self.is_sqlite:
                    self._refuse_programs(connection)
                if _schema_version(connection) == SCHEMA_VERSION:
                    return  # the usual case, which needs no lock and no write access
        with self._exclusive() as connection:
            version = _schema_version(connection)
            if version is None:
                self._create(connection)
            elif (reached := migrate(connection, version)) != SCHEMA_VERSION:
                raise CostError(f"cost table {self.location}: {_wrong_version(reached)}")

    def _refuse_programs(self, connection: Connection) -> None:
        """Raises CostError for a file with views or triggers: a stranger's views may never end, and
        triggers may change what is added."""
        program = connection.exec_driver_sql(
            "SELECT type, name FROM sqlite_master WHERE type IN ('view', 'trigger') "
            "OR sql LIKE 'CREATE VIRTUAL%' LIMIT 1"
        ).first()
        if program is not None:
            kind, name = program
            raise CostError(
                f"cost table {self.location}: it has the {kind} {escape_untrusted(str(name), 60)},"
                f" which nnapi-prof does not make; name another file with {option_name('costs')} or"
                f" ${VARIABLE}"
            )

    def _create(self, connection: Connection) -> None:
        names = set(inspect(connection).get_table_names())
        ours = {MEASUREMENTS.name, DEVICES.name}
        foreign = names if self.is_sqlite else names & ours
        if foreign:
            raise CostError(
                f"cost table {self.location}: this database belongs to something else (it "
                f"has the table {sorted(foreign)[0]}); name another file with"
                f" {option_name('costs')} or ${VARIABLE}"
            )
        METADATA.create_all(connection)
        connection.execute(insert(SCHEMA), {"id": 1, "version": SCHEMA_VERSION})

    @contextmanager
    def _exclusive(self) -> Iterator[Connection]:
        """Opens a transaction that excludes other processes that open the same database."""
        if not self.is_sqlite:
            with self._engine.begin() as connection:
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_OPENING_LOCK})")
                yield connection
            return
        # The sqlite3 module begins no transaction before DDL, so this does.
        with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            if self._writable():
                connection.exec_driver_sql("PRAGMA journal_mode = WAL")
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            else:
                connection.exec_driver_sql("BEGIN")
            try:
                yield connection
            except BaseException:
                connection.exec_driver_sql("ROLLBACK")
                raise
            connection.exec_driver_sql("COMMIT")

    def _writable(self) -> bool:
        path = Path(self.location)
        return not path.exists() or os.access(path, os.W_OK)

    # ---- errors ------------------------------------------------------------------------------

    def _run(self, verb: str, work: Callable[[], T]) -> T:
        """Runs ``work``; retries errors due to another writer or a server's restart, and raises
        CostError for all others."""
        deadline = time.monotonic() + RETRY_S
        pause = 0.01
        while True:
            try:
                return work()
            except DBAPIError as error:
                if not self._is_transient(error) or time.monotonic() > deadline:
                    raise CostError(self._sentence(verb, error)) from error
            except SQLAlchemyError as error:
                raise CostError(f"cost table {self.location}: cannot {verb} it: {error}") from error
            time.sleep(pause * random.uniform(0.5, 1.5))  # so that writers do not collide again
            pause = min(2 * pause, 1.0)

    def _is_transient(self, error: DBAPIError) -> bool:
        if self.is_sqlite:
            # "locking protocol": another process opens or recovers the write-ahead log.
            transient = ("locked", "busy", "locking protocol")
            return any(words in str(error.orig) for words in transient)
        state = getattr(error.orig, "sqlstate", None)
        if state is not None:
            return state in _TRANSIENT or state.startswith("08")
        # No answer at all: a server that answered before is expected back.
        return self._expected and (error.connection_invalidated or _is_operational(error))

    def _sentence(self, verb: str, error: DBAPIError) -> str:
        words = " ".join(str(error.orig).split())
        what = "a file of nnapi-prof and writable" if self.is_sqlite else "within reach and yours"
        return (
            f"cost table {self.location}: cannot {verb} it: {words}; check that it is {what}, or "
            f"name another with {option_name('costs')} or ${VARIABLE}"
        )


def table_url(where: str) -> URL:
    """Returns the database URL of a file (whose folder is created) or of a URL, with the driver
    that is tested."""
    if "://" not in where:
        path = Path(where).expanduser()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CostError(
                f"cost table {where}: cannot make its folder: {error.strerror or error}; name "
                f"another with {option_name('costs')} or ${VARIABLE}"
            ) from error
        return make_url("sqlite://").set(database=str(path))
    try:
        url = make_url(where)
    except (ArgumentError, ValueError) as error:
        raise CostError(
            f"the cost table's URL cannot be read: {error}; {option_name('costs')} and ${VARIABLE}"
            " take a file or a database URL like postgresql://USER@HOST/DATABASE"
        ) from error
    backend = "postgresql" if url.drivername == "postgres" else url.drivername.partition("+")[0]
    if backend not in _BACKENDS:
        raise CostError(
            f"cost table {url}: {backend} is neither sqlite nor postgresql; {option_name('costs')}"
            f" and ${VARIABLE} take a file or a database URL of these"
        )
    return url.set(drivername="postgresql+psycopg") if backend == "postgresql" else url


def _schema_version(connection: Connection) -> int | None:
    """Returns the schema's version; None for a database without our tables."""
    if not inspect(connection).has_table(SCHEMA.name):
        return None
    version = connection.execute(select(SCHEMA.c.version)).scalar_one_or_none()
    return 0 if version is None else int(version)


def _wrong_version(version: int) -> str:
    if version > SCHEMA_VERSION:
        return (
            f"written by a newer nnapi-prof (schema {version}, this one reads {SCHEMA_VERSION}); "
            f"update nnapi-prof or name another file with {option_name('costs')}"
        )
    return (
        f"its schema is version {version}, from before the first release, and nnapi-prof reads "
        f"{SCHEMA_VERSION}; name another file with {option_name('costs')} or ${VARIABLE} and"
        " profile again"
    )


def _is_operational(error: DBAPIError) -> bool:
    return type(error.orig).__name__ == "OperationalError"


def _lenient_json(text: str | bytes) -> Any:
    """Parses a cell's JSON; for invalid JSON, returns a text that no valid row can have there."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return "no JSON"


def _set_up_sqlite(connection: Any, record: object) -> None:
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_CELL_BYTES)
    cursor = connection.cursor()
    # A stranger's file may have views and triggers: they may call only safe functions.
    cursor.execute("PRAGMA trusted_schema = OFF")
    cursor.execute("PRAGMA cell_size_check = ON")
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    # With WAL a commit survives a crash of the process; only a power cut may lose the last ones.
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.close()
