"""Simulate queues of frames before the lanes, and choose the number of frames in flight.

Each frame goes through the steps of its plan in order. A lane works on one step at a time, and each
busy lane is slower while others are busy (:mod:`.lanes`). A frame is in flight from its submission
until its result is handed over. Results come in order, and the next frame is submitted at once, as
by an app that always has one. Plans follow in the order of
:class:`nnapi_prof.bundle.plan_set.PlanSet`'s mixtures. The thread of an accelerator's lane does its
transfers, at the start and the end of its segment, without waiting for the CPU's thread: while
values move, the CPU's own step pauses, and several accelerators that move values share the CPU.
There are no random numbers: the same queues give the same figures.

Besides the best mixture, :class:`InFlightSimulator` tries mixtures of plans that change lanes less
often, frames in turn on whole devices, one plan for all frames, and one frame at a time. The best
choice depends on the number of frames in flight, and on the limits of latency and memory.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from nnapi_prof.graph.plan import Engine, Rule
from nnapi_prof.partition.baselines import Baseline, total_ns
from nnapi_prof.partition.lanes import Lanes, LaneStep, loads_of, steps_of
from nnapi_prof.partition.mixture import Mixture, MixtureColumn, MixtureResult, mix
from nnapi_prof.partition.problem import Problem
from nnapi_prof.partition.search import Plan as Placements

LEAST_FRAMES = 120
MOST_FRAMES = 600
MOST_STEPS = 6_000
"""Largest number of steps of all frames together: some 50 ms."""
WARM = 0.2
"""Share of the frames before figures count."""
_GOLDEN = (math.sqrt(5) - 1) / 2
_DONE = 1e-9
"""Relative rest of a step that counts as rounding."""


class Dispatch(enum.Enum):
    """Order in which a lane takes the frames that wait for it."""

    OLDEST = "oldest"
    """Frame with the lowest number: first come, first served."""
    SHORTEST_QUEUE = "shortest-queue"
    """Frame that goes on to the lane with the least waiting work, so that no lane runs dry; frames
    that end after the step come last, and the oldest of equals first."""


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """Results of a simulation, in ns."""

    period_ns: float
    """Average time between two results."""
    latency_ns: tuple[float, float, float]
    """Median, 95 % and 99 % quantiles of a frame's time from submission to its result."""


def plan_of_frame(shares: Sequence[float], frame: int) -> int:
    """Returns the plan of a frame, by the frame's number from 0: in any stretch of frames, each
    plan has nearly its share."""
    place = (frame + 0.5) * _GOLDEN % 1
    for plan, share in enumerate(shares):
        place -= share
        if place < 0:
            return plan
    return len(shares) - 1


def simulate(
    lanes: Lanes,
    ways: Sequence[Sequence[LaneStep]],
    shares: Sequence[float],
    in_flight: int,
    dispatch: Dispatch,
) -> QueueFigures:
    """Runs frames, ``in_flight`` at once, by plans whose steps are ``ways``."""
    if not all(ways):
        return QueueFigures(0.0, (0.0, 0.0, 0.0))
    queues = _Queues(lanes, ways, shares, dispatch)
    longest = max(len(way) for way in ways)
    frames = min(MOST_FRAMES, max(LEAST_FRAMES, MOST_STEPS // longest)) + 2 * in_flight
    while len(queues.ends) < frames:
        while queues.submitted - len(queues.ends) < in_flight:
            queues.submit()
        queues.advance()
    first = int(WARM * frames)
    ends = queues.ends[:frames]
    period = (ends[-1] - ends[first]) / (frames - 1 - first)
    latencies = sorted(
        end - begin for end, begin in zip(ends[first:], queues.begins[first:], strict=False)
    )
    median, most, nearly_all = (
        latencies[min(len(latencies) - 1, math.ceil(q * len(latencies)) - 1)]
        for q in (0.5, 0.95, 0.99)
    )
    return QueueFigures(period, (median, most, nearly_all))


class _Queues:
    """State of one simulation."""

    def __init__(
        self,
        lanes: Lanes,
        ways: Sequence[Sequence[LaneStep]],
        shares: Sequence[float],
        dispatch: Dispatch,
    ) -> None:
        self._ways = ways
        self._shares = shares
        self._dispatch = dispatch
        self._rates = [[0.0] * lanes.count, *lanes.rates.tolist()]
        self._waiting: list[list[int]] = [[] for _ in lanes.names]
        self._running: list[int | None] = [None] * lanes.count
        self._mover = lanes.mover
        self._parts: list[list[tuple[float, bool]]] = [[] for _ in lanes.names]
        """Remaining parts of each running step, last first: ns with the other lanes idle, and
        whether values move, which occupies the CPU."""
        self._place: dict[int, tuple[int, int]] = {}
        """Frame in flight -> its plan, and the step that it waits for or is in."""
        self._finished: dict[int, float] = {}
        """Frame that waits for earlier results -> the time it was done."""
        self.now = 0.0
        self.begins: list[float] = []
        self.ends: list[float] = []
        """Times when results were handed over, by frame."""

    @property
    def submitted(self) -> int:
        return len(self.begins)

    def submit(self) -> None:
        """Submits the next frame to its first lane."""
        frame = self.submitted
        plan = plan_of_frame(self._shares, frame)
        self.begins.append(self.now)
        self._place[frame] = plan, 0
        self._waiting[self._ways[plan][0].lane].append(frame)

    def advance(self) -> None:
        """Gives free lanes a frame, and advances time until a part of a step is done."""
        for lane, waiting in enumerate(self._waiting):
            if self._running[lane] is None and waiting:
                frame = self._chosen(waiting)
                waiting.remove(frame)
                self._running[lane] = frame
                self._parts[lane] = _step_parts(self._step(frame))
        active = [lane for lane, frame in enumerate(self._running) if frame is not None]
        moving = sum(self._parts[lane][-1][1] for lane in active)
        if moving:
            active = [lane for lane in active if lane != self._mover]
        rates = list(self._rates[sum(1 << lane for lane in active)])
        for lane in active:
            if self._parts[lane][-1][1]:
                rates[lane] /= moving
        passing = min(self._parts[lane][-1][0] / rates[lane] for lane in active)
        self.now += passing
        for lane in active:
            ns, moves = self._parts[lane].pop()
            ns -= passing * rates[lane]
            running = self._running[lane]
            if running is None:
                continue
            if ns > _DONE * self._step(running).ns:
                self._parts[lane].append((ns, moves))
            elif not self._parts[lane]:
                self._running[lane] = None
                self._go_on(running)

    def _step(self, frame: int, ahead: int = 0) -> LaneStep:
        plan, step = self._place[frame]
        return self._ways[plan][step + ahead]

    def _go_on(self, frame: int) -> None:
        """Ends a frame's step: the frame waits for its next lane, or for its result's turn."""
        plan, step = self._place[frame]
        if step + 1 < len(self._ways[plan]):
            self._place[frame] = plan, step + 1
            self._waiting[self._step(frame).lane].append(frame)
            return
        del self._place[frame]
        self._finished[frame] = self.now
        while len(self.ends) in self._finished:
            del self._finished[len(self.ends)]
            self.ends.append(self.now)

    def _chosen(self, waiting: Sequence[int]) -> int:
        if len(waiting) == 1 or self._dispatch is Dispatch.OLDEST:
            return min(waiting)
        return min(waiting, key=lambda frame: (self._work_ahead(frame), frame))

    def _work_ahead(self, frame: int) -> float:
        """Returns the ns of work on and before the lane that a frame goes to next."""
        plan, step = self._place[frame]
        if step + 1 == len(self._ways[plan]):
            return math.inf
        lane = self._ways[plan][step + 1].lane
        queued = sum(self._step(other).ns for other in self._waiting[lane])
        return queued + sum(ns for ns, _ in self._parts[lane])


def _step_parts(step: LaneStep) -> list[tuple[float, bool]]:
    """Returns a step's transfers in, its work, and its transfers out, last first."""
    own_ns = step.ns - step.into_ns - step.out_ns
    parts = [(step.out_ns, True), (own_ns, False), (step.into_ns, True)]
    return [(ns, moves) for ns, moves in parts if ns > 0] or [(step.ns, False)]


CURVE = (1, 2, 3, 4, 6, 8, 12, 16)
"""Numbers of frames in flight that are simulated, besides the requested one."""
FEW_STEPS = (3, 5, 9, 17)
"""Step limits of further mixtures: a frame that changes lanes less often waits less."""
NOISE = 1e-3
"""Relative gain below which more frames in flight are not worth their latency."""


class FrameStrategy(enum.Enum):
    """Ways of running many frames, the simplest first."""

    BEST_SINGLE = "best single device"
    """The whole model on the fastest device, one frame after the other."""
    SERIAL = "one frame at a time"
    """The plan of least latency, one frame after the other."""
    IN_TURN = "frames in turn"
    """Whole frames on whole devices."""
    PIPELINE = "pipeline of one plan"
    MIXTURE = "mixture of plans"


ONE_BY_ONE = (FrameStrategy.BEST_SINGLE, FrameStrategy.SERIAL)
"""A frame begins when the one before it is done."""


@dataclass(frozen=True)
class Rate:
    """Rate of one way of running frames, with any number of them in flight."""

    rule: FrameStrategy
    period_ns: float
    """Average time of a frame."""
    plans: tuple[Placements, ...] = field(repr=False)
    shares: tuple[float, ...]

    @property
    def frames_per_second(self) -> float:
        return per_second(self.period_ns)


@dataclass(frozen=True)
class InFlight:
    """Best result of simulated queues with a number of frames in flight."""

    frames_in_flight: int
    rate: Rate = field(repr=False)
    """Way of running frames; ``rate.period_ns`` is that of unlimited queues."""
    period_ns: float
    latency_ns: tuple[float, float, float]
    """Median, 95 % and 99 % quantiles of a frame's latency."""
    dispatch: Dispatch
    memory_bytes: int
    """Memory of weights, on every lane that needs them, and of the values that frames in flight
    hand over."""

    @property
    def frames_per_second(self) -> float:
        return per_second(self.period_ns)


def per_second(period_ns: float) -> float:
    """Returns the frames per second for one frame every ``period_ns``."""
    return 1e9 / period_ns if period_ns > 0 else math.inf


def whole_plans(problem: Problem, lanes: Lanes, rivals: Sequence[Baseline]) -> Iterator[Placements]:
    """Yields for each lane the fastest plan of the whole model there; where an accelerator refuses
    some units, the CPU runs these."""
    whole = tuple(range(problem.n))
    for lane in range(lanes.count):
        ks = [k for k in range(len(problem.targets)) if lanes.of_target[k] == lane]
        best_ns, best = min((total_ns(problem, ((whole, k),)), k) for k in ks)
        if math.isfinite(best_ns):
            yield ((whole, best),)
            continue
        for rival in rivals:
            is_cpu = problem.targets[best].engine is Engine.CPU
            if rival.rule is (Rule.ALL_CPU if is_cpu else Rule.LARGEST_SUPPORTED) and (
                is_cpu or rival.favoured in ks
            ):
                yield rival.placements
                break


def candidates_of(
    problem: Problem,
    lanes: Lanes,
    result: MixtureResult,
    by_lane: Sequence[Placements],
    rivals: Sequence[Baseline],
    serial: Placements,
) -> tuple[Rate, ...]:
    """Returns ways of running frames, the best mixture first, without duplicates."""
    columns = result.columns.columns
    steps = [len(steps_of(problem, lanes, column.placements)) for column in columns]
    whole = [MixtureColumn(plan, loads_of(problem, lanes, plan)) for plan in by_lane]
    mixtures = [result.mixture]
    if whole:
        mixtures.append(mix(lanes, whole)[0])
    for most in (*FEW_STEPS, max(steps)):
        few = [column for column, n in zip(columns, steps, strict=True) if n <= most]
        if few:
            mixtures.append(mix(lanes, [*few, *whole])[0])
            ns, best = min((lanes.busy_ns(column.loads), i) for i, column in enumerate(few))
            mixtures.append(Mixture((few[best],), (1.0,), ns))
    rates: dict[tuple[tuple[Placements, ...], tuple[float, ...]], Rate] = {}
    for mixture in mixtures:
        plans = tuple(column.placements for column in mixture.columns)
        rule = FrameStrategy.PIPELINE if len(plans) == 1 else FrameStrategy.MIXTURE
        if rule is FrameStrategy.MIXTURE and set(plans) <= set(by_lane):
            rule = FrameStrategy.IN_TURN
        rates.setdefault(
            (plans, mixture.shares), Rate(rule, mixture.busy_ns, plans, mixture.shares)
        )
    alone = {FrameStrategy.SERIAL: [serial]}
    alone[FrameStrategy.BEST_SINGLE] = [
        rival.placements for rival in rivals if rival.rule is Rule.BEST_SINGLE
    ] or list(by_lane)
    return (
        *rates.values(),
        *(
            Rate(rule, ns, (plan,), (1.0,))
            for rule, plans in alone.items()
            if plans
            for ns, plan in [min((total_ns(problem, plan), plan) for plan in plans)]
        ),
    )


def baseline_rates(candidates: Sequence[Rate]) -> tuple[Rate, ...]:
    """Returns the best of each rule except the mixture, in the order of :class:`FrameStrategy`."""
    best = {}
    for rate in sorted(candidates, key=lambda rate: -rate.period_ns):
        best[rate.rule] = rate
    return tuple(
        best[rule] for rule in FrameStrategy if rule in best and rule is not FrameStrategy.MIXTURE
    )


class InFlightSimulator:
    """Simulated queues of all candidates."""

    def __init__(
        self,
        problem: Problem,
        lanes: Lanes,
        candidates: Sequence[Rate],
        dispatches: Sequence[Dispatch],
        max_latency_ns: float | None,
        max_memory_bytes: int | None,
    ) -> None:
        self._problem = problem
        self._lanes = lanes
        simplest = list(FrameStrategy)
        self._candidates = sorted(
            candidates, key=lambda rate: (rate.period_ns, simplest.index(rate.rule))
        )
        self._most_bytes = math.inf if max_memory_bytes is None else max_memory_bytes
        self._most_ns = math.inf if max_latency_ns is None else max_latency_ns
        self._dispatches = dispatches
        self._ways = {
            id(rate): [steps_of(problem, lanes, plan) for plan in rate.plans]
            for rate in self._candidates
        }
        self._memory = {id(rate): self._bytes(rate) for rate in self._candidates}

    def curve(self, asked: int | None) -> tuple[InFlight, ...]:
        """Returns the best for each number of frames in flight, where something keeps the
        limits."""
        numbers = sorted({*CURVE, *([] if asked is None else [asked])})
        points = (self._best(number) for number in numbers)
        return tuple(point for point in points if point is not None)

    def period_ns(self, rate: Rate, frames: int) -> float:
        """Returns the period of a frame with so many in flight, regardless of the limits."""
        if rate.rule in ONE_BY_ONE:
            return rate.period_ns
        periods = [
            simulate(self._lanes, self._ways[id(rate)], rate.shares, frames, dispatch).period_ns
            for dispatch in self._dispatches
        ]
        return max(rate.period_ns, min(periods))

    def _best(self, frames: int) -> InFlight | None:
        """Returns the fastest with so many in flight; None where nothing keeps to the limits."""
        best: InFlight | None = None
        for rate in self._candidates:
            if best is not None and rate.period_ns >= best.period_ns:
                break
            for point in self._points(rate, frames):
                slow = best is not None and point.period_ns >= best.period_ns * (1 - NOISE)
                if not slow and point.memory_bytes <= self._most_bytes:
                    if point.latency_ns[1] <= self._most_ns:
                        best = point
        return best

    def _points(self, rate: Rate, frames: int) -> Iterator[InFlight]:
        """Yields a point for each dispatch of one way of running frames."""
        weights, values = self._memory[id(rate)]
        if rate.rule in ONE_BY_ONE:
            ns = rate.period_ns
            yield InFlight(frames, rate, ns, (ns, ns, ns), self._dispatches[0], weights + values)
            return
        memory = weights + values * frames
        for dispatch in self._dispatches if memory <= self._most_bytes else ():
            ways = self._ways[id(rate)]
            figures = simulate(self._lanes, ways, rate.shares, frames, dispatch)
            period_ns = max(rate.period_ns, figures.period_ns)
            yield InFlight(frames, rate, period_ns, figures.latency_ns, dispatch, memory)

    def _bytes(self, rate: Rate) -> tuple[int, int]:
        """Returns the bytes of weights, each segment's once, and of a frame's crossing values."""
        segments = {placement for plan in rate.plans for placement in plan}
        weights = 0
        if self._problem.constant_bytes:
            weights = sum(self._problem.constant_bytes[u] for units, _ in segments for u in units)
        values = 0
        for plan in rate.plans:
            home = {u: place for place, (units, _) in enumerate(plan) for u in units}
            crossing = [
                value.n_bytes
                for value in self._problem.values
                if value.is_output
                or value.producer not in home
                or any(home[r] != home[value.producer] for r in value.readers)
            ]
            values = max(values, sum(crossing))
        return weights, math.ceil(values)


def choose(curve: Sequence[InFlight], frames_in_flight: int | None) -> InFlight | None:
    """Chooses, among points of at most so many frames in flight, the one with most frames per
    second; among nearly equal ones, the one with fewest in flight. None where there is none."""
    points = [p for p in curve if p.frames_in_flight <= (frames_in_flight or math.inf)]
    best = min((point.period_ns for point in points), default=math.inf)
    return next((point for point in points if point.period_ns <= best * (1 + NOISE)), None)
