"""``nnapi-prof report``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nnapi_prof.cli.options import BUNDLE, costs_option, say
from nnapi_prof.cli.run import RESULT_FILE

if TYPE_CHECKING:
    from nnapi_prof.run.result import RunReport


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
    from nnapi_prof.bundle.storage import read_bundle
    from nnapi_prof.costs.region import fit
    from nnapi_prof.costs.store import CostStore
    from nnapi_prof.reports.html import ReportData, write_report

    loaded = read_bundle(bundle)
    run = _last_run(bundle / RESULT_FILE)
    if run is None:
        say(f"note: {bundle} was not run yet: the report shows predictions only")
    with CostStore(costs) as store:
        rows = store.measurements(loaded.fingerprint, conditions=loaded.conditions)
        known = {row.fingerprint: row.description for row in store.devices()}
    path = output or bundle.resolve().with_suffix(".html")
    data = ReportData(
        model=loaded.model,
        graph=loaded.graph,
        cost_model=fit(loaded.graph, rows),
        measurements=tuple(rows),
        plan=loaded.plan,
        baselines=loaded.plans[1:],
        run=run,
        device_info=known.get(loaded.fingerprint, {}),
        notes=loaded.notes,
        permutes={plan.name: loaded.permutes(plan) for plan in loaded.plans},
    )
    write_report(path, data)
    click.echo(path)


def _last_run(result: Path) -> RunReport | None:
    """What the bundle's last run kept, None where it was never run."""
    from nnapi_prof.errors import SerializationError
    from nnapi_prof.run.result import RunReport

    if not result.is_file():
        return None
    try:
        return RunReport.from_json(result.read_text())
    except (SerializationError, UnicodeDecodeError) as error:
        raise SerializationError(f"{result}: {error}; `nnapi-prof run` makes it again") from error
