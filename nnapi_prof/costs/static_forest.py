"""Trees that learn what roofline and correction leave, where a table is long enough.

Extra trees (Geurts, Ernst and Wehenkel, Extremely randomized trees, Machine Learning 63, 2006) over
the same features as the correction: they find the steps that no smooth function has, as from one
kernel of a driver to another. scikit-learn grows them, and is needed for nothing else: a
:class:`Forest` is plain arrays, which numpy reads and descriptions hold as numbers.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.costs.static_work import Floats, Sample, Work, raw_inputs

if TYPE_CHECKING:
    from nnapi_prof.costs.static_model import TargetModel

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
        found: Floats = self.number[at].mean(axis=1)
        return found


def check_forest(forest: Forest, n_features: int) -> None:
    """Raises ValueError where its arrays are no trees: a walk could leave them, or never end."""
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
    samples: Sequence[Sample], model: TargetModel, kinds: Sequence[str], seed: int
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
    return _joined(kinds, [one.tree_ for one in trees.estimators_])


def _joined(kinds: Sequence[str], trees: Sequence[Any]) -> Forest:
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
