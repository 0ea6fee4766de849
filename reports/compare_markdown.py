"""A comparison as Markdown, which code hosts show and people paste into reviews."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nnapi_prof.costs.diff import CONFIDENCE
from nnapi_prof.costs.diff import Difference as LatencyDifference
from nnapi_prof.reports.compare_changes import THRESHOLD, by_target
from nnapi_prof.reports.compare_rows import Cell, headline_rows, latency_words
from nnapi_prof.reports.compare_summary import Compared
from nnapi_prof.reports.markdown import table, text
from nnapi_prof.reports.words import DASH, target_words, targets_words

MOST_ROWS = 40
"""Of a table; how many more there are is said."""


def lines(found: Compared) -> Iterator[str]:
    """The document, line by line."""
    names = [f"{text(side.name)} ({side.letter})" for side in found.sides]
    yield f"# {names[0]} against {' and '.join(names[1:])}"
    yield ""
    if found.simulated:
        of = ", ".join(side.letter for side in found.sides if side.simulated)
        yield (
            f"Latencies of {of} come from the description of a **simulated** phone, not from"
            " hardware. Outputs are computed for real."
        )
        yield ""
    yield "## What changed"
    yield ""
    yield from (f"- {text(sentence.text)}" for sentence in found.sentences)
    yield ""
    yield from _table(
        "In numbers",
        ["", *(side.letter for side in found.sides)],
        [[row.name, *map(_cell, row.cells)] for row in headline_rows(found)],
    )
    yield from _placements(found)
    yield from _latencies(found)
    yield from _refusals(found)
    yield from _table(
        "Conditions and versions that differ",
        ["", *(side.letter for side in found.sides)],
        [[row.name, *(v or DASH for v in row.values)] for row in found.conditions],
    )
    yield from _table(
        "Device facts that differ",
        ["", *(side.letter for side in found.sides)],
        [[row.name, *(v or DASH for v in row.values)] for row in found.descriptions],
    )


def _placements(found: Compared) -> Iterator[str]:
    rows = []
    for move in found.moves:
        cells = [f"{target_words(stay.target)}: {stay.cause}" for stay in move.stays]
        rows.append([f"{units_words(move.units[0])}: {move.label}", *cells])
    yield from _table(
        "Units that run elsewhere", ["units", *(side.letter for side in found.sides)], rows
    )
    for side in found.sides:
        only = found.only(side)
        rows = [[str(unit), side.data.graph.units[unit].label] for unit in only]
        yield from _table(f"Units only in {side.letter}", ["unit", "operation"], rows)


def _latencies(found: Compared) -> Iterator[str]:
    for side, compared in zip(found.others, found.latencies, strict=True):
        first = found.sides[0].letter
        heads = ["target", "compared", "slower", "faster", f"median, {side.letter} by {first}"]
        yield from _table(
            f"Latencies by target: {side.letter} against {first}",
            heads,
            [
                [target_words(each.target), str(each.compared), str(each.slower),
                 str(each.faster), f"{each.median_ratio:.3f} ×"]
                for each in by_target(compared)
            ],
        )  # fmt: skip
        rows = [
            [each.first.label, target_words(each.first.target.key), *change_cells(each)]
            for each in compared.changed
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
    known = each.low is not None and each.high is not None
    return [*sides, ratio, f"{each.low:.3f} to {each.high:.3f}" if known else DASH]


def _refusals(found: Compared) -> Iterator[str]:
    every = [t.key for side in found.sides for t in side.data.cost_model.targets]
    known = list(dict.fromkeys(every))
    rows = [
        [f"{each.unit}: {each.label}", targets_words(each.targets, known),
         *(reason or "not refused" for reason in each.reasons)]
        for each in found.refusals
    ]  # fmt: skip
    yield from _table(
        "Refusals that came or went",
        ["unit", "targets", *(side.letter for side in found.sides)],
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
