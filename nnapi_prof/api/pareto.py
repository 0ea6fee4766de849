"""Latency against accuracy, targets and precisions of all regions chosen together: plan, run whole
on this host, correct, plan again.

The partitioner plans with noise powers of single units, which add up approximately. So every plan
runs whole, in NNAPI's own arithmetic, and where one shows another error than the sum said, the
powers of its units are corrected by it and the plan for that budget is searched again. What stays
are those plans, of all that ran, of which none is both faster and more accurate than another.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.api.costs import Costs
from nnapi_prof.api.front import FrontPoint, Pareto, float_precisions, nondominated, precisions_of
from nnapi_prof.api.model import Model, as_model
from nnapi_prof.api.objectives import ParetoOptions
from nnapi_prof.api.options import Listener, Progress, to_log
from nnapi_prof.device.build import build_host
from nnapi_prof.device.host_nnapi import HostNnapi
from nnapi_prof.device.protocol.results import HalfArithmetic
from nnapi_prof.errors import PartitionError, UsageError, for_caller
from nnapi_prof.graph.plan import Engine, Plan, Precision, Proof
from nnapi_prof.options import number
from nnapi_prof.partition import Constraints, Problem, SearchLimits, make_problem, plan_problem
from nnapi_prof.partition.constraints import ErrorLimit
from nnapi_prof.partition.front import front, uniform
from nnapi_prof.partition.problem import Placement
from nnapi_prof.partition.solver import plan_of_placements
from nnapi_prof.precision.samples import Sample
from nnapi_prof.precision.sensitivity import (
    AccuracyEvaluator,
    Data,
    PlanError,
    UnitNoise,
    corrected,
    unit_noise,
)
from nnapi_prof.precision.simulation import PrecisionSimulation
from nnapi_prof.precision.user_files import metric_of
from nnapi_prof.progress import Notify

USUAL_BUDGETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1)
"""Errors that plans are searched for, beside those that were asked for and those of baselines."""
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
                in_float = chosen[unit] is not Precision.INT8
                if in_float and self.judge.simulation.refusal(unit, precision) is None:
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
            noise.of(unit, target.precision, narrow=target.engine is Engine.CPU)[output]
            for target in problem.targets
        ]
        for unit in range(problem.n)
    ]
    return np.array(rows).reshape(problem.n, len(problem.targets))


def _assignment(precisions: Iterable[Precision]) -> dict[int, Precision]:
    return {u: p for u, p in enumerate(precisions) if p is not Precision.FLOAT32}


# ---- all of it -----------------------------------------------------------------------------------

MEASURING = "running plans for their errors"
SENSITIVITY = "errors of single units"
"""Phases, as progress names them."""
PLANS = 40
"""Plans that a front runs whole, about: what the seconds for errors are shared out by."""
SHARE_OF_UNITS = 0.4
"""Of those seconds, for the errors of single units."""


def pareto(
    model: Model | str | os.PathLike[str],
    costs: Costs,
    *,
    metric: str = "relative",
    budgets: Sequence[float] = (),
    seconds: float | None = None,
    accuracy_s: float = ParetoOptions().accuracy_s,
    progress: Callable[[Progress], None] | None = None,
    listener: Listener | None = None,
) -> Pareto:
    """Latency against accuracy: for every budget of error the fastest plan, targets and precisions
    of its regions chosen together, and what one precision for all gives beside it.

    ``costs`` are of :func:`nnapi_prof.profile` with ``precisions``. The error of each unit in each
    precision, and that of every plan, is measured on the calibration data by running it on this
    host in NNAPI's own arithmetic, with as many samples as ``accuracy_s`` seconds allow about (two
    at least). ``metric`` is what an error is: ``relative`` (root mean square of outputs less their
    mean), ``top1``, or ``"module:function"`` of outputs and targets. Plans are searched for within
    ``budgets`` (0.02: 2 %), and within usual ones beside; each search may take ``seconds`` (None:
    10). ``progress`` and ``listener`` are those of :func:`nnapi_prof.profile`.

    Raises UsageError where the costs know one precision only, or the metric does not fit.
    """
    for budget in budgets:
        number("budgets", budget, 0)
    ParetoOptions(seconds=seconds, accuracy_s=accuracy_s)
    if as_model(model).graph != costs.model.graph:
        raise UsageError(f"these costs are of {costs.model!r}, not of {model!r}", "profile it")
    if costs.calibration is None or len(costs.precisions) < 2:
        raise UsageError(
            for_caller(
                "the front needs costs in several precisions: name them with --precisions",
                "these costs know one precision only: profile(model, ..., precisions=['float32',"
                " 'relaxed', 'int8'])",
            )
        )
    limits = SearchLimits() if seconds is None else SearchLimits(seconds=seconds)
    return _search(costs, metric, budgets, limits, accuracy_s, listener or to_log(progress))


def _search(
    costs: Costs,
    metric: str,
    budgets: Sequence[float],
    limits: SearchLimits,
    accuracy_s: float,
    listener: Listener,
) -> Pareto:
    """:func:`pareto` of checked arguments."""
    calibration = costs.calibration
    assert calibration is not None
    precisions = tuple(p for p in costs.precisions if p is not Precision.FLOAT32)
    with listener.working("building the host's NNAPI"):
        host = HostNnapi(build_host().library)
    simulation = PrecisionSimulation(
        costs.model.program, host, calibration.recipe, calibration.level
    )
    judged_by = metric_of(metric)
    samples, others = calibration.samples.calibration, calibration.samples.held_out
    with listener.working("running the model in float32"):
        n = _affordable(simulation, samples, accuracy_s)
        apart = None if samples == others else _data(others, max(2, n // 2))
        judge = AccuracyEvaluator(simulation, _data(samples, n), apart, judged_by)
    notes = list(calibration.samples.notes)
    if len(judge.calibration) < len(samples):
        notes.append(
            f"plans ran on {len(judge.calibration)} of {len(samples)} calibration samples, as"
            f" {accuracy_s:g} s for measuring errors allow"
        )

    def of_units(done: int, total: int) -> None:
        listener.progress(Progress(SENSITIVITY, done, total, ""))

    half = HalfArithmetic.NONE if costs.agent_info is None else costs.agent_info.cpu_float16
    noise = unit_noise(
        simulation,
        judge.calibration.samples,
        judge.reference,
        precisions,
        limit_s=accuracy_s * SHARE_OF_UNITS,
        narrow=not half.has_wide_sums,
        progress=of_units,
    )
    problem = make_problem(costs.model.graph, costs.table)
    for output in range(noise.power.shape[2]):
        problem = problem.without(~np.isfinite(noise_on_targets(problem, noise, output)))
    n_done = 0

    def told(what: str) -> None:
        nonlocal n_done
        n_done += 1
        listener.progress(Progress(MEASURING, n_done, max(PLANS, n_done + 1), what))

    search = FrontSearch(problem, noise, judge, limits, told, half)
    every = sorted({*budgets, *USUAL_BUDGETS})
    rules = search.uniform(precisions)
    search.front(every)
    for budget in every:
        search.within(budget)
    points = nondominated(search.points)
    power = noise.power.max(axis=2, initial=0.0)
    return Pareto(
        costs=costs,
        metric=judge.metric.name,
        points=tuple(
            replace(point, name=f"front {number}") for number, point in enumerate(points, start=1)
        ),
        baselines=tuple(rules),
        sensitivity=tuple(map(tuple, np.sqrt(power).tolist())),
        precisions=noise.precisions,
        notes=tuple(dict.fromkeys(notes)),
    )


def _affordable(
    simulation: PrecisionSimulation, samples: Sequence[Sample], accuracy_s: float
) -> int:
    """Samples for whole plans, that so many seconds allow: what one takes, float16 everywhere, is
    tried."""
    everything = range(len(simulation.program.units.units))
    precision = Precision.FLOAT16 if simulation.recipe is None else Precision.INT8
    assignment = {
        unit: precision for unit in everything if simulation.refusal(unit, precision) is None
    }
    simulation.outputs(assignment, samples[0].inputs)  # compiles
    began = time.monotonic()
    simulation.outputs(assignment, samples[0].inputs)
    each_s = max(time.monotonic() - began, 1e-6)
    affordable = accuracy_s * (1 - SHARE_OF_UNITS) / (PLANS * 1.5 * each_s)
    return max(2, min(len(samples), int(affordable)))


def _data(samples: Sequence[Sample], n: int) -> Data:
    """So many of the samples, evenly spaced."""
    places = np.unique(np.linspace(0, len(samples) - 1, min(n, len(samples))).round().astype(int))
    chosen = [samples[place] for place in places.tolist()]
    targets = [sample.target for sample in chosen]
    has_targets = all(target is not None for target in targets)
    return Data([sample.inputs for sample in chosen], targets if has_targets else None)
