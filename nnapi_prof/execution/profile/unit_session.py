"""Measure a model's units and chains in one precision on a device, and fit costs to them."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from nnapi_prof.costs.measurement import FAILURES, Key, Kind, Measurement, Status
from nnapi_prof.costs.model import CostModel
from nnapi_prof.costs.model.fit import RegionMatcher, UnitSet, fit
from nnapi_prof.costs.model.forms import other_forms, place_of, units_to_try
from nnapi_prof.costs.model.precision import fit_eight_bits
from nnapi_prof.costs.model.quantised import EightBits
from nnapi_prof.costs.model.regression import FitCache
from nnapi_prof.costs.store import CostStore
from nnapi_prof.execution.profile import (
    ProfileOptions,
    ProgressCallback,
)
from nnapi_prof.execution.profile.jobs import (
    Job,
    TargetSpec,
    device_targets,
    grid,
)
from nnapi_prof.execution.profile.measurer import Client, Measurer
from nnapi_prof.execution.profile.regions import (
    chain_regions,
    far_slower_targets,
    first_targets,
    promising_targets,
    sample_units,
    trial_units,
    unit_regions,
)
from nnapi_prof.execution.profile.unit_graph_cache import UnitGraphCache
from nnapi_prof.graph.plan import AUTO, REFERENCE, Engine, Target
from nnapi_prof.nnapi import level_number

REFINING = 0.2
"""Ratio of refining's measurements to those before it: 0.19 (47 to 247) and 0.42 (74 to 175) in
profiles of MobileNetV2 on two simulated phones."""


def expected_later(
    units: Sequence[Job],
    chains: Sequence[Job],
    leaders: Collection[Target],
    have: Collection[Key],
    refine: bool,
) -> Mapping[str, int]:
    """Returns the number of measurements that are expected after each phase.

    Chains are measured on targets that a plan may use, which are mostly ``leaders``; refining
    follows where anything before it was new. Nobody can know the numbers under other preferences
    and in refining.
    """

    def new(jobs: Sequence[Job]) -> int:
        return sum(job.key not in have and job.spec.target in leaders for job in jobs)

    n_chains = new(chains)
    last = round(REFINING * (new(units) + n_chains)) if refine else 0
    n_units = new(units)
    return {
        "trial": n_units + n_chains + last,
        "units": n_chains + last,
        "preferences": n_chains + last,
        "chains": last,
    }


class UnitSession:
    """The measurements of one precision that come before a plan, and the costs fitted to them.

    With ``eight_bits`` it measures the units that are in 8 bits, in terms of
    ``eight_bits.canonical_graph``; ``unit_cache`` then has their graph. ``targets`` limits it to
    some of the device's; ``doubted`` are those that were far slower in another precision. With
    ``choosing_forms`` products of activations are measured in several forms, and have the cheapest
    from then on.
    """

    def __init__(
        self,
        unit_cache: UnitGraphCache,
        client: Client,
        store: CostStore,
        options: ProfileOptions,
        progress: ProgressCallback | None,
        *,
        eight_bits: EightBits | None = None,
        targets: Collection[Target] | None = None,
        doubted: Collection[Target] = (),
        choosing_forms: bool = False,
    ) -> None:
        self._eight_bits = eight_bits
        self._graph = unit_cache.units if eight_bits is None else eight_bits.canonical_graph
        self._stretches: Sequence[UnitSet] = (tuple(range(len(self._graph.units))),)
        if eight_bits is not None:
            self._stretches = eight_bits.stretches
        self._among = sorted(unit for stretch in self._stretches for unit in stretch)
        self._options = options
        self.measurer = Measurer(unit_cache, client, store, options, progress, eight_bits)
        self.specs = tuple(
            spec
            for spec in device_targets(
                self.measurer.info,
                options.preference_codes,
                options.accelerators,
                options.one_thread,
            )
            if targets is None or spec.target in targets
        )
        self._matcher = (
            RegionMatcher(self._graph) if eight_bits is None else eight_bits.canonical_matcher
        )
        self._unusable: set[tuple[str, Target]] = set()
        self._signatures = {self._graph.units[unit].signature for unit in self._among}
        self._doubted = frozenset(doubted)
        self._choosing = choosing_forms
        self.worth_trying: frozenset[Target] = frozenset()
        """Targets that every unit was measured on."""
        self.behind: frozenset[Target] = frozenset()
        """Targets on which only a trial was measured, ..."""
        self._reopened: frozenset[Target] = frozenset()
        """... and those of them that were measured after all."""
        self._formed: frozenset[str] = frozenset()
        """Places (:func:`.place_of`) where the forms of products are chosen."""
        self._alone: frozenset[Key] = frozenset()
        self._refit = FitCache()

    def measure_units(self) -> None:
        """Measures a trial on the leading targets, every unit on those that pass it, a sample under
        their other preferences, and then all units where the sample promises a gain."""
        jobs = self.jobs(unit_regions(self._graph, self._among))
        leaders, tried = first_targets(self.specs), list[Job]()
        if self._options.every_preference:
            leaders = frozenset(spec.target for spec in self.specs)
        elif self._options.accelerators is None:
            of_trial = self._signatures_of(trial_units(self._graph, self._among))
            tried = [
                job for job in jobs if job.spec.target in leaders and job.key.signature in of_trial
            ]
            self._expect(jobs, leaders)
            own_choice = [job for job in tried if job.spec.target.accelerator == AUTO]
            self.measurer.measure("trial", [job for job in tried if job not in own_choice])
            own_choice = [job for job in own_choice if self._is_worth_it(job)]
            self.measurer.measure("trial", own_choice)
            # A form that suits a driver badly must not count against the driver.
            self._choose_forms({t for t in leaders if t.accelerator not in (AUTO, REFERENCE)})
            rows = [row for row in self.measurer.rows.values() if row.signature in of_trial]
            self.behind = far_slower_targets(leaders, rows, self._doubted) - self._reopened
            leaders -= self.behind
        self._expect(jobs, leaders)
        self._choose_forms(leaders)
        of_sample = self._signatures_of(sample_units(self._graph, self._among))
        open_to = {target.accelerator for target in leaders}
        named = {target for target in leaders if target.accelerator != AUTO}
        first = [
            job
            for job in jobs
            if job.spec.target in named
            or (
                (job.spec.target in leaders or job.key.signature in of_sample)
                and job.spec.target.accelerator in open_to
                and self._is_worth_it(job)
            )
        ]
        self.measurer.measure("units", first)
        sampled = [row for row in self.measurer.rows.values() if row.signature in of_sample]
        more = promising_targets(self.specs, leaders, sampled)
        self.worth_trying = leaders | more
        second = [job for job in jobs if job.spec.target in more and self._is_worth_it(job)]
        self.measurer.measure("preferences", second)
        self._alone = frozenset(job.key for job in (*tried, *first, *second))
        bad = [row for row in self.measurer.rows.values() if not row.usable]
        self._unusable = {(row.signature, row.target) for row in bad}
        # NNAPI falls back to the CPU after a driver's error, not after a crash or a hang.
        fatal = {row.signature for row in bad if row.status in (Status.TIMEOUT, Status.CRASHED)}
        choices = [spec.target for spec in self.specs if spec.target.accelerator == AUTO]
        self._unusable.update(itertools.product(fatal, choices))

    def _choose_forms(self, leaders: Collection[Target]) -> None:
        """Measures the heaviest products of two activations in every form that these targets'
        levels have, each shape once, and chooses the cheapest form."""
        if not self._choosing:
            return
        specs = [
            spec
            for spec in self.specs
            if spec.target in leaders and place_of(spec.target) not in self._formed
        ]
        regions = [(Kind.UNIT, (unit.index,)) for unit in units_to_try(self._graph)]
        usual = [job for job in self.jobs(regions) if job.spec in specs]
        if not usual:
            return
        jobs = [
            each
            for job in usual
            for unit in [self._graph.units[job.region[0]]]
            for level, newest in [(level_number(job.spec.level), level_number(job.spec.newest))]
            for others in [other_forms(self._graph, unit, level, newest)]
            for each in (replace(job, forms=()), *map(job.in_form, others))
        ]
        self.measurer.measure("forms of products", jobs)
        places = {place_of(spec.target) for spec in specs}
        self.measurer.choose_forms(places)
        self._formed |= places

    def measure_chains(self, useful: Collection[Target]) -> None:
        """Measures chains and runs on targets that a plan may use, and the whole model on NNAPI's
        own choice: that is the result without a plan."""
        whole = self._stretches[0]
        own_choice = {target for target in self.behind if target.accelerator == AUTO}
        chains = [
            job
            for job in self.jobs(chain_regions(self._graph, self._stretches))
            if (
                job.spec.target in useful or (job.spec.target in own_choice and job.region == whole)
            )
            and self.all_units_run(job)
        ]
        self.measurer.measure("chains", chains)

    def reopen(self, targets: Collection[Target], useful: Collection[Target]) -> None:
        """Measures ``targets`` that had only a trial: parts of a region that runs well there may
        run better still. ``useful`` are those that a plan may use."""
        self._reopened |= frozenset(targets)
        self.measure_units()
        self.measure_chains({*useful, *targets})

    def _expect(self, jobs: Sequence[Job], leaders: Collection[Target]) -> None:
        """Sets the numbers of measurements to come, for the time left."""
        chains = self.jobs(chain_regions(self._graph, self._stretches))
        self.measurer.later = expected_later(
            jobs, chains, leaders, self.measurer.have, self._options.refine
        )

    def _signatures_of(self, units: Iterable[int]) -> set[str]:
        return {self._graph.units[unit].signature for unit in units}

    def chosen_rows(self) -> list[Measurement]:
        """Returns the rows of this session's targets."""
        targets = {spec.target for spec in self.specs}
        return [row for row in self.measurer.rows.values() if row.target in targets]

    # ---- what to measure ---------------------------------------------------------------------

    def jobs(self, regions: Iterable[tuple[Kind, UnitSet]]) -> list[Job]:
        return grid(
            self._matcher,
            regions,
            self.specs,
            self._options.conditions,
            self.measurer.info.cost_version,
        )

    def all_units_run(self, job: Job) -> bool:
        """Returns whether each unit of a job's region ran alone on its target, if it was tried."""
        units = self._graph.units
        return not any(
            (units[index].signature, job.spec.target) in self._unusable for index in job.region
        )

    def _is_worth_it(self, job: Job) -> bool:
        """Returns whether a job's region failed under no other preference of its accelerator and,
        for NNAPI's own choice, on no accelerator: a driver that died or hung would do so again, at
        the cost of two restarts or timeouts each time."""
        own = job.spec.target
        others = {spec.target for spec in self.specs if spec.target.engine is Engine.NNAPI} - {own}
        if own.accelerator != AUTO:
            others = {target for target in others if target.accelerator == own.accelerator}
        rows = (self.measurer.rows.get((job.key.signature, target)) for target in others)
        conclusive = [row for row in rows if row is not None and row.key in self.measurer.have]
        return not any(row.status in FAILURES for row in conclusive)

    def region_jobs(self, regions: Iterable[tuple[Iterable[int], Target]]) -> list[Job]:
        """Returns a job for each region and target, each once."""
        specs = {spec.target: spec for spec in self.specs}
        jobs: dict[Key, Job] = {}
        for units, target in regions:
            job = self._segment_job(tuple(sorted(units)), specs[target])
            jobs.setdefault(job.key, job)
        # Alternatives of one region are adjacent here, too.
        return sorted(jobs.values(), key=lambda job: job.region)

    def _segment_job(self, region: UnitSet, spec: TargetSpec) -> Job:
        kind = Kind.UNIT if len(region) == 1 else Kind.REGION
        conditions = self._options.conditions
        return Job.of(
            self._matcher, region, kind, spec, conditions, self.measurer.info.cost_version
        )

    # ---- what it costs -----------------------------------------------------------------------

    def fit(self, named: Iterable[UnitSet] = ()) -> CostModel:
        with self.measurer.spending("plan"):
            return self._fit(self.chosen_rows(), named)

    def fit_alone(self) -> CostModel:
        """Fits costs to what is always measured, so that the same command repeats its choices."""
        return self._fit([row for row in self.chosen_rows() if row.key in self._alone])

    def _fit(self, rows: Iterable[Measurement], named: Iterable[UnitSet] = ()) -> CostModel:
        if self._eight_bits is not None:
            return fit_eight_bits(self._eight_bits, rows, regions=named, refit=self._refit)
        return fit(self._graph, rows, regions=named, matcher=self._matcher, refit=self._refit)
