"""Halving a model until the unit that computes something else is alone.

The search knows units by their numbers and asks a probe how far a region is off. A region is a run
of units in topological order, so that it is convex, and the probe gives it reference inputs: an
error of one region is never the next one's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

Region = tuple[int, ...]

FIRST_REPEATS, LAST_REPEATS = 2, 8
"""Executions of a region: usually, and where a difference was seen once and then no more."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One probe of a region. ``ratio`` is its error as a multiple of what is allowed there."""

    ratio: float
    refused: bool = False
    """The target does not take the region, so that nothing is known of its units."""
    parts: tuple[Region, ...] = ()
    """Of a refused region: the runs of its units that the target takes, each unit alone."""

    @property
    def differs(self) -> bool:
        return not self.refused and self.ratio > 1.0


Probe = Callable[[Region, int], Verdict]
"""Region and number of executions -> the worst of them."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The smallest region that still differs: one unit, or several that only differ together."""

    region: Region
    verdict: Verdict


class Halving:
    """A search over the regions of one target. ``probes`` counts what was asked."""

    def __init__(self, probe: Probe) -> None:
        self._ask = probe
        self._verdicts: dict[tuple[Region, int], Verdict] = {}

    @property
    def probes(self) -> int:
        return len(self._verdicts)

    def search(self, regions: Sequence[Region]) -> Iterator[Finding]:
        """Yield the differing units of some regions, in topological order as far as they reach.

        The first finding takes at most ``2 log2(units) + 4`` probes where one unit is at fault, a
        region holds all units and the target takes them all. Whoever wants the first alone stops
        there.
        """
        for region in regions:
            if region:
                yield from self._search(region)

    def _search(self, region: Region) -> Iterator[Finding]:
        verdict = self._probe(region)
        if verdict.refused:
            yield from self.search(verdict.parts)
            return
        if not verdict.differs:
            return
        yield from self._inside(region, verdict)

    def _inside(self, region: Region, verdict: Verdict) -> Iterator[Finding]:
        """Yield what differs in a region that does."""
        if len(region) == 1:
            yield Finding(region, verdict)
            return
        n_found = 0
        for half in halves(region):
            for finding in self._search(half):
                n_found += 1
                yield finding
        if not n_found:
            yield from self._together(region, verdict)

    def _together(self, region: Region, verdict: Verdict) -> Iterator[Finding]:
        """Yield the smallest part of a region that differs though neither half does.

        Either a fault comes and goes, which more executions of the halves show, or it needs
        neighbours, as a wrong fused kernel does: then the region is shrunk from both ends.
        """
        for half in halves(region):
            again = self._probe(half, LAST_REPEATS)
            if again.differs:
                yield from self._flaky(half, again)
                return
        if not self._probe(region, LAST_REPEATS).differs:
            return  # seen once in ten executions: nothing that could be shown again
        yield self._shrunk(region, verdict)

    def _flaky(self, region: Region, verdict: Verdict) -> Iterator[Finding]:
        """Yield the part of a region that differs only now and then."""
        while len(region) > 1:
            for half in halves(region):
                again = self._probe(half, LAST_REPEATS)
                if again.differs:
                    region, verdict = half, again
                    break
            else:
                break
        yield Finding(region, verdict)

    def _shrunk(self, region: Region, verdict: Verdict) -> Finding:
        """Return a part of a region from which neither end can be taken."""
        for side in (0, 1):
            step = len(region) // 2
            while step and len(region) > 1:
                smaller = region[step:] if side == 0 else region[:-step]
                again = self._probe(smaller) if smaller else Verdict(0.0)
                if again.differs:
                    region, verdict = smaller, again
                    step = min(step, len(region) // 2)
                else:
                    step //= 2
        return Finding(region, verdict)

    def _probe(self, region: Region, repeats: int = FIRST_REPEATS) -> Verdict:
        key = (region, repeats)
        if key not in self._verdicts:
            self._verdicts[key] = self._ask(region, repeats)
        return self._verdicts[key]


def halves(region: Region) -> tuple[Region, Region]:
    """Return the first and the second half of a region; the first is the smaller one."""
    middle = len(region) // 2
    return region[:middle], region[middle:]
