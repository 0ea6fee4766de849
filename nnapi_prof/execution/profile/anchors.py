"""One small reference model, run again and again: whether a device is as fast as it was.

The reference is the same for all models and devices, so that its rows tell of drift over days, too.
A window lies between two runs of it. A window drifts where the reference took longer at either end,
beyond noise, than when it was fastest in this profile: everything that was measured in it may have.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from nnapi_prof.costs.diff import DiffVerdict, ratio_interval, verdict_of
from nnapi_prof.graph.plan import Target

USUAL_S = 120.0
"""Between two anchors on a phone: governors and heat act within a minute or two."""
DRIFT = 0.05
"""The reference took longer by so much: profiles minutes apart differ by 1 to 4 %
(benchmarks/bench_repeat.py)."""
AGAIN = 2
"""Times that what was measured in a drifting window is measured again, at most."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Anchor:
    """Times of the reference on each target that runs it, in ns."""

    samples_ns: Mapping[Target, tuple[int, ...]]

    def slower_than(self, other: Anchor) -> float:
        """How much longer the reference took than in another, by the target where that is most;
        0 where it is not beyond noise and :data:`DRIFT`."""
        worst = 0.0
        for target, mine in self.samples_ns.items():
            theirs = other.samples_ns.get(target, ())
            interval = ratio_interval(theirs, mine) if mine and theirs else None
            if interval is None:
                continue
            ratio = statistics.median(mine) / max(statistics.median(theirs), 1.0)
            if verdict_of(ratio, interval, DRIFT) is DiffVerdict.SLOWER:
                worst = max(worst, ratio - 1)
        return worst


@dataclass
class Window(Generic[T]):
    """The measurements between two anchors."""

    before: Anchor
    after: Anchor | None = None
    items: list[T] = field(default_factory=list)
    again: int = 0
    """Times that its items had been measured before."""


class DriftMonitor(Generic[T]):
    """The anchors of a profile, and what was measured between them."""

    def __init__(self, every_s: float) -> None:
        self.every_s = every_s
        self._last = 0.0
        self._anchors: list[Anchor] = []
        self._windows: list[Window[T]] = []

    @property
    def due(self) -> bool:
        """Whether it is time for the next."""
        return time.monotonic() - self._last >= self.every_s

    @property
    def again(self) -> int | None:
        """How often what is measured now was measured before; None without a window."""
        return self._windows[-1].again if self._windows else None

    @property
    def open(self) -> bool:
        """Whether something was measured since the last one."""
        return bool(self._windows and self._windows[-1].items)

    def add(self, anchor: Anchor, again: int = 0) -> None:
        """Ends a window and begins another, of what was measured ``again`` times before."""
        self._last = time.monotonic()
        if self._windows:
            self._windows[-1].after = anchor
        self._anchors.append(anchor)
        self._windows.append(Window(anchor, again=again))

    def settled(self, anchor: Anchor) -> bool:
        """Whether the reference is as fast as it ever was."""
        return not any(anchor.slower_than(fast) for fast in self._anchors)

    def measured(self, item: T) -> None:
        """Something came in."""
        if self._windows:
            self._windows[-1].items.append(item)

    def drifting(self) -> Iterator[tuple[Window[T], float]]:
        """Takes out the windows that are over and drift, each with how much (0.1: 10 %)."""
        for window in list(self._windows[:-1]):
            ends = [each for each in (window.before, window.after) if each is not None]
            drift = max(end.slower_than(fast) for end in ends for fast in self._anchors)
            if drift and window.items:
                self._windows.remove(window)
                yield window, drift
