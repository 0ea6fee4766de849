"""Measurements of one device -> the cost model of a graph, target by target.

A row tells of a region of the graph where its units stand to each other as they did in the model
that was measured (:class:`Locator`).

Preferences of one accelerator run the same operations over the same transfers; what differs is a
clock, or nothing. So a unit that was measured under one preference only is inferred for another:

    latency(other) = a + b * latency(known),    a, b >= 0

fitted to the regions measured under both, relative errors weighing alike. It holds for regions as
for units, where b is the factor of their operations and a the share of the overhead that it spares;
so regions of the known preference tell the other's overhead from its units, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from nnapi_prof.costs.measurement import Kind, Measurement
from nnapi_prof.costs.model.region import (
    CACHE_BYTES,
    PHONE_CPU,
    CompileModel,
    CostModel,
    Roofline,
    cold_bytes,
)
from nnapi_prof.costs.model.regression import FEW_REGIONS, FitCache, RegionSample, TargetFit
from nnapi_prof.errors import CostError
from nnapi_prof.graph.plan import AUTO, CPU, HOST, Engine, Target
from nnapi_prof.graph.signature import region_signature
from nnapi_prof.graph.unit import UnitGraph

UnitSet = tuple[int, ...]
"""Indices of units, ascending."""


def chains(graph: UnitGraph, length: int) -> Iterator[UnitSet]:
    """Paths of ``length`` units where each reads the only value of the one before, alone.

    A value that somebody else reads too, or that the model returns, ends a chain: such a region
    would have to give it back, and tell nothing of what joining saves. Only the last value leaves
    a chain, so no unit outside can stand between two of its units.
    """
    joined: dict[int, int] = {}
    for unit in graph.units:
        if len(unit.outputs) != 1 or unit.outputs[0] in graph.outputs:
            continue
        readers = set(graph.readers[unit.outputs[0]])
        if len(readers) == 1:
            joined[unit.index] = readers.pop()
    for unit in graph.units:
        path = [unit.index]
        while len(path) < length and path[-1] in joined:
            path.append(joined[path[-1]])
        if len(path) == length:
            yield tuple(path)


class Locator:
    """Finds measured regions in ``graph``; keeps region signatures, which are not cheap."""

    def __init__(self, graph: UnitGraph) -> None:
        self._graph = graph
        self._signatures: dict[UnitSet, str] = {}
        self._units: dict[str, list[int]] = defaultdict(list)
        for unit in graph.units:
            self._units[unit.signature].append(unit.index)
        self._chains: dict[tuple[str, ...], list[UnitSet]] = defaultdict(list)
        for length in (2, 3):
            for chain in chains(graph, length):
                self._chains[self._members(chain)].append(chain)

    def signature(self, region: Iterable[int]) -> str:
        """The key of a region in the cost table; of a single unit, the unit's own."""
        key = tuple(sorted(region))
        signature = self._signatures.get(key)
        if signature is None:
            single = len(key) == 1
            units = self._graph.units
            signature = units[key[0]].signature if single else region_signature(self._graph, key)
            self._signatures[key] = signature
        return signature

    def places(
        self, rows: Iterable[Measurement], extra: Iterable[UnitSet] = ()
    ) -> dict[tuple[frozenset[int], Target], Measurement]:
        """(units, target) -> the row that measured them whole.

        A row is looked for where its units stand to each other as they did in the model that was
        measured, in every chain, and in ``extra`` regions; the signature decides.
        """
        named: dict[str, list[UnitSet]] = defaultdict(list)
        for region in extra:
            named[self.signature(region)].append(tuple(sorted(region)))
        rows_at: dict[tuple[frozenset[int], Target], Measurement] = {}
        for row in rows:
            for region in {*self._candidates(row), *named.get(row.signature, ())}:
                rows_at[frozenset(region), row.target] = row
        return rows_at

    def _candidates(self, row: Measurement) -> Iterator[UnitSet]:
        n = len(self._graph.units)
        for first in self._units.get(row.members[0], ()) if row.members else ():
            region = tuple(first + offset for offset in row.offsets)
            if region[-1] < n and self._is(region, row):
                yield region
        if row.n_units > 1:
            for chain in self._chains.get(row.members, ()):
                if self._is(chain, row):
                    yield chain

    def _is(self, region: UnitSet, row: Measurement) -> bool:
        return self._members(region) == row.members and self.signature(region) == row.signature

    def _members(self, region: UnitSet) -> tuple[str, ...]:
        return tuple(self._graph.units[index].signature for index in region)


INFERRED_WEIGHT = 0.05
"""Of an inferred sample's squared error beside a measured one's."""
CLOSE = 0.01
"""Latencies of one region that differ by less are told apart by noise only."""


def fit(
    graph: UnitGraph,
    rows: Iterable[Measurement],
    *,
    regions: Iterable[UnitSet] = (),
    locator: Locator | None = None,
    host: Roofline = PHONE_CPU,
    refit: FitCache | None = None,
    fits: Mapping[Target, TargetFit] | None = None,
) -> CostModel:
    """Fits the cost model of ``graph`` from the measurements of one device.

    ``rows`` are :meth:`CostStore.measurements` under one set of conditions; of rows with equal
    signature and target the last counts, and rows of units that are not in the graph are left
    out. ``regions`` are sets of units that may have been measured whole, beyond those that
    ``locator`` finds itself (of this graph; one that was used before is faster, as is ``refit``).
    ``host`` prices units that no engine of the agent can run. ``fits`` are those of an earlier
    fit, which are taken as they are: what a bundle was planned with.
    Raises CostError where a unit of the graph has no row at all: it was never tried.
    """
    signatures = {unit.signature for unit in graph.units}
    last = {(row.signature, row.target): row for row in rows if signatures.issuperset(row.members)}
    _check_complete(graph, {signature for signature, _ in last})

    unit_bytes = {unit.signature: cold_bytes(graph, (unit.index,)) for unit in graph.units}
    samples: dict[Target, list[RegionSample]] = defaultdict(list)
    for (signature, target), row in last.items():
        if row.usable and row.summary.median_ns > 0 and row.kind is not Kind.PLAN:
            through = sum(unit_bytes[member] for member in row.members)
            samples[target].append(
                RegionSample(
                    row.members,
                    signature,
                    target.key,
                    row.input_bytes,
                    row.output_bytes,
                    row.summary.median_ns,
                    through if through > CACHE_BYTES else 0,
                )
            )
    last |= infer_preferences(samples, last)
    if fits is None:
        cache = refit or FitCache()
        fits = {target: cache.fit(target, own) for target, own in samples.items()}
        fits = share_spreads(fits, samples)
    refusals = _refusals(graph, last)
    host_ns = {
        unit.index: host.unit_ns(graph, unit)
        for unit in graph.units
        if not any(
            unit.signature in fitted.unit_ns and (unit.index, target) not in refusals
            for target, fitted in fits.items()
        )
    }
    whole = (locator or Locator(graph)).places(last.values(), regions)
    partial = _partial(signatures, samples, last)
    return CostModel(
        graph=graph,
        targets=(
            *sorted(fits, key=lambda t: (t != CPU, t.accelerator == AUTO, t.key)),
            *((HOST,) if host_ns else ()),
        ),
        fits=fits,
        refusals=refusals,
        partial=partial,
        simulated=any(row.simulated for row in last.values()),
        _host_ns=host_ns,
        compiling=fit_compiling(last.values(), whole),
        _whole=whole,
    )


def _refusals(
    graph: UnitGraph, whole: Mapping[tuple[str, Target], Measurement]
) -> dict[tuple[int, Target], str]:
    """Sentences of the units that were tried on a target and did not run."""
    readers = defaultdict(list)
    for unit in graph.units:
        readers[unit.signature].append(unit.index)
    return {
        (index, target): row.why_not
        for (signature, target), row in whole.items()
        if not row.usable
        for index in readers.get(signature, ())
    }


def _partial(
    signatures: set[str],
    samples: Mapping[Target, Sequence[RegionSample]],
    rows: Mapping[tuple[str, Target], Measurement],
) -> frozenset[Target]:
    """Targets of NNAPI's on which some units were neither tried nor inferred."""
    tried: dict[Target, set[str]] = defaultdict(set)
    for signature, target in rows:
        tried[target].add(signature)
    for target, own in samples.items():
        tried[target].update(sample.signature for sample in own)
    return frozenset(
        target
        for target, own in tried.items()
        if target.engine is Engine.NNAPI and not signatures <= own
    )


def _check_complete(graph: UnitGraph, tried: set[str]) -> None:
    missing = [unit for unit in graph.units if unit.signature not in tried]
    if missing:
        raise CostError(
            f"{len(missing)} of the model's {len(graph.units)} units were never measured on this "
            f"device (the first is {missing[0].name}, {missing[0].label}); run nnapi-prof profile "
            f"with the same model, inputs and device"
        )


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
    """The fits, where a preference without regions of its own takes the spread of sums that the
    accelerator shows under the one with most regions: what a driver joins, it joins under each."""
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
    from scipy.optimize import nnls  # who reads a fit does without

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


# ---- compile times ------------------------------------------------------------------------------


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
    means = {name: [_mean(same) for same in own.values()] for name, own in samples.items()}
    return CompileModel(means, {place: sum(ns) / len(ns) for place, ns in whole.items()})


def _mean(same: list[RegionSample]) -> RegionSample:
    """One sample of several preferences'."""
    return replace(same[0], median_ns=sum(sample.median_ns for sample in same) / len(same))
