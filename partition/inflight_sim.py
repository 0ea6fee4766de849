"""How many frames in flight, and what runs then: ways of running frames, in simulated queues.

Beside the best mixture there are mixtures of plans that change lanes less often, frames in turn on
whole devices, one plan for all frames, and one frame at a time; what is best depends on how many
frames may be in flight, and on the latency and memory that they may take.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from nnapi_prof.graph.plan import Engine, Rule
from nnapi_prof.partition.baselines import Baseline, total_ns
from nnapi_prof.partition.lanes import Lanes, loads_of, steps_of
from nnapi_prof.partition.mixture import Mixture, MixtureColumn, MixtureResult, mix
from nnapi_prof.partition.problem import Problem
from nnapi_prof.partition.queues import Dispatch, simulate
from nnapi_prof.partition.search.result import Plan as Placements

CURVE = (1, 2, 3, 4, 6, 8, 12, 16)
"""Frames in flight that are simulated, beside the number that is asked for."""
FEW_STEPS = (3, 5, 9, 17)
"""Mixtures of plans of at most so many steps are tried, too: a frame that changes lanes less often
waits less."""
NOISE = 1e-3
"""Relative: more frames in flight for less than this are not worth their latency."""


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
    """The rate of one way of running frames, with any number of them in flight."""

    rule: FrameStrategy
    period_ns: float
    """Of a frame, on average."""
    plans: tuple[Placements, ...] = field(repr=False)
    shares: tuple[float, ...]

    @property
    def frames_per_second(self) -> float:
        return per_second(self.period_ns)


@dataclass(frozen=True)
class InFlight:
    """The best that simulated queues make of so many frames in flight."""

    frames_in_flight: int
    rate: Rate = field(repr=False)
    """What runs; ``rate.period_ns`` is that of queues without end."""
    period_ns: float
    latency_ns: tuple[float, float, float]
    """Of a frame: the median, and what 95 and 99 % of frames keep to."""
    dispatch: Dispatch
    memory_bytes: int
    """Of weights, on every lane that needs them, and of what frames in flight hand over."""

    @property
    def frames_per_second(self) -> float:
        return per_second(self.period_ns)


def per_second(period_ns: float) -> float:
    """Frames of a second, one every so many ns."""
    return 1e9 / period_ns if period_ns > 0 else math.inf


def whole_plans(problem: Problem, lanes: Lanes, rivals: Sequence[Baseline]) -> Iterator[Placements]:
    """For each lane the fastest plan of everything there; where an accelerator refuses something,
    of all that it runs, the CPU the rest."""
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
    """Ways of running frames, the best mixture first; each once."""
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
    """The best of each rule but the mixture, in the order of :class:`FrameStrategy`."""
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
        """The best with each number of frames in flight, where something keeps the limits."""
        numbers = sorted({*CURVE, *([] if asked is None else [asked])})
        points = (self._best(number) for number in numbers)
        return tuple(point for point in points if point is not None)

    def period_ns(self, rate: Rate, frames: int) -> float:
        """Returns the period of a frame with so many in flight, whatever the limits are."""
        if rate.rule in ONE_BY_ONE:
            return rate.period_ns
        periods = [
            simulate(self._lanes, self._ways[id(rate)], rate.shares, frames, dispatch).period_ns
            for dispatch in self._dispatches
        ]
        return max(rate.period_ns, min(periods))

    def _best(self, frames: int) -> InFlight | None:
        """The most frames per second with so many in flight; None where nothing keeps the limits"""
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
        """Bytes of weights, each segment's once, and of what the values of a frame take that cross
        a border."""
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
    second; among about equal ones the one with fewer in flight. None where there is none."""
    points = [p for p in curve if p.frames_in_flight <= (frames_in_flight or math.inf)]
    best = min((point.period_ns for point in points), default=math.inf)
    return next((point for point in points if point.period_ns <= best * (1 + NOISE)), None)
