"""The cost store: measurements and devices in SQLite, or in a PostgreSQL that a team shares.

The devices of a cost table: what they are called, and what was measured on each.
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
"""What PostgreSQL is to avoid for the first rows: it cannot guess how many fit a pattern, and where
it takes them to be few it reads and sorts all."""
T = TypeVar("T")


class Tally(NamedTuple):
    """How many rows there are of one kind of measurement, and when the first and the last was."""

    fingerprint: str
    kind: str
    status: str
    target: str
    simulated: bool
    rows: int
    first: str
    last: str


class CostStore:
    """An append-only table of measurements; each ``add`` is on disk when it returns.

    ``url_or_path`` is a file, or a URL of SQLite's or PostgreSQL's; None is
    :func:`~nnapi_prof.costs.default_location`. A file that does not exist is created. Several
    processes may write at once, and what another writer or a server's restart broke is tried again
    for half a minute. Raises CostError where the database cannot be opened, belongs to something
    else, or has another schema version; ``patient`` waits for a server that was there before as a
    writer does.
    """

    def __init__(self, url_or_path: str | Path | None = None, patient: bool = False) -> None:
        self._database = Database(url_or_path, patient)
        self.location = self._database.location
        """A file's path, or a URL without its password."""
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

        Returns how many were new: one that says in every field what a row says already, its time
        included, is that row. Devices come along in the same transaction where they are not known.
        One without a time gets that of :meth:`stamp`.
        """
        timed = [m if m.measured_at else self.stamp(m) for m in measurements]
        rows = [to_row(m, m.measured_at) for m in timed]
        named = [{**vars(device), "description": dict(device.description)} for device in devices]

        def work(connection: Connection) -> int:
            if named:
                connection.execute(self._insert_new(DEVICES), named)
            if not rows:
                return 0
            # One row, which is what a profile adds, goes a shorter way through SQLAlchemy.
            return len(connection.execute(self._added, rows if len(rows) > 1 else rows[0]).all())

        return self._database.write(work) if rows or named else 0

    def stamp(self, measurement: Measurement) -> Measurement:
        """Return a measurement of this moment with its time: now, and always after the rows that
        measured the same, so that it supersedes them. Where the host's clock stepped back since
        then, that is a microsecond after the newest."""
        row = to_row(measurement, "")
        query = newest_time(row)
        newest = self._database.read(lambda link: link.execute(query).scalar_one())
        return replace(measurement, measured_at=time_after(newest))

    def add_device(self, fingerprint: str, description: Mapping[str, Any], simulated: bool) -> None:
        """Remembers a device; nothing changes where it is known already."""
        self.add(devices=[DeviceRow(fingerprint, description, simulated, utc_now())])

    def mark_drift(self, measurements: Iterable[Measurement], percent: int) -> None:
        """Marks rows that :meth:`add` took, with their ``measured_at``, as of a drifting window."""
        self._mark(measurements, "drift_percent", percent)

    def mark_room(self, measurement: Measurement, room: int) -> None:
        """Notes at such a row how many compilations its driver holds at once."""
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
        """Leaves out what is there already, and what another process is adding just now."""
        if self._database.is_sqlite:
            return sqlite.insert(table).on_conflict_do_nothing()
        return postgresql.insert(table).on_conflict_do_nothing()

    # ---- reading -----------------------------------------------------------------------------

    def devices(self) -> list[DeviceRow]:
        """All devices, in order of first sight."""
        query = select(DEVICES).order_by(DEVICES.c.first_seen, DEVICES.c.fingerprint)
        rows = self._database.read(
            lambda connection: [DeviceRow(**row) for row in connection.execute(query).mappings()]
        )
        return [row for row in rows if isinstance(row.description, dict)]

    def rows(self, selection: Selection | None = None) -> list[dict[str, Any]]:
        """Rows as the table has them (:mod:`.schema`), in order of arrival.

        Rows that cannot be (a time below 0, say) are left out, and a warning of the logger says
        which; of those that measured the same the one before them is the newest then.
        """
        return [row for row, _ in self._fitting(selection or Selection())]

    def _fitting(self, chosen: Selection) -> list[tuple[dict[str, Any], Measurement]]:
        """Rows, and what they say."""

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
                    continue  # of those that remain, others may be the newest or the first
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
        """Returns an upper bound of the number of rows: as many as there have ever been."""
        query = select(func.coalesce(func.max(MEASUREMENTS.c.id), 0))
        return self._database.read(lambda link: int(link.execute(query).scalar_one()))

    def fingerprints(self) -> list[str]:
        """Lists the fingerprints of all devices with rows, in order: one look into the index for
        each."""
        column = MEASUREMENTS.c.fingerprint
        return self._database.read(
            lambda link: [str(row[0]) for row in link.execute(_distinct(column))]
        )

    def agent_versions(self, fingerprint: str, target: str) -> set[str]:
        """Return the agents that measured a device's target (:attr:`.Target.key`)."""
        m = MEASUREMENTS.c
        rows = (m.fingerprint == fingerprint, m.target == target)
        query = select(m.agent_version).where(*rows).distinct()
        return self._database.read(lambda link: set(link.execute(query).scalars()))

    def members(self) -> dict[str, tuple[str, ...]]:
        """Signature -> its units' signatures, of all that was measured."""
        m = MEASUREMENTS.c
        each = _distinct(m.signature).subquery()
        first = select(m.members).where(m.signature == each.c[0]).limit(1).scalar_subquery()
        rows = self._database.read(lambda link: link.execute(select(each.c[0], first)).all())
        return {name: tuple(units) for name, units in rows if isinstance(units, list)}

    def tally(self) -> list[Tally]:
        """Every row there is, counted without being read."""
        m = MEASUREMENTS.c
        what = (m.fingerprint, m.kind, m.status, m.target, m.simulated)
        when = (func.min(m.measured_at), func.max(m.measured_at))
        query = select(*what, func.count(), *when).group_by(*what).order_by(*what)
        return self._database.read(lambda link: [Tally(*row) for row in link.execute(query)])

    def have(self, fingerprint: str, signatures: Collection[str] | None = None) -> set[Key]:
        """Return the keys that need not be measured again on a device: what ran, what is not
        supported, and what failed alone in the last half of a day, or on two days."""
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
        """The last measurement of each (signature, target, conditions) of a device.

        ``signatures`` limits to those, ``conditions`` to rows measured under what of them concerns
        the row's engine. In order of arrival; the last is the one that was measured last.
        """
        return self.select(
            Selection((fingerprint,), signatures, conditions=conditions, newest=True)
        )

    def select(self, selection: Selection) -> list[Measurement]:
        """Returns the rows that fit, in order of arrival."""
        return [escape_texts(measurement) for _, measurement in self._fitting(selection)]


def _distinct(column: Column[str]) -> Select[tuple[str]]:
    """A column's different values, by the index that begins with it: both databases would read all
    rows for a DISTINCT."""
    steps = select(func.min(column).label("value")).cte("steps", recursive=True)
    following = select(func.min(column)).where(column > steps.c.value).scalar_subquery()
    steps = steps.union_all(select(following).where(steps.c.value.is_not(None)))
    return select(steps.c.value).where(steps.c.value.is_not(None))


_IDS_PER_QUERY = 500


@dataclass(frozen=True)
class Pruned:
    """The rows that were deleted, or would be."""

    deleted: bool
    """False: nothing was touched."""
    devices: Mapping[str, int]
    """Fingerprint -> its rows that go."""
    forgotten: tuple[str, ...]
    """Devices that no row is left of; their descriptions go, too."""
    kept: int
    """Rows left in the table."""

    @property
    def rows(self) -> int:
        """How many go."""
        return sum(self.devices.values())


def prune(
    store: CostStore, selection: Selection, *, superseded: bool = False, deleting: bool = False
) -> Pruned:
    """Counts, or with ``deleting`` deletes, the rows that fit a selection, all in one transaction.

    The one thing that takes rows away from a cost table. The file of an SQLite table does not
    shrink; what comes next is written into the room.

    ``superseded`` limits to rows that no plan reads any more: a newer one, whether it fits or not,
    measured the same. What ``selection.newest`` says is not asked. Raises UsageError where that
    would be every row there can be; CostError where the database cannot be written.
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
    """A device of the table, as people call it."""

    fingerprint: str
    name: str


@dataclass(frozen=True)
class Measured(NamedDevice):
    """A device and how much was measured on it."""

    simulated: bool
    rows: int
    kinds: Mapping[str, int]
    statuses: Mapping[str, int]
    targets: tuple[str, ...]
    first: str
    """UTC, ISO 8601: the first measurement's time."""
    last: str


def name_of(device: DeviceRow | None) -> str:
    """In two or three words, as phones name themselves; ``unknown`` of a table without it."""
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
"""Devices that a message names."""


def named(store: CostStore) -> list[NamedDevice]:
    """Every device with rows, in order of first sight: its rows are not counted, which of millions
    takes seconds."""
    there = set(store.fingerprints())
    devices = {row.fingerprint: name_of(row) for row in store.devices() if row.fingerprint in there}
    devices |= dict.fromkeys(sorted(there - devices.keys()), name_of(None))
    return [NamedDevice(*each) for each in devices.items()]


def measured(store: CostStore) -> list[Measured]:
    """Every device with rows, the one measured last at the end."""
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
    """Those whose fingerprint begins with ``words``, or whose name fits them as a pattern.

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
    """Finds the one device that :func:`find` finds; raises UsageError where there are several,
    too."""
    matches = find(devices, words)
    if len(matches) > 1:
        raise UsageError(
            f"{words!r} may be any of {listed(matches)}", "name one by its fingerprint"
        )
    return matches[0]


def listed(devices: Sequence[NamedDevice]) -> str:
    """In a sentence, of many the first."""
    words = [f"{each.fingerprint} ({each.name})" for each in devices[:_MOST_LISTED]]
    more = len(devices) - len(words)
    return ", ".join([*words, *([f"{more} more"] if more else [])])
