"""``nnapi-prof costs merge`` and ``prune``: rows that come and go."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnapi_prof.cli import options as opt
from nnapi_prof.cli.command import define, option_group
from nnapi_prof.cli.output import as_json, print_document, say
from nnapi_prof.cli.progress import listening
from nnapi_prof.costs import existing
from nnapi_prof.reports.words import count

if TYPE_CHECKING:
    from nnapi_prof.api.options import ProgressCallback
    from nnapi_prof.costs.store import CostStore, Pruned
    from nnapi_prof.costs.store.devices import NamedDevice
    from nnapi_prof.costs.store.selection import Selection

# Selects rows of a cost table by a command's options.

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
        type=click.Choice(["unit", "chain", "region", "plan", "corun", "threads"]),
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


@define(
    "prune",
    examples=[
        "nnapi-prof costs prune --superseded",
        "nnapi-prof costs prune --device 'Pixel 6' --until 2026-01-31 --yes",
    ],
)
@opt.costs
@filter_options
@click.option(
    "--superseded",
    is_flag=True,
    help="Only rows that a newer measurement of the same region replaces.",
)
@click.option("--yes", is_flag=True, help="Delete the rows. Default: only print how many.")
def prune(costs: str | None, superseded: bool, yes: bool, **filters: Any) -> None:
    """Delete measurements: old ones, a device's, or those that newer ones supersede.

    Give a filter, --superseded, or both. Without --yes nothing is deleted.
    """
    from nnapi_prof.costs import store as pruning
    from nnapi_prof.costs.store import CostStore

    with CostStore(existing(costs)) as store:
        selection, _ = selection_of(store, **filters)
        pruned = pruning.prune(store, selection, superseded=superseded, deleting=yes)
    if as_json():
        from nnapi_prof.documents.costs import of_prune

        print_document(of_prune(store.location, pruned))
        return
    click.echo(_pruned_words(pruned))
    if pruned.rows and not yes:
        say("note: nothing was deleted: --yes does it")
    if pruned.deleted and pruned.rows:
        say("note: the file of an SQLite table does not shrink: what comes next is written there")


def _pruned_words(pruned: Pruned) -> str:
    """``412 of 1,203 rows deleted, of 2 devices; 1 device is forgotten``."""
    verb = "deleted" if pruned.deleted else "would go"
    words = f"{pruned.rows:,} of {pruned.rows + pruned.kept:,} rows {verb}"
    if pruned.rows:
        words += f", of {count(len(pruned.devices), 'device')}"
    if pruned.forgotten:
        one = len(pruned.forgotten) == 1
        words += f"; {count(len(pruned.forgotten), 'device')} {'has' if one else 'have'} none left"
    return words


@define(
    "merge",
    examples=["nnapi-prof costs merge --costs postgresql://lab@server/costs costs.sqlite"],
)
@opt.costs
@click.argument("sources", metavar="TABLE...", nargs=-1, required=True)
def merge_command(costs: str | None, sources: tuple[str, ...]) -> None:
    """Add all measurements of other cost tables, each an SQLite file or a PostgreSQL URL.

    Rows that the table has already are skipped, so you can repeat an interrupted merge.
    """
    import dataclasses

    from nnapi_prof.costs.store import CostStore
    from nnapi_prof.costs.store.files import merge

    done = []
    with CostStore(costs) as store, listening() as listener:
        for source in sources:
            with CostStore(existing(source)) as other:
                told = partial(_told_merging, listener.progress, f"merging {other.location}")
                merged = merge(store, other, told)
            done.append({"table": other.location, **dataclasses.asdict(merged)})
            if not as_json():
                of = f"of {count(merged.rows, 'row')} of {count(merged.devices, 'device')}"
                click.echo(f"{other.location}: {merged.added} new {of}")
                if merged.left_out:
                    say(f"note: {count(merged.left_out, 'row')} cannot be and stayed behind")
    if as_json():
        from nnapi_prof.documents.costs import of_merge

        print_document(of_merge(store.location, done))


def _told_merging(tell: ProgressCallback, phase: str, done: int, total: int) -> None:
    from nnapi_prof.execution.profile.options import Progress

    tell(Progress(phase, done, total, ""))
