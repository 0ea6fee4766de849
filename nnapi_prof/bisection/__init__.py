"""Find the operation whose results differ, why, and what to do.

:class:`Halving` halves a model until only the faulty unit is left. It identifies units by number
and asks a probe for the error of a region. A region is a run of units in topological order, which
makes it convex, and the probe feeds it reference inputs, so that errors do not pass from one region
to the next.

:mod:`.probe` runs regions on the device with reference inputs, :mod:`.deviation` compares values
with their references, :mod:`.locate` combines the two, :mod:`.diagnosis` determines the likely kind
of fault, :mod:`.reproducer` writes the smallest case that shows it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

Region = tuple[int, ...]


class FaultKind(enum.Enum):
    """The likely kind of a fault, judged by its values."""

    DOES_NOT_RUN = "does not run"
    RACE = "race"
    """Two executions with the same inputs differ."""
    STATE = "state"
    """The second execution of a compilation differs from the first."""
    NOT_FINITE = "not finite"
    """NaN or infinity where the reference is finite."""
    SATURATION = "saturation"
    """Values are clamped at a limit that the reference passes."""
    LAYOUT = "layout"
    """The right values are in the wrong places."""
    SCALE = "scale"
    """Values are multiples of the right ones, or all off by the same amount."""
    PADDING = "padding"
    """Only values at the borders of images are wrong, or images moved by one row or column."""
    CHANNELS = "channels"
    """Only values of some channels are wrong."""
    PRECISION = "precision"
    """The error is no larger than float16 rounding explains."""
    FUSION = "fusion"
    """Several units differ together, none alone."""
    KERNEL = "kernel"
    """Any other fault."""


FIRST_REPEATS, LAST_REPEATS = 2, 8
"""Executions of a region: usually, and to confirm a difference that may come and go."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of probing a region. ``ratio`` is its error as a multiple of the allowed error."""

    ratio: float
    refused: bool = False
    """The target refuses the region, so that nothing is known about its units."""
    parts: tuple[Region, ...] = ()
    """Runs of a refused region's units that the target accepts one by one."""

    @property
    def differs(self) -> bool:
        return not self.refused and self.ratio > 1.0


Probe = Callable[[Sequence[Region], int], Sequence[Verdict]]
"""Function of regions and the number of executions of each that returns the worst verdict of each,
from one run on the device."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The smallest region that still differs: one unit, or several that only differ together."""

    region: Region
    verdict: Verdict


class Halving:
    """A search over the regions of one target. ``runs`` counts the requests to the device.

    ``known`` holds verdicts of regions that were already executed :data:`FIRST_REPEATS` times.
    """

    def __init__(self, probe: Probe, known: Mapping[Region, Verdict] | None = None) -> None:
        self._ask = probe
        self._verdicts = {(region, FIRST_REPEATS): each for region, each in (known or {}).items()}
        self.runs = 0

    def search(self, regions: Sequence[Region]) -> Iterator[Finding]:
        """Yield the differing units of some regions, in topological order.

        The first finding takes at most ``log2(units) + 4`` runs where one unit is at fault. Stop
        iterating there if you need only the first.
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
        """Yield the units of some regions that differ when they run alone. Takes one run.

        Later units may hide a fault: a mean does not depend on the order of its inputs.
        """
        units = [(unit,) for region in regions for unit in region]
        for unit, verdict in zip(units, self._probe(units), strict=True):
            if verdict.differs:
                yield Finding(unit, verdict)

    def _inside(self, region: Region, verdict: Verdict) -> Iterator[Finding]:
        """Yield the smallest differing parts of a region that differs."""
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

        Either the fault comes and goes, which more executions of the halves show, or it needs
        neighbours, like a wrong fused kernel: then the region is shrunk from both ends.
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
        if again[-1].differs:  # else seen once in ten executions and not reproducible
            yield self._shrunk(region, verdict)

    def _shrunk(self, region: Region, verdict: Verdict) -> Finding:
        """Return a part of a region that stops differing when either end is cut.

        Each run tries several cuts at both ends and continues with the shortest differing part.
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
    """Return the first and the second half of a region; the first is never the larger one."""
    middle = len(region) // 2
    return region[:middle], region[middle:]
