"""The partitioner's answer to a problem: the best plan with its proof, the plan to ship, and the
gain of each further segment."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nnapi_prof.costs.table import CompileTimes, CostTable, planning_costs
from nnapi_prof.errors import PartitionError, UsageError
from nnapi_prof.graph.causes import Cause, CompileNote, Fact, ProvenNote, amount
from nnapi_prof.graph.plan import Engine, Plan, Proof, Segment, Target
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.partition.baselines import find_baselines, total_ns
from nnapi_prof.partition.constraints import (
    COMPILE_TIME,
    Budget,
    Constraints,
    compile_budget,
    constrain,
    percent,
)
from nnapi_prof.partition.explain import cause_of_baseline, cause_of_optimum
from nnapi_prof.partition.problem import Placement, Problem, check_runnable, make_problem
from nnapi_prof.partition.search import Report, SearchLimits, SearchResult, Watch
from nnapi_prof.partition.search.anytime import search
from nnapi_prof.partition.search.expansion import is_plan
from nnapi_prof.partition.search.lagrangian import search_within
from nnapi_prof.partition.search.tradeoff import CurvePoint, TradeOff

INTERRUPTED = "planning was interrupted: the best plan until then"
TOLERANCE = 0.01
"""Relative difference below which only noise distinguishes plans: repeats of one measurement on a
phone's big cores vary by 0.1 to 1 %, and the cheapest of many sums is the luckiest. Of such plans
the simplest wins."""


@dataclass
class WarmStart:
    """State of one solution of a graph that helps to solve it again under other costs."""

    plans: tuple[tuple[tuple[tuple[int, ...], Target], ...], ...] = ()
    """The last plans, best first."""
    costlier: frozenset[tuple[frozenset[int], Target]] = frozenset()
    """Regions in plans found that cost more measured whole than by their parts."""


@dataclass(frozen=True)
class Partitioning:
    """Answer of one call of the partitioner."""

    best: Plan
    """Plan of least latency; its proof bounds the distance from the optimum."""
    default: Plan
    """Plan of fewest segments within the tolerance of the best plan, and no slower than any
    baseline; with the best plan's proof."""
    curve: tuple[CurvePoint, ...]
    """Latency against number of segments; empty where it was not requested."""
    interrupted: bool = False
    """Whether Ctrl-C ended the search: these are the best plans until then."""
    steps: float = 0.0
    """Effort spent (see :class:`~nnapi_prof.partition.search.SearchLimits`)."""
    warm: WarmStart = field(default_factory=WarmStart, repr=False)


def plan_problem(
    problem: Problem,
    *,
    tolerance: float = TOLERANCE,
    constraints: Constraints | None = None,
    compiling: CompileTimes | None = None,
    limits: SearchLimits | None = None,
    report: Report | None = None,
    warm: WarmStart | None = None,
    with_curve: bool = True,
) -> Partitioning:
    """Returns plans of least latency: the best, the one to ship, and the curve between.

    ``constraints`` apply to the plans, not to the baselines; limits on compile time also need
    ``compiling``. ``limits`` are for the whole call; ``report`` receives progress. ``warm`` is the
    state left by an earlier call for the same graph.

    Raises PartitionError where a unit can run nowhere, or no plan meets the constraints.
    """
    check_runnable(problem)
    constraints = constraints or Constraints()
    rivals = find_baselines(problem)
    problem = constrain(problem, constraints)
    budgets = _budgets(problem, constraints, compiling)
    watch = Watch(limits or SearchLimits(), report)
    starts, costlier = _warm_starts(problem, warm)
    starts += [("baseline", r.placements) for r in rivals]
    result = search_within(problem, budgets, watch, starts=starts, costlier=costlier)
    if result is None:
        raise PartitionError(_nothing_found(problem, constraints, watch))
    allowed = [r for r in rivals if total_ns(problem, r.placements) <= r.predicted_ns * (1 + 1e-9)]
    trade = TradeOff(problem, result, allowed, budgets, watch)
    shipped, best_before = trade.fewest(tolerance), trade.best
    curve = trade.curve() if with_curve else ()
    result = trade.best
    if result is not best_before:
        shipped = trade.fewest(tolerance)
    proof = Proof(
        result.kind,
        result.ns,
        result.bound_ns,
        result.found_by,
        result.bounded_by,
        bool(constraints.words),
    )
    note = ProvenNote(
        proof.is_optimal, proof.least_ns, proof.bound_ns, proof.gap, constraints.words
    )
    best = default = _plan_with_note(problem, budgets, result.placements, proof, note)
    if shipped != result.placements:
        note = _shipped_note(problem, result, shipped, note, tolerance)
        default = _plan_with_note(problem, budgets, shipped, proof, note)
    return Partitioning(
        best,
        default,
        curve,
        watch.interrupted,
        watch.steps,
        WarmStart(
            tuple(
                tuple((units, problem.targets[k]) for units, k in plan)
                for plan in dict.fromkeys((result.placements, shipped))
            ),
            frozenset((units, problem.targets[k]) for units, k in result.costlier),
        ),
    )


def _budgets(
    problem: Problem, constraints: Constraints, compiling: CompileTimes | None
) -> list[Budget]:
    budgets = []
    if constraints.max_regions is not None:
        budgets.append(Budget.accelerated(problem, constraints.max_regions))
    if constraints.max_compile_ns is not None:
        if compiling is None:
            raise PartitionError("a limit of compile time needs costs that tell compile times")
        budgets.append(compile_budget(compiling, constraints.max_compile_ns))
    budgets += [Budget.error(error.noise, error.limit**2) for error in constraints.errors]
    return budgets


def _warm_starts(
    problem: Problem, warm: WarmStart | None
) -> tuple[list[tuple[str, tuple[Placement, ...]]], list[tuple[frozenset[int], int]]]:
    """Returns the plans and regions of an earlier call that are valid in this problem."""
    if warm is None:
        return [], []
    index = {target: k for k, target in enumerate(problem.targets)}
    starts = []
    for plan in warm.plans:
        if all(target in index for _, target in plan):
            placements = tuple((units, index[target]) for units, target in plan)
            if is_plan(problem, placements):
                starts.append(("warm start", placements))
    costlier = [
        (units, index[target])
        for units, target in warm.costlier
        if target in index and (units, index[target]) in problem.region_ns
    ]
    return starts, costlier


def _nothing_found(problem: Problem, constraints: Constraints, watch: Watch) -> str:
    for error in constraints.errors:
        least = error.least(problem)
        if least > error.limit * (1 + 1e-9):
            return (
                f"no plan has {error.words}: with each unit where its error is least it is "
                f"{percent(least)}; allow more, or more targets and precisions"
            )
    if constraints.max_compile_ns is not None and not constraints.errors:
        return (
            f"no chain of segments compiles within {amount(constraints.max_compile_ns)}: allow "
            "more time, or the CPU for more units"
        )
    most = constraints.max_regions
    limits = [] if most is None else [f"at most {most} on accelerators"]
    limits += [error.words for error in constraints.errors]
    limit = f" with {' and '.join(limits)}" if limits else ""
    if watch.is_over:
        return (
            f"no chain of segments{limit} was found within {watch.limits.seconds:g} s: allow more "
            "time, more segments, or more targets"
        )
    return f"no chain of segments{limit} runs every unit: allow more segments, or more targets"


def _plan_with_note(
    problem: Problem,
    budgets: Sequence[Budget],
    placements: Sequence[Placement],
    proof: Proof,
    note: ProvenNote,
) -> Plan:
    compiling = [
        CompileNote(budget.of(placements), budget.limit)
        for budget in budgets
        if budget.name == COMPILE_TIME
    ]
    return plan_of_placements(problem, placements, proof, (note, *compiling))


def plan_of_placements(
    problem: Problem,
    placements: Sequence[Placement],
    proof: Proof | None = None,
    remarks: Sequence[Fact | str] = (),
    name: str = "dp",
) -> Plan:
    """Returns placements as a plan, each segment with its cause."""
    segments = tuple(segment_of(problem, p, cause_of_optimum(problem, p)) for p in placements)
    converting_ns, copies_ns = problem.between_segments(placements)
    return Plan(
        *(name, segments, problem.simulated, tuple(remarks), proof, converting_ns),
        copies_ns=copies_ns,
    )


def search_serial(problem: Problem, watch: Watch, share: float) -> SearchResult:
    """Returns the plan of least latency, one segment after the other, as part of another search; it
    may take this ``share`` of that search's time. Raises PartitionError where none was found."""
    watch.stage = "serial"
    own = replace(watch.part(share, share), report=None)
    result = search(problem, own, with_baselines=True)
    watch.absorb(own)
    if result is None:
        raise PartitionError(
            "no chain of segments on the device's processors was found: allow more time, or more "
            "targets"
        )
    return result


def _shipped_note(
    problem: Problem,
    result: SearchResult,
    shipped: tuple[Placement, ...],
    note: ProvenNote,
    tolerance: float,
) -> ProvenNote:
    note = replace(note, simulated=problem.simulated)
    if len(shipped) >= len(result.placements):
        return note
    more = total_ns(problem, shipped) / result.ns - 1 if result.ns > 0 else 0.0
    return replace(
        note, n_best=len(result.placements), n_segments=len(shipped), more=more, tolerance=tolerance
    )


def segment_of(problem: Problem, placement: Placement, cause: Cause) -> Segment:
    """Returns a placement as a plan's segment."""
    units, k = placement
    target = problem.targets[k]
    simulator = target.engine is Engine.QNN  # a region compiled whole is an estimate, too
    return Segment(
        units=units,
        target=target,
        predicted_ns=problem.segment_ns(units, k),
        why=cause,
        measured=(frozenset(units), k) in problem.region_ns and not simulator,
        estimated=problem.is_estimated(units, k) or simulator,
    )


def baselines(problem: Problem, listed: Collection[int] = ()) -> tuple[Plan, ...]:
    """Returns plans by simple rules, all-cpu first (see the module ``baselines``).

    ``listed`` are the units that the baseline of that name keeps off accelerators. Raises
    PartitionError where a unit can run nowhere.
    """
    check_runnable(problem)
    plans = []
    for baseline in find_baselines(problem, listed):
        segments = tuple(
            segment_of(problem, p, cause_of_baseline(problem, p, baseline))
            for p in baseline.placements
        )
        whole = baseline.favoured is not None and len(segments) == 1
        notes = ("the whole model on one target",) if whole else ()
        converting_ns, copies_ns = problem.between_segments(baseline.placements)
        plans.append(
            Plan(
                *(str(baseline.name), segments, problem.simulated, notes),
                conversions_ns=converting_ns,
                copies_ns=copies_ns,
            )
        )
    return tuple(plans)


def is_optimum(plan: Plan) -> bool:
    """Tells whether no plan is faster than this one by more than the tolerance, by its costs: this
    is proven, and no constraint ruled plans out."""
    return plan.proof is not None and plan.proof.is_optimal and not plan.proof.constrained


@dataclass(frozen=True)
class PlanSearch:
    """The result of a search for plans of one model under some costs."""

    plan: Plan
    """The requested plan: :attr:`default` or :attr:`best`."""
    baselines: tuple[Plan, ...]
    default: Plan
    """Plan of fewest segments within noise of the best plan."""
    best: Plan
    """Plan of least latency, with any number of segments."""
    curve: tuple[CurvePoint, ...] = ()
    """The least latency for each number of segments."""
    startup_costs: Mapping[int, StartupCost] = field(default_factory=dict)
    """Number of segments -> start-up cost of the plan at that point of the curve."""

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plan, then its baselines."""
        return (self.plan, *self.baselines)

    def each(self, changed: Callable[[Plan], Plan]) -> PlanSearch:
        """Returns the result with every plan changed."""
        return replace(
            self,
            plan=changed(self.plan),
            baselines=tuple(map(changed, self.baselines)),
            default=changed(self.default),
            best=changed(self.best),
        )


@dataclass(frozen=True, slots=True)
class StartupCost:
    """The start-up cost of one plan."""

    compile_ns: float | None
    """Compile time of all segments; None where the costs have no compile times."""
    first_run_ns: float
    """Compile time plus the first inference: as measured where available, else the time of a later
    inference."""
    shared_bytes: int
    """Size of the tensors that segments hand over, including the model's inputs and outputs, each
    once: memory that drivers share with the application."""


def startup_costs(
    graph: UnitGraph, costs: CostTable, points: Sequence[CurvePoint]
) -> dict[int, StartupCost]:
    """Returns number of segments -> start-up cost of that point's plan."""
    problem = make_problem(graph, costs)
    times = costs.compile_times()
    budget = None if times is None else compile_budget(times, math.inf)
    by_number = {}
    for point in points:
        compiling = None if budget is None else budget.of(point.placements)
        first = sum(
            costs.first_ns.get((frozenset(units), problem.targets[k]), problem.segment_ns(units, k))
            for units, k in point.placements
        )
        by_number[point.n_segments] = StartupCost(
            compiling,
            (compiling or 0.0) + first,
            graph.shared_bytes(units for units, _ in point.placements),
        )
    return by_number


def find_plans(
    graph: UnitGraph,
    costs: CostTable,
    constraints: Constraints | None = None,
    *,
    listed: Collection[int] = (),
    best: bool = False,
    seconds: float | None = None,
    copies: bool = False,
    report: Report | None = None,
) -> PlanSearch:
    """Returns the plans that meet the constraints, and their baselines, which need not.

    ``listed`` is as in :func:`baselines`, ``copies`` as in :func:`.problem.make_problem`; with
    ``best`` the plan is that of least latency. The search takes ``seconds`` at most; None is the
    partitioner's own limit. Ctrl-C ends the search, and a note in the plans says so. Raises
    UsageError where the costs do not contain a limited quantity, PartitionError where no plan
    exists.
    """
    constraints = constraints or Constraints()
    rivals = costs
    if not (constraints.forbidden or constraints.pinned or constraints.preference):
        costs, rivals = planning_costs(costs)
    compiling = None
    if constraints.max_compile_ns is not None:
        compiling = _compile_times(costs)
    answer = plan_problem(
        make_problem(graph, costs, copies=copies),
        constraints=constraints,
        compiling=compiling,
        limits=SearchLimits() if seconds is None else SearchLimits(seconds=seconds),
        report=report,
    )
    result = PlanSearch(
        plan=answer.best if best else answer.default,
        baselines=baselines(make_problem(graph, rivals, copies=copies), listed),
        default=answer.default,
        best=answer.best,
        curve=answer.curve,
        startup_costs=startup_costs(graph, costs, answer.curve),
    )
    if not answer.interrupted:
        return result
    return result.each(lambda plan: plan if plan.proof is None else plan.with_note(INTERRUPTED))


def _compile_times(costs: CostTable) -> CompileTimes:
    times = costs.compile_times()
    if times is None:
        raise UsageError("these costs do not tell what compiling takes: max_compile_ms needs it")
    return times
