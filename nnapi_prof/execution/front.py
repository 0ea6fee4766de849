"""Searches the front of latency against error by plans that run whole on this host.

The partitioner plans with noise powers of single units, which add up approximately. So every plan
runs whole, in NNAPI's own arithmetic, and where one shows another error than the sum said, the
powers of its units are corrected by it and the plan for that budget is searched again. What stays
are those plans, of all that ran, of which none is both faster and more accurate than another.
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
    """Of the float model's units; targets say their precisions."""
    measured: PlanError = field(repr=False)
    """Of the whole plan, on calibration and on held-out data."""
    predicted_error: float
    """What its units' own errors add up to, as :attr:`PlanError.relative`."""
    float_precision: Precision
    """What floats are computed in when it runs, on accelerators and on a CPU that has it."""

    @property
    def latency_ns(self) -> float:
        return self.plan.predicted_ns

    @property
    def error(self) -> float:
        """On the calibration data."""
        return self.measured.calibrated.error

    @property
    def held_out(self) -> ErrorEstimate:
        """On data that chose nothing; on the calibration data where there is no other."""
        return self.measured.honest

    def precisions(self, n_units: int) -> tuple[Precision, ...]:
        """[n_units]: what each unit computes in."""
        return precisions_of(n_units, self.plan)


def precisions_of(n: int, plan: Plan) -> tuple[Precision, ...]:
    """[n]: what each unit computes in."""
    chosen = [Precision.FLOAT32] * n
    for segment in plan.segments:
        for unit in segment.units:
            chosen[unit] = segment.target.precision
    return tuple(chosen)


def float_precisions(plan: Plan) -> tuple[Precision, ...]:
    """Returns the precisions that a plan's floats may have when it runs, where one holds for all.

    It is the most exact one that the plan has on accelerators, so that no error exceeds what was
    planned; where all floats are the CPU's, any that it has, the least exact first.
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
    """The points of which none is both as fast and as accurate as another, the fastest first; of
    equals the one of fewer segments."""
    ordered = sorted(points, key=lambda p: (p.latency_ns, p.error, len(p.plan.segments)))
    front: list[FrontPoint] = []
    for point in ordered:
        if not front or point.error < front[-1].error:
            front.append(point)
    return tuple(front)


TRIES = 4
"""Plans for one budget, each with powers corrected by the one before."""

ALIKE = 0.03
"""Relative: a plan whose error is this close below the budget needs no other."""


@dataclass
class FrontSearch:
    """Plans of one problem, each assignment of precisions run whole once."""

    problem: Problem
    noise: UnitNoise
    judge: AccuracyEvaluator
    limits: SearchLimits
    told: Notify
    cpu: HalfArithmetic = HalfArithmetic.NONE
    """Of the device's CPU engine."""
    points: list[FrontPoint] = field(default_factory=list)
    _errors: dict[tuple[tuple[Precision, ...], frozenset[int]], PlanError] = field(
        default_factory=dict
    )

    def add(self, name: str, plan: Plan) -> FrontPoint:
        """Runs a plan whole in each precision that its floats may have, and notes it; returns the
        least exact."""
        least_exact, *_ = [
            self._add(name, self._in_one(plan, precision), precision)
            for precision in float_precisions(plan)
        ]
        return least_exact

    def _in_one(self, plan: Plan, precision: Precision) -> Plan:
        """The plan with its floats in one precision, as it runs, wherever that has costs."""
        placements = [
            (units, self._index_at(units, k, precision)) for units, k in self._placements(plan)
        ]
        if placements == list(self._placements(plan)):
            return plan
        return self._plan_of(plan.name, placements)

    def _index_at(self, units: Sequence[int], index: int, precision: Precision) -> int:
        """The target of a region in floats in that precision; that of others."""
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
        """[n]: what each unit computes in when the plan runs with its floats in ``precision``, and
        the units of the CPU that add up in float16.

        What a plan has in floats on the CPU runs in that precision, where the CPU has it: one
        condition holds for all.
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
        """Add and return what one would do without the front: one precision for all, as far as it
        goes."""
        points = []
        noise = self._noise_of(self.noise)
        for precision in (Precision.FLOAT32, *precisions):
            own = uniform(self.problem, precision, noise, limits=self.limits)
            if own is not None:
                name = f"uniform {precision.value}"
                points.append(self.add(name, self._plan_of(name, own.placements)))
        return points

    def front(self, budgets: Sequence[float]) -> None:
        """The front by the noise of single units, with every plan that is noted to be matched."""
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
        """Looks for a plan whose error, run whole, keeps to a budget and is little below it.

        From the fastest plan so far on: one that does not keep to it, or stays far below, is
        planned again with its units' powers corrected by what it showed.
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
    """[n, t]: noise power of each unit on each target in one output of the model."""
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
