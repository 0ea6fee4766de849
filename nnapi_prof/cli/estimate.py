"""``nnapi-prof estimate``: Estimate latency and plan on a phone that is not there; needs no
device.

``nnapi-prof calibrate``: Fit a phone's description for `estimate` to what a cost table has of
it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnapi_prof.cli import options as opt
from nnapi_prof.cli.command import define
from nnapi_prof.cli.options import calibration_options
from nnapi_prof.cli.output import (
    as_json,
    boxed,
    line,
    ms,
    plain,
    print_document,
    say,
    show_plans,
    show_segments,
    stdout,
    writing,
)
from nnapi_prof.cli.progress import listening, working
from nnapi_prof.costs import MOST_THREADS, ConditionOptions

if TYPE_CHECKING:
    from nnapi_prof.api.cost_tables import Phone
    from nnapi_prof.costs.estimate.calibration import TargetReport
    from nnapi_prof.costs.estimate.costs import EstimatedCosts
    from nnapi_prof.costs.store import CostStore
    from nnapi_prof.graph.plan import Plan, Segment, Target


_ERROR = "± (9 of 10)"
"""Head of a column with the error that nine of ten predictions stay below."""


@define(
    "estimate",
    examples=[
        "nnapi-prof estimate --phone pixel4 model.pt",
        "nnapi-prof estimate --phone phone.json --json model.pt > estimate.json",
        "nnapi-prof estimate --device qnn:SM8550,SM8750 model.pt2",
    ],
)
@click.option(
    "--phone",
    metavar="NAME|FILE.json",
    shell_complete=opt.phones,
    help="An included phone, simulated or real, or a description from `nnapi-prof calibrate`.",
)
@click.option(
    "--device",
    metavar="qnn:CHIP,...[/fp16|/int8]",
    shell_complete=opt.chips,
    help="Instead of --phone: Snapdragons, estimated by Qualcomm's compiler and simulator"
    " (needs the extra qnn): which parts of the model each NPU supports, and how long they"
    " take.",
)
@opt.inputs
@click.option(
    "--threads",
    type=click.IntRange(1, MOST_THREADS),
    help="Threads of the CPU. Default: the number that the phone was measured with; on simulated"
    " phones the number with which the CPU runs the model fastest.",
)
@click.option("--burst", is_flag=True, help="Use NNAPI's burst mode (simulated phones).")
@click.option("--relaxed", is_flag=True, help="Compute float32 as float16 (simulated phones).")
@calibration_options
@opt.model
def estimate(
    phone: str | None,
    device: str | None,
    inputs: tuple[str, ...],
    calibration: str | None,
    samples: int | None,
    model: Path,
    **options: Any,
) -> None:
    """Estimate a model's latency and its plan without the phone.

    Needs no device and no network, and always gives the same result. All numbers are estimated from
    the phone's description; `nnapi-prof profile` measures.
    """
    if (phone is None) == (device is None):
        raise click.UsageError("give either --phone or --device qnn:CHIP")
    if device is not None:
        from nnapi_prof.cli.chips import estimate_on_chips

        estimate_on_chips(device, inputs, model, options, (calibration, samples))
        return
    if calibration or samples:
        raise click.UsageError("--calibration and --samples are for --device qnn:CHIP/int8")
    assert phone is not None
    with listening() as listener:
        with listener.working("loading PyTorch"):
            from nnapi_prof.api.cost_tables import Phone, estimate
            from nnapi_prof.api.model import load
            from nnapi_prof.costs.estimate.costs import EstimatedCosts
            from nnapi_prof.partition import baselines, make_problem, plan_problem

        described = Phone.load(phone)
        loaded = load(model, inputs, listener=listener)
        with listener.working("planning"):
            costs = estimate(loaded, described, **options).priced
            assert isinstance(costs, EstimatedCosts)
            problem = make_problem(loaded.graph, costs.table)
            plans = (plan_problem(problem, with_curve=False).default, *baselines(problem))
    if as_json():
        from nnapi_prof.documents.costs import of_estimate

        print_document(of_estimate(loaded.name, described.name, described.origin, costs, plans))
        return
    _show_estimate(described, costs, plans)


def _show_estimate(described: Phone, costs: EstimatedCosts, plans: tuple[Plan, ...]) -> None:
    console = stdout()
    label = "ms, estimated" + (", simulated phone" if costs.simulated else "")
    shown = [t for t in costs.targets if t.preference is None or t.preference.short == "fast"]
    heads = [target.key for target in shown]
    units = boxed(f"Units on {described.name}, {label}", ["#", "unit"], heads)
    for unit in costs.graph.units:
        cells = [_cost_cell(costs, unit.index, target) for target in shown]
        units.add_row(str(unit.index), unit.label, *cells)
    units.add_row("", "each invocation", *(ms(costs.overhead(target)) for target in shown))
    console.print(units)

    def of_segment(segment: Segment) -> str:
        return _percent(costs.error_of(segment.units, segment.target))

    def of_plan(plan: Plan) -> str:
        return _percent(costs.plan_error(plan))

    best = plans[0]
    show_segments(console, f"Plan, {label}", costs.graph, best, (_ERROR, of_segment))
    for note in best.notes:
        line(console, f"note: {note}")
    show_plans(console, f"Plan and baselines, {label}", plans, (_ERROR, of_plan))
    for kind, share in costs.never_measured(best).items():
        line(
            console,
            f"? no {kind} was ever measured there: {_percent_text(share)} of this plan's latency"
            " rests on nothing but what the others of its size take, and how far it is off is"
            " unknown.",
        )
    if not costs.simulated and described.description.get("description"):
        line(console, f"{described.name}: {described.description['description']}.")
    plural = "" if costs.threads == 1 else "s"
    line(console, f"The CPU has {costs.threads} thread{plural}.")
    line(
        console,
        f"All of this is estimated from a description ({described.origin}); nothing was measured"
        " for this model. `nnapi-prof profile` measures.",
    )


def _cost_cell(costs: EstimatedCosts, unit: int, target: Target) -> str:
    """Returns ms as text, with a question mark where no such operation was measured there."""
    estimate = costs.estimates.get((unit, target))
    return ms(None if estimate is None else estimate.ns) + (
        " ?" if estimate and estimate.never_measured else ""
    )


def _percent_text(share: float) -> str:
    return "less than 1 %" if share < 0.01 else f"{100 * share:.0f} %"


def _percent(error: float | None) -> str:
    return "unknown" if error is None else f"{error:.0%}"


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
def calibrate(
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
    from nnapi_prof.api.cost_tables import calibrate, open_table

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
    """Returns the fingerprint of the device to fit. Raises UsageError where that is ambiguous."""
    from nnapi_prof.costs.store import find_one, measured
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
