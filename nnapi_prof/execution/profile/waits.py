"""How long a profile may wait for a hot device, and what its requests learn of clocks and
drivers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.device.protocol.request import Patience
from nnapi_prof.device.protocol.results import DriverFacts, End

SHARE_OF_MEASURING = 0.1
"""Of the time that measuring took so far, waits take this much at most, unless the user said how
long to wait."""
FIRST_ROOM = 4
"""Compilations at once of a driver that was not asked for more, as the agent has it."""
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
