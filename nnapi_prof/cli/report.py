"""``nnapi-prof report``."""

from __future__ import annotations

from pathlib import Path

import click

from nnapi_prof.cli.options import BUNDLE, costs_option, say


@click.command("report", context_settings={"help_option_names": ["-h", "--help"]})
@costs_option
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="HTML file to write. Default: BUNDLE.html beside the bundle.",
)
@BUNDLE
def command(costs: str | None, output: Path | None, bundle: Path) -> None:
    """Write one self-contained HTML report of BUNDLE.

    Shows the latency of every unit on every target, the plan and why, what was refused, the
    baselines, and, once `nnapi-prof run` ran the bundle, predicted against measured latency.
    """
    from nnapi_prof.api.steps_report import report_data
    from nnapi_prof.reports.html import write_report

    data = report_data(bundle, costs)
    if data.run is None:
        say(f"note: {bundle} was not run yet: the report shows predictions only")
    path = output or bundle.resolve().with_suffix(".html")
    write_report(path, data)
    click.echo(path)
