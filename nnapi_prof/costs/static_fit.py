"""Fits :class:`nnapi_prof.costs.static_model.TargetModel` to measured latencies.

1. The roofline, by non-linear least squares on logarithms (scipy, soft L1 loss), each price drawn
   a little towards what a glance at the data says.
2. The correction, by ridge regression on what the roofline leaves. A sample of several operations
   sees each by its share of the sum. Length and ridge are those of least leave-one-out error
   (in closed form), over a small grid.
3. Cross-validation of both, for the error that predictions are stated with.

Nothing is drawn at random but the folds, and those from a seed that is told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import least_squares

from nnapi_prof.costs.static_model import (
    Correction,
    ErrorBounds,
    Roof,
    TargetModel,
    kernel,
    linear,
    raw_inputs,
    scaled,
)
from nnapi_prof.costs.static_work import Floats, Sample, Work, kinds_of
from nnapi_prof.errors import CostError

LENGTHS = (1.5, 2.5, 4.0, 6.0, 10.0, 16.0)
"""Of the kernel, in standard deviations of the features."""
RIDGES = (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0)
"""Variance of the noise against the kernel's."""
MOST_CENTRES = 128
"""More centres improve nothing measurable, and a description stays small."""
FEWEST = 12
"""With fewer samples there is no correction: the roofline alone has half as many prices."""
PRIOR = 0.1
"""Weight of the first guess of a price, whose logarithm is wrong by 1, against a row's error."""
SLOWNESS = {"CONV_2D": 0.8, "GROUPED_CONV_2D": 1.2, "FULLY_CONNECTED": 1.6}
"""First guess of the time of a MAC against that of matrix products, where an operation was never
timed alone; :data:`OTHERS` for the rest, depthwise convolution among them. From the rates that
qed-usc/mobile-ml-benchmark's phones have in common (window convolutions gain by Winograd's
algorithm, the others reuse less of what they load)."""
OTHERS = 2.5
MACS_PER_OPERATION = 4e4
"""First guess of an operation's start: as long as so many MACs, 3 us at 13 GMAC/s."""
FOLDS = 5
SEED = 0


@dataclass(frozen=True)
class _Sums:
    """Samples as arrays: operations in a row, and which sample each is of."""

    works: tuple[Work, ...]
    owner: NDArray[np.intp]
    extra: Floats
    """[samples, 3]: invocations, bytes in, bytes out."""
    log_ns: Floats

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> _Sums:
        return cls(
            tuple(work for sample in samples for work in sample.works),
            np.repeat(np.arange(len(samples)), [len(sample.works) for sample in samples]),
            np.array([[s.invocations, s.in_bytes, s.out_bytes] for s in samples], dtype=float),
            np.log([sample.ns for sample in samples]),
        )

    def sums(self, values: Floats) -> Floats:
        """Per sample."""
        return np.bincount(self.owner, weights=values, minlength=len(self.log_ns)).astype(float)


def fit_samples(samples: Sequence[Sample], *, correct: bool = True) -> TargetModel:
    """The model without stated errors; CostError where there is no sample with an operation."""
    if not samples or not any(sample.works for sample in samples):
        raise CostError("there is no measured operation to fit a model to")
    sums = _Sums.of(samples)
    model = _fit_roof(sums, kinds_of(samples))
    if not correct or len(samples) < FEWEST:
        return model
    return replace(model, correction=_fit_correction(sums, model, kinds_of(samples)))


def _fit_roof(sums: _Sums, kinds: Sequence[str]) -> TargetModel:
    """Prices are fitted as logarithms, so that none gets negative; those that no sample depends on
    stay zero."""
    place = {kind: number for number, kind in enumerate(kinds)}
    n = len(sums.log_ns)
    per_rate = np.zeros((n, len(kinds)))
    for kind, column in place.items():
        macs = [work.macs if work.rate == kind else 0.0 for work in sums.works]
        per_rate[:, column] = sums.sums(np.array(macs))
    count = sums.sums(np.ones(len(sums.works)))
    moved = sums.sums(np.array([work.moved for work in sums.works]))
    design = np.column_stack([count, moved, sums.extra, per_rate])
    used = design.max(axis=0) > 0
    start = np.log(_guess(design, np.exp(sums.log_ns), kinds)[used])
    matrix = design[:, used]

    # One more unknown is the device's speed as a whole: guesses count against each other only.
    def residuals(logs: Floats) -> Floats:
        found = np.log(matrix @ np.exp(logs[1:] + logs[0])) - sums.log_ns
        return np.concatenate([found, PRIOR * (logs[1:] - start)])

    def jacobian(logs: Floats) -> Floats:
        parts = matrix * np.exp(logs[1:] + logs[0])
        shares = parts / parts.sum(axis=1, keepdims=True)
        upper = np.hstack([np.ones((n, 1)), shares])
        lower = np.hstack([np.zeros((len(start), 1)), PRIOR * np.eye(len(start))])
        return np.vstack([upper, lower])

    first = np.concatenate([[0.0], start])
    found = least_squares(residuals, first, jac=jacobian, loss="soft_l1", f_scale=0.1)
    prices = np.zeros(design.shape[1])
    prices[used] = np.exp(found.x[1:] + found.x[0])
    rates = {kind: float(prices[5 + i]) for kind, i in place.items()}
    known = [rate for kind, rate in rates.items() if not kind.startswith("CONV_2D")]
    rates["default"] = float(np.median(known or list(rates.values())))
    return TargetModel(
        Roof(float(prices[0]), float(prices[1]), rates),
        invocation_ns=float(prices[2]),
        ns_per_in_byte=float(prices[3]),
        ns_per_out_byte=float(prices[4]),
    )


def _guess(design: Floats, ns: Floats, kinds: Sequence[str]) -> Floats:
    """Prices at first sight: of a kind that was timed alone what it took there, less a share for
    the rest; of another, by what it is."""
    alone = design[:, 0] == 1
    slow = np.array([SLOWNESS.get(kind.partition("/")[0], OTHERS) for kind in kinds])
    slow[[kind.startswith("CONV_2D 1x1") for kind in kinds]] = 1.0
    with np.errstate(divide="ignore"):
        mac = float(np.median(ns / np.maximum(design[:, 5:] @ slow, 1.0)))
    guess = np.concatenate([[MACS_PER_OPERATION * mac, mac, 0.0, 0.0, 0.0], mac * slow])
    for i in range(design.shape[1]):
        rows = (design[:, i] > 0) & (alone | (2 <= i < 5))
        if rows.any():
            ratio = ns[rows] / design[rows, i]
            share = (0.3, 0.2, 0.3, 0.1, 0.1)[i] if i < 5 else 0.7
            guess[i] = (ratio.min() if i in (0, 2) else float(np.median(ratio))) * share
    return guess


def _fit_correction(sums: _Sums, model: TargetModel, kinds: Sequence[str]) -> Correction:
    raw = raw_inputs(sums.works, kinds)
    mean, spread = raw.mean(axis=0), raw.std(axis=0)
    scale = np.where(spread > 1e-9, 1 / np.maximum(spread, 1e-9), 0.0)
    x = scaled(sums.works, kinds, mean, scale)
    centres = _centres(x)
    roof = np.array([model.roof.ns(work) for work in sums.works])
    fixed = sums.extra @ [model.invocation_ns, model.ns_per_in_byte, model.ns_per_out_byte]
    total = sums.sums(roof) + fixed
    shares = roof / total[sums.owner]
    wanted = sums.log_ns - np.log(total)
    weight = _trust(wanted)

    best: tuple[float, float, Floats] | None = None
    for length in LENGTHS:
        basis = np.hstack([kernel(x, centres, length), linear(x)])
        seen = np.zeros((len(wanted), basis.shape[1]))
        np.add.at(seen, sums.owner, basis * shares[:, None])
        penalty = np.eye(basis.shape[1])
        penalty[: len(centres), : len(centres)] = kernel(centres, centres, length)
        for ridge in RIDGES:
            weights, error = _ridge(seen, wanted, penalty, ridge, weight)
            if best is None or error < best[0] - 1e-12:
                best = (error, length, weights)
    assert best is not None
    return Correction(tuple(kinds), mean, scale, best[1], centres, best[2])


def _trust(wanted: Floats) -> Floats:
    """Weights that keep rows far off (a phone that was hot, another algorithm) from pulling: 1 up
    to three typical deviations, then falling."""
    middle = float(np.median(wanted))
    typical = max(1.4826 * float(np.median(np.abs(wanted - middle))), 0.02)
    return np.minimum(1.0, 3 * typical / np.maximum(np.abs(wanted - middle), 1e-12))


def _ridge(
    seen: Floats, wanted: Floats, penalty: Floats, ridge: float, trust: Floats
) -> tuple[Floats, float]:
    """Weights, and the mean absolute leave-one-out error."""
    root = np.sqrt(trust)
    a, b = seen * root[:, None], wanted * root
    system = a.T @ a + ridge * (penalty + 1e-8 * np.eye(len(penalty)))
    factor = cho_factor(system)
    weights: Floats = cho_solve(factor, a.T @ b)
    hat = np.einsum("ij,ji->i", a, cho_solve(factor, a.T))
    left_out = (b - a @ weights) / np.maximum(1 - hat, 1e-3) / root
    return weights, float(np.abs(left_out).mean())


def _centres(x: Floats) -> Floats:
    """Distinct points, at most :data:`MOST_CENTRES`: each the farthest from those before it."""
    points = np.unique(np.round(x, 9), axis=0)
    if len(points) <= MOST_CENTRES:
        return points
    chosen = [int(np.argmin((points**2).sum(axis=1)))]
    distance = ((points - points[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < MOST_CENTRES:
        chosen.append(int(np.argmax(distance)))
        distance = np.minimum(distance, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
    return points[sorted(chosen)]


Fit = Callable[[Sequence[Sample]], TargetModel]


def cross_validated(
    samples: Sequence[Sample], *, folds: int = FOLDS, seed: int = SEED, fit: Fit = fit_samples
) -> Floats:
    """predicted / measured - 1 of every sample, by a model that was shown neither it nor another of
    the same operations: networks repeat their layers."""
    groups: dict[tuple[Work, ...], list[int]] = {}
    for i, sample in enumerate(samples):
        groups.setdefault(sample.works, []).append(i)
    alike = list(groups.values())
    order = np.random.default_rng(seed).permutation(len(alike)).tolist()
    errors = np.full(len(samples), math.inf)
    for fold in range(min(folds, len(alike))):
        held = {i for group in order[fold::folds] for i in alike[group]}
        shown = [sample for i, sample in enumerate(samples) if i not in held]
        if shown:
            model = fit(shown)
            for i in held:
                errors[i] = model.sample_ns(samples[i]) / samples[i].ns - 1
    return errors


def fit_target_model(
    samples: Sequence[Sample], *, folds: int = FOLDS, seed: int = SEED
) -> TargetModel:
    """The model with the errors that cross-validation finds."""

    def without(shown: Sequence[Sample]) -> TargetModel:
        return fit_samples(shown, correct=False)

    model = fit_samples(samples)
    if len({sample.works for sample in samples}) < folds:
        return model
    bounds = [
        np.quantile(np.abs(cross_validated(samples, folds=folds, seed=seed, fit=fit)), [0.5, 0.9])
        for fit in (fit_samples, without)
    ]
    (half, nine), (roof_half, roof_nine) = bounds
    return replace(
        model,
        errors=ErrorBounds(float(half), float(nine), (float(roof_half), float(roof_nine))),
    )
