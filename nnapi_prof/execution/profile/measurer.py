"""Measure jobs and store their rows: convert, send, read answers, and record the time of each step.

Ctrl-C waits while rows are being stored.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import (
    Callable,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from nnapi_prof.convert.region import Region
from nnapi_prof.costs.contention import corun_rows
from nnapi_prof.costs.measurement import (
    DRIFTING,
    LOW,
    SILENT,
    UNREADABLE,
    UNWATCHED,
    Kind,
    Measurement,
    clocks_are_unreadable,
)
from nnapi_prof.costs.model.quantised import EightBits
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.selection import Selection
from nnapi_prof.device import description_of, device_fingerprint
from nnapi_prof.device.protocol import (
    SICK,
    SLOW,
    ActionResult,
    End,
    Event,
    Hello,
    Start,
    Wait,
)
from nnapi_prof.device.protocol.request import Request
from nnapi_prof.device.state import DeviceProbe, DeviceState
from nnapi_prof.errors import DeviceError
from nnapi_prof.execution.profile import ProfileOptions, Progress, ProgressCallback
from nnapi_prof.execution.profile.device_monitor import (
    AGAIN,
    DeviceMonitor,
    DriftMonitor,
    Window,
)
from nnapi_prof.execution.profile.jobs import (
    MAX_ACTIONS,
    WATCHED_ACTIONS,
    Job,
    batches,
    convert_job,
    measured,
    prepare,
    region_label,
)
from nnapi_prof.execution.profile.state import (
    DriverHealth,
    KnownRows,
    Waits,
    check_same,
    defer_sigint,
)
from nnapi_prof.execution.profile.unit_graph_cache import Converter, UnitGraphCache
from nnapi_prof.graph.plan import REFERENCE

if TYPE_CHECKING:
    from nnapi_prof.graph.program import Program


class Client(DeviceProbe, Protocol):
    """The device as profiling uses it; :class:`~nnapi_prof.device.agent.AgentClient` is one."""

    def run(self, request: Request) -> Generator[Event, None, None]: ...


class Measurer(KnownRows):
    """Measures jobs on one device, and stores their rows.

    With ``eight_bits``, ``unit_cache`` has its quantised graph.
    """

    def __init__(
        self,
        unit_cache: UnitGraphCache,
        client: Client,
        store: CostStore,
        options: ProfileOptions,
        progress: ProgressCallback | None,
        eight_bits: EightBits | None = None,
    ) -> None:
        self._client = client
        self._progress = progress
        self._last_report = ("", 0, 0)
        self._load_program = unit_cache.load
        self._converter = Converter(self._load)
        self.info = client.info()
        nnapi = self.info.nnapi
        # Without accelerators this would look like a device that has only a CPU.
        if nnapi.stalled or (nnapi.error and nnapi.library is not None):
            raise DeviceError(
                f"{nnapi.error}; NNAPI lists no accelerator while it does",
                "restart the phone, then run again",
            )
        self.fingerprint = device_fingerprint(self.info)
        super().__init__(unit_cache.units, store, self.fingerprint, options, eight_bits)
        self.n_measured = 0
        self.n_failed = 0
        self.n_refused = 0
        self.doubts: Counter[str] = Counter()
        """Flag -> rows of this run that have it."""
        self.spent_s: dict[str, float] = defaultdict(float)
        """Seconds by purpose; each second counts for one."""
        self._purpose = ""
        self.waits = Waits(self.spent_s, options.cooldown_s is None)
        drivers: dict[str | None, str] = {
            driver.name: driver.version
            for driver in self.info.nnapi.accelerators
            if driver.name != REFERENCE
        }
        self.waits.remember(self.read, drivers)
        self.later: Mapping[str, int] = {}
        """Phase -> measurements that are expected after it."""
        self._state = DeviceState()
        self._monitor = DeviceMonitor(client, options, self.results, self.spending, self.report)
        self.drivers = DriverHealth(self.doubts)
        self._unmeasured: list[Job] = []
        """Jobs of this request without a result, because their driver is sick."""
        self._last_of: dict[str | None, Measurement] = {}
        """Accelerator -> its last row that has no note of its driver's room."""
        self._lasting = False
        """The device kept drifting: nothing more is measured again for that reason."""
        self._drift: DriftMonitor[tuple[Job, Measurement]] = DriftMonitor(self._monitor.every_s)
        store.add_device(self.fingerprint, description_of(self.info), self.info.simulated)

    def measure(self, phase: str, jobs: Sequence[Job]) -> None:
        """Measures the jobs that are not in the store; each row is committed as it arrives."""
        pending = [job for job in jobs if job.key not in self.have]
        self.note_reused(jobs)
        for job in jobs:
            row = self.rows.get((job.key.signature, job.spec.target))
            if row is not None and row.key == job.key and job.key in self.have:
                self.drivers.note_gauge(job, row)
        done = 0
        if not jobs:
            return
        self.report(phase, done, len(pending), "")

        def stored(job: Job) -> None:
            nonlocal done
            done += 1
            self.have.add(job.key)
            self.report(phase, done, len(pending), region_label(self._graph, job.region))

        self._measure_all(pending, stored)

    def _measure_all(
        self, jobs: Sequence[Job], stored: Callable[[Job], None], again: int = 0
    ) -> None:
        """Measures jobs in requests, each after waiting for the device and a reference run if
        due."""
        most = WATCHED_ACTIONS if self._monitor.watched else MAX_ACTIONS
        for batch in batches(self._graph, jobs, most):
            if self._drift.open and self._drift.due:
                self._anchor(again)  # before waiting for a hot device
            self._state = self._monitor.before(self.waits)
            if self._monitor.every_s and again != self._drift.again:
                self._anchor(again)
            self._measure_batch(batch, stored)
            self._monitor.after()
            self._converter.forget()

    def settle(self) -> bool:
        """Ends the open window, and repeats measurements made while the device drifted. Returns
        whether there were any."""
        if not self._drift.open:
            return False
        before = self.n_measured
        self._anchor(0)
        return self.n_measured > before

    def _anchor(self, again: int) -> None:
        """Runs the reference, which ends a window. Marks windows that drift, and repeats their
        measurements."""
        anchor = self._monitor.anchor()
        self._drift.add(anchor, again)
        if self._drift.low is None:
            own = self._options.conditions
            earlier = Selection((self.fingerprint,), kinds=(Kind.ANCHOR,), conditions=own)
            self._drift.note_earlier(self._store.select(earlier))
        self._store.add(*self._monitor.rows(anchor, self.fingerprint))
        for window, drift in list(self._drift.drifting()):
            self._again(window, drift)

    def _again(self, window: Window[tuple[Job, Measurement]], drift: float) -> None:
        with self.spending("store"):
            self._store.mark_drift((row for _, row in window.items), round(100 * drift))
        self._lasting |= window.again >= AGAIN
        if self._lasting:
            self.doubts[DRIFTING] += len(window.items)
            return
        self._monitor.rest(self._drift.settled, self.waits)
        jobs = [job for job, _ in window.items]
        self.have.difference_update(job.key for job in jobs)
        phase, done = f"again after a drift of {drift:.0%}", 0
        self.report(phase, done, len(jobs), "")

        def stored(job: Job) -> None:
            nonlocal done
            done += 1
            self.have.add(job.key)
            self.report(phase, done, len(jobs), region_label(self._graph, job.region))

        self._measure_all(jobs, stored, window.again + 1)
        self._anchor(0)

    def _measure_batch(self, batch: Sequence[Job], stored: Callable[[Job], None]) -> None:
        """Converts, sends and stores one request's jobs, except those that need a sick driver;
        calls ``stored`` after each."""
        asked = {self._stored_key(job): job for job in batch if not self.drivers.stop(job)}
        with self.spending("convert"):
            prepared = prepare(
                [replace(self._formed(job), key=key) for key, job in asked.items()],
                self._graph,
                self._converter,
                {unit: self._options.timing(self.info.simulated, unit) for unit in (True, False)},
                self._options.memory_kb,
                self.fingerprint,
                self.info.simulated,
                self.waits.patience(self.info.simulated),
                [self._formed(job) for job in self.drivers.gauges(asked.values())],
            )
        with self.spending("store"):
            self._add(*((asked[job.key], row) for job, row in prepared.refusals))
        for job, _ in prepared.refusals:
            self.n_refused += 1
            stored(asked[job.key])
        if not prepared.sent:
            return
        with self.spending("convert"):
            request = prepared.request.request()
        held: list[tuple[Job, Measurement]] = []
        for result in self.results(request):
            if result.action in prepared.sent:
                job, converted = prepared.sent.pop(result.action)
                if result.driver in (SICK, SLOW):
                    self._unmeasured.append(asked[job.key])
                    continue
                simulated = self.info.simulated
                row = measured(job, self._graph, self.fingerprint, simulated, converted, result)
                row = self._store.stamp(replace(row, **self._state.columns))
                row = row.after(self.rows.get((job.key.signature, job.spec.target)))
                if self._state.throttled:  # Android reports heat that /sys does not show
                    hot = tuple(replace(each, throttled=True) for each in row.rounds)
                    row = replace(row, rounds=hot)
                if self.drivers.holds(row):
                    held.append((asked[job.key], row))
                else:
                    self._take(asked[job.key], row, stored)
        for name, target in self.drivers.unproven().items():
            self.drivers.note_small_models(name, self._monitor.try_small_models(target))
        for job, row in held:
            if not self.drivers.stop(job):
                self._take(job, row, stored)

    def _take(self, job: Job, row: Measurement, stored: Callable[[Job], None]) -> None:
        """Stores a measured row, and uses it for drift checks and gauges."""
        self._last_of[row.target.accelerator] = row
        self._drift.measured((job, row))
        self.keep([(job, row)])
        self.drivers.note_gauge(job, row)
        stored(job)

    def results(self, request: Request) -> Iterator[ActionResult]:
        """Yields the results of a request's actions, as they arrive."""
        # Closing stops the agent where something goes wrong here.
        with contextlib.closing(self._client.run(request)) as events:
            for event in self._waited_for(events):
                if isinstance(event, Wait):
                    words = f"no progress for {event.ms / 1000:.0f} s: does NNAPI still answer?"
                    self.report(*self._last_report, words)
                elif isinstance(event, Hello):
                    check_same(self.info.nnapi.accelerators, event.accelerators)
                elif isinstance(event, ActionResult):
                    yield event
                elif isinstance(event, End):
                    self.waits.note(event, self.info.simulated)
                    self._note_rooms()
                    self.drivers.ended(event, self._unmeasured, self.waits.too_slow())
                    self._unmeasured.clear()

    def _note_rooms(self) -> None:
        """Stores how many compilations drivers hold at once, for later profiles."""
        for name, room in self.waits.rooms().items():
            if name in self._last_of:
                with self.spending("store"):
                    self._store.mark_room(self._last_of.pop(name), room)

    def convert(self, job: Job) -> Region | str:
        """Returns a job's model, or the reason why it is refused."""
        return convert_job(self._converter, self._formed(job))

    def _waited_for(self, events: Iterator[Event]) -> Iterator[Event]:
        """Yields the events, and records the time of waiting for them."""
        began = False
        while True:
            with self.spending(self._purpose or ("measure" if began else "send")):
                event = next(events, None)
            if event is None:
                return
            began = began or isinstance(event, Start)
            yield event

    def keep(self, results: Sequence[tuple[Job, Measurement]]) -> None:
        """Stores the rows of some jobs at once; an interrupt waits until they are stored."""
        with self.spending("store"), defer_sigint():
            self._add(*results)
            for job, row in results:
                self.have.add(job.key)
                self.n_measured += 1
                if row.usable:
                    self.doubts.update(row.flags)
                    on_cpu = self._monitor.is_remote and row.target.accelerator is None
                    if on_cpu and clocks_are_unreadable(row.samples_ns, row.rounds):
                        self.doubts[UNREADABLE] += 1
                    self.doubts.update([LOW] if self._drift.low else [])
                    self.doubts.update(f"{SILENT} {name}" for name in self._monitor.silent)
                    if row.target.accelerator in self._monitor.unwatched:
                        self.doubts[f"{UNWATCHED} {row.target.accelerator}"] += 1
                else:
                    self.n_failed += 1

    def corun_rows(self) -> tuple[Measurement, ...]:
        """Returns the rows of units that ran side by side on the device, those of other models
        included."""
        return corun_rows(self._store, self.fingerprint, self._options.conditions)

    def report(self, phase: str, done: int, total: int, label: str) -> None:
        self._last_report = (phase, done, total)
        if self._progress is not None:
            self._progress(Progress(phase, done, total, label, self.later.get(phase, 0)))

    def _load(self) -> Program:
        with self.spending("load"):
            return self._load_program()

    @contextlib.contextmanager
    def spending(self, purpose: str) -> Iterator[None]:
        """Adds the time of a block to ``spent_s``, and takes it from the block around it."""
        outer, self._purpose = self._purpose, purpose
        began = time.monotonic()
        try:
            yield
        finally:
            took = time.monotonic() - began
            self._purpose = outer
            self.spent_s[purpose] += took
            if outer:
                self.spent_s[outer] -= took
