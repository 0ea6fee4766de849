"""Improve a plan by solving parts of the problem exactly: windows of it, and plans of few segments.

A window is a stretch of a plan; the rest is held fixed. The search for plans of few segments is a
mixed-integer programme over phases. A plan is a monotone labelling (:mod:`.expansion`): each unit
has a phase, which never falls along a dependency. With few phases, each of a given target, that is
a small programme:

* ``after[u, s]``, whole: unit u is in phase s or later; at least that of each unit it reads from.
* ``x[u, s]``: unit u is in phase s: ``after[u, s] - after[u, s + 1]``.
* ``used[s]``: phase s is a segment: at least every ``x[u, s]``.
* ``enters``, ``leaves``: values brought into a phase and handed over by it, as in
  :mod:`.relaxation`, with phases instead of targets; so are conversions between formats.
* ``whole[g, s]``: a region measured whole that costs less than its parts is in phase s. Regions
  that share units exclude each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from nnapi_prof.partition.arrays import AS_FLOAT, Ints, Regions
from nnapi_prof.partition.baselines import segments_ns
from nnapi_prof.partition.problem import GRAPH_INPUT, Placement, Problem, Region
from nnapi_prof.partition.search import Watch
from nnapi_prof.partition.search.exact import search_ideals
from nnapi_prof.partition.search.programme import TOTAL, RelaxationRows
from nnapi_prof.partition.search.relaxation import relax

SMALLEST, LARGEST = 12, 60
"""Approximate number of units of a window."""
STEPS, WIDTH = 400_000, 1_000
"""Steps of the exact programme in one window, and labels of a level."""
SHARE_OF_MEMORY = 0.8
_LEAST_GAIN = 1e-7
"""Relative."""


def windows(problem: Problem, plan: Sequence[Placement], turn: int) -> Iterator[tuple[int, int]]:
    """Yields the first and the end segment of overlapping stretches of a plan, with about as many
    units as a window has; each turn has other stretches."""
    size = (24, 40, SMALLEST, LARGEST)[turn % 4]
    counts = [len(units) for units, _ in plan]
    first = 0
    while first < len(plan):
        last, total = first, 0
        while last < len(plan) and (total < size or last < first + 2):
            total += counts[last]
            last += 1
        if last > first + 1 or problem.n <= 2 * LARGEST:
            yield first, last
        if last == len(plan):
            return
        first += max(1, (last - first) // 2)


def subproblem(problem: Problem, units: Sequence[int], plan: Sequence[Placement] = ()) -> Problem:
    """Returns the problem of some units alone (ascending): values of others are inputs, values that
    others read are outputs. If the units are those of consecutive segments of ``plan``, the best
    plan of this problem is the best replacement for them with the others held fixed."""
    place = {u: i for i, u in enumerate(units)}
    bits = 1 << problem.arrays.format
    bit_of = {u: int(bits[k]) for others, k in plan for u in others}
    touched = sorted({v for u in units for v in problem.values_of[u]})
    values = []
    for index in touched:
        value = problem.values[index]
        readers = tuple(place[r] for r in value.readers if r in place)
        is_inner = value.producer in place
        if not is_inner and not readers:
            continue
        leaves = value.is_output or len(readers) < len(value.readers)
        outside = value.formats if value.is_output else 0
        for reader in value.readers:
            if reader not in place:
                outside |= bit_of.get(reader, AS_FLOAT)
        if not is_inner:  # in the format it is made in, and those that others have it in
            outside |= bit_of.get(value.producer, value.formats)
        values.append(
            replace(
                value,
                producer=place[value.producer] if is_inner else GRAPH_INPUT,
                readers=readers,
                is_output=is_inner and leaves,
                formats=outside,
            )
        )
    inside = set(units)
    rows = np.asarray(units, dtype=np.int64)
    return replace(
        problem,
        labels=tuple(problem.labels[u] for u in units),
        predecessors=tuple(
            tuple(sorted(place[p] for p in problem.predecessors[u] if p in place)) for u in units
        ),
        values=tuple(values),
        unit_ns=problem.unit_ns[rows],
        region_ns={
            (frozenset(place[u] for u in region), k): ns
            for (region, k), ns in problem.region_ns.items()
            if region <= inside
        },
        estimated=None,
        refusals={},
        ruled_out={},
        constant_bytes=(),
    )


def improve_stretch(
    problem: Problem,
    plan: Sequence[Placement],
    first: int,
    last: int,
    costlier: Collection[Region],
    watch: Watch,
) -> tuple[Placement, ...]:
    """Returns the segments from ``first`` to before ``last`` solved exactly, with the rest of the
    plan held fixed, or those of the plan where that finds nothing better. ``costlier`` are regions
    that cost more whole than by their parts."""
    stretch = tuple(plan[first:last])
    units = sorted(u for segment, _ in stretch for u in segment)
    small = subproblem(problem, units, plan)
    place = {u: i for i, u in enumerate(units)}
    now = segments_ns(problem, stretch) + small.conversions_ns(
        [(tuple(place[u] for u in segment), k) for segment, k in stretch]
    )
    relaxation = relax(small, watch.seconds_left)
    if relaxation is None or relaxation.bound_ns >= now * (1 - _LEAST_GAIN):
        return stretch
    small = relaxation.fixed(small, now)
    result = search_ideals(
        small,
        relaxation.prices,
        now * (1 - _LEAST_GAIN),
        watch,
        watched=[
            (frozenset(place[u] for u in region), k)
            for region, k in costlier
            if region <= place.keys()
        ],
        width=WIDTH,
        steps=STEPS,
        memory_bytes=watch.limits.memory_bytes * SHARE_OF_MEMORY,
    )
    if result is None or not result.placements:
        return stretch
    changed = tuple(
        (tuple(sorted(units[i] for i in segment)), k) for segment, k in result.placements
    )
    converting_ns = small.conversions_ns(result.placements)
    return changed if segments_ns(problem, changed) + converting_ns < now else stretch


MOST_ENTRIES = 400_000
"""Largest number of non-zeros; for a larger programme HiGHS hardly finds a plan in seconds."""
MOST_PHASES, MORE_PHASES = 9, 2
"""Largest number of phases of a programme, and how many more it has than the plan."""


def chain_about(problem: Problem, plan: Sequence[Placement]) -> list[int]:
    """Returns phases of two targets in turn, a few more than a plan of these has; none where it has
    many segments, or does not use two targets."""
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
    """Returns the fastest plan of phases on these targets; None where the programme is too large or
    has no plan in time, or where units run only inside regions measured whole."""
    regions = problem.regions
    only_inside = np.isfinite(regions.ns) & ~np.isfinite(regions.parts_ns)
    runs = np.isfinite(problem.unit_ns).any(axis=1).all()
    if only_inside.any() or not runs:
        return None
    return _Phases(problem, np.array(chain)).solve(seconds)


class _Phases(RelaxationRows):
    """The programme under construction, for the problem whose targets are the phases."""

    def __init__(self, problem: Problem, targets: Ints) -> None:
        phases = replace(
            problem,
            targets=tuple(problem.targets[k] for k in targets.tolist()),
            unit_ns=problem.unit_ns[:, targets],
            overhead_ns=problem.overhead_ns[targets],
            in_ns_per_byte=problem.in_ns_per_byte[targets],
            out_ns_per_byte=problem.out_ns_per_byte[targets],
            region_ns={},
            formats=None if problem.formats is None else problem.formats[targets],
        )
        super().__init__(phases, ())
        self._targets = targets
        self._equal: list[Ints] = []
        a = self.arrays
        allowed = np.isfinite(a.unit_ns)
        cost = np.where(allowed, a.unit_ns, 0.0)
        output = a.is_output & (a.producer >= 0)
        np.add.at(cost, a.producer[output], a.out_ns[output])
        if a.converts:
            self.output_conversions(cost)
        self.x = self.columns(cost, allowed.astype(np.float64))
        self.regions = phases.regions
        self._after = self.columns(np.zeros((a.n, len(targets) - 1)))
        self._order()
        handed = (a.producer >= 0) & ~a.is_output
        self.transfers(a.in_ns, np.ones(len(a.readers), dtype=np.bool_), allowed, into=True)
        self.transfers(a.out_ns, handed[a.reader_value], allowed, into=False)
        if a.converts:
            self.conversions(allowed)
        self._used = self.columns(a.overhead_ns)
        for s in np.flatnonzero(a.overhead_ns > 0):
            rows = self.rows(a.n)
            self.add(rows, self._used[s : s + 1], 1.0)
            self.add(rows, self.x[:, s], -1.0)
        self._whole(problem.regions)

    def _order(self) -> None:
        """Adds phases of units, and rows by which they do not fall."""
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
        """Adds regions that cost less whole than by their parts."""
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
