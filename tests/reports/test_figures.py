"""Figures from real frames: what they draw, their words, their SVG."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from nnapi_prof.graph.plan import CPU, HOST, Plan, Segment, Target
from nnapi_prof.reports import figures, frames
from nnapi_prof.reports.html import ReportData
from nnapi_prof.reports.style import colours, to_svg
from tests.reports.sample import AUTOS, GPU, NPU, run_of, sample


@pytest.fixture(scope="module")
def data() -> ReportData:
    return sample(24, (9,))


def every_figure(data: ReportData, simulated: bool) -> dict[str, Figure]:
    plans = (data.plan, *data.baselines)
    palette = colours(frames.all_targets(data.cost_model))
    chosen = {u: s.target.key for s in data.plan.segments for u in s.units}
    assert data.run is not None
    own = frames.plan_frame(data.plan, data.graph)
    timed = frames.segment_frame(data.run.runs[:1])
    return {
        "units": figures.unit_latency(frames.unit_frame(data.cost_model), chosen, simulated),
        "timeline": figures.timeline(own, palette, simulated, heading="Segments"),
        "segments": figures.predicted_against_measured(timed, palette, simulated),
        "baselines": figures.baseline_bars(frames.baseline_frame(plans, data.run), simulated),
        "residuals": figures.residuals(frames.residual_frame(data.cost_model), palette, simulated),
    }


@pytest.mark.parametrize("simulated", [True, False])
def test_every_figure_says_whether_it_is_simulated(data: ReportData, simulated: bool) -> None:
    for name, figure in every_figure(data, simulated).items():
        axes = figure.axes[0]
        words = axes.get_title() + axes.get_xlabel()
        assert ("simulated" in words) is simulated, name
        assert axes.get_title()


def test_bars_show_the_frame(data: ReportData) -> None:
    assert data.run is not None
    frame = frames.baseline_frame((data.plan, *data.baselines), data.run)
    axes = figures.baseline_bars(frame, True).axes[0]
    widths = [patch.get_width() for patch in axes.patches]  # type: ignore[attr-defined]
    assert widths == pytest.approx([*frame["measured_ms"], *frame["predicted_ms"]])
    assert axes.get_yticklabels()[0].get_text() == "this plan"


def test_heat_map_has_a_row_for_each_unit_and_marks_refusals(data: ReportData) -> None:
    axes = every_figure(data, True)["units"].axes[0]
    assert len(axes.get_yticklabels()) == 24
    texts = [text.get_text() for text in axes.texts]
    assert texts.count("×") == 3
    assert len(axes.patches) == len(data.plan.segments)  # one frame a stretch of one choice


def test_many_segments_become_a_scatter(data: ReportData) -> None:
    segments = tuple(Segment((u,), CPU, 1e5, "one by one") for u in range(24)) * 2
    plan = Plan("dp", segments, True)
    run = run_of(data.graph, [plan], "net.pt").runs[0]
    timed = frames.segment_frame([run])
    axes = figures.predicted_against_measured(timed, colours([CPU]), True).axes[0]
    assert axes.get_xscale() == "log" and len(axes.collections[0].get_offsets()) == 48


def test_without_a_run_only_predictions_are_drawn(data: ReportData) -> None:
    frame = frames.baseline_frame((data.plan, *data.baselines), None)
    axes = figures.baseline_bars(frame, True).axes[0]
    assert len(axes.patches) == len(frame) and "measured" not in axes.get_xlabel()


def test_one_colour_for_each_accelerator() -> None:
    palette = colours([CPU, HOST, *NPU, *GPU, *AUTOS])
    assert len(set(palette.values())) == 5
    assert len({palette[t.key] for t in NPU}) == 1


def test_svg_stands_alone_and_follows_the_theme(data: ReportData) -> None:
    svg = to_svg(every_figure(data, True)["timeline"], "one", "a timeline")
    root = ET.fromstring(svg)
    assert root.get("role") == "img" and root.get("aria-label") == "a timeline"
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert ids and all(str(i).startswith("one-") for i in ids) and len(ids) == len(set(ids))
    assert "currentColor" in svg and "<metadata" not in svg and "<!DOCTYPE" not in svg


def test_same_data_give_the_same_bytes(data: ReportData) -> None:
    first, second = (to_svg(every_figure(data, True)["segments"], "a", "b") for _ in range(2))
    assert first == second


def test_labels_are_text_not_markup(data: ReportData) -> None:
    odd = "a$b$<script>&"
    units = tuple(replace(u, label=odd) for u in data.graph.units)
    graph = replace(data.graph, units=units)
    model = replace(data.cost_model, graph=graph)
    svg = to_svg(figures.unit_latency(frames.unit_frame(model), {}, True), "f", "d")
    assert "<script>" not in svg
    assert odd in "".join(ET.fromstring(svg).itertext())


def test_unknown_target_names_do_no_harm() -> None:
    palette = colours([Target("nnapi:a/b/fast"), Target("nnapi:$x$/fast")])
    assert len(palette) == 2


def test_pyplot_stays_unloaded() -> None:
    code = (
        "import sys, nnapi_prof.reports.html\n"
        "bad = {'matplotlib.pyplot', 'torch', 'adb_shell'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {sorted(bad)}' if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
