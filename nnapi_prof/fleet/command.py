"""``nnapi-prof fleet``: Choose few plans that are good on many phones; needs no device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnapi_prof import documents as s
from nnapi_prof.cli import options as opt
from nnapi_prof.cli.command import define
from nnapi_prof.cli.output import as_json, boxed, line, ms, print_document, say, stdout, unit_of
from nnapi_prof.cli.progress import listening
from nnapi_prof.costs import ConditionOptions
from nnapi_prof.documents import Document, document, properties
from nnapi_prof.documents.plans import CONDITIONS, NOTES, PLAN, UNIT, of_plans, of_units
from nnapi_prof.fleet import FleetOptions

if TYPE_CHECKING:
    from nnapi_prof.fleet.plans import Fleet


# Builds the document of ``fleet --json``: few plans, the phones that use each, and their cost.

FLEET_PHONE = s.obj(
    name=s.described(s.TEXT, "for people; unlike all others"),
    device=s.described(s.TEXT, "for people, with its system and drivers"),
    fingerprint=s.described(s.TEXT, "the device in the cost table; empty where it is in none"),
    weight=s.described(s.NUMBER, "its share of the fleet; 1 in all"),
    plan=s.described(s.COUNT, "index of its plan among plans"),
    predicted_ns=s.described(s.NUMBER_OR_NULL, "null where no plan runs there, its weight being 0"),
    half_ns=s.described(
        s.NUMBER_OR_NULL, "95 % of what predicted_ns may really be is within so much; null: unknown"
    ),
    least_ns=s.described(s.NUMBER, "of the best plan known for this phone alone"),
    all_cpu_ns=s.NUMBER,
    regret=s.described(s.NUMBER_OR_NULL, "predicted_ns over least_ns, less 1"),
    simulated=s.TRUTH,
    estimated=s.TRUTH,
)
FLEET_CURVE = s.obj(
    k=s.described(s.COUNT, "plans at most"),
    plans=s.described(s.COUNT, "of them in use"),
    mean=s.described(s.NUMBER, "regret of a phone drawn by the weights"),
    worst=s.described(s.NUMBER, "regret of the phone that fares worst"),
    bound=s.described(s.NUMBER, "no k of the candidates have less of the objective"),
)


@document(
    "fleet",
    1,
    "Few plans of a model for many phones, chosen by regret",
    bundle=s.described(s.TEXT, "the bundle's folder"),
    model=s.TEXT,
    simulated=s.described(s.TRUTH, "whether some phone is simulated"),
    estimated=s.described(s.TRUTH, "whether some phone's latencies are estimated"),
    conditions=CONDITIONS,
    objective=s.choice("mean", "worst"),
    mean_regret=s.NUMBER,
    mean_half=s.described(s.NUMBER_OR_NULL, "mean_regret's 95 % interval is within so much"),
    worst_regret=s.NUMBER,
    least_mean_of_one=s.described(s.NUMBER, "no single plan at all has a smaller mean regret"),
    candidates=s.described(s.COUNT, "plans that were to choose from"),
    units=s.array(UNIT),
    plans=s.described(s.array(PLAN), "plans with the highest weight first"),
    phones=s.array(FLEET_PHONE),
    curve=s.array(FLEET_CURVE),
    notes=NOTES,
)
def of_fleet(path: Path, fleet: Fleet) -> Document:
    return properties(
        "fleet",
        fleet,
        bundle=str(path),
        model=fleet.model.name,
        conditions=fleet.costs[0].conditions.to_json(),
        least_mean_of_one=fleet.search.least_mean_of_one,
        candidates=len(fleet.search.plans),
        units=of_units(fleet.model.graph),
        plans=of_plans(fleet.plans),
        curve=[
            properties(FLEET_CURVE, choice, k=number, plans=len(choice.plans))
            for number, choice in enumerate(fleet.search.choices, 1)
        ],
    )


MOST_ROWS = 20
"""Maximum number of phones in a table, those with the largest regret."""


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
            from nnapi_prof.api.model import load
            from nnapi_prof.fleet.choose import costs_of_phones, fleet, weights_of

        loaded = load(model, inputs, listener=listener)
        with open_table(costs, to_read=True) as store:
            named = costs_of_phones(loaded, store, phones, conditions, listener)
        weights = weights_of(named, stated)
        chosen = fleet(loaded, named, weights=weights, listener=listener, **options)
        path = output or model.with_suffix(".nnprof")
        with listener.working("converting what the plans give to accelerators"):
            chosen.save(path)
    if as_json():
        print_document(of_fleet(path, chosen))
    else:
        show_fleet(chosen)
    say(f"bundle in {path}")


def show_fleet(fleet: Fleet) -> None:
    """Prints the plans, the phones with the largest regret, and the regret by number of plans."""
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
