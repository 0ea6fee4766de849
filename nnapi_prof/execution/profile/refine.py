"""Chooses the regions of a plan to measure whole, in turns of planning and measuring."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from nnapi_prof.costs.model.region import CostModel
from nnapi_prof.costs.model.regression import UNKNOWN_SPREAD
from nnapi_prof.costs.model.views import (
    FittedCosts,
    OptimisticCosts,
    drop_dominated_targets,
    with_intervals,
)
from nnapi_prof.graph.plan import Engine, Plan, Segment, Target
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.partition import (
    TOLERANCE,
    Constraints,
    CostProvider,
    Partitioning,
    Report,
    SearchLimits,
    WarmStart,
    baselines,
    make_problem,
    plan_problem,
)
from nnapi_prof.partition.blocks import all_ideals, convex_sets

WORTH = 0.01
"""A target that cannot shorten the plan by this much needs no chains."""


def worthwhile_targets(
    costs: FittedCosts, plan: Plan, candidates: Iterable[Target]
) -> frozenset[Target]:
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
"""More convex regions are not counted, ..."""
MOST_IDEALS = 1_000
"""... nor those of wider graphs: every two ideals are looked at."""

SETTLED = TOLERANCE / 2
"""Of the plan's latency: where measuring more cannot save more, or no more than noise, it ends."""
LIMITS = SearchLimits(seconds=2.0, effort=4e6, gap=1e-3)
"""Of one plan between two rounds of measuring; a later round goes on from it."""


@dataclass
class Chosen:
    """Plans under some costs, and the segments of theirs that are to be measured."""

    plan: Plan
    hoped: list[Segment] = field(default_factory=list)
    """Unmeasured, of the plan that would be the best at the lower ends of all intervals."""
    potential: float = 0.0
    """Of the plan's latency, what a plan of regions that were not measured may save at most."""
    warm: Warm = field(default_factory=lambda: Warm())
    interrupted: bool = False
    """Ctrl-C ended the search for the plan: it is the best until then."""

    @property
    def to_measure(self) -> list[Segment]:
        """The segments that must be measured before the plan stands."""
        return [] if self.interrupted else [*unmeasured(self.plan), *self.hoped]


@dataclass(frozen=True)
class Warm:
    """The state that one round's planning leaves to the next one's."""

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
    """The plan, and which regions must be measured before it stands: its own, and those of the
    plan that would be the best, were everything unmeasured at the lower end of its interval. The
    latter only where that plan would be faster by more than noise and ``settled``, a share.
    ``forbidden`` says which units are kept off which targets, in both; ``copies`` are those of
    :func:`~nnapi_prof.partition.make_problem`."""
    warm = warm or Warm()
    costs = drop_dominated_targets(costs)
    constraints = None if forbidden is None else _constraints(graph, costs.targets, forbidden)

    def planned(which: CostProvider, tolerance: float, start: WarmStart) -> Partitioning:
        return plan_problem(
            make_problem(graph, which, copies=copies),
            tolerance=tolerance,
            limits=limits,
            report=report,
            warm=start,
            with_curve=False,
            constraints=constraints,
        )

    now = planned(costs, TOLERANCE, warm.plan)
    plan = with_intervals(now.default, costs)
    if now.interrupted:
        return Chosen(plan, warm=Warm(now.warm, warm.hopeful), interrupted=True)
    hopeful = planned(OptimisticCosts(costs), 0.0, warm.hopeful)
    ns = plan.predicted_ns
    potential = max(0.0, 1 - hopeful.best.predicted_ns / ns) if ns > 0 else 0.0
    worth_it = potential > max(settled, costs.noise)
    hoped = list(unmeasured(hopeful.best)) if worth_it else []
    return Chosen(plan, hoped, potential, Warm(now.warm, hopeful.warm), hopeful.interrupted)


def repriced(plan: Plan, costs: FittedCosts) -> Plan | None:
    """A plan of an earlier round at the costs of now; None unless all of it was measured whole."""
    segments = []
    for segment in plan.segments:
        cost = costs.region_cost(segment.units, segment.target)
        if cost is None or not (cost.measured or segment.target.engine is Engine.HOST):
            return None
        segments.append(
            replace(segment, predicted_ns=cost.ns, measured=cost.measured, estimated=cost.estimated)
        )
    problem = make_problem(costs.graph, costs)
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
    """The baselines; ``copies`` as in :func:`choose`."""
    own = drop_dominated_targets(costs, auto=True)
    problem = make_problem(graph, own, copies=copies)
    return tuple(with_intervals(plan, costs) for plan in baselines(problem))


def unknown(plan: Plan, costs: CostModel) -> list[Segment]:
    """Segments of a baseline that are to be measured: those that were not, where they make its
    latency uncertain by more than plans are told apart. Errors of sums add up."""
    segments = list(unmeasured(plan))
    low_high = [s.interval_ns or (s.predicted_ns, s.predicted_ns) for s in segments]
    half = sum(high - low for low, high in low_high) / 2
    return segments if half > TOLERANCE * plan.predicted_ns else []


def unmeasured(plan: Plan) -> Iterator[Segment]:
    """Segments on the device that were not measured whole."""
    for segment in plan.segments:
        if not segment.measured and segment.target.engine is not Engine.HOST:
            yield segment


def count_exhaustive(graph: UnitGraph, costs: FittedCosts) -> int | None:
    """Measurements of every convex region on every target that runs its units; None where there
    are more than :data:`MOST_CONVEX` regions."""
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
