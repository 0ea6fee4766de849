"""Fit the cost model of a graph to measurements of one device, target by target.

A row applies to a region of the graph whose units are connected as they were in the model that was
measured (:class:`RegionMatcher`).
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from nnapi_prof.costs import Conditions
from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.costs.model import PHONE_CPU, CompileModel, CostModel, Roofline
from nnapi_prof.costs.model.forms import formed_rows
from nnapi_prof.costs.model.infer import infer_preferences, region_samples, share_spreads
from nnapi_prof.costs.model.regression import FitCache, RegionSample, TargetFit
from nnapi_prof.errors import NotMeasured
from nnapi_prof.graph.plan import AUTO, CPU, HOST, Engine, Precision, Target
from nnapi_prof.graph.unit import UnitGraph, region_signature

UnitSet = tuple[int, ...]
"""Indices of units, ascending."""


def chains(graph: UnitGraph, length: int) -> Iterator[UnitSet]:
    """Yields paths of ``length`` units where each is the only reader of the only value before it.

    A value that another unit reads too, or that the model returns, ends a chain: a region would
    have to output it, and would not show what joining saves. Only the last value leaves a chain, so
    no unit outside can be between two of its units.
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


class RegionMatcher:
    """Matcher that finds measured regions in ``graph`` and caches the expensive signatures."""

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
        """Returns the key of a region in the cost table; for a single unit, the unit's own."""
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
        """Returns (units, target) -> the row that measured them whole.

        Candidates for a row are regions with its units at the same offsets as in the model that was
        measured, all chains, and ``extra`` regions; the signature decides.
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


CLOSE = 0.01
"""Relative difference of two latencies of one region below which it is only noise."""


def fit(
    graph: UnitGraph,
    rows: Iterable[Measurement],
    *,
    regions: Iterable[UnitSet] = (),
    matcher: RegionMatcher | None = None,
    host: Roofline = PHONE_CPU,
    refit: FitCache | None = None,
    fits: Mapping[Target, TargetFit] | None = None,
    also: Mapping[Target, Sequence[RegionSample]] | None = None,
    among: Collection[int] | None = None,
) -> CostModel:
    """Fits the cost model of ``graph`` from the measurements of one device.

    ``rows`` are :meth:`.CostStore.measurements` under one set of conditions. The last of rows with
    equal signature and target counts; rows of units that are not in the graph are ignored.
    ``regions`` are sets of units that may have been measured whole, beyond those that ``matcher``
    finds (reusing a graph's matcher or ``refit`` is faster). ``host`` prices units that no engine
    of the agent can run. ``fits`` of an earlier fit, such as those that a bundle was planned with,
    are used unchanged. ``also`` are inferred samples, which count where nothing was measured.
    ``among`` are the units that need costs; None for all.
    Raises NotMeasured where one of these was never tried.
    """
    asked = range(len(graph.units)) if among is None else among
    signatures = {graph.units[unit].signature for unit in asked}
    last = {(row.signature, row.target): row for row in rows if signatures.issuperset(row.members)}
    inferred = {sample.signature for more in (also or {}).values() for sample in more}
    _check_complete(graph, asked, inferred.union(signature for signature, _ in last))

    samples = region_samples(graph, last.values())
    for target, more in (also or {}).items():
        tried = {signature for signature, place in last if place == target}
        own = [sample for sample in more if sample.signature not in tried]
        samples[target] = [*samples.get(target, []), *own]
    last |= infer_preferences(samples, last)
    if fits is None:
        cache = refit or FitCache()
        converts = any(
            row.target.engine is Engine.CPU and row.conditions.precision is not Precision.FLOAT32
            for row in last.values()
        )
        fits = {target: cache.fit(target, own, converts) for target, own in samples.items()}
        fits = share_spreads(fits, samples)
    refusals = _refusal_reasons(graph, last)
    host_ns = {
        unit.index: host.unit_ns(graph, unit)
        for unit in (graph.units[index] for index in asked)
        if not any(
            unit.signature in fitted.unit_ns and (unit.index, target) not in refusals
            for target, fitted in fits.items()
        )
    }
    whole = (matcher or RegionMatcher(graph)).places(last.values(), regions)
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
        copy_ns_per_byte=_copy_rate(last.values()),
        _host_ns=host_ns,
        compiling=fit_compiling(last.values(), whole),
        _whole=whole,
    )


def _copy_rate(rows: Iterable[Measurement]) -> float:
    """Returns ns for each copied byte of inputs and outputs, over all accelerators, as the caller's
    core does the copying."""
    copied = [
        (statistics.median(row.copies_ns), row.input_bytes + row.output_bytes)
        for row in rows
        if row.target.engine is Engine.NNAPI and row.usable and row.copies_ns
    ]
    n_bytes = sum(size for _, size in copied)
    return sum(ns for ns, _ in copied) / n_bytes if n_bytes else 0.0


def _refusal_reasons(
    graph: UnitGraph, whole: Mapping[tuple[str, Target], Measurement]
) -> dict[tuple[int, Target], str]:
    """Returns (unit, target) -> reason, for units that were tried on a target and did not run."""
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
    """Returns the NNAPI targets on which some units were neither tried nor inferred."""
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


def _check_complete(graph: UnitGraph, asked: Collection[int], tried: set[str]) -> None:
    units = [graph.units[index] for index in asked]
    missing = [unit for unit in units if unit.signature not in tried]
    if missing:
        raise NotMeasured(
            f"{len(missing)} of the model's {len(units)} units were never measured on this "
            f"device (the first is {missing[0].name}, {missing[0].label}); run nnapi-prof profile "
            f"with the same model, inputs and device"
        )


# ---- compile times ------------------------------------------------------------------------------


def fit_compiling(
    rows: Iterable[Measurement],
    places: Mapping[tuple[frozenset[int], Target], Measurement],
) -> CompileModel:
    """Makes the compile model of one device's rows; ``places`` are those that are regions of the
    graph."""
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
    means = {name: [_mean_sample(same) for same in own.values()] for name, own in samples.items()}
    return CompileModel(means, {place: sum(ns) / len(ns) for place, ns in whole.items()})


def _mean_sample(same: list[RegionSample]) -> RegionSample:
    return replace(same[0], median_ns=sum(sample.median_ns for sample in same) / len(same))


def fitted_costs(
    graph: UnitGraph, rows: Sequence[Measurement], conditions: Conditions, by_trial: bool = False
) -> CostModel:
    """Fits the cost model of a graph to its measurements on a device. ``by_trial`` is True where
    the user did not state the number of threads.

    Raises NotMeasured where a unit was never measured there under these conditions, or not on the
    CPU.
    """
    rows = formed_rows(graph, rows)
    costs = fit(graph, rows)
    on_cpu = {row.signature for row in rows if row.target.engine is Engine.CPU}
    missing = [unit for unit in graph.units if unit.signature not in on_cpu]
    usual = Conditions()
    stated = replace(conditions, threads=usual.threads).options if by_trial else conditions.stated
    asked = f"nnapi-prof profile {stated}".rstrip()
    if missing:
        plural = "" if conditions.threads == 1 else "s"
        raise NotMeasured(
            f"{len(missing)} of the model's {len(graph.units)} units were never measured on this"
            f" device's CPU with {conditions.threads} thread{plural} on cores {conditions.cpus}"
            f" (the first is {missing[0].label})",
            f"run `{asked}` with the same model, inputs and device",
        )
    for_nnapi = replace(conditions, threads=usual.threads, cpus=usual.cpus).options
    if for_nnapi and all(row.target.engine is Engine.CPU for row in rows):
        raise NotMeasured(
            f"nothing was measured on this device's NNAPI with {for_nnapi}",
            f"run `{asked}` with the same model, inputs and device",
        )
    return costs
