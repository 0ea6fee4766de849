"""Many frames at once in reports: lanes in time, frames per second, the trace; and the figures that
a plan is chosen by."""

import itertools
import json
from dataclasses import replace

import pytest

from nnapi_prof.bundle import FrontRow
from nnapi_prof.bundle.plan_set import FrameSchedule, PlanChoice
from nnapi_prof.device.protocol import FrameSample, Outcome
from nnapi_prof.execution.report import FrameScheduleRun, LaneSpan
from nnapi_prof.graph.plan import CPU
from nnapi_prof.reports import drawings, figures_plan, frames, trace
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.drawings import segments_curve
from nnapi_prof.reports.figures_plan import PARTS, parts_frame
from nnapi_prof.reports.sections import RATES
from nnapi_prof.reports.style import NARROW, colours, to_svg
from nnapi_prof.reports.words import LatencySource
from tests.reports.sample import NPU, sample, split

N = 30
"""Frames of each of two rounds."""
MS = 1_000_000


def ran_at_once(data: ReportData) -> ReportData:
    """The split plan with frames at once: 2 ms on the NPU, then 3 ms on the CPU, a frame each 3 ms;
    the last one failed."""
    spans, samples = [], []
    for frame in range(2 * N):
        begin = 1_000 * MS + 3 * MS * frame
        spans.append(LaneSpan("sim-npu", 0, 0, frame, begin, begin + 2 * MS))
        spans.append(LaneSpan("cpu", 0, 1, frame, begin + 2 * MS, begin + 5 * MS))
        outcome = Outcome.FAILED if frame == 2 * N - 1 else Outcome.SAME
        samples.append(FrameSample(0, outcome, begin, begin + 5 * MS))
    way = FrameSchedule(
        "mixture of plans", (PlanChoice(0, share=1.0),), 2, predicted_per_second=330.0
    )
    run = FrameScheduleRun(way, tuple(samples), tuple(spans), (N, N))
    return replace(data, run=replace(data.run, frames=(run,)))


@pytest.fixture(scope="module")
def data():
    return ran_at_once(split(sample(12, ())))


def test_lanes_show_some_frames_in_the_middle_of_the_last_round(data):
    rows = frames.lane_frame(data.run.frames[0], data.plans, 4)
    assert rows["plan"].tolist() == ["cpu"] * 4 + ["sim-npu"] * 4
    assert rows["segment"].tolist() == [43, 44, 45, 46] * 2  # of frames 30 to 59
    assert rows["start_ms"].tolist() == pytest.approx([2, 5, 8, 11, 0, 3, 6, 9])
    assert set(rows["predicted_ms"]) == {2.0, 3.0}
    assert rows["target"].tolist() == [CPU.key] * 4 + [NPU[1].key] * 4


def test_rates_and_trace_tell_of_the_same_frames(data):
    (row,) = RATES.rows(data)
    assert row == ("mixture of plans", "333.3", "330", "5.00", "5.00", f"{2 * N - 1} of {2 * N}")
    assert RATES.rows(replace(data, run=None)) == []
    events = json.loads(trace.render(data))["traceEvents"]
    own = [event for event in events if event.get("cat") == "frame"]
    assert len(own) == 4 * N and {event["dur"] for event in own} == {2000.0, 3000.0}
    assert min(event["ts"] for event in own) == 0 and own[0]["args"]["simulated"]
    names = [e["args"]["name"] for e in events if e["ph"] == "M" and "name" in e["args"]]
    assert "mixture of plans: frames, measured, simulated" in names and "sim-npu" in names


def test_parts_add_up_to_what_was_measured(data):
    data = sample(12, (4,))
    frame = parts_frame(data.plan, data.cost_model, data.run_of_plan)
    assert frame[list(PARTS)].sum(axis=1).tolist() == pytest.approx(frame["measured_ms"].tolist())
    planned = parts_frame(data.plan, data.cost_model, None)
    assert planned[list(PARTS)].sum(axis=1).tolist() == pytest.approx(planned["predicted_ms"])
    figure = figures_plan.part_bars(
        frame, colours([CPU, *NPU, data.plan.segments[0].target]), LatencySource.SIMULATED
    )
    assert any(text.get_text().startswith("work ") for text in figure.axes[0].texts)


def test_latency_falls_with_segments(monkeypatch):
    data = sample(24, (9,))
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
    figure = figures_plan.precision_front(front, "fast", LatencySource.MEASURED, width=NARROW)
    svg = to_svg(figure, "a", "b", "c")
    assert "this plan, fast" in svg and "all-int8" in svg and "simulated" not in svg
