"""``nnapi-prof compare``: Compare two bundles, runs or cost tables, or fail a build that became
slower."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnapi_prof.cli import options as opt
from nnapi_prof.cli.command import define
from nnapi_prof.cli.output import as_json, line, ms, plain, print_document, stdout, unit_of, writing

if TYPE_CHECKING:
    from nnapi_prof.reports.comparison import Compared

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
        if not 0 < number < (10 if text.endswith("%") else 1):  # 5 is not meant to be 500 %
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
def command(
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
    """Print what changed, and the rows that fail or changed, else the first."""
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
