"""``nnapi-prof calibrate``: Fit a phone's description for `estimate` to what a cost table has of
it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nnapi_prof.cli import options as opt
from nnapi_prof.cli.command import define
from nnapi_prof.cli.output import as_json, plain, print_document, say, stdout, writing
from nnapi_prof.cli.progress import working
from nnapi_prof.costs.conditions import ConditionOptions

if TYPE_CHECKING:
    from nnapi_prof.costs.estimate.calibration import TargetReport
    from nnapi_prof.costs.store import CostStore


@define(
    "calibrate",
    examples=[
        "nnapi-prof calibrate --costs costs.sqlite -o phone.json",
        "nnapi-prof calibrate --costs costs.sqlite --from pixel4 -o phone.json",
    ],
)
@opt.costs
@click.option(
    "--device",
    "fingerprint",
    metavar="DEVICE",
    help="Device in the table: its fingerprint or a prefix of it, or its name (`nnapi-prof"
    " costs list`). Default: the only one.",
)
@opt.conditions
@click.option("--name", help="Name of the phone in the description. Default: its model.")
@click.option(
    "--folds",
    type=click.IntRange(2, 100),
    default=5,
    show_default=True,
    help="Number of cross-validation folds.",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed that assigns rows to folds."
)
@click.option(
    "--from",
    "sister",
    metavar="PHONE",
    shell_complete=opt.phones,
    help="A similar phone with a good description: an included one, or a file. 10 to 30 rows"
    " are then enough.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write the description to this file, for `nnapi-prof estimate --phone`. Default: do"
    " not write it.",
)
def command(
    costs: str | None,
    fingerprint: str | None,
    name: str | None,
    folds: int,
    seed: int,
    sister: str | None,
    output: Path | None,
    conditions: ConditionOptions,
) -> None:
    """Fit a phone's description to a cost table.

    Prints the prediction errors of cross-validation: each row is predicted by a model that was
    fitted to the other folds. The same table always gives the same description.
    """
    from nnapi_prof.api.cost_tables import open_table
    from nnapi_prof.api.estimate import calibrate

    with open_table(costs, to_read=True) as store:
        chosen = _device(store, fingerprint)
        about = {row.fingerprint: row.description for row in store.devices()}[chosen]
        label = name or str(about.get("model") or about.get("product") or chosen)
        with working("fitting"):
            phone = calibrate(
                store,
                chosen,
                name=label,
                conditions=conditions,
                folds=folds,
                seed=seed,
                sister=sister,
            )
    if output is not None:
        with writing(output):
            output.write_text(json.dumps(phone.description) + "\n", encoding="utf-8")
    if as_json():
        from nnapi_prof.documents.costs import of_calibration

        print_document(
            of_calibration(label, chosen, phone.simulated, phone.reports, folds, seed, output)
        )
    else:
        simulated = ", simulated" if phone.simulated else ""
        _show_fits(phone.reports, f"Cross-validated errors, {folds} folds, seed {seed}{simulated}")
    if output is not None:
        say(f"description in {output}: `nnapi-prof estimate MODEL --phone {output}`")


def _show_fits(reports: Sequence[TargetReport], title: str) -> None:
    heads = ["rows", "median", "9 of 10 below", "within 10 %", "one rate: median"]
    table = plain(["target"], heads, title=title)
    for report in reports:
        half, nine, within = report.summary(report.errors)
        base = report.summary(report.single_rate)[0]
        cells = [f"{value:.1%}" for value in (half, nine, within, base)]
        table.add_row(report.target.key, str(report.rows), *cells)
    stdout().print(table)


def _device(store: CostStore, asked: str | None) -> str:
    """The fingerprint of the device to fit; raises UsageError where it is not clear which."""
    from nnapi_prof.costs.store.devices import find_one, measured
    from nnapi_prof.errors import UsageError

    there = measured(store)
    if not there:
        raise UsageError("the cost table is empty", "`nnapi-prof profile` fills it")
    if asked is not None:
        return find_one(there, asked).fingerprint
    if len(there) > 1:
        listed = ", ".join(f"{each.fingerprint} ({each.name})" for each in there)
        raise UsageError(f"which device: state --device; there are: {listed}")
    return there[0].fingerprint
