"""Plans, devices or dates side by side, what changed first: HTML and Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from nnapi_prof.reports.compare_markdown import lines
from nnapi_prof.reports.compare_page import context
from nnapi_prof.reports.compare_summary import compared
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.html import template


def render(sides: Sequence[tuple[str, ReportData]]) -> str:
    """The comparison as one HTML page; each side has a name. Raises UsageError as
    :func:`~nnapi_prof.reports.compare_summary.compared` does."""
    return template("compare.html").render(**context(compared(sides)))


def markdown(sides: Sequence[tuple[str, ReportData]]) -> str:
    """The comparison as Markdown; for the rest as :func:`render`."""
    return "\n".join(lines(compared(sides))).rstrip("\n") + "\n"
