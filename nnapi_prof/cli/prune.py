"""``nnapi-prof costs prune``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from nnapi_prof.cli.cost_options import existing, filter_options, selection_of
from nnapi_prof.cli.help import Command
from nnapi_prof.cli.options import HELP, common_options, costs_option
from nnapi_prof.cli.output import as_json, print_document, say

if TYPE_CHECKING:
    from nnapi_prof.costs.store import Pruned


@click.command(
    "prune",
    cls=Command,
    context_settings=HELP,
    examples=[
        "nnapi-prof costs prune --superseded",
        "nnapi-prof costs prune --device 'Pixel 6' --until 2026-01-31 --yes",
    ],
)
@costs_option
@filter_options
@click.option(
    "--superseded",
    is_flag=True,
    help="Only rows that a newer measurement of the same thing has taken the place of.",
)
@click.option("--yes", is_flag=True, help="Delete. Default: say only how many rows would go.")
@common_options
def prune(costs: str | None, superseded: bool, yes: bool, **filters: Any) -> None:
    """Delete measurements: old ones, a device's, those that newer ones supersede.

    Something must say which: a filter, --superseded, or both. Without --yes nothing is touched.
    """
    from nnapi_prof.costs import store as pruning
    from nnapi_prof.costs.store import CostStore

    with CostStore(existing(costs)) as store:
        selection, _ = selection_of(store, **filters)
        found = pruning.prune(store, selection, superseded=superseded, deleting=yes)
    if as_json():
        from nnapi_prof.documents.costs import of_prune

        print_document(of_prune(store.location, found))
        return
    click.echo(_in_words(found))
    if found.rows and not yes:
        say("note: nothing was deleted: --yes does it")
    if found.deleted and found.rows:
        say("note: the file of an SQLite table does not shrink: what comes next is written there")


def _in_words(found: Pruned) -> str:
    """``412 of 1,203 rows deleted, of 2 devices; 1 device is forgotten``."""
    verb = "deleted" if found.deleted else "would go"
    words = f"{found.rows:,} of {found.rows + found.kept:,} rows {verb}"
    if found.rows:
        words += f", of {_devices(len(found.devices))}"
    if found.forgotten:
        one = len(found.forgotten) == 1
        words += f"; {_devices(len(found.forgotten))} {'has' if one else 'have'} none left"
    return words


def _devices(n: int) -> str:
    return "1 device" if n == 1 else f"{n} devices"
