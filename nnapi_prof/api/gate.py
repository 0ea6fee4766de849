"""Whether something became slower: bundles, runs or cost tables, for a build to fail."""

from __future__ import annotations

import enum
import io
import json
import os
import statistics
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnapi_prof.bundle.storage import check_bundle, read_bundle, read_file
from nnapi_prof.costs import existing
from nnapi_prof.costs.diff import Difference, Verdict, ratio_interval, verdict_of
from nnapi_prof.costs.diff import compare as compare_measurements
from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.devices import find_one, measured
from nnapi_prof.costs.store.selection import Selection
from nnapi_prof.errors import SerializationError, SlowerError, UsageError, option, visible
from nnapi_prof.execution.report import RunReport, last
from nnapi_prof.reports.words import count

MOST_BYTES = 1 << 28
_RUN_DOCUMENT = "nnapi-prof/run/"


@dataclass(frozen=True, slots=True)
class GateRow:
    """One thing that was measured on both sides: a plan that ran whole, or a region of a table."""

    name: str
    base_ns: float | None
    """The median; None where it did not run."""
    new_ns: float | None
    verdict: Verdict
    ratio: float | None = None
    """New by base: above 1 it is slower."""
    low: float | None = None
    high: float | None = None
    """Of the ratio's interval, at :data:`nnapi_prof.costs.diff.CONFIDENCE`; of a table's rows so
    that all hold together."""

    @property
    def failed(self) -> bool:
        """It became slower, or does not run any more."""
        return self.verdict is Verdict.SLOWER or (
            self.verdict is Verdict.STATUS and self.new_ns is None
        )


@dataclass(frozen=True)
class Gate:
    """What :func:`compare_speed` found."""

    rows: tuple[GateRow, ...]
    """Those that fail first."""
    slower: float | None
    """The slow-down that fails: 0.05 is 5 %. None where none does."""
    simulated: bool
    notes: tuple[str, ...] = field(default=())

    @property
    def failed(self) -> tuple[GateRow, ...]:
        """The rows that fail; none where no limit was asked for."""
        return () if self.slower is None else tuple(row for row in self.rows if row.failed)

    def raise_for_slower(self) -> None:
        """Raises SlowerError where a row fails."""
        if not self.failed:
            return
        worst, more = self.failed[0], len(self.failed) - 1
        became = f"is {worst.ratio - 1:.1%} slower" if worst.ratio else "does not run any more"
        raise SlowerError(f"{worst.name} {became}" + (f", and {more} more fail" if more else ""))

    def junit(self) -> str:
        """The rows as test cases of a JUnit file."""
        suite = ET.Element(
            "testsuite",
            name="nnapi-prof compare",
            tests=str(len(self.rows)),
            failures=str(len(self.failed)),
            errors="0",
            skipped=str(sum(row.verdict is Verdict.UNSURE for row in self.rows)),
        )
        for row in self.rows:
            seconds = f"{(row.new_ns or 0.0) / 1e9:.9f}"
            case = ET.SubElement(
                suite, "testcase", name=_plain(row.name), classname="latency", time=seconds
            )
            if row in self.failed:
                failure = ET.SubElement(case, "failure", message=row_words(row))
                failure.text = row_words(row)
            elif row.verdict is Verdict.UNSURE:
                ET.SubElement(case, "skipped", message=row_words(row))
        root = ET.Element("testsuites")
        root.append(suite)
        ET.indent(root)
        return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def row_words(row: GateRow) -> str:
    """What became of a row, in words."""
    if row.ratio is None or row.low is None or row.high is None:
        return row.verdict.value
    return (
        f"{row.verdict.value}: {row.ratio - 1:+.1%}, 99 % interval {row.low - 1:+.1%} to"
        f" {row.high - 1:+.1%}"
    )


def compare_speed(
    base: str | os.PathLike[str],
    new: str | os.PathLike[str],
    slower: float | None = None,
    device: str | None = None,
) -> Gate:
    """Compares the speed of ``new`` with that of ``base``: two bundles by their last runs, two
    documents of ``nnapi-prof run --json``, or two cost tables.

    ``slower`` is the slow-down that fails (0.05: 5 %). A row fails where the median is slower by at
    least half of that, beyond noise: so a change of nothing passes, and one of ``slower`` fails,
    where noise leaves the interval less than half of it.
    Of tables, ``device`` names one as :func:`nnapi_prof.read_costs` does.

    Raises UsageError where the sides are not alike, CostError and SerializationError where one
    cannot be read.
    """
    one, two = (_read(str(side), device) for side in (base, new))
    if isinstance(one, RunSide) and isinstance(two, RunSide):
        return compare_sides(one, two, slower)
    if isinstance(one, tuple) and isinstance(two, tuple):
        return _of_tables(one, two, slower)
    raise UsageError(f"{base} and {new} are not of one kind: two bundles, runs or cost tables")


@dataclass(frozen=True)
class RunSide:
    """A run, as far as a comparison of speed asks."""

    name: str
    model: str
    device: str
    fingerprint: str
    conditions: str
    simulated: bool
    plans: tuple[tuple[str, tuple[int, ...]], ...]
    """Name and samples in ns of each, the plan first."""


class _Kind(enum.Enum):
    """What a side is."""

    BUNDLE = (".nnprof",)
    RUN = (".json",)
    TABLE = (".sqlite", ".sqlite3", ".db")


_SQLITE = b"SQLite format 3\0"


def _kind(side: str) -> _Kind | None:
    """By what it holds; where that tells nothing, by its ending. None where neither does."""
    path = Path(side)
    if "://" in side:
        return _Kind.TABLE
    if path.is_dir():
        return _Kind.BUNDLE
    try:
        with path.open("rb") if path.is_file() else io.BytesIO() as file:
            head = file.read(len(_SQLITE))
    except OSError:  # whoever reads it says why
        head = b""
    if head == _SQLITE:
        return _Kind.TABLE
    if head.lstrip()[:1] == b"{":
        return _Kind.RUN
    return next((kind for kind in _Kind if path.suffix in kind.value), None)


def _read(side: str, device: str | None) -> RunSide | tuple[Measurement, ...]:
    path = Path(side)
    match _kind(side):
        case _Kind.BUNDLE:
            check_bundle(path)
            run = last(path)
            if run is None:
                read_bundle(path)  # says so where it is damaged
                raise UsageError(f"{side} was never run: `nnapi-prof run {side}` does it")
            return _side_of(side, run)
        case _Kind.RUN:
            if not path.is_file():
                raise UsageError(f"run {side} does not exist: `nnapi-prof run --json` writes one")
            return _of_document(side, read_file(path, MOST_BYTES).decode("utf-8", "replace"))
        case None:
            what = "is none of these" if path.exists() else "does not exist"
            raise UsageError(
                f"{side} {what}: name a bundle, a document of `nnapi-prof run --json` or a cost"
                " table"
            )
    with CostStore(existing(side)) as store:
        chosen = find_one(measured(store), device or "*")
        return tuple(store.select(Selection((chosen.fingerprint,), newest=True)))


def _side_of(name: str, run: RunReport) -> RunSide:
    return RunSide(
        name=name,
        model=run.model,
        device=run.device,
        fingerprint=run.fingerprint,
        conditions=run.conditions,
        simulated=run.simulated,
        plans=tuple((each.plan.name, each.total_ns) for each in run.runs),
    )


def _of_document(name: str, text: str) -> RunSide:
    """A document of ``nnapi-prof run --json``, or the file that a bundle keeps of its run."""
    try:
        data: Any = json.loads(text)
        if not str(data.get("schema", "")).startswith(_RUN_DOCUMENT):
            return _side_of(name, RunReport.from_json(text))
        plans = tuple(
            (str(row["plan"]["name"]), tuple(_sample(ns) for ns in row["total_ns"]))
            for row in data["plans"]
        )
        if not plans:
            raise ValueError("it has no plans")
        return RunSide(
            name=name,
            model=str(data["model"]),
            device=str(data["device"]),
            fingerprint=str(data["fingerprint"]),
            conditions=str(data["conditions"]),
            simulated=bool(data["simulated"]),
            plans=plans,
        )
    except (
        SerializationError, ValueError, KeyError, TypeError, AttributeError, RecursionError,
    ) as error:  # fmt: skip
        raise SerializationError(
            f"{name} is not a document of `nnapi-prof run --json` ({visible(str(error), 200)});"
            " write it anew"
        ) from error


def _sample(ns: object) -> int:
    if type(ns) is not int or not 0 <= ns < 10**15:
        raise ValueError(f"{ns!r} is not a latency in ns")
    return ns


def compare_sides(
    one: RunSide,
    two: RunSide,
    slower: float | None = None,
) -> Gate:
    """:func:`compare_speed` of two runs. Raises UsageError where they are not alike."""
    for what, ours, theirs in (
        ("device", one.fingerprint, two.fingerprint),
        ("conditions", one.conditions, two.conditions),
    ):
        if ours != theirs:
            raise UsageError(
                f"{one.name} ran on {one.device} ({one.conditions or 'usual conditions'}),"
                f" {two.name} on {two.device} ({two.conditions or 'usual conditions'}): run both on"
                f" one device under the same conditions, or the {what} would be compared"
            )
    notes = []
    if one.model != two.model:
        notes.append(f"the models are called {one.model} and {two.model}")
    row = _run_row(one.plans[0], two.plans[0], two.model, _threshold(slower))
    return Gate((row,), slower, one.simulated or two.simulated, tuple(notes))


def _run_row(
    base: tuple[str, Sequence[int]],
    new: tuple[str, Sequence[int]],
    model: str,
    threshold: float,
) -> GateRow:
    name = f"{model}: the plan"
    first, second = (float(statistics.median(ns)) if ns else None for _, ns in (base, new))
    if not first or not second:
        return GateRow(name, first, second, Verdict.STATUS)
    ratio, interval = second / first, ratio_interval(base[1], new[1])
    if interval is None:
        return GateRow(name, first, second, Verdict.UNSURE, ratio)
    return GateRow(name, first, second, verdict_of(ratio, interval, threshold), ratio, *interval)


def _threshold(slower: float | None) -> float:
    """What a median differs by at least, where it is called slower."""
    return 0.0 if slower is None else slower / 2


def _of_tables(
    one: Sequence[Measurement],
    two: Sequence[Measurement],
    slower: float | None,
) -> Gate:
    comparison = compare_measurements(one, two, _threshold(slower), True)
    if not comparison.differences:
        raise UsageError(
            "the tables have nothing in common that was measured again: name the device with"
            f" {option('device')}, or profile the same model on it"
        )
    rows = sorted(
        (_table_row(each) for each in comparison.differences),
        key=lambda row: (not row.failed, -(row.ratio or 0.0)),
    )
    notes = []
    for n, words in ((comparison.only_first, "the base"), (comparison.only_second, "the new one")):
        if n:
            notes.append(f"{count(n, 'measurement')} only in {words}")
    simulated = any(m.simulated for m in (*one, *two))
    return Gate(tuple(rows), slower, simulated, tuple(notes))


def _table_row(each: Difference) -> GateRow:
    base, new = (m.summary.median_ns if m.usable else None for m in (each.first, each.second))
    name = f"{each.first.label} on {each.first.target.key}"
    return GateRow(name, base, new, each.verdict, each.ratio, each.low, each.high)


def _plain(text: str) -> str:
    """As XML may have it."""
    return "".join(c for c in text if c.isprintable())
