"""``nnapi-prof pareto``: Show latency against accuracy: targets and precisions chosen together."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnapi_prof.cli import options as opt
from nnapi_prof.cli.command import define
from nnapi_prof.cli.options import ErrorBudget, precision_options
from nnapi_prof.cli.output import as_json, boxed, line, ms, print_document, say, stdout, unit_of
from nnapi_prof.cli.progress import listening
from nnapi_prof.costs import ConditionOptions
from nnapi_prof.execution.objectives import ParetoOptions, Within
from nnapi_prof.execution.profile import MeasureOptions

if TYPE_CHECKING:
    from nnapi_prof.api.pareto import Pareto
    from nnapi_prof.execution.front import FrontPoint


@define(
    "pareto",
    examples=[
        "nnapi-prof pareto --device sim:dsp-phone --calibration images.npz model.pt",
        "nnapi-prof pareto --budget 1% --budget 40dB --json model.pt > front.json",
    ],
)
@opt.device
@opt.library
@opt.inputs
@opt.costs
@precision_options("float32,relaxed,int8")
@opt.declared(Within, "metric")
@opt.declared(ParetoOptions, budgets={"type": ErrorBudget()})
@opt.threads
@opt.cpus
@opt.mode
@opt.cooldown
@opt.memory
@opt.model
def command(
    device_spec: str | None,
    inputs: tuple[str, ...],
    metric: str,
    budgets: tuple[float, ...],
    seconds: float | None,
    accuracy_s: float,
    model: Path,
    **options: Any,
) -> None:
    """Show latency against accuracy: the fastest plan for every error budget.

    Targets and precisions of all regions are chosen together. Missing measurements are made first,
    in every precision. The error of each unit and of each whole plan is measured on this host in
    NNAPI's own arithmetic, on the calibration data; a quarter of the data is held out and judges
    the plans. One precision for all units is shown beside the front. `nnapi-prof partition
    --precisions ... --accuracy-budget 2%` takes a plan from it.
    """
    with listening() as listener:
        with listener.working("loading PyTorch"):
            from nnapi_prof.api.model import load
            from nnapi_prof.api.pareto import pareto
            from nnapi_prof.api.profiling import profile

        loaded = load(model, inputs, listener=listener)
        costs = profile(
            loaded,
            device_spec,
            conditions=opt.taken(ConditionOptions, options),
            options=opt.taken(MeasureOptions, options),
            listener=listener,
            **options,
        )
        front = pareto(
            loaded,
            costs,
            metric=metric,
            budgets=budgets,
            seconds=seconds,
            accuracy_s=accuracy_s,
            listener=listener,
        )
    if as_json():
        from nnapi_prof.documents.plans import of_pareto

        print_document(of_pareto(front))
        return
    show_front(front)
    data_notes = () if costs.calibration is None else costs.calibration.samples.notes
    for note in front.notes:
        if note not in data_notes:  # when the data was read
            say(f"note: {note}")


def show_front(front: Pareto) -> None:
    """The points, the baselines, and what the best of these costs more at its own error."""
    console = stdout()
    unit = unit_of(front.simulated)
    heads = ["latency", "error", "held out", "95 %", "segments"]
    title = f"{front.costs.model.name}: latency in {unit} against error ({front.metric})"
    table = boxed(title, ["plan"], heads, "units")
    for point in (*front.points, *front.baselines):
        table.add_row(point.name, *_cells(point), _precision_counts(front, point))
    console.print(table)
    floats = [p for p in front.baselines if p.name == "uniform float32"]
    if floats and front.points[0].latency_ns > 0:
        gain = floats[0].latency_ns / front.points[0].latency_ns
        first = front.points[0]
        data = "calibration" if first.measured.held_out is None else "held-out"
        line(
            console,
            f"(the fastest is {gain:.2f} times as fast as the best plan in float32, with an error"
            f" of {first.held_out.error:.2%} on {data} data)",
        )


def _cells(point: FrontPoint) -> list[str]:
    return [
        ms(point.latency_ns),
        f"{point.error:.2%}",
        f"{point.held_out.error:.2%}",
        f"{point.held_out.low:.2%} … {point.held_out.high:.2%}"
        if math.isfinite(point.held_out.high)
        else "unknown",
        str(len(point.plan.segments)),
    ]


def _precision_counts(front: Pareto, point: FrontPoint) -> str:
    chosen = point.precisions(len(front.costs.model.graph.units))
    return ", ".join(f"{chosen.count(p)} {p.value}" for p in dict.fromkeys(chosen))
