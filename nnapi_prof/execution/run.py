"""Run a bundle on a device: once for its outputs, then plan and baselines in rounds for timing.

1. The plan runs once; its outputs (and inputs of segments on the host) return to the host.
2. Every distinct plan is timed (:mod:`~nnapi_prof.execution.timing`).
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace

import torch

from nnapi_prof.bundle import Bundle
from nnapi_prof.costs import Precision
from nnapi_prof.device import describe, device_fingerprint
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.protocol import ActionResult
from nnapi_prof.device.protocol.actions import Timing
from nnapi_prof.device.protocol.request import RequestBuilder
from nnapi_prof.errors import AgentError
from nnapi_prof.execution import RunOptions
from nnapi_prof.execution.actions import PreparedAction, build_action, read_later, stages_of
from nnapi_prof.execution.compare import (
    compare,
    limit_notes,
    notes_on,
    usual_tolerance,
)
from nnapi_prof.execution.frames import frame_notes, time_frames, ways_of
from nnapi_prof.execution.judgement import allow_ambiguous, last_step
from nnapi_prof.execution.report import (
    FrameScheduleRun,
    OutputCheck,
    PlanRun,
    RunReport,
    SegmentTiming,
)
from nnapi_prof.execution.timing import NOISE, feed_of, plan_key, time_plans, why_failed
from nnapi_prof.graph.plan import Engine
from nnapi_prof.graph.program import Program, as_array, constant_outputs, from_memory, run_units
from nnapi_prof.progress import StepCallback


def run_bundle(
    bundle: Bundle,
    program: Program,
    inputs: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    client: AgentClient,
    options: RunOptions,
    progress: StepCallback | None = None,
    floats: Sequence[torch.Tensor] | None = None,
) -> RunReport:
    """Runs a bundle's plan and, if asked, its baselines.

    ``inputs`` are logical tensors in the order of the graph's inputs, ``expected`` the outputs of
    eager PyTorch for them, flattened. Where the bundle has units in 8 bits, ``expected`` are those
    of the quantised model and ``floats`` those of the float model. Raises AgentError where the plan
    itself fails; a baseline that fails is reported as such.
    """
    info = client.info()
    notes = list(bundle.notes)
    foreign = device_fingerprint(info) != bundle.fingerprint
    if foreign:
        notes.append(
            f"the bundle was made for {bundle.device}: predictions are for that device, not this"
        )
    try:
        outputs, cold = _outputs(bundle, program, inputs, client, options)
    except AgentError as error:
        if not foreign:
            raise
        raise AgentError(
            f"{error}; the bundle was made for {bundle.device}",
            "make one for this device with `nnapi-prof profile` and `nnapi-prof partition`",
            serial=error.serial,
        ) from error
    steps = [last_step(program, name) for name in bundle.graph.outputs]
    names = bundle.graph.outputs
    mine = [as_array(outputs[name]) for name in names]
    theirs = list(map(as_array, expected))
    tolerance = options.tolerance
    if tolerance is None:
        tolerance = usual_tolerance(options.conditions.precision)
    checks = compare(names, mine, theirs, tolerance, steps, options.tolerance or 0.0)
    notes += limit_notes(names, mine, theirs)
    own = [outputs[name] for name in names]
    checks, excuses = allow_ambiguous(checks, program, inputs, steps, own, expected, tolerance)
    notes += [*excuses, *notes_on(checks)]
    plans = bundle.plans if options.baselines else bundle.plans[:1]
    if hosted := [s for s in bundle.plan.segments if s.target.engine is Engine.HOST]:
        labels = "; ".join(bundle.graph.label(segment.units) for segment in hosted)
        notes.append(
            f"on the host, in eager PyTorch: {labels}. That time is an estimate, and a plan's"
            " latencies here, predicted and measured, are those of its segments on the device"
        )
    timed = time_plans(bundle, program, plans, inputs, client, options, progress)
    runs = []
    for plan in plans:
        row = timed[plan_key(plan)]
        segments = tuple(
            SegmentTiming(
                segment=number,
                target=segment.target.key,
                label=_label(bundle, segment.units),
                predicted_ns=segment.predicted_ns,
                samples_ns=row.segment_ns.get(number, ()),
                compile_ns=row.compile_ns.get(number),
                first_ns=cold.get(number) if plan is bundle.plan else None,
            )
            for number, segment in enumerate(plan.segments)
        )
        runs.append(
            PlanRun(
                plan,
                row.total_ns(),
                segments,
                row.error,
                row.flags,
                row.first_ns(),
                row.copies_ns(),
            )
        )
    if options.conditions.precision is not Precision.FLOAT32:
        notes.append(_accuracy_cost(options.conditions.precision, checks))
    if floats is not None and bundle.mixed is not None:
        off = compare(names, mine, list(map(as_array, floats)))
        worst = max((check.relative for check in off), default=0.0)
        n_int8, point = len(bundle.mixed.int8_units), bundle.mixed.chosen_row
        expected_error = "" if point is None else f"; on held-out data {point.held_out_error:.2%}"
        notes.append(
            f"outputs are compared with the same arithmetic in eager PyTorch ({n_int8} units in 8"
            f" bits); from those of the float model they are off by {worst:.1e} of their largest"
            f" value for these inputs{expected_error} ({bundle.mixed.metric})"
        )
    frames: tuple[FrameScheduleRun, ...] = ()
    n_frames, meant = options.frames, bundle.frames
    if meant is not None and any(way.overlaps for way in meant.ways[: len(plans)]):
        n_frames = n_frames or options.runs  # the runs above do not overlap segments
    if n_frames:
        ways = ways_of(bundle)
        if not options.baselines:
            ways = replace(ways, ways=ways.ways[:1])
        frames = time_frames(bundle, ways, inputs, client, options, n_frames, progress)
        notes += frame_notes(frames)
        for each in frames:
            if each.way.overlaps and each.frame_ns:
                (choice,) = each.way.choices
                runs[choice.plan] = replace(runs[choice.plan], total_ns=each.frame_ns)
    if bundle.frames is None or bundle.frames.is_serial:
        notes += _faster_rivals(runs)
    notes += [f"{run.plan.name}: {flag}" for run in runs for flag in run.flags]
    if runs[0].error is not None:
        raise AgentError(f"{client.serial}: the plan ran once, then failed: {runs[0].error}")
    return RunReport(
        model=bundle.model,
        device=describe(info),
        fingerprint=device_fingerprint(info),
        simulated=info.simulated,
        created_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        runs=tuple(runs),
        checks=checks,
        notes=tuple(notes),
        conditions=options.conditions.options,
        frames=frames,
    )


def _accuracy_cost(precision: Precision, checks: Sequence[OutputCheck]) -> str:
    """Describes the accuracy cost of less than float32: eager PyTorch computes in float32."""
    name = "relaxed precision" if precision is Precision.RELAXED else precision.value
    worst = max((check.relative for check in checks), default=0.0)
    return f"with {name} the outputs are off float32 by {worst:.1e} of their largest value"


def _faster_rivals(runs: Sequence[PlanRun]) -> list[str]:
    """Returns notes on baselines that were faster than the plan by more than NOISE, if any."""
    plan = runs[0].median_ns
    if plan is None:
        return []
    return [
        f"{rival.plan.name} ran {1 - rival.median_ns / plan:.0%} faster than the plan: the plan "
        f"took {_than_predicted(runs[0], plan)}, {rival.plan.name} "
        f"{_than_predicted(rival, rival.median_ns)}; where that stays so, "
        "`nnapi-prof profile --fresh` and `nnapi-prof partition` choose anew"
        for rival in runs[1:]
        if rival.median_ns is not None and rival.median_ns < plan * (1 - NOISE)
    ]


def _than_predicted(run: PlanRun, median_ns: float) -> str:
    """Returns ``5.62 ms where 2.07 ms were predicted``."""
    return f"{median_ns / 1e6:.4g} ms where {run.predicted_ns / 1e6:.4g} ms were predicted"


def _outputs(
    bundle: Bundle,
    program: Program,
    inputs: Sequence[torch.Tensor],
    client: AgentClient,
    options: RunOptions,
) -> tuple[dict[str, torch.Tensor], dict[int, int]]:
    """Runs the plan once, cold. Returns the values on the host, the graph's outputs among them, and
    the ns that each segment on the device took, by its number."""
    values = dict(zip(bundle.graph.inputs, inputs, strict=True)) | constant_outputs(program)
    once = Timing.once(options.timeout_s * 1000)
    cold: dict[int, int] = {}
    cut = stages_of(bundle.plan)
    for position, stage in enumerate(cut):
        segments = [bundle.plan.segments[number] for number in stage.numbers]
        if stage.on_host:
            units = segments[0].units
            needed = {name: values[name] for name in bundle.graph.boundary(units)[0]}
            values.update(run_units(program, units, needed))
            continue
        later = [bundle.plan.segments[n] for s in cut[position + 1 :] for n in s.numbers]
        request = RequestBuilder()
        models = [(s.target, bundle.region(s.units, s.target)) for s in segments]
        feed = feed_of(bundle, values, request)
        keep = read_later(bundle, later)
        action = build_action(0, models, feed, request, once, options.action(), keep)
        request.add_action(action.spec)
        for event in client.run(request.request()):
            if isinstance(event, ActionResult):
                values.update(_pull_kept_values(bundle, action, event, client))
                pairs = zip(stage.numbers, event.segments, strict=True)
                cold.update({number: s.samples_ns[0] for number, s in pairs if s.samples_ns})
    return values, cold


def _pull_kept_values(
    bundle: Bundle, action: PreparedAction, result: ActionResult, client: AgentClient
) -> dict[str, torch.Tensor]:
    """Returns the values that an action kept. Raises AgentError where it failed."""
    if not result.ok:
        raise AgentError(
            f"{client.serial}: the plan failed: {why_failed(result)}", serial=client.serial
        )
    names = {index: name for name, index in action.tensors.items()}
    return {
        names[output.tensor]: from_memory(
            client.pull_output(output), bundle.graph.values[names[output.tensor]]
        )
        for output in result.outputs
    }


def _label(bundle: Bundle, units: tuple[int, ...]) -> str:
    """Returns ``conv2d 3x3 … linear (65 units)``."""
    label = bundle.graph.label(units)
    return label if len(units) == 1 else f"{label} ({len(units)} units)"
