"""A cost model for a model of which some units were never measured: estimates fill the holes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

from nnapi_prof.costs.arrays import CostArrays
from nnapi_prof.costs.measurement import Kind, Measurement, Status
from nnapi_prof.costs.region import CostModel, RegionCost, fit
from nnapi_prof.costs.static_costs import Estimate, EstimatedCosts, Price
from nnapi_prof.graph.plan import AUTO, CPU, HOST, Target
from nnapi_prof.graph.unit import UnitGraph

NINE_TENTHS = 1.645
"""Normal quantile: nine of ten errors stay within this many standard deviations."""


UNKNOWN = 3.0
"""Taken for the relative error of what nobody knows the error of."""


@dataclass
class FilledCosts(CostModel):
    """Measured where it was measured, estimated elsewhere; regions with an estimated unit are
    marked ``estimated``."""

    filled: Mapping[tuple[int, Target], Estimate] = field(default_factory=dict, repr=False)
    prices: Mapping[Target, Price] = field(default_factory=dict, repr=False)
    """Of targets on which nothing of this model was measured."""

    def unit_cost(self, unit_index: int, target: Target) -> float | None:
        found = self.filled.get((unit_index, target))
        return super().unit_cost(unit_index, target) if found is None else found.ns

    def overhead(self, target: Target) -> float:
        price = self.prices.get(target)
        return super().overhead(target) if price is None else price.invocation_ns

    def transfer(self, target: Target, in_bytes: int, out_bytes: int) -> float:
        price = self.prices.get(target)
        if price is None:
            return super().transfer(target, in_bytes, out_bytes)
        return in_bytes * price.ns_per_in_byte + out_bytes * price.ns_per_out_byte

    def arrays(self) -> CostArrays:
        """What is estimated in the place of what nobody measured."""
        known = super().arrays()
        index = {target: k for k, target in enumerate(known.targets)}
        for (unit, target), found in self.filled.items():
            if target in index:
                known.unit_ns[unit, index[target]] = found.ns
                known.estimated[unit, index[target]] = True
        for target, price in self.prices.items():
            if target in index:
                k = index[target]
                known.overhead_ns[k] = price.invocation_ns
                known.in_ns_per_byte[k] = price.ns_per_in_byte
                known.out_ns_per_byte[k] = price.ns_per_out_byte
        return known

    def region_cost(self, units: Iterable[int], target: Target) -> RegionCost | None:
        region = frozenset(units)
        found = super().region_cost(region, target)
        guessed = [e for unit in region if (e := self.filled.get((unit, target))) is not None]
        if found is None or found.measured or not guessed:
            return found
        spread = (
            math.hypot(
                *(one.ns * UNKNOWN if one.error is None else one.ns * one.error for one in guessed)
            )
            / NINE_TENTHS
        )
        return RegionCost(found.ns, estimated=True, sigma_ns=found.sigma_ns + spread)


def fill(graph: UnitGraph, rows: Iterable[Measurement], estimated: EstimatedCosts) -> FilledCosts:
    """The cost model of ``rows`` (as :func:`nnapi_prof.costs.region.fit` takes them) with estimates
    for every unit and target that was not tried. What was tried and did not run stays refused."""
    rows = list(rows)
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
    # What a trial measured of targets far behind counts, too, beside estimates.
    model = replace(fit(graph, [*rows, *holes]), partial=frozenset())
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
    parts = {one.name: getattr(model, one.name) for one in fields(CostModel)} | {
        "targets": (
            *sorted(targets, key=lambda t: (t != CPU, t.accelerator == AUTO, t.key)),
            *((HOST,) if host_ns else ()),
        ),
        "refusals": {
            **{at: why for at, why in estimated.refusals.items() if at[1] not in model.fits},
            **refusals,
        },
        "simulated": model.simulated or estimated.simulated,
        "_host_ns": host_ns,
        "_whole": {
            (units, target): row
            for (units, target), row in model._whole.items()
            if not (len(units) == 1 and (*units, target) in never)
        },
    }
    prices = {t: price for t, price in estimated.prices.items() if t not in model.fits}
    return FilledCosts(**parts, filled=filled, prices=prices)
