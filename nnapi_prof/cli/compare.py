"""``nnapi-prof compare``: Fail a build where a plan or a cost table became slower."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnapi_prof.cli.command import define
from nnapi_prof.cli.output import as_json, line, ms, plain, print_document, stdout, unit_of, writing

if TYPE_CHECKING:
    from nnapi_prof.api.gate import Gate

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
        "nnapi-prof compare --fail-if-slower 5% base.nnprof model.nnprof",
        "nnapi-prof compare --fail-if-slower 5% --junit speed.xml base.json run.json",
    ],
)
@click.option(
    "--fail-if-slower",
    "slower",
    type=Share(),
    metavar="SHARE",
    help="Slow-down, such as 5% or 0.05, that gives exit code 1. Default: none.",
)
@click.option(
    "--device",
    metavar="PATTERN",
    help="Device in the cost tables, by its name or fingerprint. Default: the only one.",
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
    slower: float | None,
    device: str | None,
    junit: Path | None,
    base: str,
    new: str,
) -> None:
    """Compare the speed of bundles, runs or cost tables; fail if NEW is slower.

    Bundles are compared by their last runs. Runs are the documents of `nnapi-prof run --json`. Cost
    tables are SQLite files or PostgreSQL URLs. --fail-if-slower 5% gives exit code 1 if a median is
    slower by half of that, 2.5 %, and beyond noise (the 99 % interval of the ratio excludes 1): no
    change passes, and a slow-down of 5 % fails.
    """
    from nnapi_prof.api.gate import compare_speed

    gate = compare_speed(base, new, slower, device)
    if junit is not None:
        with writing(junit):
            junit.write_text(gate.junit(), encoding="utf-8")
    if as_json():
        from nnapi_prof.documents.gate import of_gate

        print_document(of_gate(base, new, gate))
    else:
        show_gate(gate)
    gate.raise_for_slower()


def show_gate(gate: Gate) -> None:
    """The rows that fail, or were compared at all."""
    console = stdout()
    unit = unit_of(gate.simulated)
    table = plain(["what"], [f"base, {unit}", f"new, {unit}", "ratio", "99 % interval"], "verdict")
    for row in gate.rows[:MOST_ROWS]:
        table.add_row(
            row.name,
            ms(row.base_ns),
            ms(row.new_ns),
            "–" if row.ratio is None else f"{row.ratio:.3f}",
            "–" if row.low is None or row.high is None else f"{row.low:.3f} to {row.high:.3f}",
            row.verdict.value,
        )
    console.print(table)
    if len(gate.rows) > MOST_ROWS:
        line(console, f"({len(gate.rows) - MOST_ROWS} more rows are not slower than these)")
    for note in gate.notes:
        line(console, f"note: {note}")
