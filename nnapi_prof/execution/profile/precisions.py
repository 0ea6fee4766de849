"""Profiling one float model in several precisions: samples first, then what promises gain.

Float32 is profiled as ever. Relaxed and float16 differ from it in arithmetic alone, so that a trial
on each accelerator that ran floats tells what all units would take. In 8 bits everything differs,
and each unit is measured, once where several differ in their scales only, on the targets that a
trial does not show to lie behind. Then regions are measured whole that plans over all precisions
together need: of the best plan, of the best in floats, and of the best in 8 bits wherever that is
possible, between which the plans for every budget of error lie.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from nnapi_prof.costs.measurement import Key
from nnapi_prof.costs.model.fit import Locator, UnitSet
from nnapi_prof.costs.model.fit_precision import fit_conditional
from nnapi_prof.costs.model.precision import PrecisionCosts
from nnapi_prof.costs.model.quantised import ConversionCosts
from nnapi_prof.costs.model.regression import FitCache
from nnapi_prof.costs.model.views import drop_dominated_targets
from nnapi_prof.costs.store import CostStore
from nnapi_prof.errors import DeviceError
from nnapi_prof.execution.profile.cached_units import CachedUnits
from nnapi_prof.execution.profile.forms import EightBitForms
from nnapi_prof.execution.profile.jobs import Job, grid
from nnapi_prof.execution.profile.measurer import Client, Measurer
from nnapi_prof.execution.profile.options import (
    ProfileOptions,
    ProfileOutcome,
    Progress,
    ProgressCallback,
    tell_planning,
)
from nnapi_prof.execution.profile.refine import LIMITS, Chosen, Warm, choose, worthwhile
from nnapi_prof.execution.profile.regions import (
    chain_regions,
    leading,
    trial_units,
    unit_regions,
)
from nnapi_prof.execution.profile.session import MAX_ROUNDS, Session
from nnapi_prof.graph.plan import CPU, Engine, Plan, Precision, Target
from nnapi_prof.partition import SearchLimits, solve

if TYPE_CHECKING:
    from nnapi_prof.graph.program import Program
    from nnapi_prof.precision.recipe import Recipe

FIRST_LEVELS = {Precision.RELAXED: 28, Precision.FLOAT16: 29}
"""Feature levels (API levels) from which on NNAPI has them: relaxComputationFloat32toFloat16, and
float16 tensors."""
PLANNING_SHARE = 0.1
PLANNING_S = 5.0
"""Planning between rounds takes that share of measuring, or that long, whichever is more."""
LEAST_SECONDS = 0.1


@dataclass(frozen=True)
class PrecisionOutcome:
    """What a profile in several precisions came to."""

    total: ProfileOutcome
    """Of all precisions: what was measured, how long it took; the plan is the fastest at any error,
    and costs and baselines are those of float32."""
    floats: ProfileOutcome
    """The profile in float32 by itself, as it would be without other precisions."""
    costs: PrecisionCosts | None = None
    """None where it was interrupted before there were any."""
    plans: Mapping[str, Plan] = field(default_factory=dict)
    """``fastest`` at any error, ``floats`` the fastest without 8 bits, ``int8`` the fastest with
    all in 8 bits that can be."""


def profile_precisions(
    program: Program,
    client: Client,
    store: CostStore,
    options: ProfileOptions | None = None,
    progress: ProgressCallback | None = None,
    *,
    precisions: Collection[Precision],
    recipe: Recipe | None = None,
) -> PrecisionOutcome:
    """Measures a float program in some precisions on a device, as far as plans need it.

    Float32 is always among them, INT8 where there is a ``recipe``. The precision of
    ``options.conditions`` is not looked at. Results, interrupts and errors are as in
    :func:`~nnapi_prof.execution.profile.session.profile`.
    """
    forms = None
    if Precision.INT8 in precisions and recipe is not None:
        forms = EightBitForms.of(program, recipe)
    session = _Session(program, forms, client, store, options or ProfileOptions(), progress)
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
        raise type(error)(f"{error}; {rest}", error.serial) from error


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
    ) -> None:
        self._began = time.monotonic()
        self._program = program
        self._graph = program.units
        self._forms = forms
        self._device = (client, store)
        self._options = options
        self._progress = progress
        self._floats = self._session(Precision.FLOAT32)
        self._of_floats: ProfileOutcome | None = None
        self._others: dict[Precision, Session] = {}
        """Relaxed and float16."""
        self._tried: dict[Precision, frozenset[Key]] = {}
        """Of these, what a trial measures."""
        self._eight: Session | None = None
        self._converting: Measurer | None = None
        self._refits: dict[Precision, FitCache] = {}
        self._warm: dict[str, Warm] = {}
        self._named: set[UnitSet] = set()
        self._planned_s = 0.0
        self._rounds = 0
        self._n_regions = 0
        self._stable = False
        self._potential = 0.0
        self._costs: PrecisionCosts | None = None
        self._plans: dict[str, Plan] = {}

    def run(self, precisions: Collection[Precision]) -> PrecisionOutcome:
        self._of_floats = self._floats.run()
        if self._of_floats.interrupted:
            return self.outcome(interrupted=True)
        for precision in FIRST_LEVELS:
            if precision in precisions:
                self._try(precision)
        if self._forms is not None:
            self._measure_eight_bits(self._forms)
        self._measure_chains()
        self._refine()
        return self.outcome()

    # ---- samples, units, chains ---------------------------------------------------------------

    def _session(self, precision: Precision, targets: Collection[Target] | None = None) -> Session:
        """Of one precision, over the form of the model that it is measured in."""
        client, store = self._device
        eight_bits = program = None
        conditions = replace(self._options.conditions, precision=Precision.FLOAT32)
        if precision is Precision.INT8 and self._forms is not None:
            eight_bits, program = self._forms.eight_bits, self._forms.whole
        else:
            conditions = replace(conditions, precision=precision)
        return Session(
            CachedUnits.of(program or self._program),
            client,
            store,
            replace(self._options, conditions=conditions),
            self._told_of(precision),
            eight_bits=eight_bits,
            targets=targets,
            doubted=() if eight_bits is None else self._floats.behind,
        )

    def _told_of(self, precision: Precision) -> ProgressCallback | None:
        """What is told of how far a precision is; float32's phases have their names alone."""
        tell = self._progress
        if tell is None or precision is Precision.FLOAT32:
            return tell

        def pass_on(progress: Progress) -> None:
            tell(replace(progress, phase=f"{progress.phase}, {precision.value}"))

        return pass_on

    def _try(self, precision: Precision) -> None:
        """A trial on the accelerators that ran floats: units, the longest run, where overheads do
        not hide what is gained, and all units that float32 was refused where one of them runs."""
        targets = {
            spec.target
            for spec in self._floats.specs
            if spec.target in self._floats.worth_trying
            and spec.target.engine is Engine.NNAPI
            and spec.level >= FIRST_LEVELS[precision]
        }
        if not targets:
            return
        session = self._others[precision] = self._session(precision, targets)
        units = [self._graph.units[unit] for unit in trial_units(self._graph)]
        names = {unit.signature for unit in units}
        refused = self._refused(targets)
        jobs = session.jobs(unit_regions(self._graph))
        first = [
            job
            for job in jobs
            if job.key.signature in names
            or job.region[0] == refused.get(job.spec.target, (None,))[0]
        ]
        first += self._longest_runs(session)
        session.measurer.measure("trial", first)
        rows = session.measurer.rows
        runs = {
            job.spec.target
            for job in first
            if job.region[0] in refused.get(job.spec.target, ())
            and (row := rows.get((job.key.signature, job.spec.target))) is not None
            and row.usable
        }
        more = [j for j in jobs if j.spec.target in runs and j.region[0] in refused[j.spec.target]]
        session.measurer.measure("units", more)
        self._tried[precision] = frozenset(job.key for job in (*first, *more))

    def _longest_runs(self, session: Session) -> list[Job]:
        """The longest of the runs that each target ran in float32."""
        rows = self._floats.measurer.rows
        longest: dict[Target, Job] = {}
        for job in session.jobs(chain_regions(self._graph)):
            row = rows.get((job.key.signature, job.spec.target))
            ran = row is not None and row.usable
            before = longest.get(job.spec.target)
            if ran and (before is None or len(job.region) > len(before.region)):
                longest[job.spec.target] = job
        return list(longest.values())

    def _refused(self, targets: Collection[Target]) -> dict[Target, tuple[int, ...]]:
        """Units that a target refused in float32, those with most arithmetic first."""
        refused: dict[Target, list[int]] = {target: [] for target in targets}
        rows = self._floats.measurer.rows
        for unit in sorted(self._graph.units, key=lambda unit: -unit.macs):
            for target in targets:
                row = rows.get((unit.signature, target))
                if row is not None and not row.usable:
                    refused[target].append(unit.index)
        return {target: tuple(units) for target, units in refused.items() if units}

    def _measure_eight_bits(self, forms: EightBitForms) -> None:
        """Every unit that can be in 8 bits, and conversions of a few sizes on the CPU."""
        self._eight = self._session(Precision.INT8, self._eight_bit_targets())
        self._eight.measure_units()
        client, store = self._device
        options = replace(
            self._options,
            conditions=replace(self._options.conditions, precision=Precision.FLOAT32),
        )
        measurer = Measurer(
            CachedUnits.of(forms.parts), client, store, options, self._told_of(Precision.INT8)
        )
        self._converting = measurer
        spec = next(spec for spec in self._floats.specs if spec.target == CPU)
        units = [conversion.unit for conversion in forms.conversions]
        jobs = grid(
            Locator(forms.parts.units),
            unit_regions(forms.parts.units, units),
            [spec],
            options.conditions,
            measurer.info.agent,
        )
        measurer.measure("conversions", jobs)

    def _eight_bit_targets(self) -> set[Target]:
        """The CPU, each accelerator under the preference that leads, and under others where floats
        showed something to be had from them, or ran on none."""
        specs = self._floats.specs
        leaders = leading(specs)
        ran = {
            row.target.accelerator
            for row in self._floats.measurer.rows.values()
            if row.usable and row.target.engine is Engine.NNAPI
        }
        return {
            spec.target
            for spec in specs
            if spec.target in leaders
            or spec.target in self._floats.worth_trying
            or spec.target.accelerator not in ran
        }

    def _measure_chains(self) -> None:
        """Chains and runs in 8 bits, on targets that a plan over all precisions could use."""
        if self._eight is None:
            return
        with self._planning():
            # By what is always measured, so that the same command chooses the same again.
            costs = self._fit(alone=True)
            plan = solve(self._graph, drop_dominated_targets(costs), limits=LIMITS)
            useful = worthwhile(costs, plan, costs.targets)
        own = {target.base for target in useful if target.precision is Precision.INT8}
        self._eight.measure_chains(own)

    # ---- refining -----------------------------------------------------------------------------

    def _refine(self) -> None:
        """Rounds of planning and of measuring what the plans need whole."""
        while True:
            costs = self._costs = self._fit()
            points = self._points(costs)
            self._plans = {name: chosen.plan for name, chosen in points.items()}
            self._potential = max(chosen.potential for chosen in points.values())
            if any(chosen.interrupted for chosen in points.values()):
                raise KeyboardInterrupt
            segments = [segment for chosen in points.values() for segment in chosen.to_measure]
            jobs = self._jobs([(segment.units, segment.target) for segment in segments])
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
            self._named.update(tuple(sorted(segment.units)) for segment in segments)
            for session, own in new.items():
                self._n_regions += len(own)
                session.measurer.measure(f"regions of all, round {self._rounds}", own)

    def _points(self, costs: PrecisionCosts) -> dict[str, Chosen]:
        """The plans that the others lie between, and what each needs measured."""
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
                    tell_planning(self._floats.measurer.report, f"planning, round {self._rounds}"),
                    forbidden,
                )
                for name, (own, forbidden) in cases.items()
            }
        self._warm = {name: chosen.warm for name, chosen in points.items()}
        return points

    def _jobs(self, regions: Sequence[tuple[Sequence[int], Target]]) -> dict[Session, list[Job]]:
        """Regions of the float graph on targets in their precisions, by the session they are of."""
        by_session: dict[Session, list[tuple[Collection[int], Target]]] = {}
        for units, target in regions:
            session: Session | None = self._floats
            own: Collection[int] | None = units
            if target.precision is Precision.INT8:
                session = self._eight
                own = None if self._forms is None else self._forms.eight_bits.region(units)
            elif target.precision is not Precision.FLOAT32:
                session = self._others[target.precision]
            if session is not None and own is not None:
                by_session.setdefault(session, []).append((own, target.base))
        return {session: session.region_jobs(own) for session, own in by_session.items()}

    def _limits(self, n_cases: int) -> SearchLimits:
        """Of one plan: planning takes its share of what measuring does."""
        measured_s = sum(m.spent_s["measure"] for m in self._measurers)
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

    def _fit(self, alone: bool = False) -> PrecisionCosts:
        """Of everything measured; ``alone`` of what is always measured."""
        floats = self._floats.fit_alone() if alone else self._floats.fit(self._named)
        models = {Precision.FLOAT32: floats}
        leading_rows = self._floats.chosen_rows()
        on_cpu = [row for row in leading_rows if row.target == CPU]
        for precision, session in self._others.items():
            own = session.chosen_rows()
            if alone:
                own = [row for row in own if row.key in self._tried[precision]]
            models[precision] = fit_conditional(
                floats,
                leading_rows,
                [*on_cpu, *own],
                regions=self._named,
                refit=self._refits.setdefault(precision, FitCache()),
            )
        if self._eight is None or self._forms is None or self._converting is None:
            return PrecisionCosts(self._graph, models)
        eight_bits = self._forms.eight_bits
        there = (eight_bits.region(units) for units in self._named)
        regions = [tuple(sorted(units)) for units in there if units is not None]
        models[Precision.INT8] = self._eight.fit_alone() if alone else self._eight.fit(regions)
        rows = self._converting.rows.values()
        converting = ConversionCosts.of(self._forms.conversions, rows)
        return PrecisionCosts(self._graph, models, eight_bits, converting)

    # ---- what it came to ----------------------------------------------------------------------

    @property
    def sessions(self) -> dict[Precision, Session]:
        """Of each precision that was measured."""
        eight = {} if self._eight is None else {Precision.INT8: self._eight}
        return {Precision.FLOAT32: self._floats, **self._others, **eight}

    @property
    def _measurers(self) -> list[Measurer]:
        own = [session.measurer for session in self.sessions.values()]
        return own if self._converting is None else [*own, self._converting]

    @property
    def n_measured(self) -> int:
        """On the device, in all precisions."""
        return sum(measurer.n_measured for measurer in self._measurers)

    def outcome(self, *, interrupted: bool = False) -> PrecisionOutcome:
        floats = self._of_floats or self._floats.outcome(interrupted=True)
        measurers = self._measurers
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
            interrupted=interrupted,
            plan=self._plans.get("fastest", floats.plan),
        )
        return PrecisionOutcome(total, floats, self._costs, self._plans)


def _kept_in_floats(costs: PrecisionCosts) -> Callable[[int, Target], bool]:
    """Which units are kept off which targets where everything is in 8 bits that can be."""
    in_8_bits = [target for target in costs.targets if target.precision is Precision.INT8]
    able = {
        unit
        for unit in range(len(costs.graph.units))
        if any(costs.unit_cost(unit, target) is not None for target in in_8_bits)
    }

    def forbidden(unit: int, target: Target) -> bool:
        return unit in able and target.precision is not Precision.INT8

    return forbidden
