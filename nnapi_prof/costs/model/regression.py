"""Regression of regions' latencies: invocation overhead, transfer per byte, cost of each unit.

It is fitted for one target at a time:

    latency = overhead + in_bytes * per_in_byte + out_bytes * per_out_byte + sum of unit costs

with every term at least zero. Regions of several units also pay `cold_bytes * per_cold_byte`: a
unit that is timed alone finds its weights in the cache from the run before; within a network that
is larger than the cache it does not (on a desktop CPU, a network's units alone add up to a quarter
less than the network). Rows are divided by their latency, so that errors are relative to
measurements. The fit is Huber's M-estimate (P. J. Huber, "Robust Estimation of a Location
Parameter", Ann. Math. Stat. 35, 1964) by iteratively reweighted least squares with the usual
k = 1.345 sigma and sigma from the median absolute deviation (P. W. Holland and R. E. Welsch,
"Robust Regression Using Iteratively Reweighted Least-Squares", Comm. Stat. A6, 1977), each step a
non-negative least squares problem (C. L. Lawson and R. J. Hanson, "Solving Least Squares
Problems", 1974, chapter 23) as scipy solves it.

The accuracy of a term is its standard error (from the covariance of weighted least squares). The
accuracy of the sum for a region of several units comes from the errors of measured regions, each
predicted without itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nnapi_prof.costs.measurement import MAD_TO_SIGMA
from nnapi_prof.graph.plan import Engine, Target

HUBER_K = 1.345
"""95 % efficiency on normal errors (Huber 1964)."""
MINIMUM_SIGMA = 1e-3
"""Smallest sigma: errors below a thousandth are noise of the clock, never outliers."""
MAX_STEPS = 30
CONVERGED = 1e-6

UNIT_SHRINKAGE = 1e-3
"""Weight of "this unit costs nothing" against a data row's weight of 1.

It decides only where the data do not. With units measured alone and no chains, overhead and unit
costs cannot be separated; shrinking the unit costs assigns their common floor, which is the
smallest units' latency, to the overhead. Where chains decide, its bias is below a thousandth.
"""
COLD_SHRINKAGE = 10 * UNIT_SHRINKAGE
"""Weight of "cold bytes cost nothing": in doubt, a cost is the unit's own."""
CPU_OVERHEAD_SHRINKAGE = 10 * UNIT_SHRINKAGE
"""Weight of "a call costs nothing" on the CPU, where it does cost next to nothing."""

SINGLE_WEIGHT = 0.25
"""Weight of the squared error of a single unit, relative to a region of several. The sum is needed
for regions; a single unit has its own measurement."""
UNKNOWN_SPREAD = 0.3
"""Relative spread where no region of several units was measured: fusion by drivers, and cold
caches, change such sums by a quarter (assumed, from their effects on networks here)."""
LEAST_SPREAD = 3e-3
"""Least relative spread: a median of 30 runs that vary by 1 % is known to 0.2 %, and nothing is
known better than that."""
FEW_REGIONS = 4
"""Number of regions from which :data:`UNKNOWN_SPREAD` no longer counts."""
EXTRAPOLATION = 0.03
"""Relative spread added for each doubling of units beyond the longest measured region (assumed)."""
TAIL, TAIL_SIGMAS = 0.05, 1.645
"""Share of a normal distribution that lies more than ``TAIL_SIGMAS`` sigmas above its mean."""
TERMS = ("overhead", "in byte", "out byte", "cold byte")


@dataclass(frozen=True, slots=True)
class RegionSample:
    """Measured latency of one region on one target.

    ``members`` are the signatures of its units, one for each unit; bytes are those of the values
    that enter and leave the region.
    """

    members: tuple[str, ...]
    signature: str
    target: str
    in_bytes: int
    out_bytes: int
    median_ns: float
    cold_bytes: int = 0
    """Bytes of weights and outputs of its units, which pass through the cache."""
    weight: float = 1.0
    """Weight of its squared error; less than 1 for a sample that was inferred, not measured."""


@dataclass(frozen=True, slots=True)
class TargetFit:
    """Fitted costs of one target. ``residuals`` are (predicted - measured) / measured, one per
    row."""

    overhead_ns: float
    ns_per_in_byte: float
    ns_per_out_byte: float
    unit_ns: Mapping[str, float]
    residuals: tuple[float, ...] = field(repr=False)
    ns_per_cold_byte: float = 0.0
    """Price of :attr:`RegionSample.cold_bytes` of regions of several units."""
    errors: Mapping[str, float] = field(default_factory=dict, repr=False)
    """Signature of a unit, or name in :data:`TERMS` -> standard error in ns (or ns per byte)."""
    spread: float = UNKNOWN_SPREAD
    """Relative standard deviation of the sum for regions of several units."""
    gain: float = UNKNOWN_SPREAD
    """Relative standard deviation by which the sum is too high, where it is, weighted by units."""
    longest: int = 1
    """Largest number of units of a measured region."""
    n_regions: int = 0
    """Number of measured regions of several units."""

    def to_json(self, units: Sequence[str]) -> dict[str, Any]:
        """Returns the fit for :meth:`from_json`. Costs and errors of ``units`` (signatures) are in
        their order, with null where the fit has none."""
        return {
            "terms": [
                self.overhead_ns,
                self.ns_per_in_byte,
                self.ns_per_out_byte,
                self.ns_per_cold_byte,
            ],
            "term_errors": [self.errors[name] for name in TERMS],
            "unit_ns": [self.unit_ns.get(unit) for unit in units],
            "unit_errors": [self.errors.get(unit) for unit in units],
            "residuals": list(self.residuals),
            "spread": self.spread,
            "gain": self.gain,
            "longest": self.longest,
            "n_regions": self.n_regions,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], units: Sequence[str]) -> TargetFit:
        """Reads the output of :meth:`to_json`. Raises ValueError, KeyError or TypeError where
        ``data`` is something else."""
        overhead, per_in, per_out, per_cold = _finite_numbers(data["terms"], len(TERMS))
        errors = dict(zip(TERMS, _finite_numbers(data["term_errors"], len(TERMS)), strict=True))
        return cls(
            overhead_ns=overhead,
            ns_per_in_byte=per_in,
            ns_per_out_byte=per_out,
            unit_ns=_of_units(data["unit_ns"], units),
            residuals=_finite_numbers(data["residuals"], len(data["residuals"]), least=-1.0),
            ns_per_cold_byte=per_cold,
            errors=errors | _of_units(data["unit_errors"], units),
            spread=_finite_numbers([data["spread"]], 1)[0],
            gain=_finite_numbers([data["gain"]], 1)[0],
            longest=max(1, int(data["longest"])),
            n_regions=int(data["n_regions"]),
        )

    def predict(self, sample: RegionSample) -> float:
        """Returns the sum in ns for a region whose members are all known."""
        transfer = sample.in_bytes * self.ns_per_in_byte + sample.out_bytes * self.ns_per_out_byte
        cold = self.ns_per_cold_byte * sample.cold_bytes if len(sample.members) > 1 else 0.0
        return self.overhead_ns + transfer + cold + sum(self.unit_ns[m] for m in sample.members)

    def spread_of(self, n_units: int) -> float:
        """Returns the relative standard deviation of the sum for a region of ``n_units``: that of
        measured regions, plus :data:`EXTRAPOLATION` for each doubling beyond the longest."""
        return math.hypot(self.spread, self._beyond(n_units))

    def gain_of(self, n_units: int) -> float:
        """Returns the share by which plans of ``n_units`` may be cheaper; see :meth:`spread_of`."""
        return math.hypot(self.gain, self._beyond(n_units))

    def _beyond(self, n_units: int) -> float:
        return EXTRAPOLATION * max(0.0, math.log2(max(1, n_units) / self.longest))


def _finite_numbers(values: Any, count: int, *, least: float = 0.0) -> tuple[float, ...]:
    """Reads ``count`` finite numbers of at least ``least``; raises ValueError or TypeError for
    others."""
    numbers = tuple(map(float, values))
    if len(numbers) != count or not all(math.isfinite(n) and n >= least for n in numbers):
        raise ValueError(f"a fit has {count} numbers from {least} on here")
    return numbers


def _of_units(values: Any, units: Sequence[str]) -> dict[str, float]:
    """Returns signature -> number, for units that have one."""
    pairs = [(u, n) for u, n in zip(units, values, strict=True) if n is not None]
    return dict(
        zip([u for u, _ in pairs], _finite_numbers([n for _, n in pairs], len(pairs)), strict=True)
    )


FITS_VERSION = 1
"""Format version of :func:`fits_to_json`, raised whenever an older nnapi-prof would misread it."""


def fits_to_json(fits: Mapping[Target, TargetFit]) -> dict[str, Any]:
    """Returns the fits of one device as a bundle stores those that it was planned with."""
    units = sorted({unit for fitted in fits.values() for unit in fitted.unit_ns})
    targets = {target.key: fitted.to_json(units) for target, fitted in fits.items()}
    return {"version": FITS_VERSION, "units": units, "targets": targets}


def fits_from_json(data: Mapping[str, Any] | None) -> dict[Target, TargetFit] | None:
    """Reads the output of :func:`fits_to_json`; None for a later version's, and for None.

    Raises ValueError, KeyError, TypeError or AttributeError where ``data`` is something else.
    """
    if data is None or data["version"] != FITS_VERSION:
        return None
    units = [str(unit) for unit in data["units"]]
    return {
        Target.parse(key): TargetFit.from_json(fitted, units)
        for key, fitted in data["targets"].items()
    }


def fit_target(
    samples: Sequence[RegionSample], *, on_cpu: bool, converts: bool = False
) -> TargetFit:
    """Fits one target's samples (all of one target, each of positive latency).

    ``on_cpu`` fixes transfers at zero, since the CPU engine reads and writes values in place,
    unless it ``converts`` them. Units that occur in no sample are absent from the result.
    """
    names = sorted({member for sample in samples for member in sample.members})
    fixed = len(TERMS)
    column = {name: fixed + i for i, name in enumerate(names)}
    latency = np.array([sample.median_ns for sample in samples], dtype=float)
    several = np.array([len(sample.members) > 1 for sample in samples])
    design = np.zeros((len(samples), fixed + len(names)))
    for row, sample in enumerate(samples):
        moves = converts or not on_cpu
        design[row, :3] = (1, sample.in_bytes, sample.out_bytes) if moves else (1, 0, 0)
        design[row, 3] = sample.cold_bytes if several[row] else 0
        for member in sample.members:
            design[row, column[member]] += 1
    relative = design / latency[:, None]
    # Columns of unit length keep bytes and counts within one order of magnitude of each other.
    scale = np.sqrt((relative**2).sum(axis=0))
    scale[scale == 0] = 1.0
    prior = _prior(relative, on_cpu) / scale
    own_weights = np.array([sample.weight for sample in samples])
    own_weights = own_weights * np.where(several, 1.0, SINGLE_WEIGHT)
    scaled, weights = _huber_nnls(relative / scale, prior, own_weights)
    solution = scaled / scale
    residuals = relative @ solution - 1
    covariance = _covariance(relative / scale, prior, weights, residuals)
    errors = np.sqrt(np.diag(covariance)) / scale
    measured = several & (np.array([sample.weight for sample in samples]) == 1)
    n_units = np.array([len(sample.members) for sample in samples])
    left_out = _without_itself(relative / scale, covariance, weights, residuals)
    return TargetFit(
        overhead_ns=float(solution[0]),
        ns_per_in_byte=float(solution[1]),
        ns_per_out_byte=float(solution[2]),
        unit_ns={name: float(solution[column[name]]) for name in names},
        residuals=tuple(float(r) for r in residuals),
        ns_per_cold_byte=float(solution[3]),
        errors=dict(zip((*TERMS, *names), map(float, errors), strict=True)),
        spread=_error_deviation(left_out[measured]),
        gain=_gain(left_out[measured], n_units[measured]),
        longest=max((len(s.members) for s in samples if s.weight == 1), default=1),
        n_regions=int(measured.sum()),
    )


def _variance(residuals: np.ndarray, weights: np.ndarray) -> float:
    """Returns the variance of one row of weight 1."""
    variance = float((weights * residuals**2).sum() / max(1.0, weights.sum()))
    return max(variance, MINIMUM_SIGMA**2)


def _covariance(
    design: np.ndarray, prior: np.ndarray, weights: np.ndarray, residuals: np.ndarray
) -> np.ndarray:
    """Returns the covariance of the terms from rows and priors, treating terms at zero as free."""
    normal = design.T @ (design * weights[:, None]) + prior.T @ prior
    ridge = 1e-12 * max(1.0, float(np.trace(normal))) * np.eye(len(normal))
    inverse: np.ndarray = np.linalg.inv(normal + ridge)
    return inverse * _variance(residuals, weights)


def _without_itself(
    design: np.ndarray, covariance: np.ndarray, weights: np.ndarray, residuals: np.ndarray
) -> np.ndarray:
    """Returns each row's error if predicted by the other rows: its residual over 1 - leverage."""
    leverage = ((design @ covariance) * design).sum(axis=1) * weights
    leverage = np.clip(leverage / _variance(residuals, weights), 0.0, 0.9)
    errors: np.ndarray = residuals / (1 - leverage)
    return errors


def _error_deviation(errors: np.ndarray) -> float:
    """Returns the relative standard deviation of regions' errors, shrunk by :func:`_drawn`.

    It is the larger of a robust and a tail estimate: where a driver joins two of a hundred pairs,
    these are not outliers, since other such pairs may not have been measured.
    """
    if not len(errors):
        return UNKNOWN_SPREAD
    robust = MAD_TO_SIGMA * float(np.median(np.abs(errors)))
    tail = float(np.quantile(np.abs(errors), 1 - 2 * TAIL)) / TAIL_SIGMAS
    return _drawn(max(robust, tail), len(errors))


def _gain(errors: np.ndarray, n_units: np.ndarray) -> float:
    """Returns the relative standard deviation of a normal distribution with the upper tail of
    ``errors``, which shows by how much sums are too high; regions are weighted by their units.

    Differences between pairs of units average out over many pairs, in one region as in a plan of
    pairs. Where caches determine costs, regions are far more expensive than the sum, but never far
    cheaper.
    """
    if not len(errors):
        return UNKNOWN_SPREAD
    order = np.argsort(-errors)
    reached = np.cumsum(n_units[order]) >= TAIL * n_units.sum()
    return _drawn(max(0.0, float(errors[order][reached.argmax()])) / TAIL_SIGMAS, len(errors))


def _drawn(spread: float, n_regions: int) -> float:
    """Shrinks a measured spread towards :data:`UNKNOWN_SPREAD` where there are few regions."""
    share = min(1.0, n_regions / FEW_REGIONS)
    return math.sqrt(share * max(spread, LEAST_SPREAD) ** 2 + (1 - share) * UNKNOWN_SPREAD**2)


def _prior(relative: np.ndarray, on_cpu: bool) -> np.ndarray:
    """Returns prior rows that shrink terms to zero; see :data:`UNIT_SHRINKAGE`.

    A unit is weighted by the cheapest region that contains it. Transfer rates are weighted over all
    rows as much as units are, and are kept near each other: a chain shows only the sum of both,
    because each unit reads what the one before writes.
    """
    n_columns = relative.shape[1]
    typical = relative.max(axis=0)
    rows = [UNIT_SHRINKAGE * typical[i] * np.eye(n_columns)[i] for i in range(4, n_columns)]
    rows.append(COLD_SHRINKAGE * np.sqrt((relative[:, 3] ** 2).sum()) * np.eye(n_columns)[3])
    if on_cpu:
        weight = CPU_OVERHEAD_SHRINKAGE * np.sqrt((relative[:, 0] ** 2).sum())
        rows.append(weight * np.eye(n_columns)[0])
    size = np.sqrt((relative[:, 1:3] ** 2).sum(axis=0))
    rows.append(UNIT_SHRINKAGE * size[0] * np.eye(n_columns)[1])
    rows.append(UNIT_SHRINKAGE * size[1] * np.eye(n_columns)[2])
    rows.append(UNIT_SHRINKAGE * size.max() * (np.eye(n_columns)[1] - np.eye(n_columns)[2]))
    return np.array(rows)


def _huber_nnls(
    design: np.ndarray, prior: np.ndarray, own_weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Minimises Huber's loss of (design @ x - 1), with rows weighted by ``own_weights``, plus
    |prior @ x|^2, over x >= 0. Returns x and the rows' final weights."""
    from scipy.optimize import nnls  # imported here, since reading a stored fit does not need it

    target = np.concatenate([np.ones(len(design)), np.zeros(len(prior))])
    weights = own_weights.copy()
    solution = np.zeros(design.shape[1])
    for _ in range(MAX_STEPS):
        root = np.sqrt(weights)
        system = np.vstack([design * root[:, None], prior])
        right = target.copy()
        right[: len(design)] *= root
        previous, (solution, _norm) = solution, nnls(system, right)
        error = np.abs(design @ solution - 1)
        sigma = max(MAD_TO_SIGMA * float(np.median(error)), MINIMUM_SIGMA)
        weights = own_weights * np.minimum(1.0, HUBER_K * sigma / np.maximum(error, 1e-12))
        if np.abs(solution - previous).max() <= CONVERGED * max(np.abs(solution).max(), 1e-12):
            break
    return solution, weights


class FitCache:
    """Cache of the last fit of each target: a round of refinement measures on few targets."""

    def __init__(self) -> None:
        self._last: dict[Target, tuple[tuple[RegionSample, ...], TargetFit]] = {}

    def fit(self, target: Target, samples: Sequence[RegionSample], converts: bool) -> TargetFit:
        """Returns :func:`fit_target` of these samples; ``converts`` is True where the CPU computes
        values in float16 that it receives in float32."""
        now = tuple(samples)
        last = self._last.get(target)
        if last is not None and last[0] == now:
            return last[1]
        fitted = fit_target(now, on_cpu=target.engine is Engine.CPU, converts=converts)
        self._last[target] = (now, fitted)
        return fitted
