"""Compute a lower bound of every schedule: the most that concurrent lanes can gain.

Units that every other unit precedes or follows (*cuts*) divide the graph into blocks that run one
after the other in any schedule. During a block, each lane completes at least its load of the block,
and every path through the block completes. As a linear programme, with the relaxation's variables
(:mod:`.search.relaxation`):

* ``x[u, k]``: unit u runs on target k; they sum to 1 over k.
* ``enters[v, k, b]``: value v is brought into a segment on k, for a reader in block b; among the
  readers on one target, the first one's block bears it. A segment moves all inputs in its own
  call, so a transfer counts as done right before the first unit that needs it.
* ``leaves[v, k]``, in the block of its maker, or behind a cut; along a dependency, a segment on k
  begins where ``x[u, k] - x[p, k]`` is 1, and one ends where it is -1.
* ``time[b, S]``: how long the lanes of set S, and no others, are busy in block b.

During a block each lane completes its load, including overheads along a path, at the rates that
contention leaves; a path advances no faster than the fastest busy lane. A few cheap units that run
beside everything else would leave hardly a cut: they count for the whole graph only. Regions
measured whole that take less than their parts make their units cheaper by as much.

The bound of the linear relaxation is taken from the dual side, so rounding in the solver cannot
raise it above the truth (as in :mod:`.search.relaxation`). With every unit on one target, HiGHS
branches for a while and reports the bound that it has proven.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csr_array

from nnapi_prof.partition.arrays import Floats
from nnapi_prof.partition.blocks import find_blocks
from nnapi_prof.partition.lanes import Lanes
from nnapi_prof.partition.problem import Problem
from nnapi_prof.partition.search.programme import TOTAL, Programme


class OverlapProgramme(Programme):
    """The programme under construction; its rows are ``a z >= 0``."""

    def __init__(self, problem: Problem, lanes: Lanes) -> None:
        super().__init__()
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
        self.place = np.nonzero(allowed)
        """Unit and target of each ``x``, ..."""
        self.x = self.columns(np.zeros(len(self.place[0])))
        """... and its column."""
        pairs = zip(*(each.tolist() for each in self.place), strict=True)
        self._x: dict[tuple[int, int], int] = dict(zip(pairs, self.x.tolist(), strict=True))
        self._moves: dict[tuple[int, int, int], int] = {}
        m, count = lanes.count, self._blocks.count
        self._time = self.columns(np.ones((count, len(lanes.rates))), 2 * TOTAL)
        self._load = self.rows(count * m).reshape(count, m)
        self.add(self._load[:, :, None], self._time[:, None, :], lanes.rates.T)
        self._every = self.rows(m if -1 in self._blocks.block else 0)
        for row, rates in zip(self._every, lanes.rates.T, strict=False):
            self.add(row, self._time, rates)
        self._fill()

    @property
    def one(self) -> csr_array:
        """[n, columns]: the columns ``x`` of each unit."""
        entries = np.ones(len(self.x)), (self.place[0], self.x)
        return csr_array(entries, shape=(self._problem.n, self.n_columns))

    def _loads(self, block: int, k: int, column: int, ns: float) -> None:
        """Adds ``ns`` of a column to the load of target k's lane in a block; -1 for no block."""
        self._occupies(block, int(self._lanes.of_target[k]), column, ns * self.scale)

    def _occupies(self, block: int, lane: int, column: int, time: float) -> None:
        every = self._every[lane : lane + 1].tolist()
        for row in [int(self._load[block, lane]), *every] if block >= 0 else every:
            if time:
                self.enter(row, column, -time)

    def _differs(self, u: int, other: int, k: int) -> int:
        """Returns the column that is at least ``x[u, k] - x[other, k]``."""
        key = (u, other, k)
        if key not in self._moves:
            self._moves[key] = self.column()
            terms = [(self._moves[key], 1.0), (self._x[u, k], -1.0)]
            if (other, k) in self._x:
                terms.append((self._x[other, k], 1.0))
            self.row(terms)
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
                columns[b] = self.column()
                self._loads(b, k, columns[b], ns)
            terms = [(self._x[r, k], -1.0), *((column, 1.0) for column in columns.values())]
            if (value.producer, k) in self._x:
                terms.append((self._x[value.producer, k], 1.0))
            self.row(terms)

    def _leaves(self, v: int, k: int, ns: float) -> None:
        value = self._problem.values[v]
        p = value.producer
        if ns <= 0 or not (value.is_output or value.readers):
            return
        # A cut hands values over after the cut: in the next block, as on paths.
        b = self._blocks.block[p] + (p in self._blocks.cuts)
        if value.is_output:
            self._loads(b, k, self._x[p, k], ns)
            return
        leaves = self.column()
        self._loads(b, k, leaves, ns)
        for r in value.readers:
            terms = [(leaves, 1.0), (self._x[p, k], -1.0)]
            if (r, k) in self._x:
                terms.append((self._x[r, k], 1.0))
            self.row(terms)

    def _edge_ns(self, p: int, u: int) -> tuple[Floats, Floats]:
        """Returns [t]: the costs of one unit's values for another, bringing in and handing over."""
        arrays = self._problem.arrays
        shared = [v for v in self._problem.values_of[u] if self._problem.values[v].producer == p]
        shared = [v for v in shared if u in self._problem.values[v].readers]
        return arrays.in_ns[shared].sum(axis=0), arrays.out_ns[shared].sum(axis=0)

    def _paths(self) -> None:
        """Adds rows of paths through each block, and of overheads along them on each lane."""
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
            end[u] = self.column(limit=2 * TOTAL)
            for i in counted:
                paid[u, i] = self.column(limit=2 * TOTAL)
            own = [
                (self._x[u, k], -float(p.unit_ns[u, k]) * scale)
                for k in targets
                if (u, k) in self._x
            ]
            known = [q for q in p.predecessors[u] if block[q] == b or q in blocks.cuts]
            known = [q for q in known if block[q] == b or (b and q == blocks.cuts[b - 1])]
            if not known:
                begin = overhead if not p.predecessors[u] else np.zeros(len(targets))
                opened = {
                    k: (self._x[u, k], -begin[k] * scale) for k in targets if (u, k) in self._x
                }
                self.row([(end[u], 1.0), *own, *opened.values()])
                for i in counted:
                    on_lane = [term for k, term in opened.items() if lanes.of_target[k] == i]
                    self.row([(paid[u, i], 1.0), *on_lane])
            for q in known:
                into, out = self._edge_ns(q, u)
                row = self.row([(end[u], 1.0), *own])
                rows = {i: self.row([(paid[u, i], 1.0)]) for i in counted}
                if block[q] == b:
                    self.enter(row, end[q], -1.0)
                    for i in counted:
                        self.enter(rows[i], paid[q, i], -1.0)
                for k in targets:
                    if (u, k) in self._x and overhead[k] + into[k] > 0:
                        turns = self._differs(u, q, k)
                        self.enter(row, turns, -(overhead[k] + into[k]) * scale)
                        if overhead[k] > 0:
                            self.enter(rows[int(lanes.of_target[k])], turns, -overhead[k] * scale)
                    if (q, k) in self._x and out[k] > 0:
                        self.enter(row, self._differs(q, u, k), -out[k] * scale)
        fastest = lanes.rates.max(axis=1).tolist()
        for u, column in end.items():
            if any(block[s] == block[u] for s in p.successors[u]):
                continue
            times = self._time[block[u]].tolist()
            self.row([(column, -1.0), *zip(times, fastest, strict=True)])
            for i in counted:
                self._add_overhead(block[u], i, paid[u, i])

    def _add_overhead(self, b: int, lane: int, paid: int) -> None:
        """Adds rows by which a lane pays at least the overheads along any path through a block."""
        key = (-1 - b, lane, -1)
        if key not in self._moves:
            self._moves[key] = self.column(limit=2 * TOTAL)
            self._occupies(b, lane, self._moves[key], 1.0)
        self.row([(self._moves[key], 1.0), (paid, -1.0)])


MOST_ENTRIES = 2_000_000
"""Largest number of non-zeros; a larger programme would take minutes."""
MANY_COLUMNS = 15_000
"""Number of columns from which HiGHS's interior points are faster than its simplex."""


MOST_WHOLE = 800
"""Largest number of unit-target pairs for which some seconds of branching raise the bound."""
TOLERANCE = 1e-5
"""Relative tolerance; HiGHS's own is 1e-6."""


@dataclass(frozen=True, eq=False)
class OverlapBound:
    """Lower bound of every schedule, and the programme's targets."""

    ns: float
    share: Floats
    """[n, t], between 0 and 1"""


def lower_bound(problem: Problem, lanes: Lanes, seconds: float = math.inf) -> OverlapBound | None:
    """Returns the bound for a problem whose targets all belong to lanes; None where the programme
    is too large, or not solved within ``seconds``."""
    programme = OverlapProgramme(_discounted(problem), lanes)
    if programme.n_entries > MOST_ENTRIES:
        return None
    cost, limit, matrix, x = programme.cost, programme.limit, programme.matrix, programme.x
    solve: Any = linprog  # its stubs have no time limit together with a method
    answer = solve(
        cost,
        A_ub=-matrix,
        b_ub=np.zeros(programme.n_rows),
        A_eq=programme.one,
        b_eq=np.ones(problem.n),
        bounds=np.stack([np.zeros(len(cost)), limit], axis=1),
        method="highs-ds" if len(cost) < MANY_COLUMNS else "highs-ipm",
        options={"presolve": True, "time_limit": max(0.05, min(seconds, 1e6))},
    )
    if answer.status != 0:
        return None
    price = np.maximum(0.0, -answer.ineqlin.marginals)
    reduced = cost - matrix.T @ price
    least = np.full(problem.unit_ns.shape, np.inf)
    least[programme.place] = reduced[x]
    reduced[x] = 0.0
    bound = float(least.min(axis=1).sum() + np.minimum(reduced, 0.0) @ limit)
    return OverlapBound(
        max(0.0, bound * (1 - 1e-12)) / programme.scale,
        _assignment_shares(problem, programme, answer.x),
    )


def integral_bound(problem: Problem, lanes: Lanes, seconds: float) -> OverlapBound | None:
    """Returns :func:`lower_bound` with each unit on one target, as far as HiGHS proves it within
    ``seconds``, and the best targets found. None where HiGHS found none, or the problem is too
    large. HiGHS's tolerance is subtracted from the bound."""
    if np.isfinite(problem.unit_ns).sum() > MOST_WHOLE:
        return None
    programme = OverlapProgramme(_discounted(problem), lanes)
    whole = np.zeros(programme.n_columns, dtype=np.int8)
    whole[programme.x] = 1
    answer = milp(
        programme.cost,
        integrality=whole,
        bounds=Bounds(0.0, programme.limit),
        constraints=[
            LinearConstraint(programme.matrix, 0.0, np.inf),
            LinearConstraint(programme.one, 1.0, 1.0),
        ],
        options={"time_limit": seconds},
    )
    told = getattr(answer, "mip_dual_bound", None)
    if answer.x is None or told is None or not math.isfinite(told):
        return None
    bound = max(0.0, float(told) * (1 - TOLERANCE)) / programme.scale
    return OverlapBound(bound, _assignment_shares(problem, programme, answer.x))


def _discounted(problem: Problem) -> Problem:
    """Returns the problem with costs at which no region measured whole beats its parts."""
    regions = problem.regions
    useful = np.isfinite(regions.ns) & ~(regions.ns >= regions.parts_ns)
    if not useful.any():
        return replace(problem, region_ns={})
    unit_ns = problem.unit_ns.copy()
    only = np.zeros(unit_ns.shape, dtype=np.bool_)
    factor, border = np.ones(unit_ns.shape), np.ones(len(problem.targets))
    for g in np.flatnonzero(useful).tolist():
        units = regions.units[regions.unit_at[g] : regions.unit_at[g + 1]]
        k, ns, border_ns = int(regions.target[g]), float(regions.ns[g]), float(regions.border_ns[g])
        own = problem.unit_ns[units, k]
        only[units, k] |= ~np.isfinite(own)
        work = float(own[np.isfinite(own)].sum())
        if ns < border_ns:
            border[k] = min(border[k], ns / border_ns)
        share = max(0.0, ns - border_ns) / work if work > 0 else 1.0
        factor[units, k] = np.minimum(factor[units, k], min(1.0, share))
    unit_ns[only & ~np.isfinite(unit_ns)] = 0.0
    finite = np.isfinite(unit_ns)
    unit_ns[finite] *= factor[finite]
    return replace(
        problem,
        unit_ns=unit_ns,
        overhead_ns=problem.overhead_ns * border,
        in_ns_per_byte=problem.in_ns_per_byte * border,
        out_ns_per_byte=problem.out_ns_per_byte * border,
        region_ns={},
    )


def _assignment_shares(problem: Problem, programme: OverlapProgramme, solution: Floats) -> Floats:
    """Returns [n, t]: the share of each unit on each target in a solution."""
    share = np.zeros(problem.unit_ns.shape)
    share[programme.place] = np.clip(solution[programme.x], 0.0, 1.0)
    return share
