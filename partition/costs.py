"""What the partitioner asks of a cost model: arrays of all that a plan's latency is made of.

A model of one's own may answer by functions instead (:class:`Costs`): they are asked once for
each unit and target, and the answers put into arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import numpy as np

from nnapi_prof.costs.model.region import CostArrays
from nnapi_prof.graph.plan import Target
from nnapi_prof.graph.unit import UnitGraph

_PROBE_BYTES = 1 << 20
"""Transfer is linear, so its slope is read off one probe; 1 MiB keeps the division exact."""


KEPT_OFF = "kept off by the cost function"
"""Where ``refusals`` say this, no target refused anything."""


class RegionCost(Protocol):
    """A region's cost, as a cost model tells it."""

    @property
    def ns(self) -> float: ...
    @property
    def measured(self) -> bool: ...
    @property
    def estimated(self) -> bool: ...


class Costs(Protocol):
    """A cost model. One that has a method ``arrays() -> CostArrays`` as well is asked for these;
    ours have it."""

    @property
    def targets(self) -> tuple[Target, ...]: ...
    @property
    def simulated(self) -> bool: ...
    @property
    def refusals(self) -> Mapping[tuple[int, Target], str]: ...
    def unit_cost(self, unit_index: int, target: Target, /) -> float | None: ...
    def overhead(self, target: Target, /) -> float: ...
    def transfer(self, target: Target, in_bytes: int, out_bytes: int, /) -> float: ...
    def region_cost(self, units: Iterable[int], target: Target, /) -> RegionCost | None: ...
    def measured_regions(self) -> Mapping[tuple[frozenset[int], Target], float]: ...


def arrays_of(graph: UnitGraph, costs: Costs) -> CostArrays:
    """The arrays of a cost model for ``graph``."""
    arrays: Callable[[], CostArrays] | None = getattr(costs, "arrays", None)
    return arrays_by_asking(graph, costs) if arrays is None else arrays()


def arrays_by_asking(graph: UnitGraph, costs: Costs) -> CostArrays:
    """What the functions of a cost model say of every unit on every target."""
    targets = tuple(costs.targets)
    n = len(graph.units)
    unit_ns = np.full((n, len(targets)), np.inf)
    estimated = np.zeros((n, len(targets)), dtype=np.bool_)
    for k, target in enumerate(targets):
        for unit in graph.units:
            ns = costs.unit_cost(unit.index, target)
            if ns is None:
                continue
            unit_ns[unit.index, k] = ns
            region = costs.region_cost((unit.index,), target)
            estimated[unit.index, k] = region is not None and region.estimated
    return CostArrays(
        targets=targets,
        unit_ns=unit_ns,
        overhead_ns=np.array([costs.overhead(t) for t in targets], dtype=np.float64),
        in_ns_per_byte=np.array([_slope(costs, t, 1, 0) for t in targets], dtype=np.float64),
        out_ns_per_byte=np.array([_slope(costs, t, 0, 1) for t in targets], dtype=np.float64),
        region_ns=costs.measured_regions(),
        estimated=estimated,
    )


def _slope(costs: Costs, target: Target, into: int, out: int) -> float:
    return costs.transfer(target, into * _PROBE_BYTES, out * _PROBE_BYTES) / _PROBE_BYTES
