"""Calibration: fits the description that ``estimate`` reads to a cost table's rows of one device.

Each target's :class:`nnapi_prof.costs.estimate.model.TargetModel` is fitted in four steps:

1. The roofline.
2. The correction of its residuals (:mod:`nnapi_prof.costs.estimate.parts`).
3. A forest (:mod:`nnapi_prof.costs.estimate.model`) on the residuals of both, where there are
   :data:`LONG` samples of a few operations, and scikit-learn is installed.
4. Cross-validation of each step, by configuration. Correction (or a part of it) and forest stay
   where they reduce the error, and the errors give the bands
   (:class:`nnapi_prof.costs.estimate.model.ErrorBounds`).

Only folds and trees are random, and their seed is a parameter.
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
"""A correction or forest stays where the error out of fold is below this share of the error without
it, and most samples improve."""
PARTS = (0.5, 0.75, 1.0)
"""Shares of a correction to try: a correction fitted to few samples overshoots."""
FEWEST = 12
"""With fewer samples there is no correction: the roofline alone has half as many prices."""
LONG, FEW = 500, 3
"""A forest needs ``LONG`` samples of at most ``FEW`` operations: each leaf holds several."""
FOLDS = 5
SEED = 0


def fit_samples(
    samples: Sequence[WorkSample],
    *,
    correct: bool | None = None,
    folds: int = FOLDS,
    seed: int = SEED,
) -> TargetModel:
    """Fits a model without stated errors; raises CostError where no sample has an operation.

    ``correct`` says whether it gets a correction (and never a forest); None leaves both to
    cross-validation.
    """
    if correct is None:
        return _chosen(samples, folds, seed).model
    kinds, sums = kinds_of(samples), sums_of(samples)
    roof = fit_roof(sums, kinds)
    return replace(roof, correction=fit_correction(sums, roof, kinds)[1]) if correct else roof


@dataclass(frozen=True)
class _Choice:
    """Model, its errors out of fold, and those of the roofline alone."""

    model: TargetModel
    errors: Floats
    plain: Floats


def _chosen(samples: Sequence[WorkSample], folds: int, seed: int) -> _Choice:
    """Returns the best stage; a later one only where it is clearly better."""
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
    """Returns the correction's setting (the best one where none is given) and the stages that the
    samples allow: roofline, roofline with parts of a correction, and all of it with a forest."""
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
    """Returns whether there are enough samples of few operations for a forest, which learns next to
    nothing from a sum of many."""
    return sum(len(sample.works) <= FEW for sample in samples) >= LONG


def _geometric_mean(errors: Floats) -> float:
    """Returns the size of relative errors as one number: the geometric mean of their median and
    their mean, so that neither a few outliers nor many small errors decide alone. Each error counts
    as 1 at most."""
    size = np.minimum(np.abs(errors), 1.0)
    return math.sqrt(float(np.median(size)) * float(size.mean()))


@dataclass(frozen=True)
class Fitted:
    """Model with its stated errors, and the errors that these come from."""

    model: TargetModel
    errors: Floats
    """predicted / measured - 1 of every sample, by a model that was fitted without it."""


def fit_with_errors(
    samples: Sequence[WorkSample],
    sister: TargetModel | None = None,
    *,
    folds: int = FOLDS,
    seed: int = SEED,
) -> Fitted:
    """Fits a model with the errors that cross-validation finds.

    With a ``sister``, the model of another phone, 10 to 30 samples suffice: the sister's prices are
    scaled together, then changed one by one as far as the samples require, and its correction and
    forest are kept. Kinds that no sample has keep the sister's scaled price. Where a model of the
    samples alone is better in cross-validation, that one is returned.
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
    """Returns the sister's model with its prices adapted to the samples."""
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
    """Returns predicted / measured - 1 of every sample, by a model fitted without it and without
    others of the same operations, since networks repeat their layers."""
    errors = np.full(len(samples), math.inf)
    for shown, held in _folds(samples, folds, seed):
        errors[held] = _errors(fit(shown), [samples[i] for i in held])
    return errors


def _folds(
    samples: Sequence[WorkSample], folds: int, seed: int
) -> Iterator[tuple[list[WorkSample], list[int]]]:
    """Yields samples to fit to and indices of samples to predict, without common operations."""
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
    """Returns predicted / measured - 1."""
    errors: Floats = model.samples_ns(samples) / np.array([sample.ns for sample in samples]) - 1
    return errors


# ---- a whole device -----------------------------------------------------------------------------


LOGGER = logging.getLogger(__name__)
FEWEST_ROWS = 6
"""Fewest rows of a target that is offered: it has more prices than that."""
MOST_ERROR = 1.0
"""Relative error that nine of ten rows must stay below for a target to be offered."""


@dataclass(frozen=True, slots=True)
class TargetReport:
    """Cross-validated errors of the predictions for one target."""

    target: Target
    rows: int
    errors: Floats
    """predicted / measured - 1 of every row, by a model that was fitted without it."""
    single_rate: Floats
    """The same for the baseline, one constant rate of MAC/s."""

    @staticmethod
    def summary(errors: Floats) -> tuple[float, float, float]:
        """Returns the median and ninth decile of absolute errors, and the share within 10 %."""
        size = np.abs(errors)
        return float(np.median(size)), float(np.quantile(size, 0.9)), float((size <= 0.1).mean())


def samples_of(rows: Iterable[Measurement]) -> dict[Target, list[WorkSample]]:
    """Converts usable units, chains and regions to samples, in the order of their signatures.

    Rows of units contain their work. Members of chains and regions get theirs from the rows of
    their units; rows with a member that has no such row are left out.
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
    """Returns, for each target, the kernel classes of which units were tried, but none ran.

    A driver's refusals do not depend on the preference: a class refused under one preference counts
    as refused under all preferences of the accelerator, unless a unit of it ran there.
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

    ``folds`` and ``seed`` are those of the cross-validation. The prices of a ``sister``, a phone
    that is known well, are the first guess, so that 10 to 30 rows suffice. Targets with fewer rows
    than :data:`FEWEST_ROWS`, such as preferences that were only sampled, and targets with errors
    above :data:`MOST_ERROR` are left out and logged; the CPU then stays without a band.

    Raises CostError where nothing was measured on the CPU, without which there is nothing to
    compare with, or fewer rows than folds.
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
        if target == CPU:  # it stays, without a band: every plan needs it
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
    """Returns the sister's model of the same target, else of its only one with the same engine and
    preference."""
    if target in sister.targets:
        return sister.targets[target]
    alike = [
        model
        for other, model in sister.targets.items()
        if (other.engine, other.preference) == (target.engine, target.preference)
    ]
    return alike[0] if len(alike) == 1 else None


def single_rate(samples: Sequence[WorkSample]) -> TargetModel:
    """Fits the baseline: one constant rate of arithmetic, the median over all samples."""
    rates = [s.ns / max(sum(work.macs for work in s.works), 1.0) for s in samples]
    return TargetModel(Roof(0.0, 0.0, {"default": float(np.median(rates))}))


__all__ = ["TargetReport", "calibrate", "refused_of", "samples_of", "single_rate"]
