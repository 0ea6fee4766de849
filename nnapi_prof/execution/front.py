"""Search the front of latency against error, with plans that run whole on this host.

The partitioner plans with noise powers of single units, which add up approximately. So every plan
runs whole, in NNAPI's own arithmetic. Where its error differs from the sum, the powers of its units
are corrected and the plan for that budget is searched again. The front keeps those plans of all
that ran that no other plan beats in both latency and error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.device.protocol import HalfArithmetic
from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import Engine, Plan, Precision, Proof
from nnapi_prof.partition import Constraints, Problem, SearchLimits, plan_problem
from nnapi_prof.partition.constraints import ErrorLimit
from nnapi_prof.partition.front import front, uniform
from nnapi_prof.partition.problem import Placement
from nnapi_prof.partition.solver import plan_of_placements
from nnapi_prof.precision.sensitivity import AccuracyEvaluator, PlanError, UnitNoise, corrected
from nnapi_prof.progress import Notify

if TYPE_CHECKING:
    from nnapi_prof.precision.metrics import ErrorEstimate


@dataclass(frozen=True)
class FrontPoint:
    """One plan: every region on a target, in a precision."""

    name: str
    """``front 3``, or the rule of a baseline."""
    plan: Plan
    """Plan of the float model's units; its targets have their precisions."""
    measured: PlanError = field(repr=False)
    """Error of the whole plan, on calibration and on held-out data."""
    predicted_error: float
    """Error that its units' own errors add up to, in the unit of :attr:`PlanError.relative`."""
    float_precision: Precision
    """Precision of floats when the plan runs, on accelerators and on a CPU that supports it."""

    @property
    def latency_ns(self) -> float:
        return self.plan.predicted_ns

    @property
    def error(self) -> float:
        """Error on the calibration data."""
        return self.measured.calibrated.error

    @property
    def held_out(self) -> ErrorEstimate:
        """Error on held-out data; on the calibration data where there is no other."""
        return self.measured.honest

    def precisions(self, n_units: int) -> tuple[Precision, ...]:
        """Returns the precision of each unit, [n_units]."""
        return precisions_of(n_units, self.plan)


def precisions_of(n: int, plan: Plan) -> tuple[Precision, ...]:
    """Returns the precision of each unit, [n]."""
    chosen = [Precision.FLOAT32] * n
    for segment in plan.segments:
        for unit in segment.units:
            chosen[unit] = segment.target.precision
    return tuple(chosen)


def float_precisions(plan: Plan) -> tuple[Precision, ...]:
    """Returns the precisions that a plan's floats may run in; one applies to the whole plan.

    With floats on accelerators it is the most exact one there, so that no error exceeds the planned
    one. Where all floats are the CPU's, it is any that the plan has, the least exact first.
    """
    order = list(Precision)
    for engine in (Engine.NNAPI, Engine.CPU):
        targets = (segment.target for segment in plan.segments)
        used = {t.precision for t in targets if t.engine is engine} - {Precision.INT8}
        if used:
            most_exact = sorted(used, key=order.index)
            return tuple(most_exact[:1] if engine is Engine.NNAPI else most_exact[::-1])
    return (Precision.FLOAT32,)


def nondominated(points: Sequence[FrontPoint]) -> tuple[FrontPoint, ...]:
    """Returns the points that no other one beats in latency and error, the fastest first; of equal
    points the one with fewer segments."""
    ordered = sorted(points, key=lambda p: (p.latency_ns, p.error, len(p.plan.segments)))
    front: list[FrontPoint] = []
    for point in ordered:
        if not front or point.error < front[-1].error:
            front.append(point)
    return tuple(front)


TRIES = 4
"""Number of plans tried for one budget, each with powers corrected by the one before."""

ALIKE = 0.03
"""Relative distance below the budget at which a plan's error is close enough."""


@dataclass
class FrontSearch:
    """Plans of one problem, each assignment of precisions run whole once."""

    problem: Problem
    noise: UnitNoise
    judge: AccuracyEvaluator
    limits: SearchLimits
    told: Notify
    cpu: HalfArithmetic = HalfArithmetic.NONE
    """Float16 arithmetic of the device's CPU engine."""
    points: list[FrontPoint] = field(default_factory=list)
    _errors: dict[tuple[tuple[Precision, ...], frozenset[int]], PlanError] = field(
        default_factory=dict
    )

    def add(self, name: str, plan: Plan) -> FrontPoint:
        """Runs a plan whole in each precision that its floats may have, and adds the points;
        returns the least exact one."""
        least_exact, *_ = [
            self._add(name, self._in_one(plan, precision), precision)
            for precision in float_precisions(plan)
        ]
        return least_exact

    def _in_one(self, plan: Plan, precision: Precision) -> Plan:
        """Returns the plan with its floats in one precision, wherever that has costs."""
        placements = [
            (units, self._index_at(units, k, precision)) for units, k in self._placements(plan)
        ]
        if placements == list(self._placements(plan)):
            return plan
        return self._plan_of(plan.name, placements)

    def _index_at(self, units: Sequence[int], index: int, precision: Precision) -> int:
        """Returns a target's index with floats in that precision; its own in 8 bits or without
        costs."""
        target = self.problem.targets[index]
        own = target.at(precision)
        if target.precision is Precision.INT8 or own not in self.problem.targets:
            return index
        k = self.problem.target_index(own)
        return k if self.problem.runs[list(units), k].all() else index

    def _add(self, name: str, plan: Plan, floats: Precision) -> FrontPoint:
        precisions, narrow = self._as_run(plan, floats)
        assignment = _assignment(precisions)
        if (precisions, narrow) not in self._errors:
            self.told(name)
            self._errors[precisions, narrow] = self.judge.error(assignment, narrow)
        power = self.noise.predicted(assignment, narrow).max(initial=0)
        measured = self._errors[precisions, narrow]
        point = FrontPoint(name, plan, measured, math.sqrt(float(power)), floats)
        self.points.append(point)
        return point

    def _as_run(
        self, plan: Plan, precision: Precision
    ) -> tuple[tuple[Precision, ...], frozenset[int]]:
        """Returns the precision of each unit, [n], when the plan runs with its floats in
        ``precision``, and the CPU's units with float16 sums.

        A plan's floats on the CPU run in that precision where the CPU supports it: one setting
        applies to all.
        """
        chosen, narrow = list(precisions_of(self.problem.n, plan)), set()
        for segment in plan.segments:
            if segment.target.engine is not Engine.CPU or not self.cpu.serves(precision):
                continue
            for unit in segment.units:
                if chosen[unit] is Precision.INT8:
                    continue
                if unit in self.noise.in_float32:
                    chosen[unit] = Precision.FLOAT32
                elif self.judge.simulation.refusal(unit, precision) is None:
                    chosen[unit] = precision
                    narrow |= set() if self.cpu.has_wide_sums else {unit}
        return tuple(chosen), frozenset(narrow)

    def uniform(self, precisions: Sequence[Precision]) -> list[FrontPoint]:
        """Adds and returns the plans without a front: one precision for all units that support
        it."""
        points = []
        noise = self._noise_of(self.noise)
        for precision in (Precision.FLOAT32, *precisions):
            own = uniform(self.problem, precision, noise, limits=self.limits)
            if own is not None:
                name = f"uniform {precision.value}"
                points.append(self.add(name, self._plan_of(name, own.placements)))
        return points

    def front(self, budgets: Sequence[float]) -> None:
        """Adds the front by the noise of single units, which must match every plan added so far."""
        rivals = dict.fromkeys(self._placements(point.plan) for point in self.points)
        powers = [budget**2 for budget in budgets]
        for found in front(
            self.problem,
            self._noise_of(self.noise),
            limits=self.limits,
            budgets=powers,
            rivals=list(rivals),
        ):
            self.add("front", self._plan_of("front", found.placements, found.proof))

    def within(self, budget: float) -> None:
        """Searches for a plan whose error, run whole, is within a budget and close to it.

        The search starts from the fastest plan so far. A plan that exceeds the budget, or stays far
        below it, is planned again with its units' powers corrected by its own error.
        """
        keeping = [point for point in self.points if point.error <= budget]
        point = min(keeping, key=lambda p: p.latency_ns, default=None)
        noise = self.noise
        if point is not None:
            noise = self._corrected(noise, point)
        for _ in range(TRIES):
            limits = tuple(
                ErrorLimit(array, budget, name)
                for array, name in zip(self._noise_of(noise), self._outputs(), strict=True)
            )
            try:
                plan = self._solve(limits)
            except PartitionError:
                return
            before = len(self._errors)
            point = self.add("front", plan)
            if len(self._errors) == before or budget * (1 - ALIKE) <= point.error <= budget:
                return
            noise = self._corrected(noise, point)

    def _corrected(self, noise: UnitNoise, point: FrontPoint) -> UnitNoise:
        precisions, narrow = self._as_run(point.plan, point.float_precision)
        return corrected(noise, _assignment(precisions), point.measured.relative, narrow)

    def _outputs(self) -> Sequence[str]:
        names = self.judge.simulation.program.units.outputs
        return names if len(names) > 1 else ("",)

    def _noise_of(self, noise: UnitNoise) -> list[NDArray[np.float64]]:
        return [noise_on_targets(self.problem, noise, o) for o in range(noise.power.shape[2])]

    def _solve(self, errors: tuple[ErrorLimit, ...]) -> Plan:
        return plan_problem(
            self.problem,
            constraints=Constraints(errors=errors),
            limits=self.limits,
            with_curve=False,
        ).default

    def _placements(self, plan: Plan) -> tuple[Placement, ...]:
        return tuple(
            (tuple(sorted(s.units)), self.problem.target_index(s.target)) for s in plan.segments
        )

    def _plan_of(
        self, name: str, placements: Sequence[Placement], proof: Proof | None = None
    ) -> Plan:
        return plan_of_placements(self.problem, placements, proof, name=name)


def noise_on_targets(problem: Problem, noise: UnitNoise, output: int) -> NDArray[np.float64]:
    """Returns the noise power of each unit on each target in one output of the model, [n, t]."""
    rows = [
        [
            noise.of(unit, target.precision, on_cpu=target.engine is Engine.CPU)[output]
            for target in problem.targets
        ]
        for unit in range(problem.n)
    ]
    return np.array(rows).reshape(problem.n, len(problem.targets))


def _assignment(precisions: Iterable[Precision]) -> dict[int, Precision]:
    return {u: p for u, p in enumerate(precisions) if p is not Precision.FLOAT32}
