"""Estimated costs of one model on one phone, as the partitioner asks for them.

Nothing here was measured on the phone: every cost is marked ``estimated`` and has an uncertainty.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from nnapi_prof.costs.arrays import CostArrays
from nnapi_prof.costs.region import RegionCost
from nnapi_prof.costs.static_model import TargetModel
from nnapi_prof.graph.plan import CPU, HOST, Engine, Plan, Target
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.graph.work import Work


@dataclass(frozen=True, slots=True)
class Price:
    """What a target charges beside its operations, in ns."""

    invocation_ns: float = 0.0
    ns_per_in_byte: float = 0.0
    ns_per_out_byte: float = 0.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """A unit's marginal cost. ``error`` is the relative one that nine of ten stay below; None where
    it is not known."""

    ns: float
    error: float | None = None
    never_measured: str | None = None
    """The type of operation, where none of it was ever measured on the target: what it is estimated
    at rests on nothing."""


@dataclass
class EstimatedCosts:
    """A :class:`nnapi_prof.partition.Costs`: CPU first, HOST last where it is needed."""

    graph: UnitGraph
    prices: Mapping[Target, Price]
    estimates: Mapping[tuple[int, Target], Estimate] = field(repr=False)
    refusals: Mapping[tuple[int, Target], str] = field(repr=False)
    simulated: bool = False
    measured: Mapping[tuple[frozenset[int], Target], float] = field(default_factory=dict)
    models: Mapping[Target, TargetModel] = field(default_factory=dict, repr=False)
    """What the estimates are by, where they are by something that was fitted."""
    works: Sequence[Work] = field(default=(), repr=False)
    """Of each unit, where there are :attr:`models`."""

    @property
    def targets(self) -> tuple[Target, ...]:
        named = sorted(self.prices, key=lambda t: (t != CPU, t == HOST, t.key))
        return tuple(named)

    def unit_cost(self, unit_index: int, target: Target) -> float | None:
        """Marginal cost in ns; None where it cannot run there."""
        found = self.estimates.get((unit_index, target))
        return None if found is None else found.ns

    def overhead(self, target: Target) -> float:
        """Of one invocation, in ns."""
        return self.prices[target].invocation_ns

    def transfer(self, target: Target, in_bytes: int, out_bytes: int) -> float:
        """Of a region's inputs and outputs, in ns."""
        price = self.prices[target]
        return in_bytes * price.ns_per_in_byte + out_bytes * price.ns_per_out_byte

    def region_cost(self, units: Iterable[int], target: Target) -> RegionCost | None:
        """The sum of what the region's units, its invocation and its transfers are estimated at."""
        region = frozenset(units)
        if any((unit, target) not in self.estimates for unit in region):
            return None
        entering, leaving = self.graph.boundary(region)
        size = self.graph.values
        if target.engine is Engine.HOST:
            return RegionCost(sum(self.estimates[u, target].ns for u in region), estimated=True)
        moved = self.transfer(
            target,
            sum(size[name].n_bytes for name in entering),
            sum(size[name].n_bytes for name in leaving),
        )
        own = sum(self.estimates[unit, target].ns for unit in region)
        return RegionCost(own + moved + self.overhead(target), estimated=True)

    def arrays(self) -> CostArrays:
        """All of it as arrays."""
        targets = self.targets
        index = {target: k for k, target in enumerate(targets)}
        unit_ns = np.full((len(self.graph.units), len(targets)), np.inf)
        for (unit, target), found in self.estimates.items():
            if target in index:
                unit_ns[unit, index[target]] = found.ns
        prices = [self.prices[target] for target in targets]
        return CostArrays(
            targets=targets,
            unit_ns=unit_ns,
            overhead_ns=np.array([price.invocation_ns for price in prices], dtype=np.float64),
            in_ns_per_byte=np.array([price.ns_per_in_byte for price in prices], dtype=np.float64),
            out_ns_per_byte=np.array([price.ns_per_out_byte for price in prices], dtype=np.float64),
            region_ns=self.measured,
            estimated=np.isfinite(unit_ns),
        )

    def measured_regions(self) -> Mapping[tuple[frozenset[int], Target], float]:
        """None: nothing was measured."""
        return self.measured

    def error_of(self, units: Sequence[int], target: Target) -> float | None:
        """Relative error of some units together, which nine of ten stay below; None where that of
        one is not known. Errors are put together as errors are: of fitted targets by
        :class:`.static_bands.ErrorBounds`, of others as if each unit's were its own."""
        parts = [self.estimates[unit, target] for unit in units]
        total = sum(part.ns for part in parts)
        model = self.models.get(target)
        if model is not None:
            return model.uncertainty([self.works[unit] for unit in units])
        if any(part.error is None for part in parts):
            return None
        return math.hypot(*(part.ns * (part.error or 0.0) for part in parts)) / (total or 1.0)

    def plan_error(self, plan: Plan) -> float | None:
        """Relative error of a plan's latency, which nine of ten stay below: targets err apart, the
        units of one together. None where that of one is not known."""
        ns: dict[Target, float] = defaultdict(float)
        units: dict[Target, list[int]] = defaultdict(list)
        for segment in plan.segments:
            ns[segment.target] += segment.predicted_ns
            units[segment.target] += segment.units
        errors = {target: self.error_of(units[target], target) for target in units}
        if not plan.predicted_ns or any(error is None for error in errors.values()):
            return None
        return math.hypot(*(ns[t] * (errors[t] or 0.0) for t in units)) / plan.predicted_ns

    def never_measured(self, plan: Plan) -> dict[str, float]:
        """Type of operation -> the share of the plan's latency that its units are estimated at, of
        types of which the target never ran one. The largest first."""
        found: dict[str, float] = defaultdict(float)
        for segment in plan.segments:
            for unit in segment.units:
                part = self.estimates[unit, segment.target]
                if part.never_measured is not None:
                    found[part.never_measured] += part.ns / (plan.predicted_ns or 1.0)
        return dict(sorted(found.items(), key=lambda item: -item[1]))
