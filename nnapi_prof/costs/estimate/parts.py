"""Fit the parts of a target's model: roofline and prices of a call, then the correction.

The roofline (:class:`nnapi_prof.costs.estimate.model.Roof`) is fitted by non-linear least squares
on logarithms (scipy, soft L1 loss), with a weak prior of each price around a first guess from the
data. The correction (:class:`nnapi_prof.costs.estimate.model.Correction`) is fitted to the
residuals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import least_squares
from scipy.sparse import csr_array

from nnapi_prof.costs.estimate import Floats, Work, WorkSample, raw_inputs
from nnapi_prof.costs.estimate.model import (
    MOST_CORRECTION,
    Correction,
    Roof,
    TargetModel,
    kernel,
    linear,
)
from nnapi_prof.errors import CostError

PRIOR = 0.1
"""Weight of a price's distance from its first guess (as a logarithm) against a row's error."""
SISTER = 0.3
"""The same weight where the guess is a sister phone's price."""
SLOWNESS = {"CONV_2D": 0.8, "GROUPED_CONV_2D": 1.2, "FULLY_CONNECTED": 1.6}
"""First guess of the time of a MAC, relative to that in matrix products, where an operation was
never timed alone; :data:`OTHERS` for the rest, depthwise convolution among them. From the rates
that qed-usc/mobile-ml-benchmark's phones have in common (window convolutions gain from Winograd's
algorithm, the others reuse less of the data they load)."""
OTHERS = 2.5
MACS_PER_OPERATION = 4e4
"""First guess of the fixed time of an operation, in MACs: 3 us at 13 GMAC/s."""
MACS_PER_GATHERED_BYTE = 4.0
"""First guess of the time to gather a byte for a matrix product, in MACs: 4 to 6 on the CPUs of
those phones."""
N_FIXED = 6
"""Columns before the rates: operations, bytes moved, bytes gathered, calls, bytes in, bytes out."""


@dataclass(frozen=True)
class Sums:
    """Samples as arrays: all operations in sequence, and the sample (``owner``) of each."""

    works: tuple[Work, ...]
    owner: NDArray[np.intp]
    extra: Floats
    """[samples, 3]: invocations, bytes in, bytes out."""
    log_ns: Floats

    @classmethod
    def of(cls, samples: Sequence[WorkSample]) -> Sums:
        return cls(
            tuple(work for sample in samples for work in sample.works),
            np.repeat(np.arange(len(samples)), [len(sample.works) for sample in samples]),
            np.array([[s.invocations, s.in_bytes, s.out_bytes] for s in samples], dtype=float),
            np.log([sample.ns for sample in samples]),
        )

    def sums(self, values: Floats) -> Floats:
        """Sums values of operations over each sample."""
        return np.bincount(self.owner, weights=values, minlength=len(self.log_ns)).astype(float)


def sums_of(samples: Sequence[WorkSample]) -> Sums:
    if not samples or not any(sample.works for sample in samples):
        raise CostError("there is no measured operation to fit a model to")
    return Sums.of(samples)


def fit_roof(sums: Sums, kinds: Sequence[str], sister: TargetModel | None = None) -> TargetModel:
    """Fits a roofline and prices of calls. Prices are fitted as logarithms, so that none is
    negative; those that no sample depends on stay zero. The prices of a ``sister`` are the first
    guess, and its correction is applied while fitting."""
    place = {kind: number for number, kind in enumerate(kinds)}
    n = len(sums.log_ns)
    bend = np.ones(len(sums.works))
    if sister is not None:
        bend = np.exp(sister.log_ratio(sums.works))
    per_rate = np.zeros((n, len(kinds)))
    for kind, column in place.items():
        macs = [work.macs if work.rate == kind else 0.0 for work in sums.works]
        per_rate[:, column] = sums.sums(np.array(macs) * bend)
    count = sums.sums(bend)
    moved = sums.sums(np.array([work.moved for work in sums.works]) * bend)
    gathered = sums.sums(np.array([work.gathered for work in sums.works]) * bend)
    design = np.column_stack([count, moved, gathered, sums.extra, per_rate])
    used = design.max(axis=0) > 0
    guess = _guess(design, np.exp(sums.log_ns), kinds)
    weight = PRIOR
    if sister is not None:
        guess, weight = _guess_of(sister, kinds, guess), SISTER
    start = np.log(guess[used])
    matrix = design[:, used]

    # The first unknown is the overall speed of the device, so that only ratios of guesses matter.
    def residuals(logs: Floats) -> Floats:
        solution = np.log(matrix @ np.exp(logs[1:] + logs[0])) - sums.log_ns
        return np.concatenate([solution, weight * (logs[1:] - start)])

    def jacobian(logs: Floats) -> Floats:
        parts = matrix * np.exp(logs[1:] + logs[0])
        shares = parts / parts.sum(axis=1, keepdims=True)
        upper = np.hstack([np.ones((n, 1)), shares])
        lower = np.hstack([np.zeros((len(start), 1)), weight * np.eye(len(start))])
        return np.vstack([upper, lower])

    first = np.concatenate([[0.0], start])
    solution = least_squares(residuals, first, jac=jacobian, loss="soft_l1", f_scale=0.1)
    prices = np.zeros(design.shape[1])
    prices[used] = np.exp(solution.x[1:] + solution.x[0])
    rates = {kind: float(prices[N_FIXED + i]) for kind, i in place.items()}
    others = [rate for kind, rate in rates.items() if not kind.startswith("CONV_2D")]
    rates["default"] = float(np.median(others or list(rates.values())))
    return TargetModel(
        Roof(float(prices[0]), float(prices[1]), rates, float(prices[2])),
        invocation_ns=float(prices[3]),
        ns_per_in_byte=float(prices[4]),
        ns_per_out_byte=float(prices[5]),
    )


def _guess_of(sister: TargetModel, kinds: Sequence[str], otherwise: Floats) -> Floats:
    """Returns the sister's prices, in the order of ``otherwise``, which replaces missing ones."""
    roof = sister.roof
    fixed = [roof.operation_ns, roof.ns_per_byte, roof.ns_per_gathered_byte]
    fixed += [sister.invocation_ns, sister.ns_per_in_byte, sister.ns_per_out_byte]
    rates = [roof.ns_per_mac.get(kind, roof.ns_per_mac["default"]) for kind in kinds]
    prices = np.array(fixed + rates)
    # Prices that the sister lacks are guessed from the rows, on the sister's scale.
    both = (prices > 0) & (otherwise > 0)
    ratio = float(np.exp(np.median(np.log(prices[both] / otherwise[both])))) if both.any() else 1.0
    return np.where(prices > 0, prices, otherwise * ratio)


def _guess(design: Floats, ns: Floats, kinds: Sequence[str]) -> Floats:
    """Guesses prices: for a kind that was timed alone, from its latency less a share for the rest;
    for another, from its type."""
    alone = design[:, 0] == 1
    slow = np.array([SLOWNESS.get(kind.partition("/")[0], OTHERS) for kind in kinds])
    slow[[kind.startswith("CONV_2D 1x1") for kind in kinds]] = 1.0
    with np.errstate(divide="ignore"):
        mac = float(np.median(ns / np.maximum(design[:, N_FIXED:] @ slow, 1.0)))
    fixed = mac * np.array([MACS_PER_OPERATION, 1.0, MACS_PER_GATHERED_BYTE, 0.0, 0.0, 0.0])
    guess = np.concatenate([fixed, mac * slow])
    for i in range(design.shape[1]):
        rows = (design[:, i] > 0) & (alone | (3 <= i < N_FIXED))
        if rows.any():
            ratio = ns[rows] / design[rows, i]
            share = (0.3, 0.2, 0.2, 0.3, 0.1, 0.1)[i] if i < N_FIXED else 0.7
            guess[i] = (ratio.min() if i in (0, 3) else float(np.median(ratio))) * share
    return guess


# ---- correction ---------------------------------------------------------------------------------


LENGTHS = (2.5, 4.0, 6.0, 10.0)
"""Lengths of the kernel to try, in standard deviations of the features."""
RIDGES = (0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4)
"""Noise variances over the kernel's, descending, since each fit starts from the one before."""
USUAL_LENGTH, USUAL_RIDGE = 6.0, 0.015
"""Best setting for most tables; the ridge is divided by the operations per sample, whose errors
cancel: 3e-4 was best, out of fold, for the sums of some 50 operations on the CPUs of
qed-usc/mobile-ml-benchmark's phones. Few samples do not suffice to choose, and get these."""
LENGTH_SPREAD, RIDGE_SPREAD = 0.2, 0.5
"""Prior spread around the usual setting, as standard deviations of logarithms."""
MOST_STEPS = 12
STANDS = 1e-3
"""Step of the logarithm below which a linearisation has converged: 0.1 %."""
MOST_CENTRES = 128
"""Most centres: more do not improve measurably, and would make descriptions larger."""
LEAST_SPREAD = 0.4
"""Least standard deviation that a feature is scaled by. Rounding up to tiles changes most sizes
little; scaled further, these features would count as much as all others, above all far from
measured operations."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Setting of a correction: the kernel's length, and the ridge."""

    length: float
    ridge: float


class _Correctable:
    """Samples as sums of the distinct operations in them, and the roofline's price of each."""

    def __init__(self, sums: Sums, model: TargetModel, kinds: Sequence[str]) -> None:
        numbers: dict[Work, int] = {}
        place = np.array([numbers.setdefault(work, len(numbers)) for work in sums.works])
        works = list(numbers)
        n = len(sums.log_ns)
        entries = (np.ones(len(place)), (sums.owner, place))
        self.counts = csr_array(entries, shape=(n, len(works)))
        """[samples, works]."""
        raw = raw_inputs(works, kinds)
        often = np.bincount(place, minlength=len(works)).astype(float)
        self.mean: Floats = np.average(raw, axis=0, weights=often)
        spread = np.sqrt(np.average((raw - self.mean) ** 2, axis=0, weights=often))
        self.scale: Floats = np.where(spread > 1e-9, 1 / np.maximum(spread, LEAST_SPREAD), 0.0)
        self.x: Floats = (raw - self.mean) * self.scale
        self.centres = _centres(self.x)
        self.roof_ns = np.array([model.roof.ns(work) for work in works])
        prices = [model.invocation_ns, model.ns_per_in_byte, model.ns_per_out_byte]
        self.fixed_ns: Floats = sums.extra @ prices
        self.log_ns = sums.log_ns

    def basis(self, length: float) -> tuple[Floats, Floats]:
        """Returns the basis [works, m + features + 1], and the ridge's penalty of the weights."""
        basis = np.hstack([kernel(self.x, self.centres, length), linear(self.x)])
        m = len(self.centres)
        penalty = np.eye(basis.shape[1])
        penalty[:m, :m] = kernel(self.centres, self.centres, length)
        return basis, penalty

    def fit(
        self, basis: Floats, penalty: Floats, ridge: float, weights: Floats
    ) -> tuple[Floats, float]:
        """Iterates from ``weights`` until they converge. Returns them with the mean leave-one-out
        error of the sums themselves, not of their last linearisation."""
        for _ in range(MOST_STEPS):
            parts, total = self._parts(basis, weights)
            left = self.log_ns - np.log(total)
            seen: Floats = np.asarray(self.counts @ (basis * parts[:, None])) / total[:, None]
            root = np.sqrt(_trust(left))
            a, b = seen * root[:, None], (left + seen @ weights) * root
            factor = cho_factor(a.T @ a + ridge * (penalty + 1e-8 * np.eye(len(penalty))))
            solved: Floats = cho_solve(factor, a.T @ b)
            step = float(np.abs(seen @ (solved - weights)).max())
            weights = solved
            if step < STANDS:
                break
        hat = np.einsum("ij,ji->i", a, cho_solve(factor, a.T))
        left = self.log_ns - np.log(self._parts(basis, weights)[1])
        return weights, float(np.abs(left / np.maximum(1 - hat, 1e-3)).mean())

    def _parts(self, basis: Floats, weights: Floats) -> tuple[Floats, Floats]:
        """Returns the ns of each operation, and of each sample."""
        bend = np.clip(basis @ weights, -MOST_CORRECTION, MOST_CORRECTION)
        parts: Floats = self.roof_ns * np.exp(bend)
        return parts, self.counts @ parts + self.fixed_ns


def fit_correction(
    sums: Sums, model: TargetModel, kinds: Sequence[str], setting: Setting | None = None
) -> tuple[Setting, Correction]:
    """Fits a correction with the given ``setting``, else with the best one.

    This is ridge regression. A sample of several operations weighs each by its share of the sum.
    Shares change with the correction, so the regression is repeated until it converges (Gauss and
    Newton's method). Without a setting, length and ridge minimise the leave-one-out error over a
    small grid, with a penalty for distance from values that suited other phones.
    """
    problem = _Correctable(sums, model, kinds)
    lengths = LENGTHS if setting is None else (setting.length,)
    usual = Setting(USUAL_LENGTH, USUAL_RIDGE * len(sums.log_ns) / len(sums.works))
    best: tuple[float, Setting, Floats] | None = None
    for length in lengths:
        basis, penalty = problem.basis(length)
        weights = np.zeros(basis.shape[1])
        worse = 0
        for ridge in RIDGES:
            # A given setting's ridge is reached step by step; only the last step counts.
            if (setting is not None and ridge < setting.ridge) or worse == 2:
                break
            weights, error = problem.fit(basis, penalty, ridge, weights)
            one = Setting(length, ridge)
            score = len(sums.log_ns) * math.log(max(error, 1e-6)) + _unusual(one, usual)
            if setting is not None or best is None or score < best[0]:
                best, worse = (score, one, weights), 0
            else:
                worse += 1
    assert best is not None
    scale = problem.scale
    return best[1], Correction(
        tuple(kinds), problem.mean, scale, best[1].length, problem.centres, best[2]
    )


def _unusual(setting: Setting, usual: Setting) -> float:
    """Returns the penalty of an unusual setting: minus the logarithm of a normal density."""
    lengths = math.log(setting.length / usual.length) / LENGTH_SPREAD
    ridges = math.log(setting.ridge / usual.ridge) / RIDGE_SPREAD
    return (lengths**2 + ridges**2) / 2


def _trust(targets: Floats) -> Floats:
    """Returns weights that limit the influence of outliers (a hot phone, another algorithm): 1 up
    to three typical deviations, then falling."""
    middle = float(np.median(targets))
    typical = max(1.4826 * float(np.median(np.abs(targets - middle))), 0.02)
    return np.minimum(1.0, 3 * typical / np.maximum(np.abs(targets - middle), 1e-12))


def _centres(x: Floats) -> Floats:
    """Chooses at most :data:`MOST_CENTRES` distinct points, each the farthest from those before."""
    points = np.unique(np.round(x, 9), axis=0)
    if len(points) <= MOST_CENTRES:
        return points
    chosen = [int(np.argmin((points**2).sum(axis=1)))]
    distance = ((points - points[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < MOST_CENTRES:
        chosen.append(int(np.argmax(distance)))
        distance = np.minimum(distance, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
    return points[sorted(chosen)]
