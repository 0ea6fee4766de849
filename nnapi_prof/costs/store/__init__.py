"""Cost store: measurements and devices in SQLite, or in PostgreSQL for a team.

This module also finds devices by their names and lists what was measured on each.
"""

from __future__ import annotations

import fnmatch
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from sqlalchemy import (
    Column,
    Connection,
    Insert,
    Select,
    Table,
    bindparam,
    delete,
    func,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from nnapi_prof.costs import Conditions
from nnapi_prof.costs.measurement import Key, Measurement
from nnapi_prof.costs.store.database import Database
from nnapi_prof.costs.store.rows import (
    DEVICES,
    MEASUREMENTS,
    DeviceRow,
    InvalidRow,
    escape_texts,
    time_after,
    to_row,
    utc_now,
    validate_row,
)
from nnapi_prof.costs.store.selection import Selection, conclusive, newest_time, superseded_ids
from nnapi_prof.errors import UsageError

LOGGER = logging.getLogger(__name__)
_MOST_SHOWN = 5
_SORTING_PLANS = ("seqscan", "bitmapscan", "sort", "hashjoin", "mergejoin")
"""Query plans that PostgreSQL must avoid for the first rows. It cannot guess how many rows match a
pattern; where it expects few, it would read and sort all of them."""
T = TypeVar("T")


class Tally(NamedTuple):
    """Number of rows of one kind of measurement, and the times of the first and the last."""

    fingerprint: str
    kind: str
    status: str
    target: str
    simulated: bool
    rows: int
    first: str
    last: str


class CostStore:
    """Append-only table of measurements; each ``add`` is on disk when it returns.

    ``url_or_path`` is a file, or a URL of SQLite or PostgreSQL; None stands for
    :func:`~nnapi_prof.costs.default_location`. A file that does not exist is created. Several
    processes may write at once. A transaction that fails because of another writer or a server's
    restart is retried for half a minute; with ``patient``, opening the database waits as long for a
    server that does not answer. Raises CostError where the database cannot be opened, belongs to
    another program, or has another schema version.
    """

    def __init__(self, url_or_path: str | Path | None = None, patient: bool = False) -> None:
        self._database = Database(url_or_path, patient)
        self.location = self._database.location
        """Path of the file, or URL without its password."""
        self._left_out: dict[int, str] = {}
        self._added = self._insert_new(MEASUREMENTS).returning(MEASUREMENTS.c.id)
        LOGGER.debug("the cost table is %s", self.location)

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ---- writing -----------------------------------------------------------------------------

    def add(self, *measurements: Measurement, devices: Iterable[DeviceRow] = ()) -> int:
        """Appends measurements in one transaction, committed when this returns.

        Returns how many were new: a measurement that equals a row in every field, its time
        included, is not added again. The transaction also adds devices that are not known. A
        measurement without a time gets that of :meth:`stamp`.
        """
        timed = [m if m.measured_at else self.stamp(m) for m in measurements]
        rows = [to_row(m, m.measured_at) for m in timed]
        named = [{**vars(device), "description": dict(device.description)} for device in devices]

        def work(connection: Connection) -> int:
            if named:
                connection.execute(self._insert_new(DEVICES), named)
            if not rows:
                return 0
            # A single row, which is what a profile adds, takes a faster path in SQLAlchemy.
            return len(connection.execute(self._added, rows if len(rows) > 1 else rows[0]).all())

        return self._database.write(work) if rows or named else 0

    def stamp(self, measurement: Measurement) -> Measurement:
        """Returns the measurement with the current time, or, where the host's clock was set back, a
        microsecond after the newest row that measured the same: it always supersedes those rows."""
        row = to_row(measurement, "")
        query = newest_time(row)
        newest = self._database.read(lambda link: link.execute(query).scalar_one())
        return replace(measurement, measured_at=time_after(newest))

    def add_device(self, fingerprint: str, description: Mapping[str, Any], simulated: bool) -> None:
        """Adds a device, unless it is known already."""
        self.add(devices=[DeviceRow(fingerprint, description, simulated, utc_now())])

    def mark_drift(self, measurements: Iterable[Measurement], percent: int) -> None:
        """Marks rows that :meth:`add` stored, with their ``measured_at``, as measured in drift."""
        self._mark(measurements, "drift_percent", percent)

    def mark_room(self, measurement: Measurement, room: int) -> None:
        """Stores in such a row how many compilations its driver holds at once."""
        self._mark([measurement], "room", room)

    def _mark(self, measurements: Iterable[Measurement], column: str, value: int) -> None:
        digests = [to_row(m, m.measured_at)["digest"] for m in measurements]
        mark = update(MEASUREMENTS).where(MEASUREMENTS.c.digest == bindparam("of"))
        rows = [{"of": each, "value": value} for each in digests]
        if rows:
            values = mark.values({column: bindparam("value")})
            self._database.write(lambda connection: connection.execute(values, rows))

    def transact(self, work: Callable[[Connection], T], *, writing: bool) -> T:
        """Runs ``work`` in one transaction, which may run several times, and returns its result."""
        return self._database.write(work) if writing else self._database.read(work)

    def _insert_new(self, table: Table) -> Insert:
        """Returns an INSERT that skips rows that exist, or that another process is just adding."""
        if self._database.is_sqlite:
            return sqlite.insert(table).on_conflict_do_nothing()
        return postgresql.insert(table).on_conflict_do_nothing()

    # ---- reading -----------------------------------------------------------------------------

    def devices(self) -> list[DeviceRow]:
        """Returns all devices, in order of first sight."""
        query = select(DEVICES).order_by(DEVICES.c.first_seen, DEVICES.c.fingerprint)
        rows = self._database.read(
            lambda connection: [DeviceRow(**row) for row in connection.execute(query).mappings()]
        )
        return [row for row in rows if isinstance(row.description, dict)]

    def rows(self, selection: Selection | None = None) -> list[dict[str, Any]]:
        """Returns rows of the table (see :mod:`nnapi_prof.costs.store.rows`), in order of arrival.

        Impossible rows (with a time below 0, say) are left out with a warning in the log. They do
        not supersede earlier rows that measured the same.
        """
        return [row for row, _ in self._fitting(selection or Selection())]

    def _fitting(self, chosen: Selection) -> list[tuple[dict[str, Any], Measurement]]:
        def work(connection: Connection) -> list[tuple[dict[str, Any], Measurement]]:
            if chosen.first is not None and not self._database.is_sqlite:
                for plan in _SORTING_PLANS:
                    connection.exec_driver_sql(f"SET LOCAL enable_{plan} = off")
            while True:
                rows: list[tuple[dict[str, Any], Measurement]] = []
                bad: dict[int, str] = {}
                for query in chosen.queries(without=self._left_out):
                    for row in map(dict, connection.execute(query).mappings()):
                        try:
                            rows.append((row, validate_row(row)))
                        except InvalidRow as why:
                            bad[row["id"]] = f"row {row['id']} ({why})"
                self._leave_out(bad)
                if bad and (chosen.newest or chosen.first):
                    continue  # without the bad rows, others may be the newest or the first
                if chosen.first is not None:
                    rows.sort(key=lambda each: (each[0]["measured_at"], each[0]["id"]))
                return sorted(rows[: chosen.first], key=lambda each: each[0]["id"])

        return self._database.read(work)

    def _leave_out(self, bad: Mapping[int, str]) -> None:
        new = {key: words for key, words in bad.items() if key not in self._left_out}
        if not new:
            return
        self._left_out |= new
        shown = list(new.values())[:_MOST_SHOWN]
        more = f" and {len(new) - len(shown)} more" if len(new) > len(shown) else ""
        LOGGER.warning(
            "cost table %s: left out as impossible: %s%s", self.location, ", ".join(shown), more
        )

    def most_rows(self) -> int:
        """Returns an upper bound of the number of rows: the number of rows ever added."""
        query = select(func.coalesce(func.max(MEASUREMENTS.c.id), 0))
        return self._database.read(lambda link: int(link.execute(query).scalar_one()))

    def fingerprints(self) -> list[str]:
        """Returns the fingerprints of all devices with rows, in order, by one index lookup each."""
        column = MEASUREMENTS.c.fingerprint
        return self._database.read(
            lambda link: [str(row[0]) for row in link.execute(_distinct(column))]
        )

    def agent_versions(self, fingerprint: str, target: str) -> set[str]:
        """Returns the versions of agents that measured a device's target (:attr:`.Target.key`)."""
        m = MEASUREMENTS.c
        rows = (m.fingerprint == fingerprint, m.target == target)
        query = select(m.agent_version).where(*rows).distinct()
        return self._database.read(lambda link: set(link.execute(query).scalars()))

    def members(self) -> dict[str, tuple[str, ...]]:
        """Returns signature -> its units' signatures, for all rows."""
        m = MEASUREMENTS.c
        each = _distinct(m.signature).subquery()
        first = select(m.members).where(m.signature == each.c[0]).limit(1).scalar_subquery()
        rows = self._database.read(lambda link: link.execute(select(each.c[0], first)).all())
        return {name: tuple(units) for name, units in rows if isinstance(units, list)}

    def tally(self) -> list[Tally]:
        """Counts all rows by device, kind, status and target, without reading them."""
        m = MEASUREMENTS.c
        what = (m.fingerprint, m.kind, m.status, m.target, m.simulated)
        when = (func.min(m.measured_at), func.max(m.measured_at))
        query = select(*what, func.count(), *when).group_by(*what).order_by(*what)
        return self._database.read(lambda link: [Tally(*row) for row in link.execute(query)])

    def have(self, fingerprint: str, signatures: Collection[str] | None = None) -> set[Key]:
        """Returns the keys that need not be measured again on a device: those that ran, were
        refused, or failed alone within the last half a day or on two days."""
        columns = [MEASUREMENTS.c[name] for name in Key._fields]
        selection = Selection(fingerprints=(fingerprint,), signatures=signatures)

        def work(connection: Connection) -> set[Key]:
            keys: set[Key] = set()
            for clause in selection.clauses(without=self._left_out):
                clause.append(conclusive(utc_now()))
                rows = connection.execute(select(*columns).where(*clause).distinct())
                keys.update(Key(*row) for row in rows)
            return keys

        return self._database.read(work)

    def measurements(
        self,
        fingerprint: str,
        signatures: Collection[str] | None = None,
        conditions: Conditions | None = None,
    ) -> list[Measurement]:
        """Returns the last measurement of each (signature, target, conditions) of a device.

        ``signatures`` limits the result to these signatures. ``conditions`` limits it to rows
        measured under these conditions, as far as they concern the row's engine. Rows are in order
        of arrival; the last measurement is the one with the latest time.
        """
        return self.select(
            Selection((fingerprint,), signatures, conditions=conditions, newest=True)
        )

    def select(self, selection: Selection) -> list[Measurement]:
        """Returns the rows that fit, in order of arrival."""
        return [escape_texts(measurement) for _, measurement in self._fitting(selection)]


def _distinct(column: Column[str]) -> Select[tuple[str]]:
    """Selects a column's distinct values by the index that begins with it; for a DISTINCT both
    databases would read all rows."""
    steps = select(func.min(column).label("value")).cte("steps", recursive=True)
    following = select(func.min(column)).where(column > steps.c.value).scalar_subquery()
    steps = steps.union_all(select(following).where(steps.c.value.is_not(None)))
    return select(steps.c.value).where(steps.c.value.is_not(None))


_IDS_PER_QUERY = 500


@dataclass(frozen=True)
class Pruned:
    """Rows that were deleted, or would be."""

    deleted: bool
    """False where nothing was deleted yet."""
    devices: Mapping[str, int]
    """Fingerprint -> number of its rows to delete."""
    forgotten: tuple[str, ...]
    """Devices without remaining rows; their descriptions are deleted, too."""
    kept: int
    """Number of rows left in the table."""

    @property
    def rows(self) -> int:
        """Number of rows to delete."""
        return sum(self.devices.values())


def prune(
    store: CostStore, selection: Selection, *, superseded: bool = False, deleting: bool = False
) -> Pruned:
    """Counts, or with ``deleting`` deletes, the rows that match a selection, in one transaction.

    Nothing else deletes rows from a cost table. The file of an SQLite table does not shrink; later
    rows fill the free space.

    ``superseded`` limits the rows to those that no plan reads any more, because a newer row,
    matching or not, measured the same. ``selection.newest`` is ignored. Raises UsageError where the
    selection would match every row; CostError where the database cannot be written.
    """
    selection = selection.with_(newest=False)
    if selection == Selection() and not superseded:
        raise UsageError(
            "nothing says what to delete",
            "name a device, a date, a kind or status of measurement, "
            "or only what newer measurements supersede",
        )

    def work(connection: Connection) -> Pruned:
        m = MEASUREMENTS.c
        going: dict[int, str] = {}
        for clause in selection.clauses():
            query = select(m.id, m.fingerprint).where(*clause)
            if superseded:
                query = query.where(m.id.in_(superseded_ids()))
            going.update((row.id, row.fingerprint) for row in connection.execute(query))
        every = {
            row.fingerprint: row.rows
            for row in connection.execute(
                select(m.fingerprint, func.count().label("rows")).group_by(m.fingerprint)
            )
        }
        devices = Counter(going.values())
        forgotten = sorted(name for name, count in devices.items() if count == every[name])
        if deleting:
            ids = sorted(going)
            for at in range(0, len(ids), _IDS_PER_QUERY):
                some = ids[at : at + _IDS_PER_QUERY]
                connection.execute(delete(MEASUREMENTS).where(m.id.in_(some)))
            left = select(m.id).where(m.fingerprint == DEVICES.c.fingerprint)  # added meanwhile
            gone = DEVICES.c.fingerprint.in_(forgotten) & ~left.exists()
            connection.execute(delete(DEVICES).where(gone))
        remaining = sum(every.values()) - len(going)
        return Pruned(deleting, dict(sorted(devices.items())), tuple(forgotten), remaining)

    return store.transact(work, writing=deleting)


@dataclass(frozen=True)
class NamedDevice:
    """Device of the table, with its name for people."""

    fingerprint: str
    name: str


@dataclass(frozen=True)
class Measured(NamedDevice):
    """Device with counts of its measurements."""

    simulated: bool
    rows: int
    kinds: Mapping[str, int]
    statuses: Mapping[str, int]
    targets: tuple[str, ...]
    first: str
    """Time of the first measurement: UTC, ISO 8601."""
    last: str


def name_of(device: DeviceRow | None) -> str:
    """Returns a device's name in two or three words, as phones name themselves; ``unknown`` where
    the table does not have the device."""
    if device is None:
        return "unknown"
    description: Mapping[str, Any] = device.description
    properties = description.get("properties") or {}
    parts = [properties.get(f"ro.product.{part}") for part in ("manufacturer", "model")]
    name = (
        " ".join(part for part in parts if part)
        or description.get("phone")
        or _machine(description)
    )
    return f"{name} (simulated)" if device.simulated and "simulated" not in name else str(name)


def _machine(description: Mapping[str, Any]) -> str:
    return f"{description.get('os', 'some')} machine, {description.get('abi', 'unknown')}"


D = TypeVar("D", bound=NamedDevice)
_MOST_LISTED = 20
"""Most devices that a message names."""


def named(store: CostStore) -> list[NamedDevice]:
    """Returns every device with rows, in order of first sight, without counting rows, which takes
    seconds for millions of them."""
    there = set(store.fingerprints())
    devices = {row.fingerprint: name_of(row) for row in store.devices() if row.fingerprint in there}
    devices |= dict.fromkeys(sorted(there - devices.keys()), name_of(None))
    return [NamedDevice(*each) for each in devices.items()]


def measured(store: CostStore) -> list[Measured]:
    """Returns every device with rows, the one measured last at the end."""
    rows_by_name = {device.fingerprint: device for device in store.devices()}
    devices = []
    tallies: dict[str, list[Tally]] = {}
    for tally in store.tally():
        tallies.setdefault(tally.fingerprint, []).append(tally)
    for fingerprint, parts in tallies.items():
        kinds: Counter[str] = Counter()
        statuses: Counter[str] = Counter()
        for part in parts:
            kinds[part.kind] += part.rows
            statuses[part.status] += part.rows
        devices.append(
            Measured(
                fingerprint=fingerprint,
                name=name_of(rows_by_name.get(fingerprint)),
                simulated=any(part.simulated for part in parts),
                rows=kinds.total(),
                kinds=dict(kinds),
                statuses=dict(statuses),
                targets=tuple(sorted({part.target for part in parts})),
                first=min(part.first for part in parts),
                last=max(part.last for part in parts),
            )
        )
    return sorted(devices, key=lambda each: each.last)


def find(devices: Sequence[D], words: str) -> list[D]:
    """Returns devices whose fingerprint begins with ``words``, or whose name matches the pattern.

    Raises UsageError where there is none.
    """
    pattern = words.lower()
    matches = [
        each
        for each in devices
        if each.fingerprint.startswith(pattern)
        or fnmatch.fnmatchcase(each.name.lower(), pattern)
        or fnmatch.fnmatchcase(each.name.lower().removesuffix(" (simulated)"), pattern)
    ]
    if not matches:
        there = listed(devices) or "none"
        raise UsageError(
            f"no device of the cost table is called {words!r}; there are: {there}; "
            "`nnapi-prof costs list` shows them"
        )
    return matches


def find_one(devices: Sequence[D], words: str) -> D:
    """Returns the one device that :func:`find` finds; raises UsageError for none or several."""
    matches = find(devices, words)
    if len(matches) > 1:
        raise UsageError(
            f"{words!r} may be any of {listed(matches)}", "name one by its fingerprint"
        )
    return matches[0]


def listed(devices: Sequence[NamedDevice]) -> str:
    """Returns devices as a list for a sentence, of many the first :data:`_MOST_LISTED`."""
    words = [f"{each.fingerprint} ({each.name})" for each in devices[:_MOST_LISTED]]
    more = len(devices) - len(words)
    return ", ".join([*words, *([f"{more} more"] if more else [])])
