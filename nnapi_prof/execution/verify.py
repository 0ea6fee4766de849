"""The last step of planning: plan and baselines run whole, and the one that is fastest stays.

The partitioner's optimum rests on segments measured one at a time. On a device where they take
longer one after another (cold caches, clocks that drop), another plan can be faster end to end.

The fastest of several noisy measurements is the luckiest, too: predicted by what it was chosen for,
it would run slower than predicted ever after. So some of the runs choose, and others, in processes
of their own, predict.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from nnapi_prof.bundle.bundle import Bundle
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.execution.timing import (
    PlanKey,
    Progress,
    RunOptions,
    TimedPlan,
    plan_key,
    time_repeats,
    together,
)
from nnapi_prof.graph.plan import Engine, Plan
from nnapi_prof.graph.program import Program

TO_CHOOSE = 2
"""Repeats to choose by, on a real device; as many as a run has predict."""
CLOSE = 0.005
"""Relative difference of two plans below which they count as equal: two processes that run one plan
differ by more."""

Repeats = Sequence[Mapping[PlanKey, TimedPlan]]


def choose_measured(
    bundle: Bundle,
    program: Program,
    client: AgentClient,
    options: RunOptions,
    progress: Progress | None = None,
) -> Bundle:
    """Times every plan of a bundle end to end; the same bundle, or one with a better first plan.

    On a real device :data:`TO_CHOOSE` more repeats than ``options`` say, of as many runs, choose
    the plan, and the others predict. The first plan is replaced where it failed and a baseline did
    not, by a baseline that was faster beyond doubt, or on a real device by one as fast with fewer
    segments (:func:`choose`); its notes then say so, with both latencies, and it keeps its name. On
    a real device the predictions of all plans become those of their runs (:func:`_as_run`).
    """
    more = 0 if bundle.simulated else TO_CHOOSE
    n = options.repeats
    options = dataclasses.replace(options, runs=options.runs * (n + more) // n, repeats=n + more)
    repeats = time_repeats(
        bundle, program, bundle.plans, program.example_inputs, client, options, progress
    )
    choosing = repeats[:more] or repeats
    predicted = together(repeats[more:] or repeats)
    chosen = choose(bundle.plans, choosing, bundle.simulated)
    if not bundle.simulated:
        plans = tuple(_as_run(plan, predicted[plan_key(plan)].median_ns()) for plan in bundle.plans)
        bundle = dataclasses.replace(bundle, plans=plans)
    if chosen == 0:
        return bundle
    first, winner = bundle.plan, bundle.plans[chosen]
    timed = together(repeats)
    note = _replaced(timed[plan_key(first)], timed[plan_key(winner)], bundle.simulated)
    plan = Plan(first.name, winner.segments, first.simulated, (*winner.remarks, note))
    return dataclasses.replace(bundle, plans=(plan, *bundle.plans[1:]))


def _replaced(first: TimedPlan, winner: TimedPlan, simulated: bool) -> str:
    """Why the partitioner's own plan gave way, with what both took over all repeats."""
    unit = "ms (simulated)" if simulated else "ms"
    planned_ns, ns = first.median_ns(), winner.median_ns()
    what = f"took {planned_ns / 1e6:.4g} {unit}" if planned_ns else f"failed ({first.error})"
    if ns is not None:
        what += f", {winner.plan.name} {ns / 1e6:.4g} {unit}"
    alike = planned_ns is not None and ns is not None and ns > planned_ns * (1 - CLOSE)
    why = ", as fast with fewer segments" if alike and not simulated else ""
    return (
        f"run whole, the partitioner's own plan of {len(first.plan.segments)} segments {what}: "
        f"this plan is {winner.plan.name}{why}"
    )


def choose(plans: Sequence[Plan], repeats: Repeats, simulated: bool) -> int:
    """The index of the plan to take, the first where nothing ran.

    A plan is faster than another beyond doubt where it was so by :data:`CLOSE` over all repeats
    (they took turns within each) and in every one of them; on a simulated phone, which repeats
    itself, wherever it was. Of those that none is faster than beyond doubt, the one with the fewest
    segments is taken, and of these the first: how fast they happened to run tells nothing.
    """
    ran = [n for n in range(len(plans)) if _ran(repeats, plans[n])]
    if not ran:
        return 0
    close = 0.0 if simulated else CLOSE
    good = [n for n in ran if not any(_faster(repeats, plans[m], plans[n], close) for m in ran)]
    if simulated and 0 in good:
        return 0  # its segments cost what they cost
    return min(good, key=lambda n: (len(plans[n].segments), n))


def _ran(repeats: Repeats, plan: Plan) -> bool:
    return all(repeat[plan_key(plan)].median_ns() for repeat in repeats)


def _faster(repeats: Repeats, rival: Plan, plan: Plan, close: float) -> bool:
    """Whether ``rival`` is faster than ``plan`` by more than ``close``, and in every repeat."""
    gains = [
        math.log(
            (repeat[plan_key(plan)].median_ns() or math.inf)
            / (repeat[plan_key(rival)].median_ns() or math.inf)
        )
        for repeat in repeats
    ]
    return min(gains) > 0 and sum(gains) / len(gains) > -math.log1p(-close)


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
    return dataclasses.replace(plan, segments=segments).with_note(note)
