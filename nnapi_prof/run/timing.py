"""Times plans end to end on a device: every distinct plan once a round, several rounds.

Each round runs all plans once more, so that a drift of the device (heat, other load) hits them
alike; the samples of the rounds are joined. Segments on the host (units that no engine of the agent
can run) cut a plan into stretches, each an action of its own; their own time is not measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from nnapi_prof.bundle.bundle import Bundle
from nnapi_prof.device.action import Timing
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.request import RequestBuilder
from nnapi_prof.device.results import ActionResult
from nnapi_prof.graph.plan import Plan
from nnapi_prof.graph.program import Program
from nnapi_prof.run.actions import Stretch, prepare_action, stretches
from nnapi_prof.run.compare import TOLERANCE
from nnapi_prof.run.host import all_values, to_memory

NOISE = 0.02
"""Relative difference of two plans' medians below which they count as equal: repeated runs on big
cores vary by up to 1 %, and two plans vary each."""
PlanKey = tuple[tuple[tuple[int, ...], str], ...]
Progress = Callable[[str, int, int], None]
"""Called with what runs, how many actions are done, and of how many."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How often plans run: ``runs`` recorded runs in all, spread over ``rounds``."""

    runs: int = 30
    rounds: int = 3
    """One on a simulated phone, which does not drift."""
    warmup_runs: int = 2
    budget_ms: int = 3000
    """Per plan and round: a slow plan stops early, after at least two runs."""
    timeout_s: int = 120
    threads: int = 1
    baselines: bool = True
    tolerance: float = TOLERANCE


@dataclass
class TimedPlan:
    """Samples of one distinct plan, gathered over rounds."""

    plan: Plan
    stretch_total_ns: dict[int, list[int]] = field(default_factory=dict)
    segment_ns: dict[int, list[int]] = field(default_factory=dict)
    compile_ns: dict[int, int | None] = field(default_factory=dict)
    error: str | None = None

    def total_ns(self) -> tuple[int, ...]:
        """End to end: the sum over stretches, run by run."""
        if self.error is not None or not self.stretch_total_ns:
            return ()
        return tuple(sum(runs) for runs in zip(*self.stretch_total_ns.values(), strict=False))

    def median_ns(self) -> float | None:
        """None where it failed or nothing of it runs on the device."""
        total = self.total_ns()
        return statistics.median(total) if total else None


def plan_key(plan: Plan) -> PlanKey:
    """What tells two plans apart: the segments and where they run."""
    return tuple((segment.units, segment.target.key) for segment in plan.segments)


def time_plans(
    bundle: Bundle,
    program: Program,
    plans: Sequence[Plan],
    inputs: Sequence[torch.Tensor],
    client: AgentClient,
    options: RunOptions,
    progress: Progress | None,
) -> dict[PlanKey, TimedPlan]:
    """Times ``plans`` of a bundle for logical ``inputs``; equal plans are timed once.

    A plan that fails has its ``error`` set and no samples; the others go on.
    """
    distinct = {plan_key(plan): TimedPlan(plan) for plan in reversed(plans)}
    jobs: list[tuple[TimedPlan, int, Stretch]] = []
    for timed in reversed(distinct.values()):
        for position, stretch in enumerate(stretches(timed.plan)):
            if not stretch.on_host:
                jobs.append((timed, position, stretch))
    # A stretch behind a host segment reads values of the middle: eager PyTorch makes them.
    values = dict(zip(bundle.graph.inputs, inputs, strict=True))
    if any(stretch.on_host for plan in plans for stretch in stretches(plan)):
        values |= all_values(program, inputs)

    simulated = client.info().simulated
    rounds = 1 if simulated else options.rounds
    runs = max(1, options.runs // rounds)
    timing = Timing(
        warmup_min=options.warmup_runs,
        warmup_max=options.warmup_runs,
        min_runs=runs if simulated else min(2, runs),
        max_runs=runs,
        budget_ns=options.budget_ms * 1_000_000,
        timeout_ms=options.timeout_s * 1000,
    )
    request = RequestBuilder()
    actions = [job for _ in range(rounds) for job in jobs]
    for number, (timed, _, stretch) in enumerate(actions):
        segments = [timed.plan.segments[n] for n in stretch.numbers]
        action = prepare_action(
            number,
            bundle,
            segments,
            lambda name: to_memory(values[name], bundle.graph.values[name]),
            (),
            request,
            timing,
            options.threads,
        )
        request.add_action(action.spec)
    done = 0
    for event in client.run(request.build(), request.blobs):
        if not isinstance(event, ActionResult):
            continue
        timed, position, stretch = actions[event.action]
        _record(timed, position, stretch, event)
        done += 1
        if progress is not None:
            progress(timed.plan.name, done, len(actions))
    return distinct


def _record(timed: TimedPlan, position: int, stretch: Stretch, result: ActionResult) -> None:
    if not result.ok:
        timed.error = why_failed(result)
        return
    timed.stretch_total_ns.setdefault(position, []).extend(result.total_ns)
    for number, segment in zip(stretch.numbers, result.segments, strict=True):
        timed.segment_ns.setdefault(number, []).extend(segment.samples_ns)
        timed.compile_ns.setdefault(number, segment.compile_ns)


def why_failed(result: ActionResult) -> str:
    """``crashed during execute: SIGSEGV``."""
    stage = f" during {result.stage}" if result.stage else ""
    return f"{result.status.value}{stage}: {result.message}"
