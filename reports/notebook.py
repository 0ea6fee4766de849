"""Write small tables for notebooks: plain HTML without script, accessible to screen readers, in the
colours of the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from nnapi_prof.reports.words import ms as ms

_CELL = "text-align:left;padding:0.15em 0.8em 0.15em 0"
_NUMBER = "text-align:right;padding:0.15em 0.8em 0.15em 0;font-variant-numeric:tabular-nums"


def table(
    caption: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Sequence[int] = (),
    rest: str = "",
) -> str:
    """Returns a table with a caption; the first cell of each row is its head.

    ``numbers`` are the columns that are aligned to the right, ``rest`` is a text below the table
    (rows left out). All texts are escaped.
    """
    heads = "".join(
        f'<th scope="col" style="{_style(column, numbers)}">{escape(name)}</th>'
        for column, name in enumerate(columns)
    )
    body = "".join(f"<tr>{_html_row(cells, numbers)}</tr>" for cells in rows)
    below = f"<p>{escape(rest)}</p>" if rest else ""
    return (
        f'<div role="region" tabindex="0" aria-label="{escape(caption)}" style="overflow-x:auto">'
        f'<table><caption style="text-align:left;font-weight:bold">{escape(caption)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>{below}"
    )


def _html_row(cells: Sequence[str], numbers: Sequence[int]) -> str:
    first = f'<th scope="row" style="{_style(0, numbers)}">{escape(cells[0])}</th>'
    others = (
        f'<td style="{_style(column, numbers)}">{escape(cell)}</td>'
        for column, cell in enumerate(cells[1:], 1)
    )
    return first + "".join(others)


def _style(column: int, numbers: Sequence[int]) -> str:
    return _NUMBER if column in numbers else _CELL


def notes(texts: Iterable[str]) -> str:
    """Returns notes as a list; empty if there are none."""
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def facts(caption: str, pairs: Iterable[tuple[str, str]]) -> str:
    """Returns a table of names and values."""
    return table(caption, ("fact", "value"), pairs)


def kind_of(simulated: bool, estimated: bool = False) -> str:
    """Returns the unit ``ms`` with the required labels of the latencies: ``ms, simulated``."""
    words = [word for word, is_so in (("simulated", simulated), ("estimated", estimated)) if is_so]
    return ", ".join(["ms", *words])
