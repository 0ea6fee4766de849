"""Sections of a report that are one list of facts or one table, in HTML and in Markdown.

Each stands in a file of this folder as ``SECTION`` and is found by itself; they follow each other
in the order of their files' names, behind the environment's. A section without rows is left out.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nnapi_prof.reports.data import ReportData


@dataclass(frozen=True, slots=True)
class Section:
    """A section, as a file of this folder defines it."""

    id: str
    """Of the page's element; ends links to it."""
    name: str
    """In the page's navigation."""
    heading: str
    rows: Callable[[ReportData], Sequence[Sequence[str]]]
    heads: tuple[str, ...] = ()
    """Of the table's columns; empty for facts, whose rows are a name and a value."""
    numbers: tuple[int, ...] = ()
    """Columns aligned to the right."""
    about: str = ""
    """A sentence above the table."""
    figure: str = ""
    """Name of the drawing that stands above the table."""


def filled_sections(data: ReportData) -> list[tuple[Section, Sequence[Sequence[str]]]]:
    """The sections that have something to show, with their rows."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    sections = [importlib.import_module(f"{__name__}.{name}").SECTION for name in names]
    return [(section, rows) for section in sections if (rows := section.rows(data))]
