"""Find a lower bound of every plan from a linear programme, and the prices that prove it.

Variables, each between 0 and 1 unless stated otherwise:

* ``x[u, k]``: unit u runs on target k; they sum to 1 over k.
* ``enters[v, k]``: value v is brought into some segment on k: at least ``x[r, k] - x[p, k]`` for
  each reader r, p being its producer.
* ``leaves[v, k]``: it is handed over by a segment on k: at least ``x[p, k] - x[r, k]``.
* ``turns[d, k]``: along the dependency d = (p, u) a segment on k begins: at least
  ``x[u, k] - x[p, k]``; ``path[u]``, in ns, are the overheads paid along a path up to u, and
  ``overhead`` is no less than any of them. Every change of target along a path begins a segment,
  and segments of one path are different ones.
* ``whole[g]``: a region that was measured whole, and costs less than its parts, is a segment. Of
  the regions that hold a unit on a target, at most ``x[u, k]`` are. A unit that a target runs only
  inside such regions needs one of them there. Values that cross the border of such a segment enter,
  leave or turn there, even where the same target continues beyond it.
* ``converts[v, f]``: value v is converted to format f: at least ``x[r, f] - x[p, f]`` for each
  reader r, where ``x[u, f]`` is the sum over the targets of that format.

Budgets are rows: the use of units, and of segments along any path, as with overheads, is at most
the limit. Budgets with better values for some regions than by their parts have no rows.

Every plan is a solution, so none costs less than the least one. The bound is taken from the dual
side: with prices y >= 0 on the rows (``a x >= b``, where b is 0 except for budgets), no solution
costs less than

    sum over u of min over k of (c - y A)[u, k]  +  sum over other columns of min(0, c - yA) x limit
    + y b

for any prices, so rounding in the solver cannot raise it above the truth (Neumaier and Shcherbina,
"Safe bounds in linear and mixed-integer linear programming", Math. Program. 99, 2004). The same
prices bound the rest of a plan after any prefix (:class:`~.tables.Prices`).

Further rows cover the order of segments: cycles that a plan cannot have. The rows above let two
units of a target share a segment whatever lies between them. In a plan they do so only where no
path leads from one to the other over a unit elsewhere. The same holds for chains of such pairs:
along a cycle of dependencies and of pairs that share a segment, all units are in one phase of the
plan, and so in one segment. For a cycle through unit c with pairs e0, e1, ..., and for any set A of
targets,

    sum over A of joined[e0, k]  +  sum over e1, ... and all k of joined[e, k]
        <= number of pairs - 1  +  sum over A of x[c, k]

where ``joined[e, k]`` is at most ``x`` of both its units on k. It replaces the maker's ``x`` (or
the reader's) in rows of the relaxation: the value is brought in for a reader on k that is not
joined with the maker, and a dependency that is not joined begins a segment. Two readers on k that
are joined neither with the maker nor with each other bring the value in twice.

There are too many such rows to list; those that a solution violates are found by shortest paths,
where the length of a pair is the distance of its units (Grötschel, Jünger, Reinelt, "A Cutting
Plane Algorithm for the Linear Ordering Problem", Operations Research 32, 1984, has similar cycles).
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from nnapi_prof.partition.arrays import Bools, Floats, Ints
from nnapi_prof.partition.constraints import Budget
from nnapi_prof.partition.problem import GRAPH_INPUT, Problem, Region
from nnapi_prof.partition.search.programme import (
    TOTAL,
    Programme,
    RelaxationRows,
    Turns,
    useful_regions,
)
from nnapi_prof.partition.search.tables import Prices

MOST_READERS = 8
"""Largest number of readers of a value that form pairs; the pairs grow with its square."""
LEAST_VIOLATION = 1e-3
_STEP = 1e-7
"""Length of a dependency: a sparse matrix cannot store zeros."""

Pair = tuple[int, int]


class OrderRows:
    """Rows of cycles in one programme; columns are [.., t], -1 where there is none."""

    def __init__(
        self,
        programme: Programme,
        problem: Problem,
        x: Ints,
        enters: Ints,
        leaves: Ints,
        turns: Ints,
    ) -> None:
        """``x`` are the columns of units, ``enters`` and ``leaves`` of values, ``turns`` of
        dependencies."""
        self._programme = programme
        self._problem = problem
        self._x, self._enters, self._leaves, self._turns = x, enters, leaves, turns
        a = problem.arrays
        paid = [a.overhead_ns[None, :] > 0, a.in_ns > 0, a.out_ns > 0]
        sticky: Bools = np.any([np.any(costs, axis=0) for costs in paid], axis=0)
        self._targets = np.flatnonzero(sticky)
        self._joined: dict[Pair, dict[int, int]] = {}
        """Columns of pairs by target."""
        self._again: dict[Pair, int] = {}
        """Value and target -> column of bringing the value in more than once."""
        self._rows: set[tuple[int, tuple[Pair, ...]]] = set()
        self._head = np.repeat(np.arange(a.n), np.diff(a.predecessor_at))
        pairs = set(zip(a.predecessors.tolist(), self._head.tolist(), strict=True))
        for value in problem.values:
            if 1 < len(value.readers) <= MOST_READERS:
                readers = sorted(value.readers)
                pairs |= {(p, q) for i, q in enumerate(readers) for p in readers[:i]}
        self._pairs = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)

    def add_violated(self, solution: Floats) -> bool:
        """Adds rows that a solution violates; returns whether there were any."""
        share = solution[self._x]
        apart = self._apart(solution, share)
        ways = self._graph(apart)
        n_before = len(self._rows)
        units = np.flatnonzero(
            share[:, self._targets].max(axis=1, initial=0.0) < 1 - LEAST_VIOLATION
        )
        if not len(units) or not len(self._targets):
            return False
        reach, before = dijkstra(ways, indices=units, return_predecessors=True, limit=1.0)
        length = {
            (p, q): ns for (p, q), ns in zip(self._pairs.tolist(), apart.tolist(), strict=True)
        }
        for row, unit in enumerate(units.tolist()):
            ends = [p for p in self._problem.predecessors[unit] if reach[row, p] < 1]
            if not ends:
                continue
            way = [min(ends, key=lambda p: float(reach[row, p]))]
            while way[-1] != unit:
                way.append(int(before[row, way[-1]]))
            way.reverse()
            pairs = [
                (min(p, q), max(p, q))
                for p, q in itertools.pairwise(way)
                if p not in self._problem.predecessors[q]
            ]
            self._add_cycle(unit, tuple(dict.fromkeys(pairs)), solution, share, length)
        return len(self._rows) > n_before

    def _of_pair(self, pair: Pair, solution: Floats, share: Floats) -> Floats:
        """Returns [targets that count]: the extent to which two units share a segment."""
        most: Floats = np.minimum(share[pair[0]], share[pair[1]])[self._targets]
        columns = self._joined.get(pair, {})
        if columns and max(columns.values()) < len(solution):  # not among those just added
            own = [solution[columns[k]] if k in columns else 0.0 for k in self._targets.tolist()]
            most = np.minimum(most, own)
        return most

    def _apart(self, solution: Floats, share: Floats) -> Floats:
        """Returns [pairs]: the distance of two units from sharing a segment."""
        both = np.minimum(share[self._pairs[:, 0]], share[self._pairs[:, 1]])
        joined = both[:, self._targets].sum(axis=1)
        for i, (p, q) in enumerate(self._pairs.tolist()):
            if (p, q) in self._joined:
                joined[i] = self._of_pair((p, q), solution, share).sum()
        return np.asarray(np.maximum(1 - joined, 0.0))

    def _graph(self, apart: Floats) -> csr_array:
        """Returns the graph of dependencies forwards and pairs in both directions."""
        a, near = self._problem.arrays, np.flatnonzero(apart < 1)
        first, second = self._pairs[near].T
        tail = np.concatenate([a.predecessors, first, second])
        head = np.concatenate([self._head, second, first])
        length = np.concatenate([np.full(len(self._head), _STEP), apart[near], apart[near]]) + _STEP
        order = np.lexsort((length, head, tail))
        tail, head, length = tail[order], head[order], length[order]
        shortest = np.ones(len(tail), dtype=np.bool_)
        shortest[1:] = (np.diff(tail) != 0) | (np.diff(head) != 0)
        entries = (length[shortest], (tail[shortest], head[shortest]))
        return csr_array(entries, shape=(a.n, a.n))

    def _add_cycle(
        self,
        unit: int,
        pairs: tuple[Pair, ...],
        solution: Floats,
        share: Floats,
        length: dict[Pair, float],
    ) -> None:
        """Adds the row of a cycle, if the solution violates it."""
        key = unit, tuple(sorted(pairs))
        if not pairs or key in self._rows:
            return
        total = sum(length[pair] for pair in pairs)
        own = share[unit, self._targets]
        best, worst = -1.0, pairs[0]
        for pair in pairs:
            more = float(np.maximum(self._of_pair(pair, solution, share) - own, 0.0).sum())
            if more - (total - length[pair]) > best:
                best, worst = more - (total - length[pair]), pair
        if best < LEAST_VIOLATION:
            return
        self._rows.add(key)
        beyond = self._targets[self._of_pair(worst, solution, share) > own].tolist()
        terms = [(int(self._x[unit, k]), 1.0) for k in beyond]
        for pair in pairs:
            columns = self._join(pair)
            terms += [(c, -1.0) for k, c in columns.items() if pair != worst or k in beyond]
        self._programme.row(terms, 1.0 - len(pairs))

    def _join(self, pair: Pair) -> dict[int, int]:
        """Returns the columns of a pair; on first use, adds the rows that need them."""
        if pair in self._joined:
            return self._joined[pair]
        p, q = pair
        a, x = self._problem.arrays, self._x
        limit = self._programme.limit[x]
        columns = self._joined[pair] = {
            k: self._programme.column()
            for k in self._targets.tolist()
            if limit[p, k] > 0 and limit[q, k] > 0
        }
        before = a.predecessors[a.predecessor_at[q] : a.predecessor_at[q + 1]]
        dependency = a.predecessor_at[q] + np.flatnonzero(before == p)
        shared = set(self._problem.values_of[p]) & set(self._problem.values_of[q])
        for k, column in columns.items():
            self._programme.row([(int(x[p, k]), 1.0), (column, -1.0)])
            self._programme.row([(int(x[q, k]), 1.0), (column, -1.0)])
            turning = self._turns[dependency, k]
            bought = [(int(c), q) for c in turning]
            for v in sorted(shared):
                if self._problem.values[v].producer == p:
                    bought += [(int(self._enters[v, k]), q), (int(self._leaves[v, k]), p)]
            for paid, payer in bought:
                if paid >= 0:
                    self._programme.row([(paid, 1.0), (int(x[payer, k]), -1.0), (column, 1.0)])
        for v in sorted(shared):
            if self._problem.values[v].producer != p:
                self._bring_in_twice(v, p, q)
        return columns

    def _bring_in_twice(self, v: int, p: int, q: int) -> None:
        """Adds rows by which two readers that share no segment with each other or the maker each
        bring the value in."""
        value = self._problem.values[v]
        pairs = [(p, q)]
        if value.producer != GRAPH_INPUT:
            pairs += [(value.producer, p), (value.producer, q)]
        columns = [self._join(pair) for pair in pairs]
        for k in self._targets.tolist():
            if self._enters[v, k] < 0:
                continue
            if (v, k) not in self._again:
                ns = float(self._problem.arrays.in_ns[v, k])
                self._again[v, k] = self._programme.column(ns, float(len(value.readers)))
            terms = [(int(self._enters[v, k]), 1.0), (self._again[v, k], 1.0)]
            terms += [(int(self._x[unit, k]), -1.0) for unit in (p, q)]
            self._programme.row([*terms, *((own[k], 1.0) for own in columns if k in own)])


MOST_ENTRIES = 3_000_000
"""Largest number of non-zeros; a larger programme would take minutes and gigabytes."""
MANY_COLUMNS = 60_000
"""Number of columns from which HiGHS's interior points are faster than its simplex."""
DEVEX_COLUMNS = 15_000
"""Number of columns from which Devex prices take half the time of steepest edges."""
MOST_ROUNDS = 25
"""Largest number of rounds of rows for the order of segments."""
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Relaxation:
    """A solved relaxation."""

    bound_ns: float
    share: Floats
    """[n, t] ``x``, between 0 and 1"""
    cost_ns: Floats
    """[n, t] costs: a plan with unit u on target k costs at least ``bound_ns + cost_ns[u, k] -
    cost_ns[u].min()``; inf where it cannot run"""
    prices: Prices
    rates: Floats
    """[budgets] worth of a step of each, in ns; 0 where the programme has no row for it. Prices,
    ``cost_ns`` and the bound are of plans within the budgets; prices and ``cost_ns`` include the
    worth of their use."""
    region_cost_ns: Mapping[Region, float] = field(default_factory=dict)
    """Regions cheaper than their parts, with the least excess over ``bound_ns`` of a plan that has
    the region as a segment"""

    def fixed(self, problem: Problem, best_ns: float) -> Problem:
        """Returns the problem without placements of no plan of ``best_ns`` or less."""
        least = self.cost_ns.min(axis=1, keepdims=True)
        return problem.without(self.cost_ns - least > best_ns - self.bound_ns)

    def without_regions(self, problem: Problem, best_ns: float) -> Problem:
        """Returns the problem without measured costs of regions that are not segments of any plan
        of ``best_ns`` or less."""
        ruled_out = {
            region for region, ns in self.region_cost_ns.items() if ns > best_ns - self.bound_ns
        }
        rest = {region: ns for region, ns in problem.region_ns.items() if region not in ruled_out}
        return replace(problem, region_ns=rest) if len(rest) < len(problem.region_ns) else problem


def relax(
    problem: Problem,
    seconds: float = math.inf,
    budgets: Sequence[Budget] = (),
    *,
    in_order: bool = False,
) -> Relaxation | None:
    """Solves the relaxation; None where it is too large, not solved within ``seconds``, or where no
    plan keeps to the budgets. ``in_order`` adds rows for the order of segments
    (:class:`OrderRows`), as time allows: everything but the prices includes them."""
    return _Programme(problem, budgets).solve(seconds, in_order)


class _Programme(RelaxationRows):
    """The programme, solved."""

    def solve(self, seconds: float, in_order: bool) -> Relaxation | None:
        began = time.monotonic()
        a, problem = self.arrays, self.problem
        useful = useful_regions(problem)
        regions = problem.regions.subset(useful)
        inside = np.zeros(a.unit_ns.shape, dtype=np.bool_)
        inside[regions.units, regions.target[regions.region]] = True
        runs = np.isfinite(a.unit_ns)
        allowed = runs | inside
        if not allowed.any(axis=1).all():
            return None
        cost = np.where(runs, a.unit_ns, 0.0)
        single = np.diff(a.reader_at) == 1
        entry_single = single[a.reader_value] & (a.producer[a.reader_value] < 0)
        np.add.at(cost, a.readers[entry_single], a.in_ns[a.reader_value[entry_single]])
        output = a.is_output & (a.producer >= 0)
        np.add.at(cost, a.producer[output], a.out_ns[output])
        if a.converts:
            self.output_conversions(cost)
        self.x = self.columns(cost)
        self.regions = regions
        names = list(problem.region_ns)
        self._names = [names[g] for g in useful.tolist()]
        own = a.unit_ns[regions.units, regions.target[regions.region]]
        parts = np.bincount(regions.region, np.where(np.isfinite(own), own, 0.0), regions.count)
        self.region = self.columns(regions.ns - regions.border_ns - parts)
        entering = self.transfers(a.in_ns, ~entry_single, allowed, into=True)
        handed = (a.producer >= 0) & ~a.is_output
        leaving = self.transfers(a.out_ns, handed[a.reader_value], allowed, into=False)
        turns = self.turns(allowed)
        self.whole(inside & ~runs)
        none = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        converting = self.conversions(allowed) if a.converts else (none, none)
        limits = self.limits(turns.total[1:])
        if self.n_entries > MOST_ENTRIES:
            return None

        def solved() -> Relaxation | None:
            left = seconds - (time.monotonic() - began)
            return self._solved(allowed, entering, leaving, turns, converting, limits, left)

        relaxation = solved()
        if relaxation is None or not in_order:
            return relaxation
        enters, leaves = self.crossing
        order = OrderRows(self, problem, self.x, enters, leaves, self.turn)
        for _ in range(MOST_ROUNDS):
            if time.monotonic() - began > seconds or not order.add_violated(self._solution):
                break
            tighter = solved()
            if tighter is None:
                break
            if tighter.bound_ns > relaxation.bound_ns:
                relaxation = replace(tighter, prices=relaxation.prices)
        return relaxation

    def _solved(
        self,
        allowed: Bools,
        entering: tuple[Ints, Ints, Ints],
        leaving: tuple[Ints, Ints, Ints],
        turns: Turns,
        converting: tuple[tuple[Ints, Ints], tuple[Ints, Ints]],
        limits: Ints,
        seconds: float,
    ) -> Relaxation | None:
        a = self.arrays
        cost, limit, matrix = self.cost, self.limit, self.matrix
        # Paths and overheads are in ns, their rows in ns as well: scaled by their largest factor.
        units = np.where(limit > 1.0, np.maximum(limit, 1e-300), 1.0)
        upper = np.where(limit > 1.0, 1.0, limit)
        total = _typical_total(cost[: a.n * a.t].reshape(a.n, a.t), allowed)
        total = max(total, float(np.abs(cost * units).max(initial=0.0)))
        scale = TOTAL / total if total > 0 else 1.0
        upper[: a.n * a.t] = allowed.ravel()
        rows = csr_array(matrix.multiply(units[None, :]))
        largest = np.asarray(abs(rows).max(axis=1).todense()).ravel() if self.n_rows else np.ones(0)
        largest[largest == 0] = 1.0
        rows = csr_array(rows.multiply(1.0 / largest[:, None]))
        one = csr_array(
            (np.ones(a.n * a.t), (np.repeat(np.arange(a.n), a.t), np.arange(a.n * a.t))),
            shape=(a.n, self.n_columns),
        )
        low = self.least
        solve: Any = linprog  # its stubs have no time limit together with a method
        options: dict[str, Any] = {"time_limit": max(0.05, min(seconds, 1e6))}
        if self.n_columns > DEVEX_COLUMNS:
            options["simplex_dual_edge_weight_strategy"] = "devex"
        result = solve(
            cost * units * scale,
            A_ub=-rows if self.n_rows else None,
            b_ub=-low / largest if self.n_rows else None,
            A_eq=one,
            b_eq=np.ones(a.n),
            bounds=np.stack([np.zeros(self.n_columns), upper], axis=1),
            method="highs-ds" if self.n_columns < MANY_COLUMNS else "highs-ipm",
            options=options,
        )
        if result.status != 0:
            return None
        marginals = result.ineqlin.marginals if self.n_rows else np.zeros(0)
        price = np.maximum(0.0, -marginals) / largest / scale
        reduced = cost - (matrix.T @ price if self.n_rows else 0.0)
        x = self.x.ravel()
        own = np.where(allowed, reduced[x].reshape(a.n, a.t), np.inf)
        rest = np.ones(self.n_columns, dtype=np.bool_)
        rest[x] = False
        slack = float(np.minimum(reduced[rest], 0.0) @ limit[rest])
        least = own.min(axis=1)
        size = float(np.abs(least).sum() + np.abs(price * low).sum()) - slack
        bound = float(least.sum() + price @ low) + slack - size * _ROUNDING
        rates = np.zeros(len(self.budgets))
        rates[limits >= 0] = price[limits[limits >= 0]]
        self._solution: Floats = result.x
        share = np.clip(result.x[x].reshape(a.n, a.t), 0.0, 1.0)
        prices = self._prices(price, least, slack, entering, leaving, turns, converting)
        regions = self.regions
        units_ns = (own - least[:, None])[regions.units, regions.target[regions.region]]
        extra = np.maximum(reduced[self.region], 0.0)
        extra += np.bincount(regions.region, units_ns, regions.count)
        region_cost_ns = dict(zip(self._names, extra.tolist(), strict=True))
        return Relaxation(max(0.0, bound), share, own, prices, rates, region_cost_ns)

    def _prices(
        self,
        price: Floats,
        least: Floats,
        slack: float,
        entering: tuple[Ints, Ints, Ints],
        leaving: tuple[Ints, Ints, Ints],
        turns: Turns,
        converting: tuple[tuple[Ints, Ints], tuple[Ints, Ints]],
    ) -> Prices:
        a = self.arrays
        by_reading = np.zeros((2, len(a.readers), a.t))
        for side, (rows, reading, target) in enumerate((entering, leaving)):
            by_reading[side, reading, target] = price[rows]
        switch = np.zeros((a.n, a.t))
        switch_begin = np.zeros(a.t)
        head = np.repeat(np.arange(a.n), np.diff(a.predecessor_at))
        np.add.at(switch, (head[turns.dependency], turns.target), price[turns.rows])
        np.add.at(switch, (a.predecessors[turns.dependency], turns.target), -price[turns.rows])
        for begin, first, open_use in turns.begin:
            begun = price[begin][:, None] * open_use[None, :]
            switch[first] += begun
            switch_begin -= begun.sum(axis=0)
        by_format = np.zeros((2, len(a.readers)))
        for side, (rows, reading) in enumerate(converting):
            by_format[side, reading] = price[rows]
        enters, leaves = by_reading
        to_int8, to_float = by_format
        return Prices(least, enters, leaves, switch, switch_begin, to_int8, to_float, slack)


def _typical_total(cost: Floats, allowed: Bools) -> float:
    """Returns the approximate cost of a plan, for scaling."""
    return float(np.where(allowed, cost, 0.0).max(axis=1).sum())
