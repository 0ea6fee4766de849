"""Choose the regions to measure: a trial, units, chains and runs, then those that a plan needs.

A trial comes first: a few units, the heaviest of their kinds among them, on every accelerator under
one preference. Nothing more is measured on an accelerator that is far slower than the CPU there
(NNAPI's reference kernels are), or on NNAPI's own choice ("auto") where it is no faster than the
fastest target that it may choose from. Every unit runs on the CPU and on the other accelerators; a
sample of units runs under their other preferences, and the rest only where the sample shows a gain.
Regions of several units show what joining saves (overheads, transfers, what a driver fuses) or
costs (cold caches): a chain of two for each pair of kinds, and runs of 4, 8, 16, ... units up to
the whole model. They run where a plan may use the target, by the costs of units alone.

Then planning and measuring take turns: the regions of a plan are measured whole.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import linprog

from nnapi_prof.costs.measurement import Kind, Measurement, log_ratios, medians
from nnapi_prof.costs.model import CostModel
from nnapi_prof.costs.model.fit import CLOSE, UnitSet, chains
from nnapi_prof.costs.model.regression import UNKNOWN_SPREAD
from nnapi_prof.costs.model.views import FittedCosts, with_intervals
from nnapi_prof.costs.table import drop_dominated_targets, optimistic
from nnapi_prof.execution.profile.jobs import TargetSpec
from nnapi_prof.graph.plan import AUTO, Engine, Plan, Preference, Segment, Target
from nnapi_prof.graph.unit import Unit, UnitGraph
from nnapi_prof.partition import (
    TOLERANCE,
    Constraints,
    CostTable,
    Partitioning,
    Report,
    SearchLimits,
    WarmStart,
    baselines,
    make_problem,
    plan_problem,
)
from nnapi_prof.partition.blocks import all_ideals, convex_sets

SAMPLE = 3
"""Number of units that compare two preferences: two show a factor, the third whether it holds."""
HEAVY_KINDS = 4
MOVING_KINDS = 2
"""Number of kinds of units in a trial, with arithmetic and without."""
FAR = 1.5
"""Slow-down against the CPU, on a trial's units by themselves, of a far slower accelerator. If it
is faster on none of them, it is not faster where they are joined either."""
AHEAD = 0.03
"""Relative gain on one unit of a trial that NNAPI's own choice needs to be measured on all units.
It runs on targets that are measured by their own names, and repeats vary by a percent."""
SHORTEST_RUN = 4
MUCH = 0.1
"""Relative gain of a preference on one unit for which all units are measured under it."""
SURE = 2.0
"""Number of standard errors that a gain must exceed."""


def unit_regions(
    graph: UnitGraph, among: Iterable[int] | None = None
) -> Iterator[tuple[Kind, UnitSet]]:
    """Yields every unit (of ``among``) alone."""
    for unit in range(len(graph.units)) if among is None else among:
        yield Kind.UNIT, (unit,)


def chain_regions(
    graph: UnitGraph, stretches: Sequence[UnitSet] | None = None
) -> Iterator[tuple[Kind, UnitSet]]:
    """Yields the heaviest chain of two for each pair of kinds of units, and runs of 4, 8, 16, ...
    units, from the graph's beginning and end in turn, up to the whole graph; sorted by first unit.

    With ``stretches`` of units that may be joined, runs are of the first one, and chains within
    each.
    """
    if stretches is None:
        stretches = (tuple(range(len(graph.units))),)
    stretch_of = {unit: number for number, own in enumerate(stretches) for unit in own}
    heaviest: dict[tuple[str, ...], UnitSet] = {}
    for chain in chains(graph, 2):
        if len({stretch_of.get(unit, -1) for unit in chain}) > 1 or chain[0] not in stretch_of:
            continue
        kinds = tuple(graph.units[u].kind for u in chain)
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
    """Returns :data:`SAMPLE` different units (of ``among``), from the lightest to the heaviest by
    their arithmetic."""
    first = {unit.signature: unit for unit in reversed(_units_among(graph, among))}
    ordered = sorted(first.values(), key=lambda unit: (unit.macs, unit.constant_bytes, unit.index))
    if len(ordered) <= SAMPLE:
        return tuple(unit.index for unit in ordered)
    last = len(ordered) - 1
    return tuple(ordered[round(i * last / (SAMPLE - 1))].index for i in range(SAMPLE))


def trial_units(graph: UnitGraph, among: Collection[int] | None = None) -> tuple[int, ...]:
    """Returns the sample (of ``among``), the heaviest units of the kinds that have most arithmetic,
    and those that move most without any, ascending."""
    chosen = list(sample_units(graph, among))
    kinds: dict[str, list[int]] = defaultdict(list)
    for unit in _units_among(graph, among):
        kinds[unit.kind].append(unit.index)
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
    """Returns the bytes that a unit reads and writes."""
    own = graph.units[unit]
    return sum(graph.values[name].n_bytes for name in (*own.inputs, *own.outputs))


def far_slower_targets(
    leaders: Iterable[Target], rows: Iterable[Measurement], doubted: Collection[Target] = ()
) -> frozenset[Target]:
    """Returns the leading targets that are far slower in a trial: accelerators than the CPU, which
    runs whatever they run; NNAPI's own choice than the accelerators that it may choose from. For
    ``doubted`` ones, which were far slower in another precision, a slow heaviest unit, invocation
    included, is enough."""
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
    """Returns whether units by themselves are far slower than on the CPU: without invocation and
    transfers, which the units of a segment share."""
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
    """Returns whether the unit with most arithmetic is far slower than on the CPU."""
    heaviest = max(own.values(), key=lambda row: (row.macs or 0, row.signature))
    rival = on_cpu.get(heaviest.signature)
    return rival is not None and heaviest.summary.median_ns >= FAR * rival.summary.median_ns


def _least_by_itself(alone: Sequence[float], rows: Sequence[Measurement]) -> list[float]:
    """Returns a lower bound of each unit's own cost in ns, where an invocation and each byte in and
    out may take as much as all of the latencies allow."""
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
    """Returns whether no unit runs faster than on the fastest accelerator that runs it by name."""
    for name, row in own.items():
        fastest = min(
            (rows[name].summary.median_ns for rows in named if name in rows), default=math.inf
        )
        if row.summary.median_ns < fastest * (1 - AHEAD):
            return False
    return True


def first_targets(specs: Sequence[TargetSpec]) -> frozenset[Target]:
    """Returns the CPU and each accelerator under one preference, FAST_SINGLE_ANSWER if possible."""
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
    """Returns the targets of other preferences that were faster than the leading one on the units
    of ``rows`` on average, or much faster on one of them, by more than their rounds vary; also
    unknown ones: fewer than two units ran under both."""
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
    """Returns ln(other / leading), and its standard error by their rounds."""
    rounds = log_ratios(*(medians(row.samples_ns, row.rounds) for row in (leading, other)))
    if not rounds:
        return math.log(other.summary.median_ns / leading.summary.median_ns), 0.0
    spread = statistics.stdev(rounds) if len(rounds) > 1 else 0.0
    return statistics.median(rounds), spread / math.sqrt(len(rounds))


WORTH = 0.01
"""Share of the plan's latency that a target must be able to save to have chains measured."""


def worthwhile_targets(
    costs: FittedCosts, plan: Plan, candidates: Iterable[Target]
) -> frozenset[Target]:
    """Returns the plan's targets, and those that could shorten it by :data:`WORTH` if each unit
    (and the overhead) were cheaper there by the uncertainty of sums of units.

    A unit's share of the plan is its part of its segment's latency.
    """
    share: dict[int, float] = {}
    for segment in plan.segments:
        parts = {u: costs.unit_cost(u, segment.target) or 0.0 for u in segment.units}
        whole = sum(parts.values())
        for u, part in parts.items():
            share[u] = segment.predicted_ns * (part / whole if whole else 1 / len(parts))
    hope = 1 - UNKNOWN_SPREAD
    targets = {s.target for s in plan.segments if s.target.engine is not Engine.HOST}
    for target in candidates:
        saved = -hope * costs.overhead(target)
        for u, ns in share.items():
            own = costs.unit_cost(u, target)
            if own is not None:
                saved += max(0.0, ns - hope * own)
        if saved > WORTH * plan.predicted_ns:
            targets.add(target)
    return frozenset(targets)


MOST_CONVEX = 200_000
"""Largest number of convex regions that are counted, ..."""
MOST_IDEALS = 1_000
"""... and of ideals, because every two of them are compared."""

SETTLED = TOLERANCE / 2
"""Share of the plan's latency; measuring ends when it cannot save more than this, or than noise."""
LIMITS = SearchLimits(seconds=2.0, effort=4e6, gap=1e-3)
"""Limits of one plan between two rounds of measuring; a later round continues from it."""


@dataclass
class Chosen:
    """A plan under some costs, and the segments to measure for it."""

    plan: Plan
    hoped: list[Segment] = field(default_factory=list)
    """Unmeasured segments of the plan that would be best at the lower ends of all intervals."""
    potential: float = 0.0
    """Largest share of the plan's latency that a plan with unmeasured regions may save."""
    warm: Warm = field(default_factory=lambda: Warm())
    interrupted: bool = False
    """Ctrl-C ended the search for the plan: it is the best so far."""

    @property
    def to_measure(self) -> list[Segment]:
        """The segments that must be measured before the plan is stable."""
        return [] if self.interrupted else [*unmeasured(self.plan), *self.hoped]


@dataclass(frozen=True)
class Warm:
    """The state that planning passes from one round to the next."""

    plan: WarmStart = field(default_factory=WarmStart)
    hopeful: WarmStart = field(default_factory=WarmStart)


def choose(
    graph: UnitGraph,
    costs: FittedCosts,
    warm: Warm | None = None,
    limits: SearchLimits = LIMITS,
    report: Report | None = None,
    forbidden: Callable[[int, Target], bool] | None = None,
    settled: float = SETTLED,
    copies: bool = False,
) -> Chosen:
    """Returns the plan, and the segments to measure before it is stable: its own, and those of the
    plan that would be best if everything unmeasured took the lower end of its interval. The latter
    count only where that plan would be faster by more than noise and the share ``settled``.
    ``forbidden`` says which units are kept off which targets, in both; ``copies`` are those of
    :func:`~nnapi_prof.partition.make_problem`."""
    warm = warm or Warm()
    table = drop_dominated_targets(costs.table)
    constraints = None if forbidden is None else _constraints(graph, table.targets, forbidden)

    def planned(which: CostTable, tolerance: float, start: WarmStart) -> Partitioning:
        return plan_problem(
            make_problem(graph, which, copies=copies),
            tolerance=tolerance,
            limits=limits,
            report=report,
            warm=start,
            with_curve=False,
            constraints=constraints,
        )

    now = planned(table, TOLERANCE, warm.plan)
    plan = with_intervals(now.default, costs)
    if now.interrupted:
        return Chosen(plan, warm=Warm(now.warm, warm.hopeful), interrupted=True)
    hopeful = planned(optimistic(table), 0.0, warm.hopeful)
    ns = plan.predicted_ns
    potential = max(0.0, 1 - hopeful.best.predicted_ns / ns) if ns > 0 else 0.0
    worth_it = potential > max(settled, costs.noise)
    hoped = list(unmeasured(hopeful.best)) if worth_it else []
    return Chosen(plan, hoped, potential, Warm(now.warm, hopeful.warm), hopeful.interrupted)


def repriced(plan: Plan, costs: FittedCosts) -> Plan | None:
    """Returns an earlier plan at the present costs; None unless all of it was measured whole."""
    segments = []
    for segment in plan.segments:
        cost = costs.region_cost(segment.units, segment.target)
        if cost is None or not (cost.measured or segment.target.engine is Engine.HOST):
            return None
        segments.append(
            replace(segment, predicted_ns=cost.ns, measured=cost.measured, estimated=cost.estimated)
        )
    problem = make_problem(costs.graph, costs.table)
    placements = [(s.units, problem.target_index(s.target)) for s in segments]
    priced = replace(
        plan,
        segments=tuple(segments),
        remarks=(),
        proof=None,
        conversions_ns=problem.conversions_ns(placements),
    )
    return with_intervals(priced, costs)


def _constraints(
    graph: UnitGraph, targets: Iterable[Target], forbidden: Callable[[int, Target], bool]
) -> Constraints:
    there = tuple(targets)
    units = range(len(graph.units))
    return Constraints(
        forbidden={unit: frozenset(t for t in there if forbidden(unit, t)) for unit in units}
    )


def rivals(graph: UnitGraph, costs: CostModel, copies: bool) -> tuple[Plan, ...]:
    """Returns the baselines; ``copies`` as in :func:`choose`."""
    own = drop_dominated_targets(costs.table, auto=True)
    problem = make_problem(graph, own, copies=copies)
    return tuple(with_intervals(plan, costs) for plan in baselines(problem))


def unknown(plan: Plan, costs: CostModel) -> list[Segment]:
    """Returns the unmeasured segments of a baseline, where they make its latency uncertain by more
    than the tolerance of plans. Errors of sums add up."""
    segments = list(unmeasured(plan))
    low_high = [s.interval_ns or (s.predicted_ns, s.predicted_ns) for s in segments]
    half = sum(high - low for low, high in low_high) / 2
    return segments if half > TOLERANCE * plan.predicted_ns else []


def unmeasured(plan: Plan) -> Iterator[Segment]:
    """Yields the segments on the device that were not measured whole."""
    for segment in plan.segments:
        if not segment.measured and segment.target.engine is not Engine.HOST:
            yield segment


def count_exhaustive(graph: UnitGraph, costs: FittedCosts) -> int | None:
    """Returns the number of measurements of every convex region on every target that runs its
    units; None where there are more than :data:`MOST_CONVEX` regions."""
    predecessors = [graph.predecessors(u) for u in range(len(graph.units))]
    if all_ideals(predecessors, MOST_IDEALS) is None:
        return None
    sets = convex_sets(predecessors, MOST_CONVEX)
    if sets is None:
        return None
    count = 0
    for target in costs.targets:
        if target.engine is Engine.HOST:
            continue
        unable = 0
        for unit in range(len(graph.units)):
            if costs.unit_cost(unit, target) is None:
                unable |= 1 << unit
        count += sum(not region & unable for region in sets) if unable else len(sets)
    return count
