"""Plan one frame on several processors at once: a schedule, a bound, and the serial plan.

A schedule is a plan that is run differently. Each lane takes its segments in the plan's order, each
as soon as the segments that make its inputs are done; while several lanes are busy, each is slower
(:mod:`.lanes`). An accelerator's segment moves its inputs and outputs in its own call. Conversions
between formats belong to the segment that makes the value.

Branches may overlap where processors have similar speeds; in a chain nothing can. So the bound
comes first (:mod:`.overlap`): where it promises less than :data:`PROMISING` over the serial
optimum, there is no search for schedules. Annealing finds schedules: runs of units, or whole
segments, move to another phase of a monotone labelling (:mod:`.search.expansion`), and the time
line is computed again. For up to :data:`MOST_EXACT` units every schedule is checked.

All figures are predictions from costs that were measured one at a time, and from a contention that
the caller gives; a schedule that was not measured whole may be slower than the serial plan.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nnapi_prof.graph.plan import Plan, Proof, ProofKind
from nnapi_prof.partition.arrays import Floats, Ints
from nnapi_prof.partition.blocks import best_targets, starts_of
from nnapi_prof.partition.lanes import Contention, Lanes, conversions_after, make_lanes, on_lanes
from nnapi_prof.partition.overlap import integral_bound, lower_bound
from nnapi_prof.partition.problem import Placement, Problem
from nnapi_prof.partition.search import Plan as Placements
from nnapi_prof.partition.search import Report, SearchLimits, SearchResult, Watch, library, pointers
from nnapi_prof.partition.search.annealing import Labelling, Moves, sizes_of, slices
from nnapi_prof.partition.search.expansion import plan_of_labelling
from nnapi_prof.partition.solver import plan_of_placements, search_serial

MOST_EXACT = 9
"""Largest number of units for which every schedule is checked, ..."""
MOST_STEPS = 20_000_000
"""... in as many steps: two seconds."""
SLICE = 20_000
"""Moves between two looks at the clock."""
STRETCH = 256
"""Moves between two temperatures."""
LOAD_PRICE = 0.02
"""Price of a ns of work on any lane in annealing: among schedules that end together, the one with
less work leaves more room."""
MOST_PHASES = 1_000
"""Largest number of phases; a larger labelling takes too long to time."""
ROOM = 24
"""Least number of rounds of empty phases, one phase per target, between all segments together:
segments can be split there."""
_DONE = 1e-12


@dataclass(frozen=True, slots=True)
class Span:
    """Start and end of a segment, in ns from the start of the frame."""

    lane: int
    start_ns: float
    end_ns: float


def durations(problem: Problem, placements: Sequence[Placement]) -> list[float]:
    """Returns the ns of each segment of a plan, with the conversions of its outputs; the first
    segment also has the conversions of graph inputs."""
    first, *behind = conversions_after(problem, placements)
    ns = [problem.segment_ns(*place) + own for place, own in zip(placements, behind, strict=True)]
    return [ns[0] + first, *ns[1:]]


def timeline(problem: Problem, lanes: Lanes, placements: Sequence[Placement]) -> tuple[Span, ...]:
    """Returns when each segment of a plan runs, each lane taking its own in order."""
    ns = durations(problem, placements)
    if not all(map(math.isfinite, ns)):
        return tuple(Span(int(lanes.of_target[k]), math.inf, math.inf) for _, k in placements)
    home = {u: place for place, (units, _) in enumerate(placements) for u in units}
    needs = [
        {home[p] for u in units for p in problem.predecessors[u]} - {place}
        for place, (units, _) in enumerate(placements)
    ]
    waiting: list[list[int]] = [[] for _ in lanes.names]
    for place, (_, k) in enumerate(placements):
        waiting[int(lanes.of_target[k])].append(place)
    rates = [[0.0] * lanes.count, *lanes.rates.tolist()]
    running: dict[int, float] = {}
    starts, ends, now = [0.0] * len(ns), [0.0] * len(ns), 0.0
    done: set[int] = set()
    while len(done) < len(ns):
        for lane, queue in enumerate(waiting):
            if queue and lane not in running and needs[queue[0]] <= done:
                running[lane], starts[queue[0]] = ns[queue[0]], now
        speed = rates[sum(1 << lane for lane in running)]
        passing = min(left / speed[lane] for lane, left in running.items())
        now += passing
        for lane in sorted(running):
            running[lane] -= passing * speed[lane]
            first = waiting[lane][0]
            if running[lane] <= _DONE * ns[first]:
                del running[lane]
                done.add(waiting[lane].pop(0))
                ends[first] = now
    return tuple(
        Span(int(lanes.of_target[k]), start, end)
        for (_, k), start, end in zip(placements, starts, ends, strict=True)
    )


def makespan(problem: Problem, lanes: Lanes, placements: Sequence[Placement]) -> float:
    """Returns when a plan's last segment ends, in ns."""
    return max((span.end_ns for span in timeline(problem, lanes, placements)), default=0.0)


# ---- annealing -----------------------------------------------------------------------------------


class Timeline(NamedTuple):
    """Times of the phases of a labelling; as in kernels/schedule.h."""

    lane_of_target: Ints
    rates: Floats
    phase_ns: Floats
    n_links: Ints
    needs: Ints
    done: Ints
    order: Ints
    moved: Ints
    mark: Ints


class Scheduler:
    """Anneals schedules of one problem, whose targets all belong to lanes."""

    def __init__(self, problem: Problem, lanes: Lanes, targets: Sequence[int]) -> None:
        """``targets`` are those that segments may begin on."""
        self._problem = problem
        self._lanes = lanes
        self._targets = tuple(targets)
        self._moves = Moves(problem, converts=False)
        self._rates = np.concatenate([np.zeros((1, lanes.count)), lanes.rates])

    def run(
        self,
        placements: Sequence[Placement],
        moves: int,
        hot_ns: float,
        cold_ns: float,
        seed: int,
        watch: Watch,
    ) -> Placements:
        """Returns the best schedule found in so many moves from a plan, the temperature falling
        from ``hot_ns`` to ``cold_ns``; the limits may end it earlier."""
        rounds = max(1, ROOM // (len(placements) + 1))
        tables, labelling = self._moves.begin(placements, self._targets * rounds, seed)
        if len(tables.phase_target) > MOST_PHASES:
            return tuple(placements)
        timeline = self._timeline(placements, labelling)
        span = makespan(self._problem, self._lanes, placements)
        cost = np.array([span, span, span + LOAD_PRICE * timeline.phase_ns.sum()])
        labelling = labelling._replace(cost=cost)
        sizes = sizes_of(tables, labelling, len(timeline.done), self._lanes.count)
        factor = (cold_ns / hot_ns) ** (STRETCH / max(STRETCH, moves))
        for now, temperature in slices(moves, SLICE, STRETCH, hot_ns, factor, watch):
            library().np_schedule(
                ctypes.byref(sizes),
                ctypes.byref(pointers(tables)),
                ctypes.byref(pointers(labelling)),
                ctypes.byref(pointers(timeline)),
                ctypes.c_int64(now),
                ctypes.c_double(temperature),
                ctypes.c_double(factor),
                ctypes.c_double(LOAD_PRICE),
            )
        return plan_of_labelling(labelling.best, tables.phase_target)

    def _timeline(self, placements: Sequence[Placement], labelling: Labelling) -> Timeline:
        problem, phase, n_phases = self._problem, labelling.phase, len(labelling.n_units)
        words = -(-n_phases // 64)
        phase_ns = np.zeros(n_phases)
        for units, k in placements:
            phase_ns[phase[units[0]]] = problem.segment_ns(units, k)
        n_links = np.zeros((n_phases, n_phases), dtype=np.int64)
        needs = np.zeros((n_phases, words), dtype=np.uint64)
        for u, preds in enumerate(problem.predecessors):
            for p in preds:
                later, earlier = int(phase[u]), int(phase[p])
                if later != earlier:
                    n_links[later, earlier] += 1
                    needs[later, earlier // 64] |= np.uint64(1 << earlier % 64)
        return Timeline(
            lane_of_target=np.maximum(self._lanes.of_target, 0),
            rates=self._rates,
            phase_ns=phase_ns,
            n_links=n_links,
            needs=needs.view(np.int64),
            done=np.zeros(words, dtype=np.int64),
            order=np.zeros((self._lanes.count, n_phases), dtype=np.int64),
            moved=np.zeros(3 * (problem.n + 1), dtype=np.int64),
            mark=np.zeros(problem.n, dtype=np.int64),
        )


# ---- every schedule ------------------------------------------------------------------------------


def best_schedule(problem: Problem, lanes: Lanes, upper_ns: float) -> tuple[bool, Placements]:
    """Returns whether every schedule of a small problem was checked or ruled out, and the best one
    that ends before ``upper_ns``; empty where none does."""
    n, m = problem.n, lanes.count
    if n > MOST_EXACT or problem.arrays.converts:
        return False, ()
    segment_ns = np.full((1 << n, m), np.inf)
    target = np.zeros((1 << n, m), dtype=np.int64)
    for bits in range(1, 1 << n):
        units = tuple(u for u in range(n) if bits >> u & 1)
        for k, lane in enumerate(lanes.of_target.tolist()):
            ns = problem.segment_ns(units, k) if lane >= 0 else math.inf
            if ns < segment_ns[bits, lane]:
                segment_ns[bits, lane], target[bits, lane] = ns, k
    least = problem.unit_ns.min(axis=1)
    if problem.region_ns:
        least = np.zeros(n)
    tables = (
        segment_ns,
        np.ascontiguousarray(least),
        np.concatenate([np.zeros((1, m)), lanes.rates]),
        np.array([sum(1 << p for p in preds) for preds in problem.predecessors], dtype=np.int64),
    )
    units_of, lane_of, count = (np.zeros(size, dtype=np.int64) for size in (n, n, 1))
    steps = np.array([MOST_STEPS], dtype=np.int64)
    search = library().np_schedules
    search.restype = ctypes.c_double
    search(
        ctypes.c_int64(n),
        ctypes.c_int64(m),
        ctypes.byref(pointers(tables)),
        ctypes.c_double(upper_ns),
        *(ctypes.c_void_p(array.ctypes.data) for array in (units_of, lane_of, count, steps)),
    )
    plan = tuple(
        (tuple(u for u in range(n) if bits >> u & 1), int(target[bits, lane]))
        for bits, lane in zip(
            units_of[: count[0]].tolist(), lane_of[: count[0]].tolist(), strict=True
        )
    )
    return bool(steps[0] >= 0), plan


PROMISING = 1.15
"""Least ratio of the serial optimum to the bound; below, measuring would find almost nothing."""
SERIAL_SHARE = 0.25
"""Share of the time for the serial plan."""
BOUND_SHARE = 0.4
"""Largest share of the remaining time for the bound."""
INTEGRAL_SHARE = 0.2
"""Largest share of the remaining time for raising the bound."""
MET = 1e-6
"""Relative gap to the bound below which a schedule counts as proven."""
CLOSE = 2e-3
"""Gap below which no further round is run."""
MOVES = 60
"""Moves of the first annealing, for each unit."""
GROWTH = 2.0
"""Growth of the moves, from round to round, while the better half of the schedules continues."""
PATIENCE = 3
"""Rounds without a notable gain before the search restarts, ..."""
TRIES = 2
"""... and restarts without a gain before the search ends."""
WORTH_GOING_ON = 1e-3
HEATS = (0.3, 0.1, 0.3, 0.03)
"""First temperatures of annealings, used in turn, in shares of the typical time of a unit."""
COOLING = 0.02


@dataclass(frozen=True)
class ParallelPlan:
    """A schedule of one frame, with the serial plan beside it."""

    plan: Plan
    """Plan with the segments in the order in which each lane takes its own; the serial plan where
    no schedule is predicted to be faster."""
    spans: tuple[Span, ...]
    """When each segment runs."""
    lanes: tuple[str, ...]
    latency_ns: float
    serial: Plan
    """The plan of least latency, one segment after the other."""
    serial_ns: float
    proof: Proof
    """Proof for the least latency of all schedules."""
    promise: float
    """Serial latency divided by the bound: no schedule gains more."""
    tried: bool
    """Whether schedules were searched for, as the promise is large enough."""

    @property
    def gain(self) -> float:
        """Serial latency divided by the schedule's."""
        return self.serial_ns / self.latency_ns if self.latency_ns > 0 else 1.0


def plan_parallel(
    problem: Problem,
    *,
    contention: Contention,
    promising: float = PROMISING,
    limits: SearchLimits | None = None,
    report: Report | None = None,
) -> ParallelPlan:
    """Returns a schedule of least latency, if the bound promises one at least ``promising`` times
    as fast as the serial plan.

    ``contention`` is the factor by which a processor is slower while another one is busy. Raises
    PartitionError where a unit runs on no processor of the device, or the contention is invalid.
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
    """Search for the best schedule."""

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
        """Checks every schedule of a small problem; else anneals from the given plans."""
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
        """Anneals with growing effort, while the better half of the schedules continues."""
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
    """Yields when each segment of a serial plan runs."""
    begin = 0.0
    for (_, k), ns in zip(placements, durations(problem, placements), strict=True):
        yield Span(int(lanes.of_target[k]), begin, begin + ns)
        begin += ns
