"""Frames beside the numbers of the golden report."""

import math
from dataclasses import replace

import pytest

from nnapi_prof.graph.plan import CPU, HOST, Plan, Segment
from nnapi_prof.reports import frames
from tests.reports.sample import NPU, REFUSAL, TARGETS, split


def test_plan_rows_follow_each_other(data):
    plan = split(data).plan
    frame = frames.plan_frame(plan, data.graph)
    assert list(frame.columns) == list(frames.PLAN_COLUMNS)
    assert frame["start_ms"].tolist() == pytest.approx([0, plan.segments[0].predicted_ns / 1e6])
    assert frame["macs"].sum() == sum(unit.macs for unit in data.graph.units)
    placed = ["target", "accelerator", "preference"]
    assert frame[placed].iloc[0].tolist() == ["nnapi:sim-npu/fast", "sim-npu", "fast"]


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
    assert cell["alone_ms"] == data.cost_model.whole((3,), CPU).summary.median_ns / 1e6
    assert cell["status"] == "measured" and 0 < cell["spread"] < 0.1


def test_segments_of_a_run(data):
    frame = frames.segment_frame(data.run.runs)
    timings = [timing for run in data.run.runs for timing in run.segments]
    assert frame["measured_ms"].tolist() == [timing.median_ns / 1e6 for timing in timings]
    errors = [timing.predicted_ns / timing.median_ns - 1 for timing in timings]
    assert frame["relative_error"].tolist() == pytest.approx(errors)


def test_measurements_are_summarised(data):
    frame = frames.measurement_frame(data.measurements)
    assert len(frame) == len(data.measurements)
    refused = frame[frame["status"] == "refused"]
    assert len(refused) == 3 and refused["median_ms"].isna().all()
    assert set(frame["kind"]) == {"unit", "chain"}
    assert (frame.loc[frame["status"] == "ok", "runs"] == 7).all()


def test_each_residual_is_of_a_fitted_row(data):
    residuals = frames.residual_frame(data.cost_model)
    fits = frames.fit_frame(data.cost_model).set_index("target")
    assert residuals.groupby("target").size().to_dict() == fits["rows"].to_dict()


def test_before_a_run_and_without_rows_columns_stay(data):
    frame = frames.baseline_frame(data.plans, None)
    assert frame["measured_ms"].isna().all() and (frame["runs"] == 0).all()
    for empty, columns in (
        (frames.segment_frame([]), frames.SEGMENT_COLUMNS),
        (frames.baseline_frame([], None), frames.BASELINE_COLUMNS),
        (frames.measurement_frame([]), frames.MEASUREMENT_COLUMNS),
    ):
        assert list(empty.columns) == list(columns)


def test_what_is_not_said_is_none_not_nan(data):
    """A NaN is true, and would print as a word."""
    runs = (data.run.runs[0], replace(data.run.runs[1], error="crashed"), *data.run.runs[2:])
    errors = frames.baseline_frame(data.plans, replace(data.run, runs=runs))["error"]
    assert errors[0] is None and errors[1] == "crashed"
    reasons = list(frames.unit_frame(data.cost_model)["reason"])
    assert None in reasons and any(isinstance(reason, str) for reason in reasons)
    assert all(reason is None or isinstance(reason, str) for reason in reasons)
