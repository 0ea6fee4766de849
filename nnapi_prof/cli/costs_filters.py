"""Selects rows of a cost table by a command's options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nnapi_prof.cli.command import option_group
from nnapi_prof.cli.progress import listening

if TYPE_CHECKING:
    from nnapi_prof.costs.store import CostStore
    from nnapi_prof.costs.store.devices import NamedDevice
    from nnapi_prof.costs.store.selection import Selection


filter_options = option_group(
    click.option(
        "--device",
        "device_words",
        metavar="DEVICE",
        help="Device in the table: its fingerprint or a prefix of it, or its name (`nnapi-prof"
        " costs list`), with * and ?.",
    ),
    click.option(
        "--target",
        "targets",
        multiple=True,
        metavar="PATTERN",
        help="cpu or nnapi:ACCELERATOR/PREFERENCE, with * and ?; repeatable.",
    ),
    click.option(
        "--op",
        "labels",
        multiple=True,
        metavar="PATTERN",
        help="Labels as in `show`, with * and ?, such as 'conv2d*'; repeatable.",
    ),
    click.option(
        "--kind",
        "kinds",
        multiple=True,
        type=click.Choice(["unit", "chain", "region", "plan", "beside", "threads"]),
        help="Kind of measurement; repeatable.",
    ),
    click.option(
        "--status",
        "statuses",
        multiple=True,
        type=click.Choice(["ok", "refused", "failed", "crashed", "timeout"]),
        help="Result of the measurement; repeatable.",
    ),
    click.option(
        "--failures",
        is_flag=True,
        help="What failed, crashed or timed out: --status failed, crashed and timeout.",
    ),
    click.option(
        "--model",
        type=click.Path(path_type=Path),
        help="Only regions of this model's operations.",
    ),
    click.option(
        "--input",
        "inputs",
        multiple=True,
        metavar="1x3x224x224[:DTYPE]",
        help="Shape of an input of --model, as in `nnapi-prof profile`.",
    ),
    click.option(
        "--since",
        metavar="DATE",
        help="Measured at this date or later: 2026-01-31, or with a time.",
    ),
    click.option("--until", metavar="DATE", help="Measured at this date or earlier, in UTC."),
)
"""What :func:`selection_of` takes."""


def selection_of(
    store: CostStore,
    device_words: str | None,
    targets: tuple[str, ...],
    labels: tuple[str, ...],
    kinds: tuple[str, ...],
    statuses: tuple[str, ...],
    failures: bool,
    model: Path | None,
    inputs: tuple[str, ...],
    since: str | None,
    until: str | None,
) -> tuple[Selection, list[NamedDevice]]:
    """The newest rows that fit, and the devices that were named (all, where none was)."""
    from nnapi_prof.costs.measurement import FAILURES, Kind, Status
    from nnapi_prof.costs.store.devices import find, named
    from nnapi_prof.costs.store.selection import Selection, stated_instant

    devices = named(store)
    if device_words is not None:
        devices = find(devices, device_words)
    selection = Selection(
        fingerprints=None if device_words is None else [each.fingerprint for each in devices],
        targets=targets,
        labels=labels,
        kinds=tuple(map(Kind, kinds)),
        statuses=(*map(Status, statuses), *(FAILURES if failures else ())),
        since=None if since is None else stated_instant("since", since),
        until=None if until is None else stated_instant("until", until, end=True),
        newest=True,
    )
    if model is not None:
        selection = selection.with_(signatures=_signatures(store, model, inputs))
    elif inputs:
        from nnapi_prof.errors import UsageError

        raise UsageError(
            "--input is of a --model, and none was given", "give --model, or leave --input out"
        )
    return selection, devices


def _signatures(store: CostStore, model: Path, inputs: tuple[str, ...]) -> set[str]:
    """Returns signatures of regions whose every member is a unit of the model."""
    from nnapi_prof.api.model import load

    with listening() as listener:
        graph = load(model, inputs, listener=listener).graph
    units = {unit.signature for unit in graph.units}
    return {name for name, members in store.members().items() if units.issuperset(members)}
