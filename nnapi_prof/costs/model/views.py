"""Views of costs: intervals of plans, marginal costs of units, and targets to show."""

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
"""Costs fitted to measurements, in one precision or several."""
AnyCosts = TabulatedCosts | CostTable
"""Costs of units, of any origin."""


def with_intervals(plan: Plan, costs: FittedCosts) -> Plan:
    """Returns the plan with the interval of each segment's latency, and a note with its own.

    Errors of measured segments are independent; sums share the same terms, so that their errors add
    up. Estimates of the static model have no interval.
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
    """Returns half the width in ns of a plan's interval, computed as in :func:`with_intervals`."""
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
"""Standard error, as a share of a cost, above which the cost is rough."""


@dataclass(frozen=True, slots=True)
class Marginal:
    """Cost that one unit adds to a region on one target, and its uncertainty.

    It is not measured directly, but fitted to latencies of units, chains and regions, each of which
    includes an invocation and transfers. Where these are most of the latencies, a unit's own part
    is hard to see; and a unit that ran only under another preference is inferred.
    """

    ns: float
    sigma_ns: float = 0.0
    """Standard error of the fit; 0 where it is unknown."""
    alone_ns: float | None = None
    """Latency measured alone, with invocation and transfer: an upper bound."""
    inferred: bool = False
    """True where the unit was measured only under another preference."""

    @property
    def drowns(self) -> bool:
        """True where the cost cannot be distinguished from zero."""
        return self.ns <= self.sigma_ns

    @property
    def rough(self) -> bool:
        """True where the cost is only an order of magnitude."""
        return self.inferred or self.sigma_ns > ROUGH * self.ns

    @property
    def most_ns(self) -> float:
        """Upper end of the cost: two standard errors more, but at most ``alone_ns``."""
        most = self.ns + 2 * self.sigma_ns
        return most if self.alone_ns is None else max(self.ns, min(most, self.alone_ns))


def marginal(costs: AnyCosts, unit: int, target: Target) -> Marginal | None:
    """Returns a unit's marginal cost; None where it cannot run there."""
    ns = costs.unit_cost(unit, target)
    if ns is None:
        return None
    if not isinstance(costs, CostModel | PrecisionCosts) or target not in costs.fits:
        return Marginal(ns)
    sigma_ns = costs.unit_error(unit, target)
    return Marginal(ns, sigma_ns, alone_ns(costs, unit, target), costs.inferred(unit, target))


def alone_ns(costs: AnyCosts, unit: int, target: Target) -> float | None:
    """Returns a unit's latency measured alone, with invocation and transfer; None without one."""
    if not isinstance(costs, CostModel | PrecisionCosts):
        return None
    whole = costs.whole((unit,), target)
    return whole.latency_ns if whole is not None and whole.usable else None


def shown_targets(costs: AnyCosts, graph: UnitGraph) -> dict[str, Target]:
    """Returns accelerator (or ``cpu``, ``host``), in each precision -> the target that represents
    it: the preference under which most units were measured alone, since the minimum over several
    preferences would only be luck. Of equals, ``fast`` is taken, then the first. Those of
    :func:`left_at_trial` are left out."""
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
    """Returns the accelerators, in each precision, on which only a few units were measured, since
    these were far slower."""
    partial = costs.partial if isinstance(costs, CostModel | PrecisionCosts) else frozenset()
    whole = {_shown_name(t) for t in costs.targets if t not in partial}
    names = dict.fromkeys(_shown_name(t) for t in costs.targets if t in partial)
    return tuple(name for name in names if name not in whole)


def _shown_name(target: Target) -> str:
    """Returns ``npu`` for ``nnapi:npu/fast``, ``npu@int8`` for ``nnapi:npu/fast@int8``."""
    name = target.accelerator or target.base.key
    in_float32 = target.precision is Precision.FLOAT32
    return name if in_float32 else f"{name}@{target.precision.value}"


def _measured_rank(measured: Counter[Target], target: Target) -> tuple[int, bool]:
    return measured[target], target.preference is Preference.FAST_SINGLE_ANSWER
