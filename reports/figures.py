"""Figures of a report, each from frames of :mod:`nnapi_prof.reports.frames`. No pyplot state."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.text import Text
from matplotlib.ticker import NullFormatter, ScalarFormatter
from numpy.typing import NDArray

from nnapi_prof.graph.plan import Target
from nnapi_prof.reports.style import FAINT, INK, STYLE, new_figure, title

_MANY_SEGMENTS = 24
"""Above this many segments predicted and measured stand in a scatter, not in bars."""


@mpl.rc_context(STYLE)
def unit_latency(units: pd.DataFrame, chosen: Mapping[int, str], simulated: bool) -> Figure:
    """Heat map of the latency of each unit alone on each target; the plan's choice is framed.

    ``units`` is :func:`~nnapi_prof.reports.frames.unit_frame`; ``chosen`` maps a unit to its
    target's key. Where a unit was not run alone, its fitted marginal cost stands in.
    """
    targets = list(dict.fromkeys(units["target"]))
    shown = units.assign(ms=units["alone_ms"].fillna(units["marginal_ms"]))
    table = shown.pivot(index="unit", columns="target", values="ms")[targets]
    refused = units[units["status"] == "refused"]
    labels = units.drop_duplicates("unit").set_index("unit")["label"]
    n, t = table.shape
    figure, axes = new_figure(4.2 + 0.62 * t, 1.5 + 0.23 * n)
    values = table.to_numpy(dtype=float)
    known = values[np.isfinite(values) & (values > 0)]
    low, high = (known.min(), known.max()) if len(known) else (1.0, 1.0)
    norm = LogNorm(low, max(high, low * 1.001))
    image = axes.imshow(
        np.where(values > 0, values, np.nan), cmap="cividis", norm=norm, aspect="auto"
    )
    for (row, column), ms in np.ndenumerate(values):
        if np.isfinite(ms):
            bright = ms > 0 and norm(ms) > 0.55
            ink = "black" if bright else ("white" if ms > 0 else INK)
            cell = axes.text(column, row, _digits(ms), ha="center", va="center", color=ink)
            cell.set_fontsize(6.5)
            cell.set_in_layout(False)  # hundreds of them, all inside the axes
    for column, first, length in _stretches([chosen.get(int(u)) for u in table.index], targets):
        frame = Rectangle((column - 0.48, first - 0.46), 0.96, length - 0.08, fill=False)
        frame.set(edgecolor="#D55E00", linewidth=2.0)
        axes.add_patch(frame)
    for unit, target in zip(refused["unit"], refused["target"], strict=True):
        row, column = list(table.index).index(unit), targets.index(target)
        axes.text(column, row, "×", ha="center", va="center", color=FAINT, size=9)
    axes.set_xticks(range(t), [_short(key) for key in targets], rotation=45, ha="left", size=8)
    axes.xaxis.tick_top()
    axes.set_yticks(range(n), [f"{u}  {_clip(str(labels[u]), 40)}" for u in table.index], size=7)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(
        image, ax=axes, orientation="horizontal", pad=0.01, aspect=45, fraction=0.03
    )
    bar.set_label(title("latency of the unit alone, ms", simulated), color=INK)
    bar.ax.tick_params(which="both", colors=INK, color=FAINT)
    bar.outline.set_visible(False)
    bar.ax.xaxis.set_major_formatter(lambda ms, _: f"{ms:g}")
    bar.ax.xaxis.set_minor_formatter(NullFormatter())
    axes.set_title(title("Latency per unit and target", simulated), color=INK, pad=12)
    return figure


@mpl.rc_context(STYLE)
def timeline(
    plans: pd.DataFrame, palette: Mapping[str, str], simulated: bool, *, heading: str
) -> Figure:
    """Each plan's segments one after another as predicted, coloured by accelerator.

    ``plans`` holds rows of :func:`~nnapi_prof.reports.frames.plan_frame` of one plan or several;
    ``palette`` maps a target's key to a colour (:func:`~nnapi_prof.reports.style.colours`).
    """
    names = list(dict.fromkeys(plans["plan"]))
    figure, axes = new_figure(9.2, 1.3 + 0.46 * max(len(names), 1))
    end = float((plans["start_ms"] + plans["predicted_ms"]).max()) if len(plans) else 1.0
    for row in plans.to_dict("records"):
        y = names.index(row["plan"])
        width = row["predicted_ms"]
        axes.barh(
            y, width, left=row["start_ms"], height=0.72, color=palette[row["target"]],
            edgecolor="white", linewidth=0.6,
        )  # fmt: skip
        if width > 0.035 * end:
            x = row["start_ms"] + width / 2
            axes.text(x, y, str(row["segment"]), ha="center", va="center", color="black", size=7.5)
    axes.set_yticks(range(len(names)), [_plan_name(name) for name in names])
    axes.invert_yaxis()
    axes.set_xlim(0, end * 1.02 or 1.0)
    axes.set_xlabel(title("predicted time, ms", simulated), color=INK)
    axes.set_title(title(heading, simulated), color=INK)
    unique: dict[str, str] = {}
    for key in dict.fromkeys(plans["target"]):
        unique.setdefault(Target(key).accelerator or key, palette[key])
    handles = [Patch(color=colour, label=name) for name, colour in unique.items()]
    legend = figure.legend(
        handles=handles, loc="outside lower center", ncols=6, frameon=False, fontsize=8
    )
    _ink(legend.get_texts())
    return figure


@mpl.rc_context(STYLE)
def predicted_against_measured(
    segments: pd.DataFrame, palette: Mapping[str, str], simulated: bool
) -> Figure:
    """Predicted and measured latency of the segments of one plan.

    ``segments`` holds rows of :func:`~nnapi_prof.reports.frames.segment_frame`. Bars for a
    few segments, a scatter around the diagonal for many.
    """
    known = segments.dropna(subset=["measured_ms"])
    if len(known) > _MANY_SEGMENTS:
        return _scatter(known, palette, simulated)
    figure, axes = new_figure(9.2, 1.4 + 0.5 * max(len(known), 1))
    y = np.arange(len(known))
    bars = [palette[key] for key in known["target"]]
    axes.barh(y - 0.2, known["measured_ms"], height=0.38, color=bars, label="measured")
    axes.barh(
        y + 0.2, known["predicted_ms"], height=0.38, color=bars, alpha=0.4, hatch="///",
        edgecolor="white", label="predicted",
    )  # fmt: skip
    _whiskers(known, y - 0.2, axes)
    end = float(known[["measured_ms", "predicted_ms", "high_ms"]].max().max()) if len(known) else 1
    for at, row in zip(y, known.to_dict("records"), strict=True):
        done, guess = row["measured_ms"], row["predicted_ms"]
        texts = (
            (-0.2, max(done, row["high_ms"]), _digits(done)),
            (0.2, guess, f"{_digits(guess)} predicted"),
        )
        for shift, x, text in texts:
            axes.text(x + 0.008 * end, at + shift, text, va="center", size=7, color=INK)
    names = [f"{row['segment']}  {_short(row['target'])}" for row in known.to_dict("records")]
    axes.set_yticks(y, names)
    axes.invert_yaxis()
    axes.set_xlim(0, end * 1.14 or 1.0)
    axes.set_xlabel(title("ms (bar: median, line: 10th to 90th percentile)", simulated), color=INK)
    axes.set_title(
        title("Segments: measured (solid) and predicted (hatched)", simulated), color=INK
    )
    return figure


def _scatter(known: pd.DataFrame, palette: Mapping[str, str], simulated: bool) -> Figure:
    figure, axes = new_figure(6.4, 5.6)
    for key, rows in known.groupby("target", sort=True):
        axes.scatter(
            rows["measured_ms"], rows["predicted_ms"], s=26, color=palette[str(key)],
            label=_short(str(key)), edgecolor="white", linewidth=0.4,
        )  # fmt: skip
    span = known[["measured_ms", "predicted_ms"]]
    ends = [float(span.min().min()) * 0.8, float(span.max().max()) * 1.25]
    axes.plot(ends, ends, color=FAINT, linewidth=0.9, linestyle="--")
    for axis, setter in ((axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)):
        setter("log")
        axis.set_major_formatter(ScalarFormatter())
        axis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="both", colors=INK, color=FAINT)
    axes.set_xlabel(title("measured, ms", simulated), color=INK)
    axes.set_ylabel(title("predicted, ms", simulated), color=INK)
    axes.set_title(title("Segments: predicted against measured", simulated), color=INK)
    _ink(axes.legend(frameon=False, fontsize=8).get_texts())
    return figure


@mpl.rc_context(STYLE)
def baseline_bars(baselines: pd.DataFrame, simulated: bool) -> Figure:
    """End-to-end latency of the plan (first row) and its baselines, measured and predicted."""
    figure, axes = new_figure(9.2, 1.2 + 0.52 * max(len(baselines), 1))
    y = np.arange(len(baselines))
    bars = ["#009E73" if i == 0 else "#56B4E9" for i in y]
    measured = baselines["measured_ms"].notna().any()
    if measured:
        axes.barh(y - 0.2, baselines["measured_ms"].fillna(0), height=0.38, color=bars)
        _whiskers(baselines, y - 0.2, axes)
    shift, height = (0.2, 0.38) if measured else (0.0, 0.6)
    axes.barh(
        y + shift, baselines["predicted_ms"], height=height, color=bars, alpha=0.4, hatch="///",
        edgecolor="white",
    )  # fmt: skip
    end = float(baselines[["measured_ms", "predicted_ms", "high_ms"]].max().max())
    for at, row in zip(y, baselines.to_dict("records"), strict=True):
        text = f"{_digits(row['predicted_ms'])} predicted"
        axes.text(
            row["predicted_ms"] + 0.008 * end, at + shift, text, va="center", size=7.5, color=INK
        )
        if measured:
            done = np.isfinite(row["measured_ms"])
            text = _digits(row["measured_ms"]) if done else "did not run"
            x = max(row["measured_ms"], row["high_ms"]) if done else 0.0
            axes.text(x + 0.008 * end, at - 0.2, text, va="center", size=7.5, color=INK)
    axes.set_yticks(y, [_plan_name(name) for name in baselines["plan"]])
    axes.invert_yaxis()
    axes.set_xlim(0, end * 1.14)
    what = "ms (solid: measured median, line: 10th to 90th percentile; hatched: predicted)"
    axes.set_xlabel(title(what if measured else "predicted, ms", simulated), color=INK)
    axes.set_title(title("The plan and its baselines, end to end", simulated), color=INK)
    return figure


@mpl.rc_context(STYLE)
def residuals(errors: pd.DataFrame, palette: Mapping[str, str], simulated: bool) -> Figure:
    """Relative errors of the fitted cost model over the rows it was fitted to, per target."""
    targets = list(dict.fromkeys(errors["target"]))
    figure, axes = new_figure(9.2, 1.3 + 0.3 * max(len(targets), 1))
    for y, key in enumerate(targets):
        percent = 100 * errors.loc[errors["target"] == key, "relative_error"].to_numpy()
        offset = np.linspace(-0.25, 0.25, len(percent)) if len(percent) > 1 else np.zeros(1)
        axes.scatter(percent, y + offset, s=7, color=palette[key], alpha=0.55, linewidth=0)
        axes.plot([np.median(percent)] * 2, [y - 0.36, y + 0.36], color=INK, linewidth=1.2)
    axes.axvline(0, color=FAINT, linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(targets)), [_short(key) for key in targets])
    axes.set_ylim(len(targets) - 0.4, -0.6)
    what = "(predicted − measured) / measured, %; a dot a measurement, the line is their median"
    axes.set_xlabel(title(what, simulated), color=INK)
    axes.set_title(
        title("How well sums of fitted costs meet what was measured", simulated), color=INK
    )
    return figure


def _stretches(
    chosen: Sequence[str | None], targets: Sequence[str]
) -> Iterator[tuple[int, int, int]]:
    """(column, first row, length) of each run of neighbouring rows with one choice."""
    row = 0
    for key, same in itertools.groupby(chosen):
        length = len(list(same))
        if key in targets:
            yield targets.index(key), row, length
        row += length


def _whiskers(rows: pd.DataFrame, y: NDArray[np.floating[Any]], axes: Axes) -> None:
    axes.hlines(y, rows["low_ms"], rows["high_ms"], color=INK, linewidth=1.1)


def _ink(texts: Iterable[Text]) -> None:
    for text in texts:
        text.set_color(INK)


def _digits(ms: float) -> str:
    """Three significant digits, no more than three decimals: ``12.3``, ``0.046``."""
    if not np.isfinite(ms):
        return "–"
    if ms >= 100:
        return f"{ms:.0f}"
    return f"{ms:.1f}" if ms >= 10 else (f"{ms:.2f}" if ms >= 1 else f"{ms:.3f}")


def _short(key: str) -> str:
    return key.removeprefix("nnapi:")


def _plan_name(name: str) -> str:
    return "this plan" if name == "dp" else name.replace(" nnapi:", "\n")


def _clip(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
