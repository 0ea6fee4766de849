"""``nnapi-prof costs``: Look into the cost table: list, show, diff, export, import, merge,
prune."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from nnapi_prof.cli.command import Command, Group
from nnapi_prof.cli.options import HELP, common_options, costs_option
from nnapi_prof.cli.output import as_json, is_wide, ms, plain, print_document, say, stdout, unit_of
from nnapi_prof.cli.progress import listening
from nnapi_prof.costs import existing

if TYPE_CHECKING:
    from nnapi_prof.api.events import ProgressCallback
    from nnapi_prof.costs.diff import Comparison, Difference
    from nnapi_prof.costs.measurement import Measurement
    from nnapi_prof.costs.store import CostStore, Pruned
    from nnapi_prof.costs.store.devices import Named
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
            type=click.Choice(["unit", "chain", "region", "plan", "beside"]),
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
) -> tuple[Selection, list[Named]]:
    """The newest rows that fit, and the devices that were named (all, where none was)."""
    from nnapi_prof.costs.measurement import Kind, Status
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
        statuses=tuple(map(Status, statuses)),
        since=None if since is None else stated_instant("since", since),
        until=None if until is None else stated_instant("until", until, end=True),
        newest=True,
    )
    if model is not None:
        selection = selection.with_(signatures=_signatures(store, model, inputs))
    elif inputs:
        from nnapi_prof.errors import UsageError

        raise UsageError(
            "--input is of a --model, and none was given: give --model, or leave --input out"
        )
    return selection, devices


def _signatures(store: CostStore, model: Path, inputs: tuple[str, ...]) -> set[str]:
    """Of regions whose every member is a unit of the model."""
    from nnapi_prof.api.model import load

    with listening() as listener:
        graph = load(model, inputs, listener=listener).graph
    units = {unit.signature for unit in graph.units}
    return {name for name, members in store.members().items() if units.issuperset(members)}


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
        words += f", of {_devices(len(pruned.devices))}"
    if pruned.forgotten:
        one = len(pruned.forgotten) == 1
        words += f"; {_devices(len(pruned.forgotten))} {'has' if one else 'have'} none left"
    return words


def _devices(n: int) -> str:
    return "1 device" if n == 1 else f"{n} devices"


_SORTS = ("time", "median", "spread", "label", "target")
_ROWS_SHOWN = 40
_MANY_ROWS = 100_000
"""Of a table with more, those that fit are not counted where they are not shown."""


@click.group("costs", cls=Group, context_settings=HELP)
def command() -> None:
    """Look into the cost table; compare, carry and tidy what is in it."""


command.add_command(prune)


@command.command("list", context_settings=HELP, examples=["nnapi-prof costs list"])
@costs_option
@common_options
def list_(costs: str | None) -> None:
    """List the devices in the cost table, and what was measured on each.

    The first column, or its beginning, is what --device of the other commands takes; so is the
    name.
    """
    from nnapi_prof.costs.store import CostStore
    from nnapi_prof.costs.store.devices import measured

    with CostStore(existing(costs)) as store:
        devices = measured(store)
    if as_json():
        from nnapi_prof.documents.costs import of_devices

        print_document(of_devices(store.location, devices))
        return
    console = stdout()
    wide = is_wide(console)
    last = ["kinds", "targets", "first measured", "last measured"] if wide else ["last measured"]
    table = plain(["device", "name"], ["rows", "ok"], *last)
    for each in devices:
        kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(each.kinds.items()))
        cells = [each.fingerprint, each.name, str(each.rows), str(each.statuses.get("ok", 0))]
        cells += [kinds, str(len(each.targets)), _short(each.first)] if wide else []
        table.add_row(*cells, _short(each.last))
    console.print(table)
    if not devices:
        say("note: the cost table is empty: `nnapi-prof profile` fills it")


@command.command(
    "show",
    context_settings=HELP,
    examples=[
        "nnapi-prof costs show --op 'conv2d*' --sort median",
        "nnapi-prof costs show --model model.pt --json > rows.json",
    ],
)
@costs_option
@filter_options
@click.option(
    "--sort",
    type=click.Choice(_SORTS),
    default="time",
    show_default=True,
    help="Order of the rows; latencies and spreads begin with the largest.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help=f"Rows to show at most, 0 for all. Default: {_ROWS_SHOWN}, with --json all.",
)
@common_options
def show(costs: str | None, sort: str, limit: int | None, **filters: Any) -> None:
    """Show measurements: of each region, target and conditions the newest that fits."""
    from nnapi_prof.costs.store import CostStore

    with CostStore(existing(costs)) as store:
        selection, devices = selection_of(store, **filters)
        most = limit if limit is not None else 0 if as_json() else _ROWS_SHOWN
        large = selection.fingerprints is None and store.most_rows() > _MANY_ROWS
        if most and large and sort == "time":
            selection = selection.with_(first=most + 1)
        rows = _sorted(store.select(selection), sort)
    n_all = None if selection.first and len(rows) > most else len(rows)
    several = len({m.fingerprint for m in rows}) > 1
    rows = rows[:most] if most else rows
    names = {device.fingerprint: device.name for device in devices}
    if as_json():
        from nnapi_prof.documents.costs import of_measurements

        print_document(of_measurements(store.location, rows, names, n_all))
        return
    _show_table(rows, names, several)
    if n_all is None:
        say(f"note: the first {len(rows)} rows of many: --device or another filter limits them")
    elif len(rows) < n_all:
        say(f"note: {len(rows)} of {n_all} rows: --limit 0 shows all")


def _sorted(rows: list[Measurement], sort: str) -> list[Measurement]:
    def latency(m: Measurement) -> float:
        return -m.summary.median_ns if m.usable else 0.0

    def spread(m: Measurement) -> float:
        return -m.summary.relative_spread if m.usable else 0.0

    return sorted(
        rows,
        key={
            "time": lambda m: m.measured_at,
            "median": latency,
            "spread": spread,
            "label": lambda m: (m.label, m.target),
            "target": lambda m: (m.target, m.label),
        }[sort],
    )


def _show_table(rows: list[Measurement], names: dict[str, str], several: bool) -> None:
    """Columns that say nothing of these rows are left out; on a narrow terminal kind, number of
    runs and date, too. ``several``: the rows are of several devices, be it some not shown."""
    console = stdout()
    usual = not any(m.conditions.options for m in rows)
    wide = is_wide(console)
    words = ["label", *(["kind"] if wide else []), "target", *([] if usual else ["conditions"])]
    times = [f"median ({_unit(rows)})", "spread", *(["runs"] if wide else [])]
    last = ["status", *(["measured"] if wide else []), *(["device"] if several else [])]
    table = plain(words, times, *last)
    for m in rows:
        summary = m.summary if m.usable else None
        cells = [m.label, *([m.kind.value] if wide else []), m.target.key]
        cells += [] if usual else [m.conditions.options or "–"]
        if summary is None:
            cells += ["–"] * len(times)
        else:
            cells += [ms(summary.median_ns), f"{summary.relative_spread:.1%}"]
            cells += [str(summary.n)] if wide else []
        cells.append("; ".join(_status(m)))
        cells += [_short(m.measured_at)] if wide else []
        table.add_row(*cells, *([names.get(m.fingerprint, m.fingerprint)] if several else []))
    console.print(table)


@command.command(
    "diff",
    context_settings=HELP,
    examples=[
        "nnapi-prof costs diff 'Pixel 6' 'Pixel 8'",
        "nnapi-prof costs diff 2026-01-31 2026-02-28",
    ],
)
@costs_option
@filter_options
@click.option(
    "--threshold",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    help="Leave out what changed by less, in percent: clock rates drift by some from one session to"
    " the next, which no measurement's own noise shows.",
)
@click.option("--every", is_flag=True, help="Show also what did not change beyond noise.")
@common_options
@click.argument("first", metavar="FIRST")
@click.argument("second", metavar="SECOND")
def diff(
    costs: str | None,
    threshold: float,
    every: bool,
    first: str,
    second: str,
    **filters: Any,
) -> None:
    """Compare two devices, or one device at two dates: what changed beyond noise.

    FIRST and SECOND are a device, a date, or DEVICE@DATE. At a date stands what was measured last
    up to its end. A date alone is of the table's only device, or of --device. Compared are regions
    that both sides have measured on the same target under the same conditions; the ratio is
    SECOND's median by FIRST's, with a bootstrap interval at 99 %.
    """
    from nnapi_prof.costs.diff import compare
    from nnapi_prof.costs.store import CostStore

    with CostStore(existing(costs)) as store:
        selection, devices = selection_of(store, **filters)
        one, two = (_side(store, selection, devices, words) for words in (first, second))
    comparison = compare(one, two, threshold / 100)
    if as_json():
        from nnapi_prof.documents.costs import of_comparison

        print_document(of_comparison(store.location, comparison, first, second))
        return
    heads = (f"{first} ({_unit(one)})", f"{second} ({_unit(two)})")
    _diff_table(comparison.differences if every else comparison.changed, heads)
    click.echo(_in_words(comparison))


def _side(
    store: CostStore, selection: Selection, devices: list[Named], words: str
) -> list[Measurement]:
    from nnapi_prof.costs.store.devices import find_one, listed
    from nnapi_prof.costs.store.selection import instant
    from nnapi_prof.errors import UsageError

    device, _, date = words.rpartition("@")
    until = None
    try:
        until = instant(date, end=True)
    except ValueError:
        device = words
    if device:
        chosen = find_one(devices, device)
    elif len(devices) == 1:
        chosen = devices[0]
    else:
        names = listed(devices) or "none"
        raise UsageError(f"{words} of which device? Say DEVICE@{words} or --device: {names}")
    limit = min(filter(None, (until, selection.until)), default=None)
    of_side = selection.with_(fingerprints=(chosen.fingerprint,), until=limit, newest=True)
    return store.select(of_side)


def _diff_table(shown: tuple[Difference, ...], heads: tuple[str, str]) -> None:
    if not shown:
        return
    usual = not any(each.first.conditions.options for each in shown)
    words = ["label", "kind", "target", *([] if usual else ["conditions"])]
    table = plain(words, [*heads, "ratio", "99 % interval"], "verdict")
    for each in shown:
        one, two = each.first, each.second
        cells = [one.label, one.kind.value, one.target.key]
        cells += [] if usual else [one.conditions.options or "–"]
        cells += [ms(m.summary.median_ns) if m.usable else m.status.value for m in (one, two)]
        cells.append("–" if each.ratio is None else f"{each.ratio:.3f}")
        has_interval = each.low is not None and each.high is not None
        cells.append(f"{each.low:.3f} to {each.high:.3f}" if has_interval else "–")
        table.add_row(*cells, each.verdict.value)
    stdout().print(table)


def _in_words(comparison: Comparison) -> str:
    n, changed = len(comparison.differences), len(comparison.changed)
    words = f"{changed} of {n} changed beyond noise" if n else "nothing was measured on both sides"
    ratio = comparison.median_ratio
    parts = [words if ratio is None else f"{words}, median ratio {ratio:.3f}"]
    if comparison.same_row:
        parts.append(f"{comparison.same_row} not measured again in between")
    if comparison.only_first or comparison.only_second:
        parts.append(
            f"{comparison.only_first} only in the first, {comparison.only_second} in the second"
        )
    return "; ".join(parts)


@command.command(
    "export",
    context_settings=HELP,
    examples=[
        "nnapi-prof costs export costs.parquet",
        "nnapi-prof costs export --device 'Pixel 6' --since 2026-01-31 costs.csv",
    ],
)
@costs_option
@filter_options
@common_options
@click.argument("file", type=click.Path(path_type=Path))
def export_(costs: str | None, file: Path, **filters: Any) -> None:
    """Write measurements to FILE, a .csv or .parquet: every one, or those that fit.

    With raw samples, so that `nnapi-prof costs import` elsewhere has them as they were.
    """
    from nnapi_prof.costs.store import CostStore
    from nnapi_prof.costs.store.files import export

    with CostStore(existing(costs)) as store:
        selection, _ = selection_of(store, **filters)
        n = export(store, file, selection.with_(newest=False))
    if as_json():
        from nnapi_prof.documents.costs import of_export

        print_document(of_export(store.location, str(file), n))
    else:
        click.echo(f"{file}: {_count(n, 'row')}")


@command.command(
    "import", context_settings=HELP, examples=["nnapi-prof costs import colleague.csv"]
)
@costs_option
@common_options
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
def import_command(costs: str | None, files: tuple[Path, ...]) -> None:
    """Add the measurements of .csv or .parquet files that `nnapi-prof costs export` wrote.

    What the table has already is left as it is. A file is taken whole or not at all.
    """
    import dataclasses

    from nnapi_prof.costs.store import CostStore
    from nnapi_prof.costs.store.files import import_

    done = []
    with CostStore(costs) as store:
        for file in files:
            counts = import_(store, file)
            done.append({"file": str(file), **dataclasses.asdict(counts)})
            if not as_json():
                of = f"of {_count(counts.rows, 'row')} of {_count(counts.devices, 'device')}"
                click.echo(f"{file}: {counts.added} new {of}")
    if as_json():
        from nnapi_prof.documents.costs import of_import

        print_document(of_import(store.location, done))


@command.command(
    "merge",
    context_settings=HELP,
    examples=["nnapi-prof costs merge --costs postgresql://lab@server/costs costs.sqlite"],
)
@costs_option
@common_options
@click.argument("sources", metavar="TABLE...", nargs=-1, required=True)
def merge_command(costs: str | None, sources: tuple[str, ...]) -> None:
    """Add all measurements of other cost tables, each an SQLite file or a PostgreSQL URL.

    What the table has already is left as it is, so that the same command goes on where one stopped.
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
                of = f"of {_count(merged.rows, 'row')} of {_count(merged.devices, 'device')}"
                click.echo(f"{other.location}: {merged.added} new {of}")
                if merged.left_out:
                    say(f"note: {_count(merged.left_out, 'row')} cannot be and stayed behind")
    if as_json():
        from nnapi_prof.documents.costs import of_merge

        print_document(of_merge(store.location, done))


def _told_merging(tell: ProgressCallback, phase: str, done: int, total: int) -> None:
    from nnapi_prof.execution.profile.options import Progress

    tell(Progress(phase, done, total, ""))


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _unit(rows: list[Measurement]) -> str:
    kinds = {m.simulated for m in rows}
    return "ms, some simulated" if len(kinds) > 1 else unit_of(True in kinds)


def _status(m: Measurement) -> list[str]:
    """With doubts, without their explanations."""
    return [m.why_not] if not m.usable else ["ok", *(flag.partition(":")[0] for flag in m.flags)]


def _short(time: str) -> str:
    """To the minute."""
    return time[:16].replace("T", " ")
