"""``nnapi-prof throughput``: Predict frames per second of processors that work at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnapi_prof.cli.command import CONDITIONS, Command
from nnapi_prof.cli.options import (
    HELP,
    MODEL,
    common_options,
    conditions_options,
    costs_option,
    device_option,
    input_option,
)
from nnapi_prof.cli.output import as_json, boxed, line, ms, print_document, stdout, unit_of
from nnapi_prof.cli.progress import listening

if TYPE_CHECKING:
    from nnapi_prof.api.throughput import Throughput


@click.command(
    "throughput",
    cls=Command,
    context_settings=HELP,
    examples=[
        "nnapi-prof throughput model.pt",
        "nnapi-prof throughput --contention 1.2 --frames-in-flight 4 --json model.pt",
    ],
)
@common_options
@device_option
@input_option
@costs_option
@conditions_options
@click.option(
    "--contention",
    type=click.FloatRange(min=1),
    help="How many times as long a processor takes while another one is busy. Default: what"
    " `profile --beside` measured, else 1.1.",
)
@click.option(
    "--frames-in-flight",
    type=click.IntRange(1, 63),
    help="Most frames that wait or run at once. Default: any number.",
)
@click.option(
    "--max-latency-ms",
    type=click.FloatRange(min=0),
    help="Most that 95 % of frames may take, from submission to result.",
)
@click.option(
    "--max-memory-mb",
    type=click.IntRange(1),
    help="Most for weights on all processors, and for what frames in flight hand over.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 86_400),
    help="Most that the search for plans may take. Default: 30.",
)
@MODEL
def command(
    device_spec: str | None,
    inputs: tuple[str, ...],
    costs: str | None,
    contention: float | None,
    model: Path,
    **options: Any,
) -> None:
    """Predict frames per second of processors that work at once.

    Needs what `nnapi-prof profile` measured for the same model and device, under the same
    conditions; with --beside it measured how much processors slow each other down. All here is
    predicted. The best mixture of plans stands beside frames in turn on whole devices,
    one plan as a pipeline, and the best single device, with a bound that no plans exceed; and what
    queues make of so many frames in flight.
    """
    conditions = {name: options.pop(name) for name in CONDITIONS}
    with listening() as listener:
        with listener.working("loading PyTorch"):
            from nnapi_prof.api.costs import open_table, read_costs
            from nnapi_prof.api.devices import reached
            from nnapi_prof.api.model import load
            from nnapi_prof.api.throughput import throughput

        loaded = load(model, inputs, listener=listener)
        with open_table(costs) as store, reached(device_spec, listener) as client:
            unit_costs = read_costs(loaded, store, client, **conditions)
        found = throughput(loaded, unit_costs, contention=contention, listener=listener, **options)
    if as_json():
        from nnapi_prof.documents.throughput import of_throughput

        print_document(of_throughput(found))
    else:
        _show(found)


def _show(found: Throughput) -> None:
    from nnapi_prof.api.throughput import PREDICTED

    console, plan = stdout(), found.plan
    title = f"Frames per second, predicted{', simulated' if found.simulated else ''}"
    table = boxed(title, ["how"], ["frames/s", "against the plan"])
    rates = [(plan.rule.value, found.frames_per_second), *found.baselines.items()]
    for how, rate in rates:
        share = rate / found.frames_per_second if found.frames_per_second else 1.0
        table.add_row(how, f"{rate:.4g}", f"{share:.2f}x")
    console.print(table)
    curve = boxed(
        f"By frames in flight, latency in {unit_of(found.simulated)}",
        ["frames"],
        ["frames/s", "latency", "95 % within", "MB", "how"],
    )
    for point in plan.curve:
        curve.add_row(
            str(point.frames_in_flight),
            f"{point.frames_per_second:.4g}",
            *(ms(ns) for ns in point.latency_ns[:2]),
            f"{point.memory_bytes / 1e6:.1f}",
            point.rate.rule.value,
        )
    console.print(curve)
    for share, each in zip(plan.shares, plan.plans, strict=True):
        targets = ", ".join(dict.fromkeys(segment.target.key for segment in each.segments))
        line(console, f"({share:.0%} of frames: {len(each.segments)} segments on {targets})")
    more = found.most_per_second / found.frames_per_second - 1 if found.frames_per_second else 0.0
    limit = f"at most {more:.1%} more" if more > 1e-4 else "no more"
    line(
        console, f"(no plans at all do {limit} by these costs: {PREDICTED[found.contention.basis]})"
    )
