"""Deleting measurements: old ones, a device's, those that newer ones have taken the place of.

The one thing that takes rows away from a cost table. Nothing is deleted unless it is asked for: by
default only what would go is counted. The file of an SQLite table does not shrink; what comes next
is written into the room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, select

from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.schema import DEVICES, MEASUREMENTS
from nnapi_prof.costs.store.selection import Selection, superseded_ids
from nnapi_prof.errors import UsageError

_IDS_PER_QUERY = 500


@dataclass(frozen=True)
class Pruned:
    """What was deleted, or would be."""

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

    ``superseded`` limits to rows that no plan reads any more: a newer one, whether it fits or not,
    measured the same. What ``selection.newest`` says is not asked. Raises UsageError where that
    would be every row there can be; CostError where the database cannot be written.
    """
    selection = selection.with_(newest=False)
    if selection == Selection() and not superseded:
        raise UsageError(
            "nothing says what to delete: name a device, a date, a kind or status of measurement, "
            "or only what newer measurements supersede"
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
