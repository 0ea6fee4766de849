"""Fits :class:`nnapi_prof.costs.static_model.Roof` and the prices of a call to measured latencies.

Non-linear least squares on logarithms (scipy, soft L1 loss), each price drawn a little towards what
a glance at the data says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from nnapi_prof.costs.static_model import Roof, TargetModel
from nnapi_prof.costs.static_work import Floats, Sample, Work
from nnapi_prof.errors import CostError

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
MACS_PER_GATHERED_BYTE = 4.0
"""First guess of the time of a byte that is laid out for a matrix product, in MACs. 4 to 6 on the
CPUs of those phones."""
N_FIXED = 6
"""Columns before the rates: operations, bytes moved, bytes gathered, calls, bytes in, bytes out."""


@dataclass(frozen=True)
class Sums:
    """Samples as arrays: operations in a row, and which sample each is of."""

    works: tuple[Work, ...]
    owner: NDArray[np.intp]
    extra: Floats
    """[samples, 3]: invocations, bytes in, bytes out."""
    log_ns: Floats

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Sums:
        return cls(
            tuple(work for sample in samples for work in sample.works),
            np.repeat(np.arange(len(samples)), [len(sample.works) for sample in samples]),
            np.array([[s.invocations, s.in_bytes, s.out_bytes] for s in samples], dtype=float),
            np.log([sample.ns for sample in samples]),
        )

    def sums(self, values: Floats) -> Floats:
        """Per sample."""
        return np.bincount(self.owner, weights=values, minlength=len(self.log_ns)).astype(float)


def sums_of(samples: Sequence[Sample]) -> Sums:
    if not samples or not any(sample.works for sample in samples):
        raise CostError("there is no measured operation to fit a model to")
    return Sums.of(samples)


def fit_roof(sums: Sums, kinds: Sequence[str], sister: TargetModel | None = None) -> TargetModel:
    """Prices are fitted as logarithms, so that none gets negative; those that no sample depends on
    stay zero. Of a ``sister`` the prices are the first guess, and its correction is kept."""
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
    rates = {kind: float(prices[N_FIXED + i]) for kind, i in place.items()}
    known = [rate for kind, rate in rates.items() if not kind.startswith("CONV_2D")]
    rates["default"] = float(np.median(known or list(rates.values())))
    return TargetModel(
        Roof(float(prices[0]), float(prices[1]), rates, float(prices[2])),
        invocation_ns=float(prices[3]),
        ns_per_in_byte=float(prices[4]),
        ns_per_out_byte=float(prices[5]),
    )


def _guess_of(sister: TargetModel, kinds: Sequence[str], otherwise: Floats) -> Floats:
    """The sister's prices, in the order of ``otherwise``; that where she has none."""
    roof = sister.roof
    fixed = [roof.operation_ns, roof.ns_per_byte, roof.ns_per_gathered_byte]
    fixed += [sister.invocation_ns, sister.ns_per_in_byte, sister.ns_per_out_byte]
    rates = [roof.ns_per_mac.get(kind, roof.ns_per_mac["default"]) for kind in kinds]
    prices = np.array(fixed + rates)
    # What the sister lacks is guessed from the rows, on the sister's scale.
    both = (prices > 0) & (otherwise > 0)
    ratio = float(np.exp(np.median(np.log(prices[both] / otherwise[both])))) if both.any() else 1.0
    return np.where(prices > 0, prices, otherwise * ratio)


def _guess(design: Floats, ns: Floats, kinds: Sequence[str]) -> Floats:
    """Prices at first sight: of a kind that was timed alone what it took there, less a share for
    the rest; of another, by what it is."""
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
