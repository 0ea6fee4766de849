"""Infer costs under one preference or precision from measurements under another.

Preferences of one accelerator run the same operations with the same transfers; at most a clock
differs. So a unit that was measured under only one preference is inferred for another:

    latency(other) = a + b * latency(known),    a, b >= 0

fitted to the regions measured under both, with equal weights of relative errors. It holds for
regions as for units: b is the factor of their operations, and a the share of the overhead that does
not scale. So regions of the known preference also separate the other's overhead from its units.

Precisions of one float model on one target differ only in arithmetic: invocation and transfers are
the same, since values stay floats at the border of a region. So in another precision a unit takes a
share of its time within a region that depends on the kind of unit:

    latency(precision) = latency(float32) + a - sum over units of (1 - share of its kind) * unit

fitted to the few units and regions that were measured in both. a is the cost of conversions at the
border of models that are float16 inside.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.costs.measurement import Kind, Measurement
from nnapi_prof.costs.model import CACHE_BYTES, cold_bytes
from nnapi_prof.costs.model.regression import FEW_REGIONS, RegionSample, TargetFit
from nnapi_prof.graph.plan import Engine, Target
from nnapi_prof.graph.unit import UnitGraph

INFERRED_WEIGHT = 0.05
"""Weight of an inferred sample's squared error; that of a measured one is 1."""


def region_samples(
    graph: UnitGraph, rows: Iterable[Measurement]
) -> dict[Target, list[RegionSample]]:
    """Returns samples of units and regions of ``graph``, one for each usable row, by target."""
    unit_bytes = {unit.signature: cold_bytes(graph, (unit.index,)) for unit in graph.units}
    samples: dict[Target, list[RegionSample]] = defaultdict(list)
    for row in rows:
        if row.usable and row.latency_ns > 0 and row.kind is not Kind.PLAN:
            through = sum(unit_bytes[member] for member in row.members)
            samples[row.target].append(
                RegionSample(
                    row.members,
                    row.signature,
                    row.target.key,
                    row.input_bytes,
                    row.output_bytes,
                    row.latency_ns,
                    through if through > CACHE_BYTES else 0,
                )
            )
    return samples


def infer_preferences(
    samples: dict[Target, list[RegionSample]], rows: Mapping[tuple[str, Target], Measurement]
) -> dict[tuple[str, Target], Measurement]:
    """Adds samples inferred from another preference to ``samples``; returns inferred refusals.

    The preference with most units is the known one. A unit that is refused under it, and was not
    tried under another, counts as refused there, too: these rows are returned.
    """
    refusals: dict[tuple[str, Target], Measurement] = {}
    targets = {target for _, target in rows if target.engine is Engine.NNAPI}
    for accelerator in sorted({target.accelerator or "" for target in targets}):
        own = sorted((t for t in targets if t.accelerator == accelerator), key=lambda t: t.key)
        if len(own) < 2:
            continue
        alone = {
            target: {row.signature: row for row in rows.values() if row.target == target}
            for target in own
        }
        leader = max(own, key=lambda target: len(alone[target]))
        for other in own:
            if other == leader:
                continue
            refusals |= {
                (signature, other): replace(row, target=other)
                for signature, row in alone[leader].items()
                if row.n_units == 1 and not row.usable and signature not in alone[other]
            }
            tried = set(alone[other])
            inferred = _inferred(samples.get(leader, []), samples.get(other, []), tried, other)
            if inferred:
                samples[other] = [*samples.get(other, []), *inferred]
    return refusals


def share_spreads(
    fits: Mapping[Target, TargetFit], samples: Mapping[Target, list[RegionSample]]
) -> dict[Target, TargetFit]:
    """Returns the fits, where a preference with few regions takes the spread of sums from the
    accelerator's preference with most regions: a driver joins the same operations under each."""
    regions = {
        target: sum(len(s.members) > 1 and s.weight == 1 for s in own)
        for target, own in samples.items()
    }
    shared = dict(fits)
    for target, fitted in fits.items():
        if target.engine is not Engine.NNAPI or regions[target] >= FEW_REGIONS:
            continue
        others = [t for t in fits if t.accelerator == target.accelerator]
        leader = max(others, key=lambda t: regions[t])
        spread = min(fitted.spread, fits[leader].spread)
        gain = min(fitted.gain, fits[leader].gain)
        longest = max(fitted.longest, fits[leader].longest)
        shared[target] = replace(fitted, spread=spread, gain=gain, longest=longest)
    return shared


def _inferred(
    leading: list[RegionSample], measured: list[RegionSample], tried: set[str], target: Target
) -> list[RegionSample]:
    by_signature = {sample.signature: sample for sample in measured}
    pairs = [
        (s.median_ns, by_signature[s.signature].median_ns)
        for s in leading
        if s.signature in by_signature
    ]
    if not pairs:
        return []
    from scipy.optimize import nnls  # imported here, since reading a stored fit does not need it

    before, after = np.array(pairs).T
    system = np.stack([1 / after, before / after], axis=1)
    size = np.sqrt((system**2).sum(axis=0))
    (a, b), _norm = nnls(system / size, np.ones(len(pairs)))
    return [
        replace(
            sample,
            target=target.key,
            median_ns=float(a / size[0] + b / size[1] * sample.median_ns),
            weight=INFERRED_WEIGHT,
        )
        for sample in leading
        if sample.signature not in tried
    ]


# ---- precisions ---------------------------------------------------------------------------------


MOST_SHARE = 2.0
"""Largest share of a unit's time in float32: more is noise of a unit far cheaper than its call."""
EXTRA_SHRINKAGE = 1e-2
"""Weight of "conversions at the border cost nothing" against a measured unit's weight of 1."""
LEAST_ERROR = 0.03
"""Least relative error of costs inferred from another precision (assumed)."""


@dataclass(frozen=True)
class Inference:
    """Costs in one precision, inferred from measurements in float32."""

    samples: Mapping[Target, list[RegionSample]]
    refused: tuple[Measurement, ...]
    """Refusals in float32 that count in this precision, too, since all that it tried of them did
    not run."""
    errors: Mapping[Target, float]
    """Relative error of the inferred costs of units and regions measured in both."""

    def share_spreads(
        self, fits: Mapping[Target, TargetFit], leading: Mapping[Target, TargetFit]
    ) -> dict[Target, TargetFit]:
        """Returns the precision's fits, with the spread of float32's sums where few of its own
        regions were measured: a driver joins the same operations in each precision."""
        shared = dict(fits)
        for target, fitted in fits.items():
            if target not in self.errors or fitted.n_regions >= FEW_REGIONS:
                continue
            lead, error = leading[target], self.errors[target]
            shared[target] = replace(
                fitted,
                spread=min(fitted.spread, math.hypot(lead.spread, error)),
                gain=min(fitted.gain, math.hypot(lead.gain, error)),
                longest=max(fitted.longest, lead.longest),
            )
        return shared


def infer_precision(
    graph: UnitGraph,
    leading: Iterable[Measurement],
    rows: Iterable[Measurement],
    fits: Mapping[Target, TargetFit],
) -> Inference:
    """Infers the latencies of units and regions measured in float32 (``leading``, with their
    ``fits``) in the precision of ``rows``, on targets where a unit ran in both."""
    operations = {unit.signature: unit.kind for unit in graph.units}
    ours = operations.keys()
    before = {(r.signature, r.target): r for r in leading if ours >= set(r.members)}
    after = {(r.signature, r.target): r for r in rows if ours >= set(r.members)}
    lead = region_samples(graph, before.values())
    other = region_samples(graph, after.values())
    samples: dict[Target, list[RegionSample]] = {}
    errors: dict[Target, float] = {}
    for target, own in other.items():
        if target not in fits:
            continue
        unit_ns = fits[target].unit_ns
        by_name = {sample.signature: sample for sample in own}
        pairs = [
            (sample, by_name[sample.signature].median_ns)
            for sample in lead.get(target, ())
            if sample.signature in by_name and unit_ns.keys() >= set(sample.members)
        ]
        if not pairs:
            continue
        shares = _fit_shares(pairs, operations, unit_ns)
        errors[target] = shares.error
        samples[target] = [
            replace(sample, median_ns=ns, weight=INFERRED_WEIGHT)
            for sample in lead[target]
            if (ns := shares.infer(sample, operations, unit_ns)) > 0
        ]
    return Inference(samples, tuple(_same_refusals(before, after)), errors)


@dataclass(frozen=True)
class _Shares:
    extra_ns: float
    of_kind: Mapping[str, float]
    of_others: float
    """Share of kinds that were not measured in both."""
    error: float

    def infer(
        self, sample: RegionSample, operations: Mapping[str, str], unit_ns: Mapping[str, float]
    ) -> float:
        parts = _ns_by_kind(sample, operations, unit_ns)
        spared = sum(
            (1 - self.of_kind.get(kind, self.of_others)) * ns for kind, ns in parts.items()
        )
        return max(sample.median_ns + self.extra_ns - spared, 0.05 * sample.median_ns)


def _fit_shares(
    pairs: Sequence[tuple[RegionSample, float]],
    operations: Mapping[str, str],
    unit_ns: Mapping[str, float],
) -> _Shares:
    """Fits the shares of float32's times that the other precision takes, from pairs of a sample in
    float32 and the other's ns."""
    from scipy.optimize import nnls  # imported here, since reading a stored fit does not need it

    parts = [_ns_by_kind(sample, operations, unit_ns) for sample, _ in pairs]
    kinds = sorted({kind for own in parts for kind in own})
    before = np.array([sample.median_ns for sample, _ in pairs])
    after = np.array([ns for _, ns in pairs])
    rest = after - before + np.array([sum(own.values()) for own in parts])
    mean = float(after.mean())

    def solved(columns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns extra ns, and the share of each column of ns. [regions, c] -> [1 + c]"""
        n = columns.shape[1]
        rows = np.column_stack([np.full(len(after), mean), columns]) / after[:, None]
        prior = EXTRA_SHRINKAGE * np.eye(n + 1)  # towards the latency in float32
        right = np.concatenate([np.maximum(rest, 0) / after, prior @ np.r_[0.0, np.ones(n)]])
        solution, _norm = nnls(np.vstack([rows, prior]), right)
        result: NDArray[np.float64] = np.minimum(solution, MOST_SHARE)
        result[0] = solution[0] * mean
        return result

    table = np.array([[own.get(kind, 0.0) for kind in kinds] for own in parts])
    extra, *by_kind = solved(table)
    _, of_others = solved(table.sum(axis=1, keepdims=True))
    residuals = (table @ np.array(by_kind) - rest + extra) / after
    return _Shares(
        float(extra),
        dict(zip(kinds, map(float, by_kind), strict=True)),
        float(of_others),
        math.hypot(LEAST_ERROR, float(np.sqrt(np.mean(np.square(residuals))))),
    )


def _ns_by_kind(
    sample: RegionSample, operations: Mapping[str, str], unit_ns: Mapping[str, float]
) -> dict[str, float]:
    """Returns kind of unit -> ns that its units take within a region in float32."""
    parts: dict[str, float] = defaultdict(float)
    for member in sample.members:
        parts[operations[member]] += unit_ns.get(member, 0.0)
    return parts


def _same_refusals(
    before: Mapping[tuple[str, Target], Measurement],
    after: Mapping[tuple[str, Target], Measurement],
) -> Iterator[Measurement]:
    """Yields refusals in float32 of units that the other precision did not try, on targets where
    none of the refused units that it tried ran."""
    refused = {place: row for place, row in before.items() if row.n_units == 1 and not row.usable}
    runs = {target for name, target in refused if _has_run(after.get((name, target)))}
    tried = {target for _, target in after}
    for (name, target), row in refused.items():
        if target in tried and target not in runs and (name, target) not in after:
            yield row


def _has_run(row: Measurement | None) -> bool:
    return row is not None and row.usable
