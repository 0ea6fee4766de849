"""A lower bound of every schedule: what branches on lanes that work at once can gain at most.

Units that every other unit precedes or follows (*cuts*) part the graph into blocks that run one
after the other, whatever the schedule. In the time of a block, each lane does at least its load of
it, and every path through it is gone. As a linear programme, with the relaxation's variables
(:mod:`.search.relaxation`):

* ``x[u, k]``: unit u runs on target k; they sum to 1 over k.
* ``enters[v, k, b]``: value v is brought into a segment on k, for a reader in block b; of the
  readers on one target, the first one's block bears it. A segment moves all inputs in its own
  call, so that a transfer may be thought of as done right before the first unit that needs it.
* ``leaves[v, k]``, in the block of its maker, or behind a cut; along a dependency, a segment on k
  begins where ``x[u, k] - x[p, k]`` is 1, and one ends where it is -1.
* ``time[b, S]``: how long the lanes of set S, and no others, are busy in block b.

In a block's time each lane gets its load done, overheads along a path among it, at the rates that
contention leaves; a path goes on no faster than the fastest lane that is busy. A few cheap units
that stand beside everything else would leave hardly a cut: they count for the whole graph only.
Regions measured whole that take less than their parts make their units that much cheaper.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from nnapi_prof.partition.arrays import Floats, Ints
from nnapi_prof.partition.blocks import find_blocks
from nnapi_prof.partition.lanes import Lanes
from nnapi_prof.partition.problem import Problem

TOTAL = 1e4
"""What costs are scaled to sum up to: HiGHS works to an absolute 1e-7."""


class System(NamedTuple):
    """The programme as arrays."""

    cost: Floats
    rows: csr_array
    one: csr_array
    """[n, columns]: of each unit, its ``x``."""
    limit: Floats
    place: tuple[Ints, Ints]
    """Unit and target of each ``x``, ..."""
    columns: Ints
    """... and its column."""


class OverlapProgramme:
    """The programme under construction: rows ``a z >= 0`` as triples, columns with limits."""

    def __init__(self, problem: Problem, lanes: Lanes) -> None:
        self._problem = problem
        self._lanes = lanes
        self._blocks = find_blocks(problem)
        allowed = np.isfinite(problem.unit_ns)
        worst = np.where(allowed, problem.unit_ns, 0.0).max(axis=1).sum()
        worst += problem.overhead_ns.max() * problem.n
        arrays = problem.arrays
        worst += arrays.in_ns.max(axis=1, initial=0.0).sum() * 2
        worst += arrays.out_ns.max(axis=1, initial=0.0).sum()
        self.scale = TOTAL / worst if worst > 0 else 1.0
        self._limit: list[float] = []
        self._triples: tuple[list[float], ...] = ([], [], [])
        """Rows, columns and factors."""
        self.n_rows = 0
        self._x: dict[tuple[int, int], int] = {
            (u, k): self._column(1.0)
            for u in range(problem.n)
            for k in np.flatnonzero(allowed[u]).tolist()
        }
        self._moves: dict[tuple[int, int, int], int] = {}
        m, count = lanes.count, self._blocks.count
        self._time = [[self._column(2 * TOTAL) for _ in lanes.rates] for _ in range(count)]
        self._load = [[self._row() for _ in range(m)] for _ in range(count)]
        for b in range(count):
            for i in range(m):
                for s, rates in enumerate(lanes.rates):
                    self._add(self._load[b][i], self._time[b][s], rates[i])
        self._every = [self._row() for _ in range(m)] if -1 in self._blocks.block else []
        for i, row in enumerate(self._every):
            for times in self._time:
                for s, rates in enumerate(lanes.rates):
                    self._add(row, times[s], rates[i])
        self._fill()

    def _column(self, limit: float) -> int:
        self._limit.append(limit)
        return len(self._limit) - 1

    def _row(self, *terms: tuple[int, float]) -> int:
        self.n_rows += 1
        for column, factor in terms:
            self._add(self.n_rows - 1, column, factor)
        return self.n_rows - 1

    def _add(self, row: int, column: int, factor: float) -> None:
        if factor:
            for entries, entry in zip(self._triples, (row, column, factor), strict=True):
                entries.append(entry)

    def _loads(self, block: int, k: int, column: int, ns: float) -> None:
        """A column that takes so much of target k's lane in a block; -1 for no block."""
        lane = int(self._lanes.of_target[k])
        if block >= 0:
            self._add(self._load[block][lane], column, -ns * self.scale)
        if self._every:
            self._add(self._every[lane], column, -ns * self.scale)

    def _differs(self, u: int, other: int, k: int) -> int:
        """The column that is at least ``x[u, k] - x[other, k]``."""
        key = (u, other, k)
        if key not in self._moves:
            self._moves[key] = self._column(1.0)
            terms = [(self._moves[key], 1.0), (self._x[u, k], -1.0)]
            if (other, k) in self._x:
                terms.append((self._x[other, k], 1.0))
            self._row(*terms)
        return self._moves[key]

    def _fill(self) -> None:
        p, arrays = self._problem, self._problem.arrays
        block = self._blocks.block
        for (u, k), column in self._x.items():
            self._loads(block[u], k, column, float(p.unit_ns[u, k]))
        for v, value in enumerate(p.values):
            for k in range(arrays.t):
                if arrays.in_ns[v, k] > 0:
                    self._enters(v, k, float(arrays.in_ns[v, k]))
                if value.producer >= 0 and (value.producer, k) in self._x:
                    self._leaves(v, k, float(arrays.out_ns[v, k]))
        self._paths()

    def _enters(self, v: int, k: int, ns: float) -> None:
        value, block = self._problem.values[v], self._blocks.block
        readers = [r for r in value.readers if (r, k) in self._x]
        columns: dict[int, int] = {}
        for r in sorted(readers, key=lambda r: block[r] if block[r] >= 0 else math.inf):
            b = block[r]
            if b not in columns:
                columns[b] = self._column(1.0)
                self._loads(b, k, columns[b], ns)
            terms = [(self._x[r, k], -1.0), *((column, 1.0) for column in columns.values())]
            if (value.producer, k) in self._x:
                terms.append((self._x[value.producer, k], 1.0))
            self._row(*terms)

    def _leaves(self, v: int, k: int, ns: float) -> None:
        value = self._problem.values[v]
        p = value.producer
        if ns <= 0 or not (value.is_output or value.readers):
            return
        # What a cut hands over goes after the cut: into the next block, as on paths.
        b = self._blocks.block[p] + (p in self._blocks.cuts)
        if value.is_output:
            self._loads(b, k, self._x[p, k], ns)
            return
        leaves = self._column(1.0)
        self._loads(b, k, leaves, ns)
        for r in value.readers:
            terms = [(leaves, 1.0), (self._x[p, k], -1.0)]
            if (r, k) in self._x:
                terms.append((self._x[r, k], 1.0))
            self._row(*terms)

    def _edge_ns(self, p: int, u: int) -> tuple[Floats, Floats]:
        """[t], of what one unit makes for another: bringing it in, and handing it over."""
        arrays = self._problem.arrays
        shared = [v for v in self._problem.values_of[u] if self._problem.values[v].producer == p]
        shared = [v for v in shared if u in self._problem.values[v].readers]
        return arrays.in_ns[shared].sum(axis=0), arrays.out_ns[shared].sum(axis=0)

    def _paths(self) -> None:
        """Rows of paths through each block, and of overheads along them on each lane."""
        p, blocks, lanes = self._problem, self._blocks, self._lanes
        block, scale = blocks.block, self.scale
        overhead = p.overhead_ns
        targets = range(len(p.targets))
        end: dict[int, int] = {}
        paid: dict[tuple[int, int], int] = {}
        counted = sorted({int(lanes.of_target[k]) for k in targets if overhead[k] > 0})
        for u in range(p.n):
            b = block[u]
            if b < 0:
                continue
            end[u] = self._column(2 * TOTAL)
            for i in counted:
                paid[u, i] = self._column(2 * TOTAL)
            own = [
                (self._x[u, k], -float(p.unit_ns[u, k]) * scale)
                for k in targets
                if (u, k) in self._x
            ]
            known = [q for q in p.predecessors[u] if block[q] == b or q in blocks.cuts]
            known = [q for q in known if block[q] == b or (b and q == blocks.cuts[b - 1])]
            if not known:
                begin = overhead if not p.predecessors[u] else np.zeros(len(targets))
                self._row(
                    (end[u], 1.0),
                    *own,
                    *((self._x[u, k], -begin[k] * scale) for k in targets if (u, k) in self._x),
                )
                for i in counted:
                    self._row(
                        (paid[u, i], 1.0),
                        *(
                            (self._x[u, k], -begin[k] * scale)
                            for k in targets
                            if (u, k) in self._x and lanes.of_target[k] == i
                        ),
                    )
            for q in known:
                into, out = self._edge_ns(q, u)
                row = self._row((end[u], 1.0), *own)
                rows = {i: self._row((paid[u, i], 1.0)) for i in counted}
                if block[q] == b:
                    self._add(row, end[q], -1.0)
                    for i in counted:
                        self._add(rows[i], paid[q, i], -1.0)
                for k in targets:
                    if (u, k) in self._x and overhead[k] + into[k] > 0:
                        turns = self._differs(u, q, k)
                        self._add(row, turns, -(overhead[k] + into[k]) * scale)
                        if overhead[k] > 0:
                            self._add(rows[int(lanes.of_target[k])], turns, -overhead[k] * scale)
                    if (q, k) in self._x and out[k] > 0:
                        self._add(row, self._differs(q, u, k), -out[k] * scale)
        fastest = lanes.rates.max(axis=1)
        for u, column in end.items():
            if any(block[s] == block[u] for s in p.successors[u]):
                continue
            times = self._time[block[u]]
            self._row((column, -1.0), *((t, float(f)) for t, f in zip(times, fastest, strict=True)))
            for i in counted:
                self._add_overhead(block[u], i, paid[u, i])

    def _add_overhead(self, b: int, lane: int, paid: int) -> None:
        """A lane pays at least the overheads along any path through a block."""
        key = (-1 - b, lane, -1)
        if key not in self._moves:
            self._moves[key] = self._column(2 * TOTAL)
            self._add(self._load[b][lane], self._moves[key], -1.0)
            if self._every:
                self._add(self._every[lane], self._moves[key], -1.0)
        self._row((self._moves[key], 1.0), (paid, -1.0))

    @property
    def n_entries(self) -> int:
        """Non-zeros."""
        return len(self._triples[0])

    def system(self) -> System:
        """All of it."""
        n_columns, n = len(self._limit), self._problem.n
        row, column, factor = (np.array(entries) for entries in self._triples)
        where = (row.astype(np.int64), column.astype(np.int64))
        cost = np.zeros(n_columns)
        for times in self._time:
            cost[times] = 1.0
        units, targets = np.array(list(self._x), dtype=np.int64).T
        columns = np.array(list(self._x.values()))
        return System(
            cost,
            csr_array((factor, where), shape=(self.n_rows, n_columns)),
            csr_array((np.ones(len(units)), (units, columns)), shape=(n, n_columns)),
            np.array(self._limit),
            (units, targets),
            columns,
        )
