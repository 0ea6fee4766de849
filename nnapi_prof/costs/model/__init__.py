"""Cost model of one model on one device: the latency of any region on any target.

It is fitted from everything measured there: units alone, chains, whole regions. A region measured
whole has its own latency; any other region the sum of
:mod:`nnapi_prof.costs.model.regression`. Each latency has a standard deviation: that of the median
for a measurement, that of the fit for a sum.

A unit may have been measured under only one of an accelerator's preferences, where a sample of
units showed no gain under the others: there it is inferred, by the ratio of the sample.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.costs.model.regression import (
    FEW_REGIONS,
    LEAST_SPREAD,
    RegionSample,
    TargetFit,
    fit_target,
)
from nnapi_prof.costs.table import (
    FREE,
    CompileTimes,
    CostedRegion,
    CostTable,
    Estimate,
    Price,
    price_arrays,
    with_estimates,
)
from nnapi_prof.graph.plan import HOST, Engine, Plan, Target
from nnapi_prof.graph.unit import Unit, UnitGraph


@dataclass(frozen=True, slots=True)
class Roofline:
    """Roofline of a processor: rates of arithmetic and memory, and a fixed price per operation."""

    macs_per_ns: float
    bytes_per_ns: float
    operation_ns: float

    def unit_ns(self, graph: UnitGraph, unit: Unit) -> float:
        """Returns max(arithmetic, memory) + a fixed price for each node of the unit, in ns."""
        names = dict.fromkeys((*unit.inputs, *unit.outputs))
        moved = sum(graph.values[name].n_bytes for name in names) + unit.constant_bytes
        work = max(unit.macs / self.macs_per_ns, moved / self.bytes_per_ns)
        return work + self.operation_ns * max(1, len(unit.nodes))

    def region_ns(self, graph: UnitGraph, units: Iterable[int]) -> float:
        """Returns the sum over units, which run one after the other and share nothing, in ns."""
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
"""Phone CPU as eager PyTorch uses it."""


MOST_NOISE = 0.1
"""Largest noise assumed: a noisier device should be measured again."""
NINE_TENTHS = 1.645
"""Normal quantile: nine of ten errors stay within this many standard deviations."""
UNKNOWN = 3.0
"""Relative error assumed for estimates whose error is unknown."""
CACHE_BYTES = 1 << 20
"""Bytes moved through the cache above which a region finds it cold (assumed: a core's own share on
phones and desktops alike)."""


def cold_bytes(graph: UnitGraph, units: Iterable[int]) -> int:
    """Returns the bytes of weights and outputs of some units, summed over units."""
    return sum(
        graph.units[u].constant_bytes
        + sum(graph.values[name].n_bytes for name in graph.units[u].outputs)
        for u in units
    )


@dataclass(frozen=True)
class CompileModel:
    """Model of compile times, made by :func:`nnapi_prof.costs.model.fit.fit_compiling`. It is
    fitted on first use, as most callers never need it.

        compile time = fixed + sum of unit parts

    for each accelerator, whose preferences compile the same operations and are fitted together. The
    CPU engine's set-up does not count as compilation.
    """

    samples: Mapping[str, Sequence[RegionSample]] = field(default_factory=dict, repr=False)
    """Accelerator -> compile times, as samples without transfers."""
    whole_ns: Mapping[tuple[frozenset[int], str], float] = field(default_factory=dict)
    """(units, accelerator) -> ns of a region that was compiled whole."""

    @cached_property
    def fits(self) -> Mapping[str, TargetFit]:
        """Accelerator -> its fit, without transfers."""
        return {name: fit_target(own, on_cpu=False) for name, own in self.samples.items()}

    def fixed_ns(self, target: Target) -> float:
        """Returns the fixed compile time of a region on a target, in ns."""
        fitted = self.fits.get(target.accelerator or "")
        return fitted.overhead_ns if fitted is not None else 0.0

    def unit_ns_on(self, target: Target) -> Mapping[str, float]:
        """Returns signature -> a unit's part on a target in ns, for units that were compiled."""
        fitted = self.fits.get(target.accelerator or "")
        return {} if fitted is None else fitted.unit_ns


@dataclass(frozen=True, slots=True)
class RegionCost:
    """Latency of a region: ``measured`` whole, ``estimated`` by the static model, or a sum."""

    ns: float
    measured: bool = False
    estimated: bool = False
    sigma_ns: float = 0.0
    """Standard deviation; 0 where it is unknown."""


def slack_of(fitted: TargetFit, most_units: int, noise: float) -> float:
    """Returns the relative standard deviation by which sums of so many units may be too high: that
    of the fit, less the part due to noise, which no plan can gain."""
    return math.sqrt(max(0.0, fitted.gain_of(most_units) ** 2 - noise**2))


class TabulatedCosts(ABC):
    """Base class of region costs that come from a table, with standard deviations."""

    graph: UnitGraph
    targets: tuple[Target, ...]

    @property
    @abstractmethod
    def table(self) -> CostTable:
        """All costs as one value, for the partitioner."""

    def unit_cost(self, unit_index: int, target: Target) -> float | None:
        """Returns a unit's marginal cost in ns within a region, caches cold, without overhead and
        transfer; None where it cannot run there."""
        return self.table.unit_cost(unit_index, target)

    def price(self, target: Target) -> Price:
        """Returns a target's invocation and transfer prices; FREE where the table lacks it."""
        return self.table.price(target)

    def overhead(self, target: Target) -> float:
        """Returns the fixed cost of one invocation in ns."""
        return self.price(target).invocation_ns

    def transfer(self, target: Target, in_bytes: int, out_bytes: int) -> float:
        """Returns the cost of moving a region's inputs and outputs in ns."""
        price = self.price(target)
        return in_bytes * price.ns_per_in_byte + out_bytes * price.ns_per_out_byte

    def boundary_ns(self, region: frozenset[int], target: Target) -> float:
        """Returns the cost of moving a region's inputs and outputs in ns, like :meth:`transfer`."""
        counted, size = self.table.border_bytes, self.graph.values
        entering, leaving = (
            sum(counted.get(name, size[name].n_bytes) for name in side)
            for side in self.graph.boundary(region)
        )
        return self.transfer(target, entering, leaving)

    def region_cost(self, units: Iterable[int], target: Target) -> RegionCost | None:
        """Returns the latency of a region run whole on ``target``; None where it cannot run there.

        A region that was tried whole and did not run cannot run, even if its units run alone.
        Conversions between formats are not included.
        """
        region = frozenset(units)
        whole_ns = self.table.region_ns.get((region, target))
        if whole_ns is not None:
            return self.whole_cost(region, target, whole_ns) if math.isfinite(whole_ns) else None
        total = self.overhead(target) + self.boundary_ns(region, target)
        for unit in region:
            cost = self.unit_cost(unit, target)
            if cost is None:
                return None
            total += cost
        estimated = any(self.table.is_estimated(unit, target) for unit in region)
        return RegionCost(
            total, estimated=estimated, sigma_ns=self.sum_sigma_ns(region, target, total)
        )

    @abstractmethod
    def whole_cost(self, region: frozenset[int], target: Target, ns: float) -> RegionCost:
        """Returns the cost of a region that was measured or estimated whole."""

    def sum_sigma_ns(self, region: frozenset[int], target: Target, ns: float) -> float:
        """Returns the standard deviation of a region's cost that is the sum of its parts; 0 where
        it is unknown."""
        return 0.0


@dataclass
class CostModel(TabulatedCosts):
    """Costs of regions of ``graph``, made by :func:`nnapi_prof.costs.model.fit.fit`."""

    graph: UnitGraph
    targets: tuple[Target, ...]
    """CPU first, then accelerators by name, then "auto" (the first of equals is chosen, and a name
    says more), then HOST where a unit needs it. All but HOST have at least one latency."""
    fits: Mapping[Target, TargetFit] = field(repr=False)
    refusals: Mapping[tuple[int, Target], str] = field(repr=False)
    """(unit, target) -> reason, as a sentence, why the unit cannot run there."""
    partial: frozenset[Target] = frozenset()
    """Targets on which some units were never tried, since a trial showed that they are far slower:
    there, only regions that were measured have costs."""
    simulated: bool = False
    copy_ns_per_byte: float = 0.0
    """Cost of copies between an app's buffers and memory shared with accelerators; 0 where no row
    has it. Inputs and outputs that only the CPU uses are not copied."""
    compiling: CompileModel = field(default_factory=CompileModel, repr=False)
    filled: Mapping[tuple[int, Target], Estimate] = field(default_factory=dict, repr=False)
    """Estimates of units that were not measured on a target."""
    prices: Mapping[Target, Price] = field(default_factory=dict, repr=False)
    """Prices of targets on which nothing of this model was measured."""
    compiled: Mapping[CostedRegion, float] = field(default_factory=dict, repr=False)
    """Region that a simulator estimated whole -> ns; infinite where the simulator rejects it."""
    border_bytes: Mapping[str, int] = field(default_factory=dict, repr=False)
    """See :attr:`CostTable.border_bytes`."""
    _host_ns: Mapping[int, float] = field(default_factory=dict, repr=False)
    _whole: Mapping[CostedRegion, Measurement] = field(default_factory=dict, repr=False)

    @cached_property
    def table(self) -> CostTable:
        n, t = len(self.graph.units), len(self.targets)
        column = {target: k for k, target in enumerate(self.targets)}
        unit_ns = np.full((n, t), np.inf)
        cold = np.array([cold_bytes(self.graph, (unit,)) for unit in range(n)], dtype=np.float64)
        for target, k in column.items():
            fitted = self.fits.get(target)
            if fitted is None or target in self.partial:
                continue
            own = [fitted.unit_ns.get(unit.signature, math.inf) for unit in self.graph.units]
            unit_ns[:, k] = np.array(own) + fitted.ns_per_cold_byte * cold
        for unit, target in self.refusals:
            if target in column:
                unit_ns[unit, column[target]] = math.inf
        estimated = np.zeros((n, t), dtype=np.bool_)
        if HOST in column:
            for unit, ns in self._host_ns.items():
                unit_ns[unit, column[HOST]] = ns
                estimated[unit, column[HOST]] = True
        measured = CostTable(
            self.targets,
            unit_ns,
            *price_arrays(self._fitted_price(target) for target in self.targets),
            region_ns=self._whole_ns,
            estimated=estimated,
            refusals=self.refusals,
            simulated=self.simulated,
            slack=np.array([self._slack(target) for target in self.targets], dtype=np.float64),
            noise=self.noise,
            copies_ns=self.copies_ns(),
            compiling=self.compile_times,
            first_ns={
                place: float(row.first_ns)
                for place, row in self._whole.items()
                if row.first_ns is not None
            },
            border_bytes=self.border_bytes,
        )
        if not (self.filled or self.prices):
            return measured
        return with_estimates(measured, self.filled, self.prices)

    @cached_property
    def _whole_ns(self) -> Mapping[CostedRegion, float]:
        """Region measured, or simulated, whole -> ns; infinite where it did not run."""
        measured = {
            place: row.latency_ns if row.usable else math.inf
            for place, row in self._whole.items()
            if place[1] in self.fits
        }
        return measured | dict(self.compiled)

    def _fitted_price(self, target: Target) -> Price:
        fitted = self.fits.get(target)
        if fitted is None:
            return FREE
        return Price(fitted.overhead_ns, fitted.ns_per_in_byte, fitted.ns_per_out_byte)

    def _slack(self, target: Target) -> float:
        fitted = self.fits.get(target)
        return 0.0 if fitted is None else slack_of(fitted, len(self.graph.units), self.noise)

    @cached_property
    def noise(self) -> float:
        """Relative standard deviation of one measurement repeated at another time.

        It is estimated from the errors of sums on the targets that they fit best (the lower
        quartile): on the others, fusion by the driver and cold caches add to the errors. Simulated
        phones repeat their latencies.
        """
        if self.simulated:
            return LEAST_SPREAD
        spreads = [
            fitted.spread for fitted in self.fits.values() if fitted.n_regions >= FEW_REGIONS
        ]
        return min(MOST_NOISE, float(np.quantile(spreads, 0.25))) if spreads else LEAST_SPREAD

    @property
    def residuals(self) -> dict[Target, tuple[float, ...]]:
        """Target -> (predicted by the sum - measured) / measured of every row."""
        return {target: fitted.residuals for target, fitted in self.fits.items()}

    def whole_cost(self, region: frozenset[int], target: Target, ns: float) -> RegionCost:
        if (region, target) in self.compiled:
            return RegionCost(ns, estimated=True)
        spread = self._whole[region, target].summary.sigma_of_median_ns
        return RegionCost(ns, measured=True, sigma_ns=math.hypot(spread, self.noise * ns))

    def sum_sigma_ns(self, region: frozenset[int], target: Target, ns: float) -> float:
        fitted = self.fits.get(target)
        own = 0.0 if fitted is None else ns * fitted.spread_of(len(region))
        guessed = [e for unit in region if (e := self.filled.get((unit, target))) is not None]
        errors = (e.ns * (UNKNOWN if e.error is None else e.error) for e in guessed)
        return own + math.hypot(*errors) / NINE_TENTHS

    def compile_times(self, targets: tuple[Target, ...]) -> CompileTimes:
        """Returns the compile times on some targets."""
        units = self.graph.units
        fitted = [self.compiling.unit_ns_on(target) for target in targets]
        return CompileTimes(
            np.array([self.compiling.fixed_ns(target) for target in targets], dtype=np.float64),
            np.array(
                [[own.get(unit.signature, 0.0) for own in fitted] for unit in units],
                dtype=np.float64,
            ).reshape(len(units), len(targets)),
            {
                (region, k): ns
                for (region, name), ns in self.compiling.whole_ns.items()
                for k, target in enumerate(targets)
                if target.accelerator == name
            },
        )

    def copies_ns(self) -> dict[str, float]:
        """Returns input or output of the graph -> ns to copy it; empty where that is unknown."""
        if not self.copy_ns_per_byte:
            return {}
        values = self.graph.values
        return {
            name: values[name].n_bytes * self.copy_ns_per_byte
            for name in (*self.graph.inputs, *self.graph.outputs)
        }

    def with_copies(self, plan: Plan) -> Plan:
        """Returns the plan with the time to copy those inputs and outputs of the graph that an
        accelerator reads or writes."""
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

    def unit_error(self, unit_index: int, target: Target) -> float:
        """Returns the standard error of :meth:`unit_cost` in ns; 0 where it is unknown."""
        fitted = self.fits.get(target)
        signature = self.graph.units[unit_index].signature
        return 0.0 if fitted is None else fitted.errors.get(signature, 0.0)

    def inferred(self, unit_index: int, target: Target) -> bool:
        """Returns whether the unit was not measured alone on ``target``, but has a cost there."""
        return (frozenset((unit_index,)), target) not in self._whole and (
            self.unit_cost(unit_index, target) is not None
        )

    def whole(self, units: Iterable[int], target: Target) -> Measurement | None:
        """Returns the measurement of exactly this region, of any status; None without one."""
        return self._whole.get((frozenset(units), target))
