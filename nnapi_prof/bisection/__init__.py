"""Find the operation whose results differ, why, and what to do.

:func:`halves` halves a model until the unit that computes something else is alone. It knows units
by their numbers and asks a probe how far a region is off. A region is a run of units in topological
order, so that it is convex, and the probe gives it reference inputs: an error of one region is
never the next one's.

:mod:`.probe` runs regions on the device with reference inputs, :mod:`.deviation` says how far is
too far, :mod:`.locate` puts these together, :mod:`.diagnosis` tells what kind of fault it looks
like, :mod:`.reproducer` writes the smallest case that shows it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

Region = tuple[int, ...]


class FaultKind(enum.Enum):
    """The likely kind of a fault, by what its values look like."""

    DOES_NOT_RUN = "does not run"
    RACE = "race"
    """Two executions with the same inputs differ."""
    STATE = "state"
    """The second execution of a compilation differs from the first."""
    NOT_FINITE = "not finite"
    """NaN or infinity where the reference is finite."""
    SATURATION = "saturation"
    """Values end at a limit that the reference passes."""
    LAYOUT = "layout"
    """The right values at other places."""
    SCALE = "scale"
    """Multiples of the right values, or all off by the same."""
    PADDING = "padding"
    """Only values at the borders of images are off, or images moved by one row or column."""
    CHANNELS = "channels"
    """Only values of some channels are off."""
    PRECISION = "precision"
    """No further off than float16 rounding explains."""
    FUSION = "fusion"
    """Several units differ together, none alone."""
    KERNEL = "kernel"
    """Something else."""


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


Probe = Callable[[Sequence[Region], int], Sequence[Verdict]]
"""Regions and number of executions of each -> the worst of each, in one run on the device."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The smallest region that still differs: one unit, or several that only differ together."""

    region: Region
    verdict: Verdict


class Halving:
    """A search over the regions of one target. ``runs`` counts the requests to the device.

    ``known`` are verdicts of regions that were executed before, :data:`FIRST_REPEATS` times.
    """

    def __init__(self, probe: Probe, known: Mapping[Region, Verdict] | None = None) -> None:
        self._ask = probe
        self._verdicts = {(region, FIRST_REPEATS): each for region, each in (known or {}).items()}
        self.runs = 0

    def search(self, regions: Sequence[Region]) -> Iterator[Finding]:
        """Yield the differing units of some regions, in topological order.

        The first finding takes at most ``log2(units) + 4`` runs where one unit is at fault.
        Whoever wants the first alone stops there.
        """
        taken = [region for region in regions if region]
        verdicts = self._probe(taken)
        parts = [part for verdict in verdicts for part in verdict.parts]
        searched = [*zip(taken, verdicts, strict=True)]
        if parts:
            searched += zip(parts, self._probe(parts), strict=True)
        for region, verdict in sorted(searched, key=lambda each: each[0]):
            if verdict.differs:
                yield from self._inside(region, verdict)

    def alone(self, regions: Sequence[Region]) -> Iterator[Finding]:
        """Yield the units of some regions that differ alone, whatever comes behind them.

        What follows may hide a fault: a mean does not tell in which order it read. One run.
        """
        units = [(unit,) for region in regions for unit in region]
        for unit, verdict in zip(units, self._probe(units), strict=True):
            if verdict.differs:
                yield Finding(unit, verdict)

    def _inside(self, region: Region, verdict: Verdict) -> Iterator[Finding]:
        """Yield what differs in a region that does."""
        if len(region) == 1:
            yield Finding(region, verdict)
            return
        n_findings = 0
        for finding in self.search(halves(region)):
            n_findings += 1
            yield finding
        if n_findings:
            return
        for finding in self.alone([region]):  # each half may hide what the whole shows
            n_findings += 1
            yield finding
        if not n_findings:
            yield from self._together(region, verdict)

    def _together(self, region: Region, verdict: Verdict) -> Iterator[Finding]:
        """Yield the smallest part of a region that differs though neither half does.

        Either a fault comes and goes, which more executions of the halves show, or it needs
        neighbours, as a wrong fused kernel does: then the region is shrunk from both ends.
        """
        while True:
            again = self._probe((*halves(region), region), LAST_REPEATS)
            smaller = next(
                (h for h, v in zip(halves(region), again, strict=False) if v.differs), ()
            )
            if not smaller:
                break
            region = smaller
            if len(region) == 1:
                yield Finding(region, self._probe((region,), LAST_REPEATS)[0])
                return
        if again[-1].differs:  # else it was seen once in ten executions and cannot be shown
            yield self._shrunk(region, verdict)

    def _shrunk(self, region: Region, verdict: Verdict) -> Finding:
        """Return a part of a region from which neither end can be taken.

        A run tries several cuts at both ends and goes on with the shortest part that differs.
        """
        while True:
            n = len(region)
            spread = sorted({0, 1, n // 8, n // 4, n // 2, 3 * n // 4})
            parts = [region[a : n - b] for a in spread for b in spread if 0 < a + b < n]
            tried = zip(parts, self._probe(parts), strict=True)
            differing = [(len(part), part, again) for part, again in tried if again.differs]
            if not differing:
                return Finding(region, verdict)
            _, region, verdict = min(differing, key=lambda each: each[:2])

    def _probe(self, regions: Sequence[Region], repeats: int = FIRST_REPEATS) -> list[Verdict]:
        new = [region for region in regions if (region, repeats) not in self._verdicts]
        if new:
            self.runs += 1
            for region, verdict in zip(new, self._ask(new, repeats), strict=True):
                self._verdicts[region, repeats] = verdict
        return [self._verdicts[region, repeats] for region in regions]


def halves(region: Region) -> tuple[Region, Region]:
    """Return the first and the second half of a region; the first is the smaller one."""
    middle = len(region) // 2
    return region[:middle], region[middle:]
