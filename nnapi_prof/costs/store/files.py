"""Cost table as a pandas DataFrame, and as CSV or Parquet for other programs.

Cost tables are exchanged as SQLite files, which :func:`merge` adds to each other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import pandas
from sqlalchemy import Connection, Select, select

from nnapi_prof.costs.measurement import summarise
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.rows import (
    CONTENT,
    LISTS,
    MEASUREMENTS,
    SHOWN,
    InvalidRow,
    rounds_of,
    validate_row,
)
from nnapi_prof.costs.store.selection import Selection
from nnapi_prof.errors import CostError, escape_untrusted

DERIVED = ("n_samples", "median_ns", "p95_ns", "spread_ns", "minimum_ns")
"""Summary of ``samples_ns`` (:func:`~nnapi_prof.costs.measurement.summarise`): their number, and in
ns their median, 95th percentile, spread (a robust sigma) and minimum; 0 and NaN where nothing was
timed."""
COLUMNS = ("id", *CONTENT, *DERIVED)
Format = Literal["csv", "parquet"]


def frame(store: CostStore, selection: Selection | None = None) -> pandas.DataFrame:
    """Return rows of ``store`` (all rows without a ``selection``) in order of arrival.

    Columns are :data:`COLUMNS`, also where there are no rows: those of the table ``measurements``,
    documented with their units in :mod:`nnapi_prof.costs.store.rows`, and :data:`DERIVED`. Whole
    numbers are ``Int64`` and truth values ``boolean``, both of which allow unknown values
    (``<NA>``); lists (``samples_ns``, ``rounds``, ...) are Python lists.

        with CostStore("costs.sqlite") as store:
            table = frame(store, Selection(targets=("nnapi:*",), newest=True))
        table.groupby("target").median_ns.describe()
    """
    rows = store.rows(selection)
    columns: dict[str, Any] = {}
    for name in ("id", *CONTENT):
        kind = {int: "Int64", bool: "boolean"}.get(MEASUREMENTS.c[name].type.python_type, "object")
        columns[name] = pandas.Series([row[name] for row in rows], dtype=kind)
    summaries = [_summary(row) for row in rows]
    for at, name in enumerate(DERIVED):
        kind = "float64" if at else "Int64"
        columns[name] = pandas.Series([summary[at] for summary in summaries], dtype=kind)
    return pandas.DataFrame(columns, columns=list(COLUMNS))


def _summary(row: Mapping[str, Any]) -> tuple[float, ...]:
    if not row["samples_ns"]:
        return 0, math.nan, math.nan, math.nan, math.nan
    summary = summarise(row["samples_ns"], rounds_of(row))
    spread_ns, minimum_ns = summary.spread_ns, summary.minimum_ns
    return summary.n, summary.median_ns, summary.p95_ns, spread_ns, minimum_ns


def encode(table: pandas.DataFrame, form: Format) -> bytes:
    """Return a :func:`frame` as a file, with control characters in drivers' texts escaped, and in
    CSV with lists as JSON. Raises CostError where Parquet lacks pyarrow."""
    table = table.assign(**{name: table[name].map(_printable) for name in SHOWN})
    if form == "csv":
        lists = {name: table[name].map(_as_json) for name in (*LISTS, "rounds")}
        return table.assign(**lists).to_csv(index=False).encode()
    try:
        return bytes(table.to_parquet(index=False))
    except ImportError as error:
        raise CostError(
            "Parquet files need pyarrow", "`pip install nnapi-prof[parquet]`, or ask for csv"
        ) from error


def _printable(text: str | None) -> str | None:
    return text if text is None or text.isprintable() else escape_untrusted(text, 2000)


def _as_json(values: list[Any] | None) -> str | None:
    return None if values is None else json.dumps(values)


# Merging one cost table into another: a laptop's file into a team's server.

ROWS_PER_STEP = 1000
"""Rows in one transaction and in memory; an interrupted merge keeps the finished transactions."""


@dataclass(frozen=True)
class Merged:
    """Result of merging a table into another."""

    rows: int
    """Number of rows in the source."""
    added: int
    """Number of new rows; the others were in the table already, or impossible."""
    left_out: int
    """Number of impossible rows (with a time below 0, say)."""
    devices: int
    """Number of devices with rows in the source."""


def merge(
    store: CostStore, source: CostStore, told: Callable[[int, int], None] = lambda done, of: None
) -> Merged:
    """Adds all rows and devices of ``source`` that ``store`` does not have.

    ``told`` is called with the number of rows done and their total. Raises CostError where either
    database fails; finished steps stay, and the same call resumes.
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
