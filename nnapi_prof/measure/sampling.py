"""Which regions are measured before there is a plan: units, chains, runs; and on which targets.

Every unit runs on the CPU and under one preference of every accelerator; under the others a sample
of units does, and the rest only where the sample says that there is something to be had. Regions of
several units tell what joining saves (overheads, transfers, what a driver fuses) or costs (cold
caches): a chain of two for each pair of kinds, and runs of 4, 8, 16, ... units up to the whole
model. They run where the costs of units alone leave a chance that a plan uses the target.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from nnapi_prof.costs.locate import Region, chains
from nnapi_prof.costs.measurement import Kind, Measurement
from nnapi_prof.costs.preferences import CLOSE
from nnapi_prof.costs.region import CostModel
from nnapi_prof.costs.regression import UNKNOWN_SPREAD
from nnapi_prof.costs.rounds import log_ratios, medians
from nnapi_prof.graph.plan import Engine, Plan, Preference, Target
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.measure.grid import TargetSpec

SAMPLE = 3
"""Units that show how two preferences compare: two tell a factor, the third whether it holds."""
SHORTEST_RUN = 4
MUCH = 0.1
"""Relative: that a preference is so much faster for one unit is worth a look at all of them."""
SURE = 2.0
"""Standard errors."""
WORTH = 0.01
"""A target that cannot shorten the plan by this much needs no chains."""


def unit_regions(graph: UnitGraph) -> Iterator[tuple[Kind, Region]]:
    """Every unit alone."""
    for unit in graph.units:
        yield Kind.UNIT, (unit.index,)


def chain_regions(graph: UnitGraph) -> Iterator[tuple[Kind, Region]]:
    """One chain of two for each pair of kinds of units (the heaviest), and runs of 4, 8, 16, ...
    units, from the graph's begin and its end in turn, up to all of it; by their first unit."""
    heaviest: dict[tuple[str, ...], Region] = {}
    for chain in chains(graph, 2):
        kinds = tuple(graph.units[u].label.partition(" ")[0] for u in chain)
        if kinds not in heaviest or _macs(graph, chain) > _macs(graph, heaviest[kinds]):
            heaviest[kinds] = chain
    n = len(graph.units)
    found = set(heaviest.values())
    length, at_end = SHORTEST_RUN, False
    while length < n:
        found.add(tuple(range(n - length, n) if at_end else range(length)))
        length, at_end = 2 * length, not at_end
    if n > 1:
        found.add(tuple(range(n)))
    for region in sorted(found):
        yield Kind.CHAIN if len(region) < n else Kind.REGION, region


def _macs(graph: UnitGraph, region: Region) -> int:
    return sum(graph.units[u].macs for u in region)


def sample_units(graph: UnitGraph) -> tuple[int, ...]:
    """:data:`SAMPLE` different units from the lightest to the heaviest by their arithmetic."""
    first = {unit.signature: unit for unit in reversed(graph.units)}
    ordered = sorted(first.values(), key=lambda unit: (unit.macs, unit.constant_bytes, unit.index))
    if len(ordered) <= SAMPLE:
        return tuple(unit.index for unit in ordered)
    last = len(ordered) - 1
    return tuple(ordered[round(i * last / (SAMPLE - 1))].index for i in range(SAMPLE))


def leading(specs: Sequence[TargetSpec]) -> frozenset[Target]:
    """The CPU, and of every accelerator one preference: for fast answers where it is there."""
    first: dict[str | None, Target] = {}
    for spec in specs:
        name = spec.target.accelerator
        if name not in first or spec.target.preference is Preference.FAST_SINGLE_ANSWER:
            first[name] = spec.target
    return frozenset(first.values())


def promising(
    specs: Sequence[TargetSpec],
    leaders: frozenset[Target],
    rows: Iterable[Measurement],
) -> frozenset[Target]:
    """The other preferences that were faster than the leading one for the units of ``rows`` in the
    mean, or much faster for one of them, by more than their rounds vary; or that nothing is known
    of: less than two ran under both."""
    alone: dict[Target, dict[str, Measurement]] = defaultdict(dict)
    for row in rows:
        if row.n_units == 1 and row.usable:
            alone[row.target][row.signature] = row
    found = set()
    for leader in leaders:
        for spec in specs:
            if spec.target in leaders or spec.target.accelerator != leader.accelerator:
                continue
            known, other = alone[leader], alone[spec.target]
            ratios = [_ratio(known[name], other[name]) for name in known.keys() & other.keys()]
            n = len(ratios)
            mean = sum(ratio for ratio, _ in ratios) / n if n else 0.0
            error = math.hypot(*(error for _, error in ratios)) / n if n else 0.0
            faster = mean + SURE * error < math.log(1 - CLOSE) or any(
                ratio + SURE * error < math.log(1 - MUCH) for ratio, error in ratios
            )
            if faster or (n < 2 and len(known) > n):
                found.add(spec.target)
    return frozenset(found)


def _ratio(known: Measurement, other: Measurement) -> tuple[float, float]:
    """ln(other / known), and its standard error as their rounds show it."""
    rounds = log_ratios(*(medians(row.samples_ns, row.rounds) for row in (known, other)))
    if not rounds:
        return math.log(other.summary.median_ns / known.summary.median_ns), 0.0
    spread = statistics.stdev(rounds) if len(rounds) > 1 else 0.0
    return statistics.median(rounds), spread / math.sqrt(len(rounds))


def worthwhile(costs: CostModel, plan: Plan, candidates: Iterable[Target]) -> frozenset[Target]:
    """Targets that could shorten ``plan`` by :data:`WORTH`, were each unit (and the overhead) as
    much cheaper there as sums of units are unknown; the plan's own among them.

    A unit's share of the plan is its part of its segment's latency.
    """
    share: dict[int, float] = {}
    for segment in plan.segments:
        parts = {u: costs.unit_cost(u, segment.target) or 0.0 for u in segment.units}
        whole = sum(parts.values())
        for u, part in parts.items():
            share[u] = segment.predicted_ns * (part / whole if whole else 1 / len(parts))
    hope = 1 - UNKNOWN_SPREAD
    found = {s.target for s in plan.segments if s.target.engine is not Engine.HOST}
    for target in candidates:
        saved = -hope * costs.overhead(target)
        for u, ns in share.items():
            own = costs.unit_cost(u, target)
            if own is not None:
                saved += max(0.0, ns - hope * own)
        if saved > WORTH * plan.predicted_ns:
            found.add(target)
    return frozenset(found)
