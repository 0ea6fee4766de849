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
    SEED,
    cross_validated,
    fit_samples,
    fit_target_model,
)
from nnapi_prof.costs.static_label import unit_work
from nnapi_prof.costs.static_model import Roof, TargetModel
from nnapi_prof.costs.static_work import Floats, Sample, Work
from nnapi_prof.errors import CostError
from nnapi_prof.graph.plan import CPU, Engine, Target

LOGGER = logging.getLogger(__name__)


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


def samples_of(rows: Iterable[Measurement]) -> dict[Target, list[Sample]]:
    """Usable units, chains and regions as samples, in the order of their signatures.

    What a unit is, its label and bytes tell; members of chains and regions are known by the rows
    of the units themselves, and rows with a member that has none are left out.
    """
    last = {(row.target, row.signature): row for row in rows}
    works: dict[str, Work] = {
        row.signature: unit_work(row.label, row.input_bytes, row.output_bytes)
        for row in last.values()
        if row.kind is Kind.UNIT
    }
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
    """Kinds of operation of which units were tried on a target, and none ran."""
    ran: dict[Target, set[str]] = defaultdict(set)
    tried: dict[Target, set[str]] = defaultdict(set)
    for row in rows:
        if row.kind is Kind.UNIT:
            rate = unit_work(row.label, row.input_bytes, row.output_bytes).rate
            tried[row.target].add(rate)
            if row.usable:
                ran[row.target].add(rate)
    return {target: frozenset(kinds - ran[target]) for target, kinds in tried.items()}


def calibrate(
    rows: Sequence[Measurement],
    name: str,
    origin: str,
    *,
    folds: int = FOLDS,
    seed: int = SEED,
) -> tuple[Description, list[TargetReport]]:
    """Fits a description to the measurements of one device under one set of conditions.

    ``folds`` and ``seed`` are of the cross-validation. Targets with fewer rows than folds, as those
    of preferences that were only sampled, are left out, which is logged. Raises CostError where
    nothing was measured, or not on the CPU, without which there is nothing to compare with, or less
    than the folds.
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
            " run `nnapi-prof profile` with more models, or state fewer --folds"
        )
    few = {target: len(found) for target, found in samples.items() if len(found) < folds}
    if few:
        LOGGER.info(
            "note: left out, as they were measured less than %d times: %s",
            folds,
            ", ".join(f"{target} ({count})" for target, count in few.items()),
        )
    samples = {target: found for target, found in samples.items() if target not in few}
    refused = refused_of(rows)
    models, reports = {}, []
    for target, found in samples.items():
        model = fit_target_model(found, folds=folds, seed=seed)
        models[target] = replace(model, refused=refused.get(target, frozenset()))
        reports.append(
            TargetReport(
                target,
                len(found),
                cross_validated(found, folds=folds, seed=seed),
                cross_validated(found, folds=folds, seed=seed, fit=single_rate),
            )
        )
    described = Description(
        name=name,
        description=f"fitted to {sum(map(len, samples.values()))} measurements",
        origin=origin,
        targets=models,
        rows={target: len(found) for target, found in samples.items()},
        simulated=any(row.simulated for row in rows),
    )
    return described, reports


def single_rate(samples: Sequence[Sample]) -> TargetModel:
    """The baseline: one constant rate of arithmetic, the median of all samples'."""
    rates = [s.ns / max(sum(work.macs for work in s.works), 1.0) for s in samples]
    return TargetModel(Roof(0.0, 0.0, {"default": float(np.median(rates))}))


__all__ = ["TargetReport", "calibrate", "fit_samples", "refused_of", "samples_of", "single_rate"]
