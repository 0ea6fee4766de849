"""Cost tables to files and from files: CSV and Parquet, by the file's name."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas

from nnapi_prof.costs.check import BadCell, checked, checked_device
from nnapi_prof.costs.frame import frame
from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.costs.rows import CONTENT, from_row
from nnapi_prof.costs.schema import MEASUREMENTS
from nnapi_prof.costs.selection import Selection
from nnapi_prof.costs.store import CostStore, DeviceRow
from nnapi_prof.costs.tabular import (
    AGAIN,
    DEVICE,
    FILE_COLUMNS,
    IGNORED,
    read_csv,
    read_parquet,
    write_csv,
    write_parquet,
)
from nnapi_prof.errors import CostError, UsageError

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
    known = {device.fingerprint: device for device in store.devices()}
    for row in rows:
        device = known.pop(row["fingerprint"], None)
        row[DEVICE] = None if device is None else _device_info(device)
    try:
        with tempfile.TemporaryDirectory(dir=path.absolute().parent, prefix=".nnapi-prof-") as own:
            part = Path(own) / path.name
            write(part, rows)
            os.replace(part, path)
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
    rows, devices = _read(path)
    added = store.add(*rows, devices=devices.values())
    return Imported(len(rows), added, len({row.fingerprint for row in rows}))


def _read(path: Path) -> tuple[list[Measurement], dict[str, DeviceRow]]:
    read = _READERS[_format(path)](path)
    rows: list[Measurement] = []
    devices: dict[str, DeviceRow] = {}
    wrong: list[str] = []
    try:
        _check_columns(path, list(next(read)))
        for number, cells in enumerate(read, 1):
            try:
                row = _checked(cells)
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
            f"{path} is no export of a cost table: the column {lacking[0]} is missing"
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
        raise UsageError(f"the format of {path} cannot be told: name it .csv or .parquet")
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
