"""Which forms a report has, and how it becomes a file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.errors import UsageError, option

if TYPE_CHECKING:  # pandas and the like need not be there to refuse a file's name
    from nnapi_prof.reports.data import ReportData

ENDINGS = {
    "html": (".html", ".htm"),
    "md": (".md", ".markdown"),
    "trace": (".trace.json", ".trace"),
    "json": (".json",),
}
"""Format -> endings of files that ask for it; the first is what a file gets that nobody named."""
COMPARES = ("html", "md", "json")
"""Formats that several plans fit in side by side."""


def format_of(path: Path) -> str:
    """The format that a file's ending asks for; HTML, where it has none. Raises UsageError for an
    unknown one, listing those there are."""
    name = path.name.lower()
    if not path.suffix:
        return "html"
    fits = {ending: form for form, endings in ENDINGS.items() for ending in endings}
    for ending in sorted(fits, key=len, reverse=True):
        if name.endswith(ending):
            return fits[ending]
    first = ", ".join(endings[0] for endings in ENDINGS.values())
    raise UsageError(
        f"the ending of {path} names no format: there are {first}, or say {option('format')}"
        f" {'|'.join(ENDINGS)}"
    )


def text_of(form: str, sides: Sequence[tuple[str, ReportData]]) -> str:
    """A report (of one side) or a comparison in ``html``, ``md`` or ``trace``. Raises UsageError
    where several do not fit in the format."""
    if len(sides) == 1:
        return _single(form)(sides[0][1])
    check_compares(form)
    if form == "md":
        from nnapi_prof.reports import compare_markdown

        return compare_markdown.render(sides)
    from nnapi_prof.reports import compare_page

    return compare_page.render(sides)


def check_compares(form: str) -> None:
    """Raises UsageError where several plans do not fit in a format."""
    if form not in COMPARES:
        raise UsageError(
            f"{option('format', form)} is of one bundle: a comparison is"
            f" {', '.join(COMPARES[:-1])} or {COMPARES[-1]}"
        )


def _single(form: str) -> Callable[[ReportData], str]:
    if form == "md":
        from nnapi_prof.reports import markdown

        return markdown.render
    if form == "trace":
        from nnapi_prof.reports import trace

        return trace.render
    from nnapi_prof.reports import html

    return html.render


def write_report(path: Path, form: str, sides: Sequence[tuple[str, ReportData]]) -> None:
    """Writes a report of one side, or a comparison of several, in any form but ``json``. Raises
    UsageError where it cannot be written, or several sides do not fit in the form."""
    if len(sides) > 1:
        check_compares(form)
    write_whole(path, lambda: text_of(form, sides))


def write_whole(path: Path, make: Callable[[], str]) -> None:
    """Writes a text to ``path``, whole or not at all. Raises UsageError where it cannot, before
    the text is made."""
    partial = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.touch()
        partial.write_text(make(), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise UsageError(
            f"cannot write the report {path}: {error.strerror or error}: name another "
            f"{option('output')}"
        ) from error
    finally:
        with contextlib.suppress(OSError):  # there is none after success
            partial.unlink(missing_ok=True)
