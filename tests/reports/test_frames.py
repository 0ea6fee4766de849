"""Numbers of the frames against the objects they come from."""

import math
from dataclasses import replace

import pytest

from nnapi_prof.graph.plan import CPU, HOST, Plan, Segment
from nnapi_prof.reports import frames
from tests.reports.sample import NPU, REFUSAL, TARGETS, sample


@pytest.fixture(scope="module")
def data():
    return sample(24, (9,))


def test_plan_rows_follow_the_plan(data):
    frame = frames.plan_frame(data.plan, data.graph)
    assert list(frame.columns) == list(frames.PLAN_COLUMNS)
    assert frame["predicted_ms"].sum() == pytest.approx(data.plan.predicted_ns / 1e6)
    assert [row["units"] for row in frame.to_dict("records")] == [
        s.units for s in data.plan.segments
    ]
    ends = frame["start_ms"] + frame["predicted_ms"]
    assert list(frame["start_ms"][1:]) == pytest.approx(list(ends[:-1]))
    assert frame["macs"].sum() == sum(unit.macs for unit in data.graph.units)
    first = frame.iloc[0]
    assert first["in_bytes"] == 4 * 3 * 224 * 224
    target = data.plan.segments[0].target
    assert (first["target"], first["accelerator"]) == (target.key, target.accelerator)
    assert target.preference and first["preference"] == target.preference.short


@pytest.mark.parametrize(
    ("measured", "estimated", "basis"),
    [(True, False, "measured"), (False, True, "estimated"), (False, False, "sum")],
)
def test_plan_says_what_it_rests_on(data, measured, estimated, basis):
    segment = Segment((0,), HOST, 1.0, "why", measured, estimated)
    frame = frames.plan_frame(Plan("p", (segment,), True), data.graph)
    assert frame["basis"].item() == basis and frame["accelerator"].item() is None


def test_units_carry_costs_and_refusals(data):
    frame = frames.unit_frame(data.cost_model).set_index(["unit", "target"])
    assert len(frame) == 24 * len(TARGETS)
    for target in NPU:
        refused = frame.loc[(9, target.key)]
        assert refused["status"] == "refused" and REFUSAL in refused["reason"]
        assert math.isnan(refused["marginal_ms"]) and math.isnan(refused["alone_ms"])
    cell = frame.loc[(3, "cpu")]
    row = data.cost_model.whole((3,), CPU)
    assert cell["alone_ms"] == row.summary.median_ns / 1e6
    assert cell["marginal_ms"] * 1e6 == pytest.approx(data.cost_model.unit_cost(3, CPU))
    assert cell["status"] == "measured" and 0 < cell["spread"] < 0.1


def test_baselines_have_measured_beside_predicted(data):
    plans = (data.plan, *data.baselines)
    frame = frames.baseline_frame(plans, data.run)
    assert list(frame["plan"]) == [plan.name for plan in plans]
    for row, run in zip(frame.to_dict("records"), data.run.runs, strict=True):
        assert row["measured_ms"] * 1e6 == pytest.approx(run.median_ns)
        assert row["low_ms"] <= row["measured_ms"] <= row["high_ms"]
        assert row["runs"] == 9
    without = frames.baseline_frame(plans, None)
    assert without["measured_ms"].isna().all() and (without["runs"] == 0).all()


def test_segments_of_a_run(data):
    frame = frames.segment_frame(data.run.runs)
    assert len(frame) == sum(len(run.segments) for run in data.run.runs)
    row = frame.iloc[0]
    timing = data.run.runs[0].segments[0]
    assert row["measured_ms"] * 1e6 == pytest.approx(timing.median_ns)
    expected = (timing.predicted_ns - timing.median_ns) / timing.median_ns
    assert row["relative_error"] == pytest.approx(expected)


def test_measurements_are_summarised(data):
    frame = frames.measurement_frame(data.measurements)
    assert len(frame) == len(data.measurements)
    refused = frame[frame["status"] == "refused"]
    assert len(refused) == 3 and refused["median_ms"].isna().all()
    assert set(frame["kind"]) == {"unit", "chain"}
    assert (frame.loc[frame["status"] == "ok", "runs"] == 7).all()


def test_fit_and_residuals(data):
    fits = frames.fit_frame(data.cost_model).set_index("target")
    residuals = frames.residual_frame(data.cost_model)
    assert fits.loc["nnapi:sim-npu/fast", "overhead_ms"] == pytest.approx(0.35, rel=0.1)
    assert residuals.groupby("target").size().to_dict() == fits["rows"].to_dict()
    assert (fits["median_error"] < 0.03).all()


def test_empty_frames_keep_their_columns(data):
    assert list(frames.segment_frame([]).columns) == list(frames.SEGMENT_COLUMNS)
    assert list(frames.baseline_frame([], None).columns) == list(frames.BASELINE_COLUMNS)
    assert list(frames.measurement_frame([]).columns) == list(frames.MEASUREMENT_COLUMNS)


def test_what_is_not_said_is_none_not_nan(data):
    """A NaN is true, and would print as a word."""
    runs = (data.run.runs[0], replace(data.run.runs[1], error="crashed"), *data.run.runs[2:])
    errors = frames.baseline_frame(data.plans, replace(data.run, runs=runs))["error"]
    assert errors[0] is None and errors[1] == "crashed"
    reasons = list(frames.unit_frame(data.cost_model)["reason"])
    assert None in reasons and any(isinstance(reason, str) for reason in reasons)
    assert all(reason is None or isinstance(reason, str) for reason in reasons)
