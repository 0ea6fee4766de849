"""Run many frames at once on a device, in one or several ways, and measure the frames per second.

The agent runs each way through the runtime library's queue (PROTOCOL.md, "Frames at once"), in a
process of its own; the ways take turns in rounds. A round is timed while as many frames as allowed
were in flight: from the first frame that came out once that many had been submitted, to the last
one before the submissions ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from nnapi_prof.bundle import Bundle
from nnapi_prof.bundle.plan_set import FramePlan, FrameSchedule, PlanChoice, usual_in_flight
from nnapi_prof.costs import Conditions
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.protocol import (
    ActionResult,
    FrameSamples,
    Outcome,
)
from nnapi_prof.device.protocol.actions import FramesSpec, Groups, Timing
from nnapi_prof.device.protocol.request import RequestBuilder
from nnapi_prof.errors import SerializationError, UsageError
from nnapi_prof.execution import RunOptions, cooldown_ms
from nnapi_prof.execution.actions import build_action
from nnapi_prof.execution.report import CPU_LANE, FrameScheduleRun, LaneSpan
from nnapi_prof.execution.timing import PlanKey, feed_of, plan_key, why_failed
from nnapi_prof.graph.plan import Engine, Plan, Target
from nnapi_prof.partition import ParallelPlan, ThroughputPlan
from nnapi_prof.partition.queues import ONE_BY_ONE, FrameStrategy
from nnapi_prof.progress import StepCallback

OWN_CHOICE = "nnapi"
"""The lane of NNAPI's own choice."""
VARIANTS = 4
"""Number of variants of the inputs; one on a simulated phone, where each runs the model again."""
CLOSE = 0.01
"""Relative difference of two rates below which the way with fewer plans is chosen."""
ALL_CORES = "all-cpu, every core"
FRAMES_TO_CHOOSE = 20
"""Frames that each way runs to be compared, as a multiple of the frames in flight."""


def lane_of(target: Target) -> str:
    """Returns the lane that a target's segments run on."""
    if target.engine is Engine.CPU:
        return CPU_LANE
    name = target.accelerator
    return OWN_CHOICE if name in (None, "auto") else str(name)


def ways_of(bundle: Bundle) -> FramePlan:
    """Returns the ways of running many frames: the bundle's own, else each distinct plan alone."""
    if bundle.frames is not None:
        return bundle.frames
    distinct = {plan_key(plan): index for index, plan in reversed([*enumerate(bundle.plans)])}
    ways = [
        FrameSchedule(
            plan.name,
            (PlanChoice(index),),
            usual_in_flight({lane_of(s.target) for s in plan.segments}),
        )
        for index, plan in enumerate(bundle.plans)
        if distinct[plan_key(plan)] == index and not _on_host(plan)
    ]
    if not ways:
        raise UsageError(
            "many frames at once run on the device, and every plan of this bundle has segments that"
            " only eager PyTorch runs"
        )
    return FramePlan(tuple(ways))


def _on_host(plan: Plan) -> bool:
    return any(segment.target.engine is Engine.HOST for segment in plan.segments)


def conditions_of(way: FrameSchedule, conditions: Conditions) -> Conditions:
    """Returns the conditions that a way runs under, in a bundle planned under ``conditions``."""
    if way.threads is None:
        return conditions
    return replace(conditions, threads=way.threads, cpus=way.cpus)


def time_frames(
    bundle: Bundle,
    plan: FramePlan,
    inputs: Sequence[torch.Tensor],
    client: AgentClient,
    options: RunOptions,
    n_frames: int,
    progress: StepCallback | None = None,
) -> tuple[FrameScheduleRun, ...]:
    """Runs ``n_frames`` frames in each way of ``plan``, as many at once as it says.

    ``inputs`` are logical tensors, in the order of the graph's. On a real device frames also take
    variants of them, whose elements are rotated. A way that fails has its error; frames that fail
    do not end it. Ways with segments on the host do not run, and have an error.
    """
    values = dict(zip(bundle.graph.inputs, inputs, strict=True))
    simulated = client.info().simulated
    timing = _timing(options, simulated, n_frames, max(way.in_flight for way in plan.ways))
    request, groups = RequestBuilder(), Groups()
    runs = {
        number: FrameScheduleRun(way, error="segments that only eager PyTorch runs")
        for number, way in enumerate(plan.ways)
    }
    for number, way in enumerate(plan.ways):
        plans = [bundle.plans[choice.plan] for choice in way.choices]
        if any(map(_on_host, plans)):
            continue
        models = [(s.target, bundle.region(s.units, s.target)) for p in plans for s in p.segments]
        weights = {id(buffer): len(buffer) for _, region in models for buffer in region.buffers}
        action = replace(
            options.action(groups.number("frames", sum(weights.values()))),
            conditions=conditions_of(way, options.conditions),
        )
        shares = [(len(p.segments), c.share) for p, c in zip(plans, way.choices, strict=True)]
        frames = FramesSpec(
            tuple(shares), way.in_flight, 1 if simulated else VARIANTS, way.overlaps
        )
        feed = feed_of(bundle, values, request)
        request.add_action(
            build_action(
                number, models, feed, request, timing, action, bundle.graph.outputs, frames
            ).spec
        )
    done = 0
    for event in client.run(request.request()):
        if isinstance(event, ActionResult):
            way = plan.ways[event.action]
            runs[event.action] = _way_run(bundle, way, event)
            done += 1
            if progress is not None:
                progress(way.name, done, len(plan.ways))
    return tuple(runs[number] for number in range(len(plan.ways)))


def _timing(options: RunOptions, simulated: bool, n_frames: int, in_flight: int) -> Timing:
    rounds = 1 if simulated else max(1, min(options.rounds, n_frames // (4 * in_flight)))
    return Timing(
        rounds=rounds,
        min_runs=n_frames if simulated else min(n_frames, 3 * in_flight * rounds),
        max_runs=n_frames,
        budget_ns=options.budget_ms * 1_000_000,
        cooldown_ms=cooldown_ms(options.cooldown_s, 0),
        timeout_ms=options.timeout_s * 1000,
    )


def _way_run(bundle: Bundle, way: FrameSchedule, result: ActionResult) -> FrameScheduleRun:
    samples = result.frames or FrameSamples((), (), None)
    places = [
        (choice.plan, number, lane_of(segment.target))
        for choice in way.choices
        for number, segment in enumerate(bundle.plans[choice.plan].segments)
    ]
    if any(f.plan >= len(way.choices) for f in samples.frames) or any(
        span.segment >= len(places) for span in samples.spans
    ):
        raise SerializationError("the agent's result: a frame has an unknown plan or segment")
    spans = tuple(
        LaneSpan(lane, plan, segment, span.frame, span.begin_ns, span.end_ns)
        for span in samples.spans
        for plan, segment, lane in [places[span.segment]]
    )
    return FrameScheduleRun(
        way,
        samples.frames,
        spans,
        tuple(each.runs for each in result.rounds),
        samples.failure if result.ok else why_failed(result),
    )


def frame_notes(runs: Sequence[FrameScheduleRun]) -> list[str]:
    """Returns notes on frames that gave other bits than their plan alone, or failed."""
    notes = []
    for run in runs:
        if differing := run.outcomes[Outcome.DIFFERS]:
            notes.append(
                f"{run.way.name}: {differing} of {len(run.frames)} frames at once gave other bits"
                " than their plan gives alone"
            )
        if failed := run.outcomes[Outcome.FAILED]:
            notes.append(
                f"{run.way.name}: {failed} of {len(run.frames)} frames failed, the first with"
                f" {run.error}"
            )
    return notes


# ---- choosing -----------------------------------------------------------------------------------


def fastest(runs: Sequence[FrameScheduleRun]) -> int:
    """Returns the index of the way with the most frames per second; of those within :data:`CLOSE`
    of the fastest the one with the fewest plans, and of these the first. Ways with a failed frame
    do not count; 0 where no way is left."""
    rates = {
        number: run.frames_per_second or 0.0
        for number, run in enumerate(runs)
        if run.error is None and run.frames_per_second
    }
    best = max(rates.values(), default=0.0)
    good = [number for number, rate in rates.items() if rate >= best * (1 - CLOSE)]
    return min(good, key=lambda n: (len(runs[n].way.choices), n), default=0)


def all_cores(bundle: Bundle, threads: int) -> FrameSchedule | None:
    """Returns the way that gives the CPU engine every core of a device. None where no plan of the
    bundle is all on the CPU, or the conditions already give it as many threads."""
    if threads <= bundle.conditions.threads:
        return None
    for index, plan in enumerate(bundle.plans):
        if all(segment.target.engine is Engine.CPU for segment in plan.segments):
            return FrameSchedule(ALL_CORES, (PlanChoice(index),), 1, threads=threads)
    return None


def choose_way(bundle: Bundle, frames: FramePlan, runs: Sequence[FrameScheduleRun]) -> Bundle:
    """Returns the bundle with the fastest of ``frames``' ways as the one to use, and its plans
    first. A note says so where another way was planned. On a real device the measured rate of each
    way replaces its prediction, and a note has both: costs are measured one at a time, on idle
    processors."""
    chosen, planned = fastest(runs), runs[0]
    way = frames.ways[chosen]
    notes = list(bundle.notes)
    unit = "frames/s (simulated)" if bundle.simulated else "frames/s"
    rate, planned_rate = runs[chosen].frames_per_second, planned.frames_per_second
    if chosen != 0:
        did = f"did {planned_rate:.4g} {unit}" if planned_rate else "failed"
        if planned.error is not None:
            did = f"failed ({planned.error})"
        notes.append(
            f"run whole, {planned.way.name} {did}, {way.name} {rate or 0.0:.4g} {unit}: frames run"
            f" as {way.name}"
        )
    if not bundle.simulated and rate:
        if way.predicted_per_second:
            notes.append(
                f"predicted by a run of frames at once: {rate:.4g} {unit}, from costs measured one"
                f" at a time {way.predicted_per_second:.4g}"
            )
        ways = (
            replace(run.way, predicted_per_second=run.frames_per_second)
            if run.frames_per_second
            else run.way
            for run in runs
        )
        frames = replace(frames, ways=tuple(ways))
    return _with_way_first(replace(bundle, notes=tuple(notes)), frames, chosen)


def _with_way_first(bundle: Bundle, frames: FramePlan, first: int) -> Bundle:
    """Returns the bundle with that way as the one to use, with its plans first and its conditions;
    the others keep their threads and cores."""
    way, former = frames.ways[first], bundle.conditions
    conditions = conditions_of(way, former)
    own = [choice.plan for choice in way.choices]
    order = [*own, *(n for n in range(len(bundle.plans)) if n not in own)]
    others = [each for n, each in enumerate(frames.ways) if n != first]
    if conditions != former:
        others = [
            replace(each, threads=former.threads, cpus=former.cpus)
            if each.threads is None
            else each
            for each in others
        ]
    frames = replace(
        frames,
        ways=tuple(
            replace(
                each,
                choices=tuple(replace(c, plan=order.index(c.plan)) for c in each.choices),
            )
            for each in (way, *others)
        ),
    )
    plans = [bundle.plans[n] for n in order]
    for each in frames.ways:
        if each.overlaps and each.predicted_per_second:
            (choice,) = each.choices
            plans[choice.plan] = plans[choice.plan].overlapping(1e9 / each.predicted_per_second)
    return replace(
        bundle,
        plans=tuple(plans),
        frames=frames,
        plan_set=frames.plan_set,
        conditions=conditions,
    )


SERIAL, OVERLAPPED = "one segment after the other", "branches at once"


def with_branches(plans: Sequence[Plan], parallel: ParallelPlan) -> tuple[Plan, FramePlan] | None:
    """Returns the schedule, to follow ``plans``, and the two ways of running a frame: the first
    plan, which is used until the other way has run faster, and the schedule. None where there is no
    gain."""
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
    """Returns all distinct plans, those of the mixture first, and the ways that use them. A plan
    that is among ``rivals`` has its name from there."""
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
    inputs: Sequence[torch.Tensor],
    client: AgentClient,
    options: RunOptions,
    counting: Callable[[int], StepCallback],
) -> Bundle:
    """Returns the bundle with the fastest way of running frames on the device. For many frames at
    once, the CPU engine on every core is another way. ``counting`` is called with the number of
    ways, and returns the callback for each way's result."""
    assert bundle.frames is not None
    info = client.info()
    frames = bundle.frames
    many = not any(way.overlaps for way in frames.ways)  # branches of one frame are for its latency
    rule = all_cores(bundle, info.cpus) if many and not info.simulated else None
    if rule is not None:
        frames = replace(frames, ways=(*frames.ways, rule))
    heard = counting(len(frames.ways))
    n_frames = FRAMES_TO_CHOOSE * frames.in_flight
    runs = time_frames(bundle, frames, inputs, client, options, n_frames, heard)
    return choose_way(bundle, frames, runs)
