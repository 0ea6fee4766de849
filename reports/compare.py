"""Plans, devices or dates side by side, what changed first: Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from nnapi_prof.reports.compare_markdown import lines
from nnapi_prof.reports.compare_summary import compared
from nnapi_prof.reports.data import ReportData


def markdown(named: Sequence[tuple[str, ReportData]]) -> str:
    """The comparison as Markdown; each side has a name. Raises UsageError as
    :func:`~nnapi_prof.reports.compare_summary.compared` does."""
    return "\n".join(lines(compared(named))) + "\n"
