"""``nnapi-prof profile``: Measure a model's units and regions on a device into the cost table.

``nnapi-prof run``: Run a bundle on a device and compare its outputs with eager PyTorch.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnapi_prof.cli import options as opt
from nnapi_prof.cli.chips import on_chip
from nnapi_prof.cli.command import define, file_formats
from nnapi_prof.cli.options import precision_options
from nnapi_prof.cli.output import (
    as_json,
    boxed,
    is_wide,
    line,
    listed,
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
from nnapi_prof.errors import UsageError
from nnapi_prof.execution import RunOptions
from nnapi_prof.execution.profile import MeasureOptions
from nnapi_prof.graph.plan import HOST

if TYPE_CHECKING:
    from rich.console import Console

    from nnapi_prof.execution.profile import ProfileOutcome
    from nnapi_prof.execution.report import RunReport
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
def profile(
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
    """Returns the effort for the plan, compared with measuring everything, in words."""
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


@define(
    "run",
    examples=[
        "nnapi-prof run model.nnprof",
        "nnapi-prof run --device sim:npu-phone --runs 100 --json model.nnprof > run.json",
    ],
)
@opt.device
@opt.library
@opt.declared(RunOptions, "runs", "frames")
@click.option("--no-baselines", is_flag=True, help="Time the plan only.")
@opt.tolerance
@opt.declared(
    ConditionOptions,
    "cpus",
    cpus={
        "default": None,
        "show_default": "as the bundle was planned for",
        "callback": opt.cpu_mask,
    },
)
@opt.boundary
@opt.cooldown
@opt.memory
@click.option(
    "--seed",
    type=int,
    help="Use random inputs with this seed. Default: bundled inputs, else a fixed seed.",
)
@click.option(
    "--input",
    "stated",
    multiple=True,
    metavar="1x3x256x256",
    help="Sizes for the bundle's open sizes; repeat it for each input.",
)
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="MODEL|BUNDLE",
    help="For a .pte: the model or bundle that it was made from, to compare outputs with.",
)
@opt.bundle
def run(
    device_spec: str | None,
    no_baselines: bool,
    stated: tuple[str, ...],
    against: Path | None,
    bundle: Path,
    **options: Any,
) -> None:
    """Run BUNDLE on a device and compare its outputs with eager PyTorch.

    The bundle runs under the conditions it was planned for (precision, mode, threads, cores). Plan
    and baselines run in turns; tables show predicted beside measured latency. --frames also runs
    many frames at once, in the bundle's way and in others, and prints frames per second and the
    latency of a frame. The result is stored in the bundle, where `nnapi-prof report` finds it.

    BUNDLE may also be a .pte from `nnapi-prof convert --to executorch` or another source: it runs
    in ExecuTorch on this host, with `local`'s NNAPI or a simulated phone's.
    """
    for each in file_formats().values():
        if bundle.suffix == each.ENDING:
            each.run(click.get_current_context(), bundle)
            return
    if against is not None:
        raise UsageError("--against is for a .pte: a bundle has its model")
    from nnapi_prof.api.run import keep_result, run

    with listening() as listener:
        result = run(
            bundle,
            device_spec,
            baselines=not no_baselines,
            sizes=stated,
            listener=listener,
            **options,
        )
    report = result.run
    if as_json():
        from nnapi_prof.documents.plans import run_document
        from nnapi_prof.execution.report import RESULT_FILE

        print_document(run_document(bundle, bundle / RESULT_FILE, report))
    else:
        _show_run(report)
    say(f"result in {keep_result(bundle, report)}")  # last, so that a failure hides no results
    result.raise_for_mismatch()


def _show_run(report: RunReport) -> None:
    from nnapi_prof.execution.compare import weak_evidence
    from nnapi_prof.reports.words import plan_cells

    console = stdout()
    under = f", {report.conditions}" if report.conditions else ""
    line(console, f"{report.model} on {report.device}{under}")
    # A bundle that was made for a phone may run on a simulated one, or vice versa.
    planned = report.runs[0].plan.simulated
    unit = unit_of(report.simulated and planned)
    mixed = report.simulated != planned
    predicted = "predicted (simulated)" if mixed and planned else "predicted"
    measured = "measured (simulated)" if mixed and report.simulated else "measured"
    compiled, first = (measured.replace("measured", name) for name in ("compile", "first run"))
    times = [predicted, measured, first, compiled]
    segments = report.runs[0].segments
    wide = is_wide(console)
    words = ["#", "target", "units"] if wide else ["#", "target"]
    table = boxed(f"Plan, latency in {unit}", words, times)
    for each in segments:
        cells = [str(each.segment), each.target, each.label]
        estimated = " est." if each.target == HOST.key else ""  # the host is not timed
        latencies = (each.median_ns, each.first_ns, each.compile_ns)
        table.add_row(
            *cells[: len(words)], f"{ms(each.predicted_ns)}{estimated}", *map(ms, latencies)
        )
    own = report.runs[0]
    if own.median_copies_ns:
        copies = ["", "copies", "inputs and outputs, from and to the caller's buffers"]
        table.add_row(*copies[: len(words)], ms(own.plan.copies_ns), ms(own.median_copies_ns))
    console.print(table)
    if not wide:
        listed(console, "Units", ((str(each.segment), each.label) for each in segments))
    times = [predicted, f"{measured}, median", "95 % within", "error", "against the plan", first]
    if not wide:
        times.remove(first)
    plans = boxed(f"Plan and baselines, latency in {unit}", ["plan"], times)
    for cells in plan_cells(report):
        plans.add_row(*cells[: 1 + len(times)])
    console.print(plans)
    _show_frames(console, report)
    for number, check in enumerate(report.checks):
        verdict = "agrees with" if check.ok else "DIFFERS from"
        difference, allowed = check.texts()
        little = weak_evidence(check) if check.ok else None
        line(
            console,
            f"output {number} {list(check.shape)} {verdict} eager PyTorch:"
            f" {difference} of its largest value ({allowed} allowed)"
            + (f", but {little}" if little else ""),
        )
    for note in report.notes:
        line(console, f"note: {note}")


def _show_frames(console: Console, report: RunReport) -> None:
    from nnapi_prof.device.protocol import Outcome

    if not report.frames:
        return
    numbers = ["predicted", "measured", "error", "against the plan", "latency", "95 % within"]
    title = f"Frames per second, latency in {unit_of(report.simulated)}"
    table = boxed(title, ["how"], ["at once", *numbers])
    first = report.frames[0].frames_per_second
    for run in report.frames:
        rate, predicted = run.frames_per_second, run.predicted_per_second
        error = f"{(predicted - rate) / rate:+.1%}" if rate and predicted else "–"
        table.add_row(
            run.way.name,
            str(run.way.in_flight),
            "–" if predicted is None else f"{predicted:.4g}",
            f"{rate:.4g}" if rate else run.error or "–",
            error,
            f"{rate / first:.2f}x" if rate and first else "–",
            ms(run.latency_ns(0.5)),
            ms(run.latency_ns(0.95)),
        )
    console.print(table)
    n = sum(len(run.frames) for run in report.frames)
    same = sum(run.outcomes[Outcome.SAME] for run in report.frames)
    line(console, f"({same} of {n} frames gave, bit by bit, what their plan gives alone)")
