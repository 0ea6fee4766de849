"""The cost table as a pandas DataFrame, and as CSV and Parquet files and back, exactly.

Files have the columns of the table ``measurements`` but for what only a database needs, then those
of :data:`DERIVED`, for people, and ``device_info``: on the first row of each device what is known
of it, as JSON. In CSV, lists are JSON; an empty cell is None, or in a column that is never None the
empty text. A text that would be mistaken (an empty one where None may be, or one that begins with a
quotation mark) is a JSON string. Parquet has lists and structures as such.
"""

from __future__ import annotations

import csv
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas
from sqlalchemy import Boolean, Integer

from nnapi_prof.costs.measurement import Kind, Measurement, summarise
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.migrate import labelled_work
from nnapi_prof.costs.store.rows import (
    CONTENT,
    LISTS,
    BadCell,
    DeviceRow,
    checked,
    checked_device,
    from_row,
    rounds_of,
)
from nnapi_prof.costs.store.schema import MEASUREMENTS
from nnapi_prof.costs.store.selection import Selection
from nnapi_prof.errors import CostError, UsageError, irregular

DERIVED = ("n_samples", "median_ns", "spread_ns", "minimum_ns")
"""Of ``samples_ns``, without those of throttled rounds where there are others (:mod:`.summary`):
how many, and in ns their median, its spread (a robust sigma) and the least of them; 0 and NaN where
nothing was timed."""
COLUMNS = ("id", *CONTENT, *DERIVED)


def frame(store: CostStore, selection: Selection | None = None) -> pandas.DataFrame:
    """Rows of ``store`` (all that were ever added, without a ``selection``) in order of arrival.

    Columns are :data:`COLUMNS`, also where there are no rows: those of the table ``measurements``
    as :mod:`nnapi_prof.costs.store.schema` explains them, with units, and :data:`DERIVED`. Whole
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
    columns: dict[str, list[float]] = {name: [] for name in DERIVED}
    for row in rows:
        for name, value in zip(DERIVED, _summary(row), strict=True):
            columns[name].append(value)
    return columns


def _summary(row: Mapping[str, Any]) -> tuple[float, ...]:
    if not row["samples_ns"]:
        return 0, math.nan, math.nan, math.nan
    summary = summarise(row["samples_ns"], rounds_of(row))
    return summary.n, summary.median_ns, summary.spread_ns, summary.minimum_ns


AGAIN = "write it again with `nnapi-prof costs export`"
"""What to do about a file that is not an export."""
DEVICE = "device_info"
FILE_COLUMNS = (*CONTENT, *DERIVED, DEVICE)
IGNORED = frozenset({"id", "digest", *DERIVED})
"""Columns that are not read: what they say follows from the others."""

_JSON = frozenset({*LISTS, "rounds"})
_NULLABLE_TEXT = {DEVICE} | {
    name
    for name in CONTENT
    if MEASUREMENTS.c[name].nullable
    and not isinstance(MEASUREMENTS.c[name].type, (Integer, Boolean))
}
_TRUTH = {"true": True, "false": False}


# ---- CSV ---------------------------------------------------------------------------------------


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        # RFC 4180's line ends: Python 3.11 quotes the characters of the line end alone, and a lone
        # carriage return in a cell would end its row.
        writer = csv.writer(file, lineterminator="\r\n")
        writer.writerow(FILE_COLUMNS)
        for row in rows:
            writer.writerow([_to_cell(name, row[name]) for name in FILE_COLUMNS])


def read_csv(path: Path) -> Iterator[dict[str, Any]]:
    """Rows with their values as far as they can be read; BadCell is among them as a value."""
    # A cell has every sample of a measurement: no limit but memory. The limit is the process's.
    before = csv.field_size_limit(sys.maxsize)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, [])
            yield dict.fromkeys(header) if len(set(header)) == len(header) else _twice(path, header)
            for number, cells in enumerate(reader, 1):
                if len(cells) != len(header):
                    raise CostError(
                        f"{path}: row {number} has {len(cells)} cells, the header {len(header)}; "
                        f"{AGAIN}"
                    )
                yield dict(zip(header, map(_from_cell, header, cells), strict=True))
    except csv.Error as error:
        raise CostError(f"{path}: line {reader.line_num} is not CSV: {error}; {AGAIN}") from error
    except UnicodeDecodeError as error:
        raise CostError(f"{path} is not CSV in UTF-8: {error}; {AGAIN}") from error
    finally:
        csv.field_size_limit(before)


def _twice(path: Path, header: list[str]) -> dict[str, Any]:
    name = next(name for name in header if header.count(name) > 1)
    raise CostError(f"{path}: the column {name} is there twice; {AGAIN}")


def _to_cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name in _JSON:
        return json.dumps(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if name in _NULLABLE_TEXT and name != DEVICE and (value == "" or value.startswith('"')):
        return json.dumps(value)
    return str(value)


def _from_cell(name: str, text: str) -> Any:
    if name not in MEASUREMENTS.c or name in IGNORED:
        return text or None
    kind = MEASUREMENTS.c[name].type
    try:
        if name in _JSON:
            return json.loads(text) if text or not MEASUREMENTS.c[name].nullable else None
        if isinstance(kind, (Integer, Boolean)) and not text:
            return None
        if isinstance(kind, Boolean):
            return _TRUTH[text.lower()]
        if isinstance(kind, Integer):
            return float(text) if "." in text else int(text)
        if name in _NULLABLE_TEXT:
            return json.loads(text) if text.startswith('"') else text or None
    except (ValueError, KeyError):
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        words = "JSON" if name in _JSON | _NULLABLE_TEXT else f"a {_wanted(kind)}"
        return BadCell(name, f"{shown!r} is not {words}")
    return text


def _wanted(kind: Any) -> str:
    return "truth value (true, false)" if isinstance(kind, Boolean) else "whole number"


# ---- Parquet -----------------------------------------------------------------------------------


def write_parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    arrow, parquet = _pyarrow()
    table = arrow.Table.from_pylist(list(rows), schema=_schema(arrow))
    parquet.write_table(table, path, compression="zstd")


def read_parquet(path: Path) -> Iterator[dict[str, Any]]:
    arrow, parquet = _pyarrow()
    try:
        table = parquet.ParquetFile(path).read()
    except arrow.ArrowException as error:
        words = " ".join(str(error).split())
        raise CostError(f"{path} is not a Parquet file: {words}; {AGAIN}") from error
    yield dict.fromkeys(table.column_names)
    yield from table.to_pylist()


def _schema(arrow: Any) -> Any:
    numbers = arrow.list_(arrow.int64())
    turn = arrow.struct(
        [
            ("runs", arrow.int64()),
            ("cpu_khz", numbers),
            ("thermal_mc", numbers),
            ("throttled", arrow.bool_()),
            ("repeats", arrow.int64()),
        ]
    )
    special = dict.fromkeys(LISTS, numbers) | {
        "members": arrow.list_(arrow.string()),
        "rounds": arrow.list_(turn),
        "n_samples": arrow.int64(),
        DEVICE: arrow.string(),
    }
    fields = []
    for name in FILE_COLUMNS:
        kind = special.get(name) or (
            arrow.float64() if name in DERIVED else _arrow(arrow, MEASUREMENTS.c[name].type)
        )
        comment = MEASUREMENTS.c[name].comment if name in MEASUREMENTS.c else ""
        fields.append(arrow.field(name, kind, metadata={"comment": comment or ""}))
    return arrow.schema(fields)


def _arrow(arrow: Any, kind: Any) -> Any:
    if isinstance(kind, Boolean):
        return arrow.bool_()
    return arrow.int64() if isinstance(kind, Integer) else arrow.string()


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise CostError(
            "Parquet files need pyarrow: `pip install nnapi-prof[parquet]`, or name a .csv file"
        ) from error
    return pyarrow, pyarrow.parquet


# ---- files -------------------------------------------------------------------------------------


_WRITERS: Mapping[str, Callable[[Path, Sequence[Mapping[str, Any]]], None]] = {
    ".csv": write_csv,
    ".parquet": write_parquet,
}
_READERS: Mapping[str, Callable[[Path], Iterator[dict[str, Any]]]] = {
    ".csv": read_csv,
    ".parquet": read_parquet,
}


@dataclass(frozen=True)
class Imported:
    """What came of a file."""

    rows: int
    """In the file."""
    added: int
    """Of them new; the others were in the table already."""
    devices: int
    """Different devices among the rows."""


def export(store: CostStore, path: Path, selection: Selection | None = None) -> int:
    """Writes :func:`.frame.frame` to a ``.csv`` or ``.parquet`` file; returns the number of rows.

    The format is that of :mod:`.tabular`. The file is there whole or not at all. Raises UsageError
    for another name, CostError where it cannot be written.
    """
    write = _WRITERS[_format(path)]
    rows = _plain(frame(store, selection))
    devices = {device.fingerprint: device for device in store.devices()}
    for row in rows:
        device = devices.pop(row["fingerprint"], None)
        row[DEVICE] = None if device is None else _device_info(device)
    try:
        with tempfile.TemporaryDirectory(dir=path.absolute().parent, prefix=".nnapi-prof-") as own:
            part = Path(own) / path.name
            write(part, rows)
            part.replace(path)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}: name another file"
        ) from error
    return len(rows)


def import_(store: CostStore, path: Path) -> Imported:
    """Adds the rows of a file that :func:`export` wrote; those that are there already are left.

    All or nothing: CostError names the row (the first after the header is 1) and the column of what
    cannot be, before anything is written. UsageError where the file is absent.
    """
    if what := irregular(path):
        raise UsageError(f"{path} is {what}: name a file that `nnapi-prof costs export` wrote")
    rows, devices = _read(path)
    added = store.add(*rows, devices=devices.values())
    return Imported(len(rows), added, len({row.fingerprint for row in rows}))


def _read(path: Path) -> tuple[list[Measurement], dict[str, DeviceRow]]:
    read = _READERS[_format(path)](path)
    rows: list[Measurement] = []
    devices: dict[str, DeviceRow] = {}
    wrong: list[str] = []
    try:
        names = list(next(read))
        _check_columns(path, names)
        before_work = "operation" not in names  # a file from before version 4 of the schema
        for number, cells in enumerate(read, 1):
            try:
                row = _checked(cells)
                if before_work and row["kind"] == Kind.UNIT.value:
                    row |= labelled_work(row["label"], row["input_bytes"], row["output_bytes"])
                rows.append(from_row(row))
                info = cells.get(DEVICE)
                if info is not None:
                    device = checked_device(row["fingerprint"], info)
                    devices.setdefault(device.fingerprint, device)
            except BadCell as error:
                wrong.append(f"row {number}, column {error.column}: {error}")
    except FileNotFoundError as error:
        raise UsageError(f"{path} does not exist: give a .csv or .parquet file") from error
    except OSError as error:
        raise CostError(f"cannot read {path}: {error.strerror or error}") from error
    if wrong:
        more = f" (and {len(wrong) - 1} more rows cannot be read)" if len(wrong) > 1 else ""
        raise CostError(f"{path}: {wrong[0]}{more}: mend it, or {AGAIN}; nothing was imported")
    return rows, devices


def _checked(cells: Mapping[str, Any]) -> dict[str, Any]:
    for value in cells.values():
        if isinstance(value, BadCell):
            raise value
    return checked(cells)


def _check_columns(path: Path, names: list[str]) -> None:
    lacking = [n for n in CONTENT if n not in names and not MEASUREMENTS.c[n].nullable]
    if lacking:
        raise CostError(
            f"{path} is not an export of a cost table: the column {lacking[0]} is missing"
            + (f" (and {len(lacking) - 1} more)" if len(lacking) > 1 else "")
            + f"; {AGAIN}"
        )
    unknown = [n for n in names if n not in FILE_COLUMNS and n not in IGNORED]
    if unknown:
        raise CostError(
            f"{path}: the column {unknown[0]!r} is unknown: a newer nnapi-prof may have written it;"
            " update nnapi-prof or take the column out"
        )


def _format(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in _WRITERS:
        raise UsageError(f"the format of {path} is unclear: name it .csv or .parquet")
    return suffix


def _plain(table: pandas.DataFrame) -> list[dict[str, Any]]:
    """Python's own values, with None where pandas has NA or NaN."""
    columns = {}
    for name in table.columns:
        gaps = table[name].isna().tolist()
        values = table[name].tolist()
        columns[name] = [None if gap else v for gap, v in zip(gaps, values, strict=True)]
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def _device_info(device: DeviceRow) -> str:
    return json.dumps(
        {
            "description": device.description,
            "simulated": device.simulated,
            "first_seen": device.first_seen,
        }
    )
