"""A cost table's measurements of one device -> a description that ``estimate`` reads.

Each target's :class:`nnapi_prof.costs.estimate.model.TargetModel` is fitted in four steps:

1. The roofline, and 2. the correction of what it leaves (:mod:`nnapi_prof.costs.estimate.parts`).
3. A forest (:mod:`nnapi_prof.costs.estimate.model`), of what both leave, where there are
   :data:`LONG` samples of a few operations, and scikit-learn is installed.
4. Cross-validation of each, by configuration: correction (or a part of it) and forest stay where
   the error is the smaller with them, and the errors are what bands are made of
   (:class:`nnapi_prof.costs.estimate.model.ErrorBounds`).

Nothing is drawn at random but folds and trees, and those from a seed that is stated.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from nnapi_prof.costs.estimate import Floats, Work, WorkSample, kinds_of
from nnapi_prof.costs.estimate.model import Roof, TargetModel, can_learn, error_bounds, fit_forest
from nnapi_prof.costs.estimate.parts import Setting, fit_correction, fit_roof, sums_of
from nnapi_prof.costs.estimate.phones import Description
from nnapi_prof.costs.measurement import Kind, Measurement
from nnapi_prof.costs.model.forms import best_of_forms
from nnapi_prof.errors import CostError, option_name
from nnapi_prof.graph.plan import CPU, Engine, Target

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
    samples: Sequence[WorkSample],
    *,
    correct: bool | None = None,
    folds: int = FOLDS,
    seed: int = SEED,
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


def _chosen(samples: Sequence[WorkSample], folds: int, seed: int) -> _Choice:
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
        rival = min(rivals, key=lambda stage: _geometric_mean(errors[stage]), default=best)
        if _better(errors[rival], errors[best]):
            best = rival
    return _Choice(stages[best], errors[best], errors[0])


def _better(errors: Floats, than: Floats) -> bool:
    gains = float((np.abs(errors) < np.abs(than)).mean())
    return _geometric_mean(errors) < MARGIN * _geometric_mean(than) and gains > 0.5


def _stages(
    samples: Sequence[WorkSample], setting: Setting | None, seed: int, learn: bool
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


def is_long(samples: Sequence[WorkSample]) -> bool:
    """Whether there are enough for a forest. Of a sum of many it learns next to nothing."""
    return sum(len(sample.works) <= FEW for sample in samples) >= LONG


def _geometric_mean(errors: Floats) -> float:
    """Returns the size of relative errors as one number: the geometric mean of their median and
    their mean, so that neither a few wild ones nor the many small ones decide alone. Each counts as
    1 at most."""
    size = np.minimum(np.abs(errors), 1.0)
    return math.sqrt(float(np.median(size)) * float(size.mean()))


@dataclass(frozen=True)
class Fitted:
    """A model with its stated errors, and what those are made of."""

    model: TargetModel
    errors: Floats
    """predicted / measured - 1 of every sample, by a model that was not shown it."""


def fit_with_errors(
    samples: Sequence[WorkSample],
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
        if _geometric_mean(hers) <= _geometric_mean(errors):
            model, errors = fit(samples), hers
    if len({sample.works for sample in samples}) < folds:
        return Fitted(model, errors)
    bounds = error_bounds(model, samples, errors, choice.plain)
    return Fitted(replace(model, errors=bounds), errors)


def adapted(samples: Sequence[WorkSample], sister: TargetModel) -> TargetModel:
    """The sister's model with her prices drawn to what the samples say."""
    roofline = fit_roof(sums_of(samples), kinds_of(samples), sister)
    rates = roofline.roof.ns_per_mac
    pairs = [(rates[k], sister.roof.ns_per_mac[k]) for k in rates if k in sister.roof.ns_per_mac]
    # "default" is one of the pairs, so there is one.
    faster = float(
        np.exp(np.median([math.log(own / hers) for own, hers in pairs if own > 0 < hers]))
    )
    hers = {kind: rate * faster for kind, rate in sister.roof.ns_per_mac.items()}
    return replace(
        roofline,
        roof=replace(roofline.roof, ns_per_mac={**hers, **rates, "default": hers["default"]}),
        correction=sister.correction,
        forest=sister.forest,
    )


Fit = Callable[[Sequence[WorkSample]], TargetModel]


def cross_validated(
    samples: Sequence[WorkSample], *, folds: int = FOLDS, seed: int = SEED, fit: Fit = fit_samples
) -> Floats:
    """predicted / measured - 1 of every sample, by a model that was shown neither it nor another of
    the same operations: networks repeat their layers."""
    errors = np.full(len(samples), math.inf)
    for shown, held in _folds(samples, folds, seed):
        errors[held] = _errors(fit(shown), [samples[i] for i in held])
    return errors


def _folds(
    samples: Sequence[WorkSample], folds: int, seed: int
) -> Iterator[tuple[list[WorkSample], list[int]]]:
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


def _errors(model: TargetModel, samples: Sequence[WorkSample]) -> Floats:
    """predicted / measured - 1."""
    errors: Floats = model.samples_ns(samples) / np.array([sample.ns for sample in samples]) - 1
    return errors


# ---- a whole device -----------------------------------------------------------------------------


LOGGER = logging.getLogger(__name__)
FEWEST_ROWS = 6
"""With fewer rows a target is not offered: it has more prices than that."""
MOST_ERROR = 1.0
"""Relative error that nine of ten rows must stay below for a target to be offered."""


@dataclass(frozen=True, slots=True)
class TargetReport:
    """How well one target is predicted, by cross-validation."""

    target: Target
    rows: int
    errors: Floats
    """predicted / measured - 1 of every row by a model that was not shown it."""
    single_rate: Floats
    """The same of one constant rate of MAC/s, the baseline."""

    @staticmethod
    def summary(errors: Floats) -> tuple[float, float, float]:
        """Median and ninth decile of the absolute errors, and the share within 10 %."""
        size = np.abs(errors)
        return float(np.median(size)), float(np.quantile(size, 0.9)), float((size <= 0.1).mean())


def samples_of(rows: Iterable[Measurement]) -> dict[Target, list[WorkSample]]:
    """Usable units, chains and regions as samples, in the order of their signatures.

    Rows of units tell their work; members of chains and regions are known by the rows of the units
    themselves, and rows with a member that has none are left out.
    """
    last = {(row.target, row.signature): row for row in rows}
    works = {row.signature: work for row in last.values() if (work := row.work) is not None}
    samples: dict[Target, list[WorkSample]] = defaultdict(list)
    for (target, _), row in sorted(last.items(), key=lambda item: (item[0][0].key, item[0][1])):
        complete = all(member in works for member in row.members)
        if not row.usable or row.kind is Kind.PLAN or not complete or row.summary.median_ns <= 0:
            continue
        crosses = target.engine is Engine.NNAPI
        samples[target].append(
            WorkSample(
                tuple(works[member] for member in row.members),
                row.summary.median_ns,
                1.0 if crosses else 0.0,
                float(row.input_bytes) if crosses else 0.0,
                float(row.output_bytes) if crosses else 0.0,
            )
        )
    return dict(samples)


def refused_of(rows: Iterable[Measurement]) -> dict[Target, frozenset[str]]:
    """Kernel classes of which units were tried on a target, and none ran.

    What a driver refuses does not depend on what it is asked to prefer: a refusal under one
    preference is one under all of the accelerator's, until units of the class ran there.
    """
    ran: dict[Target, set[str]] = defaultdict(set)
    tried: dict[Target, set[str]] = defaultdict(set)
    for row in rows:
        work = row.work
        if work is not None:
            tried[row.target].add(work.rate)
            if row.usable:
                ran[row.target].add(work.rate)
    refused = {target: tried[target] - ran[target] for target in tried}
    return {
        target: frozenset(
            kind
            for other in tried
            if (other.engine, other.accelerator) == (target.engine, target.accelerator)
            for kind in refused[other]
        )
        - ran[target]
        for target in tried
    }


def calibrate(
    rows: Sequence[Measurement],
    name: str,
    origin: str,
    *,
    folds: int = FOLDS,
    seed: int = SEED,
    sister: Description | None = None,
) -> tuple[Description, list[TargetReport]]:
    """Fits a description to the measurements of one device under one set of conditions.

    ``folds`` and ``seed`` are of the cross-validation. Of a ``sister``, a phone that is known well,
    the prices are the first guess, so that 10 to 30 rows do. Targets with fewer rows than
    :data:`FEWEST_ROWS`, as those of preferences that were only sampled, and targets with errors
    above :data:`MOST_ERROR` are left out, which is logged; the CPU stays, without a band.

    Raises CostError where nothing was measured, or not on the CPU, without which there is nothing
    to compare with, or less than the folds.
    """
    rows = best_of_forms(rows)
    samples = samples_of(rows)
    if CPU not in samples:
        raise CostError(
            "no unit was measured on the device's CPU under these conditions",
            "run `nnapi-prof profile` first, and state the same conditions",
        )
    if len(samples[CPU]) < folds:
        raise CostError(
            f"{len(samples[CPU])} measurements on the device's CPU are too few for {folds} folds",
            f"run `nnapi-prof profile` with more models, or state fewer {option_name('folds')}",
        )
    fewest = folds if sister is not None else max(folds, FEWEST_ROWS)
    few = {t: len(rows) for t, rows in samples.items() if len(rows) < fewest and t != CPU}
    if few:
        LOGGER.info(
            "note: left out, as they were measured less than %d times: %s",
            fewest,
            ", ".join(f"{target} ({count})" for target, count in few.items()),
        )
    samples = {target: own for target, own in samples.items() if target not in few}
    refused = refused_of(rows)
    if not can_learn() and any(map(is_long, samples.values())):
        LOGGER.info(
            "note: with %d measurements of a target and more, scikit-learn may predict better:"
            " `pip install nnapi-prof[learn]`",
            LONG,
        )
    models, reports = {}, []
    for target, own in samples.items():
        hers = None if sister is None else _sister_model(sister, target)
        fitted = fit_with_errors(own, hers, folds=folds, seed=seed)
        models[target] = replace(fitted.model, refused=refused.get(target, frozenset()))
        single = cross_validated(own, folds=folds, seed=seed, fit=single_rate)
        reports.append(TargetReport(target, len(own), fitted.errors, single))
    wild = {report.target for report in reports if report.summary(report.errors)[1] > MOST_ERROR}
    if wild:
        LOGGER.info(
            "note: not offered, as a tenth of their rows is predicted more than %.0f %% off: %s",
            100 * MOST_ERROR,
            ", ".join(
                f"{r.target} ({r.rows} rows, {r.summary(r.errors)[1]:.0%})"
                for r in reports
                if r.target in wild
            ),
        )
    for target in wild:
        if target == CPU:  # without it there is no plan at all: it stays, with no band
            models[CPU] = replace(models[CPU], errors=None)
        else:
            del models[target]
    described = Description(
        name=name,
        description=f"fitted to {sum(map(len, samples.values()))} measurements"
        + (f", from {sister.name}" if sister is not None else ""),
        origin=origin,
        targets=models,
        rows={target: len(samples[target]) for target in models},
        simulated=any(row.simulated for row in rows),
        threads=next(row.conditions.threads for row in rows if row.target == CPU),
    )
    return described, reports


def _sister_model(sister: Description, target: Target) -> TargetModel | None:
    """The sister's model of the same target; or of her only one of its engine and preference."""
    if target in sister.targets:
        return sister.targets[target]
    alike = [
        model
        for other, model in sister.targets.items()
        if (other.engine, other.preference) == (target.engine, target.preference)
    ]
    return alike[0] if len(alike) == 1 else None


def single_rate(samples: Sequence[WorkSample]) -> TargetModel:
    """The baseline: one constant rate of arithmetic, the median of all samples'."""
    rates = [s.ns / max(sum(work.macs for work in s.works), 1.0) for s in samples]
    return TargetModel(Roof(0.0, 0.0, {"default": float(np.median(rates))}))


__all__ = ["TargetReport", "calibrate", "refused_of", "samples_of", "single_rate"]
