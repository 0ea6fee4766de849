"""Figures of costs and plans from frames of :mod:`nnapi_prof.reports.frames`, without pyplot.

Every figure takes its width in inches: :data:`~nnapi_prof.reports.style.WIDE` for a screen,
:data:`~nnapi_prof.reports.style.NARROW` for a phone. Names are above their bars, so that the bars
of a narrow figure can use its whole width.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch, Rectangle
from matplotlib.path import Path
from matplotlib.text import Text

from nnapi_prof.reports.style import (
    FAINT,
    HEAT,
    INK,
    ON_COLOUR,
    PAGE,
    STYLE,
    WIDE,
    canvas,
    label_axes,
    title,
)
from nnapi_prof.reports.words import (
    LatencySource,
    clip,
    count,
    format_ms,
    format_percent,
    place_words,
    target_words,
)

MOST_HEIGHT = 15.0
"""Largest height of a heat map in inches; many rows get thinner."""
MOST_CONTRAST = 3000.0
"""Largest ratio between the latencies of a heat map; smaller latencies share the lowest colour."""
MOST_DOTS = 150
"""Most errors drawn for one target; of more, evenly spaced ones are drawn."""
_READABLE = 0.15
"""Smallest height in inches of a row with a readable name."""


@mpl.rc_context(STYLE)
def unit_latency(
    units: pd.DataFrame, chosen: Mapping[int, str], source: LatencySource, *, width: float = WIDE
) -> Figure:
    """Draws a heat map of each unit's cost in a segment on each target; frames the plan's choice.

    ``units`` is :func:`~nnapi_prof.reports.frames.unit_frame`; ``chosen`` maps a unit to its
    target's key. Costs are marginal, because a plan adds these up; if unknown, the latency of the
    unit alone. A narrow figure shows numbers of units instead of names.
    """
    targets = list(dict.fromkeys(units["target"]))
    rows = units.assign(ms=units["marginal_ms"].fillna(units["alone_ms"]))
    table = rows.pivot(index="unit", columns="target", values="ms")[targets]
    labels = units.drop_duplicates("unit").set_index("unit")["label"]
    n = len(table)
    named = width >= WIDE
    row = min(0.2, MOST_HEIGHT / max(n, 1))
    heads = [clip(target_words(key), 36) for key in targets]
    top = 0.45 + 0.066 * max(map(len, heads), default=0)
    figure, axes = canvas(width, n * row, left=2.95 if named else 0.38, top=top, bottom=0.62)
    values = table.to_numpy(dtype=float)
    edges = _levels(values)
    for level, (colour, _) in enumerate(HEAT):
        low, high = edges[level], edges[level + 1]
        cells = np.argwhere((values >= low) & ((values < high) | (level == len(HEAT) - 1)))
        if len(cells):
            axes.add_patch(PathPatch(_squares(cells), facecolor=colour, edgecolor="none"))
    refused = units[units["status"] == "refused"]
    at = {int(unit): place for place, unit in enumerate(table.index)}
    x = [targets.index(key) for key in refused["target"]]
    y = [at[int(unit)] for unit in refused["unit"]]
    axes.plot(x, y, linestyle="none", marker="x", markersize=3.6, color=FAINT, gid="refused")
    for column, first, length in _stretches([chosen.get(int(u)) for u in table.index], targets):
        frame = Rectangle((column - 0.47, first - 0.45), 0.94, length - 0.1, fill=False)
        frame.set(edgecolor=INK, linewidth=1.6)
        axes.add_patch(frame)
    axes.set_xlim(-0.5, len(targets) - 0.5)
    axes.set_ylim(max(n, 1) - 0.5, -0.5)
    axes.set_xticks(range(len(targets)), heads, rotation=90, size=8)
    axes.xaxis.tick_top()
    step = max(1, math.ceil(_READABLE / row))
    ticks = [place for place in range(n) if place % step == 0]
    words = [f"{clip(str(labels[table.index[t]]), 46)}  {table.index[t]}" for t in ticks]
    axes.set_yticks(ticks, words if named else [str(table.index[t]) for t in ticks], size=7.5)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    _draw_legend(figure, edges, source)
    axes.set_title(title("What each unit adds, ms", source), color=INK, pad=6)
    return figure


def _levels(values: np.ndarray) -> np.ndarray:
    """Returns the edges of the colours: equal factors from the lowest to the highest latency."""
    finite = values[np.isfinite(values) & (values > 0)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (1.0, 1.0)
    low = max(low, high / MOST_CONTRAST)
    edges = np.geomspace(low, max(high, low * 1.001), len(HEAT) + 1)
    edges[0] = 0.0
    return edges


def _squares(cells: np.ndarray) -> Path:
    """Returns one path of all (row, column) cells, with a narrow gap between them."""
    corner = np.array([(-0.47, -0.46), (0.47, -0.46), (0.47, 0.46), (-0.47, 0.46), (-0.47, -0.46)])
    vertices = (cells[:, None, ::-1] + corner[None]).reshape(-1, 2)
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(cells)
    return Path(vertices, codes)


def _draw_legend(figure: Figure, edges: np.ndarray, source: LatencySource) -> None:
    """Draws the legend of the colours below the figure."""
    wide, high = figure.get_size_inches()
    bar = figure.add_axes((0.3 / wide, 0.34 / high, min(3.4, wide - 0.6) / wide, 0.13 / high))
    for level, (colour, _) in enumerate(HEAT):
        bar.add_patch(Rectangle((level, 0), 1, 1, facecolor=colour))
    bar.set_xlim(0, len(HEAT))
    bar.patch.set_alpha(0)
    bar.set_yticks([])
    shown = [0, len(HEAT) // 2, len(HEAT)]
    low = edges[1] ** 2 / edges[2] if edges[2] > 0 else 0.0
    names = [low, *edges[shown[1:]]]
    bar.set_xticks(shown, [format_ms(float(ms)) for ms in names], size=7.5)
    bar.tick_params(length=2, colors=INK, color=FAINT)
    bar.spines[:].set_visible(False)
    label = "ms; framed: the plan's choice; ×: refused"
    bar.set_xlabel(title(label, source), color=INK, size=8, loc="left", labelpad=2)


@mpl.rc_context(STYLE)
def timeline(
    plans: pd.DataFrame,
    palette: Mapping[str, str],
    source: LatencySource,
    *,
    heading: str,
    width: float = WIDE,
    axis: str = "predicted time, ms",
) -> Figure:
    """Draws each plan's segments one after another, coloured by accelerator.

    ``plans`` holds rows of :func:`~nnapi_prof.reports.frames.plan_frame` of one or more plans; rows
    of one ``plan`` share a line with its name. ``palette`` maps a target's key to a colour
    (:func:`~nnapi_prof.reports.style.colours`).
    """
    names = list(dict.fromkeys(plans["plan"]))
    unique: dict[str, str] = {}
    for key in dict.fromkeys(plans["target"]):
        unique.setdefault(place_words(key), palette[key])
    columns = 2 if width < WIDE else 5
    lines = math.ceil(len(unique) / columns)
    figure, axes = canvas(width, 0.46 * max(len(names), 1), bottom=0.5 + 0.2 * lines, top=0.34)
    end = float((plans["start_ms"] + plans["predicted_ms"]).max()) if len(plans) else 1.0
    for row in plans.to_dict("records"):
        y = names.index(row["plan"])
        wide = row["predicted_ms"]
        axes.barh(
            y, wide, left=row["start_ms"], height=0.5, color=palette[row["target"]],
            edgecolor=PAGE, linewidth=0.7,
        )  # fmt: skip
        number = str(row["segment"])
        if wide > (0.16 if len(number) == 1 else 0.26) / width * end:
            x = row["start_ms"] + wide / 2
            axes.text(x, y, number, ha="center", va="center", color=ON_COLOUR, size=8)
    for y, name in enumerate(names):
        total = float(plans.loc[plans["plan"] == name, "predicted_ms"].sum())
        row_label(axes, y, clip_to(name, width), f"{format_ms(total)} ms")
    axes.set_ylim(len(names) - 0.62, -0.78)
    axes.set_xlim(0, end or 1.0)
    label_axes(axes, title(heading, source), title(axis, source))
    handles = [Patch(color=colour, label=name) for name, colour in unique.items()]
    legend = figure.legend(
        handles=handles, loc="lower left", ncols=columns, frameon=False, fontsize=8,
        borderaxespad=0.1, handlelength=1.2, handleheight=1.0,
    )  # fmt: skip
    _ink(legend.get_texts())
    return figure


@mpl.rc_context(STYLE)
def preference_bars(
    preferences: pd.DataFrame,
    palette: Mapping[str, str],
    source: LatencySource,
    *,
    width: float = WIDE,
) -> Figure:
    """Draws the time of each accelerator's units under each preference, relative to the fastest.

    ``preferences`` is :func:`~nnapi_prof.reports.device_frames.preference_frame`; rows that cannot
    be compared are left out.
    """
    rows = preferences[preferences["relative"].notna()].to_dict("records")
    groups = list(dict.fromkeys(row["accelerator"] for row in rows))
    height = 0.2 * len(rows) + 0.34 * len(groups)
    figure, axes = canvas(width, max(height, 0.4), left=0.85, bottom=0.5, top=0.34)
    y = -0.06
    ticks: list[float] = []
    for group in groups:
        own = [row for row in rows if row["accelerator"] == group]
        y += 0.22
        head = f"{place_words(own[0]['target'])}: {count(own[0]['n_units'], 'unit')}"
        axes.text(0.01, y, head, va="center", ha="left", color=INK, size=8.5)
        for row in own:
            y += 0.2
            times = 1 + row["relative"]
            axes.barh(y, times, height=0.15, color=palette[row["target"]])
            words = f"{times:.2f} × ({format_ms(row['units_ms'])} ms)"
            axes.text(times + 0.02, y, words, va="center", color=INK, size=7.5)
            ticks.append(y)
        y += 0.12
    axes.set_yticks(ticks, [row["preference"] for row in rows], size=8)
    axes.set_ylim(y, 0)
    most = max((1 + row["relative"] for row in rows), default=1.0)
    axes.set_xlim(0, most * (1.45 if width < WIDE else 1.18))
    axes.set_xlabel("time, × of the accelerator's fastest preference", color=INK, labelpad=2)
    axes.set_title(title("Preferences compared", source), color=INK, loc="left")
    axes.tick_params(axis="y", length=0)
    return figure


@mpl.rc_context(STYLE)
def residuals(
    errors: pd.DataFrame, palette: Mapping[str, str], source: LatencySource, *, width: float = WIDE
) -> Figure:
    """Draws relative errors of the fitted cost model on the rows it was fitted to, per target."""
    targets = list(dict.fromkeys(errors["target"]))
    figure, axes = canvas(width, 0.42 * max(len(targets), 1), bottom=0.52, top=0.38)
    for y, key in enumerate(targets):
        percent = 100 * errors.loc[errors["target"] == key, "relative_error"].to_numpy()
        dots = _evenly_spaced(percent)
        offset = np.linspace(-0.12, 0.12, len(dots)) if len(dots) > 1 else np.zeros(1)
        axes.scatter(dots, y + 0.1 + offset, s=6, color=palette[key], alpha=0.6, linewidth=0)
        axes.plot([np.median(percent)] * 2, [y - 0.1, y + 0.3], color=INK, linewidth=1.4)
        off = format_percent(float(np.median(np.abs(percent))) / 100)
        row_label(axes, y + 0.1, target_words(key), f"{len(percent)} measured, {off} off")
    axes.axvline(0, color=FAINT, linewidth=0.8, linestyle="--")
    axes.set_ylim(len(targets) - 0.55, -0.7)
    axes.margins(x=0.02)
    what = title("(predicted − measured) / measured, %", source)
    label_axes(axes, title("Errors of summed costs", source), what)
    return figure


def _evenly_spaced(values: np.ndarray) -> np.ndarray:
    """Returns at most :data:`MOST_DOTS` of the values, in their order: the lowest, the highest, and
    ones between at evenly spaced ranks."""
    if len(values) <= MOST_DOTS:
        return values
    ranks = np.argsort(values, kind="stable")
    spaced: np.ndarray = ranks[np.linspace(0, len(values) - 1, MOST_DOTS).round().astype(int)]
    thinned: np.ndarray = values[np.sort(spaced)]
    return thinned


def row_label(axes: Axes, y: float, left: str, right: str) -> None:
    """Writes a line of text above the bar at ``y``: its name, and its numbers at the right end."""
    across = axes.get_yaxis_transform()
    for x, text, side in ((0.0, left, "left"), (1.0, right, "right")):
        axes.text(
            x, y - 0.34, text, transform=across, ha=side, va="bottom", color=INK, size=8.5
        )  # fmt: skip


def clip_to(name: str, width: float) -> str:
    """Shortens a name to leave room for the numbers at the right end of its line."""
    return clip(name, 38 if width < WIDE else 90)


def _stretches(
    chosen: Sequence[str | None], targets: Sequence[str]
) -> Iterator[tuple[int, int, int]]:
    """Yields (column, first row, length) of each run of consecutive rows with the same choice."""
    row = 0
    for key, same in itertools.groupby(chosen):
        length = len(list(same))
        if key in targets:
            yield targets.index(key), row, length
        row += length


def _ink(texts: Iterable[Text]) -> None:
    for text in texts:
        text.set_color(INK)
