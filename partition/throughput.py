"""Plans for many frames: the mixture of plans, the frames in flight, and the proof.

Processors work at once on different frames. :mod:`.mixture` finds the mixture that no dispatch of
any plans improves on, with its proof. :mod:`.queues` simulates it with a given number of frames in
flight, and chooses among it, mixtures of plans that change lanes less often, frames in turn on
whole devices, one plan for all frames, and one frame at a time. All figures are predictions from
costs that were measured one at a time, and from a contention that the caller gives.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.causes import amount
from nnapi_prof.graph.plan import Plan, Proof, ProofKind
from nnapi_prof.partition.baselines import find_baselines
from nnapi_prof.partition.lanes import Contention, loads_of, make_lanes, on_lanes
from nnapi_prof.partition.mixture import MET, best_mixture
from nnapi_prof.partition.problem import Problem
from nnapi_prof.partition.queues import (
    Dispatch,
    FrameStrategy,
    InFlight,
    InFlightSimulator,
    Rate,
    baseline_rates,
    candidates_of,
    choose,
    per_second,
    whole_plans,
)
from nnapi_prof.partition.search import Report, SearchLimits, Watch
from nnapi_prof.partition.solver import plan_of_placements, search_serial

SECONDS = 30.0
"""Default time limit of a call, which runs several searches."""
SERIAL_SHARE = 0.2
"""Share of the time for the fastest plan of a single frame."""
OBJECTIVE = "time a frame in ms"


@dataclass(frozen=True)
class ThroughputPlan:
    """Plans with shares, and their predicted rates."""

    plans: tuple[Plan, ...]
    shares: tuple[float, ...]
    """Share of each plan, with a sum of 1."""
    rule: FrameStrategy
    lanes: tuple[str, ...]
    loads_ns: tuple[float, ...]
    """Average load of each lane by one frame, with the other lanes idle."""
    period_ns: float
    """Time between two frames, with the requested number in flight."""
    proof: Proof
    """Proof for the least time a frame can take, with any number in flight."""
    baselines: tuple[Rate, ...]
    """Rates of the alternatives, with any number of frames in flight."""
    baseline_plans: tuple[tuple[Plan, ...], ...]
    """Plans of each baseline, in order of their shares."""
    baseline_periods_ns: tuple[float, ...]
    """Period of each baseline, with as many frames in flight as ``chosen`` has."""
    curve: tuple[InFlight, ...]
    """Results by frames in flight, ascending; all within the limits of latency and memory."""
    chosen: InFlight | None
    """How the plans run; None where the number of frames in flight is not limited."""
    interrupted: bool = False
    """Whether Ctrl-C ended the search: these are the best plans until then."""

    @property
    def frames_per_second(self) -> float:
        return per_second(self.period_ns)

    @property
    def most_per_second(self) -> float:
        """Upper bound of the frames per second of any plans and dispatch, by these costs."""
        return per_second(self.proof.bound_ns)

    def baseline(self, rule: FrameStrategy) -> Rate | None:
        """Returns the baseline of a rule; None where it cannot run."""
        return next((rate for rate in self.baselines if rate.rule is rule), None)


def plan_throughput(
    problem: Problem,
    *,
    contention: Contention,
    frames_in_flight: int | None = None,
    max_latency_ns: float | None = None,
    max_memory_bytes: int | None = None,
    dispatches: Collection[Dispatch] = tuple(Dispatch),
    limits: SearchLimits | None = None,
    report: Report | None = None,
) -> ThroughputPlan:
    """Returns the plans with the most frames per second.

    ``contention`` is the factor by which a processor is slower while another one is busy.
    ``frames_in_flight`` limits the frames submitted whose results were not handed over; without it,
    and without a limit of latency or memory, queues are unlimited. 95 % of frames keep to
    ``max_latency_ns``; weights and values in flight keep to ``max_memory_bytes``. ``dispatches``
    are those that the runtime supports. ``limits`` are for the whole call except its simulations (a
    second or two).

    Raises PartitionError where a unit runs on no processor of the device, where the contention or a
    number is invalid, or nothing keeps to the limits.
    """
    if frames_in_flight is not None and frames_in_flight < 1:
        raise PartitionError(f"{frames_in_flight} frames in flight", "allow at least 1")
    if not dispatches:
        raise PartitionError("frames need a dispatch", "name one")
    lanes = make_lanes(problem.targets, contention)
    problem = on_lanes(problem, lanes)
    watch = Watch(limits or SearchLimits(SECONDS), report)
    rivals = find_baselines(problem)
    serial = search_serial(problem, watch, SERIAL_SHARE)
    by_lane = tuple(whole_plans(problem, lanes, rivals))
    starts = [*by_lane, *(rival.placements for rival in rivals)]
    starts += [serial.placements, *serial.plans]
    result = best_mixture(problem, lanes, watch, starts)
    candidates = candidates_of(problem, lanes, result, by_lane, rivals, serial.placements)
    watch.stage = "queues"
    flights = InFlightSimulator(
        problem,
        lanes,
        candidates,
        tuple(dispatches),
        max_latency_ns,
        max_memory_bytes,
    )
    curve = flights.curve(frames_in_flight)
    limited = (frames_in_flight, max_latency_ns, max_memory_bytes) != (None, None, None)
    chosen = choose(curve, frames_in_flight) if limited else None
    if limited and chosen is None:
        raise PartitionError(_nothing_keeps(candidates, max_latency_ns, max_memory_bytes))
    best = min(candidates, key=lambda rate: rate.period_ns)
    rate = best if chosen is None else chosen.rate
    loads = np.array(rate.shares) @ np.array(
        [loads_of(problem, lanes, plan) for plan in rate.plans]
    )
    bound_ns = min(result.bound_ns, best.period_ns)
    rivals_rates = baseline_rates(candidates)
    is_met = best.period_ns <= bound_ns * (1 + MET)
    return ThroughputPlan(
        plans=tuple(
            plan_of_placements(problem, plan, name=f"mixture-{number}")
            for number, plan in enumerate(rate.plans, 1)
        ),
        shares=rate.shares,
        rule=rate.rule,
        lanes=lanes.names,
        loads_ns=tuple(loads.tolist()),
        period_ns=rate.period_ns if chosen is None else chosen.period_ns,
        proof=Proof(
            ProofKind.BOUND_MET if is_met else ProofKind.GAP,
            best.period_ns,
            bound_ns,
            "mixture",
            "mixture",
            limited,
            OBJECTIVE,
        ),
        baselines=rivals_rates,
        baseline_plans=tuple(
            tuple(
                plan_of_placements(problem, plan, name=f"{each.rule.value} {number}")
                for number, plan in enumerate(each.plans, 1)
            )
            for each in rivals_rates
        ),
        baseline_periods_ns=tuple(
            each.period_ns if chosen is None else flights.period_ns(each, chosen.frames_in_flight)
            for each in rivals_rates
        ),
        curve=curve,
        chosen=chosen,
        interrupted=watch.interrupted,
    )


def _nothing_keeps(
    candidates: Sequence[Rate], max_latency_ns: float | None, max_memory_bytes: int | None
) -> str:
    least = next(rate.period_ns for rate in candidates if rate.rule is FrameStrategy.SERIAL)
    asked = [] if max_latency_ns is None else [f"within {amount(max_latency_ns)}"]
    asked += [] if max_memory_bytes is None else [f"in {max_memory_bytes:,} bytes"]
    return (
        f"no frame is through {' and '.join(asked)}: one alone takes {amount(least)} at "
        "least; allow more time, or more memory"
    )
