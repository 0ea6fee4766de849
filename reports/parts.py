"""Splits a segment's latency: the work of its units, the call, moving values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from nnapi_prof.costs.model.region import CostModel
from nnapi_prof.execution.report import PlanRun
from nnapi_prof.graph.plan import Plan, Segment
from nnapi_prof.reports.frames import NS_PER_MS, boundary_bytes


@dataclass(frozen=True, slots=True)
class SegmentParts:
    """In ns; ``unit_ns`` with the two others adds up to ``total_ns``."""

    total_ns: float
    unit_ns: Mapping[int, float]
    invocation_ns: float
    moving_ns: float

    @property
    def work_ns(self) -> float:
        """The time of its units together."""
        return sum(self.unit_ns.values())


def segment_parts(costs: CostModel, segment: Segment, total_ns: float) -> SegmentParts | None:
    """The parts of a segment that takes ``total_ns``; None where a unit's cost is unknown, or
    nothing is known to take any time."""
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
    """One row a segment: ``segment``, ``target``, ``predicted_ms``, ``measured_ms`` (NaN where it
    was not run), and what the latter, else the former, is made of: ``work_ms``,
    ``invocation_ms``, ``moving_ms``, NaN where a unit's cost is unknown."""
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
