"""The cost table as a pandas DataFrame: a row for each measurement, times in ns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas

from nnapi_prof.costs.rows import CONTENT, rounds_of
from nnapi_prof.costs.schema import MEASUREMENTS
from nnapi_prof.costs.selection import Selection
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.summary import summarise

DERIVED = ("n_samples", "median_ns", "spread_ns", "minimum_ns")
"""Of ``samples_ns``, without those of throttled rounds where there are others (:mod:`.summary`):
how many, and in ns their median, its spread (a robust sigma) and the least of them; 0 and NaN where
nothing was timed."""
COLUMNS = ("id", *CONTENT, *DERIVED)


def frame(store: CostStore, selection: Selection | None = None) -> pandas.DataFrame:
    """Rows of ``store`` (all that were ever added, without a ``selection``) in order of arrival.

    Columns are :data:`COLUMNS`, also where there are no rows: those of the table ``measurements``
    as :mod:`nnapi_prof.costs.schema` explains them, with their units, and :data:`DERIVED`. Whole
    numbers are ``Int64`` and truth values ``boolean``, which have room for what is not known
    (``<NA>``); lists (``samples_ns``, ``rounds``, ...) are Python's.

        with CostStore("costs.sqlite") as store:
            table = frame(store, Selection(targets=("nnapi:*",), newest=True))
        table.groupby("target").median_ns.describe()
    """
    rows = store.rows(selection)
    columns: dict[str, Any] = {}
    for name in ("id", *CONTENT):
        values = [row[name] for row in rows]
        columns[name] = pandas.Series(values, dtype=_dtype(name))
    for name, values in _derived(rows).items():
        columns[name] = pandas.Series(values, dtype="Int64" if name == "n_samples" else "float64")
    return pandas.DataFrame(columns, columns=list(COLUMNS))


def _dtype(name: str) -> Any:
    """Lists and texts stay Python's objects, in which None is None."""
    kind = MEASUREMENTS.c[name].type.python_type
    return {int: "Int64", bool: "boolean"}.get(kind, "object")


def _derived(rows: list[dict[str, Any]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in DERIVED}
    for row in rows:
        for name, value in zip(DERIVED, _summary(row), strict=True):
            found[name].append(value)
    return found


def _summary(row: Mapping[str, Any]) -> tuple[float, ...]:
    if not row["samples_ns"]:
        return 0, math.nan, math.nan, math.nan
    found = summarise(row["samples_ns"], rounds_of(row))
    return found.n, found.median_ns, found.spread_ns, found.minimum_ns
