"""The same costs at the lower ends of their intervals, and plans with theirs.

What was measured costs what was measured. A plan that is optimal where everything else takes the
lower end of its interval bounds what measuring can still gain: where it is hardly faster than a
plan of measured regions, nothing that is left can change that plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from nnapi_prof.costs.arrays import CostArrays
from nnapi_prof.costs.region import CostModel, RegionCost
from nnapi_prof.graph.plan import Engine, Plan, Segment, Target

Z = 1.96
"""Standard deviations to either end of an interval: 95 % of a normal distribution."""
MOST_HOPE = 0.7
"""No sum is too high by more than this, whatever its spread."""


@dataclass(frozen=True)
class Hopeful:
    """A cost model (as :mod:`nnapi_prof.partition` asks for one) that hopes for the best."""

    costs: CostModel

    @property
    def targets(self) -> tuple[Target, ...]:
        return self.costs.targets

    @property
    def simulated(self) -> bool:
        return self.costs.simulated

    @property
    def refusals(self) -> Mapping[tuple[int, Target], str]:
        return self.costs.refusals

    def _share(self, target: Target) -> float:
        fitted = self.costs.fits.get(target)
        if fitted is None:
            return 1.0
        gain = fitted.gain_of(len(self.costs.graph.units))
        # What noise adds to it can never be had.
        of_model = math.sqrt(max(0.0, gain**2 - self.costs.noise**2))
        return 1 - min(MOST_HOPE, Z * of_model)

    def unit_cost(self, unit_index: int, target: Target) -> float | None:
        known = self.costs.unit_cost(unit_index, target)
        return None if known is None else known * self._share(target)

    def overhead(self, target: Target) -> float:
        return self.costs.overhead(target) * self._share(target)

    def transfer(self, target: Target, in_bytes: int, out_bytes: int) -> float:
        return self.costs.transfer(target, in_bytes, out_bytes) * self._share(target)

    def region_cost(self, units: Iterable[int], target: Target) -> RegionCost | None:
        known = self.costs.region_cost(units, target)
        if known is None or known.measured:
            return known
        return replace(known, ns=known.ns * self._share(target))

    def arrays(self) -> CostArrays:
        """Those of the model, at the lower ends of their intervals."""
        base = self.costs.arrays()
        share = np.array([self._share(target) for target in base.targets], dtype=np.float64)
        return replace(
            base,
            unit_ns=base.unit_ns * share,
            overhead_ns=base.overhead_ns * share,
            in_ns_per_byte=base.in_ns_per_byte * share,
            out_ns_per_byte=base.out_ns_per_byte * share,
        )

    def measured_regions(self) -> Mapping[tuple[frozenset[int], Target], float]:
        return self.costs.measured_regions()


def with_intervals(plan: Plan, costs: CostModel) -> Plan:
    """The plan with the interval of each segment's latency, and a note with its own.

    Measured segments err independently of each other; sums rest on the same terms, so that their
    errors add up. What rests on the static model has no interval.
    """
    segments = tuple(_with_interval(segment, costs) for segment in plan.segments)
    independent = together = 0.0
    for segment in segments:
        low, high = segment.interval_ns or (segment.predicted_ns,) * 2
        half = (high - low) / 2
        if segment.measured:
            independent += half**2
        else:
            together += half
    half = math.hypot(math.sqrt(independent), together)
    ns = plan.predicted_ns
    words = (
        f"predicted {_ms(ns)} ms, 95 % interval {_ms(max(0.0, ns - half))} to {_ms(ns + half)} ms"
    )
    measured = sum(segment.measured for segment in segments)
    words += f": {measured} of {len(segments)} segments were measured whole"
    if any(segment.target.engine is Engine.HOST for segment in segments):
        words += "; what the host runs is estimated, and has none"
    if plan.simulated:
        words += "; these latencies are simulated"
    return replace(plan, segments=segments, notes=(*plan.notes, words))


def _with_interval(segment: Segment, costs: CostModel) -> Segment:
    known = costs.region_cost(segment.units, segment.target)
    if known is None or segment.estimated:
        return segment
    half = Z * known.sigma_ns
    ns = segment.predicted_ns
    return replace(segment, interval_ns=(max(0.0, ns - half), ns + half))


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.3f}"
