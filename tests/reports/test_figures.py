"""Figures from real frames: what they draw, and their words."""

import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle

from nnapi_prof.graph.plan import CPU, HOST, Plan, Segment, Target
from nnapi_prof.reports import figures, figures_plan, frames
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.device_frames import history_frame, preference_frame
from nnapi_prof.reports.drawings import predicted_beside_measured, stacked_bars
from nnapi_prof.reports.style import NARROW, WIDE, colours
from nnapi_prof.reports.words import LatencySource
from tests.reports.sample import AUTOS, GPU, NPU, hot, run_of

MEASURED, SIMULATED = LatencySource.MEASURED, LatencySource.SIMULATED


def every_figure(data: ReportData, source: LatencySource, width: float = WIDE) -> dict[str, Figure]:
    palette = colours(frames.all_targets(data.cost_model))
    chosen = {u: s.target.key for s in data.plan.segments for u in s.units}
    timed = frames.segment_frame(data.run.runs[:1])
    units = frames.unit_frame(data.cost_model)
    errors = frames.residual_frame(data.cost_model)
    both = predicted_beside_measured(frames.plan_frame(data.plan, data.graph), timed)
    preferences = preference_frame(data.cost_model)
    history = history_frame(hot(data.measurements))
    return {
        "units": figures.unit_latency(units, chosen, source, width=width),
        "timeline": figures.timeline(both, palette, source, heading="Segments", width=width),
        "residuals": figures.residuals(errors, palette, source, width=width),
        "segments": figures_plan.predicted_against_measured(
            timed, palette, source, source, width=width
        ),
        "baselines": baseline_bars(data, source, source, width),
        "preferences": figures.preference_bars(preferences, palette, source, width=width),
        "history": figures_plan.device_history(history, source, width=width),
    }


def baseline_bars(
    data: ReportData, source: LatencySource, run_source: LatencySource, width: float = WIDE
) -> Figure:
    frame = frames.baseline_frame(data.plans, data.run)
    palette = colours(frames.all_targets(data.cost_model))
    return figures_plan.baseline_bars(
        frame, stacked_bars(data), palette, source, run_source, width=width
    )


@pytest.mark.parametrize("source", LatencySource)
def test_every_figure_names_the_source_of_its_latencies(data, source):
    for name, figure in every_figure(data, source).items():
        axes = figure.axes[0]
        heading = axes.get_title() or axes.get_title(loc="left")
        assert heading, name
        named = [each for each in LatencySource if each.value and each.value in heading]
        assert named == ([source] if source.value else []), name


@pytest.mark.parametrize(
    "source, run_source, axis",
    [
        (SIMULATED, SIMULATED, "measured median, ms, simulated (◇ predicted, simulated)"),
        (SIMULATED, MEASURED, "measured median, ms (◇ predicted, simulated)"),
        (MEASURED, SIMULATED, "measured median, ms, simulated (◇ predicted)"),
        (MEASURED, MEASURED, "measured median, ms (◇ predicted)"),
    ],
)
def test_a_plan_that_ran_elsewhere(data, source, run_source, axis):
    """A plan for a simulated phone is run on a real one, or the other way round."""
    (axes,) = baseline_bars(data, source, run_source).axes
    assert axes.get_xlabel() == axis
    assert ("simulated" in axes.get_title(loc="left")) is (source is run_source is SIMULATED)


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_no_text_leaves_the_figure(data, width):
    for name, figure in every_figure(data, SIMULATED, width).items():
        box = figure.get_tightbbox()
        wide, high = figure.get_size_inches()
        inside = box.x0 >= -0.03 and box.x1 <= wide + 0.03
        assert inside and box.y0 >= -0.03 and box.y1 <= high + 0.03, (name, box, wide, high)


def bars(figure: Figure) -> list[Rectangle]:
    return [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]


def test_bars_show_the_frame_in_the_colours_of_segments(data):
    shown = bars(baseline_bars(data, SIMULATED, SIMULATED))
    assert len(shown) == len(stacked_bars(data))
    frame = frames.baseline_frame(data.plans, data.run)
    own = [bar for bar in shown if bar.get_y() < 0]
    assert sum(bar.get_width() for bar in own) == pytest.approx(frame["measured_ms"][0], rel=0.02)
    palette = colours(frames.all_targets(data.cost_model))
    assert [to_hex(bar.get_facecolor()) for bar in own] == [
        palette[s.target.key] for s in data.plan.segments
    ]


def test_what_takes_far_longer_is_cut_off_and_says_so():
    plan, ms, unknown = ["dp", "greedy"], [1.0, 100.0], math.nan
    frame = pd.DataFrame({"plan": plan, "measured_ms": ms, "predicted_ms": [1.0, 90.0]})
    frame = frame.assign(low_ms=unknown, high_ms=unknown)
    segments, black = pd.DataFrame({"plan": plan, "target": "cpu", "ms": ms}), {"cpu": "#000000"}
    axes = figures_plan.baseline_bars(frame, segments, black, MEASURED, MEASURED).axes[0]
    texts = [text.get_text() for text in axes.texts]
    assert "»" in texts and "100 ms (90.0)" in texts
    assert axes.get_xlim()[1] < 10


def test_heat_map_draws_every_cell_once_and_marks_refusals(data):
    (axes, *_) = every_figure(data, SIMULATED)["units"].axes
    units = frames.unit_frame(data.cost_model)
    cells = sum(len(p.get_path()) for p in axes.patches if isinstance(p, PathPatch)) // 5
    assert cells == units["marginal_ms"].notna().sum()
    refused = next(line for line in axes.lines if line.get_gid() == "refused")
    assert len(np.asarray(refused.get_xdata())) == (units["status"] == "refused").sum() == 3
    drawn = [p for p in axes.patches if isinstance(p, Rectangle)]
    assert len(drawn) == len(data.plan.segments)  # a frame for each stretch of one choice


def test_heat_map_of_a_large_model_stays_on_a_page(data):
    units = frames.unit_frame(data.cost_model)
    many = pd.concat(units.assign(unit=units["unit"] + 24 * i) for i in range(20))
    figure = figures.unit_latency(many, {}, SIMULATED)
    assert figure.get_size_inches()[1] < figures.MOST_HEIGHT + 4
    assert len(figure.axes[0].get_yticklabels()) < 120


def test_many_segments_become_a_scatter(data):
    segments = tuple(Segment((u,), CPU, 1e5, "one by one") for u in range(24)) * 2
    run = run_of(data.graph, [Plan("dp", segments, True)], "net.pt")
    timed, black = frames.segment_frame(run.runs), colours([CPU])
    axes = figures_plan.predicted_against_measured(timed, black, SIMULATED, SIMULATED).axes[0]
    assert axes.get_xscale() == "log" and len(axes.collections[0].get_offsets()) == 48


def test_without_a_run_only_predictions_are_drawn(data):
    figure = baseline_bars(replace(data, run=None), SIMULATED, MEASURED)
    assert len(bars(figure)) == sum(len(plan.segments) for plan in data.plans)
    assert "measured" not in figure.axes[0].get_xlabel() and not figure.axes[0].lines


def test_many_errors_are_thinned_but_keep_their_ends():
    values = np.concatenate([[-0.9], np.linspace(-0.1, 0.1, 5000), [0.8]])
    errors = pd.DataFrame({"target": "cpu", "relative_error": values})
    dots = figures.residuals(errors, {"cpu": "#000000"}, MEASURED).axes[0].collections[0]
    drawn = np.asarray(dots.get_offsets())[:, 0]
    assert len(drawn) == figures.MOST_DOTS
    assert drawn.min() == pytest.approx(-90) and drawn.max() == pytest.approx(80)
    assert np.median(drawn) == pytest.approx(0, abs=0.2)


def test_history_marks_what_was_throttled(data):
    rows = hot(data.measurements)
    axes = figures_plan.device_history(history_frame(rows), SIMULATED).axes
    assert [a.get_title(loc="left") for a in axes] == [
        "CPU clock, MHz (simulated)", "temperature, °C (simulated)",
    ]  # fmt: skip
    step = math.ceil(len(rows) / figures_plan.MOST_POINTS)
    marked = {i // step for i, m in enumerate(rows) if any("throttled" in f for f in m.flags)}
    marks = np.asarray(axes[0].lines[1].get_xdata())
    assert len(marked) > 0 and {(x - 1) // step for x in marks} == marked
    assert len(np.asarray(axes[0].lines[0].get_xdata())) == math.ceil(len(rows) / step)


def test_one_colour_for_each_accelerator_whatever_its_name():
    palette = colours([CPU, HOST, *NPU, *GPU, *AUTOS])
    assert len(set(palette.values())) == 5
    assert len({palette[t.key] for t in NPU}) == 1
    assert len(colours([Target("nnapi:a/b/fast"), Target("nnapi:$x$/fast")])) == 2


def test_pyplot_stays_unloaded():
    code = (
        "import sys, nnapi_prof.reports.html\n"
        "print({'matplotlib.pyplot', 'torch', 'adb_shell'} & set(sys.modules))"
    )
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert loaded == "set()\n"
