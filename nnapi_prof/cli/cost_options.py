"""Options that choose rows of a cost table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from nnapi_prof.costs.store import CostStore
    from nnapi_prof.costs.store.devices import Measured
    from nnapi_prof.costs.store.selection import Selection

F = TypeVar("F", bound=Callable[..., Any])


def filter_options(function: F) -> F:
    """What :func:`selection_of` takes."""
    options = (
        click.option(
            "--device",
            "device_words",
            metavar="DEVICE",
            help="A device of the table: its fingerprint or the beginning of it, or its name"
            " (`nnapi-prof costs list`); * and ? stand for anything.",
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
            help="Labels as `show` shows them, with * and ?: 'conv2d*'; repeatable.",
        ),
        click.option(
            "--kind",
            "kinds",
            multiple=True,
            type=click.Choice(["unit", "chain", "region", "plan"]),
            help="What was measured; repeatable.",
        ),
        click.option(
            "--status",
            "statuses",
            multiple=True,
            type=click.Choice(["ok", "refused", "failed", "crashed", "timeout"]),
            help="How it ended; repeatable.",
        ),
        click.option(
            "--model",
            type=click.Path(path_type=Path),
            help="Only what is made of this model's operations.",
        ),
        click.option(
            "--input",
            "inputs",
            multiple=True,
            metavar="1x3x224x224[:DTYPE]",
            help="Shape of an input of --model, as of `nnapi-prof profile`.",
        ),
        click.option(
            "--since", metavar="DATE", help="Measured then or later: 2026-01-31, or with a time."
        ),
        click.option("--until", metavar="DATE", help="Measured then or earlier, in UTC."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def selection_of(
    store: CostStore,
    device_words: str | None,
    targets: tuple[str, ...],
    labels: tuple[str, ...],
    kinds: tuple[str, ...],
    statuses: tuple[str, ...],
    model: Path | None,
    inputs: tuple[str, ...],
    since: str | None,
    until: str | None,
) -> tuple[Selection, list[Measured]]:
    """The newest rows that fit, and the devices that were named (all, where none was)."""
    from nnapi_prof.costs.measurement import Kind, Status
    from nnapi_prof.costs.store.devices import find, measured
    from nnapi_prof.costs.store.selection import Selection

    devices = measured(store)
    if device_words is not None:
        devices = find(devices, device_words)
    selection = Selection(
        fingerprints=None if device_words is None else [each.fingerprint for each in devices],
        targets=targets,
        labels=labels,
        kinds=tuple(map(Kind, kinds)),
        statuses=tuple(map(Status, statuses)),
        since=None if since is None else _instant("--since", since, end=False),
        until=None if until is None else _instant("--until", until, end=True),
        newest=True,
    )
    if model is not None:
        selection = selection.with_(signatures=_signatures(store, selection, model, inputs))
    elif inputs:
        from nnapi_prof.errors import UsageError

        raise UsageError(
            "--input is of a --model, and none was given: give --model, or leave --input out"
        )
    return selection, devices


def existing(costs: str | None) -> str:
    """The cost table of ``--costs``, which to read from: a mistyped path makes no new file."""
    from nnapi_prof.costs import default_location
    from nnapi_prof.errors import UsageError

    where = costs if costs is not None else default_location()
    if "://" not in where and not Path(where).expanduser().exists():
        raise UsageError(f"cost table {where} does not exist: `nnapi-prof profile` makes one")
    return where


def time_of(text: str, end: bool) -> str | None:
    """:func:`nnapi_prof.costs.store.selection.instant`, None where ``text`` is no date."""
    from nnapi_prof.costs.store.selection import instant

    try:
        return instant(text, end)
    except ValueError:
        return None


def _instant(option: str, text: str, end: bool) -> str:
    from nnapi_prof.errors import UsageError

    found = time_of(text, end)
    if found is None:
        raise UsageError(f"{option} {text!r} is no date: write 2026-01-31 or 2026-01-31T12:30")
    return found


def _signatures(
    store: CostStore, selection: Selection, model: Path, inputs: tuple[str, ...]
) -> set[str]:
    """Of rows whose every member is a unit of the model."""
    from nnapi_prof.cli.options import load_model

    units = {unit.signature for unit in load_model(model, inputs).units.units}
    return {m.signature for m in store.select(selection) if units.issuperset(m.members)}
