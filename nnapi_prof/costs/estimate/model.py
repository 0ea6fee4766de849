"""Estimates what an operation takes on one target from its shapes: a roofline and a smooth
correction.

    latency = sum over operations (o) of roof(o) * exp(correction(o) + forest(o))
              + invocation + in_bytes * per_in_byte + out_bytes * per_out_byte
    roof    = operation_ns + macs * ns_per_mac[kind] + moved * ns_per_byte
              + gathered * ns_per_gathered_byte

The correction is a kernel regression (Matern 3/2 and a linear part) over
:data:`nnapi_prof.costs.estimate.FEATURES` with a few centres. The more an operation is unlike
all that the model was fitted to, the more the stated error becomes that of the roofline alone. The
forest (:mod:`nnapi_prof.costs.estimate.model`) is there where tables were long.
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
"""Operations that compute and move nothing worth speaking of."""
MOVERS = frozenset({"TRANSPOSE", "PAD", "STRIDED_SLICE", "SLICE", "CONCATENATION", "SPLIT"})
"""Operations that move data and compute nothing."""
SMALL, MOVED_OFF = 0.05, 4.0
MOST_CORRECTION = math.log(4)
"""A correction is at most fourfold, either way: beyond that it is extrapolation."""


@dataclass(frozen=True)
class Roof:
    """The prices of an operation."""

    operation_ns: float
    ns_per_byte: float
    ns_per_mac: Mapping[str, float]
    """By :attr:`Work.rate`; "default" for the others."""
    ns_per_gathered_byte: float = 0.0
    """Of :attr:`Work.gathered`."""

    def ns(self, work: Work) -> float:
        rate = self.ns_per_mac.get(work.rate)
        if rate is None:
            rate = self.ns_per_mac["default"]
        bytes_ns = work.moved * self.ns_per_byte + work.gathered * self.ns_per_gathered_byte
        return self.operation_ns + work.macs * rate + bytes_ns


@dataclass(frozen=True)
class Correction:
    """log(latency / roof) as a function of features and kind."""

    kinds: tuple[str, ...]
    """Of :attr:`Work.rate`: each is a feature of its own, next to the others."""
    mean: Floats = field(repr=False)
    scale: Floats = field(repr=False)
    """Features are (raw - mean) * scale; 0 where the fitted rows did not differ."""
    length: float
    """Of the kernel, in scaled features: how far what was measured speaks for others."""
    centres: Floats = field(repr=False)
    """[m, features], scaled."""
    weights: Floats = field(repr=False)
    """[m + features + 1]: of the centres, of the slopes, of one constant."""

    def inputs(self, works: Sequence[Work]) -> Floats:
        """[n, features], scaled."""
        return scaled(works, self.kinds, self.mean, self.scale)

    def basis(self, x: Floats) -> Floats:
        """[n, m + features + 1] for scaled features."""
        return np.hstack([kernel(x, self.centres, self.length), linear(x)])

    def log_ratio(self, works: Sequence[Work]) -> Floats:
        ratio: Floats = self.basis(self.inputs(works)) @ self.weights
        return np.clip(ratio, -MOST_CORRECTION, MOST_CORRECTION)

    def familiar(self, works: Sequence[Work]) -> Floats:
        """0 to 1: how near to a centre each operation is."""
        near: Floats = kernel(self.inputs(works), self.centres, self.length).max(axis=1, initial=0)
        return near


def scaled(works: Sequence[Work], kinds: Sequence[str], mean: Floats, scale: Floats) -> Floats:
    """[n, features + kinds]."""
    raw = raw_inputs(works, kinds)
    values: Floats = (raw - mean) * scale
    return values


def kernel(x: Floats, centres: Floats, length: float) -> Floats:
    """Matern 3/2: (1 + d) exp(-d), d = sqrt(3) |x - centre| / length."""
    square = (x**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1) - 2 * x @ centres.T
    d = np.sqrt(3 * np.maximum(square, 0)) / length
    similarity: Floats = (1 + d) * np.exp(-d)
    return similarity


def linear(x: Floats) -> Floats:
    """The linear part of the basis, and the constant."""
    weight = math.sqrt(LINEAR_WEIGHT / x.shape[1])
    return np.hstack([x * weight, np.ones((len(x), 1))])


@dataclass(frozen=True)
class TargetModel:
    """One target of a device."""

    roof: Roof
    correction: Correction | None = None
    forest: Forest | None = None
    invocation_ns: float = 0.0
    ns_per_in_byte: float = 0.0
    ns_per_out_byte: float = 0.0
    errors: ErrorBounds | None = None
    """None where nothing was fitted, so that nobody knows."""
    refused: frozenset[str] = frozenset()
    """Kinds (:attr:`Work.rate`) of which none ran there."""

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
        """:meth:`sample_ns` of each, faster."""
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
        """Whether an operation of its type was ever measured there. What only renames (a reshape)
        needs no measurement."""
        return work.kind in FREE or work.rate in self.roof.ns_per_mac

    def uncertainty(self, works: Sequence[Work]) -> float | None:
        """The relative error that nine of ten predictions stay below; None where nobody knows:
        nothing was fitted, or a type was never measured. Of what only moves data
        (:data:`MOVERS`), and less than :data:`SMALL` of the whole, bytes tell enough: it may take
        :data:`MOVED_OFF` times what it is estimated at. Errors of several are put together as
        :mod:`nnapi_prof.costs.estimate.model` says."""
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
        """0 to 1: how near to what was measured each operation is."""
        if self.correction is None or not works:
            return np.ones(len(works))
        return self.correction.familiar(works)


# ---- error bounds -------------------------------------------------------------------------------


NINE_TENTHS = 0.9
NORMAL = 1.645
"""Normal quantile of nine of ten: what the factor of a sum of many comes to."""
MOST_ERROR = 3.0
"""Typical deviations beyond which an error counts no more when spreads are fitted."""


@dataclass(frozen=True)
class ErrorBounds:
    """Relative errors of predictions, out of fold, put together as errors are.

    The logarithm of measured / predicted of a sum of operations is taken to be the sum, by their
    shares ``s`` of it, of an error of each operation (equal operations err alike) and one of each
    kind:

        spread^2 = own^2 * sum over operations (s^2) + kind^2 * sum over kinds ((sum of s)^2)
                 + whole^2

    so that the errors of a network's many layers cancel as far as they do in the samples. A band is
    ``factor`` times the spread. The factor is conformal: of the samples' own errors divided by
    their own spreads, out of fold, that which nine of ten are below.
    """

    half: float
    """Half of the samples' are below."""
    nine_tenths: float
    """Nine of ten are below."""
    own: float
    """Spread of an operation's, alone (a logarithm's standard deviation)."""
    kind: float
    """Spread of what operations of a kind have in common."""
    whole: float
    """Spread of what all operations have in common."""
    factor: float
    """Spreads to a band of nine of ten, of samples like those that were fitted to."""
    focus: float
    """Sum of squared shares of those samples: 1 where each was one operation."""
    strange: float
    """``own`` of operations unlike all that were seen: of the roofline alone."""

    def band(self, works: Sequence[Work], ns: Floats, familiar: Floats) -> float:
        """Relative error that nine of ten predictions of a sum stay below.

        ``ns`` are the parts of the sum, ``familiar`` is 0 to 1 for each.
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
    """Sum of squared shares of equal operations, times their spreads; and of kinds."""
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
    """From predicted / measured - 1 of each sample, out of fold; ``plain`` of the roofline."""
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
    """[samples, 2]: of operations, and of kinds, the sums of squared shares."""
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
    """own, kind, whole.

    Of samples of several operations by their mean square; of operations alone what a kind has in
    common by the products of pairs.
    """
    single = np.array([len(sample.works) == 1 for sample in samples])
    if single.mean() < 0.5:
        # Networks' shares are too much alike to tell the two apart: half is taken for either.
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
    """Mean product of two different errors of the same group."""
    products = sum(sum(group) ** 2 - sum(v * v for v in group) for group in groups)
    pairs = sum(len(group) * (len(group) - 1) for group in groups)
    return products / pairs if pairs else 0.0


# ---- forest -------------------------------------------------------------------------------------


TREES = 16
"""50 are not better by a tenth of a percent."""
LEAF = 3
"""Rows in a leaf, at least."""
DIGITS = 5
"""Significant ones of a split or leaf: what is kept in a description is what is computed with."""
NO_FEATURE = -1
"""Stands for the feature of a leaf."""


@dataclass(frozen=True)
class Forest:
    """log(latency / what the rest of the model says), the mean over trees.

    Extra trees (Geurts, Ernst and Wehenkel, Extremely randomized trees, Machine Learning 63, 2006)
    over the same features as the correction: they find the steps that no smooth function has, as
    from one kernel of a driver to another. scikit-learn grows them, and is needed for nothing else.

    The trees' nodes, one tree after the other; a tree begins at one of ``roots``, its own nodes in
    depth-first order: the lower child of a node is the next one.
    """

    kinds: tuple[str, ...]
    roots: NDArray[np.intp] = field(repr=False)
    feature: NDArray[np.intp] = field(repr=False)
    """Of each node; :data:`NO_FEATURE` of a leaf."""
    number: Floats = field(repr=False)
    """Of a leaf its value; of others what a feature must exceed to go to ``upper``."""
    upper: NDArray[np.intp] = field(repr=False)
    """The other child; 0 of a leaf."""

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
    """Raises ValueError where its arrays are not trees: a walk could leave them, or never end."""
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
    """Whether scikit-learn is there."""
    return importlib.util.find_spec("sklearn") is not None


def fit_forest(
    samples: Sequence[WorkSample], model: TargetModel, kinds: Sequence[str], seed: int
) -> Forest:
    """The forest of what ``model`` leaves; scikit-learn must be there (:func:`can_learn`).

    Every operation of a sample is taken to be as far off as the sample is, and counts by the square
    of its share: those that were timed alone decide. The same samples give the same forest.
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
    """scikit-learn's trees as one list of nodes."""
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
