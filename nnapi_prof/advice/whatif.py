"""Plan a changed program: a rewritten one, or the same one with other costs."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from nnapi_prof.advice import Hindrance
from nnapi_prof.advice.hindrances import HindranceFinding, WorkPrices, fit_prices
from nnapi_prof.costs.estimate.costs import EstimatedCosts, fill
from nnapi_prof.costs.measurement import Kind, Measurement
from nnapi_prof.costs.model import PHONE_CPU, CostModel
from nnapi_prof.costs.model.views import half_interval_ns
from nnapi_prof.costs.table import CostTable, Estimate, Price, drop_dominated_targets
from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import CPU, HOST, Engine, Plan, Target
from nnapi_prof.graph.program import Program
from nnapi_prof.graph.unit import Work
from nnapi_prof.partition import Constraints, Problem, SearchLimits, make_problem, plan_problem

Operations = tuple[Work, ...] | str
"""NNAPI operations of a unit, or the reason why it has none."""
OperationsOf = Callable[[Program, int], Sequence[Operations]]
"""Function of a program and a feature level that returns the operations of each unit."""
BASIC = frozenset(
    """ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D FULLY_CONNECTED MAX_POOL_2D MUL
    RELU RELU1 RELU6 RESHAPE""".split()
)
"""Operations of the first version of NNAPI, which nearly every driver accepts. They are assumed to
run even if untried, unless only they can explain a refusal."""
FAMILIES = (
    frozenset({"RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"}),
    frozenset({"LOGISTIC", "TANH", "HARD_SWISH", "ELU", "EXP"}),
    frozenset({"MEAN", "REDUCE_SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"}),
)
"""Operations that drivers often support together: if one was refused, the others are in doubt."""
MOST_BIAS = 1.25
"""Bound of a whole region's latency over the sum of its parts, and of the reciprocal."""


class SupportDoubt(enum.IntEnum):
    """Doubt whether a target runs a unit that it never ran."""

    NONE = 0
    """All its operations ran there, or are basic."""
    NEVER_TRIED = 1
    RELATIVE_REFUSED = 2
    """An operation of the same family was refused."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A plan with a change applied."""

    plan: Plan
    ns: float
    """Predicted latency."""
    doubt: SupportDoubt = SupportDoubt.NONE
    """Largest doubt about the new units on the targets that the plan gives them."""
    margin_ns: float = 0.0
    """Half of the saving's 95 % interval."""


@dataclass
class Basis:
    """The model, costs and device that a what-if plan starts from."""

    program: Program
    costs: CostModel
    rows: Sequence[Measurement]
    """Measurements of the device, including those of other models."""
    plan: Plan
    levels: Mapping[Target, int]
    """Feature levels to lower for."""
    operations_of: OperationsOf
    kept_off: frozenset[int] = frozenset()
    """Units that constraints keep off accelerators."""
    limits: SearchLimits = field(default_factory=lambda: SearchLimits(seconds=2.0))
    """Search limits of each plan."""

    @cached_property
    def offered(self) -> frozenset[Target]:
        """Targets that plans may use: dominated ones are left out."""
        return frozenset(drop_dominated_targets(self.costs.table).targets)

    @cached_property
    def prices(self) -> dict[Target, WorkPrices]:
        """Prices of the targets that ran enough units to price the others."""
        by_target = {}
        for target in self.offered & set(self.costs.fits) - self.costs.partial:
            own = fit_prices([*self._own_samples(target), *self._other_samples(target)])
            if own is not None:
                by_target[target] = own
        return by_target

    def _own_samples(self, target: Target) -> Iterable[tuple[Work, float]]:
        once: dict[str, tuple[Work, float]] = {}
        for unit in self.program.units.units:
            ns = self.costs.unit_cost(unit.index, target)
            if unit.work is not None and ns is not None:
                once[unit.signature] = unit.work, ns
        return once.values()

    def _other_samples(self, target: Target) -> Iterable[tuple[Work, float]]:
        """Yields units of other models, measured alone, without invocation and transfer."""
        own = {unit.signature for unit in self.program.units.units}
        for row in self._alone.get(target, ()):
            if row.signature not in own and row.work is not None:
                yield row.work, self._marginal_ns(row)

    @cached_property
    def _alone(self) -> dict[Target, list[Measurement]]:
        rows: dict[Target, list[Measurement]] = {}
        for row in self.rows:
            if row.kind is Kind.UNIT and row.usable:
                rows.setdefault(row.target, []).append(row)
        return rows

    def _marginal_ns(self, row: Measurement) -> float:
        price = self.costs.price(row.target)
        around = price.invocation_ns + row.input_bytes * price.ns_per_in_byte
        around += row.output_bytes * price.ns_per_out_byte
        return max(0.0, float(row.summary.median_ns) - around)

    @cached_property
    def bias(self) -> dict[Target, float]:
        """Target -> latency of the plan's whole segments over the sum of their parts."""
        problem = make_problem(self.program.units, self.costs.table)
        whole: dict[Target, float] = {}
        parts: dict[Target, float] = {}
        for segment in self.plan.segments:
            if segment.target not in problem.targets or not segment.measured:
                continue
            ns = problem.additive_ns(segment.units, problem.target_index(segment.target))
            if np.isfinite(ns):
                target = segment.target
                whole[target] = whole.get(target, 0.0) + segment.predicted_ns
                parts[target] = parts.get(target, 0.0) + ns
        return {
            target: min(max(whole[target] / parts[target], 1 / MOST_BIAS), MOST_BIAS)
            for target in whole
            if parts[target] > 0
        }

    def predicted_ns(self, plan: Plan) -> float:
        """Returns a plan's latency; scales segments that were not measured whole by ``bias``."""
        return (
            plan.conversions_ns
            + self.plan.copies_ns
            - plan.overlapped_ns
            + sum(
                segment.predicted_ns
                * (1.0 if segment.measured else self.bias.get(segment.target, 1.0))
                for segment in plan.segments
            )
        )

    # What runs where

    @cached_property
    def _operations(self) -> dict[int, Sequence[Operations]]:
        return {
            level: self.operations_of(self.program, level) for level in set(self.levels.values())
        }

    def _names(self, unit: int, target: Target) -> frozenset[str]:
        own = self._operations[self.levels[target]][unit]
        return frozenset() if isinstance(own, str) else frozenset(work.kind for work in own)

    @cached_property
    def ran(self) -> dict[Target, frozenset[str]]:
        """Operations that ran on a target."""
        units = range(len(self.program.units.units))
        return {
            target: frozenset().union(
                *(
                    self._names(unit, target)
                    for unit in units
                    if self.costs.unit_cost(unit, target) is not None
                ),
                *({row.work.kind} for row in self._alone.get(target, ()) if row.work is not None),
            )
            for target in self.levels
        }

    @cached_property
    def guilty(self) -> dict[Target, frozenset[str]]:
        """Operations to which a target's refusals can be traced."""
        refused: dict[Target, frozenset[str]] = {}
        for (unit, target), _ in self.costs.refusals.items():
            if target not in self.levels:
                continue
            suspects = self._names(unit, target) - self.ran[target]
            refused[target] = refused.get(target, frozenset()) | (suspects - BASIC or suspects)
        return refused

    def judge(self, operations: Operations, target: Target) -> str | SupportDoubt:
        """Returns the reason why a target does not run a unit, or the doubt whether it does."""
        if isinstance(operations, str):
            return operations
        names = frozenset(work.kind for work in operations)
        guilty = self.guilty.get(target, frozenset())
        if bad := names & guilty:
            return f"{target.accelerator or target}: refused units with {', '.join(sorted(bad))}"
        unknown = names - self.ran[target] - BASIC
        if target.engine is not Engine.NNAPI or not unknown:
            return SupportDoubt.NONE
        if any(unknown & family and guilty & family for family in FAMILIES):
            return SupportDoubt.RELATIVE_REFUSED
        return SupportDoubt.NEVER_TRIED

    # Plans

    def rewritten(self, program: Program) -> WhatIf | None:
        """Returns the best plan of a rewritten program, with estimated costs of new units; None
        where there is no plan."""
        estimated, doubts = self._estimates(program)
        costs = fill(program.units, self.rows, estimated, fits=self.costs.fits)
        places = (t for t in costs.targets if t in self.offered or t == HOST)
        try:
            plan = self._solve(program, costs.table.on(places))
        except PartitionError:
            return None
        placed = [(unit, s.target) for s in plan.segments for unit in s.units]
        doubt = max(
            (doubts.get(place, SupportDoubt.NONE) for place in placed), default=SupportDoubt.NONE
        )
        guessed = sum(
            (estimate.error or 0.0) * estimate.ns
            for place in placed
            if (estimate := estimated.estimates.get(place)) is not None
        )
        margin = self.margin_ns(plan, costs, guessed)
        return WhatIf(plan, self.predicted_ns(plan), doubt, margin)

    def margin_ns(self, plan: Plan, costs: CostModel, guessed_ns: float = 0.0) -> float:
        """Returns half of the 95 % interval of a plan's saving; ``guessed_ns`` is the possible
        error of its estimated part. It is an upper bound, because the parts that both plans share
        have the same error."""
        halves = [half_interval_ns(self.plan.segments, self.costs)]
        halves.append(half_interval_ns(plan.segments, costs))
        return math.hypot(*halves) + guessed_ns

    def _solve(self, program: Program, costs: CostTable) -> Plan:
        same = {self.program.units.units[u].signature for u in self.kept_off}
        off = [u.index for u in program.units.units if u.signature in same]
        return plan_problem(
            make_problem(program.units, costs),
            constraints=self.constraints(off),
            limits=self.limits,
            with_curve=False,
        ).default

    def constraints(self, kept_off: Collection[int]) -> Constraints:
        """Returns constraints that keep units off all accelerators."""
        off = frozenset(t for t in self.costs.targets if t.engine is Engine.NNAPI)
        return Constraints(forbidden=dict.fromkeys(kept_off, off))

    def _estimates(
        self, program: Program
    ) -> tuple[EstimatedCosts, Mapping[tuple[int, Target], SupportDoubt]]:
        measured = {unit.signature for unit in self.program.units.units}
        levels = {target: self.levels[target] for target in self.prices if target in self.levels}
        operations = {level: self.operations_of(program, level) for level in set(levels.values())}
        alone = {
            (row.signature, target): row for target, rows in self._alone.items() for row in rows
        }
        estimates: dict[tuple[int, Target], Estimate] = {}
        refusals: dict[tuple[int, Target], str] = {}
        doubts: dict[tuple[int, Target], SupportDoubt] = {}
        for unit in program.units.units:
            if unit.signature in measured or unit.work is None:
                continue
            for target, level in levels.items():
                row = alone.get((unit.signature, target))
                verdict = (
                    SupportDoubt.NONE if row else self.judge(operations[level][unit.index], target)
                )
                if isinstance(verdict, str):
                    refusals[unit.index, target] = verdict
                    continue
                own = self.prices[target]
                estimates[unit.index, target] = (
                    Estimate(self._marginal_ns(row))
                    if row
                    else Estimate(own.ns(unit.work), own.error(unit.work))
                )
                doubts[unit.index, target] = verdict
        prices = {target: self.costs.price(target) for target in levels}
        prices.setdefault(CPU, self.costs.price(CPU))
        for unit in program.units.units:
            new = unit.signature not in measured
            if new and not any((unit.index, target) in estimates for target in prices):
                prices[HOST] = Price()
                estimates[unit.index, HOST] = Estimate(PHONE_CPU.unit_ns(program.units, unit))
        return (
            EstimatedCosts(program.units, prices, estimates, refusals, self.costs.simulated),
            doubts,
        )

    @cached_property
    def _problem(self) -> Problem:
        return make_problem(self.program.units, drop_dominated_targets(self.costs.table))

    def without(self, finding: HindranceFinding, seconds: float) -> WhatIf | None:
        """Returns the best plan found within ``seconds`` with the hindrance removed: refused and
        slow units at the price of work of their size, movers of values for free. None where there
        is no plan."""
        problem = self._problem
        unit_ns = problem.unit_ns.copy()
        errors: dict[tuple[int, Target], float] = {}
        off = self.kept_off
        if finding.kind is Hindrance.KEPT_OFF:
            off = off - set(finding.units)
        elif finding.kind is Hindrance.LAYOUT:
            unit_ns[list(finding.units)] = 0.0
        else:
            for unit in finding.units:
                work = self.program.units.units[unit].work
                for target in finding.targets:
                    own = self.prices.get(target)
                    if own is not None and work is not None:
                        k = problem.target_index(target)
                        usual = own.usual_ns(work)
                        if usual < unit_ns[unit, k]:
                            unit_ns[unit, k] = usual
                            errors[unit, target] = own.errors[1] * usual
        changed = {
            (int(unit), int(k)) for unit, k in np.argwhere(unit_ns != problem.unit_ns).tolist()
        }
        regions = {
            (units, k): ns
            for (units, k), ns in problem.region_ns.items()
            if not any((unit, k) in changed for unit in units)
        }
        problem = replace(problem, unit_ns=unit_ns, region_ns=regions)
        try:
            answer = plan_problem(
                problem,
                constraints=self.constraints(off),
                limits=replace(self.limits, seconds=min(self.limits.seconds, seconds)),
                with_curve=False,
            )
        except PartitionError:
            return None
        plan = answer.default
        guessed = sum(errors.get((u, s.target), 0.0) for s in plan.segments for u in s.units)
        margin = self.margin_ns(plan, self.costs, guessed)
        return WhatIf(plan, self.predicted_ns(plan), margin_ns=margin)
