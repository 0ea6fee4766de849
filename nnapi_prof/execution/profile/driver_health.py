"""Knows which drivers are sick, by which jobs that is asked, and what is open meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.device.protocol.results import SICK, End
from nnapi_prof.execution.profile.jobs import Job
from nnapi_prof.graph.plan import AUTO

OPEN = "left open, because a driver fails what it ran before (restart the phone, then run again):"
"""The flag, before the accelerator's name, of what was not measured for that."""


class DriverHealth:
    """The health of the drivers in one profile. What is left open is counted in ``doubts``."""

    def __init__(self, doubts: Counter[str]) -> None:
        self._doubts = doubts
        self._sick: set[str] = set()
        self._gauges: dict[str, tuple[float, Job]] = {}

    def note_gauge(self, job: Job, row: Measurement) -> None:
        """Remembers a job that ran well; the shortest of an accelerator's is its gauge."""
        name = row.target.accelerator
        if not row.usable or name is None or name == AUTO:
            return
        if name not in self._gauges or row.latency_ns < self._gauges[name][0]:
            self._gauges[name] = (row.latency_ns, job)

    def gauges(self, jobs: Iterable[Job]) -> list[Job]:
        """The gauges of the accelerators that jobs need: NNAPI's choice needs all."""
        names = {job.spec.target.accelerator for job in jobs}
        return [job for name, (_, job) in self._gauges.items() if name in names or AUTO in names]

    def stop(self, job: Job) -> bool:
        """Whether a job needs a driver that is sick; it is counted as open then."""
        name = job.spec.target.accelerator
        needed = [sick for sick in self._sick if name in (sick, AUTO)]
        self._doubts.update(f"{OPEN} {sick}" for sick in needed)
        return bool(needed)

    def ended(self, end: End, unmeasured: Iterable[Job]) -> None:
        """Learns at the end of a request which drivers are sick, and what they left open."""
        self._sick |= {
            each.accelerator for each in end.drivers if each.state == SICK and each.accelerator
        }
        for job in unmeasured:
            self.stop(job)
