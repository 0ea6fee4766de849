"""Derives views of costs: intervals of plans, a unit's marginal cost, and targets to show."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from nnapi_prof.costs.model import CostModel, TabulatedCosts
from nnapi_prof.costs.model.precision import PrecisionCosts
from nnapi_prof.costs.table import CostTable, Z
from nnapi_prof.graph.plan import Engine, Plan, Precision, Preference, Segment, Target
from nnapi_prof.graph.unit import UnitGraph

FittedCosts = CostModel | PrecisionCosts
"""What was fitted to measurements, of one precision or of several."""
AnyCosts = TabulatedCosts | CostTable
"""Costs of units, of whatever origin."""


def with_intervals(plan: Plan, costs: FittedCosts) -> Plan:
    """The plan with the interval of each segment's latency, and a note with its own.

    Measured segments err independently of each other; sums rest on the same terms, so that their
    errors add up. What rests on the static model has no interval.
    """
    segments = tuple(_with_interval(segment, costs) for segment in plan.segments)
    half = _half_ns(segments)
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
    return replace(plan, segments=segments).with_note(words)


def half_interval_ns(segments: Iterable[Segment], costs: FittedCosts) -> float:
    """How far the latency of a plan may be off, as :func:`with_intervals` says it."""
    return _half_ns(_with_interval(segment, costs) for segment in segments)


def _half_ns(segments: Iterable[Segment]) -> float:
    independent = together = 0.0
    for segment in segments:
        low, high = segment.interval_ns or (segment.predicted_ns,) * 2
        half = (high - low) / 2
        if segment.measured:
            independent += half**2
        else:
            together += half
    return math.hypot(math.sqrt(independent), together)


def _with_interval(segment: Segment, costs: FittedCosts) -> Segment:
    cost = costs.region_cost(segment.units, segment.target)
    if cost is None or segment.estimated:
        return segment
    half = Z * cost.sigma_ns
    ns = segment.predicted_ns
    return replace(segment, interval_ns=(max(0.0, ns - half), ns + half))


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.3f}"


# ---- marginal costs -----------------------------------------------------------------------------


ROUGH = 0.25
"""A standard error of more than this part of a cost makes it a rough one."""


@dataclass(frozen=True, slots=True)
class Marginal:
    """The cost that one unit adds to a region on one target, and its uncertainty.

    It is never measured by itself: it is fitted to latencies of units, chains and regions, each of
    which pays an invocation and transfers besides. Where that is most of what was measured, a
    unit's own part drowns in it; and a unit that ran under another preference only is inferred.
    """

    ns: float
    sigma_ns: float = 0.0
    """Standard error of the fit; 0 where none is known."""
    alone_ns: float | None = None
    """Measured alone, invocation and transfer included: it adds no more than that."""
    inferred: bool = False
    """Measured under another preference only."""

    @property
    def drowns(self) -> bool:
        """It cannot be told from nothing."""
        return self.ns <= self.sigma_ns

    @property
    def rough(self) -> bool:
        """To be read as an order of magnitude."""
        return self.inferred or self.sigma_ns > ROUGH * self.ns

    @property
    def most_ns(self) -> float:
        """Upper end of the cost: two standard errors more, and not more than alone."""
        most = self.ns + 2 * self.sigma_ns
        return most if self.alone_ns is None else max(self.ns, min(most, self.alone_ns))


def marginal(costs: AnyCosts, unit: int, target: Target) -> Marginal | None:
    """A unit's marginal cost; None where it cannot run there."""
    ns = costs.unit_cost(unit, target)
    if ns is None:
        return None
    if not isinstance(costs, CostModel | PrecisionCosts) or target not in costs.fits:
        return Marginal(ns)
    sigma_ns = costs.unit_error(unit, target)
    return Marginal(ns, sigma_ns, alone_ns(costs, unit, target), costs.inferred(unit, target))


def alone_ns(costs: AnyCosts, unit: int, target: Target) -> float | None:
    """A unit's latency measured alone, invocation and transfer included; None where it was not."""
    if not isinstance(costs, CostModel | PrecisionCosts):
        return None
    whole = costs.whole((unit,), target)
    return whole.latency_ns if whole is not None and whole.usable else None


def shown_targets(costs: AnyCosts, graph: UnitGraph) -> dict[str, Target]:
    """Accelerator (or ``cpu``, ``host``), in each precision -> the one target that stands for it,
    that under which most units were measured alone: the least of several preferences would be that
    of noise. Of equals ``fast``, then the first. Those that :func:`left_at_trial` has are not among
    them."""
    measured: Counter[Target] = Counter()
    left = left_at_trial(costs)
    if isinstance(costs, CostModel | PrecisionCosts):
        for target in costs.targets:
            tried = (costs.whole((unit.index,), target) for unit in graph.units)
            measured[target] = sum(row is not None and row.usable for row in tried)
    shown: dict[str, Target] = {}
    for target in costs.targets:
        name = _shown_name(target)
        if name in left:
            continue
        if name not in shown or _measured_rank(measured, target) > _measured_rank(
            measured, shown[name]
        ):
            shown[name] = target
    return shown


def left_at_trial(costs: AnyCosts) -> tuple[str, ...]:
    """Accelerators, in each precision, of which a few units were measured only, for these lay far
    behind."""
    partial = costs.partial if isinstance(costs, CostModel | PrecisionCosts) else frozenset()
    whole = {_shown_name(t) for t in costs.targets if t not in partial}
    names = dict.fromkeys(_shown_name(t) for t in costs.targets if t in partial)
    return tuple(name for name in names if name not in whole)


def _shown_name(target: Target) -> str:
    """``npu`` of ``nnapi:npu/fast``, ``npu@int8`` of ``nnapi:npu/fast@int8``."""
    name = target.accelerator or target.base.key
    in_float32 = target.precision is Precision.FLOAT32
    return name if in_float32 else f"{name}@{target.precision.value}"


def _measured_rank(measured: Counter[Target], target: Target) -> tuple[int, bool]:
    return measured[target], target.preference is Preference.FAST_SINGLE_ANSWER
