"""``nnapi-prof partition``: Choose what runs where from measured costs, and write a bundle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnapi_prof.cli import options as opt
from nnapi_prof.cli.chips import on_chip
from nnapi_prof.cli.command import define
from nnapi_prof.cli.options import CALIBRATION, ErrorBudget, precision_options
from nnapi_prof.cli.output import (
    as_json,
    boxed,
    line,
    ms,
    print_document,
    say,
    show_plans,
    show_segments,
    stdout,
    unit_of,
)
from nnapi_prof.cli.progress import listening
from nnapi_prof.costs import ConditionOptions
from nnapi_prof.errors import UsageError
from nnapi_prof.execution.objectives import (
    Latency,
    Parallel,
    PlanObjective,
    SearchOptions,
    Throughput,
    Within,
)
from nnapi_prof.options import default_of, flag_of, options_of

if TYPE_CHECKING:
    from rich.console import Console

    from nnapi_prof.api.plan import PredictedThroughput
    from nnapi_prof.bundle import Bundle
    from nnapi_prof.graph.plan import Plan, Segment, Target
    from nnapi_prof.partition import CurvePoint, ParallelPlan
    from nnapi_prof.partition.solver import PlanSearch, StartupCost


@define(
    "partition",
    examples=[
        "nnapi-prof partition model.pt",
        "nnapi-prof partition --device sim:npu-phone --pin 'softmax*=cpu' -o cut.nnprof model.pt",
    ],
)
@opt.device
@opt.library
@opt.inputs
@opt.costs
@opt.conditions
@opt.boundary
@opt.cooldown
@opt.memory
@opt.declared(
    Latency,
    *("forbid", "pin", "preference", "max_regions", "max_compile_ms", "max_error"),
    *("listed", "best"),
)
@opt.declared(SearchOptions)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Folder of the bundle to write. Default: MODEL.nnprof beside the model.",
)
@click.option(
    "--estimate",
    is_flag=True,
    help="Estimate units that were never measured from other measurements on the device.",
)
@click.option(
    "--objective",
    type=click.Choice(["latency", "throughput"]),
    default="latency",
    show_default=True,
    help="`throughput` maximises frames per second with processors that work at once.",
)
@click.option(
    "--parallel",
    is_flag=True,
    help="With the objective `latency`: run branches of one frame at once if that is faster.",
)
@opt.declared(Throughput)
@click.option(
    "--no-verify",
    is_flag=True,
    help="Do not run plan and baselines whole before choosing.",
)
@precision_options(None)
@opt.declared(Within, "error", error={"type": ErrorBudget(), "metavar": "2%|0.02|34dB"})
@opt.declared(Within, "metric")
@opt.model
def command(
    device_spec: str | None,
    inputs: tuple[str, ...],
    costs: str | None,
    output: Path | None,
    estimate: bool,
    no_verify: bool,
    model: Path,
    conditions: ConditionOptions,
    **options: Any,
) -> None:
    """Choose what runs where from measured costs, and write a bundle.

    Needs the measurements of `nnapi-prof profile` for the same model and device, under the same
    conditions (--threads, --cpus, --mode, --relaxed, --float16, --sustained); `nnapi-prof run`
    uses these conditions too. The plan has the fewest segments within noise of the lowest latency
    (--best: the lowest latency). Ctrl-C during the search keeps the best plan so far. Before the
    bundle is written, plan and baselines run whole on the device, a few times each. If a baseline
    is faster end to end, it becomes the plan.

    With --objective throughput, processors work at once on different frames, and each frame uses
    one of several plans. That mixture, whole frames on alternating processors, one plan as a
    pipeline and the best single device all run on the device, and the one with most frames per
    second is taken (`nnapi-prof run --frames` measures them again).

    With --parallel, branches of one frame may run at once on different processors. If the bound
    promises at least 15 %, a schedule is searched, and taken if it runs faster on the device.

    With --precisions and --accuracy-budget, targets and precisions of all regions are chosen
    together: the fastest plan within the error budget (`nnapi-prof pareto` shows them all).
    """
    if on_chip(click.get_current_context(), bundle=True):
        return
    path = output or model.with_suffix(".nnprof")
    data = {name: options.pop(name) for name in CALIBRATION}
    objective = _objective(options)
    with listening() as listener:
        with listener.working("loading PyTorch"):
            from nnapi_prof.api import open_client
            from nnapi_prof.api.cost_tables import open_table, read_costs
            from nnapi_prof.api.model import load
            from nnapi_prof.api.planning import partition

        loaded = load(model, inputs, listener=listener)
        with open_table(costs) as store, open_client(device_spec, listener) as client:
            unit_costs = read_costs(
                loaded,
                store,
                client,
                fill=estimate,
                listener=listener,
                conditions=conditions,
                **data,
            )
            planned = partition(
                loaded,
                unit_costs,
                objective,
                device=client,
                verify=False if no_verify else None,
                listener=listener,
                **options,
            )
        planned.save(path)
    bundle = planned.bundle
    if as_json():
        from nnapi_prof.documents.plans import partition_document

        print_document(
            partition_document(path, bundle, planned.curve, planned.throughput, planned.parallel)
        )
    elif planned.throughput is not None:
        _show_throughput(bundle, planned.throughput)
    else:
        _show_partition(bundle)
        assert planned.search is not None and not isinstance(objective, Throughput)
        unit = unit_of(bundle.simulated)
        show_curve(stdout(), planned.search, bundle.plan, objective.best, unit)
        if planned.parallel is not None:
            line(stdout(), f"({_about_branches(bundle, planned.parallel)})")
    say(f"bundle in {path}")


def _objective(arguments: dict[str, Any]) -> PlanObjective:
    """Removes the objective from a command's arguments and returns it. Raises UsageError for two
    objectives, and for options of another one."""
    is_throughput = arguments.pop("objective") == "throughput"
    asked: dict[type[PlanObjective], tuple[str, bool]] = {
        Throughput: ("--objective throughput", is_throughput),
        Parallel: ("--parallel", arguments.pop("parallel")),
        Within: (flag_of(Within, "error"), arguments["error"] is not None),
    }
    chosen: list[type[PlanObjective]] = [cls for cls, (_, is_asked) in asked.items() if is_asked]
    if len(chosen) > 1:
        flags = " and ".join(asked[cls][0] for cls in chosen)
        raise UsageError(f"{flags} exclude each other", "choose one")
    own = chosen[0] if chosen else Latency
    for cls in (Latency, *asked):
        for name in options_of(cls).keys() - options_of(own).keys():
            if arguments.pop(name, None) in (None, (), default_of(cls, name)):
                continue
            owners = [flag for each, (flag, _) in asked.items() if name in options_of(each)]
            if chosen:
                flags = f"{flag_of(cls, name)} and {asked[own][0]}"
                raise UsageError(f"{flags} exclude each other", "leave one out")
            raise UsageError(f"{flag_of(cls, name)} is for {' or '.join(owners)}")
    return opt.taken(own, arguments)


def _interval_ms(segment: Segment) -> str:
    low, high = segment.interval_ns or (None, None)
    return "–" if low is None else f"{ms(low)} … {ms(high)}"


def _show_partition(bundle: Bundle) -> None:
    console = stdout()
    unit = unit_of(bundle.simulated)

    def mark(segment: Segment) -> str:
        return "" if segment.measured else " est." if segment.estimated else " ≈"

    title = f"Plan, predicted latency in {unit}"
    show_segments(console, title, bundle.graph, bundle.plan, ("95 %", _interval_ms), mark)
    if not all(segment.measured for segment in bundle.plan.segments):
        line(
            console,
            "(≈ summed from units and chains, est. from the static model; others were measured"
            " whole)",
        )
    for note in bundle.plan.notes:
        line(console, f"note: {note}")
    show_plans(console, f"Plan and baselines, predicted latency in {unit}", bundle.plans)


def _about_branches(bundle: Bundle, parallel: ParallelPlan) -> str:
    limit = f"branches at once are at most {parallel.promise:.2f} times as fast as the serial plan"
    if not parallel.tried:
        return f"{limit}: too little to try"
    if bundle.frames is None:
        return f"{limit}, and no schedule was found that is faster"
    chosen = "runs faster, and is taken" if bundle.frames.ways[0].overlaps else "is not taken"
    return f"{limit}; a schedule predicted to be {parallel.gain:.2f} times as fast {chosen}"


def _show_throughput(bundle: Bundle, predicted: PredictedThroughput) -> None:
    from nnapi_prof.api.plan import PREDICTED

    console, unit, frames = stdout(), unit_of(bundle.simulated), bundle.frames
    assert frames is not None
    for choice in frames.ways[0].choices:
        title = f"{choice.share:.0%} of frames, predicted latency in {unit}"
        show_segments(
            console, title, bundle.graph, bundle.plans[choice.plan], ("95 %", _interval_ms)
        )
    simulated = ", simulated" if bundle.simulated else ""
    title = f"Frames per second, predicted{simulated}"
    table = boxed(title, ["how"], ["at once", "frames/s", "against the plan"])
    own = frames.ways[0].predicted_per_second
    for way in frames.ways:
        rate = way.predicted_per_second
        against = f"{rate / own:.2f}x" if rate and own else "–"
        table.add_row(way.name, str(way.in_flight), "–" if rate is None else f"{rate:.4g}", against)
    console.print(table)
    heads = ["frames/s", "latency", "95 % within", "MB", "how"]
    curve = boxed(f"By frames in flight, latency in {unit}", ["frames"], heads)
    for point in predicted.plan.curve:
        curve.add_row(
            str(point.frames_in_flight),
            f"{point.frames_per_second:.4g}",
            *(ms(ns) for ns in point.latency_ns[:2]),
            f"{point.memory_bytes / 1e6:.1f}",
            point.rate.rule.value,
        )
    console.print(curve)
    rate = predicted.frames_per_second
    more = predicted.most_per_second / rate - 1 if rate else 0.0
    most = f"other plans could do {more:.1%} more at most" if more > 1e-4 else "no plans do more"
    words = PREDICTED[predicted.contention.basis]
    line(console, f"({most}, by these costs: {words})")
    for note in bundle.notes:
        line(console, f"note: {note}")


MOST_ROWS = 8
WORTH_A_ROW = 0.01
"""Share by which latency must fall for a separate row."""
WORTH_A_LINE = 0.001
"""Smallest saving of the fastest plan that gets a line, as a share of the latency."""


def show_curve(console: Console, search: PlanSearch, plan: Plan, best: bool, unit: str) -> None:
    """Prints latency by number of segments, unless fewer are as fast and more are not faster.

    ``plan`` is the bundle's, which may have been chosen by whole runs instead of by ``best``.
    """
    few, many = search.default, search.best
    if not search.curve or few.predicted_ns <= 0:
        return
    gain = 1 - many.predicted_ns / few.predicted_ns
    is_wide = search.curve[0].ns > few.predicted_ns * (1 + WORTH_A_ROW)
    if not is_wide and gain < WORTH_A_LINE:
        return
    title = f"Latency by number of segments, predicted, in {unit}"
    heads = ["segments", "latency", "against the best", "compile", "first run", "shared MB"]
    table = boxed(title, [], heads, "")
    for point in worth_showing(search.curve, len(few.segments)):
        more = point.ns / many.predicted_ns - 1 if many.predicted_ns > 0 else 0.0
        more = round(more, 4) + 0.0  # -0.0 is 0.0
        cells = (str(point.n_segments), ms(point.ns), f"{more:+.1%}")
        table.add_row(*cells, *_start_up(search.startup_costs.get(point.n_segments)), proven(point))
    console.print(table)
    if gain < WORTH_A_LINE:
        return
    is_chosen = _placement(plan) == _placement(many)
    hint = "" if is_chosen else "; --best chooses them"
    if best and not is_chosen:
        hint = f" by prediction; {plan.name} was faster when both ran whole"
    line(
        console,
        f"({len(many.segments)} segments instead of {len(few.segments)} "
        f"{'save' if is_chosen else 'would save'} {gain:.1%}: {ms(many.predicted_ns)} instead of "
        f"{ms(few.predicted_ns)} {unit}{hint})",
    )


def _placement(plan: Plan) -> list[tuple[tuple[int, ...], Target]]:
    return [(segment.units, segment.target) for segment in plan.segments]


def _start_up(start_up: StartupCost | None) -> tuple[str, str, str]:
    if start_up is None:
        return "", "", ""
    compiling = "" if start_up.compile_ns is None else ms(start_up.compile_ns)
    return compiling, ms(start_up.first_run_ns), f"{start_up.shared_bytes / 1e6:.2f}"


def worth_showing(curve: Sequence[CurvePoint], default: int) -> list[CurvePoint]:
    """Returns the points at both ends, of the default's number, and at the largest falls of
    latency, at most :data:`MOST_ROWS` in all."""
    ends = {curve[0].n_segments, curve[-1].n_segments, default}
    falls: dict[int, float] = {}
    last = curve[0].ns
    for point in curve:
        fall = 1 - point.ns / last if last > 0 else 0.0
        if fall > WORTH_A_ROW:
            falls[point.n_segments] = fall
            last = point.ns
    deepest = sorted(falls.keys() - ends, key=lambda count: -falls[count])
    shown = ends.union(deepest[: MOST_ROWS - len(ends)])
    return [point for point in curve if point.n_segments in shown]


def proven(point: CurvePoint) -> str:
    """Returns the proof of a point in words."""
    if point.exact:
        return "optimal for its number"
    return (
        f"at most {point.gap:.1%} above the optimum"
        if math.isfinite(point.gap)
        else "no bound known"
    )
