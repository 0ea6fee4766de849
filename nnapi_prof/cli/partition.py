"""``nnapi-prof partition``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from nnapi_prof.cli.curve import show_curve
from nnapi_prof.cli.help import Command
from nnapi_prof.cli.options import (
    HELP,
    MODEL,
    common_options,
    conditions_of,
    conditions_options,
    cooldown_option,
    costs_option,
    device_option,
    input_option,
    memory_option,
    ms,
    unit_of,
)
from nnapi_prof.cli.output import as_json, print_document, say, stdout
from nnapi_prof.cli.progress import listening
from nnapi_prof.cli.tables import line, show_plans, show_segments
from nnapi_prof.cli.wishes import wishes_options

if TYPE_CHECKING:
    from nnapi_prof.bundle.bundle import Bundle
    from nnapi_prof.graph.plan import Segment


@click.command(
    "partition",
    cls=Command,
    context_settings=HELP,
    examples=[
        "nnapi-prof partition model.pt",
        "nnapi-prof partition --device sim:npu-phone --pin 'softmax*=cpu' -o cut.nnprof model.pt",
    ],
)
@common_options
@device_option
@input_option
@costs_option
@conditions_options
@cooldown_option
@memory_option
@wishes_options
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Folder of the bundle. Default: MODEL.nnprof beside the model.",
)
@click.option(
    "--estimate",
    is_flag=True,
    help="Estimate units that were never measured from what else was measured on the device.",
)
@click.option(
    "--no-verify",
    is_flag=True,
    help="Do not run plan and baselines whole before choosing.",
)
@MODEL
def command(
    device_spec: str | None,
    inputs: tuple[str, ...],
    costs: str | None,
    threads: int,
    cpus: str,
    mode: str,
    relaxed: bool,
    float16: bool,
    cooldown_s: float,
    memory_mb: int | None,
    forbid: tuple[str, ...],
    pin: tuple[str, ...],
    preference: str | None,
    max_regions: int | None,
    listed: tuple[str, ...],
    solver: Literal["search", "milp"],
    max_compile_ms: float | None,
    max_error: float | None,
    best: bool,
    seconds: float | None,
    output: Path | None,
    estimate: bool,
    no_verify: bool,
    model: Path,
) -> None:
    """Choose what runs where from measured costs, and write a bundle.

    Needs what `nnapi-prof profile` measured for the same model and device, under the same
    conditions (--threads, --cpus, --mode, --relaxed, --float16); `nnapi-prof run` keeps to them,
    too. The plan has the fewest segments within noise of the least latency (--best: the least
    latency); Ctrl-C while it is searched for keeps the best one until then. Before it is written,
    plan and baselines run whole on the device, a few times each: where a baseline is faster end to
    end, it becomes the plan.
    """
    from nnapi_prof.api.wishes import Wishes

    path = output or model.with_suffix(".nnprof")
    with listening() as listener:
        with listener.working("loading PyTorch"):
            from nnapi_prof.api.steps_partition import partition_file

        made = partition_file(
            model,
            inputs,
            output=path,
            device=device_spec,
            costs=costs,
            conditions=conditions_of(threads, cpus, mode, relaxed, float16),
            wishes=Wishes(
                forbid,
                pin,
                preference,
                max_regions,
                listed,
                solver,
                max_compile_ms,
                max_error,
                best,
                seconds,
            ),
            estimate=estimate,
            verify=not no_verify,
            cooldown_s=cooldown_s,
            memory_mb=memory_mb,
            listener=listener,
        )
    if as_json():
        from nnapi_prof.documents.bundle import of_partition

        print_document(of_partition(path, made.bundle, made.found.curve))
    else:
        _show(made.bundle)
        show_curve(stdout(), made.found, best, unit_of(made.bundle.simulated))
    say(f"bundle in {path}")


def _show(bundle: Bundle) -> None:
    console = stdout()
    unit = unit_of(bundle.simulated)

    def interval(segment: Segment) -> str:
        low, high = segment.interval_ns or (None, None)
        return "–" if low is None else f"{ms(low)} … {ms(high)}"

    def mark(segment: Segment) -> str:
        return "" if segment.measured else " est." if segment.estimated else " ≈"

    title = f"Plan, predicted latency in {unit}"
    show_segments(console, title, bundle.graph, bundle.plan, ("95 %", interval), mark)
    if not all(segment.measured for segment in bundle.plan.segments):
        line(
            console,
            "(≈ summed from units and chains, est. from the static model; others were measured"
            " whole)",
        )
    for note in bundle.plan.notes:
        line(console, f"note: {note}")
    show_plans(console, f"Plan and baselines, predicted latency in {unit}", bundle.plans)
