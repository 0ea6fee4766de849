"""``nnapi-prof run``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nnapi_prof.cli.options import (
    BUNDLE,
    cooldown_option,
    cpus_option,
    device,
    device_option,
    load_model,
    memory_option,
    ms,
    say,
    stderr,
    stdout,
    unit_of,
)

if TYPE_CHECKING:
    from nnapi_prof.run.result import RunReport

RESULT_FILE = "run.json"
"""In the bundle: the last run's report."""


@click.command("run", context_settings={"help_option_names": ["-h", "--help"]})
@device_option
@click.option(
    "--runs",
    type=click.IntRange(1, 100_000),
    default=30,
    show_default=True,
    help="Recorded runs of each plan.",
)
@click.option("--no-baselines", is_flag=True, help="Time the plan only.")
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    help="Largest allowed difference of an output, relative to its largest value. Default: 1e-4,"
    " with float16 or relaxed precision 2e-2.",
)
@cpus_option(None)
@cooldown_option
@memory_option
@click.option(
    "--seed",
    type=int,
    help="Random inputs of this seed. Default: bundled inputs, else always the same.",
)
@click.option(
    "--input",
    "stated",
    multiple=True,
    metavar="1x3x256x256",
    help="Sizes for those that the bundle leaves open; repeat it for each input.",
)
@BUNDLE
def command(
    device_spec: str | None,
    runs: int,
    no_baselines: bool,
    tolerance: float | None,
    cpus: str | None,
    cooldown_s: float,
    memory_mb: int | None,
    seed: int | None,
    stated: tuple[str, ...],
    bundle: Path,
) -> None:
    """Run BUNDLE on a device and compare its outputs with eager PyTorch.

    It runs under the conditions it was planned for (precision, mode, threads, cores). Plan and
    baselines are timed in turns; predicted and measured latency stand side by side. The
    result is kept in the bundle, where `nnapi-prof report` finds it.
    """
    from nnapi_prof.bundle.storage import read_bundle
    from nnapi_prof.errors import MismatchError

    loaded = read_bundle(bundle)  # before torch is: a wrong path should be told at once

    from nnapi_prof.api.planning import at_sizes
    from nnapi_prof.costs.conditions import Precision
    from nnapi_prof.run.compare import HALF_TOLERANCE, TOLERANCE
    from nnapi_prof.run.reference import choose_inputs, run_eager
    from nnapi_prof.run.runner import run_bundle
    from nnapi_prof.run.timing import RunOptions

    model = bundle / loaded.model_file
    if stated:
        loaded, program = at_sizes(loaded, model, stated)
    else:
        program = load_model(model, loaded.inputs)
    inputs = choose_inputs(program, seed)
    wanted = run_eager(model, inputs)
    conditions = replace(loaded.conditions, cpus=cpus or loaded.conditions.cpus)
    exact = conditions.precision is Precision.FLOAT32
    usual = TOLERANCE if exact else HALF_TOLERANCE
    options = RunOptions(
        runs=runs,
        cooldown_s=cooldown_s,
        conditions=conditions,
        memory_mb=memory_mb,
        baselines=not no_baselines,
        tolerance=usual if tolerance is None else tolerance,
    )
    with device(device_spec) as opened, stderr().status("running") as status:
        report = run_bundle(
            loaded,
            program,
            inputs,
            wanted,
            opened.client,
            options,
            lambda name, done, total: status.update(f"running {name}: {done} of {total}"),
        )
    _show(report)
    (bundle / RESULT_FILE).write_text(report.to_json())
    say(f"result in {bundle / RESULT_FILE}")
    wrong = [check for check in report.checks if not check.ok]
    if wrong:
        worst = max(wrong, key=lambda check: check.relative)
        raise MismatchError(
            f"output {worst.name} differs from eager PyTorch by {worst.relative:.2e} of its"
            f" largest value, {worst.tolerance:.0e} is allowed"
        )


def _show(report: RunReport) -> None:
    from rich.table import Table

    console = stdout()
    under = f", {report.conditions}" if report.conditions else ""
    console.print(f"{report.model} on {report.device}{under}", soft_wrap=True)
    # A bundle may have been made for a phone and run on a simulated one, or the other way round.
    planned = report.runs[0].plan.simulated
    unit = unit_of(report.simulated and planned)
    mixed = report.simulated != planned
    predicted = "predicted (simulated)" if mixed and planned else "predicted"
    measured = "measured (simulated)" if mixed and report.simulated else "measured"
    table = Table(title=f"Plan, latency in {unit}", title_justify="left")
    for name in ("#", "target", "units"):
        table.add_column(name)
    compiled, first = (measured.replace("measured", name) for name in ("compile", "first run"))
    for name in (predicted, measured, first, compiled):
        table.add_column(name, justify="right")
    for segment in report.runs[0].segments:
        table.add_row(
            str(segment.segment),
            segment.target,
            segment.label,
            ms(segment.predicted_ns),
            ms(segment.median_ns),
            ms(segment.first_ns),
            ms(segment.compile_ns),
        )
    console.print(table)
    plans = Table(title=f"Plan and baselines, latency in {unit}", title_justify="left")
    plans.add_column("plan")
    for name in (predicted, f"{measured}, median", "error", "against the plan", first):
        plans.add_column(name, justify="right")
    fastest = report.runs[0].median_ns
    for run in report.runs:
        median = run.median_ns
        error = ratio = "–"
        if median:
            error = f"{(run.predicted_ns - median) / median:+.1%}"
            ratio = f"{median / fastest:.2f}x" if fastest else "–"
        plans.add_row(
            run.plan.name,
            ms(run.predicted_ns),
            run.error or ms(median),
            error,
            ratio,
            ms(run.first_ns),
        )
    console.print(plans)
    for check in report.checks:
        verdict = "agrees with" if check.ok else "DIFFERS from"
        console.print(
            f"output {check.name} {list(check.shape)} {verdict} eager PyTorch:"
            f" {check.relative:.1e} of its largest value ({check.tolerance:.0e} allowed)",
            soft_wrap=True,
        )
    for note in report.notes:
        console.print(f"note: {note}", soft_wrap=True)
