"""Figures from real frames, what they draw, and as SVG; many frames at once."""

import itertools
import json
import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle

from nnapi_prof.bundle import FrontRow
from nnapi_prof.graph.plan import CPU, HOST, Plan, Segment, Target
from nnapi_prof.reports import drawings, figures, figures_plan, frames, trace
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.device_frames import history_frame, preference_frame
from nnapi_prof.reports.drawings import predicted_beside_measured, segments_curve, stacked_bars
from nnapi_prof.reports.figures_plan import PARTS, parts_frame
from nnapi_prof.reports.sections import RATES
from nnapi_prof.reports.style import FAINT, HEAT, INK, NARROW, VARIABLES, WIDE, colours, to_svg
from nnapi_prof.reports.words import LatencySource
from tests.reports.sample import AUTOS, GPU, NPU, hot, ran_at_once, run_of, sample, split

MEASURED, SIMULATED = LatencySource.MEASURED, LatencySource.SIMULATED


def every_figure(data: ReportData, source: LatencySource, width: float = WIDE) -> dict[str, Figure]:
    costs, at = data.cost_model, {"width": width}
    palette = colours(frames.all_targets(costs))
    chosen = {u: s.target.key for s in data.plan.segments for u in s.units}
    timed = frames.segment_frame(data.run.runs[:1])
    both = predicted_beside_measured(frames.plan_frame(data.plan, data.graph), timed)
    history = history_frame(hot(data.measurements))
    return {
        "units": figures.unit_latency(frames.unit_frame(costs), chosen, source, **at),
        "timeline": figures.timeline(both, palette, source, heading="Segments", **at),
        "residuals": figures.residuals(frames.residual_frame(costs), palette, source, **at),
        "segments": figures_plan.predicted_against_measured(timed, palette, source, source, **at),
        "baselines": baseline_bars(data, source, source, width),
        "preferences": figures.preference_bars(preference_frame(costs), palette, source, **at),
        "history": figures_plan.device_history(history, source, **at),
    }


def baseline_bars(
    data: ReportData, source: LatencySource, run_source: LatencySource, width: float = WIDE
) -> Figure:
    frame, bars = frames.baseline_frame(data.plans, data.run), stacked_bars(data)
    palette = colours(frames.all_targets(data.cost_model))
    return figures_plan.baseline_bars(frame, bars, palette, source, run_source, width=width)


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
    plan, ms = ["dp", "greedy"], [1.0, 100.0]
    frame = pd.DataFrame({"plan": plan, "measured_ms": ms, "predicted_ms": [1.0, 90.0]})
    frame = frame.assign(low_ms=math.nan, high_ms=math.nan)
    segments, black = pd.DataFrame({"plan": plan, "target": "cpu", "ms": ms}), {"cpu": "#000000"}
    axes = figures_plan.baseline_bars(frame, segments, black, MEASURED, MEASURED).axes[0]
    assert {"»", "100 ms (90.0)"} <= {text.get_text() for text in axes.texts}
    assert axes.get_xlim()[1] < 10


def test_heat_map_draws_every_cell_once_marks_refusals_and_stays_on_a_page(data):
    (axes, *_) = every_figure(data, SIMULATED)["units"].axes
    units = frames.unit_frame(data.cost_model)
    cells = sum(len(p.get_path()) for p in axes.patches if isinstance(p, PathPatch)) // 5
    assert cells == units["marginal_ms"].notna().sum()
    refused = next(line for line in axes.lines if line.get_gid() == "refused")
    assert len(np.asarray(refused.get_xdata())) == (units["status"] == "refused").sum() == 3
    drawn = [p for p in axes.patches if isinstance(p, Rectangle)]
    assert len(drawn) == len(data.plan.segments)  # a frame for each stretch of one choice
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


SVG = "{http://www.w3.org/2000/svg}"


def heat_map(data: ReportData) -> Figure:
    return figures.unit_latency(frames.unit_frame(data.cost_model), {}, SIMULATED)


def timeline(data: ReportData) -> Figure:
    palette = colours(frames.all_targets(data.cost_model))
    own = frames.plan_frame(data.plan, data.graph)
    return figures.timeline(own, palette, SIMULATED, heading="Segments")


def test_it_has_words_and_ids_of_its_own_and_finds_them(data):
    words = "A <title>", 'said "so" & more'
    first, second = (str(to_svg(timeline(data), "one", *words)) for _ in range(2))
    assert first == second
    root = ET.fromstring(first)
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert (title.text, description.text, root.get("role")) == (*words, "img")
    assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert all(name.startswith("one-") for name in ids) and len(ids) == len(set(ids))
    named = {a or b for a, b in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', first)}
    assert named and named <= set(ids)


def test_it_follows_the_page_is_small_and_loses_no_shape(data):
    text = str(to_svg(heat_map(data), "one", "t", "d"))
    assert "currentColor" in text and "var(--heat-0," in text and INK not in text
    assert re.findall(r"(?<!,)#[0-9a-f]{6}", text) == []  # after a variable, it is a default
    assert "font-family" not in text and "<metadata" not in text and "<style" not in text
    assert len(text) < 60_000
    corners = sum(len(re.findall("M", d)) for d in re.findall(r'<path d="([^"]+)" clip', text))
    assert corners >= frames.unit_frame(data.cost_model)["marginal_ms"].notna().sum()
    assert {INK, FAINT, *(light for light, _ in HEAT)} <= set(VARIABLES)  # follow the theme


def test_dots_of_one_look_say_so_once(data):
    errors = frames.residual_frame(data.cost_model)
    palette = colours(frames.all_targets(data.cost_model))
    text = str(to_svg(figures.residuals(errors, palette, SIMULATED), "one", "t", "d"))
    assert text.count("<use") >= len(errors)
    for colour in {palette[key] for key in errors["target"]}:
        assert 0 < text.count(f"fill:{colour}") <= 2 * errors["target"].nunique()


def test_labels_are_text_not_markup(data):
    odd = 'a$b$<script>& id="x" url(#y)'
    units = tuple(replace(u, operation=odd, sizes="") for u in data.graph.units)
    model = replace(data.cost_model, graph=replace(data.graph, units=units))
    text = to_svg(heat_map(replace(data, cost_model=model)), "f", "t", "d")
    assert "<script>" not in text and odd in "".join(ET.fromstring(text).itertext())
    shown = timeline(data)._repr_svg_()  # in a notebook
    assert ET.fromstring(shown).tag == f"{SVG}svg"


@pytest.fixture(scope="module")
def at_once():
    return ran_at_once(split(sample(12, ())))


def test_lanes_show_some_frames_in_the_middle_of_the_last_round(at_once):
    rows = frames.lane_frame(at_once.run.frames[0], at_once.plans, 4)
    assert rows["plan"].tolist() == ["cpu"] * 4 + ["sim-npu"] * 4
    assert rows["segment"].tolist() == [43, 44, 45, 46] * 2  # of frames 30 to 59
    assert rows["start_ms"].tolist() == pytest.approx([2, 5, 8, 11, 0, 3, 6, 9])
    assert set(rows["predicted_ms"]) == {2.0, 3.0}
    assert rows["target"].tolist() == [CPU.key] * 4 + [NPU[1].key] * 4


def test_rates_and_trace_tell_of_the_same_frames(at_once):
    (row,) = RATES.rows(at_once)
    assert row == ("mixture of plans", "333.3", "330", "5.00", "5.00", "59 of 60")
    assert RATES.rows(replace(at_once, run=None)) == []
    events = json.loads(trace.render(at_once))["traceEvents"]
    own = [event for event in events if event.get("cat") == "frame"]
    assert len(own) == 120 and {event["dur"] for event in own} == {2000.0, 3000.0}
    assert min(event["ts"] for event in own) == 0 and own[0]["args"]["simulated"]
    names = [e["args"]["name"] for e in events if e["ph"] == "M" and "name" in e["args"]]
    assert "mixture of plans: frames, measured, simulated" in names and "sim-npu" in names


def test_parts_add_up_to_what_was_measured():
    data = sample(12, (4,))
    frame = parts_frame(data.plan, data.cost_model, data.run_of_plan)
    assert frame[list(PARTS)].sum(axis=1).tolist() == pytest.approx(frame["measured_ms"].tolist())
    planned = parts_frame(data.plan, data.cost_model, None)
    assert planned[list(PARTS)].sum(axis=1).tolist() == pytest.approx(planned["predicted_ms"])
    palette = colours([CPU, *NPU, data.plan.segments[0].target])
    figure = figures_plan.part_bars(frame, palette, SIMULATED)
    assert any(text.get_text().startswith("work ") for text in figure.axes[0].texts)


def test_latency_falls_with_segments(data, monkeypatch):
    assert segments_curve(data) == []  # more segments gain nothing
    monkeypatch.setattr(drawings, "NOISE", -1.0)
    points = segments_curve(data)
    assert segments_curve(replace(data, plan=replace(data.plan, proof=None))) == []
    assert [n for n, _ in points] == sorted({n for n, _ in points})
    assert all(a >= b for (_, a), (_, b) in itertools.pairwise(points))


def test_a_front_names_what_was_chosen():
    front = [
        FrontRow("fast", False, 2e6, 0.02, 0.02, 0.01, 0.03, 1, {}),
        FrontRow("exact", False, 4e6, 0.0, 0.0, 0.0, 0.0, 2, {}),
        FrontRow("all-int8", True, 3e6, 0.05, 0.05, 0.05, 0.05, 1, {}),
    ]
    figure = figures_plan.precision_front(front, "fast", MEASURED, width=NARROW)
    svg = to_svg(figure, "a", "b", "c")
    assert "this plan, fast" in svg and "all-int8" in svg and "simulated" not in svg
