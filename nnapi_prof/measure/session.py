"""Profiling a model on a device: measure, partition, measure what was chosen, until it stands."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from nnapi_prof.convert.converted import ConvertedRegion
from nnapi_prof.costs.locate import Locator, Region
from nnapi_prof.costs.measurement import Key, Kind, Measurement
from nnapi_prof.costs.refit import Refit
from nnapi_prof.costs.region import CostModel, fit
from nnapi_prof.costs.store import CostStore
from nnapi_prof.device.info import device_fingerprint
from nnapi_prof.device.results import ActionResult, AgentInfo, Event, Start
from nnapi_prof.errors import DeviceError
from nnapi_prof.graph.plan import AUTO, Plan, Segment, Target
from nnapi_prof.measure.grid import Job, TargetSpec, device_targets, grid
from nnapi_prof.measure.options import ProfileOptions
from nnapi_prof.measure.outcome import (
    ProfileOutcome,
    Progress,
    ProgressCallback,
    tell_planning,
)
from nnapi_prof.measure.outline import Outline
from nnapi_prof.measure.refine import (
    LIMITS,
    Chosen,
    Warm,
    choose,
    count_exhaustive,
    rivals,
    unknown,
)
from nnapi_prof.measure.remaining import expected_later
from nnapi_prof.measure.requests import batches, prepare
from nnapi_prof.measure.sampling import (
    behind,
    chain_regions,
    leading,
    promising,
    sample_units,
    trial_units,
    unit_regions,
    worthwhile,
)
from nnapi_prof.measure.uninterrupted import uninterrupted
from nnapi_prof.measure.unit_model import Converter, measured, region_label
from nnapi_prof.partition import Limits, solve

if TYPE_CHECKING:
    from nnapi_prof.graph.program import Program

MAX_TURNS_OF_BASELINES = 4
"""Measured, a baseline may turn out to be better under another preference, unmeasured so far."""
PLANNING_S = 2.5
PLANNING_SHARE = 0.1
"""Planning takes that long, or that share of measuring, whichever is more; ..."""
SHARE_OF_LEFT = 0.2
LEAST_SECONDS = 0.1
"""... a single plan this share of what is left, and never less than a moment. Small networks end
with a proof long before."""
MAX_ROUNDS = 16
"""Rounds of measure, partition, measure; two to eight are the rule, later ones are short."""


class Client(Protocol):
    """What profiling asks of a device; :class:`~nnapi_prof.device.agent.AgentClient` is one."""

    def info(self) -> AgentInfo: ...
    def run(self, request: bytes, blobs: Mapping[str, bytes]) -> Generator[Event, None, None]: ...


def profile(
    model: Program | Outline,
    client: Client,
    store: CostStore,
    options: ProfileOptions | None = None,
    progress: ProgressCallback | None = None,
) -> ProfileOutcome:
    """Measures units, chains and the regions that a plan may have on a device.

    1. A few units on the CPU and under one preference of every accelerator; every unit on those
       that do not lie far behind there (and on all where ``options.accelerators`` names them), a
       sample of units under their other preferences, and all of them where the sample shows a
       preference to be faster.
    2. Chains and runs of units where all of them run, on targets that a plan could use; the whole
       model on NNAPI's own choice.
    3. Where ``options.refine``, up to :data:`MAX_ROUNDS` times: fit the costs, partition, measure
       the plan's regions whole, and those of the plan that would be best if everything unmeasured
       took the lower end of its interval, while that could still save anything; then, once the
       plan stands, those of the baselines.

    Each result is in ``store`` when the next one is read. Ctrl-C ends it with an outcome marked
    ``interrupted``; DeviceError (AgentError among them) passes on, saying how many rows were kept.
    The same call measures only what is missing; an :class:`~nnapi_prof.measure.outline.Outline`
    is then loaded only where something is.
    """
    outline = model if isinstance(model, Outline) else Outline.of(model)
    session = Session(outline, client, store, options or ProfileOptions(), progress)
    try:
        return session.run()
    except KeyboardInterrupt:
        costs, plan = session.so_far
        return session.outcome(interrupted=True, costs=costs, plan=plan)
    except DeviceError as error:
        if not session.n_measured:
            raise
        kept = (
            f"the {session.n_measured} measurements made before are kept in {store.location}; "
            "the same command goes on where this one stopped"
        )
        raise type(error)(f"{error}; {kept}", error.serial) from error


class Session:
    """State of one profile; :func:`profile` is how to use one."""

    def __init__(
        self,
        outline: Outline,
        client: Client,
        store: CostStore,
        options: ProfileOptions,
        progress: ProgressCallback | None,
    ) -> None:
        self._began = time.monotonic()
        self._graph = outline.units
        self._client = client
        self._store = store
        self._options = options
        self._progress = progress
        self._info = client.info()
        self._fingerprint = device_fingerprint(self._info)
        self._specs = device_targets(self._info, options.preferences, options.accelerators)
        self._locator = Locator(outline.units)
        self._load_program = outline.load
        self._converter = Converter(self._load)
        self._have: set[Key] = set() if options.fresh else store.have(self._fingerprint)
        # What the store has under these conditions, so that it is read once.
        self._rows = {
            (row.signature, row.target): row
            for row in store.measurements(self._fingerprint, conditions=options.conditions)
        }
        self._unusable: set[tuple[str, Target]] = set()
        self.n_measured = 0
        self._n_failed = 0
        self._n_refused = 0
        self._doubts: Counter[str] = Counter()
        self._spent_s: dict[str, float] = defaultdict(float)
        self._known = frozenset(self._have)
        self._reused: set[Key] = set()
        self._signatures = {unit.signature for unit in outline.units.units}
        self._worth_trying: frozenset[Target] = frozenset()
        self._behind: frozenset[Target] = frozenset()
        """Targets that a trial was enough for, ..."""
        self._reopened: frozenset[Target] = frozenset()
        """... and those of them that were measured after all."""
        self._useful: frozenset[Target] = frozenset()
        """Targets that a plan may use."""
        self._alone: frozenset[Key] = frozenset()
        self._later: Mapping[str, int] = {}
        self._rounds = 0
        self._n_regions = 0
        self._n_exhaustive: int | None = None
        self._potential = 0.0
        self._stable = False
        self._refit = Refit()
        self._warm = Warm()
        self.so_far: tuple[CostModel | None, Plan | None] = (None, None)
        """Costs and plan of the last round."""

    def run(self) -> ProfileOutcome:
        self._store.add_device(self._fingerprint, _description(self._info), self._info.simulated)
        self.measure_units()
        with self._spending("plan"):
            # By what is always measured, so that the same command chooses the same again.
            alone = [row for row in self._chosen_rows() if row.key in self._alone]
            costs = self._fit(alone)
            plan = solve(self._graph, costs, limits=LIMITS)
            self._useful = worthwhile(costs, plan, self._worth_trying)
        self.measure_chains(self._useful)
        return self._refine()

    def measure_units(self, *, thorough: bool = False) -> None:
        """A trial on the leading targets; every unit on those that stand it, and a sample under
        their other preferences; then all units on those that promise more. ``thorough`` leaves the
        trial out."""
        jobs = self.jobs(unit_regions(self._graph))
        leaders, tried = leading(self._specs), list[Job]()
        if self._options.every_preference:
            leaders = frozenset(spec.target for spec in self._specs)
        elif self._options.accelerators is None and not thorough:
            of_trial = self._signatures_of(trial_units(self._graph))
            tried = [
                job for job in jobs if job.spec.target in leaders and job.key.signature in of_trial
            ]
            self._expect(jobs, leaders)
            self.measure("trial", tried)
            rows = [row for row in self._rows.values() if row.signature in of_trial]
            self._behind = behind(leaders, rows) - self._reopened
            leaders -= self._behind
        self._expect(jobs, leaders)
        of_sample = self._signatures_of(sample_units(self._graph))
        open_to = {target.accelerator for target in leaders}
        first = [
            job
            for job in jobs
            if job.spec.target in leaders
            or (job.key.signature in of_sample and job.spec.target.accelerator in open_to)
        ]
        self.measure("units", first)
        sampled = [row for row in self._rows.values() if row.signature in of_sample]
        more = promising(self._specs, leaders, sampled)
        self._worth_trying = leaders | more
        second = [job for job in jobs if job.spec.target in more]
        self.measure("preferences", second)
        self._alone = frozenset(job.key for job in (*tried, *first, *second))
        self._unusable = {
            (row.signature, row.target) for row in self._rows.values() if not row.usable
        }

    def measure_chains(self, useful: Collection[Target]) -> None:
        """Chains and runs on targets that a plan may use, and the whole model where NNAPI itself
        chooses, for that is what one gets without a plan."""
        whole = tuple(range(len(self._graph.units)))
        own_choice = {target for target in self._behind if target.accelerator == AUTO}
        chains = [
            job
            for job in self.jobs(chain_regions(self._graph))
            if (
                job.spec.target in useful or (job.spec.target in own_choice and job.region == whole)
            )
            and self.all_units_run(job)
        ]
        self.measure("chains", chains)

    def _reopen(self, plan: Plan) -> bool:
        """Measures targets left at a trial after all where the plan runs on one of them: parts of
        what runs well there may run better still. Whether there was one."""
        found = frozenset(segment.target for segment in plan.segments) & self._behind
        if not found:
            return False
        self._reopened |= found
        self.measure_units()
        self.measure_chains(self._useful | found)
        return True

    def _expect(self, jobs: Sequence[Job], leaders: Collection[Target]) -> None:
        """Notes how much is to come, for the time left."""
        chains = self.jobs(chain_regions(self._graph))
        self._later = expected_later(jobs, chains, leaders, self._have, self._options.refine)

    def _signatures_of(self, units: Iterable[int]) -> set[str]:
        return {self._graph.units[unit].signature for unit in units}

    def _refine(self) -> ProfileOutcome:
        """Rounds of measuring and planning, until the plan stands; the baselines' regions last."""
        named: set[Region] = set()
        costs = self.fit()
        chosen = self._choose(costs)
        turns_of_baselines = 0
        while self._options.refine and self._rounds < MAX_ROUNDS:
            phase = f"regions, round {self._rounds + 1}"
            jobs = self._segment_jobs(chosen.wanted)
            self._note_reused(jobs)
            if all(job.key in self._have for job in jobs):
                with self._spending("plan"):
                    others = rivals(self._graph, costs)
                jobs = self._segment_jobs(s for plan in others for s in unknown(plan, costs))
                if not jobs or turns_of_baselines == MAX_TURNS_OF_BASELINES:
                    if self._reopen(chosen.plan):
                        costs = self.fit(named)
                        chosen = self._choose(costs)
                        continue
                    self._stable = True
                    break
                turns_of_baselines += 1
                phase = f"baselines, round {turns_of_baselines}"
            else:
                self._rounds += 1
            named.update(job.region for job in jobs)
            self._n_regions += sum(job.key not in self._have for job in jobs)
            self.measure(phase, jobs)
            costs = self.fit(named)
            chosen = self._choose(costs)
        with self._spending("plan"):
            others = rivals(self._graph, costs)
            self._n_exhaustive = count_exhaustive(self._graph, costs)
        self._potential = chosen.potential
        return self.outcome(costs=costs, plan=chosen.plan, rivals=others)

    def _chosen_rows(self) -> list[Measurement]:
        """Rows of the targets that were asked for."""
        wanted = {spec.target for spec in self._specs}
        return [row for row in self._rows.values() if row.target in wanted]

    def _choose(self, costs: CostModel) -> Chosen:
        with self._spending("plan"):
            progress = tell_planning(self._report, f"planning, round {self._rounds + 1}")
            chosen = choose(self._graph, costs, self._warm, self._limits(), progress)
        self._warm = chosen.warm
        self.so_far = (costs, chosen.plan)
        if chosen.interrupted:
            raise KeyboardInterrupt
        return chosen

    def _limits(self) -> Limits:
        """Of a plan between two rounds: planning takes a tenth of the time that measuring does, or
        :data:`PLANNING_S`, as long as a moment is left for each plan."""
        allowed = max(PLANNING_S, PLANNING_SHARE * self._spent_s["measure"])
        left = allowed - self._spent_s["plan"]
        seconds = min(LIMITS.seconds, max(left * SHARE_OF_LEFT, LEAST_SECONDS))
        return replace(LIMITS, seconds=seconds)

    def outcome(
        self,
        *,
        interrupted: bool = False,
        costs: CostModel | None = None,
        plan: Plan | None = None,
        rivals: tuple[Plan, ...] = (),
    ) -> ProfileOutcome:
        return ProfileOutcome(
            fingerprint=self._fingerprint,
            info=self._info,
            n_measured=self.n_measured,
            n_failed=self._n_failed,
            n_refused=self._n_refused,
            n_reused=len(self._reused),
            rounds=self._rounds,
            stable=self._stable,
            seconds=time.monotonic() - self._began,
            n_rows=sum(self._signatures.issuperset(row.members) for row in self._chosen_rows()),
            n_regions=self._n_regions,
            n_exhaustive=self._n_exhaustive,
            potential=self._potential,
            spent_s=dict(self._spent_s),
            doubts=dict(self._doubts),
            interrupted=interrupted,
            costs=costs,
            plan=plan,
            baselines=rivals,
        )

    # ---- what to measure ---------------------------------------------------------------------

    def jobs(self, regions: Iterable[tuple[Kind, Region]]) -> list[Job]:
        return grid(self._locator, regions, self._specs, self._options.conditions, self._info.agent)

    def all_units_run(self, job: Job) -> bool:
        units = self._graph.units
        return not any(
            (units[index].signature, job.spec.target) in self._unusable for index in job.region
        )

    def _segment_jobs(self, segments: Iterable[Segment]) -> list[Job]:
        """Segments that run on the device, each once."""
        specs = {spec.target: spec for spec in self._specs}
        jobs: dict[Key, Job] = {}
        for segment in segments:
            job = self._segment_job(tuple(sorted(segment.units)), specs[segment.target])
            jobs.setdefault(job.key, job)
        # Alternatives of one region stand together here, too.
        return sorted(jobs.values(), key=lambda job: job.region)

    def _segment_job(self, region: Region, spec: TargetSpec) -> Job:
        kind = Kind.UNIT if len(region) == 1 else Kind.REGION
        conditions = self._options.conditions
        return Job.of(self._locator, region, kind, spec, conditions, self._info.agent)

    def fit(self, named: Iterable[Region] = ()) -> CostModel:
        with self._spending("plan"):
            return self._fit(self._chosen_rows(), named)

    def _fit(self, rows: Iterable[Measurement], named: Iterable[Region] = ()) -> CostModel:
        return fit(self._graph, rows, regions=named, locator=self._locator, refit=self._refit)

    def _load(self) -> Program:
        began = time.monotonic()
        program = self._load_program()
        took = time.monotonic() - began
        self._spent_s["load"] += took
        self._spent_s["convert"] -= took  # which asked for it
        return program

    @contextlib.contextmanager
    def _spending(self, what: str) -> Iterator[None]:
        """Adds the time of a block to ``spent_s``."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._spent_s[what] += time.monotonic() - began

    # ---- measuring ---------------------------------------------------------------------------

    def measure(self, phase: str, jobs: Sequence[Job]) -> None:
        """Measures the jobs that are not in the store; each row is committed as it arrives."""
        pending = [job for job in jobs if job.key not in self._have]
        self._note_reused(jobs)
        done = 0
        if not jobs:
            return
        self._report(phase, done, len(pending), "")

        def stored(job: Job) -> None:
            nonlocal done
            done += 1
            self._have.add(job.key)
            self._report(phase, done, len(pending), region_label(self._graph, job.region))

        for batch in batches(self._graph, pending):
            self._measure_batch(batch, stored)
            self._converter.forget()

    def _note_reused(self, jobs: Iterable[Job]) -> None:
        self._reused.update(job.key for job in jobs if job.key in self._known)

    def _measure_batch(self, batch: Sequence[Job], stored: Callable[[Job], None]) -> None:
        """Converts, sends and stores one request's jobs; calls ``stored`` after each."""
        with self._spending("convert"):
            prepared = prepare(
                batch,
                self._graph,
                self._converter,
                self._options.timing(self._info.simulated),
                self._options.memory_kb,
                self._fingerprint,
                self._info.simulated,
            )
        with self._spending("store"):
            self._add(*(row for _, row in prepared.refusals))
        for job, _ in prepared.refusals:
            self._n_refused += 1
            stored(job)
        if not prepared.sent:
            return
        with self._spending("convert"):
            request = prepared.request.build()
        # Closing stops the agent where something goes wrong here.
        with contextlib.closing(self._client.run(request, prepared.request.blobs)) as events:
            for event in self._waited_for(events):
                if isinstance(event, ActionResult) and event.action in prepared.sent:
                    job, converted = prepared.sent.pop(event.action)
                    with self._spending("store"), uninterrupted():
                        self._keep(job, converted, event)
                    stored(job)

    def _waited_for(self, events: Iterator[Event]) -> Iterator[Event]:
        """The events, and the time it takes to wait for them."""
        began = False
        while True:
            with self._spending("measure" if began else "send"):
                event = next(events, None)
            if event is None:
                return
            began = began or isinstance(event, Start)
            yield event

    def _add(self, *rows: Measurement) -> None:
        self._store.add(*rows)
        for row in rows:
            # Again as the last: readers of the store find it there, too.
            self._rows.pop((row.signature, row.target), None)
            self._rows[row.signature, row.target] = row

    def _keep(self, job: Job, converted: ConvertedRegion, result: ActionResult) -> None:
        simulated = self._info.simulated
        row = measured(job, self._graph, self._fingerprint, simulated, converted, result)
        self._add(row)
        self.n_measured += 1
        if row.usable:
            self._doubts.update(row.flags)
        else:
            self._n_failed += 1

    def _report(self, phase: str, done: int, total: int, label: str) -> None:
        if self._progress is not None:
            self._progress(Progress(phase, done, total, label, self._later.get(phase, 0)))


def _description(info: AgentInfo) -> dict[str, object]:
    """What the table of devices keeps of an agent's info."""
    return {
        "phone": info.phone,
        "abi": info.abi,
        "os": info.os,
        "api_level": info.api_level,
        "cpus": info.cpus,
        "cpu_max_khz": list(info.cpu_max_khz),
        "memory_kb": info.memory_kb,
        "properties": dict(info.properties),
        "nnapi_library": info.nnapi.library,
        "accelerators": [
            {
                "name": a.name,
                "type": a.type,
                "version": a.version,
                "feature_level": a.feature_level,
            }
            for a in info.nnapi.accelerators
        ],
    }
