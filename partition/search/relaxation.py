"""A lower bound of every plan, from a linear programme, and the prices that prove it.

Variables, each between 0 and 1 unless said otherwise:

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
  inside such regions needs one of them there. What crosses the border of such a segment enters,
  leaves or turns there, even where the same target runs on beyond it.
* ``converts[v, f]``: value v is converted to format f: at least ``x[r, f] - x[p, f]`` for each
  reader r, where ``x[u, f]`` is the sum over the targets of that format.

Budgets are rows: what units use, and segments along any path, as with overheads, is at most the
limit. Those that know of regions better than by their parts are left out.

Every plan is a solution, so none costs less than the least one. The bound is taken from the dual
side: with prices y >= 0 on the rows (``a x >= b``, and b is 0 but for budgets), no solution costs
less than

    sum over u of min over k of (c - y A)[u, k]  +  sum over other columns of min(0, c - yA) x limit
    + y b

whatever the prices are, so that rounding in the solver cannot raise it above the truth (Neumaier
and Shcherbina, "Safe bounds in linear and mixed-integer linear programming", Math. Program. 99,
2004). The same prices bound what remains of a plan after any prefix (:class:`~.prices.Prices`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from nnapi_prof.partition.arrays import AS_FLOAT, AS_INT8, Arrays, Bools, Floats, Ints, Regions
from nnapi_prof.partition.constraints import Budget
from nnapi_prof.partition.problem import Problem
from nnapi_prof.partition.search.order import OrderRows
from nnapi_prof.partition.search.prices import Prices
from nnapi_prof.partition.search.programme import TOTAL, Programme

MOST_ENTRIES = 3_000_000
"""Non-zeros; a larger programme would take minutes and gigabytes."""
MANY_COLUMNS = 60_000
"""From here on HiGHS's interior points are faster than its simplex."""
DEVEX_COLUMNS = 15_000
"""From here on the simplex with Devex prices takes half of what it does with steepest edges."""
MOST_ROUNDS = 25
"""Of rows that know the order of segments."""
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Relaxation:
    """A solved relaxation."""

    bound_ns: float
    share: Floats
    """[n, t] ``x``, between 0 and 1"""
    cost_ns: Floats
    """[n, t] what a plan costs at least with a unit on a target is ``bound_ns + cost_ns[u, k] -
    cost_ns[u].min()``; inf where it cannot run"""
    prices: Prices
    rates: Floats
    """[budgets] ns that a step of each is worth; 0 where the programme does not know it. Prices,
    ``cost_ns`` and the bound are of plans within the budgets, and prices and ``cost_ns`` have what
    their use is worth in them."""


def relax(
    problem: Problem,
    seconds: float = math.inf,
    budgets: Sequence[Budget] = (),
    *,
    in_order: bool = False,
) -> Relaxation | None:
    """Solves the relaxation; None where it is too large, not solved within ``seconds``, or where no
    plan keeps to the budgets. ``in_order`` adds rows that know the order of segments
    (:mod:`.order`), as far as time allows: all but the prices are of the programme with these."""
    return _Programme(problem, budgets).solve(seconds, in_order)


class _Programme(Programme):
    """The programme under construction; its rows are ``a x >= 0``, but for budgets."""

    def __init__(self, problem: Problem, budgets: Sequence[Budget]) -> None:
        super().__init__()
        self._problem = problem
        self._budgets = budgets
        self._arrays: Arrays = problem.arrays
        self._crossing: list[Ints] = []
        """[m, t] each: columns of what enters and of what leaves; -1 for none"""

    def solve(self, seconds: float, in_order: bool) -> Relaxation | None:
        began = time.monotonic()
        a, problem = self._arrays, self._problem
        regions = _useful_regions(problem)
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
            self._output_conversions(cost)
        self._x = self.columns(cost)
        self._regions = regions
        own = a.unit_ns[regions.units, regions.target[regions.region]]
        parts = np.bincount(regions.region, np.where(np.isfinite(own), own, 0.0), regions.count)
        self._region = self.columns(regions.ns - regions.border_ns - parts)
        entering = self._transfers(a.in_ns, ~entry_single, allowed, into=True)
        handed = (a.producer >= 0) & ~a.is_output
        leaving = self._transfers(a.out_ns, handed[a.reader_value], allowed, into=False)
        turns = self._turns(allowed)
        self._whole(inside & ~runs)
        none = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        converting = self._conversions(allowed) if a.converts else (none, none)
        limits = self._limits(turns.total[1:])
        if self.n_entries > MOST_ENTRIES:
            return None

        def solved() -> Relaxation | None:
            left = seconds - (time.monotonic() - began)
            return self._solved(allowed, entering, leaving, turns, converting, limits, left)

        relaxation = solved()
        if relaxation is None or not in_order:
            return relaxation
        enters, leaves = self._crossing
        order = OrderRows(self, problem, self._x, enters, leaves, self._turn)
        for _ in range(MOST_ROUNDS):
            if time.monotonic() - began > seconds or not order.add_violated(self._solution):
                break
            tighter = solved()
            if tighter is None:
                break
            if tighter.bound_ns > relaxation.bound_ns:
                relaxation = replace(tighter, prices=relaxation.prices)
        return relaxation

    def _transfers(
        self, ns: Floats, entries: Bools, allowed: Bools, *, into: bool
    ) -> tuple[Ints, Ints, Ints]:
        """Rows of values that cross a border, and the reading and target of each."""
        a = self._arrays
        sign = 1.0 if into else -1.0
        producer = a.producer[a.reader_value]
        # A border is crossed only where the side that pays can run at all.
        payer = a.readers if into else producer
        able = entries[:, None] & (ns[a.reader_value] > 0) & allowed[payer]
        reading, target = np.nonzero(able)
        value = a.reader_value[reading]
        pairs, which = np.unique(value * a.t + target, return_inverse=True)
        columns = self.columns(ns[pairs // a.t, pairs % a.t])
        self._crossing.append(np.full(ns.shape, -1))
        self._crossing[-1][pairs // a.t, pairs % a.t] = columns
        rows = self.rows(len(reading))
        self.add(rows, columns[which], 1.0)
        self.add(rows, self._x[a.readers[reading], target], -sign)
        has_maker = producer[reading] >= 0
        self.add(rows[has_maker], self._x[producer[reading[has_maker]], target[has_maker]], sign)
        far, near = (producer, a.readers) if into else (a.readers, producer)
        self._of_regions(reading, target, rows, columns[which], far, near)
        return rows, reading, target

    def _of_regions(
        self, pair: Ints, target: Ints, rows: Ints, columns: Ints, far: Ints, near: Ints
    ) -> None:
        """What crosses the border of a region that is a whole segment crosses it whatever runs
        beyond it.

        The rows have ``x[near] - x[far]`` for pairs of units (-1 for none): a region that holds the
        far one alone adds itself to them, and one that holds the near one alone has rows of its
        own.
        """
        regions, t = self._regions, self._arrays.t
        if not regions.count:
            return
        row_of = np.full((len(far), t), -1)
        row_of[pair, target] = rows
        column_of = np.full((len(far), t), -1)
        column_of[pair, target] = columns
        beyond, region = regions.holding(far, near)
        has_row = row_of[beyond, regions.target[region]] >= 0
        beyond, region = beyond[has_row], region[has_row]
        self.add(row_of[beyond, regions.target[region]], self._region[region], -1.0)
        across, region = regions.holding(near, far)
        has_row = row_of[across, regions.target[region]] >= 0
        across, region = across[has_row], region[has_row]
        places, which = np.unique(across * t + regions.target[region], return_inverse=True)
        added = self.rows(len(places))
        self.add(added, column_of.ravel()[places], 1.0)
        self.add(added[which], self._region[region], -1.0)

    def _turns(self, allowed: Bools) -> _Turns:
        """Rows of turns, and of the paths that add up what segments cost and use of budgets."""
        a = self._arrays
        head = np.repeat(np.arange(a.n), np.diff(a.predecessor_at))
        counted = [budget.open_use if _is_row(budget) else None for budget in self._budgets]
        uses = [use for use in counted if use is not None]
        paid = np.flatnonzero(np.any([a.overhead_ns > 0, *(use > 0 for use in uses)], axis=0))
        dependency, at = np.nonzero(allowed[head][:, paid])
        target = paid[at]
        turn = self.columns(np.zeros(len(dependency)))
        self._turn = np.full((len(head), a.t), -1)
        self._turn[dependency, target] = turn
        rows = self.rows(len(dependency))
        self.add(rows, turn, 1.0)
        self.add(rows, self._x[head[dependency], target], -1.0)
        self.add(rows, self._x[a.predecessors[dependency], target], 1.0)
        self._of_regions(dependency, target, rows, turn, a.predecessors, head)
        turns = _Turns(rows, dependency, target, [], [])
        depth = self._depth()
        for cost, open_use in ((1.0, a.overhead_ns), *((0.0, use) for use in counted)):
            if open_use is None or not open_use.any():
                turns.total.append(-1)
                continue
            # No path pays more than the most at each of its units.
            most = float(open_use.max())
            path = self.columns(np.zeros(a.n), depth * most)
            longer = self.rows(len(head))
            self.add(longer, path[head], 1.0)
            self.add(longer, path[a.predecessors], -1.0)
            self.add(longer[dependency], turn, -open_use[target])
            first = np.flatnonzero(np.diff(a.predecessor_at) == 0)
            begin = self.rows(len(first))
            self.add(begin, path[first], 1.0)
            self.add(begin[:, None], self._x[first][:, paid], -open_use[paid][None, :])
            turns.begin.append((begin, first, open_use))
            last = np.flatnonzero(np.diff(a.successor_at) == 0)
            total = self.columns(np.full(1, cost), float(depth.max()) * most)
            end = self.rows(len(last))
            self.add(end, total[:1], 1.0)
            self.add(end, path[last], -1.0)
            turns.total.append(int(total[0]))
        return turns

    def _depth(self) -> Floats:
        """[n]: units of the longest path up to each."""
        a = self._arrays
        depth = np.ones(a.n)
        for u in range(a.n):
            before = a.predecessors[a.predecessor_at[u] : a.predecessor_at[u + 1]]
            if len(before):
                depth[u] = depth[before].max() + 1
        return depth

    def _output_conversions(self, cost: Floats) -> None:
        """Outputs that are needed in another format than their maker's cost it that much more."""
        a = self._arrays
        for ns, bit, fmt in ((a.to_int8_ns, AS_INT8, 1), (a.to_float_ns, AS_FLOAT, 0)):
            output = np.flatnonzero((a.producer >= 0) & (a.formats_out & bit != 0))
            at = a.producer[output][:, None], np.flatnonzero(a.format != fmt)[None, :]
            np.add.at(cost, at, ns[output][:, None])

    def _conversions(self, allowed: Bools) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
        """Rows of conversions to 8-bit integers and to floats, and the reading of each."""
        a = self._arrays
        maker = a.producer[a.reader_value]
        sides = []
        for ns, bit, fmt in ((a.to_int8_ns, AS_INT8, 1), (a.to_float_ns, AS_FLOAT, 0)):
            free = (a.formats_in | a.formats_out) & bit != 0
            of_format = a.format == fmt
            able = (allowed & of_format).any(axis=1)
            reading = np.flatnonzero((ns > 0)[a.reader_value] & ~free[a.reader_value])
            reading = reading[able[a.readers[reading]]]
            values, which = np.unique(a.reader_value[reading], return_inverse=True)
            columns = self.columns(ns[values])
            rows = self.rows(len(reading))
            self.add(rows, columns[which], 1.0)
            own = np.flatnonzero(of_format)
            self.add(rows[:, None], self._x[a.readers[reading]][:, own], -1.0)
            of_unit = maker[reading] >= 0
            self.add(rows[of_unit][:, None], self._x[maker[reading[of_unit]]][:, own], 1.0)
            sides.append((rows, reading))
        return sides[0], sides[1]

    def _limits(self, totals: Sequence[int]) -> Ints:
        """Rows of the budgets, each -1 where it is none; ``totals`` are the columns of what
        segments use of each."""
        rows = np.full(len(self._budgets), -1)
        for i, (budget, total) in enumerate(zip(self._budgets, totals, strict=True)):
            if not _is_row(budget):
                continue
            rows[i] = self.rows(1)[0]
            self.low[int(rows[i])] = -budget.limit * (1 + 1e-9)
            units, targets = np.nonzero(budget.unit_use)
            factor = -budget.unit_use[units, targets]
            self.add(np.full(len(units), rows[i]), self._x[units, targets], factor)
            if total >= 0:
                self.add(rows[i : i + 1], np.array([total]), -1.0)
        return rows

    def _whole(self, only_inside: Bools) -> None:
        """Regions that share a unit on a target exclude each other."""
        a, regions = self._arrays, self._regions
        if not regions.count:
            return
        place = regions.units * a.t + regions.target[regions.region]
        column = self._region[regions.region]
        pairs, which = np.unique(place, return_inverse=True)
        rows = self.rows(len(pairs))
        self.add(rows, self._x.ravel()[pairs], 1.0)
        self.add(rows[which], column, -1.0)
        needs = only_inside.ravel()[pairs]
        needed = np.full(len(pairs), -1)
        needed[needs] = self.rows(int(needs.sum()))
        self.add(needed[needs], self._x.ravel()[pairs[needs]], -1.0)
        chosen = needed[which] >= 0
        self.add(needed[which][chosen], column[chosen], 1.0)

    def _solved(
        self,
        allowed: Bools,
        entering: tuple[Ints, Ints, Ints],
        leaving: tuple[Ints, Ints, Ints],
        turns: _Turns,
        converting: tuple[tuple[Ints, Ints], tuple[Ints, Ints]],
        limits: Ints,
        seconds: float,
    ) -> Relaxation | None:
        a = self._arrays
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
        solve: Any = linprog  # its stubs know no time limit beside a method
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
        x = self._x.ravel()
        own = np.where(allowed, reduced[x].reshape(a.n, a.t), np.inf)
        rest = np.ones(self.n_columns, dtype=np.bool_)
        rest[x] = False
        slack = float(np.minimum(reduced[rest], 0.0) @ limit[rest])
        least = own.min(axis=1)
        size = float(np.abs(least).sum() + np.abs(price * low).sum()) - slack
        bound = float(least.sum() + price @ low) + slack - size * _ROUNDING
        rates = np.zeros(len(self._budgets))
        rates[limits >= 0] = price[limits[limits >= 0]]
        self._solution: Floats = result.x
        share = np.clip(result.x[x].reshape(a.n, a.t), 0.0, 1.0)
        prices = self._prices(price, least, slack, entering, leaving, turns, converting)
        return Relaxation(max(0.0, bound), share, own, prices, rates)

    def _prices(
        self,
        price: Floats,
        least: Floats,
        slack: float,
        entering: tuple[Ints, Ints, Ints],
        leaving: tuple[Ints, Ints, Ints],
        turns: _Turns,
        converting: tuple[tuple[Ints, Ints], tuple[Ints, Ints]],
    ) -> Prices:
        a = self._arrays
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


@dataclass(frozen=True, slots=True)
class _Turns:
    """Where segments begin."""

    rows: Ints
    dependency: Ints
    target: Ints
    """Of each row"""
    begin: list[tuple[Ints, Ints, Floats]]
    """Rows of first units, these units, and [t] what a segment costs or uses there"""
    total: list[int]
    """The column of what a path costs at most, and of what it uses of each budget; -1 for none"""


def _is_row(budget: Budget) -> bool:
    """Whether a budget's use is no less than its units', and its segments' along any path."""
    return math.isfinite(budget.limit) and not budget.region_use


def _typical_total(cost: Floats, allowed: Bools) -> float:
    """What a plan costs about, to scale by."""
    return float(np.where(allowed, cost, 0.0).max(axis=1).sum())


def _useful_regions(problem: Problem) -> Regions:
    """The regions measured whole that the bound must know: those cheaper than their parts, and
    those with units that the target runs in no other way."""
    regions = problem.regions
    useful = (regions.ns < regions.parts_ns) & np.isfinite(regions.ns)
    return regions.subset(np.flatnonzero(useful))
