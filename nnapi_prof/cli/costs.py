"""``nnapi-prof costs``: Look into the cost table: list, show, merge, prune."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from nnapi_prof.cli import options as opt
from nnapi_prof.cli.command import HELP, Group, define, option_group
from nnapi_prof.cli.output import (
    as_json,
    is_wide,
    ms,
    plain,
    print_document,
    say,
    stdout,
    unit_of,
    writing,
)
from nnapi_prof.cli.progress import listening
from nnapi_prof.costs import existing
from nnapi_prof.reports.words import count

if TYPE_CHECKING:
    from nnapi_prof.api import ProgressCallback
    from nnapi_prof.costs.measurement import Measurement
    from nnapi_prof.costs.store import CostStore, NamedDevice, Pruned
    from nnapi_prof.costs.store.selection import Selection


_SORTS = ("time", "median", "spread", "label", "target")
_ROWS_SHOWN = 40
_MANY_ROWS = 100_000
"""Number of rows above which a table's matching rows are not counted beyond those shown."""


# Selection of rows of a cost table by a command's options.

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
"""Options for the arguments of :func:`selection_of`."""


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
    """Returns the selection of the newest matching rows, and the named devices (all without)."""
    from nnapi_prof.costs.measurement import FAILURES, Kind, Status
    from nnapi_prof.costs.store import find, named
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
    """Returns a line like ``412 of 1,203 rows deleted, of 2 devices; 1 device is forgotten``."""
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
    from nnapi_prof.execution.profile import Progress

    tell(Progress(phase, done, total, ""))


@click.group("costs", cls=Group, context_settings=HELP)
def command() -> None:
    """Inspect, merge and clean the cost table."""


for each in (prune, merge_command):
    command.add_command(each)


@define("list", of=command, examples=["nnapi-prof costs list"])
@opt.costs
def list_(costs: str | None) -> None:
    """List the devices in the cost table with their measurements.

    --device of the other commands takes the first column, a prefix of it, or the name.
    """
    from nnapi_prof.costs.store import CostStore, measured

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


@define(
    "show",
    of=command,
    examples=[
        "nnapi-prof costs show --op 'conv2d*' --sort median",
        "nnapi-prof costs show --model model.pt --json > rows.json",
        "nnapi-prof costs show --device 'Pixel 6' --format parquet -o costs.parquet",
    ],
)
@opt.costs
@filter_options
@click.option(
    "--sort",
    type=click.Choice(_SORTS),
    default="time",
    show_default=True,
    help="Order of the rows; latencies and spreads start with the largest.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help=f"Rows to show at most, 0 for all. Default: {_ROWS_SHOWN}, with --json all.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "parquet"]),
    default="table",
    show_default=True,
    help="csv and parquet contain every matching row, including older ones, in order of"
    " arrival, with raw samples.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File for --format csv or parquet. Default: standard output.",
)
def show(
    costs: str | None,
    sort: str,
    limit: int | None,
    form: Literal["table", "csv", "parquet"],
    output: Path | None,
    **filters: Any,
) -> None:
    """Show measurements: the newest matching one of each region, target and conditions."""
    from nnapi_prof.costs.store import CostStore
    from nnapi_prof.errors import UsageError

    if form == "table" and output is not None:
        raise UsageError("--output is for --format csv or parquet", "add that")
    if form != "table" and (limit is not None or as_json()):
        raise UsageError(f"--format {form} has every row", "leave --limit and --json out")
    with CostStore(existing(costs)) as store:
        selection, devices = selection_of(store, **filters)
        if form != "table":
            _export(store, selection.with_(newest=False), output, form)
            return
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


def _export(
    store: CostStore, selection: Selection, output: Path | None, form: Literal["csv", "parquet"]
) -> None:
    from nnapi_prof.costs.store.files import encode, frame
    from nnapi_prof.errors import UsageError

    if output is None and form == "parquet" and sys.stdout.isatty():
        raise UsageError("a terminal cannot show parquet", "name a file with --output")
    table = frame(store, selection)
    if output is None:
        sys.stdout.buffer.write(encode(table, form))
        return
    with writing(output):
        output.write_bytes(encode(table, form))
    say(f"{output}: {count(len(table), 'row')}")


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
    """Prints rows as a table: conditions only where they are not all the defaults, the device only
    where the matching rows are of ``several``; a narrow terminal lacks kind, p95, runs and date."""
    console = stdout()
    usual = not any(m.conditions.options for m in rows)
    wide = is_wide(console)
    words = ["label", *(["kind"] if wide else []), "target", *([] if usual else ["conditions"])]
    times = [f"median ({_unit(rows)})", *(["p95"] if wide else []), "spread"]
    times += ["runs"] if wide else []
    last = ["status", *(["measured"] if wide else []), *(["device"] if several else [])]
    table = plain(words, times, *last)
    for m in rows:
        summary = m.summary if m.usable else None
        cells = [m.label, *([m.kind.value] if wide else []), m.target.key]
        cells += [] if usual else [m.conditions.options or "–"]
        if summary is None:
            cells += ["–"] * len(times)
        else:
            cells += [ms(summary.median_ns), *([ms(summary.p95_ns)] if wide else [])]
            cells.append(f"{summary.relative_spread:.1%}")
            cells += [str(summary.n)] if wide else []
        cells.append("; ".join(_status(m)))
        cells += [_short(m.measured_at)] if wide else []
        table.add_row(*cells, *([names.get(m.fingerprint, m.fingerprint)] if several else []))
    console.print(table)


def _unit(rows: list[Measurement]) -> str:
    kinds = {m.simulated for m in rows}
    return "ms, some simulated" if len(kinds) > 1 else unit_of(True in kinds)


def _status(m: Measurement) -> list[str]:
    """Returns the status with the names of doubts, without their explanations."""
    tried = [f"tried {m.attempts} times"] if m.attempts and m.attempts > 1 else []
    return (
        [m.why_not, *tried]
        if not m.usable
        else ["ok", *(flag.partition(":")[0] for flag in m.flags)]
    )


def _short(time: str) -> str:
    """Returns a time without seconds."""
    return time[:16].replace("T", " ")
