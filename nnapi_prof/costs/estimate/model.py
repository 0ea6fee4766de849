"""Estimate the latency of operations on one target from their shapes, by a roofline and a smooth
correction.

    latency = sum over operations (o) of roof(o) * exp(correction(o) + forest(o))
              + invocation + in_bytes * per_in_byte + out_bytes * per_out_byte
    roof    = operation_ns + macs * ns_per_mac[kind] + moved * ns_per_byte
              + gathered * ns_per_gathered_byte

The correction is a kernel regression (Matern 3/2 and a linear part) over
:data:`nnapi_prof.costs.estimate.FEATURES` with a few centres. The less an operation resembles those
that the model was fitted to, the closer the stated error is to that of the roofline alone. Only
models fitted to long tables have a :class:`Forest`.
"""

from __future__ import annotations

import importlib.util
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.costs.estimate import Floats, Work, WorkSample, raw_inputs

LINEAR_WEIGHT = 0.1
"""Prior variance of the linear part's slopes against the kernel's variance of 1."""
FREE = frozenset({"RESHAPE", "SQUEEZE", "EXPAND_DIMS"})
"""Operations that compute and move next to nothing."""
MOVERS = frozenset({"TRANSPOSE", "PAD", "STRIDED_SLICE", "SLICE", "CONCATENATION", "SPLIT"})
"""Operations that move data and compute nothing."""
SMALL, MOVED_OFF = 0.05, 4.0
MOST_CORRECTION = math.log(4)
"""Logarithm of the largest correction, fourfold either way: beyond that it is extrapolation."""


@dataclass(frozen=True)
class Roof:
    """Prices of an operation."""

    operation_ns: float
    ns_per_byte: float
    ns_per_mac: Mapping[str, float]
    """:attr:`Work.rate` -> ns; "default" for the others."""
    ns_per_gathered_byte: float = 0.0
    """Price of a byte of :attr:`Work.gathered`."""

    def ns(self, work: Work) -> float:
        rate = self.ns_per_mac.get(work.rate)
        if rate is None:
            rate = self.ns_per_mac["default"]
        bytes_ns = work.moved * self.ns_per_byte + work.gathered * self.ns_per_gathered_byte
        return self.operation_ns + work.macs * rate + bytes_ns


@dataclass(frozen=True)
class Correction:
    """Correction log(latency / roof) as a function of features and kind."""

    kinds: tuple[str, ...]
    """Keys of :attr:`Work.rate`, each of which is an additional feature."""
    mean: Floats = field(repr=False)
    scale: Floats = field(repr=False)
    """Features are (raw - mean) * scale; 0 where the fitted rows did not differ."""
    length: float
    """Length of the kernel in scaled features: the distance that measurements inform others at."""
    centres: Floats = field(repr=False)
    """[m, features], scaled."""
    weights: Floats = field(repr=False)
    """[m + features + 1]: weights of the centres, the slopes and one constant."""

    def inputs(self, works: Sequence[Work]) -> Floats:
        """Returns scaled features. [n, features]"""
        return scaled(works, self.kinds, self.mean, self.scale)

    def basis(self, x: Floats) -> Floats:
        """Returns the basis functions for scaled features. [n, m + features + 1]"""
        return np.hstack([kernel(x, self.centres, self.length), linear(x)])

    def log_ratio(self, works: Sequence[Work]) -> Floats:
        ratio: Floats = self.basis(self.inputs(works)) @ self.weights
        return np.clip(ratio, -MOST_CORRECTION, MOST_CORRECTION)

    def familiar(self, works: Sequence[Work]) -> Floats:
        """Returns the similarity of each operation to the nearest centre, from 0 to 1."""
        near: Floats = kernel(self.inputs(works), self.centres, self.length).max(axis=1, initial=0)
        return near


def scaled(works: Sequence[Work], kinds: Sequence[str], mean: Floats, scale: Floats) -> Floats:
    """Returns scaled features. [n, features + kinds]"""
    raw = raw_inputs(works, kinds)
    values: Floats = (raw - mean) * scale
    return values


def kernel(x: Floats, centres: Floats, length: float) -> Floats:
    """Returns the Matern 3/2 kernel: (1 + d) exp(-d), d = sqrt(3) |x - centre| / length."""
    square = (x**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1) - 2 * x @ centres.T
    d = np.sqrt(3 * np.maximum(square, 0)) / length
    similarity: Floats = (1 + d) * np.exp(-d)
    return similarity


def linear(x: Floats) -> Floats:
    """Returns the linear part of the basis, and the constant."""
    weight = math.sqrt(LINEAR_WEIGHT / x.shape[1])
    return np.hstack([x * weight, np.ones((len(x), 1))])


@dataclass(frozen=True)
class TargetModel:
    """Static model of one target of a device."""

    roof: Roof
    correction: Correction | None = None
    forest: Forest | None = None
    invocation_ns: float = 0.0
    ns_per_in_byte: float = 0.0
    ns_per_out_byte: float = 0.0
    errors: ErrorBounds | None = None
    """None where nothing was fitted, so that errors are unknown."""
    refused: frozenset[str] = frozenset()
    """Kinds (:attr:`Work.rate`) of which no operation ran there."""

    def works_ns(self, works: Sequence[Work]) -> Floats:
        """Estimates each operation in ns, without invocation and transfer."""
        roof = np.array([self.roof.ns(work) for work in works], dtype=float)
        return roof * np.exp(self.log_ratio(works))

    def log_ratio(self, works: Sequence[Work]) -> Floats:
        """Returns the logarithms of the factors by which correction and forest multiply the
        roofline."""
        ratio = np.zeros(len(works))
        if self.correction is not None and works:
            ratio = self.correction.log_ratio(works)
        if self.forest is not None and works:
            ratio = ratio + self.forest.log_ratio(works)
        return ratio

    def sample_ns(self, sample: WorkSample) -> float:
        """Predicts the latency that :class:`WorkSample` measured."""
        return (
            float(self.works_ns(sample.works).sum())
            + sample.invocations * self.invocation_ns
            + sample.in_bytes * self.ns_per_in_byte
            + sample.out_bytes * self.ns_per_out_byte
        )

    def samples_ns(self, samples: Sequence[WorkSample]) -> Floats:
        """Predicts several samples at once, faster than :meth:`sample_ns` of each."""
        owner = np.repeat(np.arange(len(samples)), [len(sample.works) for sample in samples])
        each = self.works_ns([work for sample in samples for work in sample.works])
        fixed = [
            s.invocations * self.invocation_ns
            + s.in_bytes * self.ns_per_in_byte
            + s.out_bytes * self.ns_per_out_byte
            for s in samples
        ]
        ns: Floats = np.bincount(owner, weights=each, minlength=len(samples)) + np.array(fixed)
        return ns

    def knows(self, work: Work) -> bool:
        """Returns whether an operation of its type was ever measured there, or needs no measurement
        (:data:`FREE`)."""
        return work.kind in FREE or work.rate in self.roof.ns_per_mac

    def uncertainty(self, works: Sequence[Work]) -> float | None:
        """Returns the relative error that nine of ten predictions stay below; None where it is
        unknown, since nothing was fitted or a type of operation was never measured.

        Operations of such a type that only move data (:data:`MOVERS`) may make up to :data:`SMALL`
        of the latency: for them the error includes :data:`MOVED_OFF` times their estimate. Errors
        are combined by :class:`ErrorBounds`.
        """
        if self.errors is None or not works:
            return None
        ns = self.works_ns(works)
        strange = np.array([not self.knows(work) for work in works])
        share = float(ns[strange].sum() / max(ns.sum(), 1e-9))
        moves = all(w.kind in MOVERS for w, new in zip(works, strange, strict=True) if new)
        if strange.any() and (not moves or share > SMALL):
            return None
        return self.errors.band(works, ns, self.familiar(works)) + MOVED_OFF * share

    def familiar(self, works: Sequence[Work]) -> Floats:
        """Returns the similarity of each operation to measured ones, from 0 to 1."""
        if self.correction is None or not works:
            return np.ones(len(works))
        return self.correction.familiar(works)


# ---- error bounds -------------------------------------------------------------------------------


NINE_TENTHS = 0.9
NORMAL = 1.645
"""Two-sided normal quantile of nine of ten, which the factor of a sum of many approaches."""
MOST_ERROR = 3.0
"""Typical deviations to which larger errors are cut when spreads are fitted."""


@dataclass(frozen=True)
class ErrorBounds:
    """Relative errors of predictions, out of fold, and how they combine.

    For a sum of operations, the logarithm of measured / predicted is modelled as a sum, weighted by
    the operations' shares ``s``, of an error of each operation (equal operations err alike) and an
    error of each kind:

        spread^2 = own^2 * sum over operations (s^2) + kind^2 * sum over kinds ((sum of s)^2)
                 + whole^2

    Thus the errors of a network's many layers cancel as far as they do in the samples. A band is
    ``factor`` times the spread. The factor is conformal: nine of ten samples have a smaller ratio
    of error, out of fold, to spread.
    """

    half: float
    """Relative error that half of the samples stay below."""
    nine_tenths: float
    """Relative error that nine of ten samples stay below."""
    own: float
    """Spread of the error of a single operation (standard deviation of a logarithm)."""
    kind: float
    """Spread of the error that operations of a kind have in common."""
    whole: float
    """Spread of the error that all operations have in common."""
    factor: float
    """Width of a band of nine of ten in spreads, for samples like the fitted ones."""
    focus: float
    """Median sum of squared shares over the fitted samples: 1 where each is one operation."""
    strange: float
    """``own`` of operations unlike all fitted ones: that of the roofline alone."""

    def band(self, works: Sequence[Work], ns: Floats, familiar: Floats) -> float:
        """Returns the relative error that nine of ten predictions of a sum stay below.

        ``ns`` are the parts of the sum, ``familiar`` their similarities to measured operations,
        from 0 to 1.
        """
        total = float(ns.sum())
        shares = ns / total if total > 0 else np.full(len(works), 1 / max(len(works), 1))
        own, kinds = _equal_shares(
            works, shares, (familiar * self.own, (1 - familiar) * self.strange)
        )
        spread = math.sqrt(own + kinds * self.kind**2 + self.whole**2)
        focus = float(_equal_shares(works, shares, (np.ones(len(works)),))[0])
        pull = min(focus / self.focus, 1.0) if self.focus > 0 else 1.0
        factor = NORMAL + (self.factor - NORMAL) * pull if self.factor > NORMAL else self.factor
        return math.expm1(min(factor * spread, 5.0))


def _equal_shares(
    works: Sequence[Work], shares: Floats, spreads: tuple[Floats, ...]
) -> tuple[float, float]:
    """Returns the sums of squared shares of equal operations, times their spreads, and of kinds."""
    each = sum(spreads)
    own: dict[Work, float] = defaultdict(float)
    kinds: dict[str, float] = defaultdict(float)
    for work, share, spread in zip(works, shares.tolist(), np.asarray(each).tolist(), strict=True):
        own[work] += share * spread
        kinds[work.rate] += share
    return sum(v**2 for v in own.values()), sum(v**2 for v in kinds.values())


def error_bounds(
    model: TargetModel, samples: Sequence[WorkSample], errors: Floats, plain: Floats
) -> ErrorBounds:
    """Fits error bounds to ``errors`` (predicted / measured - 1 of each sample, out of fold) and
    ``plain`` (the same for the roofline alone)."""
    logs = np.log1p(np.maximum(errors, -0.99))
    typical = max(1.4826 * float(np.median(np.abs(logs))), 1e-3)
    capped = np.clip(logs, -MOST_ERROR * typical, MOST_ERROR * typical)
    seen = _focus(model, samples)
    own, kind, whole = _spreads(samples, seen, capped)
    spread = np.sqrt(seen @ [own**2, kind**2] + whole**2)
    score = np.abs(logs) / np.maximum(spread, 1e-6)
    n = len(score)
    level = min(math.ceil((n + 1) * NINE_TENTHS) / n, 1.0)
    size = np.abs(errors)
    loose = 1.4826 * float(np.median(np.abs(np.log1p(np.maximum(plain, -0.99)))))
    return ErrorBounds(
        half=float(np.median(size)),
        nine_tenths=float(np.quantile(size, NINE_TENTHS)),
        own=own,
        kind=kind,
        whole=whole,
        factor=float(np.quantile(score, level)),
        focus=float(np.median(seen[:, 0])),
        strange=max(own, loose),
    )


def _focus(model: TargetModel, samples: Sequence[WorkSample]) -> Floats:
    """Returns the sums of squared shares of operations and of kinds. [samples, 2]"""
    each = model.works_ns([work for sample in samples for work in sample.works])
    pairs, start = [], 0
    for sample, total in zip(samples, model.samples_ns(samples).tolist(), strict=True):
        end = start + len(sample.works)
        shares = each[start:end] / max(total, 1e-9)
        pairs.append(_equal_shares(sample.works, shares, (np.ones(len(shares)),)))
        start = end
    return np.array(pairs)


def _spreads(
    samples: Sequence[WorkSample], seen: Floats, logs: Floats
) -> tuple[float, float, float]:
    """Returns own, kind and whole: from the mean square where most samples have several operations,
    else the part that a kind has in common from the products of pairs of single operations."""
    single = np.array([len(sample.works) == 1 for sample in samples])
    if single.mean() < 0.5:
        # Networks' shares are too similar to separate the two: each gets half.
        half = float((logs**2).mean()) / 2
        return math.sqrt(half / max(float(seen[:, 0].mean()), 1e-6)), 0.0, math.sqrt(half)
    groups: dict[str, list[float]] = defaultdict(list)
    for sample, log, alone in zip(samples, logs.tolist(), single.tolist(), strict=True):
        if alone:
            groups[sample.works[0].rate].append(log)
    kind_of_all = _shared(list(groups.values()))
    total = float((logs[single] ** 2).mean())
    kind = min(max(kind_of_all, 0.0), total)
    return math.sqrt(total - kind), math.sqrt(kind), 0.0


def _shared(groups: Sequence[Sequence[float]]) -> float:
    """Returns the mean product of two different errors of the same group."""
    products = sum(sum(group) ** 2 - sum(v * v for v in group) for group in groups)
    pairs = sum(len(group) * (len(group) - 1) for group in groups)
    return products / pairs if pairs else 0.0


# ---- forest -------------------------------------------------------------------------------------


TREES = 16
"""Number of trees; 50 are not better by a tenth of a percent."""
LEAF = 3
"""Fewest rows in a leaf."""
DIGITS = 5
"""Significant digits of a split or leaf, in computation as in descriptions."""
NO_FEATURE = -1
"""Feature index of a leaf."""


@dataclass(frozen=True)
class Forest:
    """Forest for log(latency / prediction of the rest of the model), the mean over trees.

    Extra trees (Geurts, Ernst and Wehenkel, Extremely randomized trees, Machine Learning 63, 2006)
    over the same features as the correction find steps that no smooth function has, such as those
    between two kernels of a driver. scikit-learn grows them, and is needed for nothing else.

    The arrays hold the nodes of one tree after the other. Each tree begins at one of ``roots``; its
    nodes are in depth-first order, so that the lower child of a node is the next one.
    """

    kinds: tuple[str, ...]
    roots: NDArray[np.intp] = field(repr=False)
    feature: NDArray[np.intp] = field(repr=False)
    """Feature of each node; :data:`NO_FEATURE` for a leaf."""
    number: Floats = field(repr=False)
    """Value of a leaf, or the threshold of an inner node: larger features go to ``upper``."""
    upper: NDArray[np.intp] = field(repr=False)
    """Index of each node's upper child; 0 for a leaf."""

    def log_ratio(self, works: Sequence[Work]) -> Floats:
        x = np.asarray(raw_inputs(works, self.kinds), dtype=np.float32)
        rows = np.arange(len(works))[:, None]
        at = np.broadcast_to(self.roots, (len(works), len(self.roots))).copy()
        while (inner := self.feature[at] != NO_FEATURE).any():
            above = x[rows, self.feature[at]] > self.number[at]
            at = np.where(inner, np.where(above, self.upper[at], at + 1), at)
        ratio: Floats = self.number[at].mean(axis=1)
        return ratio


def check_forest(forest: Forest, n_features: int) -> None:
    """Raises ValueError where the arrays are not trees, so that a walk could leave them or never
    end."""
    n = len(forest.feature)
    places = np.arange(n)
    inner = forest.feature != NO_FEATURE
    arrays = (forest.roots, forest.feature, forest.number, forest.upper)
    if any(array.ndim != 1 for array in arrays):
        raise ValueError("arrays of the trees")
    if not len(forest.roots) or not len(forest.number) == len(forest.upper) == n:
        raise ValueError("sizes of the trees disagree")
    if not np.isfinite(forest.number).all():
        raise ValueError("numbers of the trees")
    if (forest.feature < NO_FEATURE).any() or (forest.feature >= n_features).any():
        raise ValueError("features of the trees")
    if (forest.roots < 0).any() or (forest.roots >= n).any():
        raise ValueError("roots of the trees")
    if (forest.upper[inner] <= places[inner]).any() or (forest.upper >= n).any() or inner[-1]:
        raise ValueError("branches of the trees")


def can_learn() -> bool:
    """Returns whether scikit-learn is installed."""
    return importlib.util.find_spec("sklearn") is not None


def fit_forest(
    samples: Sequence[WorkSample], model: TargetModel, kinds: Sequence[str], seed: int
) -> Forest:
    """Fits a forest to the residuals of ``model``; needs scikit-learn (:func:`can_learn`).

    Every operation of a sample gets the residual of the sample, and the square of its share as
    weight, so that operations that were timed alone decide. The same samples give the same forest.
    """
    from sklearn.ensemble import ExtraTreesRegressor

    works = [work for sample in samples for work in sample.works]
    owner = np.repeat(np.arange(len(samples)), [len(sample.works) for sample in samples])
    predicted = model.samples_ns(samples)
    off = np.log(np.array([sample.ns for sample in samples]) / predicted)
    weight = (model.works_ns(works) / predicted[owner]) ** 2
    trees = ExtraTreesRegressor(TREES, min_samples_leaf=LEAF, random_state=seed, n_jobs=1)
    trees.fit(np.asarray(raw_inputs(works, kinds), np.float32), off[owner], sample_weight=weight)
    return _join_trees(kinds, [one.tree_ for one in trees.estimators_])


def _join_trees(kinds: Sequence[str], trees: Sequence[Any]) -> Forest:
    """Joins scikit-learn's trees into one list of nodes."""
    starts = np.cumsum([0, *(tree.node_count for tree in trees)])[:-1]
    leaf = np.concatenate([tree.children_left == -1 for tree in trees])
    number = np.concatenate(
        [np.where(tree.children_left == -1, tree.value[:, 0, 0], tree.threshold) for tree in trees]
    )
    upper = np.concatenate(
        [
            np.where(tree.children_left == -1, 0, tree.children_right + start)
            for tree, start in zip(trees, starts.tolist(), strict=True)
        ]
    )
    feature = np.where(leaf, NO_FEATURE, np.concatenate([tree.feature for tree in trees]))
    return Forest(
        tuple(kinds),
        np.asarray(starts, dtype=np.intp),
        feature.astype(np.intp),
        np.array([float(f"{value:.{DIGITS}g}") for value in number.tolist()]),
        upper.astype(np.intp),
    )
