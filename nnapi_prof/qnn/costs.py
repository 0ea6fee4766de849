"""Estimate costs of a model's units and regions on a chip's NPU and on its CPU.

    region = invocation + slope x (o + sum of its units' parts + its borders)
    borders = c x bytes that cross them + sum of the crossing values' own costs

Every unit is compiled alone (an activation with its producer), and so are runs of several units;
``o`` (µs of any graph), ``c`` (µs a byte), the parts and the values' own costs are those that
predict these times best. A value has a cost of its own where the compiler changes its layout, and
where it fuses two units so that the value is never written. The simulator has no invocation time:
that comes from the calibration.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nnapi_prof.costs.estimate.costs import EstimatedCosts
from nnapi_prof.costs.model import CostModel
from nnapi_prof.costs.table import Estimate, Price
from nnapi_prof.graph.plan import HOST, Target
from nnapi_prof.graph.unit import UnitGraph

ALONE = 0.2
"""Weight of single units, which mislead where fusion matters, against a region of four. The weight
of regions grows with the root of their number of units, as plans have long regions."""
BYTE_SCALE = 1e-6
"""Turns bytes into megabytes, so that all columns have a similar size."""
STEPS = 6
LEAST_ERROR = 0.02
"""Relative error below which errors count quadratically."""
SPARING = 2.0
"""Weight of the penalty on values' own costs, in units of the median region: few have one."""


@dataclass(frozen=True, slots=True)
class RegionTime:
    """The simulated mean of a region in µs, and what it moves across its borders."""

    units: tuple[int, ...]
    us: float
    crossing: Mapping[str, int]
    """Value -> its bytes."""

    @property
    def bytes(self) -> int:
        return sum(self.crossing.values())


@dataclass(frozen=True, slots=True)
class UnitModel:
    """Costs for one chip, fitted to units and chains of one model."""

    fixed_us: float
    """``o``."""
    us_per_byte: float
    """``c``."""
    parts: Mapping[int, float]
    """Unit -> µs of its own."""
    value_us: Mapping[str, float]
    """Value -> µs of its own at a border, besides its bytes; most have none."""
    errors: tuple[float, ...] = ()
    """Relative errors for chains that were not part of the fit."""

    def region_us(self, units: Iterable[int], crossing: Mapping[str, int]) -> float:
        """Predicts the simulated time of a region from its units, in µs."""
        own = sum(self.parts[unit] for unit in units)
        borders = sum(self.value_us.get(value, 0.0) for value in crossing)
        return self.fixed_us + self.us_per_byte * sum(crossing.values()) + borders + own

    @property
    def border_rate(self) -> float:
        """µs for each of :meth:`border_bytes`; arbitrary where bytes cost nothing."""
        return self.us_per_byte or BYTE_SCALE

    def border_bytes(self, graph: UnitGraph) -> dict[str, int]:
        """Returns the bytes that values count as at a border, where they differ from their own."""
        counted = {
            name: round(
                (self.us_per_byte * kind.n_bytes + self.value_us.get(name, 0.0)) / self.border_rate
            )
            for name, kind in graph.values.items()
        }
        return {name: n for name, n in counted.items() if n != graph.values[name].n_bytes}


def border_values(graph: UnitGraph, units: Iterable[int]) -> dict[str, int]:
    """Returns the values that enter and leave, with their bytes."""
    return {name: graph.values[name].n_bytes for side in graph.boundary(units) for name in side}


def fit_units(
    units: Mapping[int, RegionTime],
    leader: Mapping[int, int],
    regions: Sequence[RegionTime],
    held_out: Sequence[RegionTime] = (),
) -> UnitModel:
    """Fits ``o``, ``c``, parts of units and costs of values, none negative, to times of regions.

    Large errors count linearly, not quadratically (iteratively reweighted least squares).

    ``units`` are the leaders' groups compiled alone; a follower's part is in its leader's.
    """
    from scipy.optimize import nnls

    column = {unit: index for index, unit in enumerate(units)}
    rows = [(time, ALONE) for time in units.values()]
    rows += [(time, math.sqrt(len(time.units)) / 2) for time in regions]
    values = sorted({value for time, _ in rows for value in time.crossing})
    place = {value: len(units) + index for index, value in enumerate(values)}
    matrix = np.zeros((len(rows) + len(values), len(units) + len(values) + 2))
    for row, (time, weight) in zip(matrix, rows, strict=False):
        for unit in time.units:
            if leader[unit] == unit:
                row[column[unit]] = 1.0
        row[[place[value] for value in time.crossing]] = 1.0
        row[-2:] = 1.0, time.bytes * BYTE_SCALE
        row *= weight / time.us
    usual = float(np.median([time.us for time, _ in rows])) if rows else 1.0
    for row, at in zip(matrix[len(rows) :], place.values(), strict=True):
        row[at] = SPARING / usual
    goal = np.array([weight for _, weight in rows] + [0.0] * len(values))
    ease = np.ones(len(goal))
    x = np.zeros(matrix.shape[1])
    for _ in range(STEPS):
        x, _norm = nnls(matrix * ease[:, None], goal * ease)
        errors_of_rows = np.abs(matrix @ x - goal)[: len(rows)]
        ease[: len(rows)] = 1 / np.sqrt(np.maximum(errors_of_rows, LEAST_ERROR))
    parts = {unit: float(x[index]) for unit, index in column.items()}
    followers = {unit: 0.0 for unit, first in leader.items() if first != unit and first in units}
    own = {value: float(x[at]) for value, at in place.items() if x[at] > 0}
    model = UnitModel(float(x[-2]), float(x[-1]) * BYTE_SCALE, parts | followers, own)
    errors = tuple(model.region_us(r.units, r.crossing) / r.us - 1 for r in held_out)
    return replace(model, errors=errors)


@dataclass
class ChipCosts(EstimatedCosts):
    """Costs of the CPU by a described phone, and of the NPU by the simulator. Regions that were
    compiled whole have their own figure, which is an estimate, too."""

    npu: Target | None = None
    npu_error: float | None = None
    """Relative error that nine of ten networks stay below."""

    def error_of(self, units: Sequence[int], target: Target) -> float | None:
        return self.npu_error if target == self.npu else super().error_of(units, target)

    def as_cost_model(self) -> CostModel:
        """Returns the same costs in the form for reports."""
        return CostModel(
            graph=self.graph,
            targets=self.targets,
            fits={},
            refusals=self.refusals,
            _host_ns={u: one.ns for (u, target), one in self.estimates.items() if target == HOST},
            filled={at: one for at, one in self.estimates.items() if at[1] != HOST},
            prices=self.prices,
            compiled=self.compiled,
            border_bytes=self.border_bytes,
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the members that :meth:`from_json` reads."""
        return {
            "prices": {
                t.key: [p.invocation_ns, p.ns_per_in_byte, p.ns_per_out_byte]
                for t, p in self.prices.items()
            },
            "estimates": [
                [unit, target.key, one.ns, one.error, one.never_measured]
                for (unit, target), one in sorted(self.estimates.items())
            ],
            "refusals": [
                [u, target.key, why] for (u, target), why in sorted(self.refusals.items())
            ],
            "compiled": [
                [sorted(units), target.key, ns if math.isfinite(ns) else None]
                for (units, target), ns in sorted(
                    self.compiled.items(), key=lambda item: sorted(item[0][0])
                )
            ],
            "border_bytes": dict(sorted(self.border_bytes.items())),
            "npu": None if self.npu is None else self.npu.key,
            "npu_error": self.npu_error,
        }

    @classmethod
    def from_json(cls, graph: UnitGraph, data: Mapping[str, Any]) -> ChipCosts:
        """Reads ``to_json``'s members. Raises KeyError, TypeError or ValueError for others."""
        return cls(
            graph=graph,
            prices={Target.parse(key): Price(*map(float, p)) for key, p in data["prices"].items()},
            estimates={
                (int(unit), Target.parse(key)): Estimate(float(ns), error, never)
                for unit, key, ns, error, never in data["estimates"]
            },
            refusals={(int(u), Target.parse(key)): str(why) for u, key, why in data["refusals"]},
            npu=None if data["npu"] is None else Target.parse(data["npu"]),
            compiled={
                (frozenset(units), Target.parse(key)): math.inf if ns is None else float(ns)
                for units, key, ns in data["compiled"]
            },
            npu_error=data["npu_error"],
            border_bytes={str(v): int(n) for v, n in data.get("border_bytes", {}).items()},
        )
