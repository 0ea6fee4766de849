"""Chooses the regions that are measured before there is a plan: a trial, units, chains and runs.

A trial comes first: a few units, the heaviest of their kinds among them, on every accelerator under
one preference. An accelerator that lies far behind the CPU there (NNAPI's reference kernels do),
and NNAPI's own choice ("auto") where it is no faster than the fastest target that it may choose
from, is left at that. Every unit runs on the CPU and on the other accelerators; under their other
preferences a sample of units does, and the rest only where the sample says that there is something
to be had. Regions of several units tell what joining saves (overheads, transfers, what a driver
fuses) or costs (cold caches): a chain of two for each pair of kinds, and runs of 4, 8, 16, ...
units up to the whole model. They run where the costs of units alone leave a chance that a plan uses
the target. Then it is measure, partition, measure: :mod:`nnapi_prof.execution.profile.refine`.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
from scipy.optimize import linprog

from nnapi_prof.costs.measurement import Kind, Measurement
from nnapi_prof.costs.model.fit import CLOSE, UnitSet, chains
from nnapi_prof.costs.samples import log_ratios, medians
from nnapi_prof.execution.profile.jobs import TargetSpec
from nnapi_prof.graph.plan import AUTO, Engine, Preference, Target
from nnapi_prof.graph.unit import Unit, UnitGraph

SAMPLE = 3
"""UnitSet that show how two preferences compare: two tell a factor, the third whether it holds."""
HEAVY_KINDS = 4
MOVING_KINDS = 2
"""Of a trial: kinds of units, with arithmetic and without."""
FAR = 1.5
"""Times as slow as the CPU on the units of a trial by themselves: an accelerator that is, and
faster on none of them, is not faster where they are joined either."""
AHEAD = 0.03
"""Relative: what NNAPI's own choice must save on one unit of a trial to be measured on all. It runs
on targets that are measured by their own names, and repeats vary by a percent."""
SHORTEST_RUN = 4
MUCH = 0.1
"""Relative: that a preference is so much faster for one unit is worth a look at all of them."""
SURE = 2.0
"""Standard errors."""


def unit_regions(
    graph: UnitGraph, among: Iterable[int] | None = None
) -> Iterator[tuple[Kind, UnitSet]]:
    """Every unit (of ``among``) alone."""
    for unit in range(len(graph.units)) if among is None else among:
        yield Kind.UNIT, (unit,)


def chain_regions(
    graph: UnitGraph, stretches: Sequence[UnitSet] | None = None
) -> Iterator[tuple[Kind, UnitSet]]:
    """One chain of two for each pair of kinds of units (the heaviest), and runs of 4, 8, 16, ...
    units, from the graph's begin and its end in turn, up to all of it; by their first unit.

    With ``stretches`` of units that may stand together, runs are of the first of them, and chains
    within each."""
    if stretches is None:
        stretches = (tuple(range(len(graph.units))),)
    stretch_of = {unit: number for number, own in enumerate(stretches) for unit in own}
    heaviest: dict[tuple[str, ...], UnitSet] = {}
    for chain in chains(graph, 2):
        if len({stretch_of.get(unit, -1) for unit in chain}) > 1 or chain[0] not in stretch_of:
            continue
        kinds = tuple(graph.units[u].operation for u in chain)
        if kinds not in heaviest or _macs(graph, chain) > _macs(graph, heaviest[kinds]):
            heaviest[kinds] = chain
    units = stretches[0] if stretches else ()
    n = len(units)
    regions = set(heaviest.values())
    length, at_end = SHORTEST_RUN, False
    while length < n:
        regions.add(units[n - length :] if at_end else units[:length])
        length, at_end = 2 * length, not at_end
    if n > 1:
        regions.add(units)
    for region in sorted(regions):
        yield Kind.CHAIN if region != units else Kind.REGION, region


def _macs(graph: UnitGraph, region: UnitSet) -> int:
    return sum(graph.units[u].macs for u in region)


def sample_units(graph: UnitGraph, among: Collection[int] | None = None) -> tuple[int, ...]:
    """:data:`SAMPLE` different units (of ``among``) from the lightest to the heaviest by their
    arithmetic."""
    first = {unit.signature: unit for unit in reversed(_units_among(graph, among))}
    ordered = sorted(first.values(), key=lambda unit: (unit.macs, unit.constant_bytes, unit.index))
    if len(ordered) <= SAMPLE:
        return tuple(unit.index for unit in ordered)
    last = len(ordered) - 1
    return tuple(ordered[round(i * last / (SAMPLE - 1))].index for i in range(SAMPLE))


def trial_units(graph: UnitGraph, among: Collection[int] | None = None) -> tuple[int, ...]:
    """The sample (of ``among``), the heaviest units of the kinds that have most arithmetic, and
    those that move most without any, ascending."""
    chosen = list(sample_units(graph, among))
    kinds: dict[str, list[int]] = defaultdict(list)
    for unit in _units_among(graph, among):
        kinds[unit.operation].append(unit.index)
    weight = [(unit.macs, _bytes_moved(graph, unit.index), -unit.index) for unit in graph.units]
    working = [kind for kind, units in kinds.items() if any(weight[u][0] for u in units)]
    working.sort(key=lambda kind: -sum(weight[u][0] for u in kinds[kind]))
    moving = [kind for kind in kinds if kind not in working]
    moving.sort(key=lambda kind: -max(weight[u][1] for u in kinds[kind]))
    for kind in (*working[:HEAVY_KINDS], *moving[:MOVING_KINDS]):
        heaviest = max(kinds[kind], key=lambda u: weight[u])
        if all(graph.units[u].signature != graph.units[heaviest].signature for u in chosen):
            chosen.append(heaviest)
    return tuple(sorted(chosen))


def _units_among(graph: UnitGraph, among: Collection[int] | None) -> list[Unit]:
    return [unit for unit in graph.units if among is None or unit.index in among]


def _bytes_moved(graph: UnitGraph, unit: int) -> int:
    """Bytes that a unit reads and makes."""
    own = graph.units[unit]
    return sum(graph.values[name].n_bytes for name in (*own.inputs, *own.outputs))


def far_slower_targets(
    leaders: Iterable[Target], rows: Iterable[Measurement], doubted: Collection[Target] = ()
) -> frozenset[Target]:
    """The leading targets that the rows of a trial show to lie far behind: accelerators against the
    CPU, which runs whatever they do; NNAPI's own choice against the accelerators that it may choose
    from. ``doubted`` are those that lay behind in another precision: of these the heaviest unit
    tells, invocation and all."""
    alone: dict[Target, dict[str, Measurement]] = {target: {} for target in leaders}
    for row in rows:
        if row.n_units == 1 and row.usable and row.target in alone:
            alone[row.target][row.signature] = row
    on_cpu = next((own for target, own in alone.items() if target.engine is Engine.CPU), {})
    named = [
        own
        for target, own in alone.items()
        if target.engine is Engine.NNAPI and target.accelerator != AUTO
    ]
    targets = set()
    for target, own in alone.items():
        if target.engine is not Engine.NNAPI or not own:
            continue
        is_behind = _follows(own, named) if target.accelerator == AUTO else _is_slow(own, on_cpu)
        if is_behind or (target in doubted and _is_slow_at_most(own, on_cpu)):
            targets.add(target)
    return frozenset(targets)


def _is_slow(own: Mapping[str, Measurement], on_cpu: Mapping[str, Measurement]) -> bool:
    """Whether units are slower than on the CPU by themselves: without what an invocation takes and
    what moving takes, which the units of a segment share."""
    if not own.keys() <= on_cpu.keys():
        return False  # it runs what the CPU does not
    alone = [row.summary.median_ns for row in own.values()]
    rivals = [on_cpu[name].summary.median_ns for name in own]
    least = _least_by_itself(alone, list(own.values()))
    return sum(least) >= FAR * sum(rivals) and all(
        ns >= rival or whole >= FAR * rival
        for ns, rival, whole in zip(least, rivals, alone, strict=True)
    )


def _is_slow_at_most(own: Mapping[str, Measurement], on_cpu: Mapping[str, Measurement]) -> bool:
    """Whether the unit with most arithmetic is far slower than on the CPU."""
    heaviest = max(own.values(), key=lambda row: (row.macs or 0, row.signature))
    rival = on_cpu.get(heaviest.signature)
    return rival is not None and heaviest.summary.median_ns >= FAR * rival.summary.median_ns


def _least_by_itself(alone: Sequence[float], rows: Sequence[Measurement]) -> list[float]:
    """Bounds each unit's cost from below, in ns, where an invocation and each byte in and out may
    take as much as all of the latencies allow."""
    ns = np.array(alone)
    shared = np.array([(1.0, row.input_bytes, row.output_bytes) for row in rows])
    size = np.maximum(shared.max(axis=0), 1.0)
    scale = float(ns.max())
    regions = []
    for i, row in enumerate(shared / size):
        most = linprog(-row, A_ub=shared / size, b_ub=ns / scale)
        regions.append(float(ns[i]) - scale * float(row @ most.x) if most.status == 0 else 0.0)
    return regions


def _follows(own: Mapping[str, Measurement], named: Sequence[Mapping[str, Measurement]]) -> bool:
    """Whether no unit runs faster than on the fastest accelerator that runs it by name."""
    for name, row in own.items():
        fastest = min(
            (rows[name].summary.median_ns for rows in named if name in rows), default=math.inf
        )
        if row.summary.median_ns < fastest * (1 - AHEAD):
            return False
    return True


def first_targets(specs: Sequence[TargetSpec]) -> frozenset[Target]:
    """The CPU, and of every accelerator one preference: for fast answers where it is there."""
    first: dict[str | None, Target] = {}
    for spec in specs:
        name = spec.target.accelerator
        if name not in first or spec.target.preference is Preference.FAST_SINGLE_ANSWER:
            first[name] = spec.target
    return frozenset(first.values())


def promising_targets(
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
    targets = set()
    for leader in leaders:
        for spec in specs:
            if spec.target in leaders or spec.target.accelerator != leader.accelerator:
                continue
            leading, other = alone[leader], alone[spec.target]
            ratios = [_ratio(leading[name], other[name]) for name in leading.keys() & other.keys()]
            n = len(ratios)
            mean = sum(ratio for ratio, _ in ratios) / n if n else 0.0
            error = math.hypot(*(error for _, error in ratios)) / n if n else 0.0
            faster = mean + SURE * error < math.log(1 - CLOSE) or any(
                ratio + SURE * error < math.log(1 - MUCH) for ratio, error in ratios
            )
            if faster or (n < 2 and len(leading) > n):
                targets.add(spec.target)
    return frozenset(targets)


def _ratio(leading: Measurement, other: Measurement) -> tuple[float, float]:
    """ln(other / leading), and its standard error as their rounds show it."""
    rounds = log_ratios(*(medians(row.samples_ns, row.rounds) for row in (leading, other)))
    if not rounds:
        return math.log(other.summary.median_ns / leading.summary.median_ns), 0.0
    spread = statistics.stdev(rounds) if len(rounds) > 1 else 0.0
    return statistics.median(rounds), spread / math.sqrt(len(rounds))
