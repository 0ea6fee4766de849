"""``nnapi-prof profile``: Measure a model's units and regions on a device into the cost table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnapi_prof.cli import options as opt
from nnapi_prof.cli.chips import on_chip
from nnapi_prof.cli.command import define
from nnapi_prof.cli.options import precision_options
from nnapi_prof.cli.output import (
    as_json,
    boxed,
    line,
    ms,
    print_document,
    say,
    show_plans,
    stdout,
    unit_of,
)
from nnapi_prof.cli.progress import listening
from nnapi_prof.costs import ConditionOptions
from nnapi_prof.device.state import Gates
from nnapi_prof.execution.profile import MeasureOptions

if TYPE_CHECKING:
    from nnapi_prof.execution.profile import ProfileOutcome
    from nnapi_prof.graph.unit import UnitGraph

INTERRUPTED = 130


@define(
    "profile",
    examples=[
        "nnapi-prof profile model.pt",
        "nnapi-prof profile --device sim:npu-phone --input 1x3x224x224 model.pt",
        "nnapi-prof profile --device 192.168.1.7:5555 --threads auto model.pt",
    ],
)
@opt.device
@opt.library
@opt.inputs
@opt.costs
@opt.conditions
@opt.declared(MeasureOptions)
@opt.gates
@precision_options(None)
@opt.model
def command(
    device_spec: str | None,
    inputs: tuple[str, ...],
    model: Path,
    conditions: ConditionOptions,
    **options: Any,
) -> int:
    """Measure MODEL's units and regions on a device into the cost table.

    Every unit runs on the CPU and on every NNAPI accelerator, under one preference, and under
    others that may be faster; so do some chains and runs of units. Then the regions of the best
    plan, and of any plan that could beat it, are measured whole until the plan no longer changes
    (--refine). The alternatives of a region take turns, so disturbances affect all of them.
    Existing measurements of this device are not repeated. Ctrl-C keeps all measurements.
    """
    if on_chip(click.get_current_context()):
        return 0
    from nnapi_prof.api.costs import Costs, Interrupted
    from nnapi_prof.api.model import load
    from nnapi_prof.api.profiling import profile

    measure, gates = opt.taken(MeasureOptions, options), opt.taken(Gates, options)
    result: Costs | Interrupted
    with listening() as listener:
        loaded = load(model, inputs, listener=listener)
        try:
            result = profile(
                loaded,
                device_spec,
                conditions=conditions,
                options=measure,
                gates=gates,
                listener=listener,
                **options,
            )
        except Interrupted as interrupted:
            result = interrupted
    outcome = result.outcome
    assert outcome is not None and result.location is not None
    if as_json():
        from nnapi_prof.documents.costs import of_profile

        names = (loaded.name, result.device, result.location)
        trial = result.thread_trial if isinstance(result, Costs) else None
        print_document(of_profile(*names, loaded.graph, outcome, trial))
    else:
        _summarise(loaded.graph, outcome, result.location)
    _say_doubts(outcome, measure.refine)
    return INTERRUPTED if outcome.interrupted else 0


def _say_doubts(outcome: ProfileOutcome, refined: bool) -> None:
    """Prints doubts that a user should know before trusting the costs."""
    if outcome.n_failed:
        say(
            f"note: {outcome.n_failed} of these the device refused or did not finish: the bundle's"
            " report says why"
        )
    if outcome.waited_s or outcome.stayed_hot:
        what = "and no longer, because it stayed hot" if outcome.stayed_hot else "in total"
        say(f"note: waited {outcome.waited_s:.0f} s for a phone that was too hot, {what}")
    if outcome.lost_s >= 1:
        say(f"note: waited {outcome.lost_s:.0f} s for drivers that died or hung")
    for doubt, count in outcome.doubts.items():
        say(f"note: {count} measurements: {doubt}")
    if refined and not outcome.stable and outcome.plan is not None:
        say("note: plan or baselines still changed in the last round; profile again to refine them")


def _effort(outcome: ProfileOutcome) -> str:
    """Returns the effort that the plan took beside measuring everything."""
    words = (
        f"{outcome.rounds} rounds of refinement, with {outcome.n_regions} of all "
        f"{outcome.n_rows} measurements"
    )
    if outcome.n_exhaustive and outcome.n_rows < outcome.n_exhaustive:
        words += (
            f"; {outcome.n_rows} of {outcome.n_exhaustive} possible measurements"
            f" ({outcome.n_rows / outcome.n_exhaustive:.1%}) were enough"
        )
    return (
        f"{words}; measuring more would improve the plan by at most {outcome.potential:.1%}, by the"
        " costs' intervals"
    )


def _summarise(graph: UnitGraph, outcome: ProfileOutcome, location: str) -> None:
    """Prints the number of measurements, the slowest units, and the plans that follow."""
    from nnapi_prof.costs.model.views import left_at_trial, marginal, shown_targets
    from nnapi_prof.reports.words import (
        MARGINAL_MARKS,
        contention_words,
        marginal_words,
        target_heads,
        trial_words,
    )

    console = stdout()
    what = "interrupted: " if outcome.interrupted else ""
    line(
        console,
        f"{what}{outcome.n_measured} measured, {outcome.n_refused} refused by the converter,"
        f" {outcome.n_reused} known before, {outcome.seconds:.1f} s; costs in {location}",
    )
    costs, plan = outcome.costs, outcome.plan
    if costs is None or plan is None:
        return
    unit = unit_of(costs.simulated)
    shown = shown_targets(costs, graph)
    heads = target_heads(shown.values())
    table = boxed(f"Ten slowest units, marginal latency in {unit}", ["unit"], heads)
    rows = {
        u.index: [marginal(costs, u.index, target) for target in shown.values()]
        for u in graph.units
    }
    slowest = sorted(rows, key=lambda index: -max((c.ns if c else 0.0) for c in rows[index]))[:10]
    for index in slowest:
        cells = (marginal_words(cost, ms) for cost in rows[index])
        table.add_row(graph.units[index].label, *cells)
    console.print(table)
    for pair in outcome.contention.measured if outcome.contention else ():
        line(console, contention_words(pair))
    line(console, f"({MARGINAL_MARKS}; – cannot run there{trial_words(left_at_trial(costs))})")
    show_plans(console, f"Predicted latency in {unit}", (plan, *outcome.baselines))
    line(console, _effort(outcome))
    for note in plan.notes:
        line(console, f"note: {note}")
