"""Draw plans: the parts of segments' latencies, plans end to end, predictions and measurements.

The device's history is drawn as well, because it explains differences between runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from nnapi_prof.bundle import FrontRow
from nnapi_prof.costs.model import CostModel
from nnapi_prof.execution.report import PlanRun
from nnapi_prof.graph.plan import Plan, Segment
from nnapi_prof.reports.figures import clip_to, row_label
from nnapi_prof.reports.frames import NS_PER_MS, boundary_bytes
from nnapi_prof.reports.style import (
    FAINT,
    INK,
    PAGE,
    STYLE,
    WIDE,
    bare,
    canvas,
    common_source,
    label_axes,
    title,
)
from nnapi_prof.reports.words import (
    LatencySource,
    clip,
    format_ms,
    ms_unit,
    plan_words,
    target_words,
)

# Splits a segment's latency: the work of its units, the call, moving values.


@dataclass(frozen=True, slots=True)
class SegmentParts:
    """Parts of a segment's latency in ns; ``unit_ns`` and the two others add up to ``total_ns``."""

    total_ns: float
    unit_ns: Mapping[int, float]
    invocation_ns: float
    moving_ns: float

    @property
    def work_ns(self) -> float:
        """The total time of its units."""
        return sum(self.unit_ns.values())


def segment_parts(costs: CostModel, segment: Segment, total_ns: float) -> SegmentParts | None:
    """Splits a segment that takes ``total_ns`` into parts; None if a unit's cost is unknown, or all
    costs are 0."""
    units = {unit: costs.unit_cost(unit, segment.target) for unit in segment.units}
    works = {unit: ns for unit, ns in units.items() if ns is not None}
    if len(works) < len(units):
        return None
    invocation = costs.overhead(segment.target)
    moving = costs.transfer(segment.target, *boundary_bytes(costs.graph, segment.units))
    fitted = sum(works.values()) + invocation + moving
    if fitted <= 0:
        return None
    share = total_ns / fitted
    return SegmentParts(
        total_ns,
        {unit: ns * share for unit, ns in works.items()},
        invocation * share,
        moving * share,
    )


PARTS = ("work_ms", "invocation_ms", "moving_ms")


def parts_frame(plan: Plan, costs: CostModel, ran: PlanRun | None) -> pd.DataFrame:
    """Returns one row per segment: ``segment``, ``target``, ``predicted_ms``, ``measured_ms`` (NaN
    if it did not run), and the parts of the measured, else of the predicted latency: ``work_ms``,
    ``invocation_ms``, ``moving_ms`` (NaN if a unit's cost is unknown)."""
    measured = {timing.segment: timing.median_ns for timing in ran.segments} if ran else {}
    rows = []
    for number, segment in enumerate(plan.segments):
        took = measured.get(number)
        total = segment.predicted_ns if took is None else took
        parts = segment_parts(costs, segment, total)
        each = (parts.work_ns, parts.invocation_ns, parts.moving_ns) if parts else [math.nan] * 3
        rows.append(
            {
                "segment": number,
                "target": segment.target.key,
                "predicted_ms": segment.predicted_ns / NS_PER_MS,
                "measured_ms": math.nan if took is None else took / NS_PER_MS,
                **{name: ns / NS_PER_MS for name, ns in zip(PARTS, each, strict=True)},
            }
        )
    columns = ["segment", "target", "predicted_ms", "measured_ms", *PARTS]
    return pd.DataFrame(rows, columns=columns)


MOST_SEGMENTS = 40
"""Most segments drawn; of more, the slowest ones are drawn."""
PART_WORDS = {"work_ms": "work", "invocation_ms": "call", "moving_ms": "moving"}
_STRENGTH = {"work_ms": 1.0, "invocation_ms": 0.55, "moving_ms": 0.25}
_CHOSEN = "#d9641a"
"""Colour of the plan that was chosen, visible on white and on black."""


@mpl.rc_context(STYLE)
def part_bars(
    parts: pd.DataFrame, palette: Mapping[str, str], source: LatencySource, *, width: float = WIDE
) -> Figure:
    """Draws a bar for each segment with the parts of its latency: the strongest colour is the work
    of its units, then the call, then moving values.

    ``parts`` is :func:`~nnapi_prof.reports.figures_plan.parts_frame`.
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
    label_axes(axes, title("What each segment's time is made of", source), "ms")
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
    source: LatencySource,
    *,
    width: float = WIDE,
) -> Figure:
    """Draws the lowest latency of plans with at most so many segments: ``points`` are (segments,
    ms), and ``plan`` is the one of the report."""
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
        title("Latency by number of segments, predicted, ms", source), color=INK, loc="left"
    )
    return figure


@mpl.rc_context(STYLE)
def precision_front(
    front: Sequence[FrontRow], chosen: str, source: LatencySource, *, width: float = WIDE
) -> Figure:
    """Draws error against latency: plans on the front are joined, baselines are hollow."""
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
    axes.set_xlabel(title("latency, predicted, ms", source), color=INK, labelpad=2)
    axes.set_title("Error against latency", color=INK, loc="left")
    return figure


def _annotate(axes: Axes, at: tuple[float, float], words: str) -> None:
    axes.annotate(clip(words, 30), at, xytext=(6, 5), textcoords="offset points", color=INK, size=8)


MOST_TIMES = 8.0
"""Longest bar of a plan, as a multiple of the first; longer bars are cut off."""
MOST_POINTS = 240
"""Most points of the device's history; if there are more measurements, neighbours share a point."""
_DIAMOND: dict[str, Any] = {
    "marker": "D", "markersize": 5, "markerfacecolor": PAGE, "markeredgecolor": INK,
    "markeredgewidth": 1.1,
}  # fmt: skip
"""Style of predictions."""
MANY_SEGMENTS = 40
"""Most segments drawn as bars; more are drawn as a scatter plot."""


@mpl.rc_context(STYLE)
def baseline_bars(
    baselines: pd.DataFrame,
    segments: pd.DataFrame,
    palette: Mapping[str, str],
    source: LatencySource,
    run_source: LatencySource,
    *,
    width: float = WIDE,
) -> Figure:
    """Draws the end-to-end latency of the plan (first row) and its baselines, each bar in the
    colours of its segments, with a diamond at the prediction and a line from the 10th to the 90th
    percentile.

    ``baselines`` is :func:`~nnapi_prof.reports.frames.baseline_frame`; ``segments`` has ``plan``,
    ``target`` and ``ms`` of each segment of each plan, in order. ``source`` is that of
    predictions, ``run_source`` that of measurements.
    """
    rows = baselines.to_dict("records")
    figure, axes = canvas(width, 0.47 * max(len(rows), 1), bottom=0.5, top=0.34)
    ms = baselines["measured_ms"].fillna(baselines["predicted_ms"]).to_numpy(dtype=float)
    most = float(np.nanmax(ms)) if len(ms) else 1.0
    end = min(most, MOST_TIMES * float(ms[0])) if len(ms) and ms[0] > 0 else most
    axes.set_xlim(0, end * 1.04 or 1.0)
    for y, row in enumerate(rows):
        start = 0.0
        for segment in segments[segments["plan"] == row["plan"]].to_dict("records"):
            wide = min(segment["ms"], max(end - start, 0.0))
            axes.barh(
                y, wide, left=start, height=0.36, color=palette[segment["target"]],
                edgecolor=PAGE, linewidth=0.5,
            )  # fmt: skip
            start += wide
        if ms[y] > end * 1.001:
            axes.text(end * 1.005, y, "»", va="center", color=INK, size=11)
        elif math.isfinite(row["low_ms"]):
            axes.hlines(y, row["low_ms"], row["high_ms"], color=INK, linewidth=1.3)
        if math.isfinite(row["measured_ms"]) and row["predicted_ms"] <= end * 1.04:
            axes.plot(row["predicted_ms"], y, **_DIAMOND)
        name = plan_words(row["plan"], is_own=y == 0)
        row_label(axes, y + 0.08, clip_to(name, width), _measured_and_predicted(row))
    axes.set_ylim(len(rows) - 0.66, -0.72)
    ran = baselines["measured_ms"].notna().any()
    axis = _both(source, run_source) if ran else title("predicted, ms", source)
    heading = title("The plan and its baselines, end to end", common_source(source, run_source))
    label_axes(axes, heading, axis)
    return figure


def _both(source: LatencySource, run_source: LatencySource) -> str:
    """Returns the label of an axis with measured bars and predicted diamonds."""
    return f"measured median, {ms_unit(run_source)} (◇ predicted{source.suffix})"


def _measured_and_predicted(row: Mapping[Any, Any]) -> str:
    """Formats latencies as ``4.67 ms (4.66)``: measured, with the prediction in brackets."""
    if math.isfinite(row["measured_ms"]):
        return f"{format_ms(row['measured_ms'])} ms ({format_ms(row['predicted_ms'])})"
    return f"{format_ms(row['predicted_ms'])} ms predicted"


@mpl.rc_context(STYLE)
def predicted_against_measured(
    segments: pd.DataFrame,
    palette: Mapping[str, str],
    source: LatencySource,
    run_source: LatencySource,
    *,
    width: float = WIDE,
) -> Figure:
    """Draws predicted and measured latencies of the segments of one plan.

    ``segments`` holds rows of :func:`~nnapi_prof.reports.frames.segment_frame`. A few segments are
    bars with a diamond, many are a scatter plot around the diagonal.
    """
    measured = segments.dropna(subset=["measured_ms"])
    if len(measured) > MANY_SEGMENTS:
        return _scatter(measured, palette, source, run_source, width)
    figure, axes = canvas(width, 0.42 * max(len(measured), 1), bottom=0.5, top=0.34)
    for y, row in enumerate(measured.to_dict("records")):
        axes.barh(y, row["measured_ms"], height=0.34, color=palette[row["target"]])
        axes.hlines(y, row["low_ms"], row["high_ms"], color=INK, linewidth=1.3)
        axes.plot(row["predicted_ms"], y, **_DIAMOND)
        name = f"{row['segment']}  {target_words(row['target'])}"
        row_label(axes, y + 0.08, name, _measured_and_predicted(row))
    axes.set_ylim(len(measured) - 0.66, -0.72)
    axes.set_xlim(left=0)
    heading = title("Segments, measured and predicted", common_source(source, run_source))
    label_axes(axes, heading, _both(source, run_source))
    return figure


def _scatter(
    measured: pd.DataFrame,
    palette: Mapping[str, str],
    source: LatencySource,
    run_source: LatencySource,
    width: float,
) -> Figure:
    figure, axes = canvas(min(width, 5.6), 3.6, left=0.6, bottom=0.5, top=0.34)
    for key, rows in measured.groupby("target", sort=True):
        axes.scatter(
            rows["measured_ms"], rows["predicted_ms"], s=22, color=palette[str(key)],
            label=target_words(str(key)), edgecolor=PAGE, linewidth=0.4,
        )  # fmt: skip
    span = measured[["measured_ms", "predicted_ms"]]
    ends = [float(span.min().min()) * 0.8, float(span.max().max()) * 1.25]
    axes.plot(ends, ends, color=FAINT, linewidth=0.9, linestyle="--")
    for axis, scale in ((axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)):
        scale("log")
        axis.set_major_formatter(lambda ms, _: f"{ms:g}")
        axis.set_minor_formatter(lambda _ms, _: "")
    axes.tick_params(which="both", colors=INK, color=FAINT)
    axes.set_xlabel(title("measured, ms", run_source), color=INK, labelpad=2)
    axes.set_ylabel(title("predicted, ms", source), color=INK)
    heading = title("Segments: predicted against measured", common_source(source, run_source))
    axes.set_title(heading, color=INK, loc="left")
    for text in axes.legend(frameon=False, fontsize=8).get_texts():
        text.set_color(INK)
    return figure


@mpl.rc_context(STYLE)
def device_history(history: pd.DataFrame, source: LatencySource, *, width: float = WIDE) -> Figure:
    """Draws CPU clock and temperature over the measurements, in the order in which they were made:
    a band from the lowest to the highest reading, a line at the median, and marks for throttled
    rounds.

    ``history`` is :func:`~nnapi_prof.reports.device_frames.history_frame`, with a reading or more.
    """
    panels = [
        (name, words, unit)
        for name, words, unit in (
            ("mhz", "CPU clock", "MHz"),
            ("celsius", "temperature", "°C"),
        )
        if history[[f"{name}_before", f"{name}_after"]].notna().any(axis=None)
    ]
    figure, first = canvas(
        width, 1.35 * len(panels) + 0.4 * (len(panels) - 1), left=0.62, bottom=0.5, top=0.34
    )
    box = first.get_position()
    each = box.height * 1.35 / (1.35 * len(panels) + 0.4 * (len(panels) - 1))
    every = [first]
    first.set_position((box.x0, box.y1 - each, box.width, each))
    if len(panels) > 1:
        second = figure.add_axes((box.x0, box.y0, box.width, each), sharex=first)
        _follow(first, second)
        every.append(second)
    step = math.ceil(history["measurement"].nunique() / MOST_POINTS)
    history = history.assign(at=(history["measurement"] - 1) // step * step + 1)
    hot = history.loc[history["throttled"].eq(True), "at"].unique()
    for axes, (name, words, unit) in zip(every, panels, strict=True):
        both = history[["at", f"{name}_before", f"{name}_after"]]
        groups = both.melt("at").groupby("at")["value"]
        x = np.array(sorted(history["at"].unique()))
        low, middle, high = (groups.agg(how).reindex(x) for how in ("min", "median", "max"))
        axes.fill_between(x, low, high, step="mid", color=FAINT, alpha=0.35, linewidth=0)
        axes.plot(x, middle, drawstyle="steps-mid", color=INK, linewidth=1.1)
        axes.plot(
            hot, high.reindex(hot), linestyle="none", marker="v", markersize=5, color="#d9641a"
        )  # fmt: skip
        least = 0.02 * abs(float(middle.median()))
        if float(high.max() - low.min()) < least:
            axes.set_ylim(float(low.min()) - least, float(high.max()) + least)
        axes.set_ylabel(unit, color=INK, size=8.5)
        axes.set_title(title(f"{words}, {unit}", source), color=INK, loc="left", size=9)
        axes.ticklabel_format(useOffset=False)
    axis = "measurement, in order (▼: a round was throttled)"
    every[-1].set_xlabel(axis, color=INK, labelpad=2)
    return figure


def _follow(upper: Axes, lower: Axes) -> None:
    """Styles the lower axes and labels their common x axis only there."""
    bare(lower)
    upper.tick_params(labelbottom=False)
