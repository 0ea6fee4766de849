"""Samples of one measurement: the rounds that they belong to, and what sums them up."""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nnapi_prof.errors import CostError

SAME_SPEED = 1.08
"""Rounds whose medians differ by no more may have had the same clock, as the agent has it."""
CLOCK = 0.97
"""A clock that is lower than another by less is the same, as the agent has it."""
ODD = 4.0
"""Clocks that differ by so much in rounds that took equally long are none."""
APART = 1.25
"""Rounds whose medians differ by more had another clock."""


@dataclass(frozen=True, slots=True)
class Round:
    """The recorded runs of one turn, and the device before and after them."""

    runs: int
    cpu_khz: tuple[int | None, int | None] = (None, None)
    """Before and after."""
    thermal_mc: tuple[int | None, int | None] = (None, None)
    """Before and after, thousandths of a degree Celsius."""
    throttled: bool | None = None
    """The device was held back by heat; None where it does not tell."""
    repeats: int | None = None
    """The round (its index) that this one was measured again for."""
    moved: bool | None = None
    """The clock moved, stood below its level, or the core changed; None where nobody looked."""
    cpus: str | None = None
    """Mask in hex of the cores that its runs were seen on."""

    @property
    def unsteady(self) -> bool:
        """Its samples count only where there are no others."""
        return bool(self.throttled or self.moved)

    def to_json(self) -> dict[str, Any]:
        return {
            "runs": self.runs,
            "cpu_khz": self.cpu_khz,
            "thermal_mc": self.thermal_mc,
            "throttled": self.throttled,
            "repeats": self.repeats,
            "moved": self.moved,
            "cpus": self.cpus,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Round:
        clocks, heat = tuple(data["cpu_khz"]), tuple(data["thermal_mc"])
        return cls(
            data["runs"],
            clocks,
            heat,
            data["throttled"],
            data["repeats"],
            data.get("moved"),
            data.get("cpus"),
        )


def quality_flags(rounds: Sequence[Round], warm: bool | None) -> tuple[str, ...]:
    """Lists warnings about a latency, for people."""
    hot = sum(bool(each.throttled) for each in rounds)
    flags = []
    if hot and hot == len(rounds):
        flags.append("throttled in every round")
    elif hot:
        flags.append(f"{hot} of {len(rounds)} rounds throttled and left out")
    if rounds and hot < len(rounds) and all(each.unsteady for each in rounds):
        flags.append("the clock or the core changed in every round")
    if warm is False:
        flags.append("not warm: warming up ended before the times were stable")
    return tuple(flags)


def medians(samples: Sequence[int], rounds: Sequence[Round]) -> tuple[float | None, ...]:
    """The median of each round's samples, None of one that is unsteady or empty; one median of
    all where the samples are not as many as the rounds say, or nothing was told of rounds."""
    if sum(each.runs for each in rounds) != len(samples):
        return (statistics.median(samples),) if samples else ()
    values: list[float | None] = []
    at = 0
    for each in rounds:
        own = samples[at : at + each.runs]
        values.append(statistics.median(own) if own and not each.unsteady else None)
        at += each.runs
    return tuple(values)


def clocks_are_unreadable(samples: Sequence[int], rounds: Sequence[Round]) -> bool:
    """Whether somebody looked at the clock of some rounds, and it told nothing, or anything but
    their speed: it was another by far in rounds that did not move, or the same in rounds of
    different speeds."""
    looked = [each for each in rounds if each.moved is not None]
    clocks = [khz for each in looked for khz in each.cpu_khz if khz is not None]
    if not looked or not clocks:
        return bool(looked)
    steady = [khz for each in looked if not each.moved for khz in each.cpu_khz if khz is not None]
    if steady and max(steady) > ODD * min(steady):
        return True
    alike = [replace(each, moved=False, throttled=False) for each in rounds]
    times = [ns for ns in medians(samples, alike) if ns is not None]
    is_constant = min(clocks) >= CLOCK * max(clocks) and len({each.cpus for each in looked}) == 1
    return is_constant and bool(times) and max(times) > APART * min(times)


def log_ratios(first: Sequence[float | None], second: Sequence[float | None]) -> tuple[float, ...]:
    """ln(second / first) of the rounds that both have: they took turns, so that what slowed one
    slowed the other."""
    pairs = zip(first, second, strict=False)
    return tuple(math.log(b / a) for a, b in pairs if a and b and a > 0 and b > 0)


def steady(samples: Sequence[int], rounds: Sequence[Round]) -> tuple[int, ...]:
    """The samples of rounds that were neither throttled nor had a clock that moved. Where there are
    none, those of the fastest of the rounds that were not throttled, and of those that may have had
    the same clock: what two clocks took is nowhere averaged. Where every round was throttled, as
    under a sustained load, all samples: the slow clock is the one that was asked for then.

    Samples stand in the order of the rounds. Where they are not as many as the rounds say (a fault
    in the middle of one), nothing is left out.
    """
    if sum(each.runs for each in rounds) != len(samples):
        return tuple(samples)
    own: list[Sequence[int]] = []
    at = 0
    for each in rounds:
        own.append(samples[at : at + each.runs])
        at += each.runs
    pairs = list(zip(rounds, own, strict=True))
    calm = [runs for each, runs in pairs if runs and not each.unsteady]
    if not calm:
        cool = [runs for each, runs in pairs if runs and not each.throttled]
        most = SAME_SPEED * min((statistics.median(runs) for runs in cool), default=0.0)
        calm = [runs for runs in cool if statistics.median(runs) <= most] or own
    return tuple(itertools.chain.from_iterable(calm))


def p95(samples: Sequence[int]) -> float:
    """Return the 95th percentile of at least one sample; between two of them by the line."""
    ordered = sorted(samples)
    place = 0.95 * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


MAD_TO_SIGMA = 1.4826
"""1 / (normal quantile of 3/4): the median absolute deviation of normal data in sigmas."""

MEDIAN_TO_MEAN = 1.2533
"""sqrt(pi / 2): how much wider a median of normal samples spreads than their mean."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Robust summary of latencies in ns: half the samples may be wild before the median moves."""

    median_ns: float
    spread_ns: float
    """:data:`MAD_TO_SIGMA` times the median absolute deviation: sigma, were the samples normal."""
    n: int
    minimum_ns: int
    n_left_out: int = 0
    """Samples of throttled rounds, which take no part."""
    p95_ns: float = math.nan
    """What 95 % of the samples keep to."""

    @property
    def sigma_of_median_ns(self) -> float:
        """Standard error of the median, were the samples normal and independent."""
        return MEDIAN_TO_MEAN * self.spread_ns / math.sqrt(self.n)

    @property
    def relative_spread(self) -> float:
        return self.spread_ns / self.median_ns if self.median_ns else 0.0


@functools.lru_cache(maxsize=1 << 14)
def _summarise(samples_ns: tuple[int, ...], rounds: tuple[Round, ...]) -> Summary:
    cool = steady(samples_ns, rounds)
    median = statistics.median(cool)
    mad = statistics.median(abs(sample - median) for sample in cool)
    left_out = len(samples_ns) - len(cool)
    return Summary(float(median), MAD_TO_SIGMA * mad, len(cool), min(cool), left_out, p95(cool))


def summarise(samples_ns: Sequence[int], rounds: Sequence[Round] = ()) -> Summary:
    """Summarises the samples of one measurement; raises CostError where there are none.

    Those of throttled ``rounds`` are left out where there are others.
    """
    if not samples_ns:
        raise CostError("a measurement without samples has no latency: it did not run to its end")
    return _summarise(tuple(samples_ns), tuple(rounds))
