"""Compile times of regions: what was measured, and for the rest a part for each unit.

    compile time = fixed + sum of unit parts

per accelerator: its preferences compile the same operations, and are fitted together. The CPU
engine's set-up is no compilation and counts as none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.costs.regression import RegionSample, TargetFit, fit_target
from nnapi_prof.graph.plan import Engine, Target


@dataclass(frozen=True)
class CompileModel:
    """Answers what compiling takes; made by :func:`fit_compiling`. Most never ask: what it fits, it
    fits when somebody does."""

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
