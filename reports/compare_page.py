"""The page of a comparison: its figures with their words, and the tables' rows.

Figures are latencies in groups, placements as strips, and changes as ratios.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from nnapi_prof.costs.diff import CONFIDENCE, Comparison
from nnapi_prof.graph.plan import Rule
from nnapi_prof.reports.compare_changes import THRESHOLD, by_target
from nnapi_prof.reports.compare_markdown import change_cells, headline_rows, units_words
from nnapi_prof.reports.compare_sides import Column, Side
from nnapi_prof.reports.compare_summary import Compared, compared
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.drawings import ToDraw, draw
from nnapi_prof.reports.frames import NS_PER_MS, all_targets
from nnapi_prof.reports.html import template
from nnapi_prof.reports.style import (
    FAINT,
    INK,
    NARROW,
    ON_COLOUR,
    PAGE,
    STYLE,
    WIDE,
    colours,
    new_figure,
    title,
)
from nnapi_prof.reports.words import format_ms, place_words, target_words, targets_words

SIDE_COLOURS = ("#7d8590", "#d1495b", "#6079c9", "#8a8f00", "#a0704a", "#b06ab3")
"""Of A, B and so on; none of a target's colours, and seen on white and on black."""
_SHARE_OF_LETTER = 0.1
"""Inches of a letter in a strip."""
_PREDICTED: dict[str, Any] = {"alpha": 0.45, "hatch": "///", "edgecolor": PAGE}
_GROUPS = {
    None: "the plan",
    Rule.BEST_SINGLE: "best single\ntarget",
    Rule.ALL_CPU: "CPU alone",
}
"""A baseline's rule, None for the plan itself -> how a figure calls it."""


@mpl.rc_context(STYLE)
def latency_bars(sides: Sequence[Side], width: float = WIDE) -> Figure:
    """The plan and what it is judged by, a bar for each side; hatched where it was not run."""
    simulated = all(side.simulated for side in sides)
    mixed = not simulated and any(side.simulated for side in sides)
    bars = list(_bars(sides))
    step = len(sides) + 0.8
    figure, axes = new_figure(min(width, 7.6), 1.1 + 0.27 * step * len(_GROUPS))
    end = max((ms for *_, ms, _ in bars), default=1.0) or 1.0
    for group, place, ms, measured in bars:
        y = group * step + place
        look = {} if measured else _PREDICTED
        axes.barh(y, ms, height=0.86, color=SIDE_COLOURS[place], **look)
        mark = " simulated" if mixed and sides[place].simulated else ""
        text = f"{sides[place].letter}  {format_ms(ms)}{'' if measured else ' predicted'}{mark}"
        axes.text(ms + 0.01 * end, y, text, va="center", size=8, color=INK)
    middle = (len(sides) - 1) / 2
    axes.set_yticks(
        [group * step + middle for group in range(len(_GROUPS))], list(_GROUPS.values())
    )
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(_GROUPS) * step - 1, -0.8)
    room = 0.3 + 0.4 * any(not measured for *_, measured in bars) + 0.4 * mixed
    axes.set_xlim(0, (1 + room * (NARROW / width if width > NARROW else 1)) * end)
    axes.set_xlabel(title("ms, median (hatched: predicted)", simulated), color=INK)
    axes.set_title(title("End to end", simulated), color=INK)
    return figure


def _bars(sides: Sequence[Side]) -> Iterator[tuple[int, int, float, bool]]:
    """Group, place of the side, ms, and whether it was measured."""
    for (group, rule), (place, side) in itertools.product(enumerate(_GROUPS), enumerate(sides)):
        latency, measured = _latency(side, rule)
        if latency is not None:
            yield group, place, latency / NS_PER_MS, measured


def _latency(side: Side, rule: Rule | None) -> tuple[float | None, bool]:
    """Measured where the side's own plan was, so that bars of one side can be compared."""
    own = side.measured.ns or side.predicted.ns
    if rule is None:
        return own, side.measured.ns is not None
    rival = side.against(rule)
    if rival is None:
        return None, False
    base = side.measured.ns if rival.measured else side.data.plan.predicted_ns
    return (base or 0.0) * rival.speedup, rival.measured


@mpl.rc_context(STYLE)
def placement_strips(
    sides: Sequence[Side],
    columns: Sequence[Column],
    palette: Mapping[str, str],
    moved: set[int],
    width: float = WIDE,
) -> Figure:
    """A row for each side: its units in order, coloured by accelerator; a mark where they differ.

    ``columns`` are the matched units of all sides, ``moved`` the places of those that not every
    side runs on the same target. White lines end segments.
    """
    figure, axes = new_figure(width, 1.6 + 0.44 * (len(sides) + 0.5))
    used: dict[str, str] = {}
    for row, side in enumerate(sides):
        for first, length, segment in _stretches(side, row, columns):
            target = side.data.plan.segments[segment].target
            used.setdefault(place_words(target.key), palette[target.key])
            axes.barh(
                row, length, left=first, height=0.78, color=palette[target.key], edgecolor=PAGE,
                linewidth=0.7, align="center",
            )  # fmt: skip
            name = target_words(target.key)
            if length > _SHARE_OF_LETTER / width * len(name) * len(columns):
                middle = first + length / 2
                axes.text(middle, row, name, ha="center", va="center", color=ON_COLOUR, size=7.5)
    below = len(sides) - 0.42
    for first, length in _runs(moved):
        axes.barh(below, length, left=first, height=0.16, color=INK, align="edge")
    rows = {side.letter: float(row) for row, side in enumerate(sides)}
    rows |= {"differs": below + 0.08} if moved else {}
    axes.set_yticks(list(rows.values()), list(rows))
    axes.set_ylim(below + (0.3 if moved else 0.0), -0.55)
    axes.set_xlim(0, max(len(columns), 1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    gaps = any(not column.everywhere for column in columns)
    axes.set_xlabel(f"units in order{' (gap: has no such unit)' if gaps else ''}", color=INK)
    axes.set_title("Where each plan runs each unit", color=INK)
    handles = [Patch(color=colour, label=name) for name, colour in used.items()]
    legend = figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=6 if width > NARROW else 3,
        frameon=False,
        fontsize=8,
    )
    for text in legend.get_texts():
        text.set_color(INK)
    return figure


def _stretches(side: Side, row: int, columns: Sequence[Column]) -> Iterator[tuple[int, int, int]]:
    """First column, length and segment of what stands side by side in one segment."""
    segments = side.data.plan.segments
    of = {unit: number for number, segment in enumerate(segments) for unit in segment.units}
    numbers = [None if (u := column.units[row]) is None else of.get(u) for column in columns]
    at = 0
    for segment, same in itertools.groupby(numbers):
        length = len(list(same))
        if segment is not None:
            yield at, length, segment
        at += length


def _runs(places: Iterable[int]) -> Iterator[tuple[int, int]]:
    """First and length of each run of neighbours."""
    ordered = enumerate(sorted(places))
    for _, same in itertools.groupby(ordered, key=lambda entry: entry[1] - entry[0]):
        run = [place for _, place in same]
        yield run[0], len(run)


@mpl.rc_context(STYLE)
def ratio_dots(
    comparison: Comparison,
    palette: Mapping[str, str],
    first: Side,
    other: Side,
    width: float = WIDE,
) -> Figure:
    """A row for each target, a dot for each latency: how it changed, to the right slower.

    Filled dots changed beyond noise; a line marks the median.
    """
    rows = by_target(comparison)
    every = [each for each in comparison.differences if each.ratio is not None]
    simulated = any(d.first.simulated or d.second.simulated for d in every)
    figure, axes = new_figure(width, 1.4 + 0.36 * max(len(rows), 1))
    for y, row in enumerate(rows):
        colour = palette[row.target]
        own = [each for each in every if each.first.target.key == row.target]
        spread = np.linspace(-0.26, 0.26, len(own)) if len(own) > 1 else [0.0]
        axes.scatter(
            [each.ratio or 1.0 for each in own],
            [y + shift for shift in spread],
            s=13,
            facecolors=[colour if each.changed else "none" for each in own],
            edgecolors=colour,
            linewidths=0.7,
        )
        axes.plot([row.median_ratio] * 2, [y - 0.38, y + 0.38], color=INK, linewidth=1.3)
    axes.axvline(1, color=FAINT, linewidth=0.9, linestyle="--")
    axes.set_yticks(range(len(rows)), [target_words(row.target) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    _log_of_ratio(axes, [each.ratio or 1.0 for each in every])
    what = f"{other.letter} by {first.letter}: right of 1 is slower"
    what = what if width <= NARROW else f"latency, {what}"
    axes.set_xlabel(title(what, simulated), color=INK)
    axes.set_title("Latencies of units and regions", color=INK)
    return figure


def _log_of_ratio(axes: Axes, ratios: Sequence[float]) -> None:
    """Twice as slow and twice as fast are equally far from 1."""
    low, high = 0.97 * min([*ratios, 0.95]), 1.03 * max([*ratios, 1.05])
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator([x for x in _ticks(high / low) if low <= x <= high]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(which="both", colors=INK, color=FAINT)


def _ticks(span: float) -> list[float]:
    """Round ratios, so far apart that about eight of them stand between ends ``span`` apart."""
    if span < 2:
        step = 5 if span < 1.4 else 10
        return [percent / 100 for percent in range(50, 201, step)]
    decades = (0.01, 0.1, 1.0, 10.0, 100.0)
    steps = (1, 1.5, 2, 3, 5, 7) if span < 10 else (1, 2, 5) if span < 100 else (1,)
    return [round(decade * step, 4) for decade in decades for step in steps]


# ---- what the template is given ------------------------------------------------------------------


def render(sides: Sequence[tuple[str, ReportData]]) -> str:
    """The comparison as one HTML page; each side has a name. Raises UsageError as
    :func:`~nnapi_prof.reports.compare_summary.compared` does."""
    return template("compare.html").render(**context(compared(sides)))


def context(comparison: Compared) -> dict[str, Any]:
    """The variables of ``compare.html``."""
    every = [t for side in comparison.sides for t in all_targets(side.data.cost_model)]
    planned = [s.target for side in comparison.sides for s in side.data.plan.segments]
    palette = colours([*every, *planned])
    keys = list(dict.fromkeys(target.key for target in every))
    simulated = [side.letter for side in comparison.sides if side.simulated]
    return {
        "found": comparison,
        "mixed": ", ".join(simulated) if len(simulated) < len(comparison.sides) else None,
        "sides": comparison.sides,
        "side_colour": SIDE_COLOURS,
        "rows": headline_rows(comparison),
        "latencies": [
            {
                "side": side,
                "compared": latencies,
                "by_target": by_target(latencies),
                "rows": [(each, change_cells(each)) for each in latencies.changed],
            }
            for side, latencies in zip(comparison.others, comparison.latencies, strict=True)
        ],
        "refused": [(each, targets_words(each.targets, keys)) for each in comparison.refusals],
        "only": [
            (side, comparison.only(side)) for side in comparison.sides if comparison.only(side)
        ],
        "notes": [(side, side.data.all_notes) for side in comparison.sides if side.data.all_notes],
        "colour": palette,
        "figure": draw(_figures(comparison, palette)),
        "threshold": f"{100 * THRESHOLD:.0f} %",
        "confidence": f"{100 * CONFIDENCE:.0f} %",
        "units_words": units_words,
    }


def _figures(comparison: Compared, palette: dict[str, str]) -> Iterator[ToDraw]:
    """Name -> figure; one with nothing to show is absent."""
    sides = comparison.sides
    yield (
        "bars",
        "End-to-end latency of each side",
        "Horizontal bars in groups: the plan, the best single target, all on the CPU; in each a bar"
        " for every side. " + " ".join(_side_sentence(side) for side in sides),
        lambda width: latency_bars(sides, width),
    )
    moved = {at for move in comparison.moves for at in move.columns}
    yield (
        "strips",
        "Where each plan runs each unit",
        f"A strip for each side over {len(comparison.columns)} units in order, coloured by "
        f"accelerator. {len(moved)} units do not run on the same target everywhere. "
        + " ".join(_strip_sentence(side) for side in sides),
        lambda width: placement_strips(sides, comparison.columns, palette, moved, width),
    )
    for side, latencies in zip(comparison.others, comparison.latencies, strict=True):
        rows = by_target(latencies)
        if rows:
            yield (
                f"ratios-{side.letter}",
                f"Latencies of units and regions, {side.letter} by {sides[0].letter}",
                "Dots in a row for each target, filled where the latency changed beyond noise."
                " Median ratio: "
                + "; ".join(f"{target_words(r.target)} {r.median_ratio:.3f}" for r in rows)
                + ". The tables below have every number.",
                _dots(latencies, palette, sides[0], side),
            )


def _dots(
    latencies: Comparison, palette: Mapping[str, str], first: Side, other: Side
) -> Callable[[float], Figure]:
    return lambda width: ratio_dots(latencies, palette, first, other, width)


def _side_sentence(side: Side) -> str:
    how = "measured" if side.measured.ns else "predicted"
    latency = side.measured if side.measured.ns else side.predicted
    words = f", {latency.label}" if latency.label else ""
    ms = latency.ns / 1e6 if latency.ns is not None else None
    return f"{side.letter}: {format_ms(ms)} ms {how}{words}."


def _strip_sentence(side: Side) -> str:
    parts = [
        f"{units_words(s.units)} on {target_words(s.target.key)}" for s in side.data.plan.segments
    ]
    rest = len(parts) - 8
    more = f" and {rest} more segments" if rest > 0 else ""
    return f"{side.letter}: units {'; '.join(parts[:8])}{more}."
