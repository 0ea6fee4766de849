"""Profiling a model on a device: measure, partition, measure what was chosen, until it stands."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from nnapi_prof.convert.converted import ConvertedRegion
from nnapi_prof.costs.locate import Locator, Region
from nnapi_prof.costs.measurement import Key, Kind, Measurement
from nnapi_prof.costs.region import CostModel, fit
from nnapi_prof.costs.store import CostStore
from nnapi_prof.device.groups import Groups
from nnapi_prof.device.info import device_fingerprint
from nnapi_prof.device.request import RequestBuilder
from nnapi_prof.device.results import ActionResult, AgentInfo, Event, Start
from nnapi_prof.errors import DeviceError
from nnapi_prof.graph.plan import Engine, Plan, Target
from nnapi_prof.measure.grid import (
    Job,
    TargetSpec,
    chain_regions,
    device_targets,
    grid,
    unit_regions,
)
from nnapi_prof.measure.options import ProfileOptions
from nnapi_prof.measure.outcome import ProfileOutcome, Progress, ProgressCallback
from nnapi_prof.measure.outline import Outline
from nnapi_prof.measure.unit_model import (
    Converter,
    make_action,
    measured,
    refused,
    region_label,
)
from nnapi_prof.partition import baselines, solve

if TYPE_CHECKING:
    from nnapi_prof.graph.program import Program

MAX_ACTIONS = 200
"""In one request; a request that fails as a whole costs no more than these."""
MAX_WEIGHT_BYTES = 128 << 20
"""Weights that one request's models hold in this process's memory."""
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
    """Measures every unit, chains and the regions of the plan and its baselines on a device.

    1. Every unit on every target.
    2. Chains of two and three units, where all their units run.
    3. Up to :data:`MAX_ROUNDS` times: fit the costs, partition, measure the regions of the plan
       and of the baselines whole; until there is nothing new to measure.

    Each result is in ``store`` when the next one is read. Ctrl-C ends it with an outcome marked
    ``interrupted``; DeviceError (AgentError among them) passes on, saying how many rows were kept.
    The same call measures only what is missing; an :class:`~nnapi_prof.measure.outline.Outline`
    is then loaded only where something is.
    """
    outline = model if isinstance(model, Outline) else Outline.of(model)
    session = _Session(outline, client, store, options or ProfileOptions(), progress)
    try:
        return session.run()
    except KeyboardInterrupt:
        return session.outcome(interrupted=True)
    except DeviceError as error:
        kept = (
            f"the {session.n_measured} measurements made before are kept in {store.location}; "
            "the same command goes on where this one stopped"
        )
        raise type(error)(f"{error}; {kept}", error.serial) from error


@dataclass
class _Prepared:
    """A request, its jobs by action, and the jobs that cannot be sent."""

    request: RequestBuilder = field(default_factory=RequestBuilder)
    sent: dict[int, tuple[Job, ConvertedRegion]] = field(default_factory=dict)
    refusals: list[tuple[Job, Measurement]] = field(default_factory=list)


class _Session:
    """State of one profile."""

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
        self._rounds = 0
        self._stable = False

    def run(self) -> ProfileOutcome:
        self._store.add_device(self._fingerprint, _description(self._info), self._info.simulated)
        self._measure("units", self._jobs(unit_regions(self._graph)))
        self._unusable = {
            (row.signature, row.target) for row in self._rows.values() if not row.usable
        }
        chains = self._jobs(chain_regions(self._graph))
        self._measure("chains", [job for job in chains if self._all_units_run(job)])

        named: set[Region] = set()
        costs = self._fit(named)
        plans = self._plans(costs)
        while self._rounds < MAX_ROUNDS:
            jobs = self._segment_jobs(plans)
            named.update(job.region for job in jobs)
            self._note_reused(jobs)
            if all(job.key in self._have for job in jobs):
                self._stable = True
                break
            self._rounds += 1
            self._measure(f"regions, round {self._rounds}", jobs)
            costs = self._fit(named)
            plans = self._plans(costs)
        return self.outcome(costs=costs, plan=plans[0], rivals=plans[1:])

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
            spent_s=dict(self._spent_s),
            doubts=dict(self._doubts),
            interrupted=interrupted,
            costs=costs,
            plan=plan,
            baselines=rivals,
        )

    # ---- what to measure ---------------------------------------------------------------------

    def _jobs(self, regions: Iterable[tuple[Kind, Region]]) -> list[Job]:
        return grid(self._locator, regions, self._specs, self._options.conditions, self._info.agent)

    def _all_units_run(self, job: Job) -> bool:
        units = self._graph.units
        return not any(
            (units[index].signature, job.spec.target) in self._unusable for index in job.region
        )

    def _segment_jobs(self, plans: Sequence[Plan]) -> list[Job]:
        """The segments that run on the device, each once."""
        specs = {spec.target: spec for spec in self._specs}
        jobs: dict[Key, Job] = {}
        for plan in plans:
            for segment in plan.segments:
                spec = specs.get(segment.target)
                if spec is None or segment.target.engine is Engine.HOST:
                    continue
                job = self._segment_job(tuple(sorted(segment.units)), spec)
                jobs.setdefault(job.key, job)
        # Alternatives of one region stand together here, too.
        return sorted(jobs.values(), key=lambda job: job.region)

    def _segment_job(self, region: Region, spec: TargetSpec) -> Job:
        kind = Kind.UNIT if len(region) == 1 else Kind.REGION
        conditions = self._options.conditions
        return Job.of(self._locator, region, kind, spec, conditions, self._info.agent)

    def _fit(self, named: Iterable[Region]) -> CostModel:
        with self._spending("plan"):
            wanted = {spec.target for spec in self._specs}
            rows = [row for row in self._rows.values() if row.target in wanted]
            return fit(self._graph, rows, regions=named, locator=self._locator)

    def _plans(self, costs: CostModel) -> tuple[Plan, ...]:
        """The plan, then its baselines."""
        with self._spending("plan"):
            return (solve(self._graph, costs), *baselines(self._graph, costs))

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

    def _measure(self, phase: str, jobs: Sequence[Job]) -> None:
        """Measures the jobs that are not in the store; each row is committed as it arrives."""
        pending = [job for job in jobs if job.key not in self._have]
        self._note_reused(jobs)
        done = 0
        self._report(phase, done, len(pending), "")

        def stored(job: Job) -> None:
            nonlocal done
            done += 1
            self._have.add(job.key)
            self._report(phase, done, len(pending), region_label(self._graph, job.region))

        for batch in self._batches(pending):
            self._measure_batch(batch, stored)
            self._converter.forget()

    def _note_reused(self, jobs: Iterable[Job]) -> None:
        self._reused.update(job.key for job in jobs if job.key in self._known)

    def _batches(self, jobs: Sequence[Job]) -> Iterator[list[Job]]:
        """Cuts jobs into requests, never between the alternatives of one region."""
        batch: list[Job] = []
        weight = 0
        for region, group in itertools.groupby(jobs, key=lambda job: job.region):
            alternatives = list(group)
            size = sum(self._graph.units[index].constant_bytes for index in region)
            full = len(batch) + len(alternatives) > MAX_ACTIONS or weight + size > MAX_WEIGHT_BYTES
            if batch and full:
                yield batch
                batch, weight = [], 0
            batch += alternatives
            weight += size
        if batch:
            yield batch

    def _measure_batch(self, batch: Sequence[Job], stored: Callable[[Job], None]) -> None:
        """Converts, sends and stores one request's jobs; calls ``stored`` after each."""
        with self._spending("convert"):
            prepared = self._prepare(batch)
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
                    with self._spending("store"):
                        self._keep(job, converted, event)
                    stored(job)

    def _prepare(self, batch: Sequence[Job]) -> _Prepared:
        timing = self._options.timing(self._info.simulated)
        prepared = _Prepared()
        request = prepared.request
        # Adding a model hashes its weights: once will do.
        models: dict[tuple[Region, int, bool], int] = {}
        groups = Groups()
        for number, job in enumerate(batch):
            converted = self._converter.convert(job.region, job.spec.level, job.halved)
            if isinstance(converted, str):
                simulated = self._info.simulated
                row = refused(job, self._graph, self._fingerprint, simulated, converted)
                prepared.refusals.append((job, row))
                continue
            key = (job.region, job.spec.level, job.halved)
            if key not in models:
                models[key] = request.add_region(converted)
            group = groups.number(job.region, sum(map(len, converted.buffers)))
            memory_kb = self._options.memory_kb
            request.add_action(
                make_action(number, job, converted, models[key], timing, group, memory_kb)
            )
            prepared.sent[number] = (job, converted)
        return prepared

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
            self._progress(Progress(phase, done, total, label))


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
