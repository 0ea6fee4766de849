"""Raw samples -> median and spread."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from nnapi_prof.costs.rounds import Round, steady
from nnapi_prof.errors import CostError

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

    @property
    def sigma_of_median_ns(self) -> float:
        """Standard error of the median, were the samples normal and independent."""
        return MEDIAN_TO_MEAN * self.spread_ns / math.sqrt(self.n)

    @property
    def relative_spread(self) -> float:
        return self.spread_ns / self.median_ns if self.median_ns else 0.0


@functools.lru_cache(maxsize=1 << 14)
def _summarise(samples_ns: tuple[int, ...], rounds: tuple[Round, ...]) -> Summary:
    kept = steady(samples_ns, rounds)
    median = statistics.median(kept)
    mad = statistics.median(abs(sample - median) for sample in kept)
    left_out = len(samples_ns) - len(kept)
    return Summary(float(median), MAD_TO_SIGMA * mad, len(kept), min(kept), left_out)


def summarise(samples_ns: Sequence[int], rounds: Sequence[Round] = ()) -> Summary:
    """Summarises the samples of one measurement; raises CostError where there are none.

    Those of throttled ``rounds`` are left out where there are others.
    """
    if not samples_ns:
        raise CostError("a measurement without samples has no latency: it did not run to its end")
    return _summarise(tuple(samples_ns), tuple(rounds))
