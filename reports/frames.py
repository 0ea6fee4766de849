"""Plans, costs and runs as tidy pandas DataFrames: one observation per row, times in ms.

Columns do not depend on the data, so that an empty frame has them, too. Unknown times are NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from nnapi_prof.convert.region import Permutes
from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.costs.model import CostModel
from nnapi_prof.costs.model.views import marginal
from nnapi_prof.device.protocol import Outcome
from nnapi_prof.execution.report import FrameScheduleRun, PlanRun, RunReport
from nnapi_prof.graph.plan import Plan, Target
from nnapi_prof.graph.unit import UnitGraph

NS_PER_MS = 1e6

PLAN_COLUMNS = (
    "plan", "segment", "target", "engine", "accelerator", "preference", "units", "n_units", "label",
    "predicted_ms", "start_ms", "macs", "in_bytes", "out_bytes", "basis", "cause",
)  # fmt: skip
UNIT_COLUMNS = (
    "unit", "name", "label", "macs", "target", "marginal_ms", "sigma_ms", "inferred", "alone_ms",
    "p95_ms", "spread", "status", "reason",
)  # fmt: skip
BASELINE_COLUMNS = (
    "plan", "n_segments", "n_targets", "predicted_ms", "measured_ms", "p95_ms", "low_ms",
    "high_ms", "runs", "first_ms", "permutes", "permuted_bytes", "error",
)  # fmt: skip
SEGMENT_COLUMNS = (
    "plan", "segment", "target", "label", "predicted_ms", "measured_ms", "p95_ms",
    "low_ms", "high_ms", "first_ms", "compile_ms", "relative_error",
)  # fmt: skip
MEASUREMENT_COLUMNS = (
    "label", "kind", "n_units", "target", "status", "median_ms", "p95_ms", "minimum_ms", "spread",
    "runs", "precision", "mode", "flags", "hardware_ms", "driver_ms", "compile_ms", "first_ms",
    "input_bytes", "output_bytes", "reason", "measured_at",
)  # fmt: skip
RESIDUAL_COLUMNS = ("target", "relative_error")
RATE_COLUMNS = (
    "way", "plans", "predicted_per_second", "frames_per_second", "error", "against_plan",
    "latency_ms", "latency_95_ms", "frames", "same", "failure",
)  # fmt: skip


def frame_of(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """Returns rows as a frame with these columns that keeps None for missing texts: pandas would
    turn it into NaN, which is truthy and prints as a word."""
    frame = pd.DataFrame(rows, columns=list(columns))
    for name in columns:
        values = [row[name] for row in rows]
        if None in values:
            frame[name] = pd.Series(values, dtype=object, index=frame.index)
    return frame


def boundary_bytes(graph: UnitGraph, units: Sequence[int]) -> tuple[int, int]:
    """Returns the bytes that enter and that leave a set of units."""
    entering, leaving = graph.boundary(units)
    values = graph.values
    return sum(values[v].n_bytes for v in entering), sum(values[v].n_bytes for v in leaving)


def plan_frame(plan: Plan, graph: UnitGraph) -> pd.DataFrame:
    """Returns one row per segment, in order. ``start_ms`` is the predicted start, ``in_bytes`` and
    ``out_bytes`` cross the boundary.

    ``basis`` is the basis of the prediction: ``measured`` whole, ``sum`` of measured parts, or
    ``estimated`` by the static model.
    """
    rows = []
    start = 0.0
    for number, segment in enumerate(plan.segments):
        in_bytes, out_bytes = boundary_bytes(graph, segment.units)
        target = segment.target
        rows.append(
            {
                "plan": plan.name,
                "segment": number,
                "target": target.key,
                "engine": target.engine.value,
                "accelerator": target.accelerator,
                "preference": target.preference.short if target.preference else None,
                "units": segment.units,
                "n_units": len(segment.units),
                "label": graph.label(segment.units),
                "predicted_ms": segment.predicted_ns / NS_PER_MS,
                "start_ms": start / NS_PER_MS,
                "macs": sum(graph.units[u].macs for u in segment.units),
                "in_bytes": in_bytes,
                "out_bytes": out_bytes,
                "basis": "measured"
                if segment.measured
                else ("estimated" if segment.estimated else "sum"),
                "cause": segment.cause,
            }
        )
        start += segment.predicted_ns
    return frame_of(rows, PLAN_COLUMNS)


def unit_frame(costs: CostModel, targets: Sequence[Target] | None = None) -> pd.DataFrame:
    """Returns one row for each unit on each of the ``targets``, which default to all.

    ``marginal_ms`` is the fitted cost inside a region, ``sigma_ms`` its standard error (0 if
    unknown), ``inferred`` whether it only ran under another preference. ``alone_ms`` is the latency
    of the unit run alone, including invocation and transfer, ``p95_ms`` its 95th percentile,
    ``spread`` its relative sigma. ``status`` is ``measured``, ``fitted``, ``estimated``,
    ``refused`` or ``unknown``; ``reason`` is the reason of a refusal.
    """
    rows = []
    for unit in costs.graph.units:
        for target in all_targets(costs) if targets is None else targets:
            cost = marginal(costs, unit.index, target)
            alone = costs.whole((unit.index,), target)
            usable = alone is not None and alone.usable
            reason = costs.refusals.get((unit.index, target))
            region = costs.region_cost((unit.index,), target)
            if reason is not None:
                status = "refused"
            elif region is not None and region.estimated:
                status = "estimated"
            elif usable:
                status = "measured"
            else:
                status = "unknown" if cost is None else "fitted"
            summary = alone.summary if alone is not None and usable else None
            rows.append(
                {
                    "unit": unit.index,
                    "name": unit.name,
                    "label": unit.label,
                    "macs": unit.macs,
                    "target": target.key,
                    "marginal_ms": _ms(cost.ns if cost else None),
                    "sigma_ms": _ms(cost.sigma_ns if cost else None),
                    "inferred": cost is not None and cost.inferred,
                    "alone_ms": _ms(alone.latency_ns if alone is not None and summary else None),
                    "p95_ms": _ms(summary.p95_ns if summary else None),
                    "spread": summary.relative_spread if summary else math.nan,
                    "status": status,
                    "reason": reason,
                }
            )
    return frame_of(rows, UNIT_COLUMNS)


def all_targets(costs: CostModel) -> tuple[Target, ...]:
    """Returns targets with costs, then those that refused every unit."""
    every = set(costs.targets)
    mute = sorted({t for _, t in costs.refusals} - every, key=lambda t: t.key)
    return (*costs.targets, *mute)


def baseline_frame(
    plans: Iterable[Plan],
    run: RunReport | None,
    permutes: Mapping[str, Permutes] = MappingProxyType({}),
) -> pd.DataFrame:
    """Returns one row per plan: predicted, and measured end to end if it is in ``run``.

    ``permutes`` maps a plan's name to its permutes; unknown ones are NaN. ``p95_ms``, ``low_ms``
    and ``high_ms`` are the 95th, 10th and 90th percentile of the measured runs. The prediction of a
    plan that ran covers only the timed segments, not those on the host.
    """
    ran = {row.plan.name: row for row in run.runs} if run is not None else {}
    rows = []
    for plan in plans:
        timing = ran.get(plan.name)
        low, high = _percentiles(timing.total_ns if timing else ())
        rows.append(
            {
                "plan": plan.name,
                "n_segments": len(plan.segments),
                "n_targets": len({s.target for s in plan.segments}),
                "predicted_ms": (timing or plan).predicted_ns / NS_PER_MS,
                "measured_ms": _ms(timing.median_ns if timing and not timing.error else None),
                "p95_ms": _ms(timing.p95_ns if timing and not timing.error else None),
                "low_ms": low,
                "high_ms": high,
                "runs": len(timing.total_ns) if timing else 0,
                "first_ms": _ms(timing.first_ns if timing else None),
                "permutes": permutes[plan.name].count if plan.name in permutes else math.nan,
                "permuted_bytes": (
                    permutes[plan.name].n_bytes if plan.name in permutes else math.nan
                ),
                "error": timing.error if timing else None,
            }
        )
    return frame_of(rows, BASELINE_COLUMNS)


def segment_frame(runs: Iterable[PlanRun]) -> pd.DataFrame:
    """Returns one row for each segment of each plan that ran, predicted and measured."""
    rows = []
    for run in runs:
        for timing in run.segments:
            low, high = _percentiles(timing.samples_ns)
            measured = timing.median_ns
            error = (timing.predicted_ns - measured) / measured if measured else math.nan
            rows.append(
                {
                    "plan": run.plan.name,
                    "segment": timing.segment,
                    "target": timing.target,
                    "label": timing.label,
                    "predicted_ms": timing.predicted_ns / NS_PER_MS,
                    "measured_ms": _ms(measured),
                    "p95_ms": _ms(timing.p95_ns),
                    "low_ms": low,
                    "high_ms": high,
                    "first_ms": _ms(timing.first_ns),
                    "compile_ms": _ms(timing.compile_ns),
                    "relative_error": error,
                }
            )
    return frame_of(rows, SEGMENT_COLUMNS)


def measurement_frame(measurements: Iterable[Measurement]) -> pd.DataFrame:
    """Returns one row per measurement, with samples summarised
    (:mod:`nnapi_prof.costs.measurement`)."""
    rows = []
    for m in measurements:
        summary = m.summary if m.usable else None
        rows.append(
            {
                "label": m.label,
                "kind": m.kind.value,
                "n_units": m.n_units,
                "target": m.target.key,
                "status": m.status.value,
                "median_ms": _ms(summary.median_ns if summary else None),
                "p95_ms": _ms(summary.p95_ns if summary else None),
                "minimum_ms": _ms(summary.minimum_ns if summary else None),
                "spread": summary.relative_spread if summary else math.nan,
                "runs": len(m.samples_ns),
                "precision": m.conditions.precision.value,
                "mode": m.conditions.mode.value,
                "flags": "; ".join(m.flags),
                "hardware_ms": _median_ms(m.hardware_ns),
                "driver_ms": _median_ms(m.driver_ns),
                "compile_ms": _ms(m.compile_ns),
                "first_ms": _ms(m.first_ns),
                "input_bytes": m.input_bytes,
                "output_bytes": m.output_bytes,
                "reason": None if m.usable else m.why_not,
                "measured_at": m.measured_at,
            }
        )
    return frame_of(rows, MEASUREMENT_COLUMNS)


def residual_frame(costs: CostModel) -> pd.DataFrame:
    """Returns one row per measurement that the model was fitted to, with (predicted - measured) /
    measured."""
    rows = [
        {"target": target.key, "relative_error": error}
        for target, errors in costs.residuals.items()
        for error in errors
    ]
    return frame_of(rows, RESIDUAL_COLUMNS)


def fit_frame(costs: CostModel) -> pd.DataFrame:
    """Returns one row per fitted target: invocation, rates in ns per byte, errors of the fit."""
    rows = []
    for target, fitted in costs.fits.items():
        errors = np.abs(np.array(fitted.residuals))
        rows.append(
            {
                "target": target.key,
                "overhead_ms": fitted.overhead_ns / NS_PER_MS,
                "in_ns_per_byte": fitted.ns_per_in_byte,
                "out_ns_per_byte": fitted.ns_per_out_byte,
                "rows": len(errors),
                "median_error": float(np.median(errors)) if len(errors) else math.nan,
                "p90_error": float(np.percentile(errors, 90)) if len(errors) else math.nan,
            }
        )
    columns = [
        "target", "overhead_ms", "in_ns_per_byte", "out_ns_per_byte", "rows", "median_error",
        "p90_error",
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def _ms(ns: float | None) -> float:
    return math.nan if ns is None else ns / NS_PER_MS


def _median_ms(samples_ns: Sequence[int]) -> float:
    return float(np.median(samples_ns)) / NS_PER_MS if samples_ns else math.nan


def _percentiles(samples_ns: Sequence[int]) -> tuple[float, float]:
    if not samples_ns:
        return math.nan, math.nan
    low, high = np.percentile(samples_ns, [10, 90]) / NS_PER_MS
    return float(low), float(high)


def rate_frame(runs: Sequence[FrameScheduleRun]) -> pd.DataFrame:
    """Returns a row for each schedule of many frames at once, the intended one first."""
    rows = []
    for run in runs:
        rate, first = run.frames_per_second, runs[0].frames_per_second
        predicted = run.predicted_per_second
        latencies = [run.latency_ns(0.5), run.latency_ns(0.95)]
        median, most = (math.nan if ns is None else ns / NS_PER_MS for ns in latencies)
        rows.append(
            {
                "way": run.way.name,
                "plans": len(run.way.choices),
                "predicted_per_second": math.nan if predicted is None else predicted,
                "frames_per_second": math.nan if rate is None else rate,
                "error": (predicted - rate) / rate if rate and predicted is not None else math.nan,
                "against_plan": rate / first if rate and first else math.nan,
                "latency_ms": median,
                "latency_95_ms": most,
                "frames": len(run.frames),
                "same": run.outcomes[Outcome.SAME],
                "failure": run.error or "",
            }
        )
    return pd.DataFrame(rows, columns=list(RATE_COLUMNS))


def lane_frame(run: FrameScheduleRun, plans: Sequence[Plan], most_frames: int = 12) -> pd.DataFrame:
    """Returns a row for each segment that lanes ran, for some frames in the middle of the last
    round.

    The columns are those of :func:`plan_frame` that a timeline reads: ``plan`` is the lane,
    ``segment`` the frame's number, ``start_ms`` and ``predicted_ms`` the measured start and
    duration, ``target`` the segment's.
    """
    last = run.rounds[-1] if run.rounds else 0
    first = len(run.frames) - last + max(0, (last - most_frames) // 2)
    spans = [span for span in run.spans if first <= span.frame < first + most_frames]
    zero = min((span.begin_ns for span in spans), default=0)
    rows = [
        {
            "plan": lane,
            "segment": span.frame,
            "target": plans[span.plan].segments[span.segment].target.key,
            "start_ms": (span.begin_ns - zero) / NS_PER_MS,
            "predicted_ms": (span.end_ns - span.begin_ns) / NS_PER_MS,
        }
        for lane in run.lanes
        for span in spans
        if span.lane == lane
    ]
    return pd.DataFrame(rows, columns=["plan", "segment", "target", "start_ms", "predicted_ms"])
