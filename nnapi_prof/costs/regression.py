"""Latencies of regions -> invocation overhead, transfer per byte, marginal cost of each unit.

One target at a time:

    latency = overhead + in_bytes * per_in_byte + out_bytes * per_out_byte + sum of unit costs

with every term at least zero. Rows are divided by their latency, so that errors count relative to
what was measured. The fit is Huber's M-estimate (P. J. Huber, "Robust Estimation of a Location
Parameter", Ann. Math. Stat. 35, 1964) by iteratively reweighted least squares with the usual
k = 1.345 sigma and sigma from the median absolute deviation (P. W. Holland and R. E. Welsch,
"Robust Regression Using Iteratively Reweighted Least-Squares", Comm. Stat. A6, 1977), each step a
non-negative least squares problem (C. L. Lawson and R. J. Hanson, "Solving Least Squares
Problems", 1974, chapter 23) as scipy solves it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import nnls

from nnapi_prof.costs.summary import MAD_TO_SIGMA

HUBER_K = 1.345
"""95 % efficiency on normal errors (Huber 1964)."""
MINIMUM_SIGMA = 1e-3
"""Errors below a thousandth are noise of the clock, never outliers."""
MAX_STEPS = 30
CONVERGED = 1e-6

UNIT_SHRINKAGE = 1e-3
"""Weight of "this unit costs nothing" against a data row's weight of 1.

It decides only what the data leave open. With units measured alone and no chains, overhead and
unit costs cannot be told apart; shrinking the unit costs gives their common floor, which is the
smallest units' latency, to the overhead. Where chains decide, its bias is below a thousandth.
"""
CPU_OVERHEAD_SHRINKAGE = 10 * UNIT_SHRINKAGE
"""On the CPU the same doubt goes the other way: a call into the engine costs next to nothing."""


@dataclass(frozen=True, slots=True)
class RegionSample:
    """The measured latency of one region on one target.

    ``members`` are the signatures of its units, one entry a unit; bytes are those of the values
    that enter and leave the region.
    """

    members: tuple[str, ...]
    signature: str
    target: str
    in_bytes: int
    out_bytes: int
    median_ns: float


@dataclass(frozen=True, slots=True)
class TargetFit:
    """What one target costs. ``residuals`` are (predicted - measured) / measured, one per row."""

    overhead_ns: float
    ns_per_in_byte: float
    ns_per_out_byte: float
    unit_ns: Mapping[str, float]
    residuals: tuple[float, ...] = field(repr=False)

    def predict(self, sample: RegionSample) -> float:
        """The sum for a region whose members are all known, in ns."""
        transfer = sample.in_bytes * self.ns_per_in_byte + sample.out_bytes * self.ns_per_out_byte
        return self.overhead_ns + transfer + sum(self.unit_ns[m] for m in sample.members)


def fit_target(samples: Sequence[RegionSample], *, on_cpu: bool) -> TargetFit:
    """Fits one target's samples (all of one target, each of positive latency).

    ``on_cpu`` fixes transfers at zero: the CPU engine reads and writes the values where they lie.
    Units that occur in no sample are absent from the result.
    """
    names = sorted({member for sample in samples for member in sample.members})
    column = {name: 3 + i for i, name in enumerate(names)}
    latency = np.array([sample.median_ns for sample in samples], dtype=float)
    design = np.zeros((len(samples), 3 + len(names)))
    for row, sample in enumerate(samples):
        design[row, :3] = (1, 0, 0) if on_cpu else (1, sample.in_bytes, sample.out_bytes)
        for member in sample.members:
            design[row, column[member]] += 1
    relative = design / latency[:, None]
    # Columns of unit length keep bytes and counts within one order of magnitude of each other.
    scale = np.sqrt((relative**2).sum(axis=0))
    scale[scale == 0] = 1.0
    prior = _prior(relative, names, on_cpu) / scale
    solution = _huber_nnls(relative / scale, prior) / scale
    residuals = relative @ solution - 1
    return TargetFit(
        overhead_ns=float(solution[0]),
        ns_per_in_byte=float(solution[1]),
        ns_per_out_byte=float(solution[2]),
        unit_ns={name: float(solution[column[name]]) for name in names},
        residuals=tuple(float(r) for r in residuals),
    )


def _prior(relative: np.ndarray, names: Sequence[str], on_cpu: bool) -> np.ndarray:
    """Rows that say "zero" to what the data leave open; see :data:`UNIT_SHRINKAGE`.

    A unit is weighed by the cheapest region that holds it. Rates are weighed over all rows as
    much as units are, and the two of them kept near each other: a chain shows only their sum,
    because what one unit writes the next one reads.
    """
    n_columns = relative.shape[1]
    typical = relative.max(axis=0)
    rows = [UNIT_SHRINKAGE * typical[i] * np.eye(n_columns)[i] for i in range(3, n_columns)]
    if on_cpu:
        weight = CPU_OVERHEAD_SHRINKAGE * np.sqrt((relative[:, 0] ** 2).sum())
        rows.append(weight * np.eye(n_columns)[0])
        return np.array(rows)
    size = np.sqrt((relative[:, 1:3] ** 2).sum(axis=0))
    rows.append(UNIT_SHRINKAGE * size[0] * np.eye(n_columns)[1])
    rows.append(UNIT_SHRINKAGE * size[1] * np.eye(n_columns)[2])
    rows.append(UNIT_SHRINKAGE * size.max() * (np.eye(n_columns)[1] - np.eye(n_columns)[2]))
    return np.array(rows)


def _huber_nnls(design: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Minimises Huber's loss of (design @ x - 1) plus |prior @ x|^2 over x >= 0."""
    target = np.concatenate([np.ones(len(design)), np.zeros(len(prior))])
    weights = np.ones(len(design))
    solution = np.zeros(design.shape[1])
    for _ in range(MAX_STEPS):
        root = np.sqrt(weights)
        system = np.vstack([design * root[:, None], prior])
        right = target.copy()
        right[: len(design)] *= root
        previous, (solution, _norm) = solution, nnls(system, right)
        error = np.abs(design @ solution - 1)
        sigma = max(MAD_TO_SIGMA * float(np.median(error)), MINIMUM_SIGMA)
        weights = np.minimum(1.0, HUBER_K * sigma / np.maximum(error, 1e-12))
        if np.abs(solution - previous).max() <= CONVERGED * max(np.abs(solution).max(), 1e-12):
            break
    return solution
