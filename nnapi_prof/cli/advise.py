"""``nnapi-prof advise``: Say what would make a plan faster, and try it.

``nnapi-prof pareto``: Show latency against accuracy: targets and precisions chosen together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnapi_prof.cli import options as opt
from nnapi_prof.cli.command import define
from nnapi_prof.cli.options import ErrorBudget, precision_options
from nnapi_prof.cli.output import as_json, boxed, line, ms, print_document, say, stdout, unit_of
from nnapi_prof.cli.progress import listening
from nnapi_prof.cli.ship import show_steps
from nnapi_prof.costs import ConditionOptions
from nnapi_prof.execution.objectives import AdviseOptions, ParetoOptions, Within
from nnapi_prof.execution.profile import MeasureOptions
from nnapi_prof.qnn import is_qnn

if TYPE_CHECKING:
    from rich.console import Console

    from nnapi_prof.advice import Advice
    from nnapi_prof.api import Listener
    from nnapi_prof.api.advise import Advised
    from nnapi_prof.api.pareto import Pareto
    from nnapi_prof.api.plan import ModelPlan
    from nnapi_prof.execution.front import FrontPoint


SHORT = 3
"""Number of suggestions at the end of other commands."""


@define(
    "advise",
    examples=[
        "nnapi-prof advise model.nnprof",
        "nnapi-prof advise --try --device sim:npu-phone model.nnprof",
        "nnapi-prof advise --try --device qnn:SM8750 model.pt2",
    ],
)
@opt.device
@opt.inputs
@opt.costs
@opt.conditions
@click.option(
    "--try",
    "tried",
    is_flag=True,
    help="Apply the best rewrites to the model, profile it on the device, and run it beside the"
    " plan.",
)
@opt.declared(AdviseOptions)
@opt.model
def advise(
    device_spec: str | None,
    inputs: tuple[str, ...],
    costs: str | None,
    tried: bool,
    tries: int,
    seconds: float | None,
    model: Path,
    conditions: ConditionOptions,
) -> None:
    """Suggest changes to a model that make its plan faster.

    MODEL is a bundle, or a model that `nnapi-prof profile` measured on the same device and under
    the same conditions (a bundle has its own). The plan is made again without each hindrance: an
    operation that an accelerator refuses, a segment that splits an accelerator's, a unit that
    constraints keep off, that is slow for its size, or that only changes a layout. The command
    prints the savings, largest first. A bundle stores the advice, and its reports show it.

    With --device qnn:CHIP, or a bundle made for one, Qualcomm's compiler is asked: the operations
    that the NPU refuses or that take most are written otherwise, compiled and planned anew, with
    or without --try. What the compiler does by itself saves nothing, and is not offered.
    """
    bundle = opt.names_bundle(model)
    with listening() as listener:
        with listener.working("loading PyTorch"):
            from nnapi_prof.api.advise import Advised, advise

        if device_spec is not None and is_qnn(device_spec) and not bundle:
            from nnapi_prof.api.advise import planned_for_chip
            from nnapi_prof.api.model import load

            own = planned_for_chip(
                load(model, inputs, listener=listener), device_spec, tries, listener
            )
            _show(Advised(own))
            return
        planned = (
            _of_bundle(model, listener)
            if bundle
            else _of_model(model, inputs, costs, device_spec, conditions, listener)
        )
        advised = advise(
            planned,
            costs=costs,
            device=device_spec,
            tries=tries if tried else 0,
            seconds=seconds,
            listener=listener,
        )
        is_chip = advised.planned.costs is not None and advised.planned.costs.origin is not None
        keeps = bundle and (not is_chip or advised.planned.folder == model)
        if keeps:
            from nnapi_prof.bundle.storage import keep_advice

            keep_advice(model, advised.advice)
    _show(advised)
    if keeps and not is_chip and not as_json():
        from nnapi_prof.bundle.deployment import deploy_steps

        show_steps(stdout(), deploy_steps(planned.bundle, model))
    for note in advised.notes:
        if note not in planned.model.notes:
            say(f"note: {note}")


def _show(advised: Advised) -> None:
    if as_json():
        from nnapi_prof.documents.report import of_advised

        print_document(of_advised(advised))
    else:
        show_advice(stdout(), advised.advice)


def _of_bundle(path: Path, listener: Listener) -> ModelPlan:
    from nnapi_prof.api.plan import read_plan

    with listener.working(f"reading {path.name}"):
        return read_plan(path)


def _of_model(
    path: Path,
    inputs: Sequence[str],
    costs: str | None,
    device: str | None,
    conditions: ConditionOptions,
    listener: Listener,
) -> ModelPlan:
    from nnapi_prof.api import open_client
    from nnapi_prof.api.cost_tables import open_table, read_costs
    from nnapi_prof.api.model import load
    from nnapi_prof.api.planning import partition

    loaded = load(path, inputs, listener=listener)
    with open_table(costs) as store, open_client(device, listener) as client:
        unit_costs = read_costs(loaded, store, client, conditions=conditions)
    return partition(loaded, unit_costs, verify=False, listener=listener)


def show_advice(console: Console, advice: Sequence[Advice], most: int | None = None) -> None:
    """Prints at most ``most`` suggestions (None: all), each with its rewrite below it."""
    if not advice:
        line(console, "Nothing that would help was found: no hindrance costs 1 % of the plan.")
        return
    line(console, "What would help, the most first:")
    for number, one in enumerate(advice[:most], 1):
        line(console, f"{number}. {one}.")
        if one.rewrite is None:
            continue
        for code in one.rewrite.code.splitlines():
            line(console, f"     {code}")
        line(console, f"   {one.rewrite.accuracy}")
    if most is not None and len(advice) > most:
        line(console, f"({len(advice) - most} more: `nnapi-prof advise`)")


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
def pareto(
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
        if note not in data_notes:  # those were printed when the data was read
            say(f"note: {note}")


def show_front(front: Pareto) -> None:
    """Prints the points, the baselines, and the gain of the fastest point over float32."""
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
