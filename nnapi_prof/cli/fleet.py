"""``nnapi-prof fleet``: Choose few plans that are good on many phones; needs no device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnapi_prof.api.objectives import FleetOptions
from nnapi_prof.cli import options as opt
from nnapi_prof.cli.command import define
from nnapi_prof.cli.output import as_json, boxed, line, ms, print_document, say, stdout, unit_of
from nnapi_prof.cli.progress import listening
from nnapi_prof.costs.conditions import ConditionOptions

if TYPE_CHECKING:
    from nnapi_prof.api.fleet_result import Fleet

MOST_ROWS = 20
"""A table has the phones of the largest regret of more."""


@define(
    "fleet",
    examples=[
        'nnapi-prof fleet --phones "pixel*" --phones "galaxy*" -k 3 -o model.nnprof model.pt',
        'nnapi-prof fleet --objective worst --weight "pixel*=3" --json model.pt > fleet.json',
    ],
)
@opt.inputs
@opt.costs
@opt.conditions
@click.option(
    "--phones",
    multiple=True,
    metavar="PATTERN",
    help="Phones in the cost table: names with * and ?, or fingerprints; repeatable. Default:"
    " all on which the model was measured.",
)
@opt.declared(FleetOptions)
@click.option(
    "--weight",
    "stated",
    multiple=True,
    metavar="PATTERN=NUMBER",
    help="Weight of phones, by a pattern; repeatable. Default: 1.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Bundle to write. Default: the model's name with .nnprof.",
)
@opt.model
def command(
    inputs: tuple[str, ...],
    costs: str | None,
    phones: tuple[str, ...],
    stated: tuple[str, ...],
    output: Path | None,
    model: Path,
    conditions: ConditionOptions,
    **options: Any,
) -> None:
    """Choose at most K plans that are good on many phones, in one bundle.

    Needs the measurements of `nnapi-prof profile` on each phone, in one cost table, under the same
    conditions. The regret of a plan on a phone is how much slower it is there than the phone's own
    best plan. The bundle recognises a phone by its build, its SoC, or its accelerators and their
    feature levels; all other phones run the model on the CPU.
    """
    with listening() as listener:
        with listener.working("loading PyTorch"):
            from nnapi_prof.api.cost_tables import open_table
            from nnapi_prof.api.fleet import costs_of_phones, fleet, weights_of
            from nnapi_prof.api.model import load

        loaded = load(model, inputs, listener=listener)
        with open_table(costs, to_read=True) as store:
            named = costs_of_phones(loaded, store, phones, conditions, listener)
        weights = weights_of(named, stated)
        chosen = fleet(loaded, named, weights=weights, listener=listener, **options)
        path = output or model.with_suffix(".nnprof")
        with listener.working("converting what the plans give to accelerators"):
            chosen.save(path)
    if as_json():
        from nnapi_prof.documents.fleet import of_fleet

        print_document(of_fleet(path, chosen))
    else:
        show_fleet(chosen)
    say(f"bundle in {path}")


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
