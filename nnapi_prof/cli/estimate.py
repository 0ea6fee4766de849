"""``nnapi-prof estimate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnapi_prof.cli.completing import phones
from nnapi_prof.cli.options import (
    HELP,
    MODEL,
    common_options,
    conditions_of,
    input_option,
    load_model,
    ms,
    threads_option,
)
from nnapi_prof.cli.output import as_json, print_document, stdout

if TYPE_CHECKING:
    from nnapi_prof.costs.static_costs import EstimatedCosts
    from nnapi_prof.graph.plan import Plan


@click.command("estimate", context_settings=HELP)
@common_options
@click.option(
    "--phone",
    required=True,
    metavar="NAME|FILE.json",
    shell_complete=phones,
    help="A phone that comes along, simulated or real, or a description that `nnapi-prof calibrate`"
    " wrote.",
)
@input_option
@threads_option
@click.option("--burst", is_flag=True, help="NNAPI asked to compute in bursts (simulated phones).")
@click.option("--relaxed", is_flag=True, help="float32 computed as float16 (simulated phones).")
@MODEL
def command(
    phone: str,
    inputs: tuple[str, ...],
    threads: int,
    burst: bool,
    relaxed: bool,
    model: Path,
) -> None:
    """Estimate a model's latency and its plan on a phone that is not there.

    Needs no device and no network, and says the same every time. All of it is estimated, from the
    phone's description: this model was not measured, which is what `nnapi-prof profile` does.
    """
    from nnapi_prof.api.estimating import estimated_costs, read_phone
    from nnapi_prof.partition import baselines, solve

    conditions_of(threads, "big", "burst" if burst else "sync", relaxed, False)
    described = read_phone(phone)
    program = load_model(model, inputs)
    costs = estimated_costs(program, described, threads=threads, burst=burst, relaxed=relaxed)
    plans = (solve(program.units, costs), *baselines(program.units, costs))
    if as_json():
        from nnapi_prof.documents.estimate import of_estimate

        origin = str(described.get("origin") or "simulated")
        print_document(of_estimate(program.name, described["name"], origin, costs, plans))
        return
    _show(described, costs, plans)


def _show(described: Any, costs: EstimatedCosts, plans: tuple[Plan, ...]) -> None:
    from rich.table import Table

    console = stdout()
    label = "ms, estimated" + (", simulated phone" if costs.simulated else "")
    shown = [t for t in costs.targets if t.preference is None or t.preference.short == "fast"]
    units = Table(title=f"Units on {described['name']}, {label}", title_justify="left")
    units.add_column("#", justify="right")
    units.add_column("unit")
    for target in shown:
        units.add_column(target.key, justify="right")
    for unit in costs.graph.units:
        cells = [ms(costs.unit_cost(unit.index, target)) for target in shown]
        units.add_row(str(unit.index), unit.label, *cells)
    units.add_row("", "each invocation", *(ms(costs.overhead(target)) for target in shown))
    console.print(units)
    best = plans[0]
    table = Table(title=f"Plan, {label}", title_justify="left")
    for name in ("#", "target", "units", "latency", "± (9 of 10)", "why"):
        table.add_column(name, justify="left" if name in ("target", "units", "why") else "right")
    for number, segment in enumerate(best.segments):
        first, last = (costs.graph.units[u] for u in (segment.units[0], segment.units[-1]))
        name = first.label if first is last else f"{len(segment.units)}: {first.name} … {last.name}"
        error = _percent(costs.error_of(segment.units, segment.target))
        table.add_row(
            str(number), segment.target.key, name, ms(segment.predicted_ns), error, segment.cause
        )
    console.print(table)
    for note in best.notes:
        console.print(f"note: {note}", soft_wrap=True)
    rows = Table(title=f"Plan and baselines, {label}", title_justify="left")
    for name in ("plan", "segments", "latency", "± (9 of 10)", "against the plan"):
        rows.add_column(name, justify="left" if name == "plan" else "right")
    for plan in plans:
        ratio = plan.predicted_ns / best.predicted_ns if best.predicted_ns else 1.0
        error = _percent(costs.plan_error(plan))
        rows.add_row(
            plan.name, str(len(plan.segments)), ms(plan.predicted_ns), error, f"{ratio:.2f}x"
        )
    console.print(rows)
    console.print(
        f"All of this is estimated from a description ({described.get('origin') or 'simulated'});"
        " nothing was measured for this model. `nnapi-prof profile` measures.",
        soft_wrap=True,
    )


def _percent(error: float | None) -> str:
    return "unknown" if error is None else f"{error:.0%}"
