"""Fits :class:`nnapi_prof.costs.static_model.TargetModel` to measured latencies.

1. The roofline, by non-linear least squares on logarithms (scipy, soft L1 loss), each price drawn
   a little towards what a glance at the data says.
2. The correction, by ridge regression on what the roofline leaves. A sample of several operations
   sees each by its share of the sum; shares change with the correction, so the regression is
   repeated from where it came out until it stands (Gauss and Newton's method). Length and ridge are
   those of least leave-one-out error, over a small grid, and near what served other phones.
3. Cross-validation of both, by configuration: the correction stays where its error is the smaller,
   and the errors are what bands are made of (:mod:`nnapi_prof.costs.static_bands`).

Nothing is drawn at random but the folds, and those from a seed that is told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import least_squares
from scipy.sparse import csr_array

from nnapi_prof.costs.static_bands import error_bounds
from nnapi_prof.costs.static_model import (
    MOST_CORRECTION,
    Correction,
    Roof,
    TargetModel,
    kernel,
    linear,
    raw_inputs,
)
from nnapi_prof.costs.static_work import Floats, Sample, Work, kinds_of
from nnapi_prof.errors import CostError

LENGTHS = (2.5, 4.0, 6.0, 10.0)
"""Of the kernel, in standard deviations of the features."""
RIDGES = (0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4)
"""Variance of the noise against the kernel's; falling, as each starts from the one before."""
USUAL_LENGTH, USUAL_RIDGE = 6.0, 0.015
"""What serves most tables, the ridge divided by the operations of a sample, whose errors cancel:
3e-4 was best, out of fold, for the sums of some 50 operations on the CPUs of
qed-usc/mobile-ml-benchmark's phones. Few samples do not tell, and then these are taken."""
LENGTH_SPREAD, RIDGE_SPREAD = 0.2, 0.5
"""How far from the usual ones samples may lead, as standard deviations of logarithms."""
MOST_STEPS = 12
STANDS = 1e-3
"""A step of the logarithm below which a linearisation is taken to stand: 0.1 %."""
MARGIN = 0.97
"""A correction stays where its error, out of fold, is below this part of the roofline's."""
MOST_CENTRES = 128
"""More centres improve nothing measurable, and a description stays small."""
FEWEST = 12
"""With fewer samples there is no correction: the roofline alone has half as many prices."""
PRIOR = 0.1
"""Weight of the first guess of a price, whose logarithm is wrong by 1, against a row's error."""
SISTER = 0.3
"""The same where the guess is a sister phone's price."""
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


def fit_samples(
    samples: Sequence[Sample], *, correct: bool | None = None, folds: int = FOLDS, seed: int = SEED
) -> TargetModel:
    """The model without stated errors; CostError where there is no sample with an operation.

    ``correct`` says whether it has a correction; None leaves it to cross-validation.
    """
    if correct is None:
        return _chosen(samples, folds, seed)[0]
    kinds, sums = kinds_of(samples), _checked(samples)
    roof = _fit_roof(sums, kinds)
    return replace(roof, correction=_fit_correction(sums, roof, kinds)[1]) if correct else roof


def _chosen(samples: Sequence[Sample], folds: int, seed: int) -> tuple[TargetModel, Floats, Floats]:
    """The better of roofline and correction, its errors out of fold, and the roofline's."""
    kinds, sums = kinds_of(samples), _checked(samples)
    roof = _fit_roof(sums, kinds)
    if len(samples) < FEWEST:
        plain = cross_validated(samples, folds=folds, seed=seed, fit=_plain)
        return roof, plain, plain
    setting, correction = _fit_correction(sums, roof, kinds)
    with_it, plain = _compared(samples, setting, folds, seed)
    if _size(with_it) < MARGIN * _size(plain):
        return replace(roof, correction=correction), with_it, plain
    return roof, plain, plain


def _plain(shown: Sequence[Sample]) -> TargetModel:
    return _fit_roof(_checked(shown), kinds_of(shown))


def _checked(samples: Sequence[Sample]) -> _Sums:
    if not samples or not any(sample.works for sample in samples):
        raise CostError("there is no measured operation to fit a model to")
    return _Sums.of(samples)


def _size(errors: Floats) -> float:
    """Of relative errors, one number: the geometric mean of their median and their mean, so that
    neither a few wild ones nor the many small ones decide alone. Each counts as 1 at most."""
    size = np.minimum(np.abs(errors), 1.0)
    return math.sqrt(float(np.median(size)) * float(size.mean()))


def _compared(
    samples: Sequence[Sample], setting: _Setting, folds: int, seed: int
) -> tuple[Floats, Floats]:
    """Out of fold errors with a correction of one setting, and of the roofline alone."""

    def corrected(shown: Sequence[Sample]) -> TargetModel:
        roof = _plain(shown)
        kinds = kinds_of(shown)
        return replace(roof, correction=_fit_correction(_Sums.of(shown), roof, kinds, setting)[1])

    found = [cross_validated(samples, folds=folds, seed=seed, fit=f) for f in (corrected, _plain)]
    return found[0], found[1]


def _fit_roof(sums: _Sums, kinds: Sequence[str], sister: TargetModel | None = None) -> TargetModel:
    """Prices are fitted as logarithms, so that none gets negative; those that no sample depends on
    stay zero. Of a ``sister`` the prices are the first guess, and its correction is kept."""
    place = {kind: number for number, kind in enumerate(kinds)}
    n = len(sums.log_ns)
    bend = np.ones(len(sums.works))
    if sister is not None and sister.correction is not None:
        bend = np.exp(sister.correction.log_ratio(sums.works))
    per_rate = np.zeros((n, len(kinds)))
    for kind, column in place.items():
        macs = [work.macs if work.rate == kind else 0.0 for work in sums.works]
        per_rate[:, column] = sums.sums(np.array(macs) * bend)
    count = sums.sums(bend)
    moved = sums.sums(np.array([work.moved for work in sums.works]) * bend)
    design = np.column_stack([count, moved, sums.extra, per_rate])
    used = design.max(axis=0) > 0
    guess = _guess(design, np.exp(sums.log_ns), kinds)
    weight = PRIOR
    if sister is not None:
        guess, weight = _guess_of(sister, kinds, guess), SISTER
    start = np.log(guess[used])
    matrix = design[:, used]

    # One more unknown is the device's speed as a whole: guesses count against each other only.
    def residuals(logs: Floats) -> Floats:
        found = np.log(matrix @ np.exp(logs[1:] + logs[0])) - sums.log_ns
        return np.concatenate([found, weight * (logs[1:] - start)])

    def jacobian(logs: Floats) -> Floats:
        parts = matrix * np.exp(logs[1:] + logs[0])
        shares = parts / parts.sum(axis=1, keepdims=True)
        upper = np.hstack([np.ones((n, 1)), shares])
        lower = np.hstack([np.zeros((len(start), 1)), weight * np.eye(len(start))])
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


def _guess_of(sister: TargetModel, kinds: Sequence[str], otherwise: Floats) -> Floats:
    """The sister's prices, in the order of ``otherwise``; that where she has none."""
    roof = sister.roof
    fixed = [roof.operation_ns, roof.ns_per_byte, sister.invocation_ns]
    fixed += [sister.ns_per_in_byte, sister.ns_per_out_byte]
    rates = [roof.ns_per_mac.get(kind, roof.ns_per_mac["default"]) for kind in kinds]
    prices = np.array(fixed + rates)
    # What the sister lacks is guessed from the rows, on the sister's scale.
    both = (prices > 0) & (otherwise > 0)
    ratio = float(np.exp(np.median(np.log(prices[both] / otherwise[both])))) if both.any() else 1.0
    return np.where(prices > 0, prices, otherwise * ratio)


def fit_sister(
    samples: Sequence[Sample],
    sister: TargetModel,
    *,
    folds: int = FOLDS,
    seed: int = SEED,
) -> TargetModel:
    """The model of a phone of which 10 to 30 samples are known, and a sister's model.

    The sister's prices, scaled as one and drawn apart as far as the samples say so, with her
    correction; kinds that no sample has keep her price. The samples alone decide where that is, in
    cross-validation, the better.
    """

    fit = partial(adapted, sister=sister)
    errors = cross_validated(samples, folds=folds, seed=seed, fit=fit)
    alone, own, plain = _chosen(samples, folds, seed)
    model = fit(samples)
    if _size(own) < _size(errors):
        model, errors = alone, own
    if len({sample.works for sample in samples}) < folds:
        return model
    return replace(model, errors=error_bounds(model, samples, errors, plain))


def adapted(samples: Sequence[Sample], sister: TargetModel) -> TargetModel:
    """The sister's model with her prices drawn to what the samples say."""
    found = _fit_roof(_checked(samples), kinds_of(samples), sister)
    rates = found.roof.ns_per_mac
    pairs = [(rates[k], sister.roof.ns_per_mac[k]) for k in rates if k in sister.roof.ns_per_mac]
    # "default" is one of the pairs, so there is one.
    faster = float(
        np.exp(np.median([math.log(own / hers) for own, hers in pairs if own > 0 < hers]))
    )
    hers = {kind: rate * faster for kind, rate in sister.roof.ns_per_mac.items()}
    return replace(
        found,
        roof=replace(found.roof, ns_per_mac={**hers, **rates, "default": hers["default"]}),
        correction=sister.correction,
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


@dataclass(frozen=True, slots=True)
class _Setting:
    """Of a correction: the kernel's length, and the ridge."""

    length: float
    ridge: float


class _Correctable:
    """Samples as sums of the distinct operations in them, and the roofline's price of each."""

    def __init__(self, sums: _Sums, model: TargetModel, kinds: Sequence[str]) -> None:
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
        self.scale: Floats = np.where(spread > 1e-9, 1 / np.maximum(spread, 1e-9), 0.0)
        self.x: Floats = (raw - self.mean) * self.scale
        self.centres = _centres(self.x)
        self.roof_ns = np.array([model.roof.ns(work) for work in works])
        prices = [model.invocation_ns, model.ns_per_in_byte, model.ns_per_out_byte]
        self.fixed_ns: Floats = sums.extra @ prices
        self.log_ns = sums.log_ns

    def basis(self, length: float) -> tuple[Floats, Floats]:
        """[works, m + features + 1], and the ridge's penalty of the weights."""
        basis = np.hstack([kernel(self.x, self.centres, length), linear(self.x)])
        m = len(self.centres)
        penalty = np.eye(basis.shape[1])
        penalty[:m, :m] = kernel(self.centres, self.centres, length)
        return basis, penalty

    def fit(
        self, basis: Floats, penalty: Floats, ridge: float, weights: Floats
    ) -> tuple[Floats, float]:
        """Weights that stand, from ``weights`` on, and the mean leave-one-out error: that of the
        sums themselves, not of their last linearisation."""
        for _ in range(MOST_STEPS):
            parts, total = self._parts(basis, weights)
            left = self.log_ns - np.log(total)
            seen: Floats = np.asarray(self.counts @ (basis * parts[:, None])) / total[:, None]
            root = np.sqrt(_trust(left))
            a, b = seen * root[:, None], (left + seen @ weights) * root
            factor = cho_factor(a.T @ a + ridge * (penalty + 1e-8 * np.eye(len(penalty))))
            found: Floats = cho_solve(factor, a.T @ b)
            step = float(np.abs(seen @ (found - weights)).max())
            weights = found
            if step < STANDS:
                break
        hat = np.einsum("ij,ji->i", a, cho_solve(factor, a.T))
        left = self.log_ns - np.log(self._parts(basis, weights)[1])
        return weights, float(np.abs(left / np.maximum(1 - hat, 1e-3)).mean())

    def _parts(self, basis: Floats, weights: Floats) -> tuple[Floats, Floats]:
        """ns of each operation, and of each sample."""
        bend = np.clip(basis @ weights, -MOST_CORRECTION, MOST_CORRECTION)
        parts: Floats = self.roof_ns * np.exp(bend)
        return parts, self.counts @ parts + self.fixed_ns


def _fit_correction(
    sums: _Sums, model: TargetModel, kinds: Sequence[str], setting: _Setting | None = None
) -> tuple[_Setting, Correction]:
    """With a ``setting``, the correction of that; else of the best there is."""
    problem = _Correctable(sums, model, kinds)
    lengths = LENGTHS if setting is None else (setting.length,)
    usual = _Setting(USUAL_LENGTH, USUAL_RIDGE * len(sums.log_ns) / len(sums.works))
    best: tuple[float, _Setting, Floats] | None = None
    for length in lengths:
        basis, penalty = problem.basis(length)
        weights = np.zeros(basis.shape[1])
        worse = 0
        for ridge in RIDGES:
            # The way to a setting's ridge is short: what matters is where it ends.
            if (setting is not None and ridge < setting.ridge) or worse == 2:
                break
            weights, error = problem.fit(basis, penalty, ridge, weights)
            one = _Setting(length, ridge)
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


def _unusual(setting: _Setting, usual: _Setting) -> float:
    """As minus the logarithm of a normal density counts it."""
    lengths = math.log(setting.length / usual.length) / LENGTH_SPREAD
    ridges = math.log(setting.ridge / usual.ridge) / RIDGE_SPREAD
    return (lengths**2 + ridges**2) / 2


def _trust(wanted: Floats) -> Floats:
    """Weights that keep rows far off (a phone that was hot, another algorithm) from pulling: 1 up
    to three typical deviations, then falling."""
    middle = float(np.median(wanted))
    typical = max(1.4826 * float(np.median(np.abs(wanted - middle))), 0.02)
    return np.minimum(1.0, 3 * typical / np.maximum(np.abs(wanted - middle), 1e-12))


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
            rows = sorted(held)
            truth = np.array([samples[i].ns for i in rows])
            errors[rows] = model.samples_ns([samples[i] for i in rows]) / truth - 1
    return errors


def fit_target_model(
    samples: Sequence[Sample], *, folds: int = FOLDS, seed: int = SEED
) -> TargetModel:
    """The model with the errors that cross-validation finds."""
    model, errors, plain = _chosen(samples, folds, seed)
    if len({sample.works for sample in samples}) < folds:
        return model
    return replace(model, errors=error_bounds(model, samples, errors, plain))
