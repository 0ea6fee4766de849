"""Comparison of two sets of measurements: which latencies differ beyond noise."""

from __future__ import annotations

import enum
import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.costs.measurement import Measurement, Round

RESAMPLES = 1000
CONFIDENCE = 0.99
"""Level of an interval. Tables have hundreds of rows: at 95 %, one in 20 would be wrong."""
FEWEST_SAMPLES = 5
"""Fewer samples than this say next to nothing about the error of their median."""
_DRAWS_PER_ROUND = 40


class DiffVerdict(enum.Enum):
    """Verdict on one region on one target: the second side compared with the first."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "within noise"
    UNSURE = "too few runs"
    STATUS = "status changed"
    """One side has no latency, since it was refused, failed, crashed or timed out."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Comparison of one region on one target, measured under the same conditions on both sides."""

    first: Measurement
    second: Measurement
    verdict: DiffVerdict
    ratio: float | None = None
    """Median of the second divided by that of the first; above 1, the second is slower."""
    low: float | None = None
    """Ends (``low``, ``high``) of the ratio's interval at :data:`CONFIDENCE`."""
    high: float | None = None

    @property
    def changed(self) -> bool:
        return self.verdict in (DiffVerdict.SLOWER, DiffVerdict.FASTER, DiffVerdict.STATUS)


@dataclass(frozen=True, slots=True)
class CostDiff:
    """Comparison of the rows that two sides have in common."""

    differences: tuple[Difference, ...]
    """Changes of status first, then the largest changes either way; unchanged rows last."""
    only_first: int
    """Number of rows on this side only."""
    only_second: int
    same_row: int
    """Number of rows that are the same measurement on both sides."""

    @property
    def changed(self) -> tuple[Difference, ...]:
        return tuple(each for each in self.differences if each.changed)

    @property
    def median_ratio(self) -> float | None:
        """The median ratio of all rows with a latency on both sides."""
        ratios = [each.ratio for each in self.differences if each.ratio is not None]
        return statistics.median(ratios) if ratios else None


def compare(
    first: Iterable[Measurement],
    second: Iterable[Measurement],
    threshold: float = 0.0,
    together: bool = False,
) -> CostDiff:
    """Pairs rows with equal signature, target and conditions, and compares their medians.

    A latency changed where the interval of the ratio of medians excludes 1 and the ratio differs
    from 1 by at least ``threshold`` (0.02: 2 %). The interval comes from a bootstrap, which draws
    rounds and then runs within them, so that effects common to a round (heat, clock rates) count as
    noise. An effect that lasts for one whole measurement, but not for the other, cannot be told
    from a change. The same two sides give the same answer. With ``together``, intervals are so wide
    that all of them hold at once at :data:`CONFIDENCE`.
    """
    one, two = {_pair(m): m for m in first}, {_pair(m): m for m in second}
    common = [key for key in one if key in two]
    pairs = [(one[key], two[key]) for key in common if one[key] != two[key]]
    return CostDiff(
        differences=tuple(
            sorted(
                (_difference(*p, threshold, len(pairs) if together else 1) for p in pairs),
                key=_sort_key,
            )
        ),
        only_first=len(one) - len(common),
        only_second=len(two) - len(common),
        same_row=len(common) - len(pairs),
    )


def _pair(m: Measurement) -> tuple[object, ...]:
    return m.signature, m.target, m.conditions


def _sort_key(difference: Difference) -> tuple[object, ...]:
    size = abs(math.log(difference.ratio)) if difference.ratio else 0.0
    is_status = difference.verdict is DiffVerdict.STATUS
    return (
        not is_status,
        not difference.changed,
        -size,
        difference.first.label,
        difference.first.target,
    )


def _difference(
    first: Measurement,
    second: Measurement,
    threshold: float,
    questions: int,
) -> Difference:
    if not (first.usable and second.usable):
        same = first.status is second.status
        return Difference(first, second, DiffVerdict.SAME if same else DiffVerdict.STATUS)
    latencies = first.summary.median_ns, second.summary.median_ns
    if min(latencies) <= 0:  # a clock too coarse for it
        return Difference(first, second, DiffVerdict.UNSURE)
    ratio = latencies[1] / latencies[0]
    if min(first.summary.n, second.summary.n) < FEWEST_SAMPLES:
        return Difference(first, second, DiffVerdict.UNSURE, ratio)
    low, high = _ratio_interval(_samples_by_round(first), _samples_by_round(second), questions)
    return Difference(first, second, verdict_of(ratio, (low, high), threshold), ratio, low, high)


def verdict_of(ratio: float, interval: tuple[float, float], threshold: float) -> DiffVerdict:
    """Judges a ratio of medians by its interval, ignoring differences below ``threshold``."""
    beyond = not interval[0] <= 1 <= interval[1] and abs(ratio - 1) >= threshold
    return (DiffVerdict.SLOWER if ratio > 1 else DiffVerdict.FASTER) if beyond else DiffVerdict.SAME


def ratio_interval(first: Sequence[int], second: Sequence[int]) -> tuple[float, float] | None:
    """Returns the interval, at :data:`CONFIDENCE`, of the second's median divided by the first's.

    This is for samples in ns without known rounds, as of plans that ran whole. Samples near in time
    are drawn together, so that a slow stretch counts as noise. Returns None where either side has
    fewer than :data:`FEWEST_SAMPLES`.
    """
    if min(len(first), len(second)) < FEWEST_SAMPLES:
        return None
    return _ratio_interval(_stretches(first), _stretches(second))


def _stretches(samples: Sequence[int]) -> list[Sequence[int]]:
    """Cuts samples into pieces; the number of pieces is about the number of samples in each."""
    size = math.isqrt(len(samples))
    if size < FEWEST_SAMPLES:
        return [samples]
    edges = np.linspace(0, len(samples), len(samples) // size + 1).astype(int)
    return [samples[a:b] for a, b in itertools.pairwise(edges)]


def _samples_by_round(m: Measurement) -> list[Sequence[int]]:
    return _groups(m.samples_ns, m.rounds)


def _ratio_interval(
    first: list[Sequence[int]],
    second: list[Sequence[int]],
    questions: int = 1,
) -> tuple[float, float]:
    """Returns the interval of the ratio of medians, from samples by rounds, widened so that
    ``questions`` such intervals hold together."""
    draws = np.log(_draws(second, 1)) - np.log(_draws(first, 0))
    if questions > 1:  # its ends are too far out to be quantiles of the draws
        z = statistics.NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / (2 * questions))
        middle, half = float(draws.mean()), z * float(draws.std())
        return math.exp(middle - half), math.exp(middle + half)
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = (float(x) for x in np.exp(np.percentile(draws, [tail, 100 - tail])))
    return low, high


def _draws(groups: list[Sequence[int]], seed: int) -> NDArray[np.float64]:
    """Returns the medians of :data:`RESAMPLES` draws from samples by rounds. [RESAMPLES]"""
    random = np.random.default_rng(seed)
    sizes = np.array([len(group) for group in groups])
    width = int(sizes.max())
    padded = np.zeros((len(groups), width))
    for row, group in zip(padded, groups, strict=True):
        row[: len(group)] = group
    n_draws = width if len(groups) == 1 else min(width, _DRAWS_PER_ROUND)
    chosen = random.integers(len(groups), size=(RESAMPLES, len(groups)))
    places = random.random((RESAMPLES, len(groups), n_draws)) * sizes[chosen][..., None]
    drawn = padded[chosen[..., None], places.astype(np.int64)]
    values: NDArray[np.float64] = np.median(drawn.reshape(RESAMPLES, -1), axis=1)
    return np.maximum(values, 1.0)  # a clock that stood still has no logarithm


def _groups(samples: Sequence[int], rounds: Sequence[Round]) -> list[Sequence[int]]:
    """Groups samples by rounds, without throttled rounds as in :func:`.measurement.steady`."""
    if sum(each.runs for each in rounds) != len(samples):
        return [samples]
    groups: list[tuple[Round, Sequence[int]]] = []
    at = 0
    for each in rounds:
        if each.runs:
            groups.append((each, samples[at : at + each.runs]))
        at += each.runs
    cool = [group for each, group in groups if not each.throttled]
    return cool or [group for _, group in groups]
