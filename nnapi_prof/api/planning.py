"""From a model and its costs to a plan: for one frame, for many at once, within an error."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Literal

from nnapi_prof.api import options as arguments
from nnapi_prof.api.bundles import verified
from nnapi_prof.api.costs import Costs
from nnapi_prof.api.devices import open_client
from nnapi_prof.api.events import Listener, Progress, to_log
from nnapi_prof.api.model import Model, as_model
from nnapi_prof.api.objective import ObjectiveCosts, as_latency
from nnapi_prof.api.options import PlanOptions
from nnapi_prof.api.plan import ModelPlan
from nnapi_prof.api.plan_search import AccuracyConstraint, accuracy_constraint, find_plans
from nnapi_prof.api.throughput import (
    partition_frames,
    plan_branches,
    verified_frames,
    with_branches,
)
from nnapi_prof.costs.conditions import Conditions
from nnapi_prof.costs.model.views import with_intervals
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.protocol.results import HalfArithmetic
from nnapi_prof.errors import UsageError, for_caller, option_name
from nnapi_prof.execution.options import Boundary, RunOptions
from nnapi_prof.graph.plan import Plan
from nnapi_prof.partition import CostProvider

KEPT = "the plan meets the constraints: a faster baseline does not replace it"


def partition(
    model: Model | str | os.PathLike[str],
    costs: Costs | CostProvider,
    *,
    forbid: str | Sequence[str] | Mapping[str, str] = (),
    pin: str | Sequence[str] | Mapping[str, str] = (),
    preference: Literal["low_power", "fast", "sustained"] | None = None,
    max_regions: int | None = None,
    max_compile_ms: float | None = None,
    max_error: float | None = None,
    listed: Sequence[str] = (),
    best: bool = False,
    seconds: float | None = None,
    accuracy_budget: float | None = None,
    metric: str = "relative",
    objective: Literal["latency", "throughput"] = "latency",
    contention: float | Mapping[tuple[str, str], float] | None = None,
    frames_in_flight: int | None = None,
    max_latency_ms: float | None = None,
    max_memory_mb: int | None = None,
    parallel: bool = False,
    device: str | AgentClient | None = None,
    verify: bool | None = None,
    boundary: str = Boundary.APP.value,
    cooldown_s: float | None = None,
    memory_mb: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    listener: Listener | None = None,
) -> ModelPlan:
    """Chooses what runs where: the exact optimum under the costs, and its baselines.

    ``costs`` are :class:`nnapi_prof.Costs`; ``costs.adjusted(...)`` plans for another objective
    than latency. Costs all of one's own are any object with the members of
    ``nnapi_prof.partition.CostProvider``: what each unit, an invocation and a transferred byte cost
    on each target, in ns or whatever is to be least.

    ``forbid`` keeps units off targets (``"softmax*"``, ``"conv2d*=nnapi:npu/*"``), ``pin`` runs
    them on one (``"softmax*=cpu"`` or ``{"softmax*": "cpu"}``); ``preference`` is the only one of
    accelerators; ``max_regions``, ``max_compile_ms`` (ms) and ``max_error`` (relative, in less than
    float32) limit the plan; ``listed`` units make the baseline of that name.
    The plan has the fewest segments within noise of the least latency; ``best`` is for the least
    latency itself. Planning takes ``seconds`` at most (None: 10); Ctrl-C ends it with the best plan
    until then, and a note.

    With ``verify`` plan and baselines run whole on ``device`` (the one that was profiled, if not
    said), and the one that is fastest end to end becomes the plan, as ``nnapi-prof partition`` does
    it; None does so where a device was profiled and latency alone is asked for. A latency contains
    copies from and to an app's buffers, with the ``boundary`` ``"model"`` it does not.
    ``cooldown_s``, ``memory_mb``, ``progress`` and ``listener`` are those of
    :func:`nnapi_prof.profile`. For a ``device`` that is open already the plan's regions are
    converted at once.

    Costs in several precisions (:func:`nnapi_prof.profile` with ``precisions``) want an
    ``accuracy_budget``: the largest error of the plan (0.02: 2 %), by ``metric`` as
    :func:`nnapi_prof.pareto` takes it. The fastest plan on the front that keeps to it, on held-out
    data, too, says which units are in 8 bits; the model so is measured and planned on the device.

    With the ``objective`` ``"throughput"`` processors work at once, on different frames, and the
    plan is a mixture: each frame takes one of several plans, so that most frames come out in a
    second. ``frames_in_flight`` is how many are on their way at most (None: four for each
    processor), ``max_latency_ms`` what 95 % of frames may take, ``max_memory_mb`` limits the
    weights on all processors and what frames hand over. ``contention`` says how many times as long
    a processor takes while another one is busy: one number for all, or (processor, the other one)
    -> number, processors being ``"cpu"`` and the accelerators' names (None: that of the costs,
    which ``profile(beside=True)`` measured or which is assumed). On a device the mixture, whole
    frames in turn, one plan as a pipeline and the best single device run as they would, and the way
    of most frames per second is taken. It has no other constraints than these.

    ``parallel`` asks whether branches of one frame are worth running at once, on different
    processors that slow each other down as ``contention`` says. Where a bound promises less than
    15 % nothing is tried (``ModelPlan.parallel`` has its figures). A schedule is taken only if it
    runs faster on the device than the serial plan.

    Raises UsageError where an argument names what is not there, PartitionError where no plan keeps
    to what is asked, DeviceError where the device fails.
    """
    listener = listener or to_log(progress)
    chosen = as_model(model)
    own = costs if isinstance(costs, Costs) else None
    plan_options = PlanOptions(
        arguments.placements("forbid", forbid),
        arguments.placements("pin", pin),
        preference,
        max_regions,
        arguments.names("listed", listed),
        max_compile_ms,
        max_error,
        best,
        seconds,
    )
    settings = RunOptions(
        boundary=arguments.boundary_of(boundary), cooldown_s=cooldown_s, memory_mb=memory_mb
    )
    about_frames = (frames_in_flight, max_latency_ms, max_memory_mb)
    if objective != "throughput" and (
        about_frames != (None,) * 3 or (contention is not None and not parallel)
    ):
        raise UsageError(
            f"{option_name('contention')}, {option_name('frames-in-flight')},"
            f" {option_name('max-latency-ms')} and {option_name('max-memory-mb')} are for"
            f" {option_name('objective')}" + for_caller(" throughput", '="throughput"')
        )
    if parallel and (
        objective != "latency"
        or own is None
        or plan_options.constrain
        or accuracy_budget is not None
    ):
        raise UsageError(
            f"{option_name('parallel')} is for the latency of one frame, with costs that profile()"
            " measured and no other wishes"
        )
    if objective == "throughput":
        others = plan_options.constrain or best or listed
        if others or accuracy_budget is not None:
            raise UsageError(
                "frames at once keep to limits of latency, memory and frames in flight, and to no"
                " other wishes",
                "leave them out",
            )
        if own is None or own.model.graph != chosen.graph:
            raise UsageError(f"frames per second need costs of {chosen!r} that profile() measured")
        plans, frames, predicted = partition_frames(
            chosen,
            own,
            contention=contention,
            frames_in_flight=frames_in_flight,
            max_latency_ms=max_latency_ms,
            max_memory_mb=max_memory_mb,
            seconds=seconds,
            listener=listener,
        )
        planned = replace(_planned(chosen, plans, own), frames=frames, throughput=predicted)
        return _on_device(planned, device, verify, settings, listener)
    if objective != "latency":
        raise UsageError(f"the objective is {objective!r}: latency and throughput can be asked for")
    if accuracy_budget is not None:
        arguments.number("accuracy_budget", accuracy_budget, 0)
        if own is None or plan_options.constrain:
            raise UsageError(
                "an accuracy budget is for costs that profile() measured in several precisions, and"
                " for plans without other constraints"
            )
        with _costs_within(
            chosen, own, accuracy_budget, metric, seconds, device, settings, listener
        ) as (client, within):
            return partition(
                within.model,
                within,
                listed=listed,
                best=best,
                seconds=seconds,
                device=client,
                verify=verify,
                boundary=boundary,
                cooldown_s=cooldown_s,
                memory_mb=memory_mb,
                listener=listener,
            )
    if own is not None and own.calibration is not None:
        raise UsageError(
            for_caller(
                "costs in several precisions want --accuracy-budget, as 2%",
                "costs in several precisions want an accuracy_budget, as 0.02",
            )
        )
    if not isinstance(costs, Costs) and not hasattr(costs, "unit_cost"):
        raise UsageError(f"costs are a {type(costs).__name__}: those of profile() are wanted")
    if own is not None and own.model.graph != chosen.graph:
        raise UsageError(f"these costs are of {own.model!r}, not of {chosen!r}", "profile it")
    planned = _fastest(chosen, costs, plan_options, device, listener)
    if settings.boundary is Boundary.APP and own is not None and own.measured is not None:
        planned = replace(planned, plans=tuple(map(own.measured.with_copies, planned.plans)))
    if parallel and own is not None:
        schedule = plan_branches(chosen, own, contention, seconds, listener)
        planned = replace(planned, parallel=schedule)
        if (branches := with_branches(planned.plans, schedule)) is not None:
            plans = (*planned.plans, branches[0])
            planned = replace(planned, plans=plans, frames=branches[1])
    measured = own is not None and own.measured is not None
    plain = measured and not planned.objective_values and not plan_options.constrain
    if verify and not plain:
        raise UsageError(
            "verify picks the fastest plan as it runs: it is for measured costs, without"
            " constraints and with latency as the objective"
        )
    if verify is None and planned.device_spec is not None:
        verify = plain
        if plan_options.constrain:
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
    accuracy_budget: float,
    metric: str,
    seconds: float | None,
    device: str | AgentClient | None,
    settings: RunOptions,
    listener: Listener,
) -> Iterator[tuple[AgentClient, Costs]]:
    """The device, and there the costs of the model in the precisions that keep to a budget."""
    from nnapi_prof.api.mixed import costs_within
    from nnapi_prof.api.pareto import pareto

    budgets = (accuracy_budget,)
    front = pareto(model, costs, metric=metric, budgets=budgets, seconds=seconds, listener=listener)
    with open_client(device or costs.device_spec, listener) as client:
        yield (
            client,
            costs_within(
                front,
                accuracy_budget,
                client,
                cooldown_s=settings.cooldown_s,
                memory_mb=settings.memory_mb,
                listener=listener,
            ),
        )


def _fastest(
    model: Model,
    costs: Costs | CostProvider,
    plan_options: PlanOptions,
    device: str | AgentClient | None,
    listener: Listener,
) -> ModelPlan:
    """The plan of least latency, or of least of another objective, of one frame."""
    own = costs if isinstance(costs, Costs) else None
    priced: CostProvider = costs.priced if isinstance(costs, Costs) else costs
    guard: AccuracyConstraint | None = None
    if plan_options.max_error is not None:
        conditions = own.conditions if own else Conditions()
        half = HalfArithmetic((own.device_info if own else {}).get("cpu_float16", "none"))
        guard = partial(
            accuracy_constraint,
            model.program,
            priced,
            conditions,
            plan_options.max_error,
            half.serves(conditions.precision),
        )
    with listener.working("planning"):
        search = find_plans(model.graph, priced, plan_options, guard=guard, listener=listener)
    values: tuple[float, ...] = ()
    if own is not None:
        if own.objective is not None and isinstance(priced, ObjectiveCosts):
            base, other = priced.base, own.objective
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
    """The plan converted for the device, where one is open or it is to run there; and what is
    fastest there, where it is to (``verify`` None: where a device was profiled)."""
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
            bundle = verified_frames(bundle, program, client, options, listener)
    return replace(
        planned,
        plans=bundle.plans,
        converted=bundle,
        frames=bundle.frames,
        conditions=bundle.conditions,
    )
