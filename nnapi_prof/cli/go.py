"""``nnapi-prof go``: Profile, partition, run and report a model in one go."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnapi_prof.cli import options as opt
from nnapi_prof.cli.advise import SHORT, show_advice
from nnapi_prof.cli.chips import on_chip
from nnapi_prof.cli.command import define
from nnapi_prof.cli.output import (
    as_json,
    check_writable,
    current,
    print_document,
    say,
    stderr,
    stdout,
)
from nnapi_prof.cli.progress import listening
from nnapi_prof.cli.ship import show_steps
from nnapi_prof.execution import QUICK, RunOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nnapi_prof.api.end_to_end import PipelineResult
    from nnapi_prof.bundle.deployment import DeployStep


@define(
    "go",
    examples=[
        "nnapi-prof go model.pt",
        "nnapi-prof go --device sim:npu-phone -o report.html model.pt",
        "nnapi-prof go --input 1x3x224x224 model.pt",
    ],
)
@opt.device
@opt.library
@opt.inputs
@opt.costs
@opt.conditions
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Report to write, .html or .md; the bundle is written beside it, with .nnprof."
    " Default: MODEL.html beside the model.",
)
@click.option("--open", "open_it", is_flag=True, help="Open the report in a browser.")
@click.option("--fresh", is_flag=True, help="Measure again what is already in the cost table.")
@opt.declared(
    RunOptions,
    "runs",
    runs={
        "default": QUICK.runs,
        "help": "Largest number of recorded runs of the plan and of each baseline, about half a"
        " second each.",
    },
)
@opt.tolerance
@opt.boundary
@opt.cooldown
@opt.memory
@opt.model
def command(
    device_spec: str | None,
    inputs: tuple[str, ...],
    output: Path | None,
    open_it: bool,
    model: Path,
    **options: Any,
) -> None:
    """Profile MODEL, plan what runs where, run the plan, and write a report.

    Does the same as `nnapi-prof profile`, `partition`, `run` and `report`, but reads the model
    only once. Nothing is measured twice under the same conditions, and a final plan is not refined
    again: the first call takes minutes, the next one seconds. If something fails, all results so
    far are kept and written.
    """
    if on_chip(click.get_current_context(), report=True):
        return
    report = output or model.with_suffix(".html")
    check_writable(report)
    result = _go(model, inputs, report, device_spec, options)
    if as_json():
        from nnapi_prof.documents.report import of_go

        print_document(of_go(result))
    else:
        _show_pipeline(result)
    if open_it and result.report is not None and not click.launch(str(result.report.resolve())):
        say("note: no browser was opened: the system has none")
    if result.fault is not None:
        raise result.fault
    if result.result is not None:
        result.result.raise_for_mismatch()


def _go(
    model: Path,
    inputs: tuple[str, ...],
    report: Path,
    device: str | None,
    options: dict[str, Any],
) -> PipelineResult:
    with listening() as listener:
        with listener.working(f"reading {model.name}"):
            from nnapi_prof.api.costs import Interrupted
            from nnapi_prof.api.end_to_end import run_all
            from nnapi_prof.api.model import load

        loaded = load(model, inputs, listener=listener)
        try:
            return run_all(
                loaded,
                report=report,
                device=device,
                listener=listener,
                announced=not stderr().is_terminal,
                **options,
            )
        except Interrupted as interrupted:
            listener.note(f"interrupted: {interrupted}")
            raise


def _show_pipeline(result: PipelineResult) -> None:
    """Prints the main results, the paths of the rest, and the next commands."""
    console = stdout()
    subject = result.result or result.planned
    ship: Sequence[DeployStep] = ()
    if subject is not None:
        from nnapi_prof.reports.frames import baseline_frame
        from nnapi_prof.reports.headline import headline

        data = subject.report_data()
        ship = data.ship
        plans = baseline_frame(data.plans, data.run, data.permutes)
        summary = headline(data, plans, label_cards=False)
        is_told = console.is_terminal and stderr().is_terminal and not current().quiet
        conditions = f", {subject.conditions.options}" if subject.conditions.options else ""
        if not is_told:  # the profile has not printed this line before
            console.print(f"{data.model} on {subject.device}{conditions}", soft_wrap=True)
        console.print(summary.sentence, soft_wrap=True)
        for card in summary.cards:
            detail = f" ({card.detail})" if card.detail else ""
            console.print(f"{card.about}: {card.value}{detail}", soft_wrap=True)
        if data.advice:
            show_advice(console, data.advice, SHORT)
    outcome = result.costs.outcome if result.costs else None
    if result.costs is not None and outcome is not None:
        measured = f"{outcome.n_measured} measured, {outcome.n_reused} known before"
        console.print(f"costs:  {result.costs.location} ({measured})", soft_wrap=True)
    if result.bundle is not None:
        console.print(f"bundle: {result.bundle}", soft_wrap=True)
        show_steps(console, ship)
    if result.report is not None:
        only = "" if result.result else " (predictions only: the plan was not run)"
        console.print(f"report: {result.report}{only}", soft_wrap=True)
