"""Perturbation: random legal moves of units and segments, accepted at a falling temperature.

S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi, "Optimization by Simulated Annealing", Science 220,
1983, on the labelling of :mod:`.labelling`. Costs of moves are exact, regions
measured whole among them; the random numbers are our own, so that a plan does not depend on where
it was found.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nnapi_prof.partition.arrays import WORD, Bools, Floats, Ints
from nnapi_prof.partition.problem import Placement, Problem
from nnapi_prof.partition.search import native
from nnapi_prof.partition.search.expansion import labelling_of_plan, plan_of_labelling
from nnapi_prof.partition.search.result import Watch

MANY_READERS = 24
"""Values with more have their readers counted by phase: looking at each would take longer."""
SLICE = 100_000
"""Moves between two looks at the clock: some 50 ms."""
STRETCH = 1024
"""Moves between two temperatures."""


class Tables(NamedTuple):
    """What moves look up: arrays of the problem, and the phases."""

    unit_ns: Floats
    overhead_ns: Floats
    predecessor_at: Ints
    predecessors: Ints
    successor_at: Ints
    successors: Ints
    producer: Ints
    is_output: Bools
    in_ns: Floats
    out_ns: Floats
    reader_at: Ints
    readers: Ints
    reader_value: Ints
    read_at: Ints
    reads: Ints
    make_at: Ints
    makes: Ints
    phase_target: Ints
    """[phases]"""
    counted: Ints
    """[values] row of ``Labelling.n_readers`` for values with many readers, else -1"""
    unit_key: Ints
    """[n] random bits; a set's key is their exclusive or"""
    region_key: Ints
    """[2^x] keys of regions measured whole, with their target; 0 where there is none"""
    region_ns: Floats
    """[2^x] what they cost more than their parts, in ns"""
    format: Ints
    formats_in: Ints
    formats_out: Ints
    to_int8_ns: Floats
    to_float_ns: Floats


class Labelling(NamedTuple):
    """A plan as a phase for each unit, and what follows from it."""

    phase: Ints
    best: Ints
    """[n] of the best labelling so far"""
    n_units: Ints
    """[phases]"""
    key: Ints
    """[phases]"""
    n_readers: Ints
    """[counted values, phases]"""
    n_int8: Ints
    """[values] readers that run in 8 bits; none where nothing is converted"""
    random: Ints
    """[n + 1] state of the random numbers, then room for the units of one segment"""
    cost: Floats
    """[2] ns, now and of the best"""


class Annealer:
    """Anneals plans of one problem."""

    def __init__(self, problem: Problem, targets: Sequence[int]) -> None:
        """``targets`` are those that segments may begin on."""
        self._problem = problem
        self._targets = tuple(targets)
        arrays = problem.arrays
        self._arrays = arrays
        self._hashed = hashed_regions(problem)
        sizes = np.diff(arrays.reader_at)
        self._counted = np.full(len(sizes), -1, dtype=np.int64)
        many = np.flatnonzero(sizes > MANY_READERS)
        self._counted[many] = np.arange(len(many))

    def run(
        self,
        placements: Sequence[Placement],
        moves: int,
        hot_ns: float,
        cold_ns: float,
        seed: int,
        watch: Watch,
    ) -> tuple[Placement, ...]:
        """The best plan met in so many moves from a plan, the temperature falling from ``hot_ns``
        to ``cold_ns``; fewer where the limits end it."""
        a = self._arrays
        phase, phase_target = labelling_of_plan(placements, a.n, self._targets)
        tables = Tables(
            **a.shared(Tables, but=("unit_ns",)),
            phase_target=phase_target,
            counted=self._counted,
            **self._hashed._asdict(),
        )
        labelling = self._labelling(phase, phase_target)
        labelling.random[0] = _random_state(seed)
        stretches = max(1, moves // STRETCH)
        factor = (cold_ns / hot_ns) ** (1 / stretches)
        left, temperature = moves, hot_ns
        slice_moves = max(1, SLICE // STRETCH) * STRETCH
        while left > 0 and not watch.is_over:
            now = min(left, slice_moves)
            anneal(tables, labelling, now, temperature, factor)
            temperature *= factor ** (now // STRETCH)
            left -= now
            watch.spend(now)
        return plan_of_labelling(labelling.best, phase_target)

    def _labelling(self, phase: Ints, phase_target: Ints) -> Labelling:
        a, n_phases = self._arrays, len(phase_target)
        key = np.zeros(n_phases, dtype=np.int64)
        np.bitwise_xor.at(key, phase, self._hashed.unit_key)
        n_readers = np.zeros((int(self._counted.max(initial=-1)) + 1, n_phases), dtype=np.int64)
        row = self._counted[a.reader_value]
        counted = row >= 0
        np.add.at(n_readers, (row[counted], phase[a.readers[counted]]), 1)
        return Labelling(
            phase=phase,
            best=phase.copy(),
            n_units=np.bincount(phase, minlength=n_phases).astype(np.int64),
            key=key,
            n_readers=n_readers,
            n_int8=self._int8_readers(phase_target[phase]),
            random=np.zeros(a.n + 1, dtype=np.int64),
            cost=np.zeros(2),
        )

    def _int8_readers(self, target: Ints) -> Ints:
        """``target`` is [n], of each unit."""
        a = self._arrays
        if not a.converts:
            return np.zeros(0, dtype=np.int64)
        count = np.bincount(a.reader_value, a.format[target[a.readers]], len(a.producer))
        return count.astype(np.int64)


class HashedRegions(NamedTuple):
    """Regions measured whole as a hash table of what they cost more than their parts."""

    unit_ns: Floats
    """[n, t]: where a unit runs only inside such regions, a price that they give back"""
    unit_key: Ints
    region_key: Ints
    region_ns: Floats


def hashed_regions(problem: Problem) -> HashedRegions:
    """The regions of a problem as moves look them up (:class:`Tables`)."""
    unit_key = np.random.default_rng(3).integers(1 << 40, 1 << WORD, problem.n, dtype=np.int64)
    penalty_ns = 10.0 * _largest_total(problem)
    unit_ns = _unit_costs(problem, penalty_ns)
    size = 1
    while size < 3 * len(problem.region_ns):
        size *= 2
    keys, extra = np.zeros(size, dtype=np.int64), np.zeros(size)
    for (units, k), ns in problem.region_ns.items():
        rows = sorted(units)
        entering, leaving = problem.boundary_bytes(units)
        parts = float(
            problem.overhead_ns[k]
            + entering * problem.in_ns_per_byte[k]
            + leaving * problem.out_ns_per_byte[k]
            + unit_ns[rows, k].sum()
        )
        if not math.isfinite(parts):
            continue  # the constraints rule it out
        key = int(np.bitwise_xor.reduce(unit_key[rows])) ^ (k + 1)
        place = key & (size - 1)
        while keys[place] != 0:
            place = (place + 1) & (size - 1)
        keys[place] = key
        extra[place] = (ns if math.isfinite(ns) else penalty_ns * len(rows)) - parts
    return HashedRegions(unit_ns, unit_key, keys, extra)


def anneal(tables: Tables, labelling: Labelling, moves: int, hot_ns: float, factor: float) -> None:
    """Tries so many moves of a unit, and now and then of a segment, at a temperature that begins
    with ``hot_ns`` and falls by ``factor`` every :data:`STRETCH` moves."""
    sizes = native.integers(
        *tables.unit_ns.shape,
        len(tables.phase_target),
        len(tables.region_key),
        len(labelling.n_int8) > 0,
    )
    native.library().np_anneal(
        ctypes.byref(sizes),
        ctypes.byref(native.pointers(tables)),
        ctypes.byref(native.pointers(labelling)),
        ctypes.c_int64(moves),
        ctypes.c_double(hot_ns),
        ctypes.c_double(factor),
    )


def _random_state(seed: int) -> int:
    """A state of the random numbers; never 0."""
    return (0x9E3779B9 * (2 * seed + 1)) & 0xFFFFFFFF


def _largest_total(problem: Problem) -> float:
    finite = np.where(np.isfinite(problem.unit_ns), problem.unit_ns, 0.0)
    measured = sum(ns for ns in problem.region_ns.values() if math.isfinite(ns))
    return float(finite.max(axis=1).sum() + problem.overhead_ns.max() * problem.n + measured) + 1.0


def _unit_costs(problem: Problem, penalty_ns: float) -> np.ndarray:
    """[n, t] costs of units; what runs only inside regions measured whole has a price that such a
    region gives back."""
    unit_ns = problem.unit_ns.copy()
    for (units, k), ns in problem.region_ns.items():
        if math.isfinite(ns):
            rows = sorted(units)
            unit_ns[rows, k] = np.where(
                np.isfinite(problem.unit_ns[rows, k]), problem.unit_ns[rows, k], penalty_ns
            )
    return unit_ns
