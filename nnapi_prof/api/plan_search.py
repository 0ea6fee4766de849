"""From a model and its costs to the plans that keep to what was asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nnapi_prof.api.objectives import Latency
from nnapi_prof.api.options import SILENT, Listener
from nnapi_prof.costs.conditions import Conditions, Precision
from nnapi_prof.costs.table import CompileTimes, CostTable, drop_dominated_targets
from nnapi_prof.device.protocol.results import HalfArithmetic
from nnapi_prof.errors import UsageError, for_caller, option_name
from nnapi_prof.graph.plan import Engine, Plan, Target
from nnapi_prof.graph.program import Program
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.partition import (
    Constraints,
    CurvePoint,
    SearchLimits,
    baselines,
    make_problem,
    plan_problem,
)
from nnapi_prof.partition.constraints import compile_budget

AccuracyConstraint = Callable[[Constraints], Constraints]
"""Adds to constraints what accuracy asks for."""


def find_plans(
    graph: UnitGraph,
    costs: CostTable,
    objective: Latency,
    *,
    seconds: float | None = None,
    guard: AccuracyConstraint | None = None,
    copies: bool = False,
    listener: Listener = SILENT,
) -> Search:
    """Return the plans that keep to the constraints, and their baselines, which need not;
    ``copies`` are those of :func:`~nnapi_prof.partition.make_problem`.

    The search takes ``seconds`` at most; None is the partitioner's own limit. Ctrl-C ends it: a
    note of the plans says so. Raises UsageError where a constraint names what is not there,
    PartitionError where no plan exists.
    """
    constraints = objective.constraints(graph, costs.targets)
    if guard is not None:
        constraints = guard(constraints)
    kept_off = objective.listed_units(graph)
    rivals = costs
    named = constraints.forbidden or constraints.pinned or constraints.preference
    if not named:
        costs, rivals = planning_costs(costs)
    limits = SearchLimits() if seconds is None else SearchLimits(seconds=seconds)
    problem = make_problem(graph, costs, copies=copies)
    compiling = None
    if constraints.max_compile_ns is not None:
        compiling = _compile_times(costs)
    answer = plan_problem(
        problem,
        constraints=constraints,
        compiling=compiling,
        limits=limits,
        report=listener.planning(),
    )
    search = Search(
        plan=answer.best if objective.best else answer.default,
        baselines=baselines(make_problem(graph, rivals, copies=copies), kept_off),
        default=answer.default,
        best=answer.best,
        curve=answer.curve,
        startup_costs=startup_costs(graph, costs, answer.curve),
    )
    if not answer.interrupted:
        return search
    return search.each(lambda plan: plan if plan.proof is None else plan.with_note(INTERRUPTED))


def _compile_times(costs: CostTable) -> CompileTimes:
    times = costs.compile_times()
    if times is None:
        raise UsageError("these costs do not tell what compiling takes: max_compile_ms needs it")
    return times


def planning_costs(costs: CostTable) -> tuple[CostTable, CostTable]:
    """The costs without targets that only multiply luck (see
    :func:`~nnapi_prof.costs.table.drop_dominated_targets`): those that plans are made by, and
    those of their baselines."""
    return drop_dominated_targets(costs), drop_dominated_targets(costs, auto=True)


def accuracy_constraint(
    program: Program,
    costs: CostTable,
    conditions: Conditions,
    max_error: float,
    half: HalfArithmetic,
    constraints: Constraints,
) -> Constraints:
    """The constraints, and no accelerator for units that less than float32 moves by more than
    ``max_error``; computed on this host. Raises UsageError where NNAPI is to compute in float32,
    and where the CPU, which has ``half``, runs a unit in float16 that this moves by more."""
    from nnapi_prof.execution.host import narrow_errors, unit_errors

    if conditions.precision is Precision.FLOAT32:
        raise UsageError(
            f"{option_name('max-error')} guards what {option_name('relaxed')} or"
            f" {option_name('float16')} allow",
            for_caller("add one of them", "profile() with one of them"),
        )
    accelerators = frozenset(t for t in costs.targets if t.engine is Engine.NNAPI)
    in_half = frozenset(t for t in costs.targets if t.engine is Engine.CPU)
    if not half.serves(conditions.precision):
        in_half = frozenset()

    def run_by(targets: frozenset[Target]) -> list[int]:
        units = [unit.index for unit in program.units.units]
        return [u for u in units if any(costs.unit_cost(u, t) is not None for t in targets)]

    errors = unit_errors(program, run_by(accelerators | in_half))
    on_cpu = run_by(in_half)
    summed = {} if half.has_wide_sums else narrow_errors(program, on_cpu)
    for unit in on_cpu:
        own = [errors[unit].relative] if unit in errors else []
        worst = max([*own, summed.get(unit, 0.0)])
        if worst > max_error:
            raise UsageError(
                f"{program.units.units[unit].label} is moved by {worst:.1e} in float16,"
                f" more than {max_error:g}, and the CPU of this device computes in float16, too:"
                f" use {option_name('precisions')} float32,{conditions.precision.value} and"
                f" {option_name('accuracy-budget')}"
            )
    forbidden, reasons = dict(constraints.forbidden), dict(constraints.reasons)
    for unit in run_by(accelerators):
        error = errors.get(unit)
        if error is None or error.relative <= max_error:
            continue
        forbidden[unit] = forbidden.get(unit, frozenset()) | accelerators
        reasons[unit] = error.message or (
            f"float16 moves its result by {error.relative:.1e} of its largest value, more than"
            f" {max_error:g}"
        )
    return replace(constraints, forbidden=forbidden, reasons=reasons)


INTERRUPTED = "planning was interrupted: the best plan until then"


@dataclass(frozen=True)
class Search:
    """The result of a search for plans of one model under some costs."""

    plan: Plan
    """What was asked for: :attr:`default`, or :attr:`best`."""
    baselines: tuple[Plan, ...]
    default: Plan
    """The fewest segments within noise of the best plan."""
    best: Plan
    """Of least latency, whatever its segments."""
    curve: tuple[CurvePoint, ...] = ()
    """The least latency for each number of segments."""
    startup_costs: Mapping[int, StartupCost] = field(default_factory=dict)
    """Number of segments -> what the plan of that point of the curve takes before it runs at its
    pace."""

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plan, then its baselines."""
        return (self.plan, *self.baselines)

    def each(self, changed: Callable[[Plan], Plan]) -> Search:
        """With every plan changed."""
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
    """All its segments; None where costs tell no compile times."""
    first_run_ns: float
    """Compiling, and the first inference: as measured of segments that were, for the others what
    an inference takes later on."""
    shared_bytes: int
    """Tensors that segments hand over, the model's inputs and outputs among them, each once: memory
    that drivers share with the application."""


def startup_costs(
    graph: UnitGraph, costs: CostTable, points: Sequence[CurvePoint]
) -> dict[int, StartupCost]:
    """Number of segments -> what that point's plan takes."""
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
