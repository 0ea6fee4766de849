"""Fits :class:`nnapi_prof.costs.static_model.Correction` to what a roofline leaves.

Ridge regression. A sample of several operations sees each by its share of the sum; shares change
with the correction, so the regression is repeated from where it came out until it stands (Gauss and
Newton's method). Length and ridge are those of least leave-one-out error, over a small grid, and
near what served other phones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array

from nnapi_prof.costs.static_model import (
    MOST_CORRECTION,
    Correction,
    TargetModel,
    kernel,
    linear,
)
from nnapi_prof.costs.static_roof import Sums
from nnapi_prof.costs.static_work import Floats, Work, raw_inputs

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
MOST_CENTRES = 128
"""More centres improve nothing measurable, and a description stays small."""
LEAST_SPREAD = 0.4
"""Of a feature, below which it is not magnified: rounding up to tiles grows most sizes little, and
what little it does would count as much as all the rest, far from what was measured above all."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Of a correction: the kernel's length, and the ridge."""

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


def fit_correction(
    sums: Sums, model: TargetModel, kinds: Sequence[str], setting: Setting | None = None
) -> tuple[Setting, Correction]:
    """With a ``setting``, the correction of that; else of the best there is."""
    problem = _Correctable(sums, model, kinds)
    lengths = LENGTHS if setting is None else (setting.length,)
    usual = Setting(USUAL_LENGTH, USUAL_RIDGE * len(sums.log_ns) / len(sums.works))
    best: tuple[float, Setting, Floats] | None = None
    for length in lengths:
        basis, penalty = problem.basis(length)
        weights = np.zeros(basis.shape[1])
        worse = 0
        for ridge in RIDGES:
            # The way to a setting's ridge is short: what matters is where it ends.
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
