"""One cost table's measurements into another: a file of a laptop's into the server of a team."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Connection, Select, select

from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.rows import InvalidRow, validate_row
from nnapi_prof.costs.store.schema import MEASUREMENTS

ROWS_PER_STEP = 1000
"""In one transaction: a merge that is interrupted keeps what it has, and holds no more at once."""


@dataclass(frozen=True)
class Merged:
    """The result of merging a table."""

    rows: int
    """In it."""
    added: int
    """Of them new; the others were in the table already."""
    left_out: int
    """Of them impossible (a time below 0, say)."""
    devices: int
    """With rows in it."""


def merge(
    store: CostStore, source: CostStore, told: Callable[[int, int], None] = lambda done, of: None
) -> Merged:
    """Adds all rows and devices of ``source``; those that are there already are left.

    ``told`` hears how many of how many rows were looked at. Raises CostError where either database
    fails; the steps before stay, and the same call does the rest.
    """
    there = set(source.fingerprints())
    store.add(devices=[device for device in source.devices() if device.fingerprint in there])
    m = MEASUREMENTS.c
    most, last = source.most_rows(), 0
    rows = added = left_out = 0
    while True:
        query = select(MEASUREMENTS).where(m.id > last).order_by(m.id).limit(ROWS_PER_STEP)
        step = source.transact(partial(_select_rows, query), writing=False)
        if not step:
            return Merged(rows, added, left_out, len(there))
        last = step[-1]["id"]
        good = []
        for row in step:
            try:
                good.append(validate_row(row))
            except InvalidRow:
                left_out += 1
        added += store.add(*good)
        rows += len(step)
        told(min(last, most), most)


def _select_rows(query: Select[Any], connection: Connection) -> list[dict[str, Any]]:
    return [dict(row) for row in connection.execute(query).mappings()]
