"""Profile one float model in several precisions: samples first, then what promises a gain.

Float32 is profiled as usual. Relaxed precision and float16 differ from it only in arithmetic, so a
trial on each accelerator that ran floats shows what all units would take. In 8 bits everything
differs: each unit is measured (units that differ only in their scales once) on the targets that are
not far slower in a trial. Then the regions of plans over all precisions are measured whole: of the
best plan, of the best in floats, and of the best in 8 bits wherever that is possible. The plans for
every error budget lie between these.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from nnapi_prof.costs.model.precision import PrecisionCosts
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.table import drop_dominated_targets
from nnapi_prof.errors import DeviceError
from nnapi_prof.execution.profile import (
    ProfileOptions,
    ProfileOutcome,
    ProgressCallback,
    tell_planning,
)
from nnapi_prof.execution.profile.measurer import Client
from nnapi_prof.execution.profile.precision_sessions import (
    FIRST_LEVELS,
    EightBitForms,
    PrecisionSessions,
)
from nnapi_prof.execution.profile.regions import (
    LIMITS,
    SETTLED,
    Chosen,
    Warm,
    choose,
    repriced,
    worthwhile_targets,
)
from nnapi_prof.execution.profile.session import MAX_ROUNDS
from nnapi_prof.graph.plan import HOST, Engine, Plan, Precision, Target
from nnapi_prof.partition import TOLERANCE, SearchLimits, make_problem, plan_problem
from nnapi_prof.partition.front import front

if TYPE_CHECKING:
    from nnapi_prof.graph.program import Program
    from nnapi_prof.precision import Recipe
    from nnapi_prof.precision.sensitivity import UnitNoise

PLANNING_SHARE = 0.1
PLANNING_S = 5.0
"""Planning between rounds takes that share of measuring, or so many seconds if that is more."""
LEAST_SECONDS = 0.1
NEAR = 0.1
"""Relative slow-down against the best plan beyond which a plan in 8 bits alone is not refined."""
FRONT_ROUNDS = 3
FRONT_POINTS = 6
FRONT_S = 4.0
"""Rounds that refine plans for error budgets, the number of plans, and the seconds to find them."""


@dataclass(frozen=True)
class PrecisionOutcome:
    """The outcome of a profile in several precisions."""

    total: ProfileOutcome
    """Outcome over all precisions: all measurements and their time. The plan is the fastest at any
    error; costs and baselines are those of float32."""
    floats: ProfileOutcome
    """The profile in float32 by itself, as it would be without other precisions."""
    costs: PrecisionCosts | None = None
    """None where the profile was interrupted before the first fit."""
    plans: Mapping[str, Plan] = field(default_factory=dict)
    """``fastest`` at any error, ``floats`` the fastest without 8 bits, ``int8`` the fastest with
    everything in 8 bits that can be."""


def profile_precisions(
    program: Program,
    client: Client,
    store: CostStore,
    options: ProfileOptions | None = None,
    progress: ProgressCallback | None = None,
    *,
    precisions: Collection[Precision],
    recipe: Recipe | None = None,
    noise: UnitNoise | None = None,
) -> PrecisionOutcome:
    """Measures a float program in some precisions on a device, as far as plans need it.

    Float32 is always included, INT8 where there is a ``recipe``. The precision of
    ``options.conditions`` is ignored. With the ``noise`` of its units in these precisions, plans
    for a few error budgets are measured as well. Results, interrupts and errors are as in
    :func:`~nnapi_prof.execution.profile.session.profile`.
    """
    forms = None
    if Precision.INT8 in precisions and recipe is not None:
        forms = EightBitForms.of(program, recipe)
    session = _Session(program, forms, client, store, options or ProfileOptions(), progress, noise)
    try:
        return session.run(precisions)
    except KeyboardInterrupt:
        return session.outcome(interrupted=True)
    except DeviceError as error:
        count = session.n_measured
        if not count:
            raise
        rest = (
            f"the {count} measurements made before are kept in {store.location}; the same command "
            "goes on where this one stopped"
        )
        raise type(error)(f"{error}; {rest}", serial=error.serial) from error


class _Session:
    """State of one profile in several precisions: a session for each, and the costs of all."""

    def __init__(
        self,
        program: Program,
        forms: EightBitForms | None,
        client: Client,
        store: CostStore,
        options: ProfileOptions,
        progress: ProgressCallback | None,
        noise: UnitNoise | None = None,
    ) -> None:
        self._noise = noise
        self._began = time.monotonic()
        self._graph = program.units
        self._forms = forms
        self._options = options
        self.sessions = PrecisionSessions(program, forms, client, store, options, progress)
        self._of_floats: ProfileOutcome | None = None
        self._warm: dict[str, Warm] = {}
        self._planned_s = 0.0
        self._rounds = 0
        self._n_regions = 0
        self._stable = False
        self._potential = 0.0
        self._costs: PrecisionCosts | None = None
        self._plans: dict[str, Plan] = {}

    def run(self, precisions: Collection[Precision]) -> PrecisionOutcome:
        self._of_floats = self.sessions.floats.run()
        for precision in FIRST_LEVELS:
            if precision in precisions:
                self.sessions.try_precision(precision)
        if self._forms is not None:
            self.sessions.measure_eight_bits(self._forms)
        self._measure_chains()
        self._refine()
        return self.outcome()

    def _measure_chains(self) -> None:
        """Measures chains and runs in 8 bits, on targets that a plan of all precisions could
        use."""
        if self.sessions.eight is None:
            return
        with self._planning():
            # From what is always measured, so that the same command makes the same choice again.
            costs = self.sessions.fit(alone=True)
            problem = make_problem(self._graph, drop_dominated_targets(costs.table))
            plan = plan_problem(problem, limits=LIMITS, with_curve=False).default
            useful = worthwhile_targets(costs, plan, costs.targets)
        own = {target.base for target in useful if target.precision is Precision.INT8}
        self.sessions.eight.measure_chains(own)

    # ---- refining -----------------------------------------------------------------------------

    def _refine(self) -> None:
        """Plans, and measures the plans' regions whole, in rounds."""
        while True:
            costs = self._costs = self.sessions.fit()
            points = self._points(costs)
            self._plans = {name: chosen.plan for name, chosen in points.items()}
            self._potential = max(points[name].potential for name in points if name != "int8")
            if any(chosen.interrupted for chosen in points.values()):
                raise KeyboardInterrupt
            regions = [*_needed(points), *self._needed_by_front(costs)]
            jobs = self.sessions.jobs(regions)
            new = {
                session: [job for job in own if job.key not in session.measurer.have]
                for session, own in jobs.items()
            }
            for session, own in jobs.items():
                session.measurer.note_reused(own)
            if not any(new.values()):
                self._stable = True
                return
            if not self._options.refine or self._rounds == MAX_ROUNDS:
                return
            self._rounds += 1
            self.sessions.named.update(tuple(sorted(units)) for units, _ in regions)
            for session, own in new.items():
                self._n_regions += len(own)
                session.measurer.measure(f"regions of all, round {self._rounds}", own)

    def _points(self, costs: PrecisionCosts) -> dict[str, Chosen]:
        """Returns the plans that all others lie between, with the regions to measure for each."""
        floats = tuple(t for t in costs.targets if t.precision is not Precision.INT8)
        cases: dict[str, tuple[PrecisionCosts, Callable[[int, Target], bool] | None]] = {
            "fastest": (costs, None)
        }
        if len(floats) < len(costs.targets):
            cases["floats"] = replace(costs, targets=floats), None
            cases["int8"] = costs, _kept_in_floats(costs)
        with self._planning():
            points = {
                name: choose(
                    self._graph,
                    own,
                    self._warm.get(name),
                    self._limits(len(cases)),
                    tell_planning(
                        self.sessions.floats.measurer.report, f"planning, round {self._rounds}"
                    ),
                    forbidden,
                    TOLERANCE,
                )
                for name, (own, forbidden) in cases.items()
            }
            self._warm = {name: chosen.warm for name, chosen in points.items()}
            return {name: self._held(name, chosen, costs) for name, chosen in points.items()}

    def _held(self, name: str, chosen: Chosen, costs: PrecisionCosts) -> Chosen:
        """Returns the plan of the round before instead of a new one that is hardly faster:
        otherwise each of many equally fast plans would have to be measured."""
        before = self._plans.get(name)
        plan = None if before is None else repriced(before, costs)
        if plan is None or chosen.plan.predicted_ns < (1 - SETTLED) * plan.predicted_ns:
            return chosen
        return replace(chosen, plan=replace(plan, proof=chosen.plan.proof))

    def _needed_by_front(self, costs: PrecisionCosts) -> list[tuple[tuple[int, ...], Target]]:
        """Returns unmeasured regions of plans for a few error budgets; only in some rounds, because
        each may bring others."""
        noise = self._noise
        if noise is None or self._rounds >= FRONT_ROUNDS:
            return []
        with self._planning():
            problem = make_problem(self._graph, drop_dominated_targets(costs.table))
            arrays = [
                np.array(
                    [
                        [
                            noise.of(u, t.precision, on_cpu=t.engine is Engine.CPU)[o]
                            for t in problem.targets
                        ]
                        for u in range(problem.n)
                    ]
                )
                for o in range(noise.power.shape[2])
            ]
            for array in arrays:
                problem = problem.without(~np.isfinite(array))
            limits = replace(LIMITS, seconds=FRONT_S)
            points = front(problem, arrays, limits=limits, most=FRONT_POINTS)
        return [
            (units, problem.targets[k])
            for point in points
            for units, k in point.placements
            if problem.targets[k] != HOST and (frozenset(units), k) not in problem.region_ns
        ]

    def _limits(self, n_cases: int) -> SearchLimits:
        """Returns the limits of one plan: planning takes its share of the measuring time."""
        measured_s = sum(m.spent_s["measure"] for m in self.sessions.measurers)
        left = max(PLANNING_S, PLANNING_SHARE * measured_s) - self._planned_s
        seconds = min(LIMITS.seconds, max(left / (4 * n_cases), LEAST_SECONDS))
        return replace(LIMITS, seconds=seconds)

    @contextlib.contextmanager
    def _planning(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._planned_s += time.monotonic() - began

    # ---- the outcome --------------------------------------------------------------------------

    @property
    def n_measured(self) -> int:
        """Number of measurements on the device, in all precisions."""
        return sum(measurer.n_measured for measurer in self.sessions.measurers)

    def outcome(self, *, interrupted: bool = False) -> PrecisionOutcome:
        floats = self._of_floats or self.sessions.floats.outcome(interrupted=True)
        measurers = self.sessions.measurers
        spent: dict[str, float] = defaultdict(float, {"plan": self._planned_s})
        doubts: dict[str, int] = defaultdict(int)
        for measurer in measurers:
            for what, seconds in measurer.spent_s.items():
                spent[what] += seconds
            for doubt, count in measurer.doubts.items():
                doubts[doubt] += count
        total = replace(
            floats,
            n_measured=self.n_measured,
            n_failed=sum(measurer.n_failed for measurer in measurers),
            n_refused=sum(measurer.n_refused for measurer in measurers),
            n_reused=sum(len(measurer.reused) for measurer in measurers),
            rounds=floats.rounds + self._rounds,
            stable=floats.stable and self._stable,
            seconds=time.monotonic() - self._began,
            n_regions=floats.n_regions + self._n_regions,
            potential=self._potential,
            spent_s=dict(spent),
            doubts=dict(doubts),
            waited_s=sum(measurer.waits.waited_s for measurer in measurers),
            lost_s=sum(sum(measurer.waits.lost_s.values()) for measurer in measurers),
            simulated_s=sum(measurer.waits.simulated_s for measurer in measurers),
            stayed_hot=any(measurer.waits.fruitless for measurer in measurers),
            interrupted=interrupted,
            plan=self._plans.get("fastest", floats.plan),
        )
        return PrecisionOutcome(total, floats, self._costs, self._plans)


def _needed(points: Mapping[str, Chosen]) -> list[tuple[tuple[int, ...], Target]]:
    """Returns the regions to measure. Those of the best plan in 8 bits alone are included where it
    is about as fast as the best of all: otherwise the latter has less error, too."""
    fastest = points["fastest"].plan
    return [
        (segment.units, segment.target)
        for name, chosen in points.items()
        if name != "int8" or chosen.plan.predicted_ns <= (1 + NEAR) * fastest.predicted_ns
        for segment in chosen.to_measure
    ]


def _kept_in_floats(costs: PrecisionCosts) -> Callable[[int, Target], bool]:
    """Returns a predicate that forbids units that can be in 8 bits on all other targets."""
    in_8_bits = [target for target in costs.targets if target.precision is Precision.INT8]
    able = {
        unit
        for unit in range(len(costs.graph.units))
        if any(costs.unit_cost(unit, target) is not None for target in in_8_bits)
    }

    def forbidden(unit: int, target: Target) -> bool:
        return unit in able and target.precision is not Precision.INT8

    return forbidden
