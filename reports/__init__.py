"""Show results to people: tables, figures, reports and their files. Nothing here measures.

:mod:`~nnapi_prof.reports.data` holds what every form of a report is made from;
:mod:`~nnapi_prof.reports.frames` and the modules beside it turn it into tidy DataFrames,
:mod:`~nnapi_prof.reports.figures` and :mod:`~nnapi_prof.reports.figures_plan` draw these,
:mod:`~nnapi_prof.reports.html` writes the page. pandas, matplotlib and jinja2 load when a module
that needs them does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.errors import UsageError, option_name

if TYPE_CHECKING:
    from nnapi_prof.reports.data import ReportData


ENDINGS = {
    "html": (".html", ".htm"),
    "md": (".md", ".markdown"),
    "trace": (".trace.json", ".trace"),
    "json": (".json",),
}
"""Format -> file endings that select it; the first is the default."""


def format_of(path: Path) -> str:
    """Returns the format that a file's ending selects; HTML if it has none. Raises UsageError for
    an unknown ending, with a list of the known ones."""
    name = path.name.lower()
    if not path.suffix:
        return "html"
    fits = {ending: form for form, endings in ENDINGS.items() for ending in endings}
    for ending in sorted(fits, key=len, reverse=True):
        if name.endswith(ending):
            return fits[ending]
    first = ", ".join(endings[0] for endings in ENDINGS.values())
    raise UsageError(
        f"the ending of {path} names no format: there are {first}, or say {option_name('format')}"
        f" {'|'.join(ENDINGS)}"
    )


def text_of(form: str, data: ReportData) -> str:
    """Returns a report in ``html``, ``md`` or ``trace``."""
    if form == "md":
        from nnapi_prof.reports import markdown

        return markdown.render(data)
    if form == "trace":
        from nnapi_prof.reports import trace

        return trace.render(data)
    from nnapi_prof.reports import html

    return html.render(data)


def write_report(path: Path, form: str, data: ReportData) -> None:
    """Writes a report in any form except ``json``. Raises UsageError if it cannot be written."""
    write_whole(path, lambda: text_of(form, data))


def write_whole(path: Path, make: Callable[[], str]) -> None:
    """Writes a text to ``path``, whole or not at all. Raises UsageError if it cannot; for most
    causes before the text is made."""
    partial = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.touch()
        partial.write_text(make(), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise UsageError(
            f"cannot write the report {path}: {error.strerror or error}",
            f"name another {option_name('output')}",
        ) from error
    finally:
        with contextlib.suppress(OSError):  # it does not exist after success
            partial.unlink(missing_ok=True)
