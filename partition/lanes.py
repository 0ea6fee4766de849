"""Processors that work at once: the load of each in a plan, and how they slow each other down.

A *lane* is a processor: the CPU, or one accelerator under all its preferences. ``auto`` and the
host are not lanes, and nothing is placed there. A plan's *load* of a lane is the time that the lane
works on one frame while the others are idle:

* a segment loads the lane that it runs on with its whole latency;
* the transfers of an accelerator's segment, in and out, load the CPU as well: NNAPI hands values
  over through the host's memory, from any source to any destination. A value from one accelerator
  to another loads both accelerators, and the CPU twice. The transfers of a region measured whole
  are those of its parts, limited to the time of the region;
* values are converted between formats on the CPU, where there is one.

So a lane's load is a sum over segments, as the latency is. With a price on each lane's time, the
total load is the latency of a problem of the same kind (:func:`priced`).

While lanes of a set are busy, lane i is slower by ``1 + sum over the others j of (c_ij - 1)``. The
least time in which the lanes complete loads L, ``busy_ns``, is the linear programme

    minimise sum over sets S of time_S
    so that  for each lane i: sum over S with i in it of time_S / slowdown_i(S) >= L_i

and no dispatch of frames is faster. For two lanes with ``c_12 = c_21 = c`` it is the larger load
plus ``c - 1`` times the smaller one; with one c for all pairs, the largest load plus ``c - 1``
times the sum of the others, as long as overlapping pays.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import linprog

from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import CPU, Target
from nnapi_prof.partition.arrays import Floats, Ints
from nnapi_prof.partition.problem import Placement, Problem, ValueFlow, check_runnable

CPU_LANE = CPU.key
NO_LANE = -1
MOST_LANES = 8
"""Largest number of lanes: all their sets are listed, 255 for eight."""

Contention = float | Mapping[tuple[str, str], float]
"""Factor by which a lane is slower while another one is busy: one number, at least 1, for every
pair, or (lane, the other one) -> number, 1 for pairs not named."""


@dataclass(frozen=True, eq=False)
class Lanes:
    """The lanes of a problem's targets."""

    names: tuple[str, ...]
    """Names of the lanes: ``cpu``, or an accelerator's name."""
    of_target: Ints
    """[t] index of a target's lane; :data:`NO_LANE` for a target without one."""
    slowdown: Floats
    """[lanes, lanes]: factor for the first while the second is busy; 1 with itself."""

    @property
    def count(self) -> int:
        return len(self.names)

    @property
    def mover(self) -> int:
        """Lane that also bears the transfers of accelerators; :data:`NO_LANE` without a CPU."""
        return self.names.index(CPU_LANE) if CPU_LANE in self.names else NO_LANE

    @property
    def converter(self) -> int:
        """Lane that converts values between formats: the CPU, or else the first lane."""
        return max(0, self.mover)

    @cached_property
    def rates(self) -> Floats:
        """[sets, lanes]: ns of work that each lane does per ns while a set of lanes is busy; sets
        in the order of their bits, from the first lane alone."""
        numbers = np.arange(1, 1 << self.count)
        member = (numbers[:, None] >> np.arange(self.count) & 1).astype(np.float64)
        slower = 1.0 + member @ (self.slowdown - 1.0).T
        return np.asarray(member / slower, dtype=np.float64)

    def busy_ns(self, loads: Floats) -> float:
        """Returns the least time, in ns, in which the lanes complete loads ([lanes], ns)."""
        loads = np.asarray(loads, dtype=np.float64)
        largest = float(loads.max(initial=0.0))
        if largest == 0.0 or not math.isfinite(largest) or np.count_nonzero(loads) == 1:
            return largest
        solve: Any = linprog
        answer = solve(
            np.ones(len(self.rates)), A_ub=-self.rates.T, b_ub=-loads / largest, method="highs-ds"
        )
        return max(largest, float(answer.fun) * largest)


def make_lanes(targets: Sequence[Target], contention: Contention) -> Lanes:
    """Returns the lanes of some targets, the CPU's first.

    Raises PartitionError where the contention is below 1, or for unknown lanes.
    """
    keys = [target.lane for target in targets]
    names = tuple(sorted({key for key in keys if key}, key=lambda name: (name != CPU_LANE, name)))
    if not names:
        raise PartitionError("no target is a processor of the device", "measure the CPU, too")
    if len(names) > MOST_LANES:
        raise PartitionError(
            f"there are {len(names)} processors, {MOST_LANES} can be planned for at once",
            "name the accelerators that count",
        )
    of_target = np.array([names.index(key) if key else NO_LANE for key in keys], dtype=np.int64)
    return Lanes(names, of_target, _slowdown(names, contention))


def _slowdown(names: Sequence[str], contention: Contention) -> Floats:
    slowdown = np.ones((len(names), len(names)))
    pairs = (
        contention
        if isinstance(contention, Mapping)
        else dict.fromkeys(itertools.permutations(names, 2), float(contention))
    )
    for (lane, other), factor in pairs.items():
        for name in (lane, other):
            if name not in names:
                raise PartitionError(
                    f"contention is given for {name}, but the processors are {', '.join(names)}"
                )
        if lane == other or not 1.0 <= factor < math.inf:
            raise PartitionError(
                f"contention of {lane} beside {other} is {factor:g}: it says how many times as "
                "long a processor takes while another one is busy, at least 1"
            )
        slowdown[names.index(lane), names.index(other)] = factor
    if not isinstance(contention, Mapping) and not 1.0 <= float(contention) < math.inf:
        raise PartitionError(f"contention is {contention:g}; wanted a factor of at least 1")
    return slowdown


# ---- loads ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LaneStep:
    """Work of a frame on one lane before it moves to the next one."""

    lane: int
    ns: float
    """Duration with the other lanes idle."""
    into_ns: float = 0.0
    out_ns: float = 0.0
    """First and last part of ``ns``: transfers, which occupy the CPU, too."""


def on_lanes(problem: Problem, lanes: Lanes) -> Problem:
    """Returns the problem without targets that belong to no lane.

    Raises PartitionError where that leaves a unit nowhere to run.
    """
    off = np.zeros(problem.unit_ns.shape, dtype=np.bool_)
    off[:, lanes.of_target == NO_LANE] = True
    on = problem.without(off)
    on = replace(
        on,
        region_ns={
            (units, k): ns
            for (units, k), ns in on.region_ns.items()
            if lanes.of_target[k] != NO_LANE
        },
    )
    check_runnable(on)
    return on


def moved_ns(problem: Problem, lanes: Lanes, placement: Placement) -> tuple[float, float]:
    """Returns the load in ns that one segment's transfers, in and out, put on the CPU in addition
    to the segment's own lane."""
    units, k = placement
    if lanes.mover == NO_LANE or lanes.of_target[k] == lanes.mover:
        return 0.0, 0.0
    if not problem.in_ns_per_byte[k] and not problem.out_ns_per_byte[k]:
        return 0.0, 0.0
    entering, leaving = problem.boundary_bytes(units)
    into = float(entering * problem.in_ns_per_byte[k])
    out = float(leaving * problem.out_ns_per_byte[k])
    measured = problem.region_ns.get((frozenset(units), k))
    if measured is not None and into + out > measured:
        share = measured / (into + out)
        return into * share, out * share
    return into, out


def steps_of(
    problem: Problem, lanes: Lanes, placements: Sequence[Placement]
) -> tuple[LaneStep, ...]:
    """Returns a frame's steps through the lanes under a plan; neighbours on one lane are one step
    where no value moves between them."""
    converting = conversions_after(problem, placements)
    ways = [LaneStep(lanes.converter, converting[0])]
    for (units, k), converted_ns in zip(placements, converting[1:], strict=True):
        into, out = moved_ns(problem, lanes, (units, k))
        lane = int(lanes.of_target[k])
        ways.append(LaneStep(lane, problem.segment_ns(units, k), into, out))
        ways.append(LaneStep(lanes.converter, converted_ns))
    joined: list[LaneStep] = []
    for step in ways:
        if step.ns == 0.0:
            continue
        before = joined[-1] if joined else None
        if before and before.lane == step.lane and not (before.out_ns or step.into_ns):
            total_ns = before.ns + step.ns
            joined[-1] = LaneStep(step.lane, total_ns, before.into_ns, step.out_ns)
        else:
            joined.append(step)
    return tuple(joined)


def conversions_after(problem: Problem, placements: Sequence[Placement]) -> list[float]:
    """Returns the conversion time in ns before the first segment of a plan, and after each."""
    arrays = problem.arrays
    if not arrays.converts:
        return [0.0] * (len(placements) + 1)
    target, place = np.zeros((2, problem.n), dtype=np.int64)
    for number, (units, k) in enumerate(placements, 1):
        target[list(units)], place[list(units)] = k, number
    made = np.where(arrays.producer >= 0, place[np.maximum(arrays.producer, 0)], 0)
    ns = np.bincount(made, arrays.converting_ns(target), len(placements) + 1)
    return [float(each) for each in ns]


def loads_of(problem: Problem, lanes: Lanes, placements: Sequence[Placement]) -> Floats:
    """Returns [lanes], ns: the load of each lane by one frame of a plan; inf if it cannot run."""
    loads = np.zeros(lanes.count)
    for step in steps_of(problem, lanes, placements):
        loads[step.lane] += step.ns
        if lanes.mover != NO_LANE:
            loads[lanes.mover] += step.into_ns + step.out_ns
    return loads


def priced(problem: Problem, lanes: Lanes, prices: Floats) -> Problem:
    """Returns the problem in which a plan costs its loads times the lanes' prices ([lanes])."""
    on = lanes.of_target != NO_LANE
    own = np.where(on, prices[lanes.of_target], 0.0)
    moving = 0.0 if lanes.mover == NO_LANE else float(prices[lanes.mover])
    beside = np.where(on & (lanes.of_target != lanes.mover), moving, 0.0)
    regions = problem.regions
    moved = np.minimum(regions.border_ns - problem.overhead_ns[regions.target], regions.ns)
    region_ns = np.full(regions.count, np.inf)
    ran = np.isfinite(regions.ns)
    target = regions.target[ran]
    region_ns[ran] = own[target] * regions.ns[ran] + beside[target] * moved[ran]
    return replace(
        problem,
        unit_ns=_priced_times(own, problem.unit_ns),
        overhead_ns=own * problem.overhead_ns,
        in_ns_per_byte=(own + beside) * problem.in_ns_per_byte,
        out_ns_per_byte=(own + beside) * problem.out_ns_per_byte,
        region_ns=dict(zip(problem.region_ns, region_ns.tolist(), strict=True)),
        values=_converted_for(problem, float(prices[lanes.converter])),
    )


def _converted_for(problem: Problem, price: float) -> tuple[ValueFlow, ...]:
    """Returns the problem's values, with the conversions at a price."""
    if not problem.arrays.converts:
        return problem.values
    return tuple(
        replace(value, to_int8_ns=price * value.to_int8_ns, to_float_ns=price * value.to_float_ns)
        for value in problem.values
    )


def _priced_times(prices: Floats, unit_ns: Floats) -> Floats:
    """Returns [n, t]: costs times their targets' prices; inf stays inf even at price 0."""
    runs = np.isfinite(unit_ns)
    return np.where(runs, prices * np.where(runs, unit_ns, 0.0), np.inf)
