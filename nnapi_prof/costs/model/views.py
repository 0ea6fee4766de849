"""Derives views of a cost model: its lower bounds, its dominated targets, a unit's marginal cost.

What was measured costs what was measured. A plan that is optimal where everything else takes the
lower end of its interval bounds what measuring can still gain: where it is hardly faster than a
plan of measured regions, nothing that is left can change that plan.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np

from nnapi_prof.costs.model.precision import PrecisionCosts
from nnapi_prof.costs.model.region import CostArrays, CostModel, RegionCost
from nnapi_prof.graph.plan import AUTO, Engine, Plan, Precision, Preference, Segment, Target
from nnapi_prof.graph.unit import UnitGraph

Z = 1.96
"""Standard deviations to either end of an interval: 95 % of a normal distribution."""
MOST_OPTIMISM = 0.7
"""No sum is too high by more than this, whatever its spread."""

FittedCosts = CostModel | PrecisionCosts
"""What was fitted to measurements, of one precision or of several."""
_Fitted = TypeVar("_Fitted", bound=FittedCosts)


@dataclass(frozen=True)
class OptimisticCosts:
    """A cost model (as :mod:`nnapi_prof.partition` asks for one) that hopes for the best."""

    costs: FittedCosts

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
        gain = fitted.gain_of(self.costs.most_units(target))
        # What noise adds to it can never be had.
        of_model = math.sqrt(max(0.0, gain**2 - self.costs.noise**2))
        return 1 - min(MOST_OPTIMISM, Z * of_model)

    def unit_cost(self, unit_index: int, target: Target) -> float | None:
        ns = self.costs.unit_cost(unit_index, target)
        return None if ns is None else ns * self._share(target)

    def overhead(self, target: Target) -> float:
        return self.costs.overhead(target) * self._share(target)

    def transfer(self, target: Target, in_bytes: int, out_bytes: int) -> float:
        return self.costs.transfer(target, in_bytes, out_bytes) * self._share(target)

    def region_cost(self, units: Iterable[int], target: Target) -> RegionCost | None:
        cost = self.costs.region_cost(units, target)
        if cost is None or cost.measured:
            return cost
        return replace(cost, ns=cost.ns * self._share(target))

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


# ---- dominated targets --------------------------------------------------------------------------


def drop_dominated_targets(costs: _Fitted, *, auto: bool = False) -> _Fitted:
    """The costs without preferences under which no region was faster beyond noise than under
    another of the same accelerator, likewise without one thread of the CPU beside several, and
    without "auto" where a named accelerator is as fast.

    The preferences of an accelerator are alternatives of one driver, and NNAPI's own choice
    ("auto") is one of its accelerators; often some of them run alike. Kept as targets of their own
    they only multiply luck: of several noisy measurements of one thing the partitioner takes the
    luckiest, region by region, and measuring never comes to rest.

    Of equals the preference for fast answers stays. What was measured on the others is left out of
    plans, not of the fits. With ``auto`` NNAPI's own choice stays, whatever it equals. Relaxed or
    in float16 a processor is left out where it is no faster than in float32; any other two
    precisions are alternatives, of error if not of latency.
    """
    targets: list[Target] = []
    for target in sorted(costs.targets, key=_dominance_rank):
        rivals = [k for k in targets if _comparable(target, k, auto)]
        if not any(_adds_nothing(costs, target, rival) for rival in rivals):
            targets.append(target)
    return replace(costs, targets=tuple(target for target in costs.targets if target in targets))


def _dominance_rank(target: Target) -> tuple[bool, bool, bool]:
    """Those that stay where they are equal first."""
    leading = target.preference in (None, Preference.FAST_SINGLE_ANSWER)
    return target.accelerator == AUTO, target.precision is not Precision.FLOAT32, not leading


def _comparable(target: Target, rival: Target, auto: bool) -> bool:
    if target.precision is not rival.precision:
        in_float32 = rival.precision is Precision.FLOAT32
        return in_float32 and target.precision is not Precision.INT8 and target.base == rival
    if rival.engine is not target.engine or rival.engine not in (Engine.CPU, Engine.NNAPI):
        return False
    return target.accelerator == rival.accelerator or (target.accelerator == AUTO and not auto)


def _adds_nothing(costs: FittedCosts, target: Target, rival: Target) -> bool:
    """Whether ``rival`` runs all that ``target`` runs, as fast but for noise.

    Compared are all regions measured on both: what choosing the faster of the two for each of them
    would save of their sum. Noise alone saves 0.56 of its standard deviation that way.
    """
    whole = costs.measured_regions()
    both = [
        (ns, whole[units, rival])
        for (units, place), ns in whole.items()
        if place == target and (units, rival) in whole and math.isfinite(ns)
    ]
    lacks = any(
        costs.unit_cost(unit, rival) is None
        for unit in range(len(costs.graph.units))
        if costs.unit_cost(unit, target) is not None
    )
    if lacks or not both or any(math.isinf(other) for _, other in both):
        return False
    saved = sum(max(0.0, other - ns) for ns, other in both)
    return saved <= costs.noise * sum(other for _, other in both)


# ---- marginal costs -----------------------------------------------------------------------------


ROUGH = 0.25
"""A standard error of more than this part of a cost makes it a rough one."""


class UnitCosts(Protocol):
    """Costs of units, of whatever origin."""

    @property
    def targets(self) -> tuple[Target, ...]: ...

    def unit_cost(self, unit_index: int, target: Target, /) -> float | None: ...


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


def marginal(costs: UnitCosts, unit: int, target: Target) -> Marginal | None:
    """A unit's marginal cost; None where it cannot run there."""
    ns = costs.unit_cost(unit, target)
    if ns is None:
        return None
    if not isinstance(costs, CostModel | PrecisionCosts) or target not in costs.fits:
        return Marginal(ns)
    whole = costs.whole((unit,), target)
    alone_ns = whole.latency_ns if whole is not None and whole.usable else None
    sigma_ns = costs.unit_error(unit, target)
    return Marginal(ns, sigma_ns, alone_ns, costs.inferred(unit, target))


def shown_targets(costs: UnitCosts, graph: UnitGraph) -> dict[str, Target]:
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


def left_at_trial(costs: UnitCosts) -> tuple[str, ...]:
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
