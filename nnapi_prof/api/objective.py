"""Costs of one's own: what is measured, changed unit by unit and weighted target by target.

The partitioner finds the least sum over segments of

    weight(target) x (invocation + transfer + the units' costs)

whatever these are, so that its plan stays the exact optimum. A region that was measured whole costs
what it took, plus what the function adds to (or takes from) its units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from nnapi_prof.costs.model.region import CostArrays
from nnapi_prof.errors import UsageError
from nnapi_prof.graph.causes import Cause
from nnapi_prof.graph.plan import Plan, Segment, Target
from nnapi_prof.graph.unit import Unit, UnitGraph
from nnapi_prof.partition import CostProvider
from nnapi_prof.partition.problem import KEPT_OFF, arrays_of
from nnapi_prof.partition.problem import ProvidedCost as Priced

if TYPE_CHECKING:
    from nnapi_prof.partition.constraints import CompileCosts


UnitCost = Callable[[Unit, Target, float], float | None]
"""Unit, target and what the unit costs there in ns -> what it is to cost; None keeps it off."""
Weight = Callable[[Target], float] | Mapping[str, float]
"""Target -> the factor of everything there; or patterns of target names -> factors, of which the
first that fits counts (1 where none does)."""


@dataclass(frozen=True, slots=True)
class Objective:
    """The objective that a plan minimises, where that is not the latency."""

    name: str
    """For people: ``energy``."""
    unit: str
    """Of a million of its values, as milliseconds are of nanoseconds: ``mJ``."""

    def __str__(self) -> str:
        return f"{self.name} in {self.unit}"


@dataclass(frozen=True, slots=True)
class _RegionCost:
    ns: float
    measured: bool
    estimated: bool


@dataclass(frozen=True)
class ObjectiveCosts:
    """Costs as the partitioner asks for them, over others."""

    base: CostProvider
    graph: UnitGraph
    cost: UnitCost | None = None
    weight: Weight | None = None
    _weights: dict[Target, float] = field(default_factory=dict, repr=False, compare=False)

    @property
    def targets(self) -> tuple[Target, ...]:
        return self.base.targets

    @property
    def simulated(self) -> bool:
        return self.base.simulated

    @cached_property
    def refusals(self) -> Mapping[tuple[int, Target], str]:
        """Those of the base, and what the function keeps off."""
        kept_off = {place: KEPT_OFF for place, ns in self._own.items() if ns is None}
        return {**kept_off, **self.base.refusals}

    def factor(self, target: Target) -> float:
        """The weight of a target. Raises UsageError where it is no factor."""
        if target not in self._weights:
            self._weights[target] = self._weight(target)
        return self._weights[target]

    def __post_init__(self) -> None:
        if not isinstance(self.weight, Mapping):
            return
        for pattern in self.weight:
            if not any(fnmatchcase(target.key, pattern) for target in self.targets):
                there = ", ".join(target.key for target in self.targets)
                raise UsageError(f"weight of {pattern!r}: no target fits it; there are {there}")

    def _weight(self, target: Target) -> float:
        if self.weight is None:
            return 1.0
        if isinstance(self.weight, Mapping):
            fitting = (w for name, w in self.weight.items() if fnmatchcase(target.key, name))
            factor = next(fitting, 1.0)
        else:
            factor = self.weight(target)
        if not (math.isfinite(factor) and factor >= 0):
            raise UsageError(f"the weight of {target} is {factor!r}: a number from 0 on is wanted")
        return float(factor)

    @cached_property
    def _own(self) -> dict[tuple[int, Target], float | None]:
        """The function's value for every unit on every target that runs it, asked once each."""
        values: dict[tuple[int, Target], float | None] = {}
        for target in self.base.targets:
            for unit in self.graph.units:
                ns = self.base.unit_cost(unit.index, target)
                if ns is not None:
                    values[unit.index, target] = self._asked(unit, target, ns)
        return values

    def _asked(self, unit: Unit, target: Target, ns: float) -> float | None:
        if self.cost is None:
            return ns
        value = self.cost(unit, target, ns)
        if value is None or (math.isfinite(value) and value >= 0):
            return value
        raise UsageError(
            f"the cost function says {value!r} for {unit.label} on {target}: a number from 0 on is"
            " wanted, or None where it must not run there"
        )

    def unit_cost(self, unit_index: int, target: Target) -> float | None:
        own = self._own.get((unit_index, target))
        return None if own is None else own * self.factor(target)

    def overhead(self, target: Target) -> float:
        return self.base.overhead(target) * self.factor(target)

    def transfer(self, target: Target, in_bytes: int, out_bytes: int) -> float:
        return self.base.transfer(target, in_bytes, out_bytes) * self.factor(target)

    def region_cost(self, units: Iterable[int], target: Target) -> Priced | None:
        region = frozenset(units)
        cost = self.base.region_cost(region, target)
        if cost is None:
            return None
        ns = self._changed(region, target, cost.ns)
        return None if ns is None else _RegionCost(ns, cost.measured, cost.estimated)

    def arrays(self) -> CostArrays:
        """Those of the base, as the function and the weights change them."""
        base = arrays_of(self.graph, self.base)
        index = {target: k for k, target in enumerate(base.targets)}
        factor = np.array([self.factor(target) for target in base.targets], dtype=np.float64)
        unit_ns = np.full_like(base.unit_ns, np.inf)
        for (unit, target), own in self._own.items():
            if own is not None:
                unit_ns[unit, index[target]] = own * self.factor(target)
        return replace(
            base,
            unit_ns=unit_ns,
            overhead_ns=base.overhead_ns * factor,
            in_ns_per_byte=base.in_ns_per_byte * factor,
            out_ns_per_byte=base.out_ns_per_byte * factor,
            region_ns=self.measured_regions(),
            estimated=base.estimated & np.isfinite(unit_ns),
        )

    def measured_regions(self) -> Mapping[tuple[frozenset[int], Target], float]:
        regions = {}
        for (units, target), ns in self.base.measured_regions().items():
            changed = self._changed(units, target, ns)
            regions[units, target] = math.inf if changed is None else changed
        return regions

    def _changed(self, units: frozenset[int], target: Target, ns: float) -> float | None:
        """A region's cost with what the function changes of its units'; None where one of them is
        kept off. Of units that run only inside of regions the function is not asked."""
        for unit in units:
            place = (unit, target)
            if place not in self._own:
                continue
            own, before = self._own[place], self.base.unit_cost(unit, target)
            if own is None:
                return None
            ns += own - (before or 0.0)
        return max(0.0, ns) * self.factor(target)

    def _compiling(self) -> CompileCosts:
        if not hasattr(self.base, "compile_overhead"):
            raise UsageError(
                "these costs do not tell what compiling takes: max_compile_ms needs it"
            )
        return self.base  # type: ignore[return-value]

    def compile_overhead(self, target: Target) -> float:
        """Compile times are never changed."""
        return self._compiling().compile_overhead(target)

    def compile_cost(self, unit_index: int, target: Target) -> float:
        return self._compiling().compile_cost(unit_index, target)

    def compiled_regions(self) -> Mapping[tuple[frozenset[int], Target], float]:
        return self._compiling().compiled_regions()


def as_latency(plan: Plan, base: CostProvider, objective: Objective) -> Plan:
    """A plan that was found under changed costs, with the latencies of the base; numbers in its
    causes and notes are said in the objective's unit, and a note says what they are. Its proof
    stays that of the objective, and says so."""
    segments = tuple(_as_latency(segment, base, objective) for segment in plan.segments)
    note = (
        f"chosen for the least {objective}: {plan.predicted_ns / 1e6:.4g} {objective.unit}; causes"
        " and notes use it, too, latencies are those of the costs as they are"
    )
    own = (each if isinstance(each, str) else each.words(objective.unit) for each in plan.remarks)
    remarks = (*(f"{objective.name}: {text}" for text in own), note)
    proof = plan.proof and replace(plan.proof, constrained=True, objective=str(objective))
    return replace(plan, segments=segments, remarks=remarks, proof=proof)


def _as_latency(segment: Segment, base: CostProvider, objective: Objective) -> Segment:
    cost = base.region_cost(segment.units, segment.target)
    why = segment.why
    if isinstance(why, Cause):
        why = replace(why, unit=objective.unit)
    ns = segment.predicted_ns if cost is None else cost.ns
    return replace(segment, why=why, predicted_ns=ns)
