"""Samples of one measurement: the rounds that they belong to, and what sums them up."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nnapi_prof.errors import CostError


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


def log_ratios(first: Sequence[float | None], second: Sequence[float | None]) -> tuple[float, ...]:
    """ln(second / first) of the rounds that both have: they took turns, so that what slowed one
    slowed the other."""
    pairs = zip(first, second, strict=False)
    return tuple(math.log(b / a) for a, b in pairs if a and b and a > 0 and b > 0)


def steady(samples: Sequence[int], rounds: Sequence[Round]) -> tuple[int, ...]:
    """The samples of rounds that were neither throttled nor had a clock that moved; where there are
    none, of those that were not throttled; else all of them.

    Samples stand in the order of the rounds. Where they are not as many as the rounds say (a fault
    in the middle of one), nothing is left out.
    """
    if sum(each.runs for each in rounds) != len(samples):
        return tuple(samples)
    calm: list[int] = []
    cool: list[int] = []
    at = 0
    for each in rounds:
        own = samples[at : at + each.runs]
        calm += () if each.unsteady else own
        cool += () if each.throttled else own
        at += each.runs
    return tuple(calm or cool or samples)


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
