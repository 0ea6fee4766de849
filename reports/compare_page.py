"""What the page of a comparison shows: figures with their words, and the tables' rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from matplotlib.figure import Figure

from nnapi_prof.costs.diff import CONFIDENCE, Comparison
from nnapi_prof.reports import compare_figures as figures
from nnapi_prof.reports.compare_changes import THRESHOLD, by_target
from nnapi_prof.reports.compare_markdown import change_cells, units_words
from nnapi_prof.reports.compare_rows import headline_rows
from nnapi_prof.reports.compare_sides import Side
from nnapi_prof.reports.compare_summary import Compared
from nnapi_prof.reports.drawings import Drawn
from nnapi_prof.reports.frames import all_targets
from nnapi_prof.reports.style import NARROW, WIDE, colours
from nnapi_prof.reports.svg import to_svg
from nnapi_prof.reports.words import format_ms, target_words, targets_words


def context(found: Compared) -> dict[str, Any]:
    """The variables of ``compare.html``."""
    every = [t for side in found.sides for t in all_targets(side.data.cost_model)]
    planned = [s.target for side in found.sides for s in side.data.plan.segments]
    palette = colours([*every, *planned])
    known = list(dict.fromkeys(target.key for target in every))
    simulated = [side.letter for side in found.sides if side.simulated]
    return {
        "found": found,
        "mixed": ", ".join(simulated) if len(simulated) < len(found.sides) else None,
        "sides": found.sides,
        "side_colour": figures.SIDE_COLOURS,
        "rows": headline_rows(found),
        "latencies": [
            {
                "side": side,
                "compared": compared,
                "by_target": by_target(compared),
                "rows": [(each, change_cells(each)) for each in compared.changed],
            }
            for side, compared in zip(found.others, found.latencies, strict=True)
        ],
        "refused": [(each, targets_words(each.targets, known)) for each in found.refusals],
        "only": [(side, found.only(side)) for side in found.sides if found.only(side)],
        "notes": [(side, side.data.all_notes) for side in found.sides if side.data.all_notes],
        "colour": palette,
        "figure": dict(_drawn(found, palette)),
        "threshold": f"{100 * THRESHOLD:.0f} %",
        "confidence": f"{100 * CONFIDENCE:.0f} %",
        "units_words": units_words,
    }


def _drawn(found: Compared, palette: dict[str, str]) -> Iterator[tuple[str, Drawn]]:
    """Name -> figure; one with nothing to show is absent."""
    sides = found.sides
    yield _draw(
        "bars",
        "End-to-end latency of each side",
        "Horizontal bars in groups: the plan, the best single target, all on the CPU; in each a bar"
        " for every side. " + " ".join(_side_said(side) for side in sides),
        lambda width: figures.latency_bars(sides, width),
    )
    moved = {at for move in found.moves for at in move.columns}
    yield _draw(
        "strips",
        "Where each plan runs each unit",
        f"A strip for each side over {len(found.columns)} units in order, coloured by accelerator."
        f" {len(moved)} units do not run on the same target everywhere. "
        + " ".join(_strip_said(side) for side in sides),
        lambda width: figures.placement_strips(sides, found.columns, palette, moved, width),
    )
    for side, compared in zip(found.others, found.latencies, strict=True):
        rows = by_target(compared)
        if rows:
            yield _draw(
                f"ratios-{side.letter}",
                f"Latencies of units and regions, {side.letter} by {sides[0].letter}",
                "Dots in a row for each target, filled where the latency changed beyond noise."
                " Median ratio: "
                + "; ".join(f"{target_words(r.target)} {r.median_ratio:.3f}" for r in rows)
                + ". The tables below have every number.",
                _dots(compared, palette, sides[0], side),
            )


def _dots(
    compared: Comparison, palette: Mapping[str, str], first: Side, other: Side
) -> Callable[[float], Figure]:
    return lambda width: figures.ratio_dots(compared, palette, first, other, width)


def _draw(name: str, title: str, text: str, figure: Callable[[float], Figure]) -> tuple[str, Drawn]:
    wide, narrow = (
        to_svg(figure(width), f"{name}-{size}", title, text)
        for size, width in (("wide", WIDE), ("narrow", NARROW))
    )
    return name, Drawn(wide, narrow)


def _side_said(side: Side) -> str:
    how = "measured" if side.measured.ns else "predicted"
    latency = side.measured if side.measured.ns else side.predicted
    words = f", {latency.label}" if latency.label else ""
    known = latency.ns / 1e6 if latency.ns is not None else None
    return f"{side.letter}: {format_ms(known)} ms {how}{words}."


def _strip_said(side: Side) -> str:
    parts = [
        f"{units_words(s.units)} on {target_words(s.target.key)}" for s in side.data.plan.segments
    ]
    rest = len(parts) - 8
    more = f" and {rest} more segments" if rest > 0 else ""
    return f"{side.letter}: units {'; '.join(parts[:8])}{more}."
