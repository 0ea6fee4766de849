"""Reports and comparisons as files; the ending says which form."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nnapi_prof.errors import UsageError
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.files import format_of, text_of, write_whole


def write(path: Path, sides: Sequence[tuple[str, ReportData]]) -> Path:
    """Writes a report of one side, or a comparison of several, to ``path``; returns it.

    A path that ends in ``.csv`` becomes a folder of tables. Raises UsageError where the ending is
    unknown, or nothing can be written there.
    """
    form = format_of(path)
    if form == "json":
        raise UsageError(
            f"{path}: Python has the data already (frame(), segments(), report_data()); as one JSON"
            " document `nnapi-prof report --format json` writes it"
        )
    if form == "csv":
        from nnapi_prof.reports import tables

        try:
            for _, data in sides:
                tables.write(path, data)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
        return path
    write_whole(path, lambda: text_of(form, sides))
    return path
