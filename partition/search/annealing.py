"""Anneal plans: random legal moves of units and segments, accepted at a falling temperature.

S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi, "Optimization by Simulated Annealing", Science 220,
1983, on a :class:`Labelling`. Costs of moves are exact, including regions measured whole. The
random numbers are our own, so a plan does not depend on the machine that found it.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from nnapi_prof.partition.arrays import WORD, Arrays, Floats, Ints
from nnapi_prof.partition.problem import Placement, Problem
from nnapi_prof.partition.search import Watch, integers, library, pointers
from nnapi_prof.partition.search.expansion import labelling_of_plan, plan_of_labelling

MANY_READERS = 24
"""Number of readers from which they are counted by phase: checking each would take longer."""
SLICE = 100_000
"""Moves between two checks of the clock: some 50 ms."""
STRETCH = 1024
"""Moves between two temperatures."""


@dataclass(frozen=True, eq=False)
class MoveTables(Arrays):
    """Arrays of the problem that moves look up, and the phases. Where a unit runs only inside
    regions measured whole, ``unit_ns`` has a price that such a region returns."""

    phase_target: Ints
    """[phases]"""
    counted: Ints
    """[values] row of ``Labelling.n_readers`` for values with many readers, else -1"""
    unit_key: Ints
    """[n] random bits; the key of a set is their exclusive or"""
    region_key: Ints
    """[2^x] keys of regions measured whole, with their target; 0 where there is none"""
    region_ns: Floats
    """[2^x] cost of these regions over that of their parts, in ns"""


class Labelling(NamedTuple):
    """A plan as a phase for each unit, and values derived from it."""

    phase: Ints
    best: Ints
    """[n] phases of the best labelling so far"""
    n_units: Ints
    """[phases]"""
    key: Ints
    """[phases]"""
    n_readers: Ints
    """[counted values, phases]"""
    n_int8: Ints
    """[values] readers that run in 8 bits; empty where nothing is converted"""
    random: Ints
    """[n + 1] state of the random numbers, then room for the units of one segment"""
    cost: Floats
    """[2 or more] ns of the current and of the best labelling"""


class Annealer:
    """Anneals plans of one problem."""

    def __init__(self, problem: Problem, targets: Sequence[int]) -> None:
        """``targets`` are those that segments may begin on."""
        self._moves = Moves(problem)
        self._targets = tuple(targets)

    def run(
        self,
        placements: Sequence[Placement],
        moves: int,
        hot_ns: float,
        cold_ns: float,
        seed: int,
        watch: Watch,
    ) -> tuple[Placement, ...]:
        """Returns the best plan found in so many moves from a plan, the temperature falling from
        ``hot_ns`` to ``cold_ns``; the limits may end it earlier."""
        tables, labelling = self._moves.begin(placements, self._targets, seed)
        factor = (cold_ns / hot_ns) ** (1 / max(1, moves // STRETCH))
        most = SLICE // STRETCH * STRETCH
        for now, temperature in slices(moves, most, STRETCH, hot_ns, factor, watch):
            anneal(tables, labelling, now, temperature, factor)
        return plan_of_labelling(labelling.best, tables.phase_target)


class Moves:
    """Initial labellings of one problem, and the tables that moves look up."""

    def __init__(self, problem: Problem, converts: bool = True) -> None:
        """``converts`` includes conversions in the cost of moves."""
        self._arrays = problem.arrays
        self._converts = converts and problem.arrays.converts
        self._hashed = hashed_regions(problem)
        sizes = np.diff(problem.arrays.reader_at)
        self._counted = np.full(len(sizes), -1, dtype=np.int64)
        many = np.flatnonzero(sizes > MANY_READERS)
        self._counted[many] = np.arange(len(many))

    def begin(
        self, placements: Sequence[Placement], targets: Sequence[int], seed: int
    ) -> tuple[MoveTables, Labelling]:
        """Returns a plan as a labelling whose phases may have such targets, with its tables."""
        a = self._arrays
        phase, phase_target = labelling_of_plan(placements, a.n, targets)
        tables = MoveTables(
            **a.shared | self._hashed._asdict(), phase_target=phase_target, counted=self._counted
        )
        n_phases = len(phase_target)
        key = np.zeros(n_phases, dtype=np.int64)
        np.bitwise_xor.at(key, phase, self._hashed.unit_key)
        n_readers = np.zeros((int(self._counted.max(initial=-1)) + 1, n_phases), dtype=np.int64)
        row = self._counted[a.reader_value]
        counted = row >= 0
        np.add.at(n_readers, (row[counted], phase[a.readers[counted]]), 1)
        random = np.zeros(a.n + 1, dtype=np.int64)
        random[0] = (0x9E3779B9 * (2 * seed + 1)) & 0xFFFFFFFF  # never 0
        return tables, Labelling(
            phase=phase,
            best=phase.copy(),
            n_units=np.bincount(phase, minlength=n_phases).astype(np.int64),
            key=key,
            n_readers=n_readers,
            n_int8=self._int8_readers(phase_target[phase]),
            random=random,
            cost=np.zeros(2),
        )

    def _int8_readers(self, target: Ints) -> Ints:
        """Returns the number of 8-bit readers of each value; ``target`` is [n], by unit."""
        a = self._arrays
        if not self._converts:
            return np.zeros(0, dtype=np.int64)
        count = np.bincount(a.reader_value, a.format[target[a.readers]], len(a.producer))
        return count.astype(np.int64)


def slices(
    moves: int, most: int, stretch: int, hot_ns: float, factor: float, watch: Watch
) -> Iterator[tuple[int, float]]:
    """Yields the number of moves until the next check of the clock, at most ``most``, and the
    temperature of the first one; it falls by ``factor`` every ``stretch`` moves."""
    while moves > 0 and not watch.is_over:
        now = min(moves, most)
        yield now, hot_ns
        hot_ns *= factor ** (now // stretch)
        moves -= now
        watch.spend(now)


class HashedRegions(NamedTuple):
    """Hash table of regions measured whole, with their cost over that of their parts."""

    unit_ns: Floats
    """[n, t]: where a unit runs only inside such regions, a price that they return"""
    unit_key: Ints
    region_key: Ints
    region_ns: Floats


def hashed_regions(problem: Problem) -> HashedRegions:
    """Returns the regions of a problem for moves to look up (:class:`MoveTables`)."""
    unit_key = np.random.default_rng(3).integers(1 << 40, 1 << WORD, problem.n, dtype=np.int64)
    penalty_ns = 10.0 * _largest_total(problem)
    only_inside = problem.runs & ~np.isfinite(problem.unit_ns)
    unit_ns = np.ascontiguousarray(np.where(only_inside, penalty_ns, problem.unit_ns))
    size = 1
    while size < 3 * len(problem.region_ns):
        size *= 2
    keys, extra = np.zeros(size, dtype=np.int64), np.zeros(size)
    own = problem.regions
    parts_ns = own.border_ns + np.bincount(
        own.region, unit_ns[own.units, own.target[own.region]], own.count
    )
    for g, ((units, k), ns) in enumerate(problem.region_ns.items()):
        parts = float(parts_ns[g])
        if not math.isfinite(parts):
            continue  # the constraints rule it out
        key = int(np.bitwise_xor.reduce(unit_key[list(units)])) ^ (k + 1)
        place = key & (size - 1)
        while keys[place] != 0:
            place = (place + 1) & (size - 1)
        keys[place] = key
        extra[place] = (ns if math.isfinite(ns) else penalty_ns * len(units)) - parts
    return HashedRegions(unit_ns, unit_key, keys, extra)


def anneal(
    tables: MoveTables, labelling: Labelling, moves: int, hot_ns: float, factor: float
) -> None:
    """Tries so many moves of a unit, and sometimes of a segment, at a temperature that begins with
    ``hot_ns`` and falls by ``factor`` every :data:`STRETCH` moves."""
    library().np_anneal(
        ctypes.byref(sizes_of(tables, labelling)),
        ctypes.byref(pointers(tables)),
        ctypes.byref(pointers(labelling)),
        ctypes.c_int64(moves),
        ctypes.c_double(hot_ns),
        ctypes.c_double(factor),
    )


def typical_move(problem: Problem, plan_ns: float) -> float:
    """Returns the ns that a move of one unit typically changes in a plan of such a latency;
    temperatures are shares of it."""
    ns = problem.unit_ns[np.isfinite(problem.unit_ns).any(axis=1)]
    spreads = np.where(np.isfinite(ns), ns, 0.0).max(axis=1) - ns.min(axis=1)
    spread = float(np.median(spreads)) if len(spreads) else 0.0
    return max(spread, plan_ns / max(1, problem.n), 1e-9)


def sizes_of(tables: MoveTables, labelling: Labelling, words: int = 0, lanes: int = 0) -> Any:
    """Returns ``struct np_move_sizes``."""
    return integers(
        *tables.unit_ns.shape,
        len(tables.phase_target),
        len(tables.region_key),
        len(labelling.n_int8) > 0,
        words,
        lanes,
    )


def _largest_total(problem: Problem) -> float:
    finite = np.where(np.isfinite(problem.unit_ns), problem.unit_ns, 0.0)
    measured = sum(ns for ns in problem.region_ns.values() if math.isfinite(ns))
    return float(finite.max(axis=1).sum() + problem.overhead_ns.max() * problem.n + measured) + 1.0
