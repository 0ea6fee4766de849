"""The costs of one graph's units on one device's targets, as one value: what the partitioner takes.

Every source of costs (measurements, a description of a phone, a user) ends in a :class:`CostTable`.
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
"""Standard deviations to either end of an interval: 95 % of a normal distribution."""
MOST_OPTIMISM = 0.7
"""No sum is too high by more than this, whatever its spread."""


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a target beside its operations, in ns."""

    invocation_ns: float = 0.0
    ns_per_in_byte: float = 0.0
    ns_per_out_byte: float = 0.0


FREE = Price()


@dataclass(frozen=True, slots=True)
class Estimate:
    """A unit's marginal cost. ``error`` is the relative one that nine of ten stay below; None where
    it is not known."""

    ns: float
    error: float | None = None
    never_measured: str | None = None
    """The type of operation, where none of it was ever measured on the target: what it is estimated
    at rests on nothing."""


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


@dataclass(frozen=True)
class CompileTimes:
    """The compile time of regions, in ns; all zero on targets that are no accelerators."""

    fixed_ns: Floats
    """[t], of each segment."""
    unit_ns: Floats
    """[n, t]"""
    region_ns: Mapping[tuple[frozenset[int], int], float] = field(default_factory=dict)
    """(units, target index) -> ns, compiled whole."""


@dataclass(frozen=True, eq=False)
class CostTable:
    """Costs of n units on t targets, in ns or whatever else adds up along a plan.

    A region costs its entry in ``region_ns`` where it has one, else overhead + transfer of the
    values that cross its boundary + the sum of its units. Targets and units are in the order of
    their columns and rows.
    """

    targets: tuple[Target, ...]
    unit_ns: Floats
    """[n, t]; inf where the target cannot run the unit, or nobody knows what it costs there."""
    overhead_ns: Floats
    """[t], of each segment"""
    in_ns_per_byte: Floats
    """[t], of values that enter a segment, ..."""
    out_ns_per_byte: Floats
    """... and of those that leave it"""
    region_ns: Mapping[CostedRegion, float] = field(default_factory=dict)
    """Regions that were measured whole; inf where one did not run."""
    estimated: NDArray[np.bool_] | None = None
    """[n, t]: costs that rest on the static model; None where none does"""
    refusals: Mapping[tuple[int, Target], str] = field(default_factory=dict)
    """(unit, target) -> why the unit cannot run there, as a sentence."""
    simulated: bool = False
    """The costs are those of a simulated phone."""
    slack: Floats | None = None
    """[t]: relative standard deviation by which sums may be too high; None where all are exact"""
    noise: float | None = None
    """Relative standard deviation of one measurement repeated at another time; None where nothing
    was measured"""
    conversions: Conversions | None = None
    """None where values are in the same format everywhere"""
    copies_ns: Mapping[str, float] = field(default_factory=dict)
    """Inputs and outputs of the graph -> ns to copy them from and to an app's buffers, which is
    done once where an accelerator reads or writes them"""
    compiling: Callable[[tuple[Target, ...]], CompileTimes] | None = None
    """Returns what compiling for some targets takes; None where nobody knows. A function, for
    compile times are fitted, and most plans do not need them."""
    first_ns: Mapping[CostedRegion, float] = field(default_factory=dict)
    """Regions measured whole -> the first inference after compiling"""
    border_bytes: Mapping[str, int] = field(default_factory=dict)
    """Values that cost something else at a border than their size tells -> the bytes that they
    count as there"""

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
        """Returns a unit's marginal cost within a region, without overhead and transfer; None where
        it cannot run there."""
        k = self.column.get(target)
        ns = math.inf if k is None else float(self.unit_ns[unit, k])
        return ns if math.isfinite(ns) else None

    def price(self, target: Target) -> Price:
        """Returns what a target costs beside its operations; nothing of one that is not there."""
        k = self.column.get(target)
        if k is None:
            return FREE
        prices = (self.overhead_ns[k], self.in_ns_per_byte[k], self.out_ns_per_byte[k])
        return Price(*map(float, prices))

    def is_estimated(self, unit: int, target: Target) -> bool:
        """Whether a unit's cost rests on the static model."""
        k = self.column.get(target)
        return k is not None and self.estimated is not None and bool(self.estimated[unit, k])

    def compile_times(self) -> CompileTimes | None:
        """Returns what compiling takes on the table's targets; None where nobody knows."""
        return None if self.compiling is None else self.compiling(self.targets)

    def on(self, targets: Iterable[Target]) -> CostTable:
        """The costs on some of the targets, in the order of the table."""
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
        """The costs of units, invocations and transfers times a factor for each target ([t])."""
        return replace(
            self,
            unit_ns=self.unit_ns * factor,
            overhead_ns=self.overhead_ns * factor,
            in_ns_per_byte=self.in_ns_per_byte * factor,
            out_ns_per_byte=self.out_ns_per_byte * factor,
        )


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


def optimistic(table: CostTable) -> CostTable:
    """The costs with all sums at the lower ends of their intervals; measured regions stay.

    A plan that is optimal here bounds what measuring can still gain: where it is hardly faster than
    a plan of measured regions, nothing that is left can change that plan.
    """
    if table.slack is None:
        return table
    return table.scaled(1 - np.minimum(MOST_OPTIMISM, Z * table.slack))


def adjusted_table(
    graph: UnitGraph, base: CostTable, cost: UnitCost | None, weight: Weight | None
) -> CostTable:
    """The costs as a function and weights change them: a user's own objective.

    The partitioner finds the least sum over segments of

        weight(target) x (invocation + transfer + the units' costs)

    whatever these are, so that its plan stays the exact optimum. A region that was measured whole
    costs what it took, plus what the function adds to (or takes from) its units. The function is
    asked once for every unit on every target that runs it. Raises UsageError where either says what
    is no number from 0 on, or a pattern fits no target.
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
    """The weight of a target."""
    if weight is None:
        return 1.0
    if isinstance(weight, Mapping):
        fitting = (w for name, w in weight.items() if fnmatchcase(target.key, name))
        factor = next(fitting, 1.0)
    else:
        factor = weight(target)
    if not (math.isfinite(factor) and factor >= 0):
        raise UsageError(f"the weight of {target} is {factor!r}: a number from 0 on is wanted")
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
    """The costs with other costs of units (None keeps a unit off), then times a factor for each
    target. A region that was measured whole costs what it took and the changes of its units.

    ``unit_ns`` has every unit on each target that runs it. Compile times never change.
    """
    changed = np.full_like(table.unit_ns, np.inf)
    for (unit, target), ns in unit_ns.items():
        if ns is not None:
            changed[unit, table.column[target]] = ns

    def of_region(units: frozenset[int], target: Target, ns: float) -> float:
        for unit in units:
            if (unit, target) not in unit_ns:
                continue  # it runs only inside of regions, and has no cost of its own to change
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
    """The costs with estimates of some units, and prices of targets on which nothing was
    measured."""
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
    """The prices of targets as the arrays of a table: ``overhead_ns``, ``in_ns_per_byte`` and
    ``out_ns_per_byte``."""
    every = list(prices)
    return (
        np.array([price.invocation_ns for price in every], dtype=np.float64),
        np.array([price.ns_per_in_byte for price in every], dtype=np.float64),
        np.array([price.ns_per_out_byte for price in every], dtype=np.float64),
    )


# ---- dominated targets --------------------------------------------------------------------------


def drop_dominated_targets(table: CostTable, *, auto: bool = False) -> CostTable:
    """The costs without preferences under which no region was faster beyond noise than under
    another of the same accelerator, likewise without one thread of the CPU beside several, and
    without "auto" where a named accelerator is as fast. All stay where nothing was measured.

    The preferences of an accelerator are alternatives of one driver, and NNAPI's own choice
    ("auto") is one of its accelerators; often some of them run alike. Kept as targets of their own
    they only multiply luck: of several noisy measurements of one thing the partitioner takes the
    luckiest, region by region, and measuring never comes to rest.

    Of equals the preference for fast answers stays. What was measured on the others is left out of
    plans, not of the fits. With ``auto`` NNAPI's own choice stays, whatever it equals. Relaxed or
    in float16 a processor is left out where it is no faster than in float32; any other two
    precisions are alternatives, of error if not of latency.
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
    """Those that stay where they are equal first."""
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
    """Whether ``rival`` runs all that ``target`` runs, as fast but for noise.

    Compared are all regions measured on both: what choosing the faster of the two for each of them
    would save of their sum. Noise alone saves 0.56 of its standard deviation that way.
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
    """The costs without targets that only multiply luck (see
    :func:`~nnapi_prof.costs.table.drop_dominated_targets`): those that plans are made by, and
    those of their baselines."""
    return drop_dominated_targets(costs), drop_dominated_targets(costs, auto=True)
