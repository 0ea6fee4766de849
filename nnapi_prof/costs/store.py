"""The cost store: measurements and devices in SQLite, or in any database SQLAlchemy speaks to."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import (
    Connection,
    and_,
    create_engine,
    event,
    func,
    insert,
    inspect,
    make_url,
    or_,
    select,
    update,
)
from sqlalchemy.engine import RowMapping
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError

from nnapi_prof.costs.conditions import Conditions
from nnapi_prof.costs.location import VARIABLE, default_location
from nnapi_prof.costs.measurement import Key, Kind, Measurement, Status
from nnapi_prof.costs.migrate import STEPS
from nnapi_prof.costs.rounds import Round
from nnapi_prof.costs.schema import DEVICES, MEASUREMENTS, METADATA, SCHEMA, SCHEMA_VERSION
from nnapi_prof.costs.summary import summarise
from nnapi_prof.errors import CostError
from nnapi_prof.graph.plan import CPU, Engine, Target

if TYPE_CHECKING:
    import pandas

BUSY_TIMEOUT_MS = 30_000
"""How long a writer waits for another one; a commit takes well under a millisecond."""

_VARIABLES_PER_QUERY = 500  # SQLite's limit is 999 in versions before 3.32
_LISTS = ("members", "offsets", "samples_ns", "hardware_ns", "driver_ns")
_COLUMNS = tuple(
    f.name for f in dataclasses.fields(Measurement) if f.name not in ("conditions", "rounds")
)


@dataclasses.dataclass(frozen=True)
class DeviceRow:
    """A device that was measured. ``description`` is what its agent's info said."""

    fingerprint: str
    description: Mapping[str, Any]
    simulated: bool
    first_seen: str


class CostStore:
    """An append-only table of measurements; each ``add`` is on disk when it returns.

    ``url_or_path`` is a file, or a URL of SQLAlchemy's; None is :func:`default_location`. A file
    that does not exist is created. Several processes may write at once. Raises CostError where
    the database cannot be opened, belongs to something else, or is newer than this nnapi-prof.
    """

    def __init__(self, url_or_path: str | Path | None = None) -> None:
        where = str(url_or_path) if url_or_path is not None else default_location()
        try:
            if "://" in where:
                url = make_url(where)
            else:
                path = Path(where).expanduser()
                path.parent.mkdir(parents=True, exist_ok=True)
                url = make_url("sqlite://").set(database=str(path))
            self.location = url.database or str(url) if url.drivername == "sqlite" else str(url)
            self._engine = create_engine(url)
        except OSError as error:
            raise CostError(f"cost table {where}: cannot make its folder: {error}") from error
        except (ArgumentError, ImportError) as error:
            raise CostError(
                f"cost table {where}: {error}; --costs and ${VARIABLE} take a file or "
                "a database URL"
            ) from error
        self._is_sqlite = url.get_backend_name() == "sqlite"
        if self._is_sqlite:
            event.listen(self._engine, "connect", _set_up_sqlite)
        try:
            with self._translated("open"):
                self._prepare()
        except CostError:
            self.close()
            raise

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ---- writing -----------------------------------------------------------------------------

    def add(self, *measurements: Measurement) -> None:
        """Appends measurements in one transaction, committed when this returns."""
        if not measurements:
            return
        now = _utc_now()
        rows = [_to_row(m, now) for m in measurements]
        with self._translated("write"), self._engine.begin() as connection:
            connection.execute(insert(MEASUREMENTS), rows)

    def add_device(self, fingerprint: str, description: Mapping[str, Any], simulated: bool) -> None:
        """Remembers a device; nothing changes where it is known already."""
        row = {
            "fingerprint": fingerprint,
            "description": dict(description),
            "simulated": simulated,
            "first_seen": _utc_now(),
        }
        known = select(DEVICES.c.fingerprint).where(DEVICES.c.fingerprint == fingerprint)
        with self._translated("write"):
            with self._engine.connect() as connection:
                if connection.execute(known).first() is not None:
                    return
            try:
                with self._engine.begin() as connection:
                    connection.execute(insert(DEVICES), row)
            except IntegrityError:
                return  # another process was faster with the same device

    # ---- reading -----------------------------------------------------------------------------

    def devices(self) -> list[DeviceRow]:
        """All devices, in order of first sight."""
        query = select(DEVICES).order_by(DEVICES.c.first_seen, DEVICES.c.fingerprint)
        with self._translated("read"), self._engine.connect() as connection:
            return [DeviceRow(**row) for row in connection.execute(query).mappings()]

    def have(self, fingerprint: str, signatures: Collection[str] | None = None) -> set[Key]:
        """Keys already measured on a device, whatever the outcome: each is conclusive."""
        columns = [MEASUREMENTS.c[name] for name in Key._fields]
        found: set[Key] = set()
        with self._translated("read"), self._engine.connect() as connection:
            for condition in _conditions(fingerprint, signatures):
                rows = connection.execute(select(*columns).where(*condition).distinct())
                found.update(Key(*row) for row in rows)
        return found

    def measurements(
        self,
        fingerprint: str,
        signatures: Collection[str] | None = None,
        conditions: Conditions | None = None,
    ) -> list[Measurement]:
        """The last measurement of each (signature, target, conditions) of a device.

        ``signatures`` limits to those, ``conditions`` to rows measured under what of them concerns
        the row's engine. In order of arrival.
        """
        m = MEASUREMENTS.c
        chosen: list[Measurement] = []
        with self._translated("read"), self._engine.connect() as connection:
            for condition in _conditions(fingerprint, signatures):
                if conditions is not None:
                    condition.append(_under(conditions))
                last = (
                    select(func.max(m.id))
                    .where(*condition)
                    .group_by(m.signature, m.target, m.precision, m.mode, m.threads, m.cpus)
                )
                query = select(MEASUREMENTS).where(m.id.in_(last)).order_by(m.id)
                chosen += [_from_row(row) for row in connection.execute(query).mappings()]
        return chosen

    def frame(self, fingerprint: str | None = None) -> pandas.DataFrame:
        """Every row ever added (of one device) with all columns, plus ``median_ns``, which leaves
        out samples of throttled rounds as :attr:`Measurement.summary` does."""
        import pandas

        query = select(MEASUREMENTS).order_by(MEASUREMENTS.c.id)
        if fingerprint is not None:
            query = query.where(MEASUREMENTS.c.fingerprint == fingerprint)
        with self._translated("read"), self._engine.connect() as connection:
            rows = [dict(row) for row in connection.execute(query).mappings()]
        frame = pandas.DataFrame(rows, columns=[c.name for c in MEASUREMENTS.columns])
        frame["median_ns"] = [
            summarise(row["samples_ns"], _rounds(row)).median_ns if row["samples_ns"] else math.nan
            for row in rows
        ]
        return frame

    def export_csv(self, path: Path, fingerprint: str | None = None) -> int:
        """Writes :meth:`frame` as CSV (lists as JSON) and returns the number of rows."""
        frame = self.frame(fingerprint)
        for name in (*_LISTS, "rounds"):
            frame[name] = frame[name].map(json.dumps)
        try:
            frame.to_csv(path, index=False)
        except OSError as error:
            raise CostError(f"cannot write {path}: {error.strerror or error}") from error
        return len(frame)

    # ---- opening -----------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Creates the tables where the database is new, else checks whose they are."""
        with self._exclusive() as connection:
            names = set(inspect(connection).get_table_names())
            if SCHEMA.name in names:
                version = connection.execute(select(SCHEMA.c.version)).scalar_one_or_none()
                self._update(connection, version)
                return
            ours = {MEASUREMENTS.name, DEVICES.name}
            foreign = names if self._is_sqlite else names & ours
            if foreign:
                raise CostError(
                    f"cost table {self.location}: this database belongs to something else (it "
                    f"has the table {sorted(foreign)[0]}); name another file with --costs or "
                    f"${VARIABLE}"
                )
            METADATA.create_all(connection)
            connection.execute(insert(SCHEMA), {"id": 1, "version": SCHEMA_VERSION})

    def _update(self, connection: Connection, version: int | None) -> None:
        """Brings tables of an older version up to this one's; CostError where they are not ours."""
        while version is not None and version in STEPS:
            STEPS[version](connection)
            version += 1
            connection.execute(update(SCHEMA).values(version=version))
        if version == SCHEMA_VERSION:
            return
        if version is not None and version > SCHEMA_VERSION:
            raise CostError(
                f"cost table {self.location}: written by a newer nnapi-prof (schema {version}, "
                f"this one reads {SCHEMA_VERSION}); update nnapi-prof or name another file with "
                "--costs"
            )
        raise CostError(
            f"cost table {self.location}: schema {version} is unknown; this nnapi-prof reads "
            f"{SCHEMA_VERSION}; move the file away and profile again"
        )

    @contextmanager
    def _exclusive(self) -> Iterator[Connection]:
        """A transaction that no other process opening the same database runs beside."""
        if not self._is_sqlite:
            with self._engine.begin() as connection:
                yield connection
            return
        # The sqlite3 module opens no transaction before DDL, so it is opened by hand.
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

    @contextmanager
    def _translated(self, verb: str) -> Iterator[None]:
        """Turns the database's errors into CostError."""
        try:
            yield
        except DBAPIError as error:
            raise CostError(
                f"cost table {self.location}: cannot {verb} it: {error.orig}; check that it is a "
                f"file of nnapi-prof and writable, or name another with --costs or ${VARIABLE}"
            ) from error
        except SQLAlchemyError as error:
            raise CostError(f"cost table {self.location}: cannot {verb} it: {error}") from error


def _set_up_sqlite(connection: Any, record: object) -> None:
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    # With WAL a commit survives the death of the process; only a power cut may take the last ones.
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.close()


def _conditions(fingerprint: str, signatures: Collection[str] | None) -> Iterable[list[Any]]:
    """WHERE clauses, in several where the signatures are too many for one query."""
    base = MEASUREMENTS.c.fingerprint == fingerprint
    if signatures is None:
        return [[base]]
    ordered = sorted(set(signatures))
    parts = range(0, len(ordered), _VARIABLES_PER_QUERY)
    return [
        [base, MEASUREMENTS.c.signature.in_(ordered[i : i + _VARIABLES_PER_QUERY])] for i in parts
    ]


def _under(conditions: Conditions) -> Any:
    """WHERE clause: measured under what of ``conditions`` concerns the row's engine."""
    m = MEASUREMENTS.c
    cpu, nnapi = conditions.on(Engine.CPU), conditions.on(Engine.NNAPI)
    return or_(
        (m.target == CPU.key) & and_(*(m[k] == v for k, v in cpu.to_json().items())),
        (m.target != CPU.key) & and_(*(m[k] == v for k, v in nnapi.to_json().items())),
    )


def _to_row(m: Measurement, now: str) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(m, name) for name in _COLUMNS}
    row |= m.conditions.to_json()
    row["rounds"] = [each.to_json() for each in m.rounds]
    for name in _LISTS:
        row[name] = list(row[name])
    row.update(
        kind=m.kind.value,
        target=m.target.key,
        status=m.status.value,
        n_units=m.n_units,
        measured_at=m.measured_at or now,
    )
    return row


def _from_row(row: RowMapping) -> Measurement:
    fields: dict[str, Any] = {name: row[name] for name in _COLUMNS}
    for name in _LISTS:
        fields[name] = tuple(fields[name])
    fields["conditions"] = Conditions.from_json(
        {name: row[name] for name in ("precision", "mode", "threads", "cpus")}
    )
    fields["rounds"] = _rounds(row)
    fields["kind"] = Kind(fields["kind"])
    fields["target"] = Target(fields["target"])
    fields["status"] = Status(fields["status"])
    return Measurement(**fields)


def _rounds(row: Mapping[str, Any] | RowMapping) -> tuple[Round, ...]:
    return tuple(Round.from_json(each) for each in row["rounds"])


def _utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
