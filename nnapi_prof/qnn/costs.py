"""Estimated costs of a model's units and regions on a chip's NPU, and of its CPU beside it.

    region = invocation + slope x (o + sum of its units' parts + its borders)
    borders = c x bytes that cross them + sum of what each value that crosses costs besides

Every unit is compiled alone (an activation with what it follows), and runs of several units; ``o``
(µs of any graph), ``c`` (µs a byte), the parts and the values' own costs are those that predict
these best.  A value costs something of its own where the compiler changes its layout, and where two
units are joined so that it is never written.  The simulator
knows no invocation: that is the calibration's.
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
"""Weight of units alone, which lie where joining matters, against a region of four; that of others
grows with the root of their number of units, for plans have long regions."""
BYTE_SCALE = 1e-6
"""Bytes become megabytes, so that all columns are of one size."""
STEPS = 6
LEAST_ERROR = 0.02
"""Smaller relative errors count by their square."""
SPARING = 2.0
"""Weight of a value's own cost being none, in units of the median region: few values have one."""


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
    """The costs that units and chains of one model tell for one chip."""

    fixed_us: float
    """``o``."""
    us_per_byte: float
    """``c``."""
    parts: Mapping[int, float]
    """Unit -> µs of its own."""
    value_us: Mapping[str, float]
    """Value -> µs of its own at a border, beside its bytes; of most nothing."""
    errors: tuple[float, ...] = ()
    """Relative, of chains that nothing was fitted to."""

    def region_us(self, units: Iterable[int], crossing: Mapping[str, int]) -> float:
        """Predicted from units; in µs of the simulation."""
        own = sum(self.parts[unit] for unit in units)
        borders = sum(self.value_us.get(value, 0.0) for value in crossing)
        return self.fixed_us + self.us_per_byte * sum(crossing.values()) + borders + own

    @property
    def border_rate(self) -> float:
        """µs of each of :meth:`border_bytes`; any rate does where bytes cost nothing."""
        return self.us_per_byte or BYTE_SCALE

    def border_bytes(self, graph: UnitGraph) -> dict[str, int]:
        """Values -> the bytes that they count as at a border, of those that have others there."""
        counted = {
            name: round(
                (self.us_per_byte * kind.n_bytes + self.value_us.get(name, 0.0)) / self.border_rate
            )
            for name, kind in graph.values.items()
        }
        return {name: n for name, n in counted.items() if n != graph.values[name].n_bytes}


def border_values(graph: UnitGraph, units: Iterable[int]) -> dict[str, int]:
    """Values that enter and leave -> their bytes."""
    return {name: graph.values[name].n_bytes for side in graph.boundary(units) for name in side}


def fit_units(
    units: Mapping[int, RegionTime],
    leader: Mapping[int, int],
    regions: Sequence[RegionTime],
    held_out: Sequence[RegionTime] = (),
) -> UnitModel:
    """Finds ``o``, ``c``, parts of units and costs of values, none negative, by regions' errors.

    Large errors count by their size, not by its square (iteratively reweighted least squares).

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
    """Costs of the CPU by a described phone, of the NPU by the simulator; regions that were
    compiled whole answer with their own figure, which is an estimate, too."""

    npu: Target | None = None
    npu_error: float | None = None
    """Relative, which nine of ten networks stay below."""

    def error_of(self, units: Sequence[int], target: Target) -> float | None:
        return self.npu_error if target == self.npu else super().error_of(units, target)

    def as_cost_model(self) -> CostModel:
        """Returns the same costs as reports ask for them."""
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
        """The members of :meth:`from_json`."""
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
        """Raises KeyError, TypeError or ValueError where these are none."""
        return cls(
            graph=graph,
            prices={Target.parse(key): Price(*map(float, p)) for key, p in data["prices"].items()},
            estimates={
                (int(unit), Target.parse(key)): Estimate(float(ns), error, never)
                for unit, key, ns, error, never in data["estimates"]
            },
            refusals={(int(u), Target.parse(key)): str(why) for u, key, why in data["refusals"]},
            npu=Target.parse(data["npu"]),
            compiled={
                (frozenset(units), Target.parse(key)): math.inf if ns is None else float(ns)
                for units, key, ns in data["compiled"]
            },
            npu_error=data["npu_error"],
            border_bytes={str(v): int(n) for v, n in data.get("border_bytes", {}).items()},
        )
