"""Frames per second of a model on processors that work at once: predicted, with what is proven."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from nnapi_prof.api import notebook
from nnapi_prof.api.costs import Costs
from nnapi_prof.api.model import Model
from nnapi_prof.api.objectives import Contention, Throughput
from nnapi_prof.api.options import SILENT, Listener
from nnapi_prof.api.plan_search import planning_costs
from nnapi_prof.bundle.bundle import Bundle
from nnapi_prof.bundle.plan_set import (
    FramePlan,
    FrameSchedule,
    PlanChoice,
    usual_in_flight,
)
from nnapi_prof.costs.contention import ASSUMED, ContentionBasis, Slowdowns, given
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.protocol.description import device_name
from nnapi_prof.errors import UsageError
from nnapi_prof.execution.frames import all_cores, choose_way, time_frames
from nnapi_prof.execution.options import RunOptions
from nnapi_prof.execution.timing import PlanKey, plan_key
from nnapi_prof.graph.plan import Plan
from nnapi_prof.graph.program import Program
from nnapi_prof.partition import (
    CostTable,
    ParallelPlan,
    SearchLimits,
    ThroughputPlan,
    baselines,
    make_problem,
    plan_parallel,
    plan_throughput,
)
from nnapi_prof.partition.inflight_sim import ONE_BY_ONE, FrameStrategy
from nnapi_prof.partition.queues import Dispatch

if TYPE_CHECKING:
    import pandas as pd

FRAMES_TO_CHOOSE = 20
"""Times as many frames of each way as are in flight: by so many it is chosen."""
VERIFYING_FRAMES = "running frames at once"
"""The phase in which ways of running frames run before one is chosen."""
DISPATCHES = (Dispatch.OLDEST,)
"""What the runtime library's queue does."""
PREDICTED: Mapping[ContentionBasis, str] = {
    basis: f"predicted from costs that were measured one at a time; {words}"
    for basis, words in {
        ContentionBasis.MEASURED: "how processors slow each other down was measured",
        ContentionBasis.PARTLY: (
            "how some processors slow each other down was measured, of the others it is"
            f" assumed: {ASSUMED:g} times"
        ),
        ContentionBasis.ASSUMED: (
            f"that processors slow each other down {ASSUMED:g} times is assumed"
        ),
        ContentionBasis.GIVEN: "how processors slow each other down was given",
    }.items()
}


@dataclass(frozen=True)
class PredictedThroughput:
    """Predicted frames per second of throughput plans, and of their rivals.

    The costs were measured one at a time and a contention is applied to them: nothing of it was
    measured at once. ``nnapi_prof.partition(model, costs, Throughput()).throughput`` is one.
    """

    model: Model
    device: str
    """The device that it is for, for people."""
    plan: ThroughputPlan = field(repr=False)
    """The plans with their shares, what they load each processor with, and the curve."""
    contention: Slowdowns
    """What it was planned with, of the processors that the plans use, and whether that was
    measured."""
    simulated: bool
    estimated: bool
    """Nothing of its costs was measured."""

    @property
    def frames_per_second(self) -> float:
        """Predicted, with as many frames in flight as were asked for."""
        return self.plan.frames_per_second

    @property
    def most_per_second(self) -> float:
        """No plans and no order of frames do more, by these costs."""
        return self.plan.most_per_second

    @property
    def baselines(self) -> dict[str, float]:
        """Frames per second of the alternatives, with any number of frames in flight."""
        return {rate.rule.value: rate.frames_per_second for rate in self.plan.baselines}

    def curve(self) -> pd.DataFrame:
        """Frames per second and latency (ms) by frames in flight."""
        import pandas as pd

        return pd.DataFrame(
            {
                "frames_in_flight": point.frames_in_flight,
                "frames_per_second": point.frames_per_second,
                "latency_ms": point.latency_ns[0] / 1e6,
                "latency_95_ms": point.latency_ns[1] / 1e6,
                "memory_bytes": point.memory_bytes,
                "how": point.rate.rule.value,
            }
            for point in self.plan.curve
        )

    def __repr__(self) -> str:
        kind = notebook.kind_of(self.simulated, self.estimated).removeprefix("ms")
        return (
            f"PredictedThroughput({self.model.name!r} on {device_name(self.device)!r},"
            f" {self.frames_per_second:.4g} frames/s by {self.plan.rule.value}, predicted{kind})"
        )

    def _repr_html_(self) -> str:
        rows = [
            [self.plan.rule.value, f"{self.frames_per_second:.4g}"],
            *([rule, f"{rate:.4g}"] for rule, rate in self.baselines.items()),
            ["no plans do more than", f"{self.most_per_second:.4g}"],
        ]
        return notebook.table(
            f"{self.model.name} on {self.device}", ["how", "frames/s"], rows, numbers=(1,)
        ) + notebook.notes([PREDICTED[self.contention.basis]])


def partition_frames(
    model: Model,
    costs: Costs,
    objective: Throughput,
    *,
    seconds: float | None = None,
    listener: Listener = SILENT,
) -> tuple[tuple[Plan, ...], FramePlan, PredictedThroughput]:
    """Plan as :func:`nnapi_prof.partition` with the objective :class:`~.objectives.Throughput`,
    before anything runs: return all plans, how frames take them, and what is predicted.

    The plan is a mixture: each frame takes one of its plans. Planning takes ``seconds`` at most
    (None: 30) and a second or two of simulated queues; Ctrl-C ends it with the best plans until
    then.

    Raises UsageError where an argument is none, PartitionError where a unit runs on no processor
    of the device, or nothing keeps to what is asked.
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
    """Return the contention that was given, else that of the costs."""
    return costs.contention if contention is None else given(priced.targets, contention)


SERIAL, OVERLAPPED = "one segment after the other", "branches at once"


def plan_branches(
    model: Model,
    costs: Costs,
    contention: Contention | None,
    seconds: float | None,
    listener: Listener = SILENT,
) -> ParallelPlan:
    """Find a schedule of one frame whose segments may overlap, with the bound that says first
    whether it is worth looking for one. Planning takes ``seconds`` at most. Raises as
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


def with_branches(plans: Sequence[Plan], parallel: ParallelPlan) -> tuple[Plan, FramePlan] | None:
    """The schedule, to stand behind ``plans``, and the two ways of running a frame: by the first
    plan, which is meant until the other one ran faster, and by the schedule. None where nothing is
    to be gained."""
    if not parallel.tried or parallel.gain <= 1:
        return None
    serial_ns = plans[0].predicted_ns
    return parallel.plan, FramePlan(
        (
            FrameSchedule(SERIAL, (PlanChoice(0),), 1, 1e9 / serial_ns if serial_ns > 0 else None),
            FrameSchedule(
                OVERLAPPED, (PlanChoice(len(plans)),), 1, 1e9 / parallel.latency_ns, overlaps=True
            ),
        )
    )


def _named_plans(
    plan: ThroughputPlan, rivals: Sequence[Plan], frames_in_flight: int
) -> tuple[tuple[Plan, ...], FramePlan]:
    """All plans, each once and by its name among ``rivals`` where it is one of them, those of the
    mixture first; and the ways that take them."""
    plans: dict[PlanKey, tuple[int, Plan]] = {}
    named = {plan_key(rival): rival for rival in reversed(rivals)}

    def way(
        rule: FrameStrategy, of: Sequence[Plan], shares: Sequence[float], ns: float
    ) -> FrameSchedule:
        keys = [(plan_key(each), each) for each in of]
        numbers = [
            plans.setdefault(key, (len(plans), named.get(key, each)))[0] for key, each in keys
        ]
        choices = tuple(
            PlanChoice(n, share=share) for n, share in zip(numbers, shares, strict=True)
        )
        n = 1 if rule in ONE_BY_ONE else in_flight
        return FrameSchedule(rule.value, choices, n, 1e9 / ns if ns > 0 else None)

    in_flight = frames_in_flight if plan.chosen is None else plan.chosen.frames_in_flight
    ways = [way(plan.rule, plan.plans, plan.shares, plan.period_ns)]
    for key, rival in reversed(named.items()):
        plans.setdefault(key, (len(plans), rival))
    for rate, of, ns in zip(
        plan.baselines, plan.baseline_plans, plan.baseline_periods_ns, strict=True
    ):
        ways.append(way(rate.rule, of, rate.shares, ns))
    kinds = [(each.choices, each.in_flight) for each in ways]
    distinct = tuple(each for n, each in enumerate(ways) if kinds[n] not in kinds[:n])
    return tuple(each for _, each in plans.values()), FramePlan(distinct)


def verified_frames(
    bundle: Bundle,
    program: Program,
    client: AgentClient,
    options: RunOptions,
    listener: Listener = SILENT,
) -> Bundle:
    """The bundle with the way of running frames that is fastest on the device: for many at once the
    CPU engine on every core is among them."""
    assert bundle.frames is not None
    info = client.info()
    frames = bundle.frames
    many = not any(way.overlaps for way in frames.ways)  # branches of one frame are for its latency
    rule = all_cores(bundle, info.cpus) if many and not info.simulated else None
    if rule is not None:
        frames = replace(frames, ways=(*frames.ways, rule))
    heard = listener.counting(VERIFYING_FRAMES, len(frames.ways))
    n_frames = FRAMES_TO_CHOOSE * frames.in_flight
    runs = time_frames(bundle, frames, program.example_inputs, client, options, n_frames, heard)
    return choose_way(bundle, frames, runs)
