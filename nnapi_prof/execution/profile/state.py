"""Keep the state of a profile: the known rows of its cost table, and the health of its drivers.

From the table it has the last rows, the keys that need not be measured again, and the cheapest
forms of products of activations. Of drivers it has whether they are ill, and the waits for them:
waits for a hot device are limited, and so is the time lost with a driver that dies or hangs.
"""

from __future__ import annotations

import signal
import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType

from nnapi_prof.costs.measurement import FAILURES, Key, Measurement, Status
from nnapi_prof.costs.model.forms import (
    MARK,
    Forms,
    chosen_forms,
    place_of,
    region_signature_in,
    rows_in_forms,
    unit_forms,
)
from nnapi_prof.costs.model.quantised import EightBits
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.rows import utc_now
from nnapi_prof.device.protocol import SICK, SLOW, Accelerator, DriverFacts, End
from nnapi_prof.device.protocol.request import Patience
from nnapi_prof.errors import DeviceError
from nnapi_prof.execution.profile import ProfileOptions
from nnapi_prof.execution.profile.jobs import Job
from nnapi_prof.graph.plan import AUTO, Target
from nnapi_prof.graph.unit import UnitGraph

SHARE_OF_MEASURING = 0.1
"""Largest share of the measuring time so far that waits take, unless the user set the longest
wait."""
FIRST_ROOM = 4
"""Number of compilations at once that a driver is given first, as in the agent."""
LEAST_LOST_S, LOST_SHARE = 60.0, 0.5
"""Longest waiting for one driver that dies or hangs: so many seconds, or this share of the
measuring time so far if that is more."""
SHORTEST_S = 5.0
"""Shortest wait for a phone that is too hot: it does not cool down earlier."""


class Waits:
    """The waits of one profile. ``spent_s`` is the time spent by purpose, "measure" among them; it
    is ``bounded`` unless the user set the longest wait."""

    def __init__(self, spent_s: Mapping[str, float], bounded: bool) -> None:
        self._spent_s, self._bounded = spent_s, bounded
        self._seen_khz: tuple[int | None, ...] = ()
        self._drivers: dict[str | None, DriverFacts] = {}
        self.waited_s = 0.0
        self._agent_waited_s = 0.0
        """Seconds of "measure" in which the agent waited for the device."""
        self.fruitless = False
        """Whether a wait was in vain; there is no further one."""
        self.lost_s: dict[str, float] = defaultdict(float)
        """Accelerator -> seconds of waiting for its driver, which died or hung."""
        self.simulated_s = 0.0
        """Seconds of measuring by the clock of a simulated phone."""

    def remember(self, rows: Iterable[Measurement], versions: Mapping[str | None, str]) -> None:
        """Takes over what earlier profiles learnt of drivers that still have these versions: the
        memory that reached them, and their room. ``rows`` are sorted, the oldest first."""
        for row in rows:
            name = row.target.accelerator
            if name in versions and row.driver_version == versions[name]:
                earlier = self._drivers.get(name, DriverFacts(name, FIRST_ROOM, None))
                room = row.room if row.room and 0 < row.room < FIRST_ROOM else earlier.room
                memory = row.memory if row.usable else earlier.memory
                self._drivers[name] = DriverFacts(name, room, memory or earlier.memory)

    def left_s(self, most: float) -> float:
        """Returns how many seconds a wait may take now, ``most`` at the most."""
        if self.fruitless:
            return 0.0
        if not self._bounded:
            return most
        measured_s = self._spent_s.get("measure", 0.0) - self._agent_waited_s
        left = SHARE_OF_MEASURING * measured_s - self.waited_s
        return min(left, most) if left >= SHORTEST_S else 0.0

    def too_slow(self) -> set[str]:
        """Returns the accelerators whose drivers cost too much time."""
        lost_s = self._agent_waited_s + sum(self.lost_s.values())
        measured_s = self._spent_s.get("measure", 0.0) - lost_s
        most_s = max(LEAST_LOST_S, LOST_SHARE * measured_s)
        return {name for name, lost_s in self.lost_s.items() if lost_s > most_s}

    def rooms(self) -> dict[str, int]:
        """Returns how many compilations drivers hold at once, if fewer than are tried first."""
        return {
            name: facts.room
            for name, facts in self._drivers.items()
            if name is not None and facts.room < FIRST_ROOM
        }

    def patience(self, simulated: bool) -> Patience:
        """Returns the patience for the next request. Simulated waits cost nobody's time: only one
        that was in vain ends them."""
        drivers = tuple(d for d in self._drivers.values() if d.memory or d.room < FIRST_ROOM)
        if self.fruitless or not (simulated or not self._bounded):
            return Patience(round(1000 * self.left_s(3600.0)), self._seen_khz, drivers)
        return Patience(None, self._seen_khz, drivers)

    def rested(self, seconds: float, brought: bool) -> None:
        """Adds a rest of the device; ``brought`` is whether it was as fast as before after it."""
        self.waited_s += seconds
        self.fruitless |= not brought

    def note(self, end: End, simulated: bool) -> None:
        """Takes over the facts that the end of a request has."""
        self.fruitless |= end.fruitless
        waited_s = 0.0 if simulated else end.waited_ms / 1000
        self.waited_s += waited_s
        self._agent_waited_s += waited_s
        self._seen_khz = end.allowed_khz or self._seen_khz
        self._drivers |= {each.accelerator: each for each in end.drivers}
        self.simulated_s += end.simulated_ms / 1000
        for each in end.drivers:
            self.lost_s[each.accelerator or AUTO] += each.lost_ms / 1000


OPEN = "left open, because a driver fails what it ran before (restart the phone, then run again):"
NEVER = "left open, because a driver runs no small model either (restart, then run again):"
HANGS = "left open, because its driver died or hung for too long (run again to go on):"
"""The flags of what was not measured for these reasons; the accelerator's name follows."""


def check_same(before: Sequence[Accelerator], now: Sequence[Accelerator] | None) -> None:
    """Raises DeviceError where the accelerators are not those that a profile began with: its rows
    have their versions, and NNAPI's choice depends on them."""
    if now is None:
        return
    old, new = ({each.name: each.version for each in side} for side in (before, now))
    words = [
        f"{name} is {'gone' if name not in new else f'version {new[name]}'} now (it was {version})"
        for name, version in old.items()
        if new.get(name) != version
    ]
    words += [f"there is an accelerator {name} now" for name in new if name not in old]
    if words:
        raise DeviceError(
            f"the phone's accelerators changed while it was measured: {'; '.join(words)}",
            "profile again: what was measured so far stands",
        )


class DriverHealth:
    """The health of the drivers in one profile. Jobs left open are counted in ``doubts``.

    Failures and refusals of a driver that ran nothing yet are held until the end of the request; so
    are then results of NNAPI's own choice, which may be the CPU. If the driver ran nothing else by
    then, small models show whether it is at fault: it is if it runs none of them.
    """

    def __init__(self, doubts: Counter[str]) -> None:
        self._doubts = doubts
        self._ill: dict[str, str] = {}
        """Accelerators on which nothing more is measured, and the flag that says why."""
        self._proven: set[str] = set()
        """Accelerators that ran a small model: they do not support what they refuse."""
        self._gauges: dict[str, tuple[float, Job]] = {}
        self._failing: dict[str, Target] = {}
        """Accelerators whose rows are held, and one of the targets of each."""

    def note_gauge(self, job: Job, row: Measurement) -> None:
        """Remembers a job that ran well; the fastest of an accelerator is its gauge."""
        name = row.target.accelerator
        if not row.usable or name is None or name == AUTO:
            return
        if name not in self._gauges or row.latency_ns < self._gauges[name][0]:
            self._gauges[name] = (row.latency_ns, job)

    def holds(self, row: Measurement) -> bool:
        """Returns whether a row is held until the request is over and its driver was checked."""
        name = row.target.accelerator
        if name == AUTO:
            return bool(self._failing)
        refused = row.status is Status.REFUSED and name not in self._proven
        if name is None or name in self._gauges or not (refused or row.status in FAILURES):
            return False
        self._failing.setdefault(name, row.target)
        return True

    def unproven(self) -> dict[str, Target]:
        """Returns the accelerators whose rows are held and that ran nothing; holds nothing more."""
        asked = {name: to for name, to in self._failing.items() if name not in self._gauges}
        self._failing.clear()
        return asked

    def note_small_models(self, name: str, fared: Collection[Status]) -> None:
        """Records how the small models ran on an accelerator; without any, nothing changes."""
        if Status.OK in fared:
            self._proven.add(name)
        elif fared:
            self._ill[name] = NEVER

    def gauges(self, jobs: Iterable[Job]) -> list[Job]:
        """Returns the gauges of the accelerators that jobs need: NNAPI's choice needs all."""
        names = {job.spec.target.accelerator for job in jobs}
        return [job for name, (_, job) in self._gauges.items() if name in names or AUTO in names]

    def stop(self, job: Job) -> bool:
        """Returns whether a job needs a driver that is ill, and then counts it as left open."""
        name = job.spec.target.accelerator
        needed = [f"{flag} {ill}" for ill, flag in self._ill.items() if name in (ill, AUTO)]
        self._doubts.update(needed)
        return bool(needed)

    def ended(self, end: End, unmeasured: Iterable[Job], too_slow: Collection[str]) -> None:
        """Records at the end of a request which drivers are ill, and the jobs left open."""
        states = {each.accelerator or AUTO: each.state for each in end.drivers}
        states |= dict.fromkeys(too_slow, SLOW)
        flags = {SICK: OPEN, SLOW: HANGS}
        for name, state in states.items():
            if state in flags:
                self._ill.setdefault(name, flags[state])
        for job in unmeasured:
            self.stop(job)


@contextmanager
def defer_sigint() -> Iterator[None]:
    """Runs a block to its end before a Ctrl-C during it raises KeyboardInterrupt.

    For short blocks. Only Python's main thread gets interrupts: this does nothing in other threads,
    nor where SIGINT is ignored or handled in another way.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    came = False

    def note(_: int, __: FrameType | None) -> None:
        nonlocal came
        came = True

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if came:
        raise KeyboardInterrupt


class KnownRows:
    """The rows of one device in the store under a profile's conditions.

    With ``eight_bits`` the graph is its quantised one, and jobs, keys and rows are in terms of
    ``eight_bits.canonical_graph``; those in the store are in terms of the graph itself.
    """

    def __init__(
        self,
        graph: UnitGraph,
        store: CostStore,
        fingerprint: str,
        options: ProfileOptions,
        eight_bits: EightBits | None,
    ) -> None:
        self._graph = graph
        self._eight_bits = eight_bits
        self._store = store
        self._options = options
        rows = store.measurements(fingerprint, conditions=options.conditions)
        if eight_bits is not None:
            rows = eight_bits.shared_rows(rows)
        self.read = tuple(rows)
        """Rows of earlier profiles, the oldest first."""
        self.rows: dict[tuple[str, Target], Measurement] = {
            (row.signature, row.target): row for row in rows
        }
        """The last row of each region and target."""
        self.have: set[Key] = set()
        """Keys that need not be measured any more."""
        if not options.fresh:
            shared = eight_bits is not None
            own = (row.key for row in rows if row.conclusive(utc_now()))
            self.have = set(own) if shared else store.have(fingerprint)
        self._before = frozenset(self.have)
        self.forms: Forms = {}
        """Forms of products of activations, where they were chosen (:meth:`choose_forms`), ..."""
        self._chosen: set[str] = set()
        """... and the places where they were."""
        self.reused: set[Key] = set()
        """Keys that were asked for, and known before this run."""

    def note_reused(self, jobs: Iterable[Job]) -> None:
        self.reused.update(job.key for job in jobs if job.key in self._before)

    def _stored_key(self, job: Job) -> Key:
        """Returns the key of a job's row in the store."""
        if self._eight_bits is not None:
            return job.key._replace(signature=self._eight_bits.matcher.signature(job.region))
        if job.forms is not None:
            return job.key
        forms, plain = self._formed(job).forms or (), job.key.signature
        signature = region_signature_in(self._graph, forms, job.region, plain)
        return job.key._replace(signature=signature)

    def _formed(self, job: Job) -> Job:
        """Returns the job with the chosen forms of its products on its target."""
        if job.forms is not None or self._eight_bits is not None:
            return job
        return replace(job, forms=unit_forms(self.forms, job.region, job.spec.target))

    def choose_forms(self, places: Collection[str]) -> None:
        """Chooses the forms of products on these places (:func:`.place_of`) by the rows so far;
        from then on jobs, rows and keys without forms of their own have these."""
        rows = [row for row in self.rows.values() if place_of(row.target) in places]
        chosen = chosen_forms(self._graph, rows)
        self.forms = {**self.forms, **chosen}
        self._chosen |= set(places)
        before = set(self._before)
        for row, own in rows_in_forms(self._graph, rows, chosen):
            if own is row:
                continue
            if own is None:
                if MARK in row.signature:
                    continue  # in a form that was tried and not chosen
                self.rows.pop((row.signature, row.target))
                self.have.discard(row.key)
                continue
            self.rows[own.signature, own.target] = own
            for keys in (self.have, before):
                if row.key in keys:
                    keys.add(own.key)
        self._before = frozenset(before)

    def _add(self, *results: tuple[Job, Measurement]) -> None:
        self._store.add(*(row for _, row in results))
        for job, result in results:
            own = self._eight_bits
            row = result if own is None else own.shared(result, job.region)
            if own is None and job.forms is None and MARK in row.signature:
                members = tuple(self._graph.units[unit].signature for unit in job.region)
                row = replace(row, signature=job.key.signature, members=members)
            if job.forms is not None and place_of(row.target) in self._chosen:
                continue  # a trial that was repeated after the choice
            # As the last one again: readers of the store find it there, too.
            self.rows.pop((row.signature, row.target), None)
            self.rows[row.signature, row.target] = row
