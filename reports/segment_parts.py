"""What a segment's latency is made of: its units' work, the invocation, and moving values.

A fit knows each part; what they add up to is off what the segment took, where a driver joins
operations or caches are cold. So the parts are shares of one whole: they always add up to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nnapi_prof.costs.region import CostModel
from nnapi_prof.graph.plan import Segment


@dataclass(frozen=True, slots=True)
class SegmentParts:
    """In ns; ``unit_ns`` with the two others adds up to ``total_ns``."""

    total_ns: float
    unit_ns: Mapping[int, float]
    invocation_ns: float
    moving_ns: float

    @property
    def work_ns(self) -> float:
        """What its units take together."""
        return sum(self.unit_ns.values())


def segment_parts(costs: CostModel, segment: Segment, total_ns: float) -> SegmentParts | None:
    """The parts of a segment that takes ``total_ns``; None where a unit's cost is unknown, or
    nothing is known to take any time."""
    units = {unit: costs.unit_cost(unit, segment.target) for unit in segment.units}
    known = {unit: ns for unit, ns in units.items() if ns is not None}
    if len(known) < len(units):
        return None
    values = costs.graph.values
    entering, leaving = costs.graph.boundary(segment.units)
    invocation = costs.overhead(segment.target)
    moving = costs.transfer(
        segment.target,
        sum(values[name].n_bytes for name in entering),
        sum(values[name].n_bytes for name in leaving),
    )
    fitted = sum(known.values()) + invocation + moving
    if fitted <= 0:
        return None
    share = total_ns / fitted
    return SegmentParts(
        total_ns,
        {unit: ns * share for unit, ns in known.items()},
        invocation * share,
        moving * share,
    )
