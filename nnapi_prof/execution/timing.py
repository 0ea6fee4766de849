"""Time plans end to end on a device, and choose the fastest of a bundle.

The plans form one group of the agent: they take turns, so that a drift of the device (heat, other
load) affects them alike. A process keeps its pages of memory and its cores through all its rounds,
which makes equal plans differ by 1 or 2 %; so on a real device everything is repeated in new
processes.

Segments on the host (units that no engine of the agent can run) cut a plan into stages, each an
action of its own; their own time is not measured.

The last step of planning runs plan and baselines whole. The partitioner's optimum rests on segments
measured one at a time: where they take longer one after another (cold caches, clocks that drop),
another plan can be faster end to end. The fastest of several noisy measurements is also the
luckiest: a prediction by the runs that chose a plan would be too low. So some of the runs choose,
and others, in their own processes, predict.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from nnapi_prof.bundle import Bundle
from nnapi_prof.costs.measurement import quality_flags, steady
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.protocol import ActionResult
from nnapi_prof.device.protocol.actions import Groups, TensorSource, Timing
from nnapi_prof.device.protocol.request import RequestBuilder
from nnapi_prof.execution import RunOptions
from nnapi_prof.execution.actions import (
    Feed,
    PlanStage,
    build_action,
    busy_request,
    one_a_processor,
    stages_of,
)
from nnapi_prof.graph.plan import CPU, Engine, Plan
from nnapi_prof.graph.program import Program, all_values, to_memory
from nnapi_prof.progress import StepCallback

NOISE = 0.02
"""Relative difference of two plans' medians below which they count as equal: repeated runs on big
cores vary by up to 1 %, and each of the two plans varies."""
PlanKey = tuple[tuple[tuple[int, ...], str], ...]


@dataclass
class TimedPlan:
    """Samples of one distinct plan, without those of throttled rounds where there are others."""

    plan: Plan
    stage_total_ns: dict[int, tuple[int, ...]] = field(default_factory=dict)
    segment_ns: dict[int, tuple[int, ...]] = field(default_factory=dict)
    compile_ns: dict[int, int | None] = field(default_factory=dict)
    stage_first_ns: dict[int, int | None] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    """Reasons to distrust the times, for people."""
    error: str | None = None
    stage_copies_ns: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def total_ns(self) -> tuple[int, ...]:
        """Returns the end-to-end latency of each run: the sum over stages."""
        if self.error is not None or not self.stage_total_ns:
            return ()
        return tuple(sum(runs) for runs in zip(*self.stage_total_ns.values(), strict=False))

    def copies_ns(self) -> tuple[int, ...]:
        """Return the part of :meth:`total_ns` that copied inputs and outputs; empty without it."""
        if self.error is not None or not all(self.stage_copies_ns.values()):
            return ()
        return tuple(sum(runs) for runs in zip(*self.stage_copies_ns.values(), strict=False))

    def first_ns(self) -> int | None:
        """Returns the end-to-end latency of the first, cold run; None where it failed."""
        first = [ns for ns in self.stage_first_ns.values() if ns is not None]
        whole = self.error is None and len(first) == len(self.stage_total_ns) > 0
        return sum(first) if whole else None

    def latency_ns(self) -> float | None:
        """Returns the median latency; None for a plan that failed or does not run on the device."""
        total = self.total_ns()
        return float(statistics.median(total)) if total else None


def plan_key(plan: Plan) -> PlanKey:
    """Returns the identity of a plan: its segments and their targets."""
    return tuple((segment.units, segment.target.key) for segment in plan.segments)


def time_plans(
    bundle: Bundle,
    program: Program,
    plans: Sequence[Plan],
    inputs: Sequence[torch.Tensor],
    client: AgentClient,
    options: RunOptions,
    progress: StepCallback | None,
) -> dict[PlanKey, TimedPlan]:
    """Times ``plans`` of a bundle for logical ``inputs``; equal plans are timed once.

    A plan that fails has its ``error`` set and no samples; the others continue.
    """
    return pool_repeats(time_repeats(bundle, program, plans, inputs, client, options, progress))


def time_repeats(
    bundle: Bundle,
    program: Program,
    plans: Sequence[Plan],
    inputs: Sequence[torch.Tensor],
    client: AgentClient,
    options: RunOptions,
    progress: StepCallback | None,
) -> list[dict[PlanKey, TimedPlan]]:
    """Times plans as :func:`time_plans`, each repeat by itself; the order of plans alternates."""
    # A stage after a host segment reads intermediate values: eager PyTorch computes them.
    values = dict(zip(bundle.graph.inputs, inputs, strict=True))
    if any(stage.on_host for plan in plans for stage in stages_of(plan)):
        values |= all_values(program, inputs)
    timings = options.timings(client.info().simulated)
    repeats = []
    for repeat, timing in enumerate(timings):
        _keep_busy(client, plans, options)
        ordered = plans if repeat % 2 == 0 else plans[::-1]
        repeats.append(
            _time_once(
                bundle,
                ordered,
                values,
                client,
                options,
                timing,
                _of_all(progress, repeat, len(timings)),
            )
        )
    return repeats


def _keep_busy(client: AgentClient, plans: Sequence[Plan], options: RunOptions) -> None:
    """Keeps each processor of the plans busy, in turns, where the conditions say so."""
    seconds = options.conditions.sustained_s
    if not seconds:
        return
    targets = [s.target for plan in plans for s in plan.segments if s.target.engine != Engine.HOST]
    request = busy_request(one_a_processor([CPU, *targets]), options.conditions, float(seconds))
    for _ in client.run(request):
        pass


def pool_repeats(repeats: Sequence[Mapping[PlanKey, TimedPlan]]) -> dict[PlanKey, TimedPlan]:
    """Joins all repeats of each plan; a plan that failed in one of them counts as failed."""
    joined = {key: dataclasses.replace(timed) for key, timed in repeats[0].items()}
    for repeat in repeats[1:]:
        for key, more in repeat.items():
            joined[key] = _pool_runs(joined[key], more)
    return joined


def _pool_runs(first: TimedPlan, more: TimedPlan) -> TimedPlan:
    def pooled(
        a: Mapping[int, tuple[int, ...]], b: Mapping[int, tuple[int, ...]]
    ) -> dict[int, tuple[int, ...]]:
        return {number: samples + b.get(number, ()) for number, samples in a.items()}

    return dataclasses.replace(
        first,
        stage_total_ns=pooled(first.stage_total_ns, more.stage_total_ns),
        stage_copies_ns=pooled(first.stage_copies_ns, more.stage_copies_ns),
        segment_ns=pooled(first.segment_ns, more.segment_ns),
        flags=tuple(dict.fromkeys((*first.flags, *more.flags))),
        error=first.error or more.error,
    )


def _of_all(progress: StepCallback | None, repeat: int, repeats: int) -> StepCallback | None:
    """Returns a callback that reports the progress of one repeat as a part of all of them."""
    if progress is None:
        return None
    report = progress
    return lambda name, done, total: report(name, repeat * total + done, repeats * total)


def _time_once(
    bundle: Bundle,
    plans: Sequence[Plan],
    values: Mapping[str, torch.Tensor],
    client: AgentClient,
    options: RunOptions,
    timing: Timing,
    progress: StepCallback | None,
) -> dict[PlanKey, TimedPlan]:
    """Times each distinct plan in its own process; all of them take turns."""
    distinct = {plan_key(plan): TimedPlan(plan) for plan in reversed(plans)}
    jobs: list[tuple[TimedPlan, int, PlanStage]] = []
    for timed in reversed(distinct.values()):
        for position, stage in enumerate(stages_of(timed.plan)):
            if not stage.on_host:
                jobs.append((timed, position, stage))
    request = RequestBuilder()
    groups = Groups()
    for number, (timed, _, stage) in enumerate(jobs):
        segments = [timed.plan.segments[n] for n in stage.numbers]
        models = [(s.target, bundle.region(s.units, s.target)) for s in segments]
        weights = {id(buffer): len(buffer) for _, region in models for buffer in region.buffers}
        group = groups.number("plans", sum(weights.values()))
        feed = feed_of(bundle, values, request)
        action = build_action(number, models, feed, request, timing, options.action(group))
        request.add_action(action.spec)
    done = 0
    for event in client.run(request.request()):
        if not isinstance(event, ActionResult):
            continue
        timed, position, stage = jobs[event.action]
        _record(timed, position, stage, event)
        done += 1
        if progress is not None:
            progress(timed.plan.name, done, len(jobs))
    return distinct


def feed_of(bundle: Bundle, values: Mapping[str, torch.Tensor], request: RequestBuilder) -> Feed:
    """Returns a feed of an action of ``request``: the graph's values as blobs, in memory order."""

    def feed(name: str) -> tuple[TensorSource, int]:
        return TensorSource.BLOB, request.add_blob(
            to_memory(values[name], bundle.graph.values[name])
        )

    return feed


def _record(timed: TimedPlan, position: int, stage: PlanStage, result: ActionResult) -> None:
    if not result.ok:
        timed.error = why_failed(result)
        return
    timed.stage_total_ns[position] = steady(result.total_ns, result.rounds)
    timed.stage_copies_ns[position] = steady(result.copies_ns, result.rounds)
    timed.stage_first_ns[position] = result.first_ns
    for number, segment in zip(stage.numbers, result.segments, strict=True):
        timed.segment_ns[number] = steady(segment.samples_ns, result.rounds)
        timed.compile_ns[number] = segment.compile_ns
    warm = None if result.clock == "simulated" else result.warm
    timed.flags = tuple(dict.fromkeys((*timed.flags, *quality_flags(result.rounds, warm))))


def why_failed(result: ActionResult) -> str:
    """Returns ``crashed during execute: SIGSEGV``."""
    stage = f" during {result.stage}" if result.stage else ""
    return f"{result.status.value}{stage}: {result.why}"


# ---- choosing -----------------------------------------------------------------------------------


TO_CHOOSE = 2
"""Number of repeats that choose a plan on a real device; as many as in a run then predict."""
CLOSE = 0.005
"""Relative difference of two plans below which they count as equal: two processes that run one plan
differ by more."""

Repeats = Sequence[Mapping[PlanKey, TimedPlan]]


def choose_measured(
    bundle: Bundle,
    program: Program,
    client: AgentClient,
    options: RunOptions,
    progress: StepCallback | None = None,
) -> Bundle:
    """Times every plan of a bundle end to end; returns the bundle, the first plan replaced if need
    be.

    On a real device :data:`TO_CHOOSE` repeats are added to those of ``options``, with as many runs
    each: they choose the plan, and the others predict. The first plan is replaced where it failed
    and a baseline did not, by a baseline that was clearly faster, or on a real device by one as
    fast with fewer segments (:func:`choose`); its notes then say so, with both latencies, and it
    keeps its name. On a real device the predictions of all plans become those of their runs
    (:func:`_as_run`).
    """
    more = 0 if bundle.simulated else TO_CHOOSE
    n = options.repeats
    options = dataclasses.replace(options, runs=options.runs * (n + more) // n, repeats=n + more)
    repeats = time_repeats(
        bundle, program, bundle.plans, program.example_inputs, client, options, progress
    )
    choosing = repeats[:more] or repeats
    predicted = pool_repeats(repeats[more:] or repeats)
    chosen = choose(bundle.plans, choosing, bundle.simulated)
    if not bundle.simulated:
        plans = tuple(_as_run(plan, predicted[plan_key(plan)]) for plan in bundle.plans)
        bundle = dataclasses.replace(bundle, plans=plans)
    if chosen == 0:
        return bundle
    first, winner = bundle.plan, bundle.plans[chosen]
    timed = pool_repeats(repeats)
    note = _replaced(timed[plan_key(first)], timed[plan_key(winner)], bundle.simulated)
    plan = Plan(
        first.name,
        winner.segments,
        first.simulated,
        (*winner.remarks, note),
        copies_ns=winner.copies_ns,
    )
    return dataclasses.replace(bundle, plans=(plan, *bundle.plans[1:]))


def _replaced(first: TimedPlan, winner: TimedPlan, simulated: bool) -> str:
    """Explains why the partitioner's own plan was replaced, with both latencies."""
    unit = "ms (simulated)" if simulated else "ms"
    planned_ns, ns = first.latency_ns(), winner.latency_ns()
    what = f"took {planned_ns / 1e6:.4g} {unit}" if planned_ns else f"failed ({first.error})"
    if ns is not None:
        what += f", {winner.plan.name} {ns / 1e6:.4g} {unit}"
    why = ""
    if planned_ns is not None and ns is not None and not simulated:
        if ns > planned_ns * (1 + CLOSE):
            why = ", of fewer segments: repeats do not tell for sure which is faster"
        elif ns > planned_ns * (1 - CLOSE):
            why = ", as fast with fewer segments"
    return (
        f"run whole, the partitioner's own plan of {len(first.plan.segments)} segments {what}: "
        f"this plan is {winner.plan.name}{why}"
    )


def choose(plans: Sequence[Plan], repeats: Repeats, simulated: bool) -> int:
    """Returns the index of the plan to take, 0 where nothing ran.

    A plan is clearly faster than another if it was faster by :data:`CLOSE` over all repeats (they
    took turns within each) and faster in every one of them; on a simulated phone, which repeats
    itself, any difference counts. Of the plans that no other one is clearly faster than, the one
    with the fewest segments is taken, and of these the first: their exact order is chance.
    """
    ran = [n for n in range(len(plans)) if _plan_ran(repeats, plans[n])]
    if not ran:
        return 0
    close = 0.0 if simulated else CLOSE
    good = [n for n in ran if not any(_faster(repeats, plans[m], plans[n], close) for m in ran)]
    if simulated and 0 in good:
        return 0  # simulated costs are exact
    return min(good, key=lambda n: (len(plans[n].segments), n))


def _plan_ran(repeats: Repeats, plan: Plan) -> bool:
    return all(repeat[plan_key(plan)].latency_ns() for repeat in repeats)


def _faster(repeats: Repeats, rival: Plan, plan: Plan, close: float) -> bool:
    """Returns whether ``rival`` is faster than ``plan`` by over ``close``, and in every repeat."""
    gains = [
        math.log(
            (repeat[plan_key(plan)].latency_ns() or math.inf)
            / (repeat[plan_key(rival)].latency_ns() or math.inf)
        )
        for repeat in repeats
    ]
    return min(gains) > 0 and sum(gains) / len(gains) > -math.log1p(-close)


def _as_run(plan: Plan, ran: TimedPlan) -> Plan:
    """Returns the plan with the latency of its run as its prediction, divided among its segments.

    A segment measured alone, again and again, finds its weights in the caches and the clock as it
    left them; in a plan it follows the others, as the run shows. Plans that did not run keep their
    own prediction, and segments on the host their estimates, which no run includes.
    """
    alone = sum(s.predicted_ns for s in plan.segments if s.target.engine is not Engine.HOST)
    whole_ns, copies = ran.latency_ns(), ran.copies_ns()
    if whole_ns is None or alone <= 0:
        return plan
    copies_ns = float(statistics.median(copies)) if copies else 0.0
    ns = whole_ns - copies_ns
    factor = ns / alone
    segments = tuple(
        s
        if s.target.engine is Engine.HOST
        else dataclasses.replace(
            s,
            predicted_ns=s.predicted_ns * factor,
            interval_ns=s.interval_ns and (s.interval_ns[0] * factor, s.interval_ns[1] * factor),
        )
        for s in plan.segments
    )
    note = (
        f"predicted by a run of the whole plan: {ns / 1e6:.3f} ms, {factor - 1:+.1%} against its "
        f"segments alone, {alone / 1e6:.3f} ms"
        + (f"; and {copies_ns / 1e6:.3f} ms to copy inputs and outputs" if copies_ns else "")
    )
    return dataclasses.replace(plan, segments=segments, copies_ns=copies_ns).with_note(note)
