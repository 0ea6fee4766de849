"""Figures of what a plan is chosen by: what its segments' time is made of, how many there are, and
what precision costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from nnapi_prof.bundle.precision import FrontRow
from nnapi_prof.reports.figures import row_label
from nnapi_prof.reports.parts import PARTS
from nnapi_prof.reports.style import FAINT, INK, PAGE, STYLE, WIDE, canvas, label_axes, title
from nnapi_prof.reports.words import clip, format_ms, target_words

MOST_SEGMENTS = 40
"""The slowest of more are drawn."""
PART_WORDS = {"work_ms": "work", "invocation_ms": "call", "moving_ms": "moving"}
_STRENGTH = {"work_ms": 1.0, "invocation_ms": 0.55, "moving_ms": 0.25}
_CHOSEN = "#d9641a"
"""What became the plan; seen on white and on black."""


@mpl.rc_context(STYLE)
def part_bars(
    parts: pd.DataFrame, palette: Mapping[str, str], simulated: bool, *, width: float = WIDE
) -> Figure:
    """A bar for each segment, of what its latency is made of: the strongest colour is the work of
    its units, then the call, then moving values.

    ``parts`` is :func:`~nnapi_prof.reports.parts.parts_frame`.
    """
    total = parts["measured_ms"].fillna(parts["predicted_ms"])
    shown = parts.assign(ms=total).nlargest(MOST_SEGMENTS, "ms").sort_values("segment")
    figure, axes = canvas(width, 0.42 * max(len(shown), 1), bottom=0.72, top=0.34)
    for y, row in enumerate(shown.to_dict("records")):
        start = 0.0
        for name in PARTS:
            if math.isfinite(row[name]):
                axes.barh(
                    y, row[name], left=start, height=0.34, color=palette[row["target"]],
                    alpha=_STRENGTH[name], edgecolor=PAGE, linewidth=0.5,
                )  # fmt: skip
                start += row[name]
        if not start:
            axes.barh(y, row["ms"], height=0.34, color=palette[row["target"]], hatch="//")
        sums = [
            f"{word} {format_ms(row[name])}" for name, word in PART_WORDS.items() if row[name] > 0
        ]
        words = f"{' + '.join(sums)} = " if sums and width >= WIDE else ""
        name = f"{row['segment']}  {target_words(row['target'])}"
        row_label(axes, y + 0.08, name, f"{words}{format_ms(row['ms'])} ms")
    axes.set_ylim(len(shown) - 0.66, -0.72)
    axes.set_xlim(left=0)
    label_axes(axes, title("What each segment's time is made of", simulated), "ms")
    handles = [
        Patch(color=INK, alpha=_STRENGTH[name], label=word) for name, word in PART_WORDS.items()
    ]
    legend = figure.legend(
        handles=handles, loc="lower left", ncols=3, frameon=False, fontsize=8, borderaxespad=0.1,
        handlelength=1.2, handleheight=1.0,
    )  # fmt: skip
    for text in legend.get_texts():
        text.set_color(INK)
    return figure


@mpl.rc_context(STYLE)
def segments_curve(
    points: Sequence[tuple[int, float]],
    plan: tuple[int, float],
    simulated: bool,
    *,
    width: float = WIDE,
) -> Figure:
    """The least latency of plans of at most so many segments: ``points`` are (segments, ms), and
    ``plan`` is the one of the report."""
    figure, axes = canvas(width, 1.9, left=0.62, bottom=0.5, top=0.34)
    x, y = zip(*points, strict=True)
    axes.plot(x, y, drawstyle="steps-post", color=INK, linewidth=1.2)
    axes.plot(x, y, linestyle="none", marker="o", markersize=4, color=INK)
    axes.plot(*plan, marker="D", markersize=7, color=_CHOSEN, linestyle="none")
    is_right = 2 * plan[0] > min(x) + max(x)
    axes.annotate(
        f"this plan: {format_ms(plan[1])} ms", plan, xytext=(-4 if is_right else 4, 9),
        textcoords="offset points", ha="right" if is_right else "left", color=INK, size=8.5,
    )  # fmt: skip
    axes.set_ylim(0, 1.18 * max(*y, plan[1]))
    axes.set_xlim(min(x) - 0.5, max(*x, plan[0]) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("segments at most", color=INK, labelpad=2)
    axes.set_title(
        title("Latency by number of segments, predicted, ms", simulated), color=INK, loc="left"
    )
    return figure


@mpl.rc_context(STYLE)
def precision_front(
    front: Sequence[FrontRow], chosen: str, simulated: bool, *, width: float = WIDE
) -> Figure:
    """Latency against error: plans of which none is better in both are joined, others hollow."""
    figure, axes = canvas(width, 2.4, left=0.75, bottom=0.5, top=0.34)
    joined = sorted((row for row in front if not row.is_baseline), key=lambda row: row.latency_ns)
    x, y = [row.latency_ns / 1e6 for row in joined], [100 * row.error for row in joined]
    axes.plot(x, y, color=INK, linewidth=1.1, drawstyle="steps-post")
    axes.plot(x, y, linestyle="none", marker="o", markersize=4, color=INK)
    for row in front:
        if row.name == chosen:
            at = (row.latency_ns / 1e6, 100 * row.error)
            axes.plot(*at, marker="D", markersize=7, color=_CHOSEN, linestyle="none")
            _annotate(axes, at, f"this plan, {row.name}")
        elif row.is_baseline:
            at = (row.latency_ns / 1e6, 100 * row.error)
            axes.plot(
                *at, marker="o", markersize=5, markerfacecolor=PAGE, markeredgecolor=FAINT,
                linestyle="none",
            )  # fmt: skip
            _annotate(axes, at, row.name)
    axes.set_ylim(bottom=0)
    axes.margins(x=0.12, y=0.15)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda percent, _: f"{percent:g} %"))
    axes.set_xlabel(title("latency, predicted, ms", simulated), color=INK, labelpad=2)
    axes.set_title("Error against latency", color=INK, loc="left")
    return figure


def _annotate(axes: Axes, at: tuple[float, float], words: str) -> None:
    axes.annotate(clip(words, 30), at, xytext=(6, 5), textcoords="offset points", color=INK, size=8)
