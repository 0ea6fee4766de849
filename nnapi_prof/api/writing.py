"""Reports and comparisons as files; the ending says which form."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nnapi_prof.errors import UsageError
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.files import format_of, write_report


def write(path: Path, sides: Sequence[tuple[str, ReportData]]) -> Path:
    """Writes a report of one side, or a comparison of several, to ``path``; returns it.

    A path that ends in ``.csv`` becomes a folder of tables. Raises UsageError where the ending is
    unknown or of a form that several sides do not fit in, or nothing can be written there.
    """
    form = format_of(path)
    if form == "json":
        raise UsageError(
            f"{path}: Python has the data already (frame(), segments(), report_data()); as one JSON"
            " document `nnapi-prof report --format json` writes it"
        )
    write_report(path, form, sides)
    return path
