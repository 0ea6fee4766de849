"""Keep the state of a profile: what its cost table has, and the health of its drivers.

Of the table these are the last rows, what need not be measured again, and the forms in which
products of activations are cheapest. Of drivers it is whether they are ill, and how long they are
waited for: waits for a hot device have a limit, and so has what is lost with a driver that dies or
hangs.
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
"""Of the time that measuring took so far, waits take this much at most, unless the user said how
long to wait."""
FIRST_ROOM = 4
"""Compilations at once of a driver that was not asked for more, as the agent has it."""
LEAST_LOST_S, LOST_SHARE = 60.0, 0.5
"""Waiting for one driver that dies or hangs takes so many seconds at most, or this share of the
time that measuring took so far if that is more."""
SHORTEST_S = 5.0
"""A phone that is too hot is not cool any earlier."""


class Waits:
    """The waits of one profile. ``spent_s`` is the time spent by purpose, "measure" among them;
    ``bounded`` that nobody asked for more."""

    def __init__(self, spent_s: Mapping[str, float], bounded: bool) -> None:
        self._spent_s, self._bounded = spent_s, bounded
        self._seen_khz: tuple[int | None, ...] = ()
        self._drivers: dict[str | None, DriverFacts] = {}
        self.waited_s = 0.0
        self.fruitless = False
        """A wait brought nothing: there is no other."""
        self.lost_s: dict[str, float] = defaultdict(float)
        """Accelerator -> waiting for its driver, which died or hung."""
        self.simulated_s = 0.0
        """That measuring took by the clock of a simulated phone."""

    def remember(self, rows: Iterable[Measurement], versions: Mapping[str | None, str]) -> None:
        """Take what earlier profiles learnt of drivers, where their versions are still these: the
        memory that reached them, and their room; ``rows`` are the oldest first."""
        for row in rows:
            name = row.target.accelerator
            if name in versions and row.driver_version == versions[name]:
                earlier = self._drivers.get(name, DriverFacts(name, FIRST_ROOM, None))
                room = row.room if row.room and 0 < row.room < FIRST_ROOM else earlier.room
                memory = row.memory if row.usable else earlier.memory
                self._drivers[name] = DriverFacts(name, room, memory or earlier.memory)

    def left_s(self, most: float) -> float:
        """How long it may wait now, ``most`` at the most."""
        if self.fruitless:
            return 0.0
        if not self._bounded:
            return most
        measured_s = self._spent_s.get("measure", 0.0) - self.waited_s
        left = SHARE_OF_MEASURING * measured_s - self.waited_s
        return min(left, most) if left >= SHORTEST_S else 0.0

    def too_slow(self) -> set[str]:
        """Returns the accelerators with whose drivers too much time was lost."""
        measured_s = self._spent_s.get("measure", 0.0) - self.waited_s - sum(self.lost_s.values())
        most_s = max(LEAST_LOST_S, LOST_SHARE * measured_s)
        return {name for name, lost_s in self.lost_s.items() if lost_s > most_s}

    def rooms(self) -> dict[str, int]:
        """Returns how many compilations the drivers hold at once that hold fewer than are tried."""
        return {
            name: facts.room
            for name, facts in self._drivers.items()
            if name is not None and facts.room < FIRST_ROOM
        }

    def patience(self, simulated: bool) -> Patience:
        """Returns the patience for the next request. Simulated waits cost nobody's time: only one
        that brought nothing ends them."""
        drivers = tuple(d for d in self._drivers.values() if d.memory or d.room < FIRST_ROOM)
        if self.fruitless or not (simulated or not self._bounded):
            return Patience(round(1000 * self.left_s(3600.0)), self._seen_khz, drivers)
        return Patience(None, self._seen_khz, drivers)

    def rested(self, seconds: float, brought: bool) -> None:
        """The device had a rest, and was as fast as before after it, or not."""
        self.waited_s += seconds
        self.fruitless |= not brought

    def note(self, end: End, simulated: bool) -> None:
        """A request has ended."""
        self.fruitless |= end.fruitless
        self.waited_s += 0.0 if simulated else end.waited_ms / 1000
        self._seen_khz = end.allowed_khz or self._seen_khz
        self._drivers |= {each.accelerator: each for each in end.drivers}
        self.simulated_s += end.simulated_ms / 1000
        for each in end.drivers:
            self.lost_s[each.accelerator or AUTO] += each.lost_ms / 1000


OPEN = "left open, because a driver fails what it ran before (restart the phone, then run again):"
NEVER = "left open, because a driver runs no small model either (restart, then run again):"
HANGS = "left open, because its driver died or hung for too long (run again to go on):"
"""The flags, before the accelerator's name, of what was not measured for that."""


def check_same(before: Sequence[Accelerator], now: Sequence[Accelerator] | None) -> None:
    """Raise DeviceError where the accelerators are not those that a profile began with: its rows
    name their versions, and what NNAPI chooses from."""
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
    """The health of the drivers in one profile. What is left open is counted in ``doubts``.

    What a driver fails or refuses on which nothing ran before waits for the end of its request, and
    so does then what NNAPI chose, which may be the CPU for that. If nothing else ran on the driver
    by then, small models say whether it is at fault: it is if it runs none of them."""

    def __init__(self, doubts: Counter[str]) -> None:
        self._doubts = doubts
        self._ill: dict[str, str] = {}
        """Accelerators on which nothing is measured any more, and the flag that says why."""
        self._proven: set[str] = set()
        """Those that ran a small model: what they refuse they do not support."""
        self._gauges: dict[str, tuple[float, Job]] = {}
        self._failing: dict[str, Target] = {}
        """Accelerators of which rows are held, and one of their targets."""

    def note_gauge(self, job: Job, row: Measurement) -> None:
        """Remembers a job that ran well; the shortest of an accelerator's is its gauge."""
        name = row.target.accelerator
        if not row.usable or name is None or name == AUTO:
            return
        if name not in self._gauges or row.latency_ns < self._gauges[name][0]:
            self._gauges[name] = (row.latency_ns, job)

    def holds(self, row: Measurement) -> bool:
        """Whether a row is to wait until the request is over, and its driver asked."""
        name = row.target.accelerator
        if name == AUTO:
            return bool(self._failing)
        refused = row.status is Status.REFUSED and name not in self._proven
        if name is None or name in self._gauges or not (refused or row.status in FAILURES):
            return False
        self._failing.setdefault(name, row.target)
        return True

    def unproven(self) -> dict[str, Target]:
        """Accelerators of which rows are held, and nothing ran by now; holds nothing more."""
        asked = {name: to for name, to in self._failing.items() if name not in self._gauges}
        self._failing.clear()
        return asked

    def note_small_models(self, name: str, fared: Collection[Status]) -> None:
        """Learns how the small models fared on an accelerator; none tells nothing."""
        if Status.OK in fared:
            self._proven.add(name)
        elif fared:
            self._ill[name] = NEVER

    def gauges(self, jobs: Iterable[Job]) -> list[Job]:
        """The gauges of the accelerators that jobs need: NNAPI's choice needs all."""
        names = {job.spec.target.accelerator for job in jobs}
        return [job for name, (_, job) in self._gauges.items() if name in names or AUTO in names]

    def stop(self, job: Job) -> bool:
        """Whether a job needs a driver that is ill; it is counted as open then."""
        name = job.spec.target.accelerator
        needed = [f"{flag} {ill}" for ill, flag in self._ill.items() if name in (ill, AUTO)]
        self._doubts.update(needed)
        return bool(needed)

    def ended(self, end: End, unmeasured: Iterable[Job], too_slow: Collection[str]) -> None:
        """Learns at the end of a request which drivers are ill, and what they left open."""
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
    """Runs a block to its end before a Ctrl-C that comes meanwhile raises KeyboardInterrupt.

    For short blocks. Only Python's main thread gets interrupts; in others this does nothing, nor
    where somebody handles or ignores SIGINT in another way.
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
        """Those of earlier profiles, the oldest first."""
        self.rows: dict[tuple[str, Target], Measurement] = {
            (row.signature, row.target): row for row in rows
        }
        """The last row of each region and target."""
        self.have: set[Key] = set()
        """What need not be measured any more."""
        if not options.fresh:
            shared = eight_bits is not None
            own = (row.key for row in rows if row.conclusive(utc_now()))
            self.have = set(own) if shared else store.have(fingerprint)
        self._before = frozenset(self.have)
        self.forms: Forms = {}
        """Of products of activations, where they were chosen (:meth:`choose_forms`), ..."""
        self._chosen: set[str] = set()
        """... and where that was."""
        self.reused: set[Key] = set()
        """Asked for, and known before this run."""

    def note_reused(self, jobs: Iterable[Job]) -> None:
        self.reused.update(job.key for job in jobs if job.key in self._before)

    def _stored_key(self, job: Job) -> Key:
        """The key of a job's row in the store."""
        if self._eight_bits is not None:
            return job.key._replace(signature=self._eight_bits.matcher.signature(job.region))
        if job.forms is not None:
            return job.key
        forms, plain = self._formed(job).forms or (), job.key.signature
        signature = region_signature_in(self._graph, forms, job.region, plain)
        return job.key._replace(signature=signature)

    def _formed(self, job: Job) -> Job:
        """The job with the forms of its products that are chosen on its target."""
        if job.forms is not None or self._eight_bits is not None:
            return job
        return replace(job, forms=unit_forms(self.forms, job.region, job.spec.target))

    def choose_forms(self, places: Collection[str]) -> None:
        """Chooses the forms of products on these places (:func:`.place_of`) by what was measured
        of them so far; from then on jobs, rows and keys without forms of their own are in these."""
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
                    continue  # in a form that was tried and not taken
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
            # Again as the last: readers of the store find it there, too.
            self.rows.pop((row.signature, row.target), None)
            self.rows[row.signature, row.target] = row
