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

import numpy as np

from nnapi_prof.partition.anneal_kernels import STRETCH, Labelling, Tables, anneal
from nnapi_prof.partition.arrays import WORD
from nnapi_prof.partition.problem import Placement, Problem
from nnapi_prof.partition.search import native
from nnapi_prof.partition.search.labelling import gathered, spread_out
from nnapi_prof.partition.search.result import Watch

MANY_READERS = 24
"""Values with more have their readers counted by phase: looking at each would take longer."""
SLICE = 100_000
"""Moves between two looks at the clock: some 50 ms."""
INTERPRETED = 400
"""Times slower without the compiled loops: slices are so much shorter."""


class Annealer:
    """Anneals plans of one problem."""

    def __init__(self, problem: Problem, targets: Sequence[int]) -> None:
        """``targets`` are those that segments may begin on."""
        self._problem = problem
        self._targets = tuple(targets)
        arrays = problem.arrays
        self._arrays = arrays
        self._unit_key = np.random.default_rng(3).integers(
            1 << 40, 1 << WORD, problem.n, dtype=np.int64
        )
        self._penalty = 10.0 * _largest_total(problem)
        self._unit_ns = _with_regions(problem, self._penalty)
        self._region_key, self._region_ns = self._regions()
        sizes = np.diff(arrays.reader_at)
        self._counted = np.full(len(sizes), -1, dtype=np.int64)
        many = np.flatnonzero(sizes > MANY_READERS)
        self._counted[many] = np.arange(len(many))
        self._library = native.library()

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
        phase, phase_target = spread_out(placements, a.n, self._targets)
        n_phases = len(phase_target)
        tables = Tables(
            unit_ns=self._unit_ns,
            overhead_ns=a.overhead_ns,
            predecessor_at=a.predecessor_at,
            predecessors=a.predecessors,
            successor_at=a.successor_at,
            successors=a.successors,
            producer=a.producer,
            is_output=a.is_output,
            in_ns=a.in_ns,
            out_ns=a.out_ns,
            reader_at=a.reader_at,
            readers=a.readers,
            reader_value=a.reader_value,
            read_at=a.read_at,
            reads=a.reads,
            make_at=a.make_at,
            makes=a.makes,
            phase_target=phase_target,
            counted=self._counted,
            unit_key=self._unit_key,
            region_key=self._region_key,
            region_ns=self._region_ns,
        )
        labelling = self._labelling(phase, n_phases)
        labelling.random[0] = _seeded(seed)
        stretches = max(1, moves // STRETCH)
        factor = (cold_ns / hot_ns) ** (1 / stretches)
        left, temperature = moves, hot_ns
        slice_moves = (SLICE if self._library is not None else SLICE // INTERPRETED) // STRETCH
        slice_moves = max(1, slice_moves) * STRETCH
        while left > 0 and not watch.is_over:
            now = min(left, slice_moves)
            self._advance(tables, labelling, now, temperature, factor)
            temperature *= factor ** (now // STRETCH)
            left -= now
            watch.spend(now)
        return gathered(labelling.best, phase_target)

    def _labelling(self, phase: np.ndarray, n_phases: int) -> Labelling:
        a = self._arrays
        key = np.zeros(n_phases, dtype=np.int64)
        np.bitwise_xor.at(key, phase, self._unit_key)
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
            random=np.zeros(a.n + 1, dtype=np.int64),
            cost=np.zeros(2),
        )

    def _advance(
        self, tables: Tables, labelling: Labelling, moves: int, hot_ns: float, factor: float
    ) -> None:
        if self._library is None:
            anneal(tables, labelling, moves, hot_ns, factor)
            return
        sizes = native.integers(
            *tables.unit_ns.shape, len(tables.phase_target), len(tables.region_key)
        )
        self._library.np_anneal(
            ctypes.byref(sizes),
            ctypes.byref(native.pointers(tables)),
            ctypes.byref(native.pointers(labelling)),
            ctypes.c_int64(moves),
            ctypes.c_double(hot_ns),
            ctypes.c_double(factor),
        )

    def _regions(self) -> tuple[np.ndarray, np.ndarray]:
        """Regions measured whole as a hash table of what they cost more than their parts."""
        problem = self._problem
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
                + self._unit_ns[rows, k].sum()
            )
            if not math.isfinite(parts):
                continue  # the constraints rule it out
            key = int(np.bitwise_xor.reduce(self._unit_key[rows])) ^ (k + 1)
            place = key & (size - 1)
            while keys[place] != 0:
                place = (place + 1) & (size - 1)
            keys[place] = key
            extra[place] = (ns if math.isfinite(ns) else self._penalty * len(rows)) - parts
        return keys, extra


def _seeded(seed: int) -> int:
    """A state of the random numbers; never 0."""
    return (0x9E3779B9 * (2 * seed + 1)) & 0xFFFFFFFF


def _largest_total(problem: Problem) -> float:
    finite = np.where(np.isfinite(problem.unit_ns), problem.unit_ns, 0.0)
    measured = sum(ns for ns in problem.region_ns.values() if math.isfinite(ns))
    return float(finite.max(axis=1).sum() + problem.overhead_ns.max() * problem.n + measured) + 1.0


def _with_regions(problem: Problem, penalty_ns: float) -> np.ndarray:
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
