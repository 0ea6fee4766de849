"""Units of one preference from those of another: a sample says how the two compare.

Preferences of one accelerator run the same operations over the same transfers; what differs is a
clock, or nothing. So a unit that was measured under one preference only is inferred for another:

    latency(other) = a + b * latency(known),    a, b >= 0

fitted to the regions measured under both, relative errors weighing alike. It holds for regions as
for units, where b is the factor of their operations and a the share of the overhead that it spares;
so regions of the known preference tell the other's overhead from its units, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.optimize import nnls

from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.costs.model.regression import FEW_REGIONS, RegionSample, TargetFit, fit_target
from nnapi_prof.graph.plan import Engine, Target

INFERRED_WEIGHT = 0.05
"""Of an inferred sample's squared error beside a measured one's."""
CLOSE = 0.01
"""Latencies of one region that differ by less are told apart by noise only."""


def infer_preferences(
    samples: dict[Target, list[RegionSample]], rows: Mapping[tuple[str, Target], Measurement]
) -> dict[tuple[str, Target], Measurement]:
    """Adds to ``samples`` what was measured under another preference only; returns refusals.

    The preference with most units is the known one. A unit that it refuses, and that was not tried
    under another, counts as refused there, too: the returned rows say so.
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
        known = max(own, key=lambda target: len(alone[target]))
        for other in own:
            if other == known:
                continue
            refusals |= {
                (signature, other): replace(row, target=other)
                for signature, row in alone[known].items()
                if row.n_units == 1 and not row.usable and signature not in alone[other]
            }
            tried = set(alone[other])
            inferred = _inferred(samples.get(known, []), samples.get(other, []), tried, other)
            if inferred:
                samples[other] = [*samples.get(other, []), *inferred]
    return refusals


def share_spreads(
    fits: Mapping[Target, TargetFit], samples: Mapping[Target, list[RegionSample]]
) -> dict[Target, TargetFit]:
    """The fits, where a preference without regions of its own takes the spread of sums that the
    accelerator shows under the one with most regions: what a driver joins, it joins under each."""
    regions = {
        target: sum(len(s.members) > 1 and s.weight == 1 for s in found)
        for target, found in samples.items()
    }
    shared = dict(fits)
    for target, fitted in fits.items():
        if target.engine is not Engine.NNAPI or regions[target] >= FEW_REGIONS:
            continue
        others = [t for t in fits if t.accelerator == target.accelerator]
        known = max(others, key=lambda t: regions[t])
        spread = min(fitted.spread, fits[known].spread)
        gain = min(fitted.gain, fits[known].gain)
        longest = max(fitted.longest, fits[known].longest)
        shared[target] = replace(fitted, spread=spread, gain=gain, longest=longest)
    return shared


def _inferred(
    known: list[RegionSample], measured: list[RegionSample], tried: set[str], target: Target
) -> list[RegionSample]:
    found = {sample.signature: sample for sample in measured}
    pairs = [(s.median_ns, found[s.signature].median_ns) for s in known if s.signature in found]
    if not pairs:
        return []
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
        for sample in known
        if sample.signature not in tried
    ]


# ---- compile times ------------------------------------------------------------------------------


@dataclass(frozen=True)
class CompileModel:
    """Answers what compiling takes; made by :func:`fit_compiling`. Most never ask: what it fits, it
    fits when somebody does.

        compile time = fixed + sum of unit parts

    per accelerator: its preferences compile the same operations, and are fitted together. The CPU
    engine's set-up is no compilation and counts as none.
    """

    samples: Mapping[str, Sequence[RegionSample]] = field(default_factory=dict, repr=False)
    """Accelerator -> compile times, as samples without transfers."""
    whole_ns: Mapping[tuple[frozenset[int], str], float] = field(default_factory=dict)
    """(units, accelerator) -> ns of a region that was compiled whole."""

    @cached_property
    def fits(self) -> Mapping[str, TargetFit]:
        """Accelerator -> its terms; of the transfers none."""
        return {name: fit_target(found, on_cpu=False) for name, found in self.samples.items()}

    def fixed_ns(self, target: Target) -> float:
        """Of each region on a target, whatever it computes."""
        fitted = self.fits.get(target.accelerator or "")
        return fitted.overhead_ns if fitted is not None else 0.0

    def unit_ns(self, signature: str, target: Target) -> float:
        """A unit's part; 0 where it was never compiled, or nothing is compiled there."""
        fitted = self.fits.get(target.accelerator or "")
        return fitted.unit_ns.get(signature, 0.0) if fitted is not None else 0.0


def fit_compiling(
    rows: Iterable[Measurement],
    places: Mapping[tuple[frozenset[int], Target], Measurement],
) -> CompileModel:
    """The model of one device's rows; ``places`` says which of them are regions of the graph."""
    samples: dict[str, dict[str, list[RegionSample]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        compiled = row.target.engine is Engine.NNAPI and row.usable and row.compile_ns
        if compiled and row.compile_ns is not None:
            sample = RegionSample(
                row.members, row.signature, row.target.key, 0, 0, float(row.compile_ns)
            )
            samples[row.target.accelerator or ""][row.signature].append(sample)
    whole: dict[tuple[frozenset[int], str], list[float]] = defaultdict(list)
    for (units, target), row in places.items():
        if target.engine is Engine.NNAPI and row.usable and row.compile_ns:
            whole[units, target.accelerator or ""].append(float(row.compile_ns))
    means = {name: [_mean(same) for same in found.values()] for name, found in samples.items()}
    return CompileModel(means, {place: sum(ns) / len(ns) for place, ns in whole.items()})


def _mean(same: list[RegionSample]) -> RegionSample:
    """One sample of several preferences'."""
    return replace(same[0], median_ns=sum(sample.median_ns for sample in same) / len(same))
