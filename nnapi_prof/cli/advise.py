"""``nnapi-prof advise``: Say what would make a plan faster, and try it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nnapi_prof.cli import options as opt
from nnapi_prof.cli.command import define
from nnapi_prof.cli.output import as_json, line, print_document, say, stdout
from nnapi_prof.cli.progress import listening
from nnapi_prof.cli.ship import show_steps
from nnapi_prof.costs import ConditionOptions
from nnapi_prof.execution.objectives import AdviseOptions
from nnapi_prof.qnn import is_qnn

if TYPE_CHECKING:
    from rich.console import Console

    from nnapi_prof.advice import Advice
    from nnapi_prof.api import Listener
    from nnapi_prof.api.advise import Advised
    from nnapi_prof.api.plan import ModelPlan

SHORT = 3
"""Pieces of advice that other commands end with."""


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
def command(
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
    """Each piece as a sentence, its rewrite below it; ``most`` of them."""
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
