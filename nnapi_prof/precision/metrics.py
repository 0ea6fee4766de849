"""Metrics of the distance of a plan's outputs from those of float32, with intervals for other data.

An error is a number, and smaller is better; 0.02 is 2 %. It is computed from many samples at once,
so that a sample with large outputs counts for more than one with small ones:

``relative``
    Root of the mean square difference, relative to that of the reference outputs less their mean
    over the calibration data. Its logarithm is the ratio of signal to noise (:func:`sqnr_db`).
``top1``
    Share of samples (of places, where an output has several) whose largest value is at another
    index.
``module:function``
    ``function(outputs, targets)`` of the user, less its value for the reference: the increase due
    to the plan, which may be negative. :class:`~.user_files.UserMetric` documents its arguments.

An interval is for the same error on other data: the error of as many new samples of the same kind
is in it 19 times of 20. It comes from drawing both sets from the samples (bootstrap), and is wider
by Student's factor where there are few; a single sample gives no interval. A user's function that
is not a mean over samples needs dozens of them.

A mean has one number for each place in an output, so that constant parts do not count. Of several
outputs the one with the largest error counts.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from nnapi_prof.errors import UsageError

Floats = NDArray[np.float64]

CONSTANT = 1e-5
"""Variation of an output over the calibration data, relative to its size, below which errors are
relative to the size instead: about the rounding of float32 in deep models."""


@dataclass(frozen=True)
class ErrorEstimate:
    """Error over some samples, and its interval over others."""

    error: float
    low: float
    high: float
    """Ends (``low``, ``high``) of the interval of the errors of 19 in 20 other sets of as many
    samples."""
    n_samples: int
    by_output: tuple[float, ...] = ()
    """Error of each output; empty where a user's function judges all together."""


def sqnr_db(error: float) -> float:
    """Converts a relative error to the ratio of signal to quantisation noise: 0.01 is 40 dB."""
    return -20 * math.log10(error) if error > 0 else math.inf


@dataclass(frozen=True)
class FloatOutputs:
    """Outputs in float32, and their means over the calibration data."""

    outputs: tuple[Floats, ...]
    """One array for each output of the model, [samples, ...]."""
    means: tuple[Floats, ...]
    """One number for each place in an output; zeros for outputs that hardly vary."""
    steady: tuple[int, ...] = ()
    """Outputs that hardly vary, whose errors are relative to their size."""

    @classmethod
    def calibrated(cls, outputs: Sequence[Floats]) -> FloatOutputs:
        """Makes the reference over the calibration data itself."""
        means, steady = [], []
        for index, output in enumerate(outputs):
            values = np.where(np.isfinite(output), output, 0.0)
            mean = values.mean(axis=0)
            spread = float(np.square(values - mean).sum())
            if spread <= CONSTANT**2 * float(np.square(values).sum()):
                mean = np.zeros_like(mean)
                steady.append(index)
            means.append(mean)
        return cls(tuple(outputs), tuple(means), tuple(steady))

    def over(self, outputs: Sequence[Floats]) -> FloatOutputs:
        """Makes the reference over other data, with the same means."""
        return FloatOutputs(tuple(outputs), self.means, self.steady)

    @property
    def n_samples(self) -> int:
        return len(self.outputs[0]) if self.outputs else 0


def stacked(samples: Sequence[Sequence[Tensor]]) -> tuple[Floats, ...]:
    """Stacks the outputs of samples into one array for each output, [samples, ...]; a complex
    number becomes two."""

    def real(value: Tensor) -> Floats:
        plain = torch.view_as_real(value) if value.is_complex() else value
        result: Floats = plain.detach().double().numpy()
        return result

    return tuple(np.stack([real(value) for value in row]) for row in zip(*samples, strict=True))


class Metric(Protocol):
    """Metric of the error of outputs."""

    @property
    def name(self) -> str:
        """The name as users write it."""
        ...

    @property
    def needs_targets(self) -> bool: ...

    def estimate(
        self,
        outputs: Sequence[Floats],
        reference: FloatOutputs,
        targets: Sequence[Any] | None = None,
    ) -> ErrorEstimate:
        """Returns the error of ``outputs`` ([samples, ...] each), and its interval.

        ``targets`` has one for each sample. Raises UsageError where the metric does not fit them.
        """
        ...


class MetricKind(enum.Enum):
    """Metrics that need no targets."""

    RELATIVE = "relative"
    TOP1 = "top1"


@dataclass(frozen=True)
class BuiltInMetric:
    """Metric that compares outputs with the reference; see the module."""

    kind: MetricKind = MetricKind.RELATIVE

    @property
    def name(self) -> str:
        return self.kind.value

    @property
    def needs_targets(self) -> bool:
        return False

    def estimate(
        self,
        outputs: Sequence[Floats],
        reference: FloatOutputs,
        targets: Sequence[Any] | None = None,
    ) -> ErrorEstimate:
        rows = self._rows(outputs, reference)
        errors = [float(_formed(self.kind, row.sum(0))) for row in rows]
        error, n = max(errors, default=0.0), reference.n_samples
        low, high = self._interval(error, rows, n)
        return ErrorEstimate(error, low, high, n, tuple(errors))

    def _rows(self, outputs: Sequence[Floats], reference: FloatOutputs) -> list[Floats]:
        """Returns, for each output, the difference and the size it is relative to. [samples, 2]"""
        if self.kind is MetricKind.TOP1:
            rows = [_disagreement(*pair) for pair in zip(outputs, reference.outputs, strict=True)]
            if not any(row is not None for row in rows):
                raise UsageError(
                    "no output of the model has several values to choose the largest of: top1 is "
                    "for classes; take another metric (relative)"
                )
            return [row for row in rows if row is not None]
        triples = zip(outputs, reference.outputs, reference.means, strict=True)
        return [_squares(*triple) for triple in triples]

    def _interval(self, error: float, rows: Sequence[Floats], n: int) -> tuple[float, float]:
        if n < 2 or not math.isfinite(error):
            return 0.0, math.inf
        if error == 0 and self.kind is not MetricKind.TOP1:
            return 0.0, 0.0
        random = np.random.default_rng(0)
        if self.kind is MetricKind.TOP1:
            # Jeffreys' prior adds half a sample of each kind: 0 of 100 does not mean never.
            rows = [np.concatenate([row, [[0.5, 0.5], [0.0, 0.5]]]) for row in rows]
            weights = np.concatenate([np.ones(n), [0.5, 0.5]]) / (n + 1)
            first, other = means_drawn(rows, weights, n, random)
            ends = interval_ends(other - first, n)
            return max(0.0, error + ends[0]), min(1.0, error + ends[1])
        pairs = []
        rows = [with_beyond(row) for row in rows]
        for counts in drawn_counts(n + 1, np.full(n + 1, 1 / (n + 1)), n, 2 * DRAWS, random):
            sums = [counts @ row for row in rows]
            pairs.append(np.max([_formed(self.kind, s) for s in sums], axis=0))
        drawn = np.concatenate(pairs)
        with np.errstate(divide="ignore", invalid="ignore"):
            apart = np.log(drawn[DRAWS:]) - np.log(drawn[:DRAWS])
        ends = interval_ends(apart[np.isfinite(apart)], n)
        return error * math.exp(ends[0]), error * math.exp(min(ends[1], 700.0))


# Parts of errors


def _formed(kind: MetricKind, total: Floats) -> Floats:
    """Returns the error from [..., 2] sums over samples."""
    apart, size = total[..., 0], total[..., 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(apart == 0, 0.0, apart / size)
    return np.asarray(np.sqrt(ratio) if kind is MetricKind.RELATIVE else ratio)


def _squares(output: Floats, reference: Floats, mean: Floats) -> Floats:
    """Returns the squared difference and squared size of each sample. [samples, 2]"""
    n = len(reference)
    if output.shape != reference.shape:
        return np.tile([math.inf, 1.0], (n, 1))
    with np.errstate(invalid="ignore"):
        same = (output == reference) | (np.isnan(output) & np.isnan(reference))
        apart = np.where(same, 0.0, output - reference).reshape(n, -1)
        size = np.where(np.isfinite(reference), reference - mean, 0.0).reshape(n, -1)
    apart = np.where(np.isfinite(apart), apart, math.inf)
    return np.stack([np.square(apart).sum(1), np.square(size).sum(1)], axis=1)


def _disagreement(output: Floats, reference: Floats) -> Floats | None:
    """Returns, for each sample, the share of places whose largest value is at another index, and 1.
    [samples, 2]

    Classes are the second dimension of images [N, C, H, W], else the last. Returns None where there
    is only one.
    """
    n = len(reference)
    axis = 2 if reference.ndim == 5 else reference.ndim - 1
    if reference.ndim < 2 or reference.shape[axis] < 2:
        return None
    if output.shape != reference.shape:
        return np.ones((n, 2))
    others = output.argmax(axis) != reference.argmax(axis)
    return np.stack([others.reshape(n, -1).mean(1), np.ones(n)], axis=1)


# Intervals of an error over other samples

COVERAGE = 0.95
DRAWN_COVERAGE = 0.975
"""Coverage of drawn sets. Samples show too little of their own tail: an interval of 95 of 100 drawn
errors had 93 of 100 errors of other data (tests/precision/test_metrics.py has such data)."""
DRAWS = 1000
"""Number of draws of either set of samples; 12 of them are beyond each end of an interval."""
_CHUNK = 1 << 22
"""Most numbers in a block of draws."""


def drawn_counts(
    n: int, weights: Floats, size: int, draws: int, random: np.random.Generator
) -> Iterator[Floats]:
    """Yields how often each of ``n`` samples is in each of ``draws`` sets of ``size``, in blocks
    [draws, n]."""
    block = max(1, _CHUNK // n)
    for start in range(0, draws, block):
        count = min(block, draws - start)
        yield random.multinomial(size, weights, size=count).astype(np.float64)


def with_beyond(row: Floats) -> Floats:
    """Appends a sample to [samples, 2]. A new sample differs by more than all ``n`` others once in
    n + 1 times; it is assumed to differ by twice their maximum."""
    return np.concatenate([row, [[2 * row[:, 0].max(), row[:, 1].mean()]]])


def means_drawn(
    rows: Sequence[Floats], weights: Floats, size: int, random: np.random.Generator
) -> tuple[Floats, Floats]:
    """Returns the largest mean of several outputs in :data:`DRAWS` draws of each of two sets."""
    values = [np.asarray(row[:, 0] / np.where(row[:, 1] > 0, row[:, 1], 1.0)) for row in rows]
    means = [
        np.max([counts @ value / size for value in values], axis=0)
        for counts in drawn_counts(len(weights), weights, size, 2 * DRAWS, random)
    ]
    drawn = np.concatenate(means)
    return drawn[:DRAWS], drawn[DRAWS:]


def interval_ends(apart: Floats, n: int) -> tuple[float, float]:
    """Returns the interval of an error over other samples, from the distances of drawn ones. It is
    wider where ``n`` is small, as drawing from few samples shows too little spread."""
    if apart.size == 0:
        return 0.0, 0.0
    tail, drawn_tail = (1 - COVERAGE) / 2, (1 - DRAWN_COVERAGE) / 2
    factor = stats.t.ppf(1 - tail, n - 1) / stats.norm.ppf(1 - tail) * math.sqrt(n / (n - 1))
    low, high = np.quantile(apart, [drawn_tail, 1 - drawn_tail])
    return min(0.0, float(low * factor)), max(0.0, float(high * factor))
