"""``nnapi-prof fleet``: Choose few plans that are good on many phones; needs no device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnapi_prof.cli import options as opt
from nnapi_prof.cli.command import CONDITIONS, define
from nnapi_prof.cli.output import as_json, boxed, line, ms, print_document, say, stdout, unit_of
from nnapi_prof.cli.progress import listening

if TYPE_CHECKING:
    from nnapi_prof.api.events import Listener
    from nnapi_prof.api.fleet_result import Fleet
    from nnapi_prof.costs.store import CostStore

MOST_ROWS = 20
"""A table has the phones of the largest regret of more."""


@define(
    "fleet",
    examples=[
        'nnapi-prof fleet --phones "pixel*" --phones "galaxy*" -k 3 -o model.nnprof model.pt',
        'nnapi-prof fleet --objective worst --weight "pixel*=3" --json model.pt > fleet.json',
        "nnapi-prof fleet --report fleet.html first.pt second.pt",
    ],
)
@opt.inputs
@opt.costs
@opt.conditions
@click.option(
    "--phones",
    multiple=True,
    metavar="PATTERN",
    help="Phones of the cost table: names with * and ?, or fingerprints; repeat it for more."
    " Default: all on which the model was measured.",
)
@click.option(
    "-k",
    "--plans",
    "k",
    type=click.IntRange(1, 16),
    default=3,
    show_default=True,
    help="Plans at most.",
)
@click.option(
    "--objective",
    type=click.Choice(["mean", "worst"]),
    default="mean",
    show_default=True,
    help="Which regret is made least: that of all phones by their weights, or the largest.",
)
@click.option(
    "--weight",
    "stated",
    multiple=True,
    metavar="PATTERN=NUMBER",
    help="How much some phones count; repeat it for others. Default: 1.",
)
@opt.seconds("the search for plans", 120)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Bundle to write. Default: the model's name with .nnprof; with --report none.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a report of all MODELs on all phones in place of a bundle: .html, .json, or .csv"
    " (a folder of tables).",
)
@opt.models
def command(
    inputs: tuple[str, ...],
    costs: str | None,
    phones: tuple[str, ...],
    stated: tuple[str, ...],
    output: Path | None,
    report: Path | None,
    models: tuple[Path, ...],
    **options: Any,
) -> None:
    """Choose at most K plans that are good on many phones, in one bundle.

    Needs what `nnapi-prof profile` measured of the model on each phone, in one cost table, under
    the same conditions. The regret of a plan on a phone is its latency there over that of the best
    plan for this phone alone, less one. The bundle knows by a phone's build, its SoC, or its
    accelerators and their feature levels which plan it runs; all other phones run the model on the
    CPU.

    With --report, several MODELs stand in one table: what each phone takes, the fastest simple
    strategy, what NNAPI is worth there, who shares a plan, accelerators that are slower than the
    CPU, drivers that fail, and what changed from day to day.
    """
    _check(models, output, report)
    conditions = {name: options.pop(name) for name in CONDITIONS}
    with listening() as listener:
        with listener.working("loading PyTorch"):
            from nnapi_prof.api.cost_tables import open_table
            from nnapi_prof.api.fleet import fleet
            from nnapi_prof.api.fleet_costs import costs_of_phones, weights_of
            from nnapi_prof.api.model import load

        fleets: list[Fleet] = []
        with open_table(costs, to_read=True) as store:
            for model in models:
                loaded = load(model, inputs, listener=listener)
                named = costs_of_phones(loaded, store, phones, conditions, listener)
                weights = weights_of(named, stated)
                fleets.append(fleet(loaded, named, weights=weights, listener=listener, **options))
            if report is not None:
                _write_report(report, fleets, store, listener)
                return
        path = output or models[0].with_suffix(".nnprof")
        with listener.working("converting what the plans give to accelerators"):
            fleets[0].save(path)
    if as_json():
        from nnapi_prof.documents.fleet import of_fleet

        print_document(of_fleet(path, fleets[0]))
    else:
        show_fleet(fleets[0])
    say(f"bundle in {path}")


def _check(models: Sequence[Path], output: Path | None, report: Path | None) -> None:
    """Raises UsageError where options do not go together."""
    from nnapi_prof.errors import UsageError
    from nnapi_prof.reports.files import check_fleet_format

    if report is not None:
        check_fleet_format(report)
        if output is not None:
            raise UsageError("-o names a bundle, --report writes a report in its place: leave one")
    elif len(models) > 1:
        raise UsageError(
            f"a bundle is of one model, here are {len(models)}: add --report FILE for a report of"
            " all, or name one model"
        )


def _write_report(
    path: Path, fleets: Sequence[Fleet], store: CostStore, listener: Listener
) -> None:
    from nnapi_prof.api.fleet_report import fleet_report
    from nnapi_prof.documents.fleet_report import of_fleet_report
    from nnapi_prof.reports.fleet_page import write

    data = fleet_report(fleets, store, listener)
    document = of_fleet_report(data)
    with listener.working("writing the report"):
        write(path, data, document)
    if as_json():
        print_document(document)
    else:
        click.echo(path)


def show_fleet(fleet: Fleet) -> None:
    """Plans, the phones that fare worst, and what more plans would bring."""
    console, unit = stdout(), unit_of(fleet.simulated)
    plans = boxed("Plans", ["plan"], ["segments", "phones", "share"], "targets")
    for number, plan in enumerate(fleet.plans):
        users = [phone for phone in fleet.phones if phone.plan == number]
        targets = ", ".join(dict.fromkeys(segment.target.key for segment in plan.segments))
        share = sum(phone.weight for phone in users)
        plans.add_row(plan.name, str(len(plan.segments)), str(len(users)), f"{share:.0%}", targets)
    console.print(plans)
    ordered = sorted(fleet.phones, key=lambda phone: -phone.regret)
    heads = ["latency", "95 %", "own best", "all-cpu", "regret"]
    table = boxed(f"Phones, predicted latency in {unit}", ["phone", "plan"], heads)
    for phone in ordered[:MOST_ROWS]:
        is_known = phone.half_ns == phone.half_ns
        table.add_row(
            phone.name,
            fleet.plans[phone.plan].name,
            ms(phone.predicted_ns),
            f"± {ms(phone.half_ns)}" if is_known else "unknown",
            ms(phone.least_ns),
            ms(phone.all_cpu_ns),
            f"{phone.regret:.1%}",
        )
    console.print(table)
    if len(ordered) > MOST_ROWS:
        line(console, f"({len(ordered) - MOST_ROWS} more phones have smaller regrets)")
    curve = boxed("Regret by the number of plans", ["plans"], ["mean", "worst"], "")
    for number, choice in enumerate(fleet.search.choices, 1):
        proof = (
            "none of the candidates do better"
            if choice.is_optimal
            else f"{choice.objective.value} at least {choice.bound:.2%} with these candidates"
        )
        curve.add_row(str(number), f"{choice.mean:.2%}", f"{choice.worst:.2%}", proof)
    console.print(curve)
    for note in fleet.notes:
        line(console, f"note: {note}")
