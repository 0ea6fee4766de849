"""Plans of few segments as a mixed-integer programme over phases.

A plan is a monotone labelling (:mod:`.expansion`): each unit has a phase, which never falls along a
dependency. With few phases, each of one target or of a choice of them, that is a small programme:

* ``after[u, s]``, whole: unit u stands in phase s or later; no less than that of what it reads.
* ``x[u, s, k]``: it stands in phase s, on target k; their sum over k is ``after[u, s] - after[u, s
  + 1]``.
* ``used[s, k]``: phase s is a segment on k: at least every ``x[u, s, k]``, and at most one a phase.
* ``enters``, ``leaves``: values brought into a phase and handed over by it, as in
  :mod:`.relaxation`, of which this is the programme with phases in the place of targets.
* ``whole[g, s]``: a region measured whole that costs less than its parts is in phase s. Regions
  that share units exclude each other.

Where a budget leaves room for R segments on accelerators, and one target is free of it, plans of R
phases of accelerators with one of that target before, between and behind them are all plans, and
what HiGHS proves bounds them all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from nnapi_prof.partition.arrays import Bools, Ints
from nnapi_prof.partition.constraints import Budget
from nnapi_prof.partition.problem import Placement, Problem
from nnapi_prof.partition.search.programme import TOTAL, Programme

MOST_ENTRIES = 400_000
"""Non-zeros; of a larger programme HiGHS has hardly a plan in seconds."""
MOST_PHASES, MORE_PHASES = 9, 2
"""Of a programme about a plan, and how many more it has than that plan."""
TOLERANCE = 2e-6
"""Relative to all costs: taken off what HiGHS says it proves, which works to 1e-6."""


@dataclass(frozen=True, slots=True)
class PhasesResult:
    """The best plan of some phases, and HiGHS's bound."""

    placements: tuple[Placement, ...] | None
    bound_ns: float
    """No plan of these phases costs less; inf where none keeps to the budgets."""


def chain_within(
    problem: Problem, budgets: Sequence[Budget], most: int
) -> list[tuple[int, ...]] | None:
    """Targets of phases that every plan within the budgets has; None where budgets do not tell, or
    leave more than ``most`` segments on accelerators."""
    used: Bools = np.asarray(np.isfinite(problem.unit_ns).any(axis=0))
    for budget in budgets:
        counted = (budget.open_use > 0) & used
        free = np.flatnonzero(~counted & used)
        if not counted.any() or len(free) > 1 or budget.region_use:
            continue
        count = budget.limit * (1 + 1e-9) / float(budget.open_use[counted].min())
        if count >= most + 1:
            continue
        chain = [tuple(free.tolist())]
        for _ in range(math.floor(count)):
            chain += [tuple(np.flatnonzero(counted).tolist()), tuple(free.tolist())]
        return [targets for targets in chain if targets]
    return None


def chain_about(problem: Problem, plan: Sequence[Placement]) -> list[tuple[int, ...]]:
    """Phases of two targets in turn, some more than a plan of these has; none where it has many
    segments, or other than two targets."""
    targets = sorted({k for _, k in plan})
    if len(targets) == 1 and len(problem.targets) == 2:
        targets = [0, 1]
    count = len(plan) + MORE_PHASES
    if len(targets) != 2 or count > MOST_PHASES:
        return []
    return [(targets[s % 2],) for s in range(count)]


def solve_phases(
    problem: Problem,
    chain: Sequence[Sequence[int]],
    seconds: float,
    budgets: Sequence[Budget] = (),
) -> PhasesResult | None:
    """The fastest plan of a chain of phases, each on one of its targets; None where the programme
    is too large or says nothing in time, where units run only inside regions measured whole, or
    where values have formats."""
    regions = problem.regions
    only_inside = np.isfinite(regions.ns) & ~np.isfinite(regions.parts_ns)
    runs = np.isfinite(problem.unit_ns).any(axis=1).all()
    if problem.arrays.converts or only_inside.any() or not runs:
        return None
    return _Phases(problem, chain, budgets).solve(seconds)


class _Phases(Programme):
    """The programme under construction; its rows are ``a x >= 0``, but for some."""

    def __init__(
        self, problem: Problem, chain: Sequence[Sequence[int]], budgets: Sequence[Budget]
    ) -> None:
        super().__init__()
        self._problem = problem
        self._phase = np.array([s for s, targets in enumerate(chain) for _ in targets])
        self._target = np.array([k for targets in chain for k in targets])
        self._n_phases = len(chain)
        self._equal: list[Ints] = []
        a = problem.arrays
        unit_ns = a.unit_ns[:, self._target]
        allowed = np.isfinite(unit_ns)
        cost = np.where(allowed, unit_ns, 0.0)
        output = a.is_output & (a.producer >= 0)
        np.add.at(cost, a.producer[output], a.out_ns[output][:, self._target])
        self._x = self.columns(cost, allowed.astype(np.float64))
        self._after = self.columns(np.zeros((a.n, self._n_phases - 1)))
        self._order()
        handed = (a.producer >= 0) & ~a.is_output
        self._transfers(a.in_ns, np.ones(len(a.readers), dtype=np.bool_), 1.0)
        self._transfers(a.out_ns, handed[a.reader_value], -1.0)
        self._segments(budgets)
        self._regions()

    def _order(self) -> None:
        """Phases of units, and that they do not fall."""
        a, n = self._problem.arrays, self._problem.n
        head = np.repeat(np.arange(n), np.diff(a.predecessor_at))
        for s in range(self._n_phases - 1):
            rows = self.rows(len(head))
            self.add(rows, self._after[head, s], 1.0)
            self.add(rows, self._after[a.predecessors, s], -1.0)
            if s:
                rows = self.rows(n)
                self.add(rows, self._after[:, s - 1], 1.0)
                self.add(rows, self._after[:, s], -1.0)
        for s in range(self._n_phases):
            rows = self.rows(n)
            self.add(rows[:, None], self._x[:, self._phase == s], -1.0)
            if s:
                self.add(rows, self._after[:, s - 1], 1.0)
            if s + 1 < self._n_phases:
                self.add(rows, self._after[:, s], -1.0)
            self._equal.append(rows)
            if s == 0:
                self.low |= dict.fromkeys(rows.tolist(), -1.0)

    def _transfers(self, ns: np.ndarray, entries: np.ndarray, sign: float) -> None:
        """Values brought in (``sign`` 1) or handed over (-1), and the readings that say so."""
        a = self._problem.arrays
        able = entries[:, None] & (ns[a.reader_value] > 0)[:, self._target]
        reading, place = np.nonzero(able)
        value, count = a.reader_value[reading], len(self._target)
        pairs, which = np.unique(value * count + place, return_inverse=True)
        columns = self.columns(ns[pairs // count, self._target[pairs % count]])
        rows = self.rows(len(reading))
        self.add(rows, columns[which], 1.0)
        self.add(rows, self._x[a.readers[reading], place], -sign)
        made = a.producer[value] >= 0
        self.add(rows[made], self._x[a.producer[value[made]], place[made]], sign)

    def _segments(self, budgets: Sequence[Budget]) -> None:
        """Phases that are segments, one target each, and what they use of budgets."""
        p, n = self._problem, self._problem.n
        overhead = p.overhead_ns[self._target]
        opens = sum((b.open_use[self._target] for b in budgets), np.zeros(len(overhead)))
        sizes = np.bincount(self._phase)
        self._used = self.columns(overhead)
        for i in np.flatnonzero((overhead > 0) | (opens > 0) | (sizes[self._phase] > 1)):
            rows = self.rows(n)
            self.add(rows, self._used[i : i + 1], 1.0)
            self.add(rows, self._x[:, i], -1.0)
        for s in np.flatnonzero(sizes > 1):
            (row,) = self.rows(1)
            self.add(np.array([row]), self._used[self._phase == s], -1.0)
            self.low[row] = -1.0
        for budget in budgets:
            (row,) = self.rows(1)
            self.add(np.array([row]), self._used, -budget.open_use[self._target])
            use = budget.unit_use[:, self._target]
            units, places = np.nonzero(use)
            self.add(np.full(len(units), row), self._x[units, places], -use[units, places])
            self.low[row] = -budget.limit * (1 + 1e-9)

    def _regions(self) -> None:
        """Regions that cost less whole than by their parts."""
        regions = self._problem.regions
        regions = regions.subset(np.flatnonzero(regions.ns < regions.parts_ns))
        for i, k in enumerate(self._target.tolist()):
            own = regions.subset(np.flatnonzero(regions.target == k))
            if not own.count:
                continue
            columns = self.columns(own.ns - own.parts_ns)
            units, which = np.unique(own.units, return_inverse=True)
            rows = self.rows(len(units))
            self.add(rows, self._x[units, i], 1.0)
            self.add(rows[which], columns[own.region], -1.0)

    def solve(self, seconds: float) -> PhasesResult | None:
        if self.n_entries > MOST_ENTRIES:
            return None
        cost, x = self.cost, self._x
        total = float(cost[x].max(axis=1).sum() + cost[self._used].sum())
        scale = TOTAL / total if total > 0 else 1.0
        low, high = self.least, np.full(self.n_rows, np.inf)
        equal = np.concatenate(self._equal)
        high[equal] = low[equal]
        whole = np.zeros(self.n_columns, dtype=np.int8)
        whole[self._after] = 1
        several = np.bincount(self._phase)[self._phase] > 1
        whole[x[:, several]] = 1
        answer = milp(
            cost * scale,
            integrality=whole,
            bounds=Bounds(0.0, self.limit),
            constraints=LinearConstraint(self.matrix, low, high),
            options={"time_limit": max(0.05, seconds), "mip_rel_gap": 1e-7},
        )
        if answer.status == 2:  # infeasible
            return PhasesResult(None, math.inf)
        bound = getattr(answer, "mip_dual_bound", None)
        if answer.x is None or bound is None:
            return None
        place = answer.x[x].argmax(axis=1)
        plan = tuple(
            (tuple(np.flatnonzero(place == i).tolist()), int(self._target[i]))
            for i in np.unique(place)
        )
        return PhasesResult(plan, max(0.0, (float(bound) - TOTAL * TOLERANCE) / scale))
