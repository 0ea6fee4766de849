"""Plans of few segments as a mixed-integer programme over phases.

A plan is a monotone labelling (:mod:`.expansion`): each unit has a phase, which never falls along a
dependency. With few phases, each of a given target, that is a small programme:

* ``after[u, s]``, whole: unit u stands in phase s or later; no less than that of what it reads.
* ``x[u, s]``: it stands in phase s: ``after[u, s] - after[u, s + 1]``.
* ``used[s]``: phase s is a segment: at least every ``x[u, s]``.
* ``enters``, ``leaves``: values brought into a phase and handed over by it, as in
  :mod:`.relaxation`, of which this is the programme with phases in the place of targets.
* ``whole[g, s]``: a region measured whole that costs less than its parts is in phase s. Regions
  that share units exclude each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from nnapi_prof.partition.arrays import Ints, Regions
from nnapi_prof.partition.problem import Placement, Problem
from nnapi_prof.partition.search.programme import TOTAL
from nnapi_prof.partition.search.relaxation_rows import RelaxationRows

MOST_ENTRIES = 400_000
"""Non-zeros; of a larger programme HiGHS has hardly a plan in seconds."""
MOST_PHASES, MORE_PHASES = 9, 2
"""Of a programme about a plan, and how many more it has than that plan."""


def chain_about(problem: Problem, plan: Sequence[Placement]) -> list[int]:
    """Phases of two targets in turn, some more than a plan of these has; none where it has many
    segments, or other than two targets."""
    targets = sorted({k for _, k in plan})
    if len(targets) == 1 and len(problem.targets) == 2:
        targets = [0, 1]
    count = len(plan) + MORE_PHASES
    if len(targets) != 2 or count > MOST_PHASES:
        return []
    return [targets[s % 2] for s in range(count)]


def solve_phases(
    problem: Problem, chain: Sequence[int], seconds: float
) -> tuple[Placement, ...] | None:
    """The fastest plan of phases on these targets; None where the programme is too large or has no
    plan in time, where units run only inside regions measured whole, or where values have
    formats."""
    regions = problem.regions
    only_inside = np.isfinite(regions.ns) & ~np.isfinite(regions.parts_ns)
    runs = np.isfinite(problem.unit_ns).any(axis=1).all()
    if problem.arrays.converts or only_inside.any() or not runs:
        return None
    return _Phases(problem, np.array(chain)).solve(seconds)


class _Phases(RelaxationRows):
    """The programme under construction: of the problem whose targets are the phases."""

    def __init__(self, problem: Problem, targets: Ints) -> None:
        phases = replace(
            problem,
            targets=tuple(problem.targets[k] for k in targets.tolist()),
            unit_ns=problem.unit_ns[:, targets],
            overhead_ns=problem.overhead_ns[targets],
            in_ns_per_byte=problem.in_ns_per_byte[targets],
            out_ns_per_byte=problem.out_ns_per_byte[targets],
            region_ns={},
            formats=None,
        )
        super().__init__(phases, ())
        self._targets = targets
        self._equal: list[Ints] = []
        a = self.arrays
        allowed = np.isfinite(a.unit_ns)
        cost = np.where(allowed, a.unit_ns, 0.0)
        output = a.is_output & (a.producer >= 0)
        np.add.at(cost, a.producer[output], a.out_ns[output])
        self.x = self.columns(cost, allowed.astype(np.float64))
        self.regions = phases.regions
        self._after = self.columns(np.zeros((a.n, len(targets) - 1)))
        self._order()
        handed = (a.producer >= 0) & ~a.is_output
        self.transfers(a.in_ns, np.ones(len(a.readers), dtype=np.bool_), allowed, into=True)
        self.transfers(a.out_ns, handed[a.reader_value], allowed, into=False)
        self._used = self.columns(a.overhead_ns)
        for s in np.flatnonzero(a.overhead_ns > 0):
            rows = self.rows(a.n)
            self.add(rows, self._used[s : s + 1], 1.0)
            self.add(rows, self.x[:, s], -1.0)
        self._whole(problem.regions)

    def _order(self) -> None:
        """Phases of units, and that they do not fall."""
        a, n, last = self.arrays, self.arrays.n, len(self._targets) - 1
        head = np.repeat(np.arange(n), np.diff(a.predecessor_at))
        for s in range(last):
            rows = self.rows(len(head))
            self.add(rows, self._after[head, s], 1.0)
            self.add(rows, self._after[a.predecessors, s], -1.0)
            if s:
                rows = self.rows(n)
                self.add(rows, self._after[:, s - 1], 1.0)
                self.add(rows, self._after[:, s], -1.0)
        for s in range(last + 1):
            rows = self.rows(n)
            self.add(rows, self.x[:, s], -1.0)
            if s:
                self.add(rows, self._after[:, s - 1], 1.0)
            if s < last:
                self.add(rows, self._after[:, s], -1.0)
            self._equal.append(rows)
            if s == 0:
                self.low |= dict.fromkeys(rows.tolist(), -1.0)

    def _whole(self, regions: Regions) -> None:
        """Regions that cost less whole than by their parts."""
        regions = regions.subset(np.flatnonzero(regions.ns < regions.parts_ns))
        for s, k in enumerate(self._targets.tolist()):
            own = regions.subset(np.flatnonzero(regions.target == k))
            if not own.count:
                continue
            columns = self.columns(own.ns - own.parts_ns)
            units, which = np.unique(own.units, return_inverse=True)
            rows = self.rows(len(units))
            self.add(rows, self.x[units, s], 1.0)
            self.add(rows[which], columns[own.region], -1.0)

    def solve(self, seconds: float) -> tuple[Placement, ...] | None:
        if self.n_entries > MOST_ENTRIES:
            return None
        cost, x = self.cost, self.x
        total = float(cost[x].max(axis=1).sum() + cost[self._used].sum())
        low, high = self.least, np.full(self.n_rows, np.inf)
        equal = np.concatenate(self._equal)
        high[equal] = low[equal]
        whole = np.zeros(self.n_columns, dtype=np.int8)
        whole[self._after] = 1
        answer = milp(
            cost * (TOTAL / total if total > 0 else 1.0),
            integrality=whole,
            bounds=Bounds(0.0, self.limit),
            constraints=LinearConstraint(self.matrix, low, high),
            options={"time_limit": max(0.05, seconds), "mip_rel_gap": 1e-7},
        )
        if answer.x is None:
            return None
        phase = answer.x[x].argmax(axis=1)
        return tuple(
            (tuple(np.flatnonzero(phase == s).tolist()), int(self._targets[s]))
            for s in np.unique(phase)
        )
