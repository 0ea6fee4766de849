"""Predicts what work takes on a target that never ran it, from what the same target ran.

    ns = operation + max(moved bytes * ns_per_byte, multiply-accumulates * ns_per_mac[kind])

fitted to marginal costs, without invocation and transfer. What has no weights is priced by what it
moves, as on accelerators it is. A kind that was measured corrects the rest of its kind.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import nnls

from nnapi_prof.costs.estimate.work import WEIGHTED
from nnapi_prof.graph.unit import Work

FEWEST = 2
"""With fewer samples nothing is said."""
NOISE, NOISE_NS = 0.05, 500.0
"""Of a marginal cost: relative, and what is added."""
BANDWIDTH_SHARE, BANDWIDTH_DOUBT = 0.6, 0.5
"""Before samples of several sizes say more: of the least ns for each byte that anything took, bytes
are taken to be this share, give or take so much (assumed; the rest is for the operation itself)."""
DEARER = {
    "DEPTHWISE_CONV_2D": 3.0,
    "FULLY_CONNECTED": 3.0,
    "GROUPED_CONV_2D": 1.0,
    "TRANSPOSE_CONV_2D": 4.0,
}
"""Kind -> times a convolution's ns for each multiply-accumulate, where none of it was measured: of
the GPUs of ``costs/data`` between 2 and 4, 1 and 11, 0.9 and 1; the last is assumed."""
MOVING = 1.3
"""What takes at most so many times what its bytes take says nothing of multiply-accumulates: a
convolution to few channels, say, which would make all of its kind as slow for each."""
ERROR, NEW_ERROR = 0.1, 0.3
"""Relative errors of prices, at least: of kinds that were measured, and of others."""
MOST_FACTOR = 4.0
"""A kind's own factor is at most this, either way."""


@dataclass(frozen=True, slots=True)
class WorkPrices:
    """The prices of one target."""

    operation_ns: float
    ns_per_byte: float
    ns_per_mac: Mapping[str, float]
    """By :attr:`Work.rate`, of weighted kinds."""
    factors: Mapping[str, float]
    """By :attr:`Work.rate`: measured over what the rest says."""
    errors: tuple[float, float] = (ERROR, NEW_ERROR)
    """Relative, which nine of ten samples stay below: with their kind's factor, and without."""

    def error(self, work: Work) -> float:
        """Relative error of :meth:`ns` that nine of ten stay below."""
        return self.errors[work.rate not in self.factors]

    def ns(self, work: Work) -> float:
        """Marginal cost of a unit that does this."""
        return self.usual_ns(work) * self.factors.get(work.rate, 1.0)

    def usual_ns(self, work: Work) -> float:
        """The same without what is special of its kind."""
        computing = 0.0
        if work.kind in WEIGHTED and self.ns_per_mac:
            kind = _kind(work.rate)
            own = {rate: ns for rate, ns in self.ns_per_mac.items() if _kind(rate) == kind}
            rates = [ns / _dearer(rate) for rate, ns in (own or self.ns_per_mac).items()]
            usual = statistics.median(rates) * _dearer(work.rate)
            computing = work.macs * self.ns_per_mac.get(work.rate, usual)
        return self.operation_ns + max(work.moved * self.ns_per_byte, computing)


def _kind(rate: str) -> str:
    """``CONV_2D`` of ``CONV_2D 1x1/quant8``."""
    return rate.partition("/")[0].partition(" ")[0]


def _dearer(rate: str) -> float:
    return DEARER.get(_kind(rate), 1.0)


def fit_prices(samples: Sequence[tuple[Work, float]]) -> WorkPrices | None:
    """From works and their marginal costs in ns; None where there are too few of them."""
    samples = [(work, ns) for work, ns in samples if ns > 0 and work.moved > 0]
    if len(samples) < FEWEST:
        return None
    operation_ns, ns_per_byte = _light(samples)
    rates: dict[str, list[tuple[float, float]]] = defaultdict(list)
    weighted = [(work, ns) for work, ns in samples if work.kind in WEIGHTED and work.macs > 0]
    moving = [
        (work, ns)
        for work, ns in weighted
        if ns - operation_ns <= MOVING * work.moved * ns_per_byte
    ]
    if len(moving) == len(weighted):
        moving = []
    for work, ns in weighted:
        if (work, ns) not in moving:
            computing = max(ns - operation_ns, 0.1 * ns)
            rates[work.rate].append((computing / work.macs, work.macs))
    ns_per_mac = {rate: _weighted_median(own) for rate, own in rates.items()}
    prices = WorkPrices(operation_ns, ns_per_byte, ns_per_mac, {})
    ratios: dict[str, list[float]] = defaultdict(list)
    for work, ns in samples:
        if (work, ns) in moving:
            continue
        ratios[work.rate].append((ns + NOISE_NS) / (prices.usual_ns(work) + NOISE_NS))
    factors = {
        rate: min(max(statistics.median(own), 1 / MOST_FACTOR), MOST_FACTOR)
        for rate, own in ratios.items()
    }
    prices = WorkPrices(operation_ns, ns_per_byte, ns_per_mac, factors)
    off = [abs(math.log((ns + NOISE_NS) / (prices.ns(work) + NOISE_NS))) for work, ns in samples]
    kinds = [abs(math.log(factor)) for factor in factors.values()]
    errors = (max(ERROR, _most(off)), max(NEW_ERROR, _most(kinds)))
    return replace(prices, errors=errors)


def _most(logarithms: Sequence[float]) -> float:
    """Returns the relative error that nine of ten samples stay below."""
    return math.expm1(float(np.percentile(logarithms, 90))) if logarithms else 0.0


def _weighted_median(pairs: Sequence[tuple[float, float]]) -> float:
    """Returns the median of values with weights: large ones tell more of a rate than small ones."""
    ordered = sorted(pairs)
    whole, weight = sum(own for _, own in ordered), 0.0
    for value, own in ordered:
        weight += own
        if 2 * weight >= whole:
            return value
    raise ValueError("no values: a rate has at least one sample")


def _light(samples: Sequence[tuple[Work, float]]) -> tuple[float, float]:
    """ns of an operation and of a byte, from what has no weights; from all where nothing is so."""
    most = min(ns / work.moved for work, ns in samples)
    light = [(work, ns) for work, ns in samples if work.kind not in WEIGHTED]
    if not light:
        return 0.0, most
    rows = [[1.0, work.moved * most] for work, _ in light]
    right = [ns for _, ns in light]
    weights = [1 / (NOISE * ns + NOISE_NS) for ns in right]
    rows.append([0.0, 1.0])
    right.append(BANDWIDTH_SHARE)
    weights.append(1 / BANDWIDTH_DOUBT)
    scale = np.array(weights)
    solution, _ = nnls(np.array(rows) * scale[:, None], np.array(right) * scale)
    operation_ns, share = solution.tolist()
    return operation_ns, min(share, 1.0) * most
