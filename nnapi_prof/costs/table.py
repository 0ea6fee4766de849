"""Cost table: the costs of a graph's units on a device's targets, as the partitioner reads them.

Every source of costs (measurements, a description of a phone, a user) gives a :class:`CostTable`.
Each change to costs is a function from a table to a table: :func:`optimistic`, :func:`adjusted`,
:func:`with_estimates`, :func:`drop_dominated_targets`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.errors import CostError, UsageError
from nnapi_prof.graph.causes import Reason
from nnapi_prof.graph.plan import AUTO, Engine, Precision, Preference, Target
from nnapi_prof.graph.unit import Unit, UnitGraph

Floats = NDArray[np.float64]
CostedRegion = tuple[frozenset[int], Target]
"""Units and the target that they run on as one."""

Z = 1.96
"""Standard deviations to either end of an interval of 95 % of a normal distribution."""
MOST_OPTIMISM = 0.7
"""Largest share by which a sum is taken to be too high, whatever its spread."""


@dataclass(frozen=True, slots=True)
class Price:
    """Price of invocation and transfer on a target, in ns."""

    invocation_ns: float = 0.0
    ns_per_in_byte: float = 0.0
    ns_per_out_byte: float = 0.0


FREE = Price()


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated marginal cost of a unit."""

    ns: float
    error: float | None = None
    """Relative error that nine of ten estimates stay below; None where it is unknown."""
    never_measured: str | None = None
    """Type of operation, where none of that type was ever measured on the target, so that the
    estimate has no basis."""


@dataclass(frozen=True, eq=False)
class Conversions:
    """Formats of values on t targets, and the cost in ns of converting values between them.

    A value is converted at most once each way: to 8-bit integers where a float target makes it (or
    it is an input of the graph) and some reader runs in 8 bits; to floats where it is made in 8
    bits, and some reader runs in floats or it is an output of the graph.
    """

    format: NDArray[np.int64]
    """[t]: 0 where values are floats, 1 where they are 8-bit integers"""
    to_int8_ns: Mapping[str, float]
    """Value -> ns to convert it from floats; other values cost nothing"""
    to_float_ns: Mapping[str, float]
    """Value -> ns to convert it back"""


@dataclass(frozen=True)
class CompileTimes:
    """Compile times of regions, in ns; zero on targets that are not accelerators."""

    fixed_ns: Floats
    """[t], of each segment."""
    unit_ns: Floats
    """[n, t]"""
    region_ns: Mapping[tuple[frozenset[int], int], float] = field(default_factory=dict)
    """(units, target index) -> ns of a region that was compiled whole."""


@dataclass(frozen=True, eq=False)
class CostTable:
    """Costs of n units on t targets, in ns or another quantity that adds up along a plan.

    A region costs its entry in ``region_ns`` where it has one, else overhead + transfer of the
    values that cross its boundary + the sum of its units. Rows are units, columns are targets.
    """

    targets: tuple[Target, ...]
    unit_ns: Floats
    """[n, t]; inf where the target cannot run the unit, or its cost there is unknown."""
    overhead_ns: Floats
    """[t], of each segment"""
    in_ns_per_byte: Floats
    """[t], of values that enter a segment"""
    out_ns_per_byte: Floats
    """[t], of values that leave a segment"""
    region_ns: Mapping[CostedRegion, float] = field(default_factory=dict)
    """Region measured whole -> ns; inf where it did not run"""
    estimated: NDArray[np.bool_] | None = None
    """[n, t]: True where a cost comes from the static model; None where none does"""
    refusals: Mapping[tuple[int, Target], str] = field(default_factory=dict)
    """(unit, target) -> reason, as a sentence, why the unit cannot run there"""
    simulated: bool = False
    """True for the costs of a simulated phone"""
    slack: Floats | None = None
    """[t]: relative standard deviation by which sums may be too high; None where all are exact"""
    noise: float | None = None
    """Relative standard deviation of one measurement repeated at another time; None where nothing
    was measured"""
    conversions: Conversions | None = None
    """None where values are in the same format everywhere"""
    copies_ns: Mapping[str, float] = field(default_factory=dict)
    """Input or output of the graph -> ns to copy it from or to an app's buffer, paid once where an
    accelerator reads or writes it"""
    compiling: Callable[[tuple[Target, ...]], CompileTimes] | None = None
    """Returns the compile times of some targets; None where they are unknown. It is a function
    since compile times have to be fitted, and most plans do not need them."""
    first_ns: Mapping[CostedRegion, float] = field(default_factory=dict)
    """Region measured whole -> ns of the first inference after compiling"""
    border_bytes: Mapping[str, int] = field(default_factory=dict)
    """Value whose cost at a border is not that of its size -> the bytes it counts as there"""

    def __post_init__(self) -> None:
        n, t = len(self.unit_ns), len(self.targets)
        shapes: dict[str, tuple[int, ...]] = {
            "unit_ns": (n, t),
            "estimated": (n, t),
            "overhead_ns": (t,),
            "in_ns_per_byte": (t,),
            "out_ns_per_byte": (t,),
            "slack": (t,),
        }
        for name, shape in shapes.items():
            array = getattr(self, name)
            if array is not None and array.shape != shape:
                raise CostError(f"{name} has shape {array.shape}, wanted {shape}")

    @cached_property
    def column(self) -> Mapping[Target, int]:
        """Target -> its index."""
        return {target: k for k, target in enumerate(self.targets)}

    def unit_cost(self, unit: int, target: Target) -> float | None:
        """Returns a unit's marginal cost in ns within a region, without overhead and transfer; None
        where it cannot run there."""
        k = self.column.get(target)
        ns = math.inf if k is None else float(self.unit_ns[unit, k])
        return ns if math.isfinite(ns) else None

    def price(self, target: Target) -> Price:
        """Returns a target's invocation and transfer prices; FREE where the table lacks it."""
        k = self.column.get(target)
        if k is None:
            return FREE
        prices = (self.overhead_ns[k], self.in_ns_per_byte[k], self.out_ns_per_byte[k])
        return Price(*map(float, prices))

    def is_estimated(self, unit: int, target: Target) -> bool:
        """Returns whether a unit's cost comes from the static model."""
        k = self.column.get(target)
        return k is not None and self.estimated is not None and bool(self.estimated[unit, k])

    def compile_times(self) -> CompileTimes | None:
        """Returns the compile times on the table's targets; None where they are unknown."""
        return None if self.compiling is None else self.compiling(self.targets)

    def on(self, targets: Iterable[Target]) -> CostTable:
        """Returns the costs on some of the targets, in the order of the table."""
        chosen_targets = set(targets)
        columns = [k for k, target in enumerate(self.targets) if target in chosen_targets]
        conversions = self.conversions
        if conversions is not None:
            format_ = conversions.format[columns]
            conversions = replace(conversions, format=format_) if format_.any() else None
        return replace(
            self,
            targets=tuple(self.targets[k] for k in columns),
            unit_ns=self.unit_ns[:, columns],
            overhead_ns=self.overhead_ns[columns],
            in_ns_per_byte=self.in_ns_per_byte[columns],
            out_ns_per_byte=self.out_ns_per_byte[columns],
            estimated=None if self.estimated is None else self.estimated[:, columns],
            slack=None if self.slack is None else self.slack[columns],
            conversions=conversions,
        )

    def scaled(self, factor: Floats) -> CostTable:
        """Returns the costs of units, invocations and transfers times a factor per target ([t])."""
        return replace(
            self,
            unit_ns=self.unit_ns * factor,
            overhead_ns=self.overhead_ns * factor,
            in_ns_per_byte=self.in_ns_per_byte * factor,
            out_ns_per_byte=self.out_ns_per_byte * factor,
        )


UnitCost = Callable[[Unit, Target, float], float | None]
"""(unit, target, its cost there in ns) -> the cost to use; None keeps the unit off the target."""
Weight = Callable[[Target], float] | Mapping[str, float]
"""Target -> factor of all costs there; or pattern of target names -> factor, of which the first
that matches counts (1 where none does)."""


@dataclass(frozen=True, slots=True)
class Objective:
    """Objective that a plan minimises instead of the latency."""

    name: str
    """Name for people: ``energy``."""
    unit: str
    """Unit of a million of its values, as ms is for values in ns: ``mJ``."""

    def __str__(self) -> str:
        return f"{self.name} in {self.unit}"


def optimistic(table: CostTable) -> CostTable:
    """Returns the costs with all sums at the lower ends of their intervals; measured regions stay.

    A plan that is optimal under these costs bounds the gain of further measurements: where it is
    hardly faster than a plan of measured regions, no measurement can change that plan.
    """
    if table.slack is None:
        return table
    return table.scaled(1 - np.minimum(MOST_OPTIMISM, Z * table.slack))


def adjusted_table(
    graph: UnitGraph, base: CostTable, cost: UnitCost | None, weight: Weight | None
) -> CostTable:
    """Returns the costs of a user's own objective, given as a function and weights.

    The partitioner minimises the sum over segments of

        weight(target) x (invocation + transfer + the units' costs)

    for any such costs, so that its plan stays the exact optimum. A region that was measured whole
    costs its latency plus what the function adds to (or subtracts from) its units. The function is
    called once for every unit on every target that runs it. Raises UsageError where the function or
    a weight is not a number of at least 0, or a pattern matches no target.
    """
    if isinstance(weight, Mapping):
        for pattern in weight:
            if not any(fnmatchcase(target.key, pattern) for target in base.targets):
                there = ", ".join(target.key for target in base.targets)
                raise UsageError(f"weight of {pattern!r}: no target fits it; there are {there}")
    own = {
        (unit.index, target): ns if cost is None else _checked(cost(unit, target, ns), unit, target)
        for target in base.targets
        for unit in graph.units
        if (ns := base.unit_cost(unit.index, target)) is not None
    }
    return adjusted(base, own, {target: _factor(weight, target) for target in base.targets})


def _factor(weight: Weight | None, target: Target) -> float:
    if weight is None:
        return 1.0
    if isinstance(weight, Mapping):
        fitting = (w for name, w in weight.items() if fnmatchcase(target.key, name))
        factor = next(fitting, 1.0)
    else:
        factor = weight(target)
    if not (math.isfinite(factor) and factor >= 0):
        raise UsageError(f"the weight of {target} is {factor!r}: a number from 0 on is required")
    return float(factor)


def _checked(value: float | None, unit: Unit, target: Target) -> float | None:
    if value is None or (math.isfinite(value) and value >= 0):
        return value
    raise UsageError(
        f"the cost function says {value!r} for {unit.label} on {target}: a number from 0 on is"
        " wanted, or None where it must not run there"
    )


def adjusted(
    table: CostTable,
    unit_ns: Mapping[tuple[int, Target], float | None],
    factor: Mapping[Target, float],
) -> CostTable:
    """Returns the table with other costs of units (None keeps a unit off), times a factor for each
    target. A region that was measured whole costs its latency plus the changes of its units.

    ``unit_ns`` has every unit on each target that runs it. Compile times never change.
    """
    changed = np.full_like(table.unit_ns, np.inf)
    for (unit, target), ns in unit_ns.items():
        if ns is not None:
            changed[unit, table.column[target]] = ns

    def of_region(units: frozenset[int], target: Target, ns: float) -> float:
        for unit in units:
            if (unit, target) not in unit_ns:
                continue  # it runs only within regions, and has no cost of its own to change
            own = unit_ns[unit, target]
            if own is None:
                return math.inf
            ns += own - (table.unit_cost(unit, target) or 0.0)
        return max(0.0, ns) * factor[target]

    kept_off = {place: Reason.kept_off() for place, ns in unit_ns.items() if ns is None}
    weights = np.array([factor[target] for target in table.targets], dtype=np.float64)
    runs = np.isfinite(changed)
    return replace(
        replace(table, unit_ns=changed).scaled(weights),
        region_ns={
            (units, target): of_region(units, target, ns)
            for (units, target), ns in table.region_ns.items()
            if target in table.column
        },
        estimated=None if table.estimated is None else table.estimated & runs,
        refusals={**kept_off, **table.refusals},
        slack=None,
        noise=None,
        first_ns={},
    )


def with_estimates(
    table: CostTable,
    estimates: Mapping[tuple[int, Target], Estimate],
    prices: Mapping[Target, Price] | None = None,
) -> CostTable:
    """Returns the costs with estimates of some units, and prices of targets without
    measurements."""
    prices = prices or {}
    unit_ns = table.unit_ns.copy()
    estimated = (
        np.zeros(unit_ns.shape, dtype=np.bool_)
        if table.estimated is None
        else table.estimated.copy()
    )
    for (unit, target), estimate in estimates.items():
        if target in table.column:
            unit_ns[unit, table.column[target]] = estimate.ns
            estimated[unit, table.column[target]] = True
    overhead_ns, in_ns_per_byte, out_ns_per_byte = price_arrays(
        prices.get(target) or table.price(target) for target in table.targets
    )
    return replace(
        table,
        unit_ns=unit_ns,
        overhead_ns=overhead_ns,
        in_ns_per_byte=in_ns_per_byte,
        out_ns_per_byte=out_ns_per_byte,
        estimated=estimated,
    )


def price_arrays(prices: Iterable[Price]) -> tuple[Floats, Floats, Floats]:
    """Returns the prices of targets as a table's arrays ``overhead_ns``, ``in_ns_per_byte`` and
    ``out_ns_per_byte``."""
    every = list(prices)
    return (
        np.array([price.invocation_ns for price in every], dtype=np.float64),
        np.array([price.ns_per_in_byte for price in every], dtype=np.float64),
        np.array([price.ns_per_out_byte for price in every], dtype=np.float64),
    )


# ---- dominated targets --------------------------------------------------------------------------


def drop_dominated_targets(table: CostTable, *, auto: bool = False) -> CostTable:
    """Returns the costs without targets that are never faster, beyond noise, than a similar one.

    Dropped are preferences under which no region was faster than under another preference of the
    same accelerator, one CPU thread beside several, and "auto" where a named accelerator is as
    fast. All targets stay where nothing was measured.

    The preferences of an accelerator are alternatives of one driver, and NNAPI's own choice
    ("auto") is one of its accelerators; often several of them run alike. As separate targets they
    would only add chance: the partitioner picks the luckiest of several noisy measurements of the
    same thing, region by region, and measuring never settles.

    Among equals the preference for fast answers stays. Measurements of dropped targets are left out
    of plans, not of the fits. With ``auto``, NNAPI's own choice always stays. A processor in
    relaxed or float16 is dropped where it is no faster than in float32; any other two precisions
    are alternatives, since their errors differ.
    """
    if table.noise is None:
        return table
    targets: list[Target] = []
    for target in sorted(table.targets, key=_dominance_rank):
        rivals = [k for k in targets if _comparable(target, k, auto)]
        if not any(_adds_nothing(table, table.noise, target, rival) for rival in rivals):
            targets.append(target)
    return table.on(targets)


def _dominance_rank(target: Target) -> tuple[bool, bool, bool]:
    """Returns a sort key that puts the target to keep among equals first."""
    leading = target.preference in (None, Preference.FAST_SINGLE_ANSWER)
    return target.accelerator == AUTO, target.precision is not Precision.FLOAT32, not leading


def _comparable(target: Target, rival: Target, auto: bool) -> bool:
    if target.precision is not rival.precision:
        in_float32 = rival.precision is Precision.FLOAT32
        return in_float32 and target.precision is not Precision.INT8 and target.base == rival
    if rival.engine is not target.engine or rival.engine not in (Engine.CPU, Engine.NNAPI):
        return False
    return target.accelerator == rival.accelerator or (target.accelerator == AUTO and not auto)


def _adds_nothing(table: CostTable, noise: float, target: Target, rival: Target) -> bool:
    """Returns whether ``rival`` runs all that ``target`` runs, as fast within noise.

    Over the regions measured on both, this compares the share that choosing the faster target for
    each would save. Noise alone saves 0.56 of its standard deviation that way.
    """
    whole = table.region_ns
    both = [
        (ns, whole[units, rival])
        for (units, place), ns in whole.items()
        if place == target and (units, rival) in whole and math.isfinite(ns)
    ]
    runs = np.isfinite(table.unit_ns)
    lacks = (runs[:, table.column[target]] & ~runs[:, table.column[rival]]).any()
    if lacks or not both or any(math.isinf(other) for _, other in both):
        return False
    saved = sum(max(0.0, other - ns) for ns, other in both)
    return saved <= noise * sum(other for _, other in both)


def planning_costs(costs: CostTable) -> tuple[CostTable, CostTable]:
    """Returns the costs for plans and the costs for their baselines, both without dominated targets
    (see :func:`~nnapi_prof.costs.table.drop_dominated_targets`)."""
    return drop_dominated_targets(costs), drop_dominated_targets(costs, auto=True)
