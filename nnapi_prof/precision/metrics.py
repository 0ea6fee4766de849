"""How far a plan's outputs are from those of float32: errors, and what other data would show.

An error is a number, and smaller is better; 0.02 is 2 %. It is formed from many samples at once, so
that a sample with large outputs counts for more than one with small ones:

``relative``
    Root of the mean square difference, relative to that of the reference outputs less their mean
    over the calibration data. Its logarithm is the ratio of signal to noise (:func:`sqnr_db`).
``mean``
    Mean difference, relative to the mean of the reference outputs less their mean.
``largest``
    Largest difference, relative to the largest of the reference outputs less their mean.
``cosine``
    1 less the cosine between outputs and reference, both less the mean, in the mean over samples.
``top1``
    Share of samples (of places, where an output has several) whose largest value is another one.
``module:function``
    ``function(outputs, targets)`` of the user's, less the same of the reference: what the plan adds
    to it, which may be negative. :class:`UserMetric` says what it gets.

A mean is one number for each place in an output, so that what no input changes counts for nothing.
Of several outputs the one with the largest error counts.

An interval is for the same error on other data: as many samples of the same kind as these, drawn
anew, fall into it 19 times of 20. It comes from drawing both sets from the samples (bootstrap), and
is wider by Student's factor where there are few; of a single sample nothing follows. A user's
function that is not a mean over samples needs dozens of them.
"""

from __future__ import annotations

import enum
import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from nnapi_prof.errors import UsageError, did_you_mean

Floats = NDArray[np.float64]

COVERAGE = 0.95
DRAWN_COVERAGE = 0.975
"""Of drawn sets: samples show too little of their own tail, and 93 of 100 errors of other data were
where 95 of 100 drawn ones are (tests/precision/test_metrics.py has such data)."""
DRAWS = 1000
"""Of both sets of samples. The ends of an interval are quantiles of these: 12 lie beyond each."""
USER_DRAWS = 200
"""The same where a user's function is called for each."""
CONSTANT = 1e-5
"""An output that varies by less than this of its size, over the calibration data, is judged against
its size: about what float32 rounds in deep models."""
_CHUNK = 1 << 22
"""Numbers of a block of draws."""


@dataclass(frozen=True)
class Estimate:
    """An error over some samples, and where it would lie over others."""

    error: float
    low: float
    high: float
    """The ends of the interval: of 20 other sets of as many samples, the errors of 19."""
    n_samples: int
    by_output: tuple[float, ...] = ()
    """The error of each output; empty where a user's function judges all together."""


def sqnr_db(error: float) -> float:
    """A relative error as the ratio of signal to quantisation noise: 0.01 is 40 dB."""
    return -20 * math.log10(error) if error > 0 else math.inf


@dataclass(frozen=True)
class Reference:
    """Outputs of float32, and their means over the calibration data."""

    outputs: tuple[Floats, ...]
    """One array for each output of the model, [samples, ...]."""
    means: tuple[Floats, ...]
    """One number for each place in an output; zeros for outputs that hardly vary."""
    steady: tuple[int, ...] = ()
    """Those outputs: their errors are relative to their size."""

    @classmethod
    def calibrated(cls, outputs: Sequence[Floats]) -> Reference:
        """The reference over the calibration data itself."""
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

    def over(self, outputs: Sequence[Floats]) -> Reference:
        """The reference over other data, less the same means."""
        return Reference(tuple(outputs), self.means, self.steady)

    @property
    def n_samples(self) -> int:
        return len(self.outputs[0]) if self.outputs else 0


def stacked(samples: Sequence[Sequence[Tensor]]) -> tuple[Floats, ...]:
    """The outputs of each sample as one array for each output, [samples, ...]; a complex number is
    two."""

    def real(value: Tensor) -> Floats:
        plain = torch.view_as_real(value) if value.is_complex() else value
        result: Floats = plain.detach().double().numpy()
        return result

    return tuple(np.stack([real(value) for value in row]) for row in zip(*samples, strict=True))


class Metric(Protocol):
    """An error of outputs."""

    @property
    def name(self) -> str:
        """As the user spells it."""
        ...

    @property
    def needs_targets(self) -> bool: ...

    def estimate(
        self, outputs: Sequence[Floats], reference: Reference, targets: Sequence[Any] | None = None
    ) -> Estimate:
        """The error of ``outputs`` ([samples, ...] each), and its interval.

        ``targets`` has one for each sample. Raises UsageError where the metric does not fit them.
        """
        ...


class Kind(enum.Enum):
    """The metrics that need no targets."""

    RELATIVE = "relative"
    MEAN = "mean"
    LARGEST = "largest"
    COSINE = "cosine"
    TOP1 = "top1"


def metric_of(name: str) -> Metric:
    """The metric that ``--metric`` names. Raises UsageError."""
    if ":" in name:
        return UserMetric(name, _function(name))
    kinds = {kind.value: kind for kind in Kind}
    if name not in kinds:
        raise UsageError(
            f"no metric {name!r}{did_you_mean(name, kinds)}: there are {', '.join(kinds)}, and a "
            "function of your own as module:function"
        )
    return BuiltInMetric(kinds[name])


def _function(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    try:
        function = importlib.import_module(module)
        for part in attribute.split("."):
            function = getattr(function, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"the metric {name} cannot be imported: {error}; it is spelled module:function, and "
            "the module's folder stands in PYTHONPATH"
        ) from error
    if not callable(function):
        raise UsageError(f"the metric {name} is not a function")
    return function


@dataclass(frozen=True)
class BuiltInMetric:
    """A metric of outputs against the reference. See the module."""

    kind: Kind = Kind.RELATIVE

    @property
    def name(self) -> str:
        return self.kind.value

    @property
    def needs_targets(self) -> bool:
        return False

    def estimate(
        self, outputs: Sequence[Floats], reference: Reference, targets: Sequence[Any] | None = None
    ) -> Estimate:
        rows = self._rows(outputs, reference)
        errors = [float(_formed(self.kind, row.sum(0), row.max(0), len(row))) for row in rows]
        error, n = max(errors, default=0.0), reference.n_samples
        low, high = self._interval(error, rows, n)
        return Estimate(error, low, high, n, tuple(errors))

    def _rows(self, outputs: Sequence[Floats], reference: Reference) -> list[Floats]:
        """Of each output what the error is formed from, [samples, 2]: the difference, and what it
        is relative to."""
        if self.kind is Kind.TOP1:
            rows = [_disagreement(*pair) for pair in zip(outputs, reference.outputs, strict=True)]
            if not any(row is not None for row in rows):
                raise UsageError(
                    "no output of the model has several values to choose the largest of: top1 is "
                    "for classes; take another metric (relative)"
                )
            return [row for row in rows if row is not None]
        triples = zip(outputs, reference.outputs, reference.means, strict=True)
        return [_statistics(self.kind, *triple) for triple in triples]

    def _interval(self, error: float, rows: Sequence[Floats], n: int) -> tuple[float, float]:
        if n < 2 or not math.isfinite(error):
            return 0.0, math.inf
        if error == 0 and self.kind is not Kind.TOP1:
            return 0.0, 0.0
        random = np.random.default_rng(0)
        if self.kind is Kind.LARGEST:
            return _interval_of_largest(error, rows, random)
        if self.kind is Kind.TOP1:
            # Jeffreys' prior: half a sample of each kind more. None of 100 is not none of all.
            rows = [np.concatenate([row, [[0.5, 0.5], [0.0, 0.5]]]) for row in rows]
            weights = np.concatenate([np.ones(n), [0.5, 0.5]]) / (n + 1)
            first, other = _means_drawn(rows, weights, n, random)
            ends = _ends(other - first, n)
            return max(0.0, error + ends[0]), min(1.0, error + ends[1])
        pairs = []
        rows = [_with_beyond(row) for row in rows]
        for counts in _drawn(n + 1, np.full(n + 1, 1 / (n + 1)), n, 2 * DRAWS, random):
            sums = [counts @ row for row in rows]
            pairs.append(np.max([_formed(self.kind, s, s, n) for s in sums], axis=0))
        drawn = np.concatenate(pairs)
        with np.errstate(divide="ignore", invalid="ignore"):
            apart = np.log(drawn[DRAWS:]) - np.log(drawn[:DRAWS])
        ends = _ends(apart[np.isfinite(apart)], n)
        return error * math.exp(ends[0]), error * math.exp(min(ends[1], 700.0))


# What errors are formed from


def _formed(kind: Kind, total: Floats, largest: Floats, n: int) -> Floats:
    """The error of [..., 2] sums over samples, or the largest of samples."""
    ends = largest if kind is Kind.LARGEST else total
    apart, size = ends[..., 0], ends[..., 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(apart == 0, 0.0, apart / size)
    return np.asarray(np.sqrt(ratio) if kind is Kind.RELATIVE else ratio)


def _statistics(kind: Kind, output: Floats, reference: Floats, mean: Floats) -> Floats:
    """[samples, 2]: difference and size of each sample."""
    n = len(reference)
    if output.shape != reference.shape:
        return np.tile([math.inf, 1.0], (n, 1))
    with np.errstate(invalid="ignore"):
        same = (output == reference) | (np.isnan(output) & np.isnan(reference))
        apart = np.where(same, 0.0, output - reference).reshape(n, -1)
        size = np.where(np.isfinite(reference), reference - mean, 0.0).reshape(n, -1)
    apart = np.where(np.isfinite(apart), apart, math.inf)
    if kind is Kind.RELATIVE:
        columns = np.square(apart).sum(1), np.square(size).sum(1)
    elif kind is Kind.MEAN:
        columns = np.abs(apart).sum(1), np.abs(size).sum(1)
    elif kind is Kind.LARGEST:
        columns = np.abs(apart).max(1, initial=0.0), np.abs(size).max(1, initial=0.0)
    else:
        columns = _angles(apart, size), np.ones(n)
    return np.stack(columns, axis=1)


def _angles(apart: Floats, size: Floats) -> Floats:
    """1 less the cosine of each sample's output with its reference."""
    finite = np.asarray(np.isfinite(apart).all(axis=1))
    moved = size + np.where(finite[:, np.newaxis], apart, 0.0)
    lengths = np.linalg.norm(moved, axis=1) * np.linalg.norm(size, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        cosines = (moved * size).sum(1) / lengths
    still = np.abs(apart).max(1, initial=0.0) == 0
    angles = np.where(lengths > 0, np.maximum(1 - cosines, 0.0), 1.0)
    return np.asarray(np.where(finite, np.where(still, 0.0, angles), math.inf))


def _disagreement(output: Floats, reference: Floats) -> Floats | None:
    """[samples, 2]: the share of each sample's places whose largest value is another one, and 1.

    Classes are the second dimension of images [N, C, H, W], else the last. None where there is but
    one.
    """
    n = len(reference)
    axis = 2 if reference.ndim == 5 else reference.ndim - 1
    if reference.ndim < 2 or reference.shape[axis] < 2:
        return None
    if output.shape != reference.shape:
        return np.ones((n, 2))
    others = output.argmax(axis) != reference.argmax(axis)
    return np.stack([others.reshape(n, -1).mean(1), np.ones(n)], axis=1)


# Intervals


def _drawn(
    n: int, weights: Floats, size: int, draws: int, random: np.random.Generator
) -> Iterator[Floats]:
    """How often each of ``n`` samples is in each of ``draws`` sets of ``size``, in blocks
    [draws, n]."""
    block = max(1, _CHUNK // n)
    for start in range(0, draws, block):
        count = min(block, draws - start)
        yield random.multinomial(size, weights, size=count).astype(np.float64)


def _with_beyond(row: Floats) -> Floats:
    """[samples, 2] and one more: a new sample differs by more than all ``n`` at hand once in n + 1
    times. It is taken to differ by twice as much as they do."""
    return np.concatenate([row, [[2 * row[:, 0].max(), row[:, 1].mean()]]])


def _means_drawn(
    rows: Sequence[Floats], weights: Floats, size: int, random: np.random.Generator
) -> tuple[Floats, Floats]:
    """The largest mean of several outputs, in as many draws of one set as of another."""
    values = [np.asarray(row[:, 0] / np.where(row[:, 1] > 0, row[:, 1], 1.0)) for row in rows]
    means = [
        np.max([counts @ value / size for value in values], axis=0)
        for counts in _drawn(len(weights), weights, size, 2 * DRAWS, random)
    ]
    drawn = np.concatenate(means)
    return drawn[:DRAWS], drawn[DRAWS:]


def _ends(apart: Floats, n: int) -> tuple[float, float]:
    """Where an error over other samples lies, from how far drawn ones lie apart; further out where
    ``n`` is small, as drawing from few samples shows too little spread."""
    if apart.size == 0:
        return 0.0, 0.0
    tail, drawn_tail = (1 - COVERAGE) / 2, (1 - DRAWN_COVERAGE) / 2
    factor = stats.t.ppf(1 - tail, n - 1) / stats.norm.ppf(1 - tail) * math.sqrt(n / (n - 1))
    low, high = np.quantile(apart, [drawn_tail, 1 - drawn_tail])
    return min(0.0, float(low * factor)), max(0.0, float(high * factor))


TAIL_SHARE = 0.2
"""Of the samples: the largest, which say how the largest of others is distributed."""


def _interval_of_largest(
    error: float, rows: Sequence[Floats], random: np.random.Generator
) -> tuple[float, float]:
    """Where the largest difference over as many other samples lies: every second draw has a larger
    one than this."""
    drawn = []
    for row in rows:
        apart, size = (_largest_drawn(column, random) for column in row.T)
        with np.errstate(divide="ignore"):
            drawn.append(apart / size)
    low, high = np.quantile(np.max(drawn, axis=0), [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    return min(error, float(low)), max(error, float(high))


def _largest_drawn(values: Floats, random: np.random.Generator) -> Floats:
    """The largest of as many other values, [draws].

    The largest fifth says how others are distributed: their logarithms as exponential (a tail as
    heavy as any that has a mean), as uncertain as so few make it.
    """
    n = len(values)
    n_tail = min(n - 1, max(3, round(n * TAIL_SHARE)))
    ordered = np.log(np.maximum(np.sort(values), 1e-300))
    start = ordered[n - n_tail - 1]
    excess = float((ordered[n - n_tail :] - start).mean())
    # How many of another draw lie beyond ``start``, and the largest of them.
    counts = random.binomial(n, n_tail / n, size=DRAWS)
    scales = excess * n_tail / random.gamma(n_tail, size=counts.size)
    with np.errstate(divide="ignore"):
        uniform = np.log(random.random(counts.size)) / counts
    beyond = np.where(counts > 0, -np.log(-np.expm1(uniform)), 0.0)
    return np.asarray(np.exp(np.minimum(start + scales * beyond, 700.0)))


# A user's own


@dataclass(frozen=True)
class UserMetric:
    """``function(outputs, targets)``: a number, smaller is better (the share of wrong classes, a
    loss), of all samples at once.

    ``outputs`` is the model's output as one tensor, a tuple of them where there are several; their
    samples are joined along the first dimension. So are the targets, where they are numbers, or
    tensors or arrays of one shape; else they come as a list.
    """

    name: str
    function: Callable[..., Any] = field(repr=False, compare=False)

    @property
    def needs_targets(self) -> bool:
        return True

    def estimate(
        self, outputs: Sequence[Floats], reference: Reference, targets: Sequence[Any] | None = None
    ) -> Estimate:
        n = reference.n_samples
        if targets is None or len(targets) != n:
            count = "no targets" if targets is None else f"{len(targets)} targets"
            raise UsageError(
                f"the metric {self.name} needs a target for each of {n} samples, there are {count}:"
                " give them with the calibration data, as (inputs, target)"
            )
        if all(map(np.array_equal, outputs, reference.outputs)):
            return Estimate(0.0, 0.0, 0.0, n)
        mine, theirs = (
            [torch.from_numpy(output).float() for output in every]
            for every in (outputs, reference.outputs)
        )
        wishes = _tensor(targets)

        def added(samples: NDArray[np.int64]) -> float:
            chosen = torch.from_numpy(samples)
            answers = [targets[i] for i in samples] if wishes is None else _joined(wishes, chosen)
            return self._call([_joined(o, chosen) for o in mine], answers) - self._call(
                [_joined(o, chosen) for o in theirs], answers
            )

        error = added(np.arange(n))
        return Estimate(error, *self._interval(error, added, n), n)

    def _interval(
        self, error: float, added: Callable[[NDArray[np.int64]], float], n: int
    ) -> tuple[float, float]:
        if n < 2 or not math.isfinite(error):
            return -math.inf, math.inf
        random = np.random.default_rng(0)
        alone = self._alone(added, n)
        if alone is not None and math.isclose(float(alone.mean()), error, abs_tol=1e-9):
            # A mean over samples. Where hardly any changes, those that did not change are no proof
            # that none would: half a sample more, one step up and one down.
            step = float(np.abs(alone).max()) or 1.0
            rows = [np.stack([np.append(alone, [step, -step]), np.ones(n + 2)], axis=1)]
            weights = np.append(np.ones(n), [0.25, 0.25]) / (n + 0.5)
            first, other = _means_drawn(rows, weights, n, random)
            ends = _ends(other - first, n)
        else:
            apart = [
                added(random.integers(0, n, n)) - added(random.integers(0, n, n))
                for _ in range(USER_DRAWS)
            ]
            ends = _ends(np.array(apart), n)
        return error + ends[0], error + ends[1]

    def _alone(self, added: Callable[[NDArray[np.int64]], float], n: int) -> Floats | None:
        """What the function says of each sample alone; None where it refuses one."""
        try:
            return np.array([added(np.array([i])) for i in range(n)])
        except UsageError:
            return None

    def _call(self, outputs: Sequence[Tensor], targets: Any) -> float:
        try:
            answer = self.function(outputs[0] if len(outputs) == 1 else tuple(outputs), targets)
            number = float(answer)
        except Exception as error:  # the user's code may raise anything
            words = " ".join(str(error).split()) or type(error).__name__
            raise UsageError(f"the metric {self.name} failed: {words}") from error
        if math.isnan(number):
            raise UsageError(f"the metric {self.name} gave NaN, a number is needed")
        return number


def _joined(values: Tensor, samples: Tensor) -> Tensor:
    """Of [all samples, first, ...] some, as [samples x first, ...]."""
    chosen = values[samples]
    return chosen.flatten(0, 1) if chosen.dim() > 1 else chosen


def _tensor(targets: Sequence[Any]) -> Tensor | None:
    """Targets as one tensor [samples, ...]; None where they are neither tensors of one shape nor
    numbers."""
    if not all(isinstance(t, Tensor | np.ndarray | np.generic | int | float) for t in targets):
        return None
    tensors = [torch.as_tensor(t) for t in targets]
    return torch.stack(tensors) if len({t.shape for t in tensors}) == 1 else None
