"""Knows which drivers are sick, by which jobs that is asked, and what is open meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from nnapi_prof.costs.measurement import FAILURES, Measurement, Status
from nnapi_prof.device.protocol.results import SICK, Accelerator, End
from nnapi_prof.errors import DeviceError
from nnapi_prof.execution.profile.jobs import Job
from nnapi_prof.graph.plan import AUTO, Target

OPEN = "left open, because a driver fails what it ran before (restart the phone, then run again):"
NEVER = "left open, because a driver fails even a small model (restart the phone, then run again):"
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

    What fails on a driver on which nothing ran before waits for the end of its request, and so does
    then what NNAPI chose, which may be the CPU for that. Where nothing else ran on the driver by
    then, a small model says which of the two is at fault."""

    def __init__(self, doubts: Counter[str]) -> None:
        self._doubts = doubts
        self._sick: set[str] = set()
        self._never: set[str] = set()
        """Sick ones, on which nothing ever ran."""
        self._gauges: dict[str, tuple[float, Job]] = {}
        self._failing: dict[str, Target] = {}
        """Accelerators of which failures are held, and one of their targets."""

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
        if name is None or name in self._gauges or row.status not in FAILURES:
            return False
        self._failing.setdefault(name, row.target)
        return True

    def unproven(self) -> dict[str, Target]:
        """Accelerators of which failures are held, and nothing ran by now; holds nothing more."""
        asked = {name: to for name, to in self._failing.items() if name not in self._gauges}
        self._failing.clear()
        return asked

    def note_reference(self, name: str, status: Status | None) -> None:
        """Learns how a small model fared on an accelerator; one that the driver refuses, or that
        nobody ran, tells nothing."""
        if status in FAILURES:
            self._sick.add(name)
            self._never.add(name)

    def gauges(self, jobs: Iterable[Job]) -> list[Job]:
        """The gauges of the accelerators that jobs need: NNAPI's choice needs all."""
        names = {job.spec.target.accelerator for job in jobs}
        return [job for name, (_, job) in self._gauges.items() if name in names or AUTO in names]

    def stop(self, job: Job) -> bool:
        """Whether a job needs a driver that is sick; it is counted as open then."""
        name = job.spec.target.accelerator
        needed = [sick for sick in self._sick if name in (sick, AUTO)]
        self._doubts.update(f"{NEVER if sick in self._never else OPEN} {sick}" for sick in needed)
        return bool(needed)

    def ended(self, end: End, unmeasured: Iterable[Job]) -> None:
        """Learns at the end of a request which drivers are sick, and what they left open."""
        self._sick |= {
            each.accelerator for each in end.drivers if each.state == SICK and each.accelerator
        }
        for job in unmeasured:
            self.stop(job)
