"""Fits :class:`nnapi_prof.costs.static_model.TargetModel` to measured latencies.

1. The roofline (:mod:`nnapi_prof.costs.static_roof`).
2. The correction (:mod:`nnapi_prof.costs.static_correction`), of what the roofline leaves.
3. A forest (:mod:`nnapi_prof.costs.static_forest`), of what both leave, where there are
   :data:`LONG` samples of a few operations, and scikit-learn is installed.
4. Cross-validation of each, by configuration: correction (or a part of it) and forest stay where
   the error is the smaller with them, and the errors are what bands are made of
   (:mod:`nnapi_prof.costs.static_bands`).

Nothing is drawn at random but folds and trees, and those from a seed that is told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from nnapi_prof.costs.static_bands import error_bounds
from nnapi_prof.costs.static_correction import Setting, fit_correction
from nnapi_prof.costs.static_forest import can_learn, fit_forest
from nnapi_prof.costs.static_model import TargetModel
from nnapi_prof.costs.static_roof import fit_roof, sums_of
from nnapi_prof.costs.static_work import Floats, Sample, Work, kinds_of

MARGIN = 0.97
"""A correction or forest stays where the error, out of fold, is below this part of that without,
and most samples gain."""
PARTS = (0.5, 0.75, 1.0)
"""Of a correction, how much of it may be believed: what few samples taught overshoots."""
FEWEST = 12
"""With fewer samples there is no correction: the roofline alone has half as many prices."""
LONG, FEW = 500, 3
"""With fewer samples of a few operations there is no forest: each leaf speaks for some."""
FOLDS = 5
SEED = 0


def fit_samples(
    samples: Sequence[Sample], *, correct: bool | None = None, folds: int = FOLDS, seed: int = SEED
) -> TargetModel:
    """The model without stated errors; CostError where there is no sample with an operation.

    ``correct`` says whether it has a correction (and no forest); None leaves both to
    cross-validation.
    """
    if correct is None:
        return _chosen(samples, folds, seed).model
    kinds, sums = kinds_of(samples), sums_of(samples)
    roof = fit_roof(sums, kinds)
    return replace(roof, correction=fit_correction(sums, roof, kinds)[1]) if correct else roof


@dataclass(frozen=True)
class _Choice:
    """A model, its errors out of fold, and the roofline's."""

    model: TargetModel
    errors: Floats
    plain: Floats


def _chosen(samples: Sequence[Sample], folds: int, seed: int) -> _Choice:
    """The best of the stages, the later ones only where they are clearly better."""
    learn = can_learn() and is_long(samples)
    setting, stages = _stages(samples, None, seed, learn)
    errors = np.full((len(stages), len(samples)), math.inf)
    for shown, held in _folds(samples, folds, seed):
        for stage, model in enumerate(_stages(shown, setting, seed, learn)[1]):
            errors[stage, held] = _errors(model, [samples[i] for i in held])
    best = 0
    parts = range(1, len(stages))[: len(PARTS)]
    forests = range(1 + len(PARTS), len(stages))
    for rivals in (parts, forests):
        rival = min(rivals, key=lambda stage: _size(errors[stage]), default=best)
        if _better(errors[rival], errors[best]):
            best = rival
    return _Choice(stages[best], errors[best], errors[0])


def _better(errors: Floats, than: Floats) -> bool:
    gains = float((np.abs(errors) < np.abs(than)).mean())
    return _size(errors) < MARGIN * _size(than) and gains > 0.5


def _stages(
    samples: Sequence[Sample], setting: Setting | None, seed: int, learn: bool
) -> tuple[Setting | None, list[TargetModel]]:
    """Roofline; the same with parts of a correction; with all of it and a forest: as many as are to
    be had. And the correction's setting, the best one where none is given."""
    kinds, sums = kinds_of(samples), sums_of(samples)
    roof = fit_roof(sums, kinds)
    if len(samples) < FEWEST and setting is None:
        return None, [roof]
    setting, correction = fit_correction(sums, roof, kinds, setting)
    stages = [roof]
    for part in PARTS:
        believed = replace(correction, weights=part * correction.weights)
        stages.append(replace(roof, correction=believed))
    if learn:
        forest = fit_forest(samples, stages[-1], kinds, seed)
        stages.append(replace(stages[-1], forest=forest))
    return setting, stages


def is_long(samples: Sequence[Sample]) -> bool:
    """Whether there are enough for a forest. Of a sum of many it learns next to nothing."""
    return sum(len(sample.works) <= FEW for sample in samples) >= LONG


def _size(errors: Floats) -> float:
    """Of relative errors, one number: the geometric mean of their median and their mean, so that
    neither a few wild ones nor the many small ones decide alone. Each counts as 1 at most."""
    size = np.minimum(np.abs(errors), 1.0)
    return math.sqrt(float(np.median(size)) * float(size.mean()))


@dataclass(frozen=True)
class Fitted:
    """A model with its stated errors, and what those are made of."""

    model: TargetModel
    errors: Floats
    """predicted / measured - 1 of every sample, by a model that was not shown it."""


def fit_with_errors(
    samples: Sequence[Sample],
    sister: TargetModel | None = None,
    *,
    folds: int = FOLDS,
    seed: int = SEED,
) -> Fitted:
    """The model with the errors that cross-validation finds.

    With a ``sister``, the model of another phone, 10 to 30 samples do: her prices, scaled as one
    and drawn apart as far as the samples say so, with her correction and forest; kinds that no
    sample has keep her price. The samples alone decide where that is, in cross-validation, the
    better.
    """
    choice = _chosen(samples, folds, seed)
    model, errors = choice.model, choice.errors
    if sister is not None:
        fit = partial(adapted, sister=sister)
        hers = cross_validated(samples, folds=folds, seed=seed, fit=fit)
        if _size(hers) <= _size(errors):
            model, errors = fit(samples), hers
    if len({sample.works for sample in samples}) < folds:
        return Fitted(model, errors)
    bounds = error_bounds(model, samples, errors, choice.plain)
    return Fitted(replace(model, errors=bounds), errors)


def adapted(samples: Sequence[Sample], sister: TargetModel) -> TargetModel:
    """The sister's model with her prices drawn to what the samples say."""
    found = fit_roof(sums_of(samples), kinds_of(samples), sister)
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
        forest=sister.forest,
    )


Fit = Callable[[Sequence[Sample]], TargetModel]


def cross_validated(
    samples: Sequence[Sample], *, folds: int = FOLDS, seed: int = SEED, fit: Fit = fit_samples
) -> Floats:
    """predicted / measured - 1 of every sample, by a model that was shown neither it nor another of
    the same operations: networks repeat their layers."""
    errors = np.full(len(samples), math.inf)
    for shown, held in _folds(samples, folds, seed):
        errors[held] = _errors(fit(shown), [samples[i] for i in held])
    return errors


def _folds(
    samples: Sequence[Sample], folds: int, seed: int
) -> Iterator[tuple[list[Sample], list[int]]]:
    """Samples to fit to, and places of those to predict, which share no configuration."""
    groups: dict[tuple[Work, ...], list[int]] = {}
    for i, sample in enumerate(samples):
        groups.setdefault(sample.works, []).append(i)
    alike = list(groups.values())
    order = np.random.default_rng(seed).permutation(len(alike)).tolist()
    for fold in range(min(folds, len(alike))):
        held = {i for group in order[fold::folds] for i in alike[group]}
        shown = [sample for i, sample in enumerate(samples) if i not in held]
        if shown:
            yield shown, sorted(held)


def _errors(model: TargetModel, samples: Sequence[Sample]) -> Floats:
    """predicted / measured - 1."""
    found: Floats = model.samples_ns(samples) / np.array([sample.ns for sample in samples]) - 1
    return found
