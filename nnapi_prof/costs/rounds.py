"""Rounds of a measurement: which of its samples were taken while the device was hot."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


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

    def to_json(self) -> dict[str, Any]:
        return {
            "runs": self.runs,
            "cpu_khz": self.cpu_khz,
            "thermal_mc": self.thermal_mc,
            "throttled": self.throttled,
            "repeats": self.repeats,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Round:
        pairs = {name: tuple(data[name]) for name in ("cpu_khz", "thermal_mc")}
        return cls(data["runs"], **pairs, throttled=data["throttled"], repeats=data["repeats"])


def doubts(rounds: Sequence[Round], warm: bool | None) -> tuple[str, ...]:
    """What a reader should know before trusting a latency, for people."""
    hot = sum(bool(each.throttled) for each in rounds)
    found = []
    if hot and hot == len(rounds):
        found.append("throttled in every round")
    elif hot:
        found.append(f"{hot} of {len(rounds)} rounds throttled and left out")
    if warm is False:
        found.append("not warm: warming up ended before the times were stable")
    return tuple(found)


def medians(samples: Sequence[int], rounds: Sequence[Round]) -> tuple[float | None, ...]:
    """The median of each round's samples, None of one that was throttled or is empty; one median of
    all where the samples are not as many as the rounds say, or nothing was told of rounds."""
    if sum(each.runs for each in rounds) != len(samples):
        return (statistics.median(samples),) if samples else ()
    found: list[float | None] = []
    at = 0
    for each in rounds:
        own = samples[at : at + each.runs]
        found.append(statistics.median(own) if own and not each.throttled else None)
        at += each.runs
    return tuple(found)


def log_ratios(first: Sequence[float | None], second: Sequence[float | None]) -> tuple[float, ...]:
    """ln(second / first) of the rounds that both have: they took turns, so that what slowed one
    slowed the other."""
    pairs = zip(first, second, strict=False)
    return tuple(math.log(b / a) for a, b in pairs if a and b and a > 0 and b > 0)


def steady(samples: Sequence[int], rounds: Sequence[Round]) -> tuple[int, ...]:
    """The samples of rounds that were not throttled; all of them where there are no others.

    Samples stand in the order of the rounds. Where they are not as many as the rounds say (a fault
    in the middle of one), nothing is left out.
    """
    if sum(each.runs for each in rounds) != len(samples):
        return tuple(samples)
    kept: list[int] = []
    at = 0
    for each in rounds:
        if not each.throttled:
            kept += samples[at : at + each.runs]
        at += each.runs
    return tuple(kept or samples)
