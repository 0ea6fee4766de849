"""Estimated costs of one model on one phone, for the partitioner.

None of them was measured on the phone: every cost is marked ``estimated`` and has an uncertainty.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from nnapi_prof.costs.estimate.model import TargetModel
from nnapi_prof.costs.measurement import Kind, Measurement, Status
from nnapi_prof.costs.model import CostModel, RegionCost, TabulatedCosts
from nnapi_prof.costs.model.fit import fit
from nnapi_prof.costs.model.forms import Forms, formed_rows
from nnapi_prof.costs.model.regression import TargetFit
from nnapi_prof.costs.table import (
    CostedRegion,
    CostTable,
    Estimate,
    Price,
    price_arrays,
    with_estimates,
)
from nnapi_prof.graph.plan import AUTO, CPU, HOST, Plan, Target
from nnapi_prof.graph.unit import UnitGraph, Work


@dataclass
class EstimatedCosts(TabulatedCosts):
    """Estimates of units, and prices of targets: CPU first, HOST last where it is needed."""

    graph: UnitGraph
    prices: Mapping[Target, Price]
    estimates: Mapping[tuple[int, Target], Estimate] = field(repr=False)
    refusals: Mapping[tuple[int, Target], str] = field(repr=False)
    simulated: bool = False
    compiled: Mapping[CostedRegion, float] = field(default_factory=dict, repr=False)
    """Region that a simulator estimated whole -> ns; infinite where the simulator rejects it."""
    border_bytes: Mapping[str, int] = field(default_factory=dict, repr=False)
    """See :attr:`CostTable.border_bytes`."""
    models: Mapping[Target, TargetModel] = field(default_factory=dict, repr=False)
    """Fitted models that the estimates come from; empty where nothing was fitted."""
    works: Sequence[Work] = field(default=(), repr=False)
    """Work of each unit, where there are :attr:`models`."""
    threads: int = 1
    """Number of threads of the CPU."""
    forms: Forms = field(default_factory=dict, repr=False)
    """Estimated cheapest forms of products of activations, where they are not the usual ones."""

    def __post_init__(self) -> None:
        self.targets = tuple(sorted(self.prices, key=lambda t: (t != CPU, t == HOST, t.key)))

    @cached_property
    def table(self) -> CostTable:
        n, t = len(self.graph.units), len(self.targets)
        nothing = CostTable(
            self.targets,
            np.full((n, t), np.inf),
            *price_arrays(self.prices[target] for target in self.targets),
            region_ns=self.compiled,
            refusals=self.refusals,
            simulated=self.simulated,
            border_bytes=self.border_bytes,
        )
        return with_estimates(nothing, self.estimates)

    def whole_cost(self, region: frozenset[int], target: Target, ns: float) -> RegionCost:
        return RegionCost(ns, estimated=True)

    def error_of(self, units: Sequence[int], target: Target) -> float | None:
        """Returns the relative error of the sum of some units that nine of ten sums stay below;
        None where that of a unit is unknown. Errors are combined by :class:`.model.ErrorBounds` on
        fitted targets, and as independent errors on others."""
        parts = [self.estimates[unit, target] for unit in units]
        total = sum(part.ns for part in parts)
        model = self.models.get(target)
        if model is not None:
            return model.uncertainty([self.works[unit] for unit in units])
        if any(part.error is None for part in parts):
            return None
        return math.hypot(*(part.ns * (part.error or 0.0) for part in parts)) / (total or 1.0)

    def plan_error(self, plan: Plan) -> float | None:
        """Returns the relative error of a plan's latency that nine of ten plans stay below; None
        where that of a target is unknown. Errors of different targets are independent."""
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
        """Returns type of operation -> estimated share of the plan's latency, largest first, for
        types of which no operation was measured on the target."""
        shares: dict[str, float] = defaultdict(float)
        for segment in plan.segments:
            for unit in segment.units:
                part = self.estimates[unit, segment.target]
                if part.never_measured is not None:
                    shares[part.never_measured] += part.ns / (plan.predicted_ns or 1.0)
        return dict(sorted(shares.items(), key=lambda item: -item[1]))


# ---- measured costs with gaps filled by estimates -----------------------------------------------


def fill(
    graph: UnitGraph,
    rows: Iterable[Measurement],
    estimated: EstimatedCosts,
    fits: Mapping[Target, TargetFit] | None = None,
) -> CostModel:
    """Fits the cost model of ``rows`` (and ``fits``; see :func:`nnapi_prof.costs.model.fit.fit`),
    then adds estimates for every unit on every target where it was not tried. Units that were tried
    and did not run stay refused."""
    rows = formed_rows(graph, rows)
    tried = {row.signature for row in rows if row.target == CPU}
    blank = {unit.signature: unit for unit in graph.units if unit.signature not in tried}
    holes = [
        Measurement(
            signature=signature,
            kind=Kind.UNIT,
            label=unit.label,
            members=(signature,),
            offsets=(0,),
            target=CPU,
            fingerprint="",
            agent_version="",
            status=Status.REFUSED,
            message="never measured",
        )
        for signature, unit in blank.items()
    ]
    # Beside estimates, the few measurements on targets that a trial found far behind count, too.
    model = replace(fit(graph, [*rows, *holes], fits=fits), partial=frozenset())
    never = {(unit.index, CPU) for unit in graph.units if unit.signature in blank}
    refusals = {place: why for place, why in model.refusals.items() if place not in never}
    filled = {
        (unit, target): one
        for (unit, target), one in estimated.estimates.items()
        if target != HOST
        and (unit, target) not in refusals
        and model.unit_cost(unit, target) is None
    }
    covered = {unit for unit, _ in filled}
    host_ns = {unit: ns for unit, ns in model._host_ns.items() if unit not in covered}
    targets = {*model.fits, *(target for _, target in filled)}
    prices = {t: price for t, price in estimated.prices.items() if t not in model.fits}
    return replace(
        model,
        targets=(
            *sorted(targets, key=lambda t: (t != CPU, t.accelerator == AUTO, t.key)),
            *((HOST,) if host_ns else ()),
        ),
        refusals={
            **{at: why for at, why in estimated.refusals.items() if at[1] not in model.fits},
            **refusals,
        },
        simulated=model.simulated or estimated.simulated,
        filled=filled,
        prices=prices,
        _host_ns=host_ns,
        _whole={
            (units, target): row
            for (units, target), row in model._whole.items()
            if not (len(units) == 1 and (*units, target) in never)
        },
    )
