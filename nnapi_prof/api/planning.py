"""Planning from a model and its costs: for one frame, for many at once, within an error."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from nnapi_prof.api import SILENT, Listener, Progress, open_client, to_log
from nnapi_prof.api.costs import Costs
from nnapi_prof.api.model import Model, as_model
from nnapi_prof.api.plan import ModelPlan, PredictedThroughput
from nnapi_prof.bundle import Bundle
from nnapi_prof.bundle.plan_set import FramePlan, usual_in_flight
from nnapi_prof.costs import Conditions
from nnapi_prof.costs.contention import Slowdowns, given
from nnapi_prof.costs.model.views import with_intervals
from nnapi_prof.costs.table import planning_costs
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.protocol import HalfArithmetic
from nnapi_prof.errors import UsageError, for_caller
from nnapi_prof.execution import Boundary, RunOptions
from nnapi_prof.execution.frames import (
    _named_plans,
    verified_frames,
    with_branches,
)
from nnapi_prof.execution.half_errors import accuracy_constraint
from nnapi_prof.execution.objectives import (
    Contention,
    Latency,
    Parallel,
    PlanObjective,
    SearchOptions,
    Throughput,
    Within,
)
from nnapi_prof.execution.timing import choose_measured
from nnapi_prof.graph.plan import Plan
from nnapi_prof.graph.program import Program
from nnapi_prof.options import moved
from nnapi_prof.partition import (
    CostTable,
    ParallelPlan,
    SearchLimits,
    baselines,
    make_problem,
    plan_parallel,
    plan_throughput,
)
from nnapi_prof.partition.explain import as_latency
from nnapi_prof.partition.queues import Dispatch
from nnapi_prof.partition.solver import find_plans

KEPT = "the plan meets the constraints: a faster baseline does not replace it"


@moved(
    forbid="objective=Latency(forbid=...)",
    pin="objective=Latency(pin=...)",
    preference="objective=Latency(preference=...)",
    max_regions="objective=Latency(max_regions=...)",
    max_compile_ms="objective=Latency(max_compile_ms=...)",
    max_error="objective=Latency(max_error=...)",
    listed="objective=Latency(listed=...)",
    best="objective=Latency(best=True)",
    accuracy_budget="objective=Within(error)",
    metric="objective=Within(error, metric=...)",
    contention="objective=Throughput(contention=...) or Parallel(contention=...)",
    frames_in_flight="objective=Throughput(frames_in_flight=...)",
    max_latency_ms="objective=Throughput(max_latency_ms=...)",
    max_memory_mb="objective=Throughput(max_memory_mb=...)",
    parallel="objective=Parallel()",
)
def partition(
    model: Model | str | os.PathLike[str],
    costs: Costs | CostTable,
    objective: Latency | Within | Parallel | Throughput | None = None,
    *,
    seconds: float | None = None,
    device: str | AgentClient | None = None,
    verify: bool | None = None,
    boundary: str = Boundary.APP,
    cooldown_s: float | None = None,
    memory_mb: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    listener: Listener | None = None,
) -> ModelPlan:
    """Finds the exact optimum under the costs: the target of each unit; and its baselines.

    ``costs`` are :class:`nnapi_prof.Costs`; ``costs.adjusted(...)`` plans for another objective
    than latency. A user's own costs are a ``nnapi_prof.partition.CostTable``: arrays of the costs
    of each unit, an invocation and a transferred byte on each target, in ns or another unit.

    The ``objective`` is one of

    * :class:`nnapi_prof.Latency`, also for None: the fewest segments within noise of the lowest
      latency of one frame, within constraints such as ``Latency(pin="softmax*=cpu")``.
    * :class:`nnapi_prof.Within`, as ``Within(0.02)``: the fastest plan of at most this error, with
      costs in several precisions (:func:`nnapi_prof.profile` with ``precisions``). The model with
      its units in 8 bits is measured and planned on the device.
    * :class:`nnapi_prof.Parallel`: branches of one frame may run at once. Where a bound promises
      less than 15 % no schedule is tried (``ModelPlan.parallel`` has its figures). A schedule is
      chosen only if it runs faster on the device than the serial plan.
    * :class:`nnapi_prof.Throughput`: processors work at once on different frames, and the plan is a
      mixture: each frame takes one of several plans. The mixture, whole frames in turn, one plan as
      a pipeline and the best single device run on a device, and the one with most frames per second
      is chosen.

    Planning takes at most ``seconds`` (None: 10, for throughput 30; Parallel takes it twice);
    Ctrl-C ends it with the best plan so far, and a note.

    With ``verify`` plan and baselines run whole on ``device`` (default: the one that was profiled),
    and the one that is fastest end to end becomes the plan, as in ``nnapi-prof partition``; None
    means that where a device was profiled and latency is the only objective. A latency contains
    copies from and to an app's buffers, unless the ``boundary`` is ``"model"``. ``cooldown_s``,
    ``memory_mb``, ``progress`` and ``listener`` are those of :func:`nnapi_prof.profile`. For a
    ``device`` that is open already the plan's regions are converted at once.

    Raises UsageError where an argument names something unknown, PartitionError where no plan meets
    the constraints, DeviceError where the device fails.
    """
    listener = listener or to_log(progress)
    chosen = as_model(model)
    objective = Latency() if objective is None else objective
    if not isinstance(objective, PlanObjective):
        raise UsageError(
            f"objective is {objective!r}",
            "give Latency(), Within(error), Parallel() or Throughput() of nnapi_prof",
        )
    seconds = SearchOptions(seconds=seconds).seconds
    settings = RunOptions(boundary=boundary, cooldown_s=cooldown_s, memory_mb=memory_mb)
    own = _own_costs(chosen, costs)
    if not isinstance(objective, Latency) and own is None:
        raise UsageError(
            f"{type(objective).__name__}() plans with costs that profile() measured, and these are"
            f" a {type(costs).__name__}"
        )
    if isinstance(objective, Within) and own is not None:
        with _costs_within(chosen, own, objective, seconds, device, settings, listener) as (
            client,
            within,
        ):
            serial = objective.unconstrained
            planned = _fastest(within.model, within, serial, seconds, settings, client, listener)
            planned = _with_copies(planned, settings)
            return _verified(planned, serial, client, verify, settings, listener)
    if isinstance(objective, Throughput) and own is not None:
        plans, frames, predicted = partition_frames(
            chosen, own, objective, seconds=seconds, listener=listener
        )
        planned = replace(_planned(chosen, plans, own), frames=frames, throughput=predicted)
        return _on_device(planned, device, verify, settings, listener)
    _refuse_precisions(own)
    assert isinstance(objective, Latency | Parallel)
    serial = objective if isinstance(objective, Latency) else objective.unconstrained
    planned = _fastest(chosen, costs, serial, seconds, settings, device, listener)
    planned = _with_copies(planned, settings)
    if isinstance(objective, Parallel) and own is not None:
        schedule = plan_branches(chosen, own, objective.contention, seconds, listener)
        planned = replace(planned, parallel=schedule)
        if (branches := with_branches(planned.plans, schedule)) is not None:
            plans = (*planned.plans, branches[0])
            planned = replace(planned, plans=plans, frames=branches[1])
    return _verified(planned, serial, device, verify, settings, listener)


def _own_costs(model: Model, costs: Costs | CostTable) -> Costs | None:
    """Returns :class:`.Costs` as they are, None for a user's table. Raises UsageError for anything
    else, or another model's costs."""
    if not isinstance(costs, Costs):
        if not isinstance(costs, CostTable):
            raise UsageError(
                f"costs are a {type(costs).__name__}: those of profile() are required, or a"
                " CostTable"
            )
        if len(costs.unit_ns) != len(model.graph.units):
            raise UsageError(
                f"these costs are of {len(costs.unit_ns)} units, {model!r} has"
                f" {len(model.graph.units)}"
            )
        return None
    if costs.model.graph != model.graph:
        raise UsageError(f"these costs are of {costs.model!r}, not of {model!r}", "profile it")
    return costs


def _refuse_precisions(costs: Costs | None) -> None:
    """Raises UsageError for costs in several precisions, which need an error budget."""
    if costs is not None and costs.calibration is not None:
        raise UsageError(
            for_caller(
                "costs in several precisions want --accuracy-budget, as 2%",
                "costs in several precisions want the objective Within, as Within(0.02)",
            )
        )


def _with_copies(planned: ModelPlan, settings: RunOptions) -> ModelPlan:
    """Adds the copies from and to an app's buffers to the predictions of measured costs."""
    costs = planned.costs
    if settings.boundary != Boundary.APP or costs is None or costs.measured is None:
        return planned
    return replace(planned, plans=tuple(map(costs.measured.with_copies, planned.plans)))


def _verified(
    planned: ModelPlan,
    objective: Latency,
    device: str | AgentClient | None,
    verify: bool | None,
    settings: RunOptions,
    listener: Listener,
) -> ModelPlan:
    """Runs :func:`_on_device` for one frame, and verifies only an unconstrained plan of latency."""
    measured = planned.costs is not None and planned.costs.measured is not None
    plain = measured and not planned.objective_values and not objective.is_constrained
    if verify and not plain:
        raise UsageError(
            "verify picks the fastest plan as it runs: it is for measured costs, without"
            " constraints and with latency as the objective"
        )
    if verify is None and planned.device_spec is not None:
        verify = plain
        if objective.is_constrained:
            listener.busy(KEPT)
    return _on_device(planned, device, bool(verify), settings, listener)


def _planned(model: Model, plans: tuple[Plan, ...], costs: Costs | None) -> ModelPlan:
    if costs is None:
        return ModelPlan(model, plans, "costs of one's own", Conditions())
    return ModelPlan(
        model=model,
        plans=plans,
        device=costs.device,
        conditions=costs.conditions,
        estimated=costs.estimated,
        device_spec=costs.device_spec,
        costs=costs,
    )


@contextmanager
def _costs_within(
    model: Model,
    costs: Costs,
    objective: Within,
    seconds: float | None,
    device: str | AgentClient | None,
    settings: RunOptions,
    listener: Listener,
) -> Iterator[tuple[AgentClient, Costs]]:
    """Opens the device and measures the model in the precisions that keep to an error."""
    from nnapi_prof.api.pareto import costs_within, pareto

    front = pareto(
        model,
        costs,
        metric=objective.metric,
        budgets=(objective.error,),
        seconds=seconds,
        listener=listener,
    )
    with open_client(device or costs.device_spec, listener) as client:
        yield (
            client,
            costs_within(
                front,
                objective.error,
                client,
                cooldown_s=settings.cooldown_s,
                memory_mb=settings.memory_mb,
                listener=listener,
            ),
        )


def _fastest(
    model: Model,
    costs: Costs | CostTable,
    objective: Latency,
    seconds: float | None,
    settings: RunOptions,
    device: str | AgentClient | None,
    listener: Listener,
) -> ModelPlan:
    """Finds the plan of one frame that minimises latency or another objective."""
    own = costs if isinstance(costs, Costs) else None
    table = costs.table if isinstance(costs, Costs) else costs
    with listener.working("planning"):
        constraints = objective.constraints(model.graph, table.targets)
        if objective.max_error is not None:
            conditions = own.conditions if own else Conditions()
            half = HalfArithmetic((own.device_info if own else {}).get("cpu_float16", "none"))
            constraints = accuracy_constraint(
                model.program, table, conditions, objective.max_error, half, constraints
            )
        search = find_plans(
            model.graph,
            table,
            constraints,
            listed=objective.listed_units(model.graph),
            best=objective.best,
            seconds=seconds,
            copies=settings.boundary is Boundary.APP,
            report=listener.planning(),
        )
    values: tuple[float, ...] = ()
    if own is not None:
        if own.objective is not None:
            base, other = make_problem(model.graph, own.base_table), own.objective
            values = tuple(plan.predicted_ns / 1e6 for plan in search.plans)
            search = search.each(lambda plan: as_latency(plan, base, other))
        if (measured := own.measured) is not None:
            search = search.each(lambda plan: with_intervals(plan, measured))
    planned = _planned(model, search.plans, own)
    return replace(
        planned,
        device_spec=device.serial
        if isinstance(device, AgentClient)
        else device or planned.device_spec,
        objective=own.objective if own else None,
        objective_values=values,
        search=search,
    )


def _on_device(
    planned: ModelPlan,
    device: str | AgentClient | None,
    verify: bool | None,
    settings: RunOptions,
    listener: Listener,
) -> ModelPlan:
    """Converts the plan where ``device`` is open already or ``verify`` is set, and with ``verify``
    (None: where a device was profiled or is open) picks the plan that is fastest on the device."""
    if verify is None:
        verify = planned.device_spec is not None or isinstance(device, AgentClient)
    if not verify and not isinstance(device, AgentClient):
        return planned
    program = planned.model.program
    with open_client(device or planned.device_spec, listener) as client:
        with listener.working("converting what the plan gives to the device"):
            bundle = planned.new_bundle(client.info())
        listener.notes(*(note for note in bundle.notes if note not in planned.model.notes))
        options = replace(settings, conditions=planned.conditions)
        if verify and planned.throughput is None:
            bundle = verified(bundle, program, client, options, listener)
        if verify and bundle.frames is not None:
            counting = partial(listener.counting, VERIFYING_FRAMES)
            bundle = verified_frames(bundle, program.example_inputs, client, options, counting)
    return replace(
        planned,
        plans=bundle.plans,
        converted=bundle,
        frames=bundle.frames,
        conditions=bundle.conditions,
    )


VERIFYING = "running plan and baselines whole"
"""The phase in which plans run end to end before one is chosen."""


def verified(
    bundle: Bundle,
    program: Program,
    client: AgentClient,
    options: RunOptions,
    listener: Listener = SILENT,
) -> Bundle:
    """Returns the bundle with the plan that is fastest end to end, see
    :mod:`nnapi_prof.execution.timing`."""
    heard = listener.counting(VERIFYING, len(bundle.plans))
    return choose_measured(bundle, program, client, options, heard)


VERIFYING_FRAMES = "running frames at once"
"""The phase in which ways of running frames run before one is chosen."""
DISPATCHES = (Dispatch.OLDEST,)
"""Order in which the runtime library's queue serves frames."""


def partition_frames(
    model: Model,
    costs: Costs,
    objective: Throughput,
    *,
    seconds: float | None = None,
    listener: Listener = SILENT,
) -> tuple[tuple[Plan, ...], FramePlan, PredictedThroughput]:
    """Plans for :func:`nnapi_prof.partition` with the objective :class:`nnapi_prof.Throughput`,
    without running anything. Returns all plans, their use by frames, and the prediction.

    The plan is a mixture: each frame takes one of its plans. Planning takes at most ``seconds``
    (None: 30), plus a second or two for simulated queues; Ctrl-C ends it with the best plans so
    far.

    Raises UsageError for adjusted costs, PartitionError where a unit runs on no processor of the
    device, or no plan meets the constraints.
    """
    if costs.objective is not None:
        raise UsageError(
            f"these costs are {costs.objective}: frames per second are of latencies, give the costs"
            " that they were adjusted from"
        )
    priced, of_rivals = planning_costs(costs.table)
    frames_in_flight = objective.frames_in_flight
    if frames_in_flight is None:
        lanes = {lane for target in priced.targets if (lane := target.lane) is not None}
        frames_in_flight = usual_in_flight(lanes)
    slower = _slowdowns(costs, priced, objective.contention)
    max_ms, max_mb = objective.max_latency_ms, objective.max_memory_mb
    with listener.working("planning"):
        plan = plan_throughput(
            make_problem(model.graph, priced),
            contention=slower.factors,
            frames_in_flight=frames_in_flight,
            max_latency_ns=None if max_ms is None else max_ms * 1e6,
            max_memory_bytes=None if max_mb is None else max_mb * 1_000_000,
            dispatches=DISPATCHES,
            limits=None if seconds is None else SearchLimits(seconds),
            report=listener.planning(),
        )
        plans, frames = _named_plans(
            plan, baselines(make_problem(model.graph, of_rivals)), frames_in_flight
        )
    busy = [lane for lane, load in zip(plan.lanes, plan.loads_ns, strict=True) if load > 0]
    slower = slower.among(busy)
    predicted = PredictedThroughput(
        model, costs.device, plan, slower, costs.simulated, costs.estimated
    )
    return plans, frames, predicted


def _slowdowns(costs: Costs, priced: CostTable, contention: Contention | None) -> Slowdowns:
    """Returns the given contention, else that of the costs."""
    return costs.contention if contention is None else given(priced.targets, contention)


def plan_branches(
    model: Model,
    costs: Costs,
    contention: Contention | None,
    seconds: float | None,
    listener: Listener = SILENT,
) -> ParallelPlan:
    """Finds a schedule of one frame whose segments may overlap; a bound first decides whether the
    search is worthwhile. Planning takes at most ``seconds``. Raises the errors of
    :func:`partition_frames`."""
    if costs.objective is not None:
        raise UsageError(f"these costs are {costs.objective}: branches at once are for latency")
    priced, _ = planning_costs(costs.table)
    slower = _slowdowns(costs, priced, contention)
    with listener.working("planning branches at once"):
        return plan_parallel(
            make_problem(model.graph, priced),
            contention=slower.factors,
            limits=None if seconds is None else SearchLimits(seconds),
            report=listener.planning(),
        )
