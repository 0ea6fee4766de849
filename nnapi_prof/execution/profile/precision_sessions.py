"""Run a session for each precision of a profile, on the form of the model that it measures.

A float model is measured as it is, in 8 bits, and for conversions between them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nnapi_prof.costs.measurement import Key, Measurement
from nnapi_prof.costs.model.fit import RegionMatcher, UnitSet
from nnapi_prof.costs.model.precision import PrecisionCosts, fit_conditional, fit_precisions
from nnapi_prof.costs.model.quantised import (
    Conversion,
    ConversionCosts,
    EightBits,
    conversions_of,
    converting_units,
)
from nnapi_prof.costs.model.regression import FitCache
from nnapi_prof.costs.store import CostStore
from nnapi_prof.execution.profile import ProfileOptions, Progress, ProgressCallback
from nnapi_prof.execution.profile.jobs import Job, grid
from nnapi_prof.execution.profile.measurer import Client, Measurer
from nnapi_prof.execution.profile.regions import (
    chain_regions,
    first_targets,
    trial_units,
    unit_regions,
)
from nnapi_prof.execution.profile.session import Session
from nnapi_prof.execution.profile.unit_graph_cache import UnitGraphCache
from nnapi_prof.execution.profile.unit_session import UnitSession
from nnapi_prof.graph.plan import CPU, Engine, Precision, Target

if TYPE_CHECKING:
    from nnapi_prof.graph.program import Program
    from nnapi_prof.precision import Recipe


@dataclass(frozen=True)
class EightBitForms:
    """A program in 8 bits, and one with a few units in 8 bits whose borders have conversions of
    several sizes."""

    whole: Program
    parts: Program
    eight_bits: EightBits
    """Units in 8 bits of ``whole``."""
    conversions: tuple[Conversion, ...]
    """Units of ``parts`` that are timed."""

    @classmethod
    def of(cls, program: Program, recipe: Recipe) -> EightBitForms | None:
        """Returns the forms; None where the recipe has no unit in 8 bits. Raises ConversionError
        where it was made for another program."""
        from nnapi_prof.precision.program import quantise  # which imports torch

        if not recipe.units:
            return None
        whole = quantise(program, recipe)
        parts = quantise(program, recipe, converting_units(program.units, recipe.units))
        eight_bits = EightBits.of(program.units, whole, recipe.refusals)
        return cls(whole.program, parts.program, eight_bits, conversions_of(program.units, parts))


def read_precision_costs(
    program: Program,
    recipe: Recipe | None,
    rows: Mapping[Precision, Sequence[Measurement]],
) -> PrecisionCosts:
    """Reads a program's costs on one device from rows, without measuring more.

    ``rows`` are the table's of that device (:meth:`.CostStore.measurements`), under conditions that
    differ only in their precision: FLOAT32 always, RELAXED and FLOAT16 where asked for. With a
    recipe the costs include units in 8 bits.

    Raises CostError where a part of it was never measured.
    """
    forms = None if recipe is None else EightBitForms.of(program, recipe)
    if forms is None:
        return fit_precisions(program.units, rows)
    return fit_precisions(program.units, rows, forms.eight_bits, forms.conversions)


FIRST_LEVELS = {Precision.RELAXED: 28, Precision.FLOAT16: 29}
"""Feature levels (API levels) that introduced them to NNAPI: relaxComputationFloat32toFloat16, and
float16 tensors."""


class PrecisionSessions:
    """The sessions that measure a float model in each precision on one device, and fit the costs of
    all."""

    def __init__(
        self,
        program: Program,
        forms: EightBitForms | None,
        client: Client,
        store: CostStore,
        options: ProfileOptions,
        progress: ProgressCallback | None,
    ) -> None:
        self._program = program
        self._graph = program.units
        self._forms = forms
        self._device = (client, store)
        self._options = replace(
            options, conditions=replace(options.conditions, precision=Precision.FLOAT32)
        )
        self._progress = progress
        self.floats = Session(
            UnitGraphCache.of(program),
            client,
            store,
            self._options,
            self._told_of(Precision.FLOAT32),
            choosing_forms=False,  # the cheapest one differs by precision
        )
        self._others: dict[Precision, UnitSession] = {}
        """Sessions of relaxed precision and float16."""
        self._tried: dict[Precision, frozenset[Key]] = {}
        """Keys that a trial measures in each of these."""
        self.eight: UnitSession | None = None
        self._converting: Measurer | None = None
        self._refits: dict[Precision, FitCache] = {}
        self.named: set[UnitSet] = set()
        """Regions of the float graph that were measured for plans, in any precision."""

    def _session(self, precision: Precision, targets: Collection[Target]) -> UnitSession:
        """Starts the session of another precision, on the form of the model that it measures."""
        client, store = self._device
        eight_bits = program = None
        conditions = replace(self._options.conditions, precision=Precision.FLOAT32)
        if precision is Precision.INT8 and self._forms is not None:
            eight_bits, program = self._forms.eight_bits, self._forms.whole
        else:
            conditions = replace(conditions, precision=precision)
        return UnitSession(
            UnitGraphCache.of(program or self._program),
            client,
            store,
            replace(self._options, conditions=conditions),
            self._told_of(precision),
            eight_bits=eight_bits,
            targets=targets,
            doubted=() if eight_bits is None else self.floats.behind,
        )

    def _told_of(self, precision: Precision) -> ProgressCallback | None:
        """Returns the progress callback of a precision; phases of float32 keep their names."""
        tell = self._progress
        if tell is None or precision is Precision.FLOAT32:
            return tell

        def pass_on(progress: Progress) -> None:
            tell(replace(progress, phase=f"{progress.phase}, {precision.value}"))

        return pass_on

    def try_precision(self, precision: Precision) -> None:
        """Measures a trial on the accelerators that ran floats, and on a CPU with float16: some
        units, and the longest run, where overheads do not hide the gain. Where a unit runs that was
        refused in float32, measures all such units."""
        on_cpu = self.floats.measurer.info.cpu_float16.serves(precision)
        targets = {
            spec.target
            for spec in self.floats.specs
            if spec.target in self.floats.worth_trying
            and (on_cpu or spec.target.engine is Engine.NNAPI)
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

    def _longest_runs(self, session: UnitSession) -> list[Job]:
        """Returns the longest run of units that each target ran in float32."""
        rows = self.floats.measurer.rows
        longest: dict[Target, Job] = {}
        for job in session.jobs(chain_regions(self._graph)):
            row = rows.get((job.key.signature, job.spec.target))
            ran = row is not None and row.usable
            before = longest.get(job.spec.target)
            if ran and (before is None or len(job.region) > len(before.region)):
                longest[job.spec.target] = job
        return list(longest.values())

    def _refused(self, targets: Collection[Target]) -> dict[Target, tuple[int, ...]]:
        """Returns the units that each target refused in float32, those with most arithmetic
        first."""
        refused: dict[Target, list[int]] = {target: [] for target in targets}
        rows = self.floats.measurer.rows
        for unit in sorted(self._graph.units, key=lambda unit: -unit.macs):
            for target in targets:
                row = rows.get((unit.signature, target))
                if row is not None and not row.usable:
                    refused[target].append(unit.index)
        return {target: tuple(units) for target, units in refused.items() if units}

    def measure_eight_bits(self, forms: EightBitForms) -> None:
        """Measures every unit that can be in 8 bits, and conversions of a few sizes on the CPU."""
        self.eight = self._session(Precision.INT8, self._eight_bit_targets())
        self.eight.measure_units()
        client, store = self._device
        options = replace(
            self._options,
            conditions=replace(self._options.conditions, precision=Precision.FLOAT32),
        )
        measurer = Measurer(
            UnitGraphCache.of(forms.parts), client, store, options, self._told_of(Precision.INT8)
        )
        self._converting = measurer
        spec = next(spec for spec in self.floats.specs if spec.target == CPU)
        units = [conversion.unit for conversion in forms.conversions]
        jobs = grid(
            RegionMatcher(forms.parts.units),
            unit_regions(forms.parts.units, units),
            [spec],
            options.conditions,
            measurer.info.cost_version,
        )
        measurer.measure("conversions", jobs)

    def _eight_bit_targets(self) -> set[Target]:
        """Returns the CPU, each accelerator under its leading preference, and under others where
        floats gained from them, or the accelerator ran no floats."""
        specs = self.floats.specs
        leaders = first_targets(specs)
        ran = {
            row.target.accelerator
            for row in self.floats.measurer.rows.values()
            if row.usable and row.target.engine is Engine.NNAPI
        }
        return {
            spec.target
            for spec in specs
            if spec.target in leaders
            or spec.target in self.floats.worth_trying
            or spec.target.accelerator not in ran
        }

    @property
    def by_precision(self) -> dict[Precision, UnitSession]:
        """The session of each precision that was measured."""
        eight = {} if self.eight is None else {Precision.INT8: self.eight}
        return {Precision.FLOAT32: self.floats, **self._others, **eight}

    @property
    def measurers(self) -> list[Measurer]:
        own = [session.measurer for session in self.by_precision.values()]
        return own if self._converting is None else [*own, self._converting]

    def jobs(self, regions: Sequence[tuple[Sequence[int], Target]]) -> dict[UnitSession, list[Job]]:
        """Returns jobs of the float graph's regions on targets in their precisions, by session."""
        by_session: dict[UnitSession, list[tuple[Collection[int], Target]]] = {}
        for units, target in regions:
            session: UnitSession | None = self.floats
            own: Collection[int] | None = units
            if target.precision is Precision.INT8:
                session = self.eight
                own = None if self._forms is None else self._forms.eight_bits.region(units)
            elif target.precision is not Precision.FLOAT32:
                session = self._others[target.precision]
            if session is not None and own is not None:
                by_session.setdefault(session, []).append((own, target.base))
        return {session: session.region_jobs(own) for session, own in by_session.items()}

    def fit(self, alone: bool = False) -> PrecisionCosts:
        """Fits costs to all measurements; with ``alone``, to those that are always made."""
        floats = self.floats.fit_alone() if alone else self.floats.fit(self.named)
        models = {Precision.FLOAT32: floats}
        leading_rows = self.floats.chosen_rows()
        for precision, session in self._others.items():
            own = session.chosen_rows()
            if alone:
                own = [row for row in own if row.key in self._tried[precision]]
            models[precision] = fit_conditional(
                floats,
                leading_rows,
                own,
                regions=self.named,
                refit=self._refits.setdefault(precision, FitCache()),
            )
        if self.eight is None or self._forms is None or self._converting is None:
            return PrecisionCosts(self._graph, models)
        eight_bits = self._forms.eight_bits
        there = (eight_bits.region(units) for units in self.named)
        regions = [tuple(sorted(units)) for units in there if units is not None]
        models[Precision.INT8] = self.eight.fit_alone() if alone else self.eight.fit(regions)
        rows = self._converting.rows.values()
        converting = ConversionCosts.of(self._forms.conversions, rows)
        return PrecisionCosts(self._graph, models, eight_bits, converting)
