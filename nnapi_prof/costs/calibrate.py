"""A cost table's measurements of one device -> a description that ``estimate`` reads."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nnapi_prof.costs.measurement import Kind, Measurement
from nnapi_prof.costs.static_description import Description
from nnapi_prof.costs.static_fit import (
    FOLDS,
    LONG,
    SEED,
    cross_validated,
    fit_with_errors,
    is_long,
)
from nnapi_prof.costs.static_forest import can_learn
from nnapi_prof.costs.static_label import unit_work
from nnapi_prof.costs.static_model import Roof, TargetModel
from nnapi_prof.costs.static_work import Floats, Sample, Work
from nnapi_prof.errors import CostError, option
from nnapi_prof.graph.plan import CPU, Engine, Target

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


def work_of(row: Measurement) -> Work | None:
    """The work of a unit's row; None of another kind of row.

    Rows that came in a file from before version 4 of the schema say it in their label only.
    """
    if row.kind is not Kind.UNIT:
        return None
    return row.work or unit_work(row.label, row.input_bytes, row.output_bytes)


def samples_of(rows: Iterable[Measurement]) -> dict[Target, list[Sample]]:
    """Usable units, chains and regions as samples, in the order of their signatures.

    Rows of units tell their work; members of chains and regions are known by the rows of the units
    themselves, and rows with a member that has none are left out.
    """
    last = {(row.target, row.signature): row for row in rows}
    works = {row.signature: work for row in last.values() if (work := work_of(row)) is not None}
    found: dict[Target, list[Sample]] = defaultdict(list)
    for (target, _), row in sorted(last.items(), key=lambda item: (item[0][0].key, item[0][1])):
        known = all(member in works for member in row.members)
        if not row.usable or row.kind is Kind.PLAN or not known or row.summary.median_ns <= 0:
            continue
        crosses = target.engine is Engine.NNAPI
        found[target].append(
            Sample(
                tuple(works[member] for member in row.members),
                row.summary.median_ns,
                1.0 if crosses else 0.0,
                float(row.input_bytes) if crosses else 0.0,
                float(row.output_bytes) if crosses else 0.0,
            )
        )
    return dict(found)


def refused_of(rows: Iterable[Measurement]) -> dict[Target, frozenset[str]]:
    """Kernel classes of which units were tried on a target, and none ran.

    What a driver refuses does not depend on what it is asked to prefer: a refusal under one
    preference is one under all of the accelerator's, until units of the class ran there.
    """
    ran: dict[Target, set[str]] = defaultdict(set)
    tried: dict[Target, set[str]] = defaultdict(set)
    for row in rows:
        work = work_of(row)
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
    samples = samples_of(rows)
    if CPU not in samples:
        raise CostError(
            "no unit was measured on the device's CPU under these conditions: run `nnapi-prof"
            " profile` first, and state the same conditions"
        )
    if len(samples[CPU]) < folds:
        raise CostError(
            f"{len(samples[CPU])} measurements on the device's CPU are too few for {folds} folds:"
            f" run `nnapi-prof profile` with more models, or state fewer {option('folds')}"
        )
    fewest = folds if sister is not None else max(folds, FEWEST_ROWS)
    few = {t: len(rows) for t, rows in samples.items() if len(rows) < fewest and t != CPU}
    if few:
        LOGGER.info(
            "note: left out, as they were measured less than %d times: %s",
            fewest,
            ", ".join(f"{target} ({count})" for target, count in few.items()),
        )
    samples = {target: found for target, found in samples.items() if target not in few}
    refused = refused_of(rows)
    if not can_learn() and any(map(is_long, samples.values())):
        LOGGER.info(
            "note: with %d measurements of a target and more, scikit-learn may predict better:"
            " `pip install nnapi-prof[learn]`",
            LONG,
        )
    models, reports = {}, []
    for target, found in samples.items():
        hers = None if sister is None else _sister_model(sister, target)
        fitted = fit_with_errors(found, hers, folds=folds, seed=seed)
        models[target] = replace(fitted.model, refused=refused.get(target, frozenset()))
        single = cross_validated(found, folds=folds, seed=seed, fit=single_rate)
        reports.append(TargetReport(target, len(found), fitted.errors, single))
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


def single_rate(samples: Sequence[Sample]) -> TargetModel:
    """The baseline: one constant rate of arithmetic, the median of all samples'."""
    rates = [s.ns / max(sum(work.macs for work in s.works), 1.0) for s in samples]
    return TargetModel(Roof(0.0, 0.0, {"default": float(np.median(rates))}))


__all__ = ["TargetReport", "calibrate", "refused_of", "samples_of", "single_rate"]
