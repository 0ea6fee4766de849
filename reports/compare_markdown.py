"""A comparison as Markdown, which code hosts show and people paste into reviews.

Its headline has a row for each quantity and a cell for each side; the page shows the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from nnapi_prof.costs.diff import CONFIDENCE
from nnapi_prof.costs.diff import Difference as LatencyDifference
from nnapi_prof.device.protocol.description import description_parts
from nnapi_prof.graph.plan import Rule
from nnapi_prof.reports.compare_changes import THRESHOLD, by_target
from nnapi_prof.reports.compare_sides import Latency, Ratio, Rival, Side
from nnapi_prof.reports.compare_summary import Compared, compared, interval_words
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.frames import NS_PER_MS
from nnapi_prof.reports.markdown import table, text
from nnapi_prof.reports.words import (
    DASH,
    NOISE,
    count,
    format_change,
    format_ms,
    plan_words,
    target_words,
    targets_words,
)


@dataclass(frozen=True, slots=True)
class Cell:
    """``soft`` explains ``text``; ``verdict`` is ``good``, ``bad`` or empty."""

    text: str
    soft: str = ""
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    cells: tuple[Cell, ...]

    @property
    def differs(self) -> bool:
        return len(set(self.cells)) > 1


def headline_rows(comparison: Compared) -> tuple[Row, ...]:
    """What is looked at first. A row of which no side knows anything is left out."""
    others = (side.letter for side in comparison.others)
    against = dict(zip(others, comparison.ratios, strict=True))
    first = comparison.sides[0]

    def ratio(side: Side) -> Cell:
        return Cell("1", "the reference") if side is first else _ratio(against[side.letter])

    cell_of: dict[str, Callable[[Side], Cell]] = {
        "model": lambda side: Cell(side.data.model, count(len(side.data.graph.units), "unit")),
        "device": _device,
        "latency, measured": _measured,
        "latency, predicted": lambda side: Cell(_ms(side.predicted)),
        "prediction error": lambda side: Cell(format_change(side.error)),
        f"time taken, by {first.letter}'s": ratio,
        "against the fastest baseline": lambda side: _rival(side.fastest),
        "against the best single target": lambda side: _rival(side.against(Rule.BEST_SINGLE)),
        "against the CPU alone": lambda side: _rival(side.against(Rule.ALL_CPU)),
        "segments": _segments,
        "outputs against eager PyTorch": _outputs,
        "first run, cold": lambda side: Cell(_ms(Latency(side.first_ns, side.measured.simulated))),
        "time to compile": lambda side: Cell(
            _ms(Latency(side.compile_ns, side.measured.simulated))
        ),
    }
    rows = (Row(name, tuple(map(make, comparison.sides))) for name, make in cell_of.items())
    return tuple(row for row in rows if any(cell.text != DASH for cell in row.cells))


def latency_words(ns: float | None, label: str) -> str:
    """``12.3 ms, simulated``; a dash where unknown."""
    if ns is None:
        return DASH
    return f"{format_ms(ns / NS_PER_MS)} ms{', ' if label else ''}{label}"


def _ms(latency: Latency) -> str:
    return latency_words(latency.ns, latency.label)


def _device(side: Side) -> Cell:
    return Cell(*description_parts(side.data.device_name))


def _measured(side: Side) -> Cell:
    latency = side.measured
    ran = side.data.run_of_plan
    if ran is None:
        return Cell("not run")
    if ran.error is not None:
        return Cell("failed", ran.error, "bad")
    low, high = ((x or 0.0) / NS_PER_MS for x in (latency.p10_ns, latency.p90_ns))
    runs = count(latency.n_samples, "run")
    return Cell(
        _ms(latency), f"10th to 90th percentile {format_ms(low)} to {format_ms(high)}, {runs}"
    )


def _ratio(ratio: Ratio | None) -> Cell:
    if ratio is None:
        return Cell(DASH)
    how = "measured" if ratio.measured else "predicted"
    parts = [how, interval_words(ratio.low, ratio.high), ratio.verdict]
    verdict = {"faster": "good", "slower": "bad"}.get(ratio.verdict, "")
    return Cell(f"{ratio.value:.3f} ×", ", ".join(filter(None, parts)), verdict)


def _rival(rival: Rival | None) -> Cell:
    if rival is None:
        return Cell(DASH)
    how = "measured" if rival.measured else "predicted"
    soft = f"{plan_words(rival.plan)}, {how}"
    if abs(rival.speedup - 1) < NOISE:
        return Cell("as fast", soft)
    if rival.speedup > 1:
        return Cell(f"{rival.speedup:.2f} × as fast", soft)
    return Cell(f"{1 / rival.speedup:.2f} × slower", soft, "bad")


def _segments(side: Side) -> Cell:
    segments = side.data.plan.segments
    targets = len({segment.target for segment in segments})
    return Cell(str(len(segments)), f"on {count(targets, 'target')}")


def _outputs(side: Side) -> Cell:
    worst = side.worst_difference
    soft = "" if worst is None else f"largest relative difference {worst:.1e}"
    return Cell(side.outputs, soft, {"agree": "good", "differ": "bad"}.get(side.outputs, ""))


# ---- the document --------------------------------------------------------------------------------


MOST_ROWS = 40
"""Of a table; how many more there are is said."""


def render(sides: Sequence[tuple[str, ReportData]]) -> str:
    """The comparison as Markdown; each side has a name. Raises UsageError as
    :func:`~nnapi_prof.reports.compare_summary.compared` does."""
    return "\n".join(_lines(compared(sides))).rstrip("\n") + "\n"


def _lines(comparison: Compared) -> Iterator[str]:
    """The document, line by line."""
    names = [f"{text(side.name)} ({side.letter})" for side in comparison.sides]
    yield f"# {names[0]} against {' and '.join(names[1:])}"
    yield ""
    if comparison.simulated:
        of = ", ".join(side.letter for side in comparison.sides if side.simulated)
        yield (
            f"Latencies of {of} come from the description of a **simulated** phone, not from"
            " hardware. Outputs are computed for real."
        )
        yield ""
    yield "## What changed"
    yield ""
    yield from (f"- {text(sentence.text)}" for sentence in comparison.sentences)
    yield ""
    yield from _table(
        "In numbers",
        ["", *(side.letter for side in comparison.sides)],
        [[row.name, *map(_cell, row.cells)] for row in headline_rows(comparison)],
    )
    yield from _placements(comparison)
    yield from _latencies(comparison)
    yield from _refusals(comparison)
    yield from _table(
        "Conditions and versions that differ",
        ["", *(side.letter for side in comparison.sides)],
        [[row.name, *(v or DASH for v in row.values)] for row in comparison.conditions],
    )
    yield from _table(
        "Device facts that differ",
        ["", *(side.letter for side in comparison.sides)],
        [[row.name, *(v or DASH for v in row.values)] for row in comparison.descriptions],
    )


def _placements(comparison: Compared) -> Iterator[str]:
    rows = []
    for move in comparison.moves:
        cells = [f"{target_words(stay.target)}: {stay.cause}" for stay in move.stays]
        rows.append([f"{units_words(move.units[0])}: {move.label}", *cells])
    yield from _table(
        "Units that run elsewhere", ["units", *(side.letter for side in comparison.sides)], rows
    )
    for side in comparison.sides:
        only = comparison.only(side)
        rows = [[str(unit), side.data.graph.units[unit].label] for unit in only]
        yield from _table(f"Units only in {side.letter}", ["unit", "operation"], rows)


def _latencies(comparison: Compared) -> Iterator[str]:
    for side, latencies in zip(comparison.others, comparison.latencies, strict=True):
        first = comparison.sides[0].letter
        heads = ["target", "compared", "slower", "faster", f"median, {side.letter} by {first}"]
        yield from _table(
            f"Latencies by target: {side.letter} against {first}",
            heads,
            [
                [target_words(each.target), str(each.compared), str(each.slower),
                 str(each.faster), f"{each.median_ratio:.3f} ×"]
                for each in by_target(latencies)
            ],
        )  # fmt: skip
        rows = [
            [each.first.label, target_words(each.first.target.key), *change_cells(each)]
            for each in latencies.changed
        ]
        heads = ["unit or region", "target", first, side.letter, f"{side.letter} by {first}"]
        yield from _table(
            f"Latencies that changed by {100 * THRESHOLD:.0f} % or more, {side.letter} by {first}",
            [*heads, f"{100 * CONFIDENCE:.0f} % interval"],
            rows,
        )


def change_cells(each: LatencyDifference) -> list[str]:
    """Both latencies, the ratio and its interval."""
    sides = [
        latency_words(m.summary.median_ns, "simulated" if m.simulated else "")
        if m.usable
        else m.status.value
        for m in (each.first, each.second)
    ]
    ratio = DASH if each.ratio is None else f"{each.ratio:.3f} ×"
    has_interval = each.low is not None and each.high is not None
    return [*sides, ratio, f"{each.low:.3f} to {each.high:.3f}" if has_interval else DASH]


def _refusals(comparison: Compared) -> Iterator[str]:
    every = [t.key for side in comparison.sides for t in side.data.cost_model.targets]
    reasons = list(dict.fromkeys(every))
    rows = [
        [f"{each.unit}: {each.label}", targets_words(each.targets, reasons),
         *(reason or "not refused" for reason in each.reasons)]
        for each in comparison.refusals
    ]  # fmt: skip
    yield from _table(
        "Refusals that came or went",
        ["unit", "targets", *(side.letter for side in comparison.sides)],
        rows,
    )


def units_words(units: Sequence[int]) -> str:
    """``3``, ``3 to 17``, or ``3, 5, 9``."""
    if len(units) > 2 and list(units) == list(range(units[0], units[-1] + 1)):
        return f"{units[0]} to {units[-1]}"
    return ", ".join(map(str, units))


def _cell(cell: Cell) -> str:
    return f"{cell.text} ({cell.soft})" if cell.soft else cell.text


def _table(heading: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A section with one table; nothing where it has no row."""
    if not rows:
        return
    yield from (f"## {text(heading)}", "")
    yield from table(heads, rows[:MOST_ROWS])
    if len(rows) > MOST_ROWS:
        yield f"{len(rows) - MOST_ROWS} more are left out here; the HTML and JSON forms have them."
        yield ""
