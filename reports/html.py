"""One self-contained HTML file: figures inline, style and script inline, nothing fetched."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined, Template, select_autoescape

from nnapi_prof.reports.context import context, known
from nnapi_prof.reports.data import ReportData as ReportData
from nnapi_prof.reports.style import HEAT
from nnapi_prof.reports.words import (
    MARGINAL_MARKS,
    count,
    format_change,
    format_difference,
    format_ms,
    format_percent,
    format_si,
    format_time,
    marginal_cell,
    place_words,
    plan_words,
    rule_words,
    target_words,
)
from nnapi_prof.run.words import verdict


def render(data: ReportData) -> str:
    """The report as HTML."""
    return template("report.html").render(**context(data))


def template(name: str) -> Template:
    """A template of ours, with the filters and colours that pages share; all is escaped."""
    environment = Environment(
        loader=PackageLoader("nnapi_prof.reports"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        ms=format_ms, percent=format_percent, change=format_change, si=format_si,
        target=target_words, place=place_words, plan=plan_words, rule=rule_words, by=sort_key,
        time=format_time, difference=format_difference, verdict=verdict, marginal=marginal_cell,
    )  # fmt: skip
    environment.tests.update(known=known)
    environment.globals.update(heat=HEAT, count=count, marginal_marks=MARGINAL_MARKS)
    return environment.get_template(name)


def sort_key(number: float | None) -> str:
    """What a table sorts by: a number as short as it can be, empty where it is unknown."""
    return f"{number:.6g}" if known(number) and number is not None else ""
