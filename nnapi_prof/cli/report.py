"""``nnapi-prof report``: Write a report of a bundle."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nnapi_prof.cli import options as opt
from nnapi_prof.cli.command import define
from nnapi_prof.cli.output import as_json, current, print_document, say, stderr
from nnapi_prof.cli.progress import working
from nnapi_prof.cli.ship import show_steps
from nnapi_prof.costs import existing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nnapi_prof.documents.schema import Document
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
def command(
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
    from nnapi_prof.reports.files import format_of

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
        from nnapi_prof.api.report import chosen_report

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
    """The data of a plan that is estimated for a chip. Raises UsageError where a run or a table is
    ``asked`` for: there is none."""
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
    """The cost table that is asked; where there is none, the error names the bundle's."""
    from nnapi_prof.api.report import naming_table
    from nnapi_prof.bundle.storage import read_bundle
    from nnapi_prof.errors import UsageError

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
    from nnapi_prof.reports.files import ENDINGS

    stem = bundle.resolve().with_suffix("")
    return stem.with_name(f"{stem.name}{ENDINGS[form][0]}")


def _write(path: Path, form: str, data: ReportData) -> None:
    from nnapi_prof.reports.files import text_of, write_report, write_whole

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
