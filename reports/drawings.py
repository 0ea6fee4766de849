"""The figures of a report's page, each in two widths, with a title and a description in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import Engine
from nnapi_prof.partition import make_problem, plan_problem
from nnapi_prof.reports import figures, figures_plan, frames
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.device_frames import LIMITS, RoundReadings
from nnapi_prof.reports.figures_plan import parts_frame
from nnapi_prof.reports.style import NARROW, WIDE, common_source, title, to_svg
from nnapi_prof.reports.words import (
    NOISE,
    LatencySource,
    count,
    format_ms,
    format_percent,
    plan_words,
    target_words,
)

MOST_SAID = 12
"""Most bars that a description lists; the table below has all."""


@dataclass(frozen=True)
class Drawn:
    """One figure for a screen and for a phone; a page shows one of them."""

    wide: Markup
    narrow: Markup


@dataclass(frozen=True)
class ReportFrames:
    """The frames that figures draw and tables show."""

    baselines: pd.DataFrame
    own: pd.DataFrame
    timed: pd.DataFrame
    units: pd.DataFrame
    preferences: pd.DataFrame
    history: pd.DataFrame
    readings: RoundReadings
    chosen: Mapping[int, str]


ToDraw = tuple[str, str, str, Callable[[float], Figure]]
"""Name, title and description of a figure, and a function that draws it in a width."""


def draw(figures: Iterable[ToDraw], label: str = "") -> dict[str, Drawn]:
    """Draws figures by name; every description ends with ``label``."""
    return {
        name: Drawn(
            *(
                to_svg(figure(width), f"{name}-{size}", heading, text + label)
                for size, width in (("wide", WIDE), ("narrow", NARROW))
            )
        )
        for name, heading, text, figure in figures
    }


def draw_all(
    data: ReportData, tables: ReportFrames, palette: Mapping[str, str]
) -> dict[str, Drawn]:
    """Draws the figures of a report, except those with nothing to show."""
    label = f" {data.what_is_simulated} are simulated." if data.simulated else ""
    return draw(_figures(data, tables, palette), label)


def _figures(
    data: ReportData, tables: ReportFrames, palette: Mapping[str, str]
) -> Iterator[ToDraw]:
    source, ran = data.planned_source, data.run_source
    bars = stacked_bars(data)
    yield (
        "baselines",
        "Latency of this plan and of the baselines",
        "Horizontal bars, one a plan, coloured by where its segments run. "
        + _sentence(_plan_sentence(row, place == 0) for place, row in _numbered(tables.baselines)),
        lambda width: figures_plan.baseline_bars(
            tables.baselines, bars, palette, source, ran, width=width
        ),
    )
    both = predicted_beside_measured(
        tables.own,
        tables.timed,
        title("predicted", source if source is not ran else LatencySource.MEASURED),
        title("measured", ran if ran is not source else LatencySource.MEASURED),
    )
    yield (
        "timeline",
        "The plan's segments in time",
        f"Coloured stretches, a line {' and a line '.join(both['plan'].unique())}. "
        + _sentence(_segment_sentence(row) for _, row in _numbered(tables.own)),
        lambda width: figures.timeline(
            both,
            palette,
            common_source(source, ran),
            heading="Segments in order",
            width=width,
            axis="time, ms",
        ),
    )
    if data.run is not None and data.run.frames and data.run.frames[0].spans:
        way = data.run.frames[0]
        lanes = frames.lane_frame(way, data.plans)
        yield (
            "lanes",
            "Frames on their lanes",
            f"A line for each of {', '.join(way.lanes)}, on it the segments of frames, which are"
            " numbered, when they ran.",
            lambda width: figures.timeline(
                lanes, palette, ran, heading=f"{way.way.name}: frames, numbered", width=width,
                axis="time, ms",
            ),
        )  # fmt: skip
    parts = parts_frame(data.plan, data.cost_model, data.run_of_plan)
    if parts["work_ms"].notna().any():
        label = ran if data.run_of_plan is not None else source
        yield (
            "parts",
            "What each segment's time is made of",
            "Horizontal bars, one a segment: work of its units, the call, moving values. "
            + _sentence(_parts_sentence(row) for _, row in _numbered(parts)),
            lambda width: figures_plan.part_bars(parts, palette, label, width=width),
        )
    curve = segments_curve(data)
    if curve:
        own = len(data.plan.segments), data.plan.predicted_ns / frames.NS_PER_MS
        yield (
            "curve",
            "Latency by number of segments",
            "A falling line: the least latency of plans of at most so many segments. "
            + _sentence(f"{n}: {format_ms(ms)} ms" for n, ms in curve),
            lambda width: figures_plan.segments_curve(curve, own, source, width=width),
        )
    if data.mixed is not None and len(data.mixed.front) > 1:
        front, chosen = data.mixed.front, data.mixed.chosen
        yield (
            "front",
            "Error against latency",
            "A falling line of plans; none is both faster and more accurate than another. Simple"
            " strategies are beside it. The table below has every number, in ms and %.",
            lambda width: figures_plan.precision_front(front, chosen, source, width=width),
        )
    if tables.timed["measured_ms"].notna().sum() > 1:
        yield (
            "segments",
            "Segments, measured and predicted",
            "Horizontal bars, one a segment: the measured median, with a diamond where it was "
            "predicted. " + _sentence(_timing_sentence(row) for _, row in _numbered(tables.timed)),
            lambda width: figures_plan.predicted_against_measured(
                tables.timed, palette, source, ran, width=width
            ),
        )
    units = tables.units
    ms = units["marginal_ms"].fillna(units["alone_ms"])
    yield (
        "units",
        "What each unit adds to a segment, on each target",
        f"Heat map: {count(units['unit'].nunique(), 'unit')} down, "
        f"{count(units['target'].nunique(), 'target')} across, from {format_ms(ms.min())} to "
        f"{format_ms(ms.max())} ms, {int((units['status'] == 'refused').sum())} refused. "
        "The table below has every number.",
        lambda width: figures.unit_latency(units, tables.chosen, source, width=width),
    )
    compared = tables.preferences[tables.preferences["relative"].notna()]
    if len(compared) and data.every_preference:
        yield (
            "preferences",
            "Preferences compared",
            "Horizontal bars, one for each preference of each accelerator: the time of its units "
            "against that under its fastest preference. "
            + _sentence(_preference_sentence(row) for _, row in _numbered(compared)),
            lambda width: figures.preference_bars(compared, palette, source, width=width),
        )
    errors = frames.residual_frame(data.cost_model)
    errors = errors[errors["target"].isin([target.key for target in data.shown_targets])]
    if len(errors):
        median = errors.groupby("target", sort=False)["relative_error"].agg(
            lambda e: e.abs().median()
        )
        yield (
            "residuals",
            "Errors of the cost model",
            "One dot for each measurement on each target: the error of the sum of fitted costs. "
            "Median error: "
            + _sentence(
                f"{target_words(str(key))} {format_percent(e)}" for key, e in median.items()
            ),
            lambda width: figures.residuals(errors, palette, source, width=width),
        )
    readings = tables.readings
    if readings.mhz or readings.celsius:
        yield (
            "history",
            "Clock and temperature while it was measured",
            f"Lines over {readings.measurements} measurements in order: "
            + _reading_sentence(readings),
            lambda width: figures_plan.device_history(tables.history, source, width=width),
        )


def segments_curve(data: ReportData) -> list[tuple[int, float]]:
    """Returns numbers of segments with the lowest latency, in ms, of plans with at most so many.
    Empty if the plan was not chosen by latency alone, or if more segments gain nothing beyond
    noise."""
    proof = data.plan.proof
    if data.mixed is not None or proof is None or proof.objective or proof.constrained:
        return []
    try:
        problem = make_problem(data.graph, data.cost_model.table)
        points = plan_problem(problem, limits=LIMITS).curve
    except PartitionError:
        return []
    if not points or points[0].ns <= points[-1].ns * (1 + NOISE):
        return []
    return [(point.n_segments, point.ns / frames.NS_PER_MS) for point in points]


def stacked_bars(data: ReportData) -> pd.DataFrame:
    """Returns ``plan, target, ms`` of each segment of each plan: measured if the plan ran, else
    predicted. Segments on the host, which no run times, are left out of a plan that ran."""
    ran = {run.plan.name: run for run in data.run.runs} if data.run else {}
    rows = []
    for plan in data.plans:
        run = ran.get(plan.name)
        timed = {t.segment: t.median_ns for t in run.segments} if run and not run.error else {}
        for number, segment in enumerate(plan.segments):
            ns: float | None = segment.predicted_ns
            if timed:
                ns = timed.get(number)
                if ns is None and segment.target.engine is Engine.HOST:
                    continue
            rows.append((plan.name, segment.target.key, (ns or 0.0) / frames.NS_PER_MS))
    return pd.DataFrame(rows, columns=["plan", "target", "ms"])


def predicted_beside_measured(
    own: pd.DataFrame, timed: pd.DataFrame, predicted: str = "predicted", measured: str = "measured"
) -> pd.DataFrame:
    """Returns rows for :func:`~nnapi_prof.reports.figures.timeline`: the plan's segments in a line
    called ``predicted``, and the measured ones in a line called ``measured``."""
    columns = ["plan", "segment", "target", "start_ms", "predicted_ms"]
    lines = [own.assign(plan=predicted)[columns]]
    timed_rows = timed.dropna(subset=["measured_ms"])
    if len(timed_rows):
        took = timed_rows["measured_ms"]
        start = took.cumsum() - took
        lines.append(timed_rows.assign(plan=measured, start_ms=start, predicted_ms=took)[columns])
    return pd.concat(lines, ignore_index=True)


def _numbered(frame: pd.DataFrame) -> Iterator[tuple[int, Mapping[Any, Any]]]:
    return enumerate(frame.to_dict("records"))


def _sentence(parts: Iterator[str]) -> str:
    every = list(parts)
    rest = len(every) - MOST_SAID
    return "; ".join(every[:MOST_SAID]) + (f"; and {rest} more" if rest > 0 else "") + "."


def _plan_sentence(row: Mapping[Any, Any], is_own: bool) -> str:
    name = plan_words(row["plan"], is_own)
    predicted = f"{format_ms(row['predicted_ms'])} ms predicted"
    if not math.isfinite(row["measured_ms"]):
        return f"{name}: {predicted}"
    return f"{name}: {format_ms(row['measured_ms'])} ms measured, {predicted}"


def _segment_sentence(row: Mapping[Any, Any]) -> str:
    where = target_words(row["target"])
    return f"segment {row['segment']} on {where}: {format_ms(row['predicted_ms'])} ms predicted"


def _parts_sentence(row: Mapping[Any, Any]) -> str:
    parts = ", ".join(
        f"{word} {format_ms(row[name])} ms" for name, word in figures_plan.PART_WORDS.items()
    )
    return f"segment {row['segment']}: {parts}"


def _timing_sentence(row: Mapping[Any, Any]) -> str:
    measured = f"{format_ms(row['measured_ms'])} ms measured"
    return f"segment {row['segment']}: {measured}, {format_ms(row['predicted_ms'])} ms predicted"


def _preference_sentence(row: Mapping[Any, Any]) -> str:
    return f"{target_words(row['target'])} {1 + row['relative']:.2f} ×"


def _reading_sentence(readings: RoundReadings) -> str:
    parts = []
    for words, unit, spread in (
        ("CPU clock", "MHz", readings.mhz),
        ("temperature", "°C", readings.celsius),
    ):
        if spread:
            low, middle, high = spread
            parts.append(f"{words} {low:.4g} to {high:.4g} {unit}, median {middle:.4g}")
    hot = f"{readings.throttled} of {readings.rounds} rounds throttled"
    return (
        "; ".join([*parts, hot if readings.tells_throttling else "throttling is not reported"])
        + "."
    )
