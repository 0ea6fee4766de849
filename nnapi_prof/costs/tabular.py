"""Rows of a cost table as CSV and Parquet files, and back, exactly.

Both have the columns of the table ``measurements`` but for what only a database needs, then those
of :data:`nnapi_prof.costs.frame.DERIVED`, for people, and ``device_info``: on the first row of each
device what is known of it, as JSON. In CSV, lists are JSON; an empty cell is None, or in a column
that is never None the empty text. A text that would be mistaken (an empty one where None may be, or
one that begins with a quotation mark) is a JSON string. Parquet has lists and structures as such.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Boolean, Integer

from nnapi_prof.costs.check import BadCell
from nnapi_prof.costs.frame import DERIVED
from nnapi_prof.costs.rows import CONTENT, LISTS
from nnapi_prof.costs.schema import MEASUREMENTS
from nnapi_prof.errors import CostError

AGAIN = "write it again with `nnapi-prof costs export`"
"""What to do about a file that is no export."""
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
        raise CostError(f"{path}: line {reader.line_num} is no CSV: {error}; {AGAIN}") from error
    except UnicodeDecodeError as error:
        raise CostError(f"{path} is no CSV in UTF-8: {error}; {AGAIN}") from error
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
            return json.loads(text)
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
        wanted = "JSON" if name in _JSON | _NULLABLE_TEXT else _wanted(kind)
        return BadCell(name, f"{shown!r} is no {wanted}")
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
        raise CostError(f"{path} is no Parquet file: {words}; {AGAIN}") from error
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
    special = {name: numbers for name in LISTS} | {
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
