"""``nnapi-prof estimate``: Estimate latency and plan on a phone that is not there; needs no
device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnapi_prof.cli import options as opt
from nnapi_prof.cli.command import define
from nnapi_prof.cli.output import (
    as_json,
    boxed,
    line,
    ms,
    print_document,
    show_plans,
    show_segments,
    stdout,
)
from nnapi_prof.cli.precisions import calibration_options
from nnapi_prof.cli.progress import listening
from nnapi_prof.costs.conditions import MOST_THREADS

if TYPE_CHECKING:
    from nnapi_prof.api.estimate import Phone
    from nnapi_prof.costs.estimate.costs import EstimatedCosts
    from nnapi_prof.graph.plan import Plan, Segment, Target

_ERROR = "± (9 of 10)"
"""Head of a column: nine of ten predictions are off by less."""


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
def command(
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
            from nnapi_prof.api.estimate import Phone, estimate
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
    """Milliseconds, with a question mark where no such operation was ever measured there."""
    estimate = costs.estimates.get((unit, target))
    return ms(None if estimate is None else estimate.ns) + (
        " ?" if estimate and estimate.never_measured else ""
    )


def _percent_text(share: float) -> str:
    return "less than 1 %" if share < 0.01 else f"{100 * share:.0f} %"


def _percent(error: float | None) -> str:
    return "unknown" if error is None else f"{error:.0%}"
