"""``nnapi-prof costs merge`` and ``prune``: rows that come and go."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from nnapi_prof.cli import options as opt
from nnapi_prof.cli.command import define
from nnapi_prof.cli.costs_filters import filter_options, selection_of
from nnapi_prof.cli.output import as_json, print_document, say
from nnapi_prof.cli.progress import listening
from nnapi_prof.costs import existing
from nnapi_prof.reports.words import count

if TYPE_CHECKING:
    from nnapi_prof.api.events import ProgressCallback
    from nnapi_prof.costs.store import Pruned


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
    from nnapi_prof.costs.store.merge import merge

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
