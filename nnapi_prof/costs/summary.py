"""Raw samples -> median and spread."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from nnapi_prof.errors import CostError

MAD_TO_SIGMA = 1.4826
"""1 / (normal quantile of 3/4): the median absolute deviation of normal data in sigmas."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Robust summary of latencies in ns: half the samples may be wild before the median moves."""

    median_ns: float
    spread_ns: float
    """:data:`MAD_TO_SIGMA` times the median absolute deviation: sigma, were the samples normal."""
    n: int
    minimum_ns: int

    @property
    def relative_spread(self) -> float:
        return self.spread_ns / self.median_ns if self.median_ns else 0.0


def summarise(samples_ns: Sequence[int]) -> Summary:
    """Summarises the samples of one measurement; raises CostError where there are none."""
    if not samples_ns:
        raise CostError("a measurement without samples has no latency: it did not run to its end")
    median = statistics.median(samples_ns)
    mad = statistics.median(abs(sample - median) for sample in samples_ns)
    return Summary(float(median), MAD_TO_SIGMA * mad, len(samples_ns), min(samples_ns))
