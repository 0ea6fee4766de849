"""One frame on several processors at once: a schedule, a bound of all schedules, the serial plan.

Branches may overlap where processors are of like speed; on a chain nothing can. So the bound comes
first (:mod:`.overlap`): where it promises less than :data:`PROMISING` over the serial optimum,
no schedule is looked for. All figures are predictions from costs that were measured one at a time,
and from a contention that the caller gives; a schedule that was not measured whole on the device
may be slower than the serial plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nnapi_prof.graph.plan import Plan, Proof, ProofKind
from nnapi_prof.partition.blocks import best_targets, starts_of
from nnapi_prof.partition.lanes import Contention, Lanes, make_lanes, on_lanes
from nnapi_prof.partition.overlap import integral_bound, lower_bound
from nnapi_prof.partition.problem import Placement, Problem
from nnapi_prof.partition.schedule import (
    MOST_EXACT,
    Scheduler,
    Span,
    best_schedule,
    durations,
    makespan,
    timeline,
)
from nnapi_prof.partition.search.result import Plan as Placements
from nnapi_prof.partition.search.result import Report, SearchLimits, SearchResult, Watch
from nnapi_prof.partition.solver import plan_of_placements, search_serial

PROMISING = 1.15
"""The serial optimum over the bound: below, measuring would find next to nothing."""
SERIAL_SHARE = 0.25
"""Of the time: for the serial plan."""
BOUND_SHARE = 0.4
"""Of what is left then, at most: for the bound."""
INTEGRAL_SHARE = 0.2
"""Of what is left, at most: for raising it."""
MET = 1e-6
"""Relative: a schedule this close to the bound counts as proven."""
CLOSE = 2e-3
"""Gap that is not worth another round."""
MOVES = 60
"""Of the first annealing, for each unit."""
GROWTH = 2.0
"""Of the moves, from round to round, while the better half of the schedules goes on."""
PATIENCE = 3
"""Rounds that gain nothing to speak of before all begins anew, ..."""
TRIES = 2
"""... and so often does it without a gain before the search ends."""
WORTH_GOING_ON = 1e-3
HEATS = (0.3, 0.1, 0.3, 0.03)
"""First temperature of an annealing, in shares of what a unit takes about; in turn."""
COOLING = 0.02


@dataclass(frozen=True)
class ParallelPlan:
    """A schedule of one frame, with the serial plan beside it."""

    plan: Plan
    """Its segments in the order in which each lane takes its own; the serial plan where no
    schedule is predicted to be faster."""
    spans: tuple[Span, ...]
    """When each segment runs."""
    lanes: tuple[str, ...]
    latency_ns: float
    serial: Plan
    """The plan of least latency, one segment after the other."""
    serial_ns: float
    proof: Proof
    """Of the least latency of all schedules."""
    promise: float
    """The serial latency over the bound: no schedule gains more."""
    tried: bool
    """Schedules were looked for: the promise was worth it."""

    @property
    def gain(self) -> float:
        """The serial latency over the schedule's."""
        return self.serial_ns / self.latency_ns if self.latency_ns > 0 else 1.0


def plan_parallel(
    problem: Problem,
    *,
    contention: Contention,
    promising: float = PROMISING,
    limits: SearchLimits | None = None,
    report: Report | None = None,
) -> ParallelPlan:
    """A schedule of least latency, if the bound promises one at least ``promising`` times as fast
    as the serial plan.

    ``contention`` is how many times as long a processor takes while another one is busy. Raises
    PartitionError where a unit runs on no processor of the device, or the contention is none.
    """
    lanes = make_lanes(problem.targets, contention)
    problem = on_lanes(problem, lanes)
    watch = Watch(limits or SearchLimits(), report)
    serial = search_serial(problem, watch, SERIAL_SHARE)
    watch.stage = "bound"
    bound = lower_bound(problem, lanes, watch.seconds_left * BOUND_SHARE)
    floor_ns = 0.0 if bound is None else bound.ns
    shares = [] if bound is None else [bound.share]
    if serial.ns > promising * floor_ns and problem.n > MOST_EXACT:
        sharper = integral_bound(problem, lanes, watch.seconds_left * INTEGRAL_SHARE)
        if sharper is not None:
            floor_ns = max(floor_ns, sharper.ns)
            shares.append(sharper.share)
    search_for = _ScheduleSearch(problem, lanes, serial, floor_ns, watch)
    tried = bool(serial.ns > promising * floor_ns)
    if tried:
        try:
            search_for.run(starts_of(problem, serial.placements, shares))
        except KeyboardInterrupt:
            watch.interrupted = True
    placements, latency_ns = search_for.best, search_for.best_ns
    bound_ns = min(floor_ns, latency_ns)
    kind = ProofKind.BOUND_MET if latency_ns <= bound_ns * (1 + MET) else ProofKind.GAP
    if search_for.is_exact:
        kind, bound_ns = ProofKind.EXACT, latency_ns
    is_serial = placements == serial.placements and latency_ns == serial.ns
    spans = (
        tuple(_one_by_one(problem, lanes, placements))
        if is_serial
        else timeline(problem, lanes, placements)
    )
    proof = Proof(kind, latency_ns, bound_ns, search_for.found_by, "blocks")
    name = "serial" if is_serial else "parallel"
    plan = plan_of_placements(problem, placements, proof, name=name)
    return ParallelPlan(
        plan=plan if is_serial else plan.overlapping(latency_ns),
        spans=spans,
        lanes=lanes.names,
        latency_ns=latency_ns,
        serial=plan_of_placements(problem, serial.placements, name="serial"),
        serial_ns=serial.ns,
        proof=proof,
        promise=serial.ns / floor_ns if floor_ns > 0 else math.inf,
        tried=tried,
    )


class _ScheduleSearch:
    """The search for the best schedule."""

    def __init__(
        self, problem: Problem, lanes: Lanes, serial: SearchResult, floor_ns: float, watch: Watch
    ) -> None:
        self._problem = problem
        self._lanes = lanes
        self._floor_ns = floor_ns
        self._watch = watch
        self.best: Placements = serial.placements
        self.best_ns = serial.ns
        self.found_by = "serial"
        self.is_exact = False

    def _offer(self, placements: Sequence[Placement], step: str) -> None:
        ns = makespan(self._problem, self._lanes, placements)
        if ns < self.best_ns:
            self.best, self.best_ns, self.found_by = tuple(placements), ns, step
            self._watch.best_ns = ns

    @property
    def _is_done(self) -> bool:
        return self._watch.is_over or self.best_ns <= self._floor_ns * (1 + CLOSE)

    def run(self, starts: Iterator[Placements]) -> None:
        """Every schedule of small problems; else annealing from plans to begin with."""
        self._watch.bound_ns = self._floor_ns
        begins = list(dict.fromkeys(starts))
        for plan in begins:
            self._offer(plan, "start")
        self._watch.stage = "exact"
        self.is_exact, best = best_schedule(self._problem, self._lanes, self.best_ns)
        if best:
            self._offer(best, "exact")
        if not self.is_exact:
            self._anneal(begins)

    def _anneal(self, begins: Sequence[Placements]) -> None:
        """Annealing with growing effort, while the better half of the schedules goes on."""
        problem, watch = self._problem, self._watch
        annealer = Scheduler(problem, self._lanes, best_targets(problem, self._lanes))
        typical = max(self.best_ns / max(1, problem.n), 1e-9)
        plans, at_begin = list(begins), self.best_ns
        moves, turn, idle, tries = float(MOVES * max(10, problem.n)), 0, 0, 0
        watch.stage = "annealing"
        while not self._is_done and tries < TRIES:
            before = self.best_ns
            if idle >= PATIENCE:
                tries = 0 if before < at_begin * (1 - WORTH_GOING_ON) else tries + 1
                plans, at_begin, idle = [*begins, self.best], before, 0
                moves /= GROWTH**PATIENCE
            hot = typical * HEATS[turn % len(HEATS)]
            annealed: dict[Placements, float] = {}
            for plan in plans:
                ended = annealer.run(plan, int(moves), hot, hot * COOLING, turn, watch)
                self._offer(ended, "annealing")
                annealed[ended] = makespan(problem, self._lanes, ended)
            plans = sorted(annealed, key=annealed.__getitem__)[: max(1, len(plans) // 2)]
            if len(plans) == 1:
                idle = 0 if self.best_ns < before * (1 - WORTH_GOING_ON) else idle + 1
            moves, turn = moves * GROWTH, turn + 1


def _one_by_one(problem: Problem, lanes: Lanes, placements: Sequence[Placement]) -> Iterator[Span]:
    """When the segments of a serial plan run."""
    begin = 0.0
    for (_, k), ns in zip(placements, durations(problem, placements), strict=True):
        yield Span(int(lanes.of_target[k]), begin, begin + ns)
        begin += ns
