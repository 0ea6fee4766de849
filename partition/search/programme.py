"""Construct linear programmes: columns with costs and limits, and rows as triples.

:class:`RelaxationRows` are the rows of :mod:`.relaxation`, which explains them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from nnapi_prof.partition.arrays import AS_FLOAT, AS_INT8, Arrays, Bools, Floats, Ints, Regions
from nnapi_prof.partition.constraints import Budget
from nnapi_prof.partition.problem import Problem

TOTAL = 1e4
"""Sum that costs are scaled to: HiGHS works to an absolute 1e-7."""


class Programme:
    """Columns between 0 and a limit, 1 by default, and rows of factors for them."""

    def __init__(self) -> None:
        self._cost: list[Floats] = []
        self._limit: list[Floats] = []
        self._row: list[Ints] = []
        self._column: list[Ints] = []
        self._factor: list[Floats] = []
        self._single: list[tuple[int, int, float]] = []
        """Row, column and factor of entries added one by one."""
        self.low: dict[int, float] = {}
        """Least values of rows, where not 0"""
        self.n_columns = 0
        self.n_rows = 0

    def columns(self, cost: Floats, limit: Floats | float = 1.0) -> Ints:
        """Adds columns; returns their indices."""
        added = np.arange(self.n_columns, self.n_columns + cost.size).reshape(cost.shape)
        self._cost.append(cost.ravel())
        self._limit.append(np.broadcast_to(limit, cost.shape).ravel())
        self.n_columns += cost.size
        return added

    def column(self, cost: float = 0.0, limit: float = 1.0) -> int:
        """Adds one column; returns its index."""
        return int(self.columns(np.array([cost]), limit)[0])

    def rows(self, count: int) -> Ints:
        """Adds rows; returns their indices."""
        added = np.arange(self.n_rows, self.n_rows + count)
        self.n_rows += count
        return added

    def row(self, terms: Sequence[tuple[int, float]], low: float = 0.0) -> int:
        """Adds one row of columns with factors; returns its index."""
        row = int(self.rows(1)[0])
        for column, factor in terms:
            self.enter(row, column, factor)
        if low:
            self.low[row] = low
        return row

    def enter(self, row: int, column: int, factor: float) -> None:
        """Adds one entry of a row."""
        self._single.append((row, column, factor))

    def add(self, row: Ints, column: Ints, factor: Floats | float) -> None:
        """Adds entries of rows; entries at the same place add up."""
        shape = np.broadcast_shapes(row.shape, column.shape, np.shape(factor))
        self._row.append(np.broadcast_to(row, shape).ravel())
        self._column.append(np.broadcast_to(column, shape).ravel())
        self._factor.append(np.broadcast_to(np.asarray(factor, np.float64), shape).ravel())

    @property
    def n_entries(self) -> int:
        """Number of non-zeros, counting each one at the same place."""
        return sum(map(len, self._row)) + len(self._single)

    @property
    def cost(self) -> Floats:
        """[columns]"""
        return np.concatenate(self._cost)

    @property
    def limit(self) -> Floats:
        """[columns]"""
        return np.concatenate(self._limit)

    @property
    def least(self) -> Floats:
        """[rows]: least value of each row."""
        least = np.zeros(self.n_rows)
        least[list(self.low)] = list(self.low.values())
        return least

    @property
    def matrix(self) -> csr_array:
        """[rows, columns]"""
        single = np.array(self._single, dtype=np.float64).reshape(-1, 3).T
        row, column = single[:2].astype(np.int64)
        where = np.concatenate([*self._row, row]), np.concatenate([*self._column, column])
        factor = np.concatenate([*self._factor, single[2]])
        return csr_array((factor, where), shape=(self.n_rows, self.n_columns))


@dataclass(frozen=True, slots=True)
class Turns:
    """Columns for the places where segments begin."""

    rows: Ints
    dependency: Ints
    target: Ints
    """Target of each row"""
    begin: list[tuple[Ints, Ints, Floats]]
    """Rows of first units, these units, and [t] the cost or use of a segment there"""
    total: list[int]
    """Column of the largest cost of a path, and of its use of each budget; -1 for none"""


class RelaxationRows(Programme):
    """Rows under construction: ``a x >= 0``, except for budgets."""

    def __init__(self, problem: Problem, budgets: Sequence[Budget]) -> None:
        super().__init__()
        self.problem = problem
        self.budgets = budgets
        self.arrays: Arrays = problem.arrays
        self.crossing: list[Ints] = []
        """[m, t] each: columns of values entering and of values leaving; -1 for none"""
        self.x: Ints
        """[n, t] columns"""
        self.turn: Ints
        """[dependencies, t] columns of turns; -1 for none"""
        self.regions: Regions
        """Regions measured whole that the bound must include, ..."""
        self.region: Ints
        """... and their columns"""

    def transfers(
        self, ns: Floats, entries: Bools, allowed: Bools, *, into: bool
    ) -> tuple[Ints, Ints, Ints]:
        """Adds rows of values that cross a border; returns the rows, readings and targets."""
        a = self.arrays
        sign = 1.0 if into else -1.0
        producer = a.producer[a.reader_value]
        # A value crosses a border only where the side that pays can run at all.
        payer = a.readers if into else producer
        able = entries[:, None] & (ns[a.reader_value] > 0) & allowed[payer]
        reading, target = np.nonzero(able)
        value = a.reader_value[reading]
        pairs, which = np.unique(value * a.t + target, return_inverse=True)
        columns = self.columns(ns[pairs // a.t, pairs % a.t])
        self.crossing.append(np.full(ns.shape, -1))
        self.crossing[-1][pairs // a.t, pairs % a.t] = columns
        rows = self.rows(len(reading))
        self.add(rows, columns[which], 1.0)
        self.add(rows, self.x[a.readers[reading], target], -sign)
        has_maker = producer[reading] >= 0
        self.add(rows[has_maker], self.x[producer[reading[has_maker]], target[has_maker]], sign)
        far, near = (producer, a.readers) if into else (a.readers, producer)
        self._of_regions(reading, target, rows, columns[which], far, near)
        return rows, reading, target

    def _of_regions(
        self, pair: Ints, target: Ints, rows: Ints, columns: Ints, far: Ints, near: Ints
    ) -> None:
        """Adds rows of the border of a region that is a segment: values cross it in any case.

        The rows have ``x[near] - x[far]`` for pairs of units (-1 for none). A region that holds
        only the far unit adds itself to them; one that holds only the near unit has rows of its
        own.
        """
        regions, t = self.regions, self.arrays.t
        if not regions.count:
            return
        row_of = np.full((len(far), t), -1)
        row_of[pair, target] = rows
        column_of = np.full((len(far), t), -1)
        column_of[pair, target] = columns
        beyond, region = regions.holding(far, near)
        has_row = row_of[beyond, regions.target[region]] >= 0
        beyond, region = beyond[has_row], region[has_row]
        self.add(row_of[beyond, regions.target[region]], self.region[region], -1.0)
        across, region = regions.holding(near, far)
        has_row = row_of[across, regions.target[region]] >= 0
        across, region = across[has_row], region[has_row]
        places, which = np.unique(across * t + regions.target[region], return_inverse=True)
        added = self.rows(len(places))
        self.add(added, column_of.ravel()[places], 1.0)
        self.add(added[which], self.region[region], -1.0)

    def turns(self, allowed: Bools) -> Turns:
        """Adds rows of turns, and of the paths that sum the costs and budget uses of segments."""
        a = self.arrays
        head = np.repeat(np.arange(a.n), np.diff(a.predecessor_at))
        counted = [budget.open_use if _is_row(budget) else None for budget in self.budgets]
        uses = [use for use in counted if use is not None]
        paid = np.flatnonzero(np.any([a.overhead_ns > 0, *(use > 0 for use in uses)], axis=0))
        dependency, at = np.nonzero(allowed[head][:, paid])
        target = paid[at]
        turn = self.columns(np.zeros(len(dependency)))
        self.turn = np.full((len(head), a.t), -1)
        self.turn[dependency, target] = turn
        rows = self.rows(len(dependency))
        self.add(rows, turn, 1.0)
        self.add(rows, self.x[head[dependency], target], -1.0)
        self.add(rows, self.x[a.predecessors[dependency], target], 1.0)
        self._of_regions(dependency, target, rows, turn, a.predecessors, head)
        turns = Turns(rows, dependency, target, [], [])
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
            self.add(begin[:, None], self.x[first][:, paid], -open_use[paid][None, :])
            turns.begin.append((begin, first, open_use))
            last = np.flatnonzero(np.diff(a.successor_at) == 0)
            total = self.columns(np.full(1, cost), float(depth.max()) * most)
            end = self.rows(len(last))
            self.add(end, total[:1], 1.0)
            self.add(end, path[last], -1.0)
            turns.total.append(int(total[0]))
        return turns

    def _depth(self) -> Floats:
        """Returns [n]: number of units on the longest path up to each."""
        a = self.arrays
        depth = np.ones(a.n)
        for u in range(a.n):
            before = a.predecessors[a.predecessor_at[u] : a.predecessor_at[u + 1]]
            if len(before):
                depth[u] = depth[before].max() + 1
        return depth

    def output_conversions(self, cost: Floats) -> None:
        """Adds the conversion of outputs needed in another format to the cost of their makers."""
        a = self.arrays
        for ns, bit, fmt in ((a.to_int8_ns, AS_INT8, 1), (a.to_float_ns, AS_FLOAT, 0)):
            output = np.flatnonzero((a.producer >= 0) & (a.formats_out & bit != 0))
            at = a.producer[output][:, None], np.flatnonzero(a.format != fmt)[None, :]
            np.add.at(cost, at, ns[output][:, None])

    def conversions(self, allowed: Bools) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
        """Adds rows of conversions to 8-bit integers and to floats; returns rows and readings."""
        a = self.arrays
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
            self.add(rows[:, None], self.x[a.readers[reading]][:, own], -1.0)
            of_unit = maker[reading] >= 0
            self.add(rows[of_unit][:, None], self.x[maker[reading[of_unit]]][:, own], 1.0)
            sides.append((rows, reading))
        return sides[0], sides[1]

    def limits(self, totals: Sequence[int]) -> Ints:
        """Adds rows of the budgets and returns them, -1 for a budget without a row; ``totals`` are
        the columns of the segments' use of each."""
        rows = np.full(len(self.budgets), -1)
        for i, (budget, total) in enumerate(zip(self.budgets, totals, strict=True)):
            if not _is_row(budget):
                continue
            rows[i] = self.rows(1)[0]
            self.low[int(rows[i])] = -budget.limit * (1 + 1e-9)
            units, targets = np.nonzero(budget.unit_use)
            factor = -budget.unit_use[units, targets]
            self.add(np.full(len(units), rows[i]), self.x[units, targets], factor)
            if total >= 0:
                self.add(rows[i : i + 1], np.array([total]), -1.0)
        return rows

    def whole(self, only_inside: Bools) -> None:
        """Adds rows by which regions that share a unit on a target exclude each other."""
        a, regions = self.arrays, self.regions
        if not regions.count:
            return
        place = regions.units * a.t + regions.target[regions.region]
        column = self.region[regions.region]
        pairs, which = np.unique(place, return_inverse=True)
        rows = self.rows(len(pairs))
        self.add(rows, self.x.ravel()[pairs], 1.0)
        self.add(rows[which], column, -1.0)
        needs = only_inside.ravel()[pairs]
        needed = np.full(len(pairs), -1)
        needed[needs] = self.rows(int(needs.sum()))
        self.add(needed[needs], self.x.ravel()[pairs[needs]], -1.0)
        chosen = needed[which] >= 0
        self.add(needed[which][chosen], column[chosen], 1.0)


def _is_row(budget: Budget) -> bool:
    """Tells whether a budget's use is at least that of units and of segments along any path."""
    return math.isfinite(budget.limit) and not budget.region_use


def useful_regions(problem: Problem) -> Ints:
    """Returns the places of the regions measured whole that the bound must include: those cheaper
    than their parts, and those with units that the target runs in no other way."""
    regions = problem.regions
    return np.flatnonzero((regions.ns < regions.parts_ns) & np.isfinite(regions.ns))
