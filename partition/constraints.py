"""Constraints of plans other than speed: targets ruled out, and budgets.

A budget (segments on accelerators, compile time, error) is a sum over a plan's segments. Each
segment adds a fixed part by target and a part by unit and target, or a known value for exactly that
region. Both latency and budgets are sums, so a price on a budget, in ns per step, leaves a problem
of the same kind (Lagrange's relaxation; H. Everett, "Generalized Lagrange Multiplier Method for
Solving Problems of Optimum Allocation of Resources", Oper. Res. 11, 1963).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.costs.table import CompileTimes
from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import Engine, Preference, Target
from nnapi_prof.partition.problem import Placement, Problem, Region


@dataclass(frozen=True, eq=False)
class ErrorLimit:
    """Limit on the error of one output of the model: the square root of noise powers that add up
    over units, as the powers of independent errors do."""

    noise: NDArray[np.float64]
    """[n, t] noise power of each unit on each target; inf where unknown"""
    limit: float
    """Largest relative error: 0.02 for 2 %"""
    output: str = ""
    """Name of the output, where the model has several"""

    def error(self, placements: Sequence[Placement]) -> float:
        """Returns the error of a plan."""
        powers = (float(self.noise[list(units), k].sum()) for units, k in placements)
        return math.sqrt(sum(powers))

    def least(self, problem: Problem) -> float:
        """Returns a lower bound of the error of any plan of a problem."""
        return math.sqrt(float(np.where(problem.runs, self.noise, np.inf).min(axis=1).sum()))

    @property
    def words(self) -> str:
        """The limit as text: ``an error of at most 2 %``."""
        where = f" in {self.output}" if self.output else ""
        return f"an error of at most {percent(self.limit)}{where}"


def percent(error: float) -> str:
    """Returns an error as text: ``2 %``."""
    return f"{100 * error:.3g} %"


@dataclass(frozen=True)
class Constraints:
    """Limits of a plan; none by default."""

    forbidden: Mapping[int, frozenset[Target]] = field(default_factory=dict)
    """Unit -> targets that it must not run on."""
    pinned: Mapping[int, Target] = field(default_factory=dict)
    """Unit -> the one target that it must run on."""
    preference: Preference | None = None
    """The only preference allowed for segments on accelerators."""
    max_regions: int | None = None
    """Largest number of segments on accelerators."""
    max_compile_ns: float | None = None
    """Largest total compile time of segments on accelerators; needs costs with compile times."""
    errors: tuple[ErrorLimit, ...] = ()
    """Largest error of each output of the model that matters."""
    reasons: Mapping[int, str] = field(default_factory=dict)
    """Unit -> reason why it is forbidden, for causes and messages."""

    @property
    def words(self) -> str:
        """The constraints as text: ``2 units pinned, preference fast only``; empty for none."""
        parts = [
            f"{len(units)} {'unit' if len(units) == 1 else 'units'} {how}"
            for units, how in (
                (self.pinned, "pinned"),
                ([unit for unit, targets in self.forbidden.items() if targets], "kept off targets"),
            )
            if units
        ]
        if self.preference is not None:
            parts.append(f"preference {self.preference.short} only")
        if self.max_regions is not None:
            parts.append(f"at most {self.max_regions} on accelerators")
        if self.max_compile_ns is not None:
            parts.append(f"at most {self.max_compile_ns / 1e6:.4g} ms of compilation")
        parts += [limit.words for limit in self.errors]
        return ", ".join(parts)


def constrain(problem: Problem, constraints: Constraints) -> Problem:
    """Returns the problem without what the constraints rule out, except ``max_regions``.

    Raises PartitionError where a constraint names an unknown unit or target, where two contradict
    each other, or where one leaves a unit nowhere to run.
    """
    allowed = np.ones(problem.unit_ns.shape, dtype=np.bool_)
    why: dict[tuple[int, int], str] = {}

    def rule_out(unit: int, k: int, reason: str) -> None:
        allowed[unit, k] = False
        why.setdefault((unit, k), reason)

    for k, target in enumerate(problem.targets):
        preference = constraints.preference
        if (
            preference is not None
            and target.engine is Engine.NNAPI
            and target.preference != preference
        ):
            for unit in range(problem.n):
                rule_out(unit, k, f"only preference {preference.short} is allowed")
    for unit, targets in constraints.forbidden.items():
        _check_unit(problem, unit)
        for target in targets:
            reason = constraints.reasons.get(unit, "forbidden")
            rule_out(unit, problem.target_index(target), reason)
    for unit, target in constraints.pinned.items():
        _check_unit(problem, unit)
        for k in range(len(problem.targets)):
            if k != problem.target_index(target):
                rule_out(unit, k, f"pinned to {target}")
    for limit in constraints.errors:
        if limit.noise.shape != allowed.shape or np.isnan(limit.noise).any():
            raise PartitionError(
                f"noise powers have the shape {limit.noise.shape}, wanted {allowed.shape}, each a "
                "number or inf"
            )
        for unit, k in np.argwhere(np.isinf(limit.noise)).tolist():
            rule_out(unit, k, "its error there is not known")
    rest = replace(problem.without(~allowed), ruled_out=why)
    for unit in np.flatnonzero(~rest.runs.any(axis=1)).tolist():
        off: dict[str, list[str]] = {}
        for k, target in enumerate(problem.targets):
            cause = why.get((unit, k)) or problem.refusals.get((unit, k), "no cost is known")
            off.setdefault(cause, []).append(str(target))
        reasons = "; ".join(
            f"{where[0]}{f' and {len(where) - 1} more' if where[1:] else ''}: {cause}"
            for cause, where in off.items()
        )
        raise PartitionError(
            f"the constraints leave {problem.labels[unit]} nowhere to run ({reasons})",
            "allow it on one of these targets",
        )
    return rest


def _check_unit(problem: Problem, unit: int) -> None:
    if not 0 <= unit < problem.n:
        raise PartitionError(f"a constraint names unit {unit}; there are {problem.n}")


# ---- budgets -------------------------------------------------------------------------------------


COMPILE_TIME = "compile time"
ERROR = "error"


@dataclass(frozen=True, eq=False)
class Budget:
    """Limit on the total use of a plan's segments."""

    name: str
    open_use: NDArray[np.float64]
    """[t] use of each segment, by target"""
    unit_use: NDArray[np.float64]
    """[n, t]"""
    limit: float = math.inf
    region_use: Mapping[Region, float] = field(default_factory=dict)
    """Use of a region that is a whole segment, where it is known better than by its parts."""

    @classmethod
    def segments(cls, problem: Problem, limit: float = math.inf) -> Budget:
        """Returns a budget of the number of segments."""
        return cls("segments", np.ones(len(problem.targets)), np.zeros_like(problem.unit_ns), limit)

    @classmethod
    def accelerated(cls, problem: Problem, limit: float = math.inf) -> Budget:
        """Returns a budget of the number of segments on accelerators."""
        counted = [target.engine is Engine.NNAPI for target in problem.targets]
        return cls(
            "segments on accelerators",
            np.array(counted, dtype=np.float64),
            np.zeros_like(problem.unit_ns),
            limit,
        )

    @classmethod
    def error(cls, noise: NDArray[np.float64], limit: float = math.inf) -> Budget:
        """Returns a limit of an error, as noise powers ([n, t]) that add up; ``limit`` is also a
        power, the square of the error. Unknown noise counts as 0: rule it out separately."""
        use = np.where(np.isfinite(noise), noise, 0.0)
        return cls(ERROR, np.zeros(noise.shape[1]), use, limit)

    @property
    def is_sum_over_units(self) -> bool:
        """Whether the use does not depend on how units form segments."""
        return not self.open_use.any() and not self.region_use

    def additive(self, units: Iterable[int], k: int) -> float:
        """Returns the use of a region on target ``k`` by its parts."""
        return float(self.open_use[k] + self.unit_use[sorted(units), k].sum())

    def of_region(self, units: Iterable[int], k: int) -> float:
        """Returns the use of one segment."""
        region = frozenset(units)
        own = self.region_use.get((region, k))
        return self.additive(region, k) if own is None else own

    def of(self, placements: Sequence[Placement]) -> float:
        """Returns the use of a plan."""
        return sum(self.of_region(units, k) for units, k in placements)

    def keeps(self, placements: Sequence[Placement]) -> bool:
        """Tells whether a plan is within the limit."""
        return self.of(placements) <= self.limit * (1 + 1e-9)


def add_prices(problem: Problem, budgets: Sequence[Budget], rates: Sequence[float]) -> Problem:
    """Returns the problem in which each step of a budget also costs its rate, in ns."""
    overhead, unit = problem.overhead_ns, problem.unit_ns
    priced_regions: dict[Region, None] = dict.fromkeys(problem.region_ns)
    for budget, rate in zip(budgets, rates, strict=True):
        overhead = overhead + rate * budget.open_use
        unit = unit + rate * budget.unit_use
        priced_regions |= dict.fromkeys(budget.region_use)
    regions = {}
    for units, k in priced_regions:
        ns = problem.segment_ns(units, k)
        for budget, rate in zip(budgets, rates, strict=True):
            ns += rate * budget.of_region(units, k)
        regions[units, k] = ns
    return replace(problem, overhead_ns=overhead, unit_ns=unit, region_ns=regions)


# ---- compile time as a budget --------------------------------------------------------------------


def compile_budget(times: CompileTimes, limit_ns: float) -> Budget:
    """Returns a limit on the compile time of a plan, in ns."""
    return Budget(COMPILE_TIME, times.fixed_ns, times.unit_ns, limit_ns, times.region_ns)
