"""Model and fit the costs of a float model's regions on targets in several precisions.

A device has one cost model for each precision: of the float graph in float32, relaxed and float16,
and of the graph in which everything that can be is in 8 bits. :class:`PrecisionCosts` combines them
over the float graph's units. It has an additional target for each precision of a target, named with
a suffix, and the costs of converting each value between floats and 8 bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.costs.model import CostModel, RegionCost, TabulatedCosts, slack_of
from nnapi_prof.costs.model.fit import UnitSet, fit
from nnapi_prof.costs.model.infer import infer_precision
from nnapi_prof.costs.model.quantised import Conversion, ConversionCosts, EightBits
from nnapi_prof.costs.model.regression import FitCache, TargetFit
from nnapi_prof.costs.table import CompileTimes, Conversions, CostedRegion, CostTable
from nnapi_prof.errors import CostError
from nnapi_prof.graph import DTYPE_BYTES
from nnapi_prof.graph.plan import CPU, Engine, Precision, Target
from nnapi_prof.graph.unit import UnitGraph

FLOAT_BYTES = DTYPE_BYTES["float32"]
"""Bytes of an element in floats; one in 8 bits has 1."""
NO_8_BITS = "it cannot be in 8 bits"


@dataclass
class PrecisionCosts(TabulatedCosts):
    """Costs of regions of ``graph``, a float model's, on targets with precisions of their own
    (``nnapi:ACC/fast@int8``; float32 without a suffix).

    Latencies of regions in 8 bits are with integers at their borders. Converting values to these
    and back is a separate cost, on the CPU, in :attr:`table`.
    """

    graph: UnitGraph
    models: Mapping[Precision, CostModel] = field(repr=False)
    """FLOAT32 always; INT8's is over ``eight_bits.canonical_graph``, the others' over ``graph``."""
    eight_bits: EightBits | None = field(default=None, repr=False)
    converting: ConversionCosts | None = None
    targets: tuple[Target, ...] = ()
    """Targets of float32 in the order of its model, then those of the other precisions."""

    def __post_init__(self) -> None:
        if not self.targets:
            self.targets = tuple(
                target.at(precision)
                for precision, model in self.models.items()
                for target in model.targets
                if _has_precision(target, precision)
            )

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """Precisions with known costs, float32 first."""
        return tuple(dict.fromkeys(target.precision for target in self.targets))

    @property
    def floats(self) -> CostModel:
        """The cost model in float32."""
        return self.models[Precision.FLOAT32]

    @property
    def simulated(self) -> bool:
        return any(model.simulated for model in self.models.values())

    @property
    def noise(self) -> float:
        """See :attr:`CostModel.noise`; repeated measurements vary alike in each precision."""
        return self.floats.noise

    @cached_property
    def fits(self) -> Mapping[Target, TargetFit]:
        """Fit of every target; targets in 8 bits have signatures of
        ``eight_bits.canonical_graph``."""
        return {
            target.at(precision): fitted
            for precision, model in self.models.items()
            for target, fitted in model.fits.items()
            if _has_precision(target, precision)
        }

    @property
    def residuals(self) -> dict[Target, tuple[float, ...]]:
        """See :attr:`CostModel.residuals`."""
        return {target: fitted.residuals for target, fitted in self.fits.items()}

    @cached_property
    def partial(self) -> frozenset[Target]:
        """See :attr:`CostModel.partial`."""
        return frozenset(
            target.at(precision)
            for precision, model in self.models.items()
            for target in model.partial
            if _has_precision(target, precision)
        )

    @cached_property
    def refusals(self) -> Mapping[tuple[int, Target], str]:
        """(unit, target) -> why it cannot run there, which includes 8 bits for units without."""
        refusals: dict[tuple[int, Target], str] = {}
        for precision, model in self.models.items():
            for (unit, target), why in model.refusals.items():
                here = self._unit_here(unit, precision)
                if here is not None and _has_precision(target, precision):
                    refusals[here, target.at(precision)] = why
        if self.eight_bits is not None:
            for target in self.targets:
                if target.precision is Precision.INT8:
                    for unit in range(len(self.graph.units)):
                        if unit not in self.eight_bits.unit_of:
                            why = self.eight_bits.refusals.get(unit, NO_8_BITS)
                            refusals[unit, target] = why
        return refusals

    # ---- costs --------------------------------------------------------------------------------

    @cached_property
    def table(self) -> CostTable:
        """The columns of the precisions' tables. Prices are per byte of the value in floats, also
        where 8 bits are transferred."""
        n, t = len(self.graph.units), len(self.targets)
        unit_ns = np.full((n, t), np.inf)
        estimated = np.zeros((n, t), dtype=np.bool_)
        overhead_ns, in_ns, out_ns, slack = np.zeros((4, t))
        for k, target in enumerate(self.targets):
            model = self.models[target.precision]
            table, column = model.table, model.table.column[target.base]
            rows = [self._unit_there(unit, target) for unit in range(n)]
            has = np.array([row is not None for row in rows], dtype=np.bool_)
            there = [row for row in rows if row is not None]
            unit_ns[has, k] = table.unit_ns[there, column]
            if table.estimated is not None:
                estimated[has, k] = table.estimated[there, column]
            bytes_there = FLOAT_BYTES if target.precision is Precision.INT8 else 1
            overhead_ns[k] = table.overhead_ns[column]
            in_ns[k] = table.in_ns_per_byte[column] / bytes_there
            out_ns[k] = table.out_ns_per_byte[column] / bytes_there
            slack[k] = self._slack(target)
        return CostTable(
            targets=self.targets,
            unit_ns=unit_ns,
            overhead_ns=overhead_ns,
            in_ns_per_byte=in_ns,
            out_ns_per_byte=out_ns,
            region_ns=self._whole_ns,
            estimated=estimated,
            refusals=self.refusals,
            simulated=self.simulated,
            slack=slack,
            noise=self.noise,
            conversions=self.conversions,
            compiling=self.compile_times,
        )

    def _slack(self, target: Target) -> float:
        """Returns the slack of the longest possible region: in 8 bits, that of the longest run of
        neighbours."""
        fitted, most = self.fits.get(target), len(self.graph.units)
        if target.precision is Precision.INT8 and self.eight_bits is not None:
            most = max(map(len, self.eight_bits.stretches), default=1)
        return 0.0 if fitted is None else slack_of(fitted, most, self.noise)

    def whole_cost(self, region: frozenset[int], target: Target, ns: float) -> RegionCost:
        model, there = self._there(region, target)
        return model.whole_cost(there, target.base, ns)

    def sum_sigma_ns(self, region: frozenset[int], target: Target, ns: float) -> float:
        model, there = self._there(region, target)
        return model.sum_sigma_ns(there, target.base, ns)

    def _there(self, region: frozenset[int], target: Target) -> tuple[CostModel, frozenset[int]]:
        """Returns the model of a region that runs on a target, and the region in its graph."""
        there = self._region_there(region, target)
        assert there is not None, "it runs there"
        return self.models[target.precision], there

    @cached_property
    def _whole_ns(self) -> Mapping[CostedRegion, float]:
        whole: dict[CostedRegion, float] = {}
        for precision, model in self.models.items():
            for (units, target), ns in model.table.region_ns.items():
                here = self._region_here(units, precision)
                if here is not None and _has_precision(target, precision):
                    whole[here, target.at(precision)] = ns
        return whole

    @property
    def conversions(self) -> Conversions | None:
        """The targets that compute in 8 bits, and the cost of converting each value; None without
        such targets."""
        formats = [int(target.precision is Precision.INT8) for target in self.targets]
        if self.converting is None or not any(formats):
            return None
        sizes = {
            name: type_.n_bytes
            for name, type_ in self.graph.values.items()
            if type_.dtype == "float32" and type_.quant is None
        }
        format_: NDArray[np.int64] = np.array(formats, dtype=np.int64)
        return Conversions(
            format_,
            {name: self.converting.to_int8.ns(n_bytes) for name, n_bytes in sizes.items()},
            {name: self.converting.to_float.ns(n_bytes) for name, n_bytes in sizes.items()},
        )

    # ---- what was measured --------------------------------------------------------------------

    def whole(self, units: Iterable[int], target: Target) -> Measurement | None:
        """Returns the measurement of exactly this region, of any status; None without one. In 8
        bits it may be at other scales."""
        model = self._model(target)
        there = self._region_there(frozenset(units), target)
        return None if model is None or there is None else model.whole(there, target.base)

    def inferred(self, unit_index: int, target: Target) -> bool:
        """Returns whether the unit was not measured alone on ``target``, but under another
        preference or in float32."""
        model = self._model(target)
        unit = self._unit_there(unit_index, target)
        return model is not None and unit is not None and model.inferred(unit, target.base)

    def unit_error(self, unit_index: int, target: Target) -> float:
        """See :meth:`CostModel.unit_error`."""
        model = self._model(target)
        unit = self._unit_there(unit_index, target)
        return 0.0 if model is None or unit is None else model.unit_error(unit, target.base)

    # ---- compiling ----------------------------------------------------------------------------

    def compile_times(self, targets: tuple[Target, ...]) -> CompileTimes:
        """Returns the compile times on some targets. Relaxed and float16 use the times of float32:
        few units were compiled there, and the same operations take as long."""
        n, t = len(self.graph.units), len(targets)
        fixed_ns, unit_ns = np.zeros(t), np.zeros((n, t))
        region_ns: dict[tuple[frozenset[int], int], float] = {}
        for k, target in enumerate(targets):
            is_float = target.precision is not Precision.INT8
            model = self.floats if is_float else self.models[Precision.INT8]
            parts = model.compiling.unit_ns_on(target.base)
            fixed_ns[k] = model.compiling.fixed_ns(target.base)
            for unit in range(n):
                there = self._unit_there(unit, target)
                if there is not None:
                    unit_ns[unit, k] = parts.get(model.graph.units[there].signature, 0.0)
            whole = self.models[target.precision].compiling.whole_ns
            for (units, name), ns in whole.items():
                here = self._region_here(units, target.precision)
                if here is not None and name == target.accelerator:
                    region_ns[here, k] = ns
        return CompileTimes(fixed_ns, unit_ns, region_ns)

    # ---- which unit is which ------------------------------------------------------------------

    def _model(self, target: Target) -> CostModel | None:
        """Returns the model of a target's precision."""
        precision = target.precision
        return self.models.get(precision) if _has_precision(target.base, precision) else None

    def _unit_there(self, unit: int, target: Target) -> int | None:
        """Returns the index of a unit of ``graph`` in the graph of a target's precision."""
        if target.precision is not Precision.INT8:
            return unit
        return None if self.eight_bits is None else self.eight_bits.unit_of.get(unit)

    def _unit_here(self, unit: int, precision: Precision) -> int | None:
        if precision is not Precision.INT8:
            return unit
        return None if self.eight_bits is None else self.eight_bits.float_of.get(unit)

    def _region_there(self, region: frozenset[int], target: Target) -> frozenset[int] | None:
        if target.precision is not Precision.INT8:
            return region
        return None if self.eight_bits is None else self.eight_bits.region(region)

    def _region_here(self, region: frozenset[int], precision: Precision) -> frozenset[int] | None:
        if precision is not Precision.INT8:
            return region
        return None if self.eight_bits is None else self.eight_bits.float_region(region)


def _has_precision(target: Target, precision: Precision) -> bool:
    """Returns whether a target of a precision's model supports that precision; the host computes in
    float32 only."""
    return precision is Precision.FLOAT32 or target.engine is not Engine.HOST


def fit_eight_bits(
    eight_bits: EightBits,
    rows: Iterable[Measurement],
    *,
    regions: Iterable[UnitSet] = (),
    refit: FitCache | None = None,
) -> CostModel:
    """Fits the cost model over ``eight_bits.canonical_graph`` to rows in its terms
    (:meth:`EightBits.shared_rows`). ``regions``, ``refit`` and exceptions are those of
    :func:`~nnapi_prof.costs.model.fit.fit`."""
    return fit(
        eight_bits.canonical_graph,
        rows,
        regions=regions,
        matcher=eight_bits.canonical_matcher,
        refit=refit,
        among=sorted(eight_bits.float_of),
    )


def fit_conditional(
    floats: CostModel,
    leading: Sequence[Measurement],
    rows: Sequence[Measurement],
    *,
    regions: Iterable[UnitSet] = (),
    refit: FitCache | None = None,
) -> CostModel:
    """Fits the cost model in relaxed or float16 to ``rows`` under such conditions. Where nothing
    was measured, costs are inferred from ``floats``, the model fitted to the rows ``leading`` in
    float32. Without such rows of the CPU, which then has no float16, the CPU is not a target. The
    rest is as in :func:`~nnapi_prof.costs.model.fit.fit`."""
    graph = floats.graph
    on_cpu = [row for row in leading if row.target == CPU]
    has_cpu = any(
        row.target == CPU and row.conditions.precision is not Precision.FLOAT32 for row in rows
    )
    inference = infer_precision(graph, leading, rows, floats.fits)
    model = fit(
        graph,
        [*([] if has_cpu else on_cpu), *rows, *inference.refused],
        regions=regions,
        refit=refit,
        also=inference.samples,
    )
    fits = inference.share_spreads(model.fits, floats.fits)
    return replace(
        model,
        targets=tuple(t for t in model.targets if has_cpu or t != CPU),
        fits={t: fitted for t, fitted in fits.items() if has_cpu or t != CPU},
    )


def fit_precisions(
    graph: UnitGraph,
    rows: Mapping[Precision, Sequence[Measurement]],
    eight_bits: EightBits | None = None,
    conversions: Sequence[Conversion] = (),
) -> PrecisionCosts:
    """Fits the costs of a float model in several precisions to the rows of one device.

    ``rows`` are :meth:`.CostStore.measurements` under conditions that differ only in precision:
    always those in float32, and those in relaxed and float16 where these are asked for. With
    ``eight_bits``, regions may be in 8 bits, too; the rows of its units and of ``conversions`` are
    among those in float32.

    Raises CostError where units, or conversions, were never measured.
    """
    leading = rows[Precision.FLOAT32]
    floats = fit(graph, leading)
    models = {Precision.FLOAT32: floats}
    for precision in (Precision.RELAXED, Precision.FLOAT16):
        if precision in rows:
            models[precision] = fit_conditional(floats, leading, rows[precision])
    if eight_bits is None or not eight_bits.unit_of:
        return PrecisionCosts(graph, models)
    models[Precision.INT8] = fit_eight_bits(eight_bits, eight_bits.shared_rows(leading))
    tried = {row.signature for row in leading}
    if any(conversion.signature not in tried for conversion in conversions):
        raise CostError(
            "converting values between floats and 8 bits was never measured on this device",
            "run "
            "`nnapi-prof profile --precisions float32,int8` with the same model, inputs,"
            " calibration and device",
        )
    converting = ConversionCosts.of(conversions, leading)
    return PrecisionCosts(graph, models, eight_bits, converting)
