"""``nnapi-prof report``: Write a report of a bundle.

``nnapi-prof compare``: Compare two bundles, runs or cost tables, or fail a build that became
slower.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnapi_prof.cli import options as opt
from nnapi_prof.cli.command import define
from nnapi_prof.cli.output import (
    as_json,
    current,
    line,
    ms,
    plain,
    print_document,
    say,
    stderr,
    stdout,
    unit_of,
    writing,
)
from nnapi_prof.cli.progress import working
from nnapi_prof.cli.ship import show_steps
from nnapi_prof.costs import existing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nnapi_prof.documents import Document
    from nnapi_prof.reports.comparison import Compared
    from nnapi_prof.reports.data import ReportData


FORMATS = ("html", "md", "trace", "json")


@define(
    "report",
    examples=[
        "nnapi-prof report model.nnprof",
        "nnapi-prof report --format md -o - model.nnprof",
        "nnapi-prof report --run 'Pixel 6@2026-01-31' model.nnprof",
    ],
)
@opt.costs
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File to write; - is standard output. Default: BUNDLE.html beside the bundle; with"
    " --json none.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Format of the report. Default: by the extension of -o: .html, .md, .trace.json or .json.",
)
@click.option(
    "--run",
    "runs",
    multiple=True,
    metavar="DATE|DEVICE",
    help="Run of the bundle to show: the last until DATE, on DEVICE, or DEVICE@DATE. Default: the"
    " last.",
)
@click.option(
    "--at",
    "dates",
    multiple=True,
    metavar="DATE",
    help="Show the plan under the costs at the end of DATE (2026-01-31, or with a time, UTC).",
)
@click.option(
    "--every-preference",
    is_flag=True,
    help="Show accelerators under each of NNAPI's preferences. Default: only the plan's.",
)
@click.argument(
    "bundles", metavar="BUNDLE...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
def report(
    costs: str | None,
    output: Path | None,
    form: str | None,
    runs: tuple[str, ...],
    dates: tuple[str, ...],
    every_preference: bool,
    bundles: tuple[Path, ...],
) -> None:
    """Write a report of BUNDLE.

    Shows the latency of every unit on every target, the plan and its reasons, refusals, baselines
    and, after `nnapi-prof run`, predicted against measured latency. `nnapi-prof compare` compares
    two bundles or runs.

    Formats: html (one file that loads nothing), md (Markdown), trace (for Perfetto and
    chrome://tracing), json. --json prints the report's data.
    """
    from nnapi_prof.errors import UsageError
    from nnapi_prof.reports import format_of

    if max(len(bundles), len(runs), len(dates)) > 1:
        raise UsageError(
            "a report is of one bundle and one run",
            "`nnapi-prof compare BASE NEW` compares two, BUNDLE#DATE two runs of one",
        )
    bundle, run, at = bundles[0], *(next(iter(words), None) for words in (runs, dates))
    chosen = form or (format_of(output) if output and str(output) != "-" else "html")
    _check_output(output)
    from nnapi_prof.bundle.storage import check_bundle, is_chip_plan

    if is_chip_plan(bundle):
        data = _of_chip(bundle, (costs, run, at))
    else:
        check_bundle(bundle)
        from nnapi_prof.reports.bundle_data import chosen_report

        with working("reading the bundle and costs"):
            data = chosen_report(bundle, _table(bundle, costs), run, at)
            data = replace(data, every_preference=every_preference)
    if data.run is None and data.origin is None:
        when = "by then" if dates else "yet"
        say(f"note: {bundle.stem} was not run {when}: the report shows predictions only")
    if as_json():
        print_document(_document(data))
        if output is None:
            return
    path = output or _beside(bundle, chosen)
    with working("writing the report"):
        _write(path, chosen, data)
    if not as_json() and str(path) != "-":
        click.echo(path)
    if chosen in ("html", "md") and not (as_json() or current().quiet):
        show_steps(stderr(), data.ship)


def _of_chip(bundle: Path, asked: Sequence[str | None]) -> ReportData:
    """Returns the data of a plan that is estimated for a chip. Raises UsageError where a run or a
    table is ``asked`` for, because it has none."""
    from nnapi_prof.api.plan import read_plan
    from nnapi_prof.errors import UsageError

    if any(asked):
        raise UsageError(
            f"{bundle} is estimated for a chip: it has no run, no date and no cost table",
            "leave --run, --at and --costs out",
        )
    with working("reading the bundle"):
        return read_plan(bundle).report_data()


def _table(bundle: Path, costs: str | None) -> str:
    """Returns the cost table to read; if it does not exist, the error names the bundle's."""
    from nnapi_prof.bundle.storage import read_bundle
    from nnapi_prof.errors import UsageError
    from nnapi_prof.reports.bundle_data import naming_table

    try:
        return existing(costs)
    except UsageError:
        with naming_table(read_bundle(bundle), costs):
            raise


def _check_output(output: Path | None) -> None:
    from nnapi_prof.errors import UsageError

    if str(output) != "-":
        return
    if as_json():
        raise UsageError("--json prints the report's data on standard output", "leave -o - out")


def _beside(bundle: Path, form: str) -> Path:
    """Returns the default path of a report."""
    from nnapi_prof.reports import ENDINGS

    stem = bundle.resolve().with_suffix("")
    return stem.with_name(f"{stem.name}{ENDINGS[form][0]}")


def _write(path: Path, form: str, data: ReportData) -> None:
    from nnapi_prof.reports import text_of, write_report, write_whole

    def document() -> str:
        return json.dumps(_document(data), indent=1, allow_nan=False) + "\n"

    if str(path) == "-":
        click.echo(document() if form == "json" else text_of(form, data))
    elif form == "json":
        write_whole(path, document)
    else:
        write_report(path, form, data)


def _document(data: ReportData) -> Document:
    from nnapi_prof.documents.report import of_report

    return of_report(data)


MOST_ROWS = 20


class Share(click.ParamType[float]):
    """A share: ``5%`` or ``0.05``."""

    name = "share"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        text = str(value).strip()
        try:
            number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            number = 0.0
        if not 0 < number < (10 if text.endswith("%") else 1):  # a plain 5 is not 500 %
            self.fail(f"{value!r} is not a share: write 5% or 0.05", param, ctx)
        return number


@define(
    "compare",
    examples=[
        "nnapi-prof compare -o compare.html base.nnprof model.nnprof",
        "nnapi-prof compare --fail-if-slower 5% --junit speed.xml base.json run.json",
        "nnapi-prof compare 'costs.sqlite#Pixel 6@2026-01-31' 'costs.sqlite#Pixel 6'",
    ],
)
@opt.costs
@click.option(
    "--fail-if-slower",
    "slower",
    type=Share(),
    metavar="SHARE",
    help="Slow-down, such as 5% or 0.05, that gives exit code 1. Default: none.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the comparison to this file, as a page (.html) or as Markdown (.md).",
)
@click.option(
    "--junit",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the rows as JUnit test cases to this file.",
)
@click.argument("base")
@click.argument("new")
def compare(
    costs: str | None,
    slower: float | None,
    output: Path | None,
    junit: Path | None,
    base: str,
    new: str,
) -> None:
    """Compare two bundles, runs or cost tables; fail if NEW is slower.

    Bundles are compared by their last runs; --costs adds the latencies of their units. Runs are the
    documents of `nnapi-prof run --json`. Cost tables are SQLite files or PostgreSQL URLs. A # adds
    a choice: BUNDLE#DATE, BUNDLE#DEVICE or BUNDLE#DEVICE@DATE selects a run of a bundle, and
    TABLE#DATE, TABLE#DEVICE or TABLE#DEVICE@DATE a device of a table and its measurements until
    DATE.

    --fail-if-slower 5% gives exit code 1 if a median is slower by half of that, 2.5 %, and beyond
    noise (the 99 % interval of the ratio excludes 1): no change passes, and a slow-down of 5 %
    fails. It judges the plan of bundles and runs, and every row of tables.
    """
    from nnapi_prof.api.compare import compare
    from nnapi_prof.reports import comparison_files

    compared = compare(base, new, slower, costs=costs)
    if output is not None:
        comparison_files.write(compared, output)
    if junit is not None:
        with writing(junit):
            junit.write_text(comparison_files.junit(compared), encoding="utf-8")
    if as_json():
        from nnapi_prof.documents.report import of_comparison

        print_document(of_comparison(compared))
    else:
        show_comparison(compared)
    compared.raise_for_slower()


def show_comparison(compared: Compared) -> None:
    """Prints what changed, and the rows that fail or changed, else the first."""
    from nnapi_prof.reports.comparison_files import ratio_cells, sentences

    console = stdout()
    for sentence in sentences(compared):
        line(console, sentence)
    if compared.rows:
        unit = unit_of(compared.simulated)
        heads = [f"base, {unit}", f"new, {unit}", "ratio", "99 % interval"]
        table = plain(["what"], heads, "verdict")
        for row in compared.rows[:MOST_ROWS]:
            times = ms(row.base_ns), ms(row.new_ns)
            table.add_row(row.label, *times, *ratio_cells(row), row.verdict.value)
        console.print(table)
    if len(compared.rows) > MOST_ROWS:
        line(console, f"({len(compared.rows) - MOST_ROWS} more rows changed no more than these)")
    for note in dict.fromkeys(note for side in compared.sides for note in side.notes):
        line(console, f"note: {note}")
