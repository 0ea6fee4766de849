"""Compare two bundles, runs or cost tables, and fail a build where the new one is slower."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnapi_prof.api.plan import ModelPlan
from nnapi_prof.api.run import Result
from nnapi_prof.bundle.storage import check_bundle, read_bundle, read_file
from nnapi_prof.costs import existing
from nnapi_prof.costs.store import CostStore, find_one, listed, named
from nnapi_prof.costs.store.selection import Selection, instant
from nnapi_prof.device import device_name
from nnapi_prof.errors import CostError, SerializationError, UsageError, escape_untrusted
from nnapi_prof.execution.report import RunReport, choose, every
from nnapi_prof.reports import notebook
from nnapi_prof.reports.bundle_data import report_data, with_run
from nnapi_prof.reports.comparison import Compared, Side

if TYPE_CHECKING:
    import pandas as pd

MOST_BYTES = 1 << 28
_RUN_DOCUMENT = "nnapi-prof/run/"
_SQLITE = b"SQLite format 3\0"
_TABLES = (".sqlite", ".sqlite3", ".db")


class Comparison(Compared):
    """Comparison of a new side with a base; :func:`nnapi_prof.compare` makes one."""

    def frame(self) -> pd.DataFrame:
        """Returns one row for the plan as it ran whole and for each unit and region that both sides
        measured: ``name``, ``target`` (None for the plan), ``base_ms`` and ``new_ms`` (medians),
        ``ratio`` (new / base) with its interval ``low`` and ``high``, ``verdict``,
        ``simulated``."""
        import pandas as pd

        rows = [
            {
                "name": row.name,
                "target": row.target,
                "base_ms": None if row.base_ns is None else row.base_ns / 1e6,
                "new_ms": None if row.new_ns is None else row.new_ns / 1e6,
                "ratio": row.ratio,
                "low": row.low,
                "high": row.high,
                "verdict": row.verdict.value,
                "simulated": row.simulated,
            }
            for row in self.rows
        ]
        columns = "name target base_ms new_ms ratio low high verdict simulated".split()
        return pd.DataFrame(rows, columns=columns)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Writes the comparison as ``.html`` or ``.md``; returns its path. Raises UsageError where
        it cannot be written."""
        from nnapi_prof.reports.comparison_files import write

        return write(self, Path(path))

    def __repr__(self) -> str:
        return f"Comparison({self.base.name!r}, {self.new.name!r})"

    def _repr_html_(self) -> str:
        from nnapi_prof.reports.comparison_files import sentences, tables

        title = f"{self.base.name} against {self.new.name}"
        shown = [each for each in tables(self) if each.id in ("numbers", "placement")]
        return notebook.notes([title, *sentences(self)]) + "".join(
            notebook.table(each.title, each.heads, each.rows) for each in shown
        )


def compare(
    base: ModelPlan | Result | str | os.PathLike[str],
    new: ModelPlan | Result | str | os.PathLike[str],
    fail_if_slower: float | None = None,
    *,
    costs: str | os.PathLike[str] | None = None,
) -> Comparison:
    """Compares ``new`` with ``base``: two plans or results, two bundles with their last runs, two
    documents of ``nnapi-prof run --json``, or two cost tables.

    A suffix after ``#`` selects a run of a bundle (``net.nnprof#2026-01-31``, a device, or
    ``#DEVICE@DATE``), or the device of a table and the date up to which rows count
    (``costs.sqlite#Pixel 6@2026-01-31``). ``costs`` is the cost table that bundles were planned
    with, for the latencies of their units; without it, only the plans' own runs are compared.

    ``fail_if_slower`` is the slow-down that :meth:`Comparison.raise_for_slower` fails (0.05: 5 %).
    The plan, or a row of a table, fails where its median is slower by at least half of that, beyond
    noise: where noise leaves an interval of less than half the limit, an unchanged latency passes
    and a slow-down by the limit fails.

    Raises UsageError where the sides cannot be compared, CostError and SerializationError where one
    cannot be read.
    """
    table = None if costs is None else os.fspath(costs)
    one, two = (_side(side, table, fail_if_slower is not None) for side in (base, new))
    if _is_table(one) != _is_table(two):
        raise UsageError(
            f"{one.name} and {two.name} are not of one kind: two bundles, runs or cost tables"
        )
    if fail_if_slower is not None and not _is_table(one):
        _require_alike(one, two)
    compared = Comparison(one, two, fail_if_slower)
    if _is_table(one) and not compared.latencies.differences and not compared.latencies.same_row:
        raise UsageError(
            f"{one.name} and {two.name} have nothing in common",
            "name the device behind #, as in costs.sqlite#DEVICE, or profile the same model on it",
        )
    return compared


def _is_table(side: Side) -> bool:
    return side.data is None and not side.model


def _require_alike(one: Side, two: Side) -> None:
    """Raises UsageError where a limit would compare different devices or conditions."""
    for what, ours, theirs in (
        ("device", one.fingerprint, two.fingerprint),
        ("conditions", one.conditions, two.conditions),
    ):
        if ours != theirs:
            raise UsageError(
                f"{one.name} ran on {one.device} ({one.conditions or 'usual conditions'}),"
                f" {two.name} on {two.device} ({two.conditions or 'usual conditions'})",
                "run both on"
                f" one device under the same conditions, or the {what} would be compared",
            )


def _side(
    side: ModelPlan | Result | str | os.PathLike[str], costs: str | None, must_run: bool
) -> Side:
    if isinstance(side, ModelPlan | Result):
        named_by = side.planned if isinstance(side, Result) else side
        if must_run and named_by.costs is not None and named_by.costs.origin is not None:
            raise UsageError(
                f"the plan of {named_by.model.name} is estimated, and only what ran on a device is"
                " compared with a limit"
            )
        data = side.report_data() if costs is None else side.report_data(costs=costs)
        return Side.of(f"{named_by.model.name} on {device_name(side.device)}", data)
    spec = os.fspath(side)
    path, which = spec, ""
    if "#" in spec and not Path(spec).exists():
        path, _, which = spec.rpartition("#")
    head = _head(path)
    if "://" in path or head == _SQLITE or (not head and path.endswith(_TABLES)):
        return _of_table(spec, path, which)
    if Path(path).is_dir() or path.endswith(".nnprof"):
        return _of_bundle(spec, Path(path), which, costs, must_run)
    if head.lstrip()[:1] == b"{":
        return _of_document(spec, read_file(Path(path), MOST_BYTES).decode("utf-8", "replace"))
    what = "is not one of these" if Path(path).exists() else "does not exist"
    raise UsageError(
        f"{path} {what}", "name a bundle, a document of `nnapi-prof run --json` or a cost table"
    )


def _head(path: str) -> bytes:
    try:
        with Path(path).open("rb") if Path(path).is_file() else io.BytesIO() as file:
            return file.read(len(_SQLITE))
    except OSError:  # reading it later reports why
        return b""


def _of_bundle(name: str, path: Path, which: str, costs: str | None, must_run: bool) -> Side:
    check_bundle(path)
    read_bundle(path)  # raises where it is damaged
    runs = every(path)
    run = choose(runs, which) if which else (runs[-1] if runs else None)
    if run is None and must_run:
        raise UsageError(f"{path} was never run", f"`nnapi-prof run {path}` does it")
    try:
        data = report_data(path, existing(costs))
    except (CostError, UsageError) as error:
        if costs is not None or run is None:
            raise
        return replace(_of_run(name, run), notes=(f"latencies of units are left out: {error}",))
    return Side.of(name, data if run is None else with_run(data, run, path))


def _of_run(name: str, run: RunReport) -> Side:
    return Side(
        name=name,
        model=run.model,
        device=device_name(run.device),
        simulated=run.simulated,
        fingerprint=run.fingerprint,
        conditions=run.conditions,
        samples_ns=run.runs[0].total_ns,
        error=run.runs[0].error,
    )


def _of_document(name: str, text: str) -> Side:
    """Reads a document of ``nnapi-prof run --json``, or a bundle's file of its run."""
    try:
        data: Any = json.loads(text)
        if data.get("estimated") is True:
            raise UsageError(
                f"{name} is estimated, and only what ran on a device is compared",
                "give documents of `nnapi-prof run --json`",
            )
        if not str(data.get("schema", "")).startswith(_RUN_DOCUMENT):
            return _of_run(name, RunReport.from_json(text))
        plan = data["plans"][0]
        return Side(
            name=name,
            model=str(data["model"]),
            device=device_name(str(data["device"])),
            simulated=bool(data["simulated"]),
            fingerprint=str(data["fingerprint"]),
            conditions=str(data["conditions"]),
            samples_ns=tuple(_sample(ns) for ns in plan["total_ns"]),
            error=None if plan.get("error") is None else str(plan["error"]),
        )
    except (
        SerializationError, ValueError, KeyError, IndexError, TypeError, AttributeError,
        RecursionError,
    ) as error:  # fmt: skip
        raise SerializationError(
            f"{name} is not a document of `nnapi-prof run --json`"
            f" ({escape_untrusted(str(error), 200)}); write it anew"
        ) from error


def _sample(ns: object) -> int:
    if type(ns) is not int or not 0 <= ns < 10**15:
        raise ValueError(f"{ns!r} is not a latency in ns")
    return ns


def _of_table(name: str, path: str, which: str) -> Side:
    """Reads the latest measurements of one device, up to the date in ``which``, if any."""
    device, _, date = which.rpartition("@")
    until = None
    try:
        until = instant(date, end=True) if date else None
    except ValueError:
        device = which
    with CostStore(existing(path)) as store:
        devices = named(store)
        if not device and len(devices) != 1:
            there = listed(devices) or "none"
            raise UsageError(
                f"{path} has several devices or none: name one, {path}#DEVICE: {there}"
            )
        chosen = find_one(devices, device) if device else devices[0]
        rows = store.select(Selection((chosen.fingerprint,), until=until, newest=True))
    simulated = any(m.simulated for m in rows)
    return Side(name, "", chosen.name, simulated, chosen.fingerprint, measurements=tuple(rows))
