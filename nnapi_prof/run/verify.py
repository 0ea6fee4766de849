"""The last step of planning: plan and baselines run whole, and the one that is fastest stays.

The partitioner's optimum rests on segments measured one at a time. On a device where they take
longer one after another (cold caches, clocks that drop), another plan can be faster end to end.
"""

from __future__ import annotations

import dataclasses

from nnapi_prof.bundle.bundle import Bundle
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.graph.plan import Engine, Plan
from nnapi_prof.graph.program import Program
from nnapi_prof.run.timing import NOISE, Progress, RunOptions, plan_key, time_plans


def choose_measured(
    bundle: Bundle,
    program: Program,
    client: AgentClient,
    options: RunOptions,
    progress: Progress | None = None,
) -> Bundle:
    """Times every plan of a bundle end to end; the same bundle, or one with a better first plan.

    The first plan is replaced by a baseline only where that was faster by more than NOISE, where it
    had fewer segments and was no slower by more than NOISE (on a real device), or where the first
    plan failed and the baseline did not; its notes then say so, with both latencies. The new plan
    keeps the name of the old one. On a real device the predictions of all plans become those of
    their runs (:func:`_as_run`).
    """
    timed = time_plans(
        bundle, program, bundle.plans, program.example_inputs, client, options, progress
    )
    first = timed[plan_key(bundle.plan)]
    if not bundle.simulated:
        plans = tuple(_as_run(plan, timed[plan_key(plan)].median_ns()) for plan in bundle.plans)
        bundle = dataclasses.replace(bundle, plans=plans)
    ran = [(ns, plan) for plan in bundle.plans if (ns := timed[plan_key(plan)].median_ns())]
    if not ran:
        return bundle
    fastest_ns, fastest = min(ran, key=lambda row: row[0])
    planned_ns = first.median_ns()
    noise = 0.0 if bundle.simulated else NOISE  # a simulated phone repeats itself exactly
    if planned_ns is not None and fastest_ns >= planned_ns * (1 - noise):
        alike = [row for row in ran if row[0] <= planned_ns * (1 + noise)]
        simplest_ns, simplest = min(alike, key=lambda row: len(row[1].segments))
        if bundle.simulated or len(simplest.segments) >= len(bundle.plan.segments):
            return bundle
        # What the run cannot tell from noise is not worth its splits.
        fastest_ns, fastest = simplest_ns, simplest
    unit = "ms (simulated)" if bundle.simulated else "ms"
    what = f"took {planned_ns / 1e6:.3g} {unit}" if planned_ns else f"failed ({first.error})"
    note = (
        f"run whole, the partitioner's own plan of {len(bundle.plan.segments)} segments {what}, "
        f"{fastest.name} {fastest_ns / 1e6:.3g} {unit}: this plan is {fastest.name}"
    )
    chosen = Plan(bundle.plan.name, fastest.segments, bundle.plan.simulated, (*fastest.notes, note))
    return dataclasses.replace(bundle, plans=(chosen, *bundle.plans[1:]))


def _as_run(plan: Plan, ns: float | None) -> Plan:
    """The plan with the latency of its run as its prediction, shared out among its segments.

    A segment measured alone, again and again, finds its weights in the caches and the clock as it
    left them; in a plan it follows the others. The run knows; its own prediction is left to plans
    that did not run, and segments on the host keep their estimates, which no run holds.
    """
    alone = sum(s.predicted_ns for s in plan.segments if s.target.engine is not Engine.HOST)
    if ns is None or alone <= 0:
        return plan
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
    )
    return dataclasses.replace(plan, segments=segments, notes=(*plan.notes, note))
