"""Queues of frames before the lanes, simulated: throughput and latency with so many in flight.

Each frame goes through the steps of its plan in order; a lane works on one step at a time, and
each busy lane is slower for the others that are busy (:mod:`.lanes`). A frame is in flight from
when it is submitted until its result is handed over; results come in order, and the next frame is
submitted at once, as by an app that always has one. Plans follow in the order of
:class:`nnapi_prof.bundle.bundle.PlanSet`'s mixtures. What an accelerator's segment transfers, at
its begin and its end, is done by the thread of the accelerator's lane, which does not wait for the
CPU's: while values move, the CPU's own step stands still, and of several accelerators that move
values each goes on at its share of the CPU.

A discrete-event simulation without random numbers: the same queues give the same figures.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

from nnapi_prof.partition.lanes import Lanes, LaneStep

LEAST_FRAMES = 120
MOST_FRAMES = 600
MOST_STEPS = 6_000
"""Of all frames together: some 50 ms."""
WARM = 0.2
"""Share of the frames before figures count."""
_GOLDEN = (math.sqrt(5) - 1) / 2
_DONE = 1e-9
"""Relative: what is left of a step then is rounding."""


class Dispatch(enum.Enum):
    """The order in which a lane takes the frames that wait for it."""

    OLDEST = "oldest"
    """That of the least number: first come, first served."""
    SHORTEST_QUEUE = "shortest-queue"
    """The one after whose step the frame goes to the lane for which least work waits, so that no
    lane runs dry; frames that end after the step come last; of equals the oldest."""


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """The results of a simulation, in ns."""

    period_ns: float
    """Between two results, on average."""
    latency_ns: tuple[float, float, float]
    """Of a frame, from its submission until its result is handed over: median, 95 and 99 % of
    frames take no longer."""


def plan_of_frame(shares: Sequence[float], frame: int) -> int:
    """Returns the plan that a frame, by its number from 0, runs by: any stretch of frames has each
    plan nearly as often as its share says."""
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
    """The state of one simulation."""

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
        """Of the steps that run what is left, last first: ns with the other lanes idle, and
        whether values move, which occupies the CPU."""
        self._place: dict[int, tuple[int, int]] = {}
        """Frame in flight -> its plan and the step that it waits for or is in."""
        self._finished: dict[int, float] = {}
        """Frames that wait for the results before theirs."""
        self.now = 0.0
        self.begins: list[float] = []
        self.ends: list[float] = []
        """When results were handed over, by frame."""

    @property
    def submitted(self) -> int:
        return len(self.begins)

    def submit(self) -> None:
        """The next frame begins to wait for its first lane."""
        frame = self.submitted
        plan = plan_of_frame(self._shares, frame)
        self.begins.append(self.now)
        self._place[frame] = plan, 0
        self._waiting[self._ways[plan][0].lane].append(frame)

    def advance(self) -> None:
        """Lanes that are free take a frame, and time goes on until a part of a step is done."""
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
        """A frame's step is done: it waits for its next lane, or for its results' turn."""
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
        """ns of work on and before the lane that a frame goes to after its present step."""
        plan, step = self._place[frame]
        if step + 1 == len(self._ways[plan]):
            return math.inf
        lane = self._ways[plan][step + 1].lane
        queued = sum(self._step(other).ns for other in self._waiting[lane])
        return queued + sum(ns for ns, _ in self._parts[lane])


def _step_parts(step: LaneStep) -> list[tuple[float, bool]]:
    """A step's values in, its work, its values out: the last first."""
    own_ns = step.ns - step.into_ns - step.out_ns
    parts = [(step.out_ns, True), (own_ns, False), (step.into_ns, True)]
    return [(ns, moves) for ns, moves in parts if ns > 0] or [(step.ns, False)]
