"""The cost model of one model on one device: what any region would take on any target.

Fitted from everything measured there: units alone, chains, whole regions. A region measured whole
answers with its own latency; any other with the sum of :mod:`nnapi_prof.costs.model.regression`.
Each answer has a standard deviation: of a measurement the median's, of a sum the fit's.

A unit may have been measured under one of an accelerator's preferences only, where a sample of
units showed nothing to be had from the others: it is inferred there, by the sample's ratio.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.costs.model.regression import (
    FEW_REGIONS,
    LEAST_SPREAD,
    RegionSample,
    TargetFit,
    fit_target,
)
from nnapi_prof.graph.plan import HOST, Engine, Plan, Target
from nnapi_prof.graph.unit import Unit, UnitGraph


@dataclass(frozen=True, slots=True)
class Roofline:
    """A processor: rates of arithmetic and of memory, and a fixed price for each operation."""

    macs_per_ns: float
    bytes_per_ns: float
    operation_ns: float

    def unit_ns(self, graph: UnitGraph, unit: Unit) -> float:
        """max(arithmetic, memory) + one fixed price for each node of the unit, in ns."""
        names = dict.fromkeys((*unit.inputs, *unit.outputs))
        moved = sum(graph.values[name].n_bytes for name in names) + unit.constant_bytes
        work = max(unit.macs / self.macs_per_ns, moved / self.bytes_per_ns)
        return work + self.operation_ns * max(1, len(unit.nodes))

    def region_ns(self, graph: UnitGraph, units: Iterable[int]) -> float:
        """Sum over units: operations run one after the other and share nothing."""
        return sum(self.unit_ns(graph, graph.units[index]) for index in units)


PHONE_CPU = Roofline(
    # TensorFlow Lite's documentation gives MobileNet v1 1.0 224 float32 (569 million MACs) as
    # 14.0 ms on a Pixel 4's CPU: 569e6 / 14.0e6 ns = 40.6.
    macs_per_ns=40.6,
    # assumed: a third of LPDDR4X-4266 on four 16-bit channels (34 GB/s) for plain loops
    bytes_per_ns=11.0,
    # assumed: eager PyTorch's dispatch of one operator on a phone core
    operation_ns=10_000.0,
)
"""A phone's CPU as eager PyTorch uses it."""


MOST_NOISE = 0.1
"""Worse than this a device would have to be measured again rather than believed."""
CACHE_BYTES = 1 << 20
"""Regions that bring more than this through the cache find it cold (assumed: a core's own share on
phones and desktops alike)."""


def cold_bytes(graph: UnitGraph, units: Iterable[int]) -> int:
    """Bytes of weights and of outputs of some units, each unit for itself."""
    return sum(
        graph.units[u].constant_bytes
        + sum(graph.values[name].n_bytes for name in graph.units[u].outputs)
        for u in units
    )


@dataclass(frozen=True, eq=False)
class Conversions:
    """Formats of values on t targets, and what converting values between them costs, in ns.

    A value is converted at most once each way: to 8-bit integers where a float target makes it (or
    it is an input of the graph) and some reader runs in 8 bits; to floats where it is made in 8
    bits, and some reader runs in floats or it is an output of the graph.
    """

    format: NDArray[np.int64]
    """[t]: 0 where values are floats, 1 where they are 8-bit integers"""
    to_int8_ns: Mapping[str, float]
    """Value -> ns to convert it from floats; what is not named costs nothing"""
    to_float_ns: Mapping[str, float]
    """Value -> ns to convert it back"""


@dataclass(frozen=True, eq=False)
class CostArrays:
    """Costs of n units on t targets, in ns."""

    targets: tuple[Target, ...]
    unit_ns: NDArray[np.float64]
    """[n, t]; inf where the target cannot run the unit, or nobody knows what it costs there."""
    overhead_ns: NDArray[np.float64]
    """[t], of each segment"""
    in_ns_per_byte: NDArray[np.float64]
    """[t], of values that enter a segment, ..."""
    out_ns_per_byte: NDArray[np.float64]
    """... and of those that leave it"""
    region_ns: Mapping[tuple[frozenset[int], Target], float]
    """Regions that were measured whole; inf where one did not run."""
    estimated: NDArray[np.bool_]
    """[n, t]: costs that rest on the static model"""
    conversions: Conversions | None = None
    """None where values are in the same format everywhere"""
    copies_ns: Mapping[str, float] = field(default_factory=dict)
    """Inputs and outputs of the graph -> ns to copy them from and to an app's buffers, which is
    done once where an accelerator reads or writes them"""


@dataclass(frozen=True)
class CompileModel:
    """Answers what compiling takes; made by :func:`nnapi_prof.costs.model.fit.fit_compiling`. Most
    never ask: what it fits, it fits when somebody does.

        compile time = fixed + sum of unit parts

    per accelerator: its preferences compile the same operations, and are fitted together. The CPU
    engine's set-up is no compilation and counts as none.
    """

    samples: Mapping[str, Sequence[RegionSample]] = field(default_factory=dict, repr=False)
    """Accelerator -> compile times, as samples without transfers."""
    whole_ns: Mapping[tuple[frozenset[int], str], float] = field(default_factory=dict)
    """(units, accelerator) -> ns of a region that was compiled whole."""

    @cached_property
    def fits(self) -> Mapping[str, TargetFit]:
        """Accelerator -> its terms; of the transfers none."""
        return {name: fit_target(own, on_cpu=False) for name, own in self.samples.items()}

    def fixed_ns(self, target: Target) -> float:
        """Returns the fixed cost of each region on a target, whatever it computes."""
        fitted = self.fits.get(target.accelerator or "")
        return fitted.overhead_ns if fitted is not None else 0.0

    def unit_ns(self, signature: str, target: Target) -> float:
        """A unit's part; 0 where it was never compiled, or nothing is compiled there."""
        fitted = self.fits.get(target.accelerator or "")
        return fitted.unit_ns.get(signature, 0.0) if fitted is not None else 0.0


@dataclass(frozen=True, slots=True)
class RegionCost:
    """A region's latency. ``measured``: of this very region; ``estimated``: static model's."""

    ns: float
    measured: bool = False
    estimated: bool = False
    sigma_ns: float = 0.0
    """Standard deviation; of an estimate unknown, and 0."""


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a target beside its operations, in ns."""

    invocation_ns: float = 0.0
    ns_per_in_byte: float = 0.0
    ns_per_out_byte: float = 0.0


FREE = Price()


class PricedTargets(ABC):
    """The base of cost models of regions: a price for each target."""

    graph: UnitGraph
    targets: tuple[Target, ...]

    @abstractmethod
    def price(self, target: Target) -> Price:
        """Returns what ``target`` charges beside its operations; FREE where it charges nothing."""

    def overhead(self, target: Target) -> float:
        """Returns the cost of one invocation in ns, whatever it computes."""
        return self.price(target).invocation_ns

    def transfer(self, target: Target, in_bytes: int, out_bytes: int) -> float:
        """Returns the cost of moving a region's inputs and outputs in ns."""
        price = self.price(target)
        return in_bytes * price.ns_per_in_byte + out_bytes * price.ns_per_out_byte

    def boundary_ns(self, region: frozenset[int], target: Target) -> float:
        """:meth:`transfer` of a region."""
        entering, leaving = self.graph.boundary(region)
        size = self.graph.values
        return self.transfer(
            target,
            sum(size[name].n_bytes for name in entering),
            sum(size[name].n_bytes for name in leaving),
        )

    def with_prices(
        self,
        unit_ns: NDArray[np.float64],
        region_ns: Mapping[tuple[frozenset[int], Target], float],
        estimated: NDArray[np.bool_],
    ) -> CostArrays:
        """All of it as arrays: what the partitioner asks for."""
        prices = [self.price(target) for target in self.targets]
        return CostArrays(
            targets=self.targets,
            unit_ns=unit_ns,
            overhead_ns=np.array([price.invocation_ns for price in prices], dtype=np.float64),
            in_ns_per_byte=np.array([price.ns_per_in_byte for price in prices], dtype=np.float64),
            out_ns_per_byte=np.array([price.ns_per_out_byte for price in prices], dtype=np.float64),
            region_ns=region_ns,
            estimated=estimated,
        )


@dataclass
class CostModel(PricedTargets):
    """Answers what regions of ``graph`` cost; made by :func:`nnapi_prof.costs.model.fit.fit`."""

    graph: UnitGraph
    targets: tuple[Target, ...]
    """CPU first, then accelerators by name, "auto" behind them (of equals the first is chosen, and
    a name says more), then HOST where a unit needs it. All but HOST have at least one latency."""
    fits: Mapping[Target, TargetFit] = field(repr=False)
    refusals: Mapping[tuple[int, Target], str] = field(repr=False)
    """(unit, target) -> why the unit cannot run there, as a sentence."""
    partial: frozenset[Target] = frozenset()
    """Targets on which some units were never tried, for a trial showed them to lie far behind: of
    these, regions that were measured are all that there is."""
    simulated: bool = False
    copy_ns_per_byte: float = 0.0
    """Of copies between an app's buffers and memory that accelerators share; 0 where no row tells.
    What the CPU alone reads and writes stays in place."""
    compiling: CompileModel = field(default_factory=CompileModel, repr=False)
    _host_ns: Mapping[int, float] = field(default_factory=dict, repr=False)
    _whole: Mapping[tuple[frozenset[int], Target], Measurement] = field(
        default_factory=dict, repr=False
    )

    def __post_init__(self) -> None:
        self._whole_ns = {
            place: row.latency_ns if row.usable else math.inf
            for place, row in self._whole.items()
            if place[1] in self.fits
        }
        self._cold_bytes = [cold_bytes(self.graph, (unit.index,)) for unit in self.graph.units]

    @cached_property
    def noise(self) -> float:
        """Relative standard deviation of one measurement repeated at another time, as far as it
        shows: what sums are off by on the targets that they fit best (their lower quartile), for
        what a driver joins or a cache loses adds to it on the others. Simulated phones repeat
        themselves."""
        if self.simulated:
            return LEAST_SPREAD
        spreads = [
            fitted.spread for fitted in self.fits.values() if fitted.n_regions >= FEW_REGIONS
        ]
        return min(MOST_NOISE, float(np.quantile(spreads, 0.25))) if spreads else LEAST_SPREAD

    @property
    def residuals(self) -> dict[Target, tuple[float, ...]]:
        """(predicted by the sum - measured) / measured of every row, per target."""
        return {target: fitted.residuals for target, fitted in self.fits.items()}

    def unit_cost(self, unit_index: int, target: Target) -> float | None:
        """Marginal cost in ns within a region, caches cold, without overhead and transfer; None
        where it cannot run there."""
        if target.engine is Engine.HOST:
            return self._host_ns.get(unit_index)
        fitted = self.fits.get(target)
        if fitted is None or target in self.partial or (unit_index, target) in self.refusals:
            return None
        own = fitted.unit_ns.get(self.graph.units[unit_index].signature)
        if own is None:
            return None
        return own + fitted.ns_per_cold_byte * self._cold_bytes[unit_index]

    def price(self, target: Target) -> Price:
        fitted = self.fits.get(target)
        if fitted is None:
            return FREE
        return Price(fitted.overhead_ns, fitted.ns_per_in_byte, fitted.ns_per_out_byte)

    def region_cost(self, units: Iterable[int], target: Target) -> RegionCost | None:
        """Latency of a region run as one on ``target``; None where it cannot run there.

        A region that was tried whole and did not run cannot run, whatever its units do alone.
        """
        region = frozenset(units)
        if target.engine is Engine.HOST:
            if not all(unit in self._host_ns for unit in region):
                return None
            return RegionCost(sum(self._host_ns[u] for u in region), estimated=True)
        whole_ns = self._whole_ns.get((region, target))
        if whole_ns is not None:
            if not math.isfinite(whole_ns):
                return None
            row = self._whole[region, target]
            sigma = math.hypot(row.summary.sigma_of_median_ns, self.noise * whole_ns)
            return RegionCost(whole_ns, measured=True, sigma_ns=sigma)
        total = self.overhead(target) + self.boundary_ns(region, target)
        for unit in region:
            cost = self.unit_cost(unit, target)
            if cost is None:
                return None
            total += cost
        spread = self.fits[target].spread_of(len(region)) if target in self.fits else 0.0
        return RegionCost(total, sigma_ns=total * spread)

    def arrays(self) -> CostArrays:
        """All of it as arrays: what the partitioner asks for."""
        n, t = len(self.graph.units), len(self.targets)
        unit_ns = np.full((n, t), np.inf)
        cold_bytes = np.array(self._cold_bytes, dtype=np.float64)
        for k, target in enumerate(self.targets):
            fitted = self.fits.get(target)
            if fitted is None or target in self.partial:
                continue
            own = [fitted.unit_ns.get(unit.signature, math.inf) for unit in self.graph.units]
            unit_ns[:, k] = np.array(own) + fitted.ns_per_cold_byte * cold_bytes
        index = {target: k for k, target in enumerate(self.targets)}
        for unit, target in self.refusals:
            if target in index:
                unit_ns[unit, index[target]] = math.inf
        estimated = np.zeros((n, t), dtype=np.bool_)
        if HOST in index:
            for unit, ns in self._host_ns.items():
                unit_ns[unit, index[HOST]] = ns
                estimated[unit, index[HOST]] = True
        priced = self.with_prices(unit_ns, self._whole_ns, estimated)
        return replace(priced, copies_ns=self.copies_ns())

    def compile_overhead(self, target: Target) -> float:
        """Returns the time that compiling any region for ``target`` takes, in ns, beside its units'
        parts."""
        return self.compiling.fixed_ns(target)

    def compile_cost(self, unit_index: int, target: Target) -> float:
        """A unit's part of compiling a region for ``target``, in ns."""
        return self.compiling.unit_ns(self.graph.units[unit_index].signature, target)

    def compiled_regions(self) -> dict[tuple[frozenset[int], Target], float]:
        """(units, target) -> ns of every region that was compiled whole."""
        return {
            (units, target): ns
            for (units, name), ns in self.compiling.whole_ns.items()
            for target in self.targets
            if target.accelerator == name
        }

    def copies_ns(self) -> dict[str, float]:
        """Returns each input and output of the graph with what it takes to copy it; nothing where
        that is unknown."""
        if not self.copy_ns_per_byte:
            return {}
        values = self.graph.values
        return {
            name: values[name].n_bytes * self.copy_ns_per_byte
            for name in (*self.graph.inputs, *self.graph.outputs)
        }

    def with_copies(self, plan: Plan) -> Plan:
        """The plan with what it takes to copy the graph's inputs and outputs that an accelerator
        reads or writes."""
        copied = set[str]().union(
            *(
                name
                for segment in plan.segments
                if segment.target.engine is Engine.NNAPI
                for name in self.graph.boundary(segment.units)
            )
        )
        total = sum(ns for name, ns in self.copies_ns().items() if name in copied)
        return replace(plan, copies_ns=total)

    def most_units(self, target: Target) -> int:
        """Units that a region on ``target`` may have."""
        return len(self.graph.units)

    def unit_error(self, unit_index: int, target: Target) -> float:
        """Standard error of :meth:`unit_cost` in ns; 0 where none is known."""
        fitted = self.fits.get(target)
        signature = self.graph.units[unit_index].signature
        return 0.0 if fitted is None else fitted.errors.get(signature, 0.0)

    def inferred(self, unit_index: int, target: Target) -> bool:
        """Whether the unit was not measured alone on ``target``, but on another preference."""
        return (frozenset((unit_index,)), target) not in self._whole and (
            self.unit_cost(unit_index, target) is not None
        )

    def whole(self, units: Iterable[int], target: Target) -> Measurement | None:
        """The measurement of this very region, if there is one, whatever its status."""
        return self._whole.get((frozenset(units), target))

    def measured_regions(self) -> dict[tuple[frozenset[int], Target], float]:
        """(units, target) -> ns of every region measured whole; infinity where it did not run."""
        return dict(self._whole_ns)
