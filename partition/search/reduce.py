"""Units that some optimal plan surely runs together become one unit, before any search.

Two rules, each exact for additive costs (the constants and the dead ends of operator graphs):

* A unit that reads nothing and has one reader joins it, where on every target on which the reader
  runs it costs no more than anywhere else with its value handed over.
* A unit that only reads one unit's value, and that nobody reads, joins that unit, where on every
  target of the latter it costs no more, its own outputs' way out included, than anywhere else with
  the value brought in.

Taking a unit out of a segment never makes that segment costlier, so such a plan can be changed into
one of equal or less latency that runs the pair in one segment; that segment stays convex. Regions
measured whole break the argument: units that one of them tells apart are left alone, and so are
those on whose targets a region costs more whole than by its parts, for what is left of a segment
might be that region.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.partition.arrays import AS_FLOAT, AS_INT8
from nnapi_prof.partition.problem import GRAPH_INPUT, Placement, Problem, Value

_SLACK = 1e-12


@dataclass(frozen=True, slots=True)
class Reduced:
    """A smaller problem, and the units of the original behind each of its units."""

    problem: Problem
    groups: tuple[tuple[int, ...], ...]
    place: tuple[int, ...]
    """[n] Unit of the smaller problem that each unit of the original is part of."""

    def expand(self, units: Sequence[int]) -> tuple[int, ...]:
        """The original's units, ascending."""
        return tuple(sorted(u for unit in units for u in self.groups[unit]))

    def expanded(self, placements: Sequence[Placement]) -> tuple[Placement, ...]:
        """A plan of the smaller problem as one of the original's."""
        return tuple((self.expand(units), k) for units, k in placements)

    def shrunk(self, placements: Sequence[Placement]) -> tuple[Placement, ...] | None:
        """A plan of the original as one of the smaller problem; None where it runs apart what is
        one unit there."""
        plan = []
        for units, k in placements:
            own = sorted({self.place[u] for u in units})
            if sum(len(self.groups[unit]) for unit in own) != len(units):
                return None
            plan.append((tuple(own), k))
        return tuple(plan)


def identity_reduction(problem: Problem) -> Reduced:
    """The problem as it is."""
    units = tuple(range(problem.n))
    return Reduced(problem, tuple((u,) for u in units), units)


def reduce_problem(problem: Problem) -> Reduced:
    """Applies both rules until neither holds anywhere."""
    state = _State(problem)
    while state.join_one():
        pass
    return state.result()


class _State:
    """Groups of units, by their representative."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._group = {u: [u] for u in range(problem.n)}
        self._ns = {u: problem.unit_ns[u].copy() for u in range(problem.n)}
        self._of = list(range(problem.n))
        inside: list[list[int]] = [[] for _ in range(problem.n)]
        for r, (units, _) in enumerate(problem.region_ns):
            for u in units:
                inside[u].append(r)
        self._inside = [frozenset(regions) for regions in inside]
        self._queue = list(range(problem.n))
        self._costlier_on = sorted(
            {
                region[1]
                for region, ns in problem.region_ns.items()
                if ns > problem.region_parts_ns[region]
            }
        )

    def join_one(self) -> bool:
        """Joins one pair; False where no unit is left that might join another."""
        while self._queue:
            u = self._queue.pop()
            if self._of[u] != u:
                continue
            other = self._reader_to_join(u)
            if other is None:
                other = self._maker_to_join(u)
            if other is not None:
                self._join(u, other)
                return True
        return False

    def _values(self, u: int) -> tuple[list[Value], list[Value], list[Value]]:
        """Values that a group reads from outside, makes for outside, and makes as outputs."""
        read, outgoing, outputs = [], [], []
        touched = {v for member in self._group[u] for v in self._problem.values_of[member]}
        for value in (self._problem.values[v] for v in sorted(touched)):
            maker = -1 if value.producer == GRAPH_INPUT else self._of[value.producer]
            readers = {self._of[r] for r in value.readers}
            if u in readers and maker != u:
                read.append(value)
            if maker == u and readers - {u}:
                outgoing.append(value)
            if maker == u and value.is_output:
                outputs.append(value)
        return read, outgoing, outputs

    def _reader_to_join(self, u: int) -> int | None:
        read, outgoing, outputs = self._values(u)
        readers = {self._of[r] for value in outgoing for r in value.readers} - {u}
        if read or outputs or len(readers) != 1:
            return None
        (other,) = readers
        if self._outside(u, self._problem.predecessors) or not self._outside(
            u, self._problem.successors
        ) <= {other}:
            return None
        handed_over = float(sum(value.n_bytes for value in outgoing))
        into, out = self._problem.in_ns_per_byte, self._problem.out_ns_per_byte
        elsewhere = (self._ns[u] + out * handed_over).min()
        return self._if_no_costlier(u, other, self._ns[u], elsewhere + into * handed_over)

    def _maker_to_join(self, u: int) -> int | None:
        read, outgoing, outputs = self._values(u)
        if outgoing or len(read) != 1 or read[0].producer == GRAPH_INPUT:
            return None
        other = self._of[read[0].producer]
        if self._outside(u, self._problem.successors) or not self._outside(
            u, self._problem.predecessors
        ) <= {other}:
            return None
        into, out = self._problem.in_ns_per_byte, self._problem.out_ns_per_byte
        leaving = out * float(sum(value.n_bytes for value in outputs)) + self._converted(outputs)
        # Where another unit outside reads the value as well, it may be there already.
        outside = {self._of[reader] for reader in read[0].readers} - {u, other}
        brought = 0.0 if outside else into * read[0].n_bytes
        elsewhere = (self._ns[u] + leaving + brought).min()
        return self._if_no_costlier(u, other, self._ns[u] + leaving, elsewhere)

    def _converted(self, outputs: Sequence[Value]) -> NDArray[np.float64]:
        """[t], ns: what outputs cost to be had in the formats that they are needed in."""
        arrays = self._problem.arrays
        ns = np.zeros(arrays.t)
        if arrays.converts:
            for value in outputs:
                ns += np.where(arrays.format, value.to_float_ns * (value.formats & AS_FLOAT), 0.0)
                is_needed = value.formats & AS_INT8 != 0
                ns += np.where(arrays.format, 0.0, value.to_int8_ns * is_needed)
        return ns

    def _outside(self, u: int, near: Sequence[Sequence[int]]) -> set[int]:
        """Groups that the predecessors, or the successors, of a group belong to."""
        return {self._of[v] for member in self._group[u] for v in near[member]} - {u}

    def _if_no_costlier(
        self, u: int, other: int, here: NDArray[np.float64], elsewhere: NDArray[np.float64] | float
    ) -> int | None:
        runs = np.isfinite(self._ns[other])
        limit = np.broadcast_to(np.asarray(elsewhere), here.shape)
        if self._inside[u] != self._inside[other] or not runs.any():
            return None
        if np.isfinite(self._ns[u])[self._costlier_on].any():
            return None  # without it, a segment might be a region that costs more whole
        return other if np.all(here[runs] <= limit[runs] * (1 + _SLACK)) else None

    def _join(self, u: int, other: int) -> None:
        self._group[other] += self._group.pop(u)
        self._ns[other] = self._ns[other] + self._ns.pop(u)
        for member in self._group[other]:
            self._of[member] = other
        near = {other, *(self._of[p] for p in self._problem.predecessors[other])}
        self._queue += [*near, *(self._of[s] for s in self._problem.successors[other])]

    def result(self) -> Reduced:
        problem = self._problem
        heads = self._ordered_heads()
        at = {head: i for i, head in enumerate(heads)}
        place = [at[self._of[u]] for u in range(problem.n)]
        before: list[set[int]] = [set() for _ in heads]
        for u in range(problem.n):
            before[place[u]].update(place[p] for p in problem.predecessors[u])
        values = []
        for value in problem.values:
            maker = GRAPH_INPUT if value.producer == GRAPH_INPUT else place[value.producer]
            readers = tuple(sorted({place[r] for r in value.readers} - {maker}))
            if readers or value.is_output:
                values.append(replace(value, producer=maker, readers=readers))
        groups = tuple(tuple(sorted(self._group[head])) for head in heads)
        smaller = Problem(
            labels=tuple(problem.labels[head] for head in heads),
            predecessors=tuple(tuple(sorted(b - {i})) for i, b in enumerate(before)),
            values=tuple(values),
            targets=problem.targets,
            unit_ns=np.array([self._ns[head] for head in heads]).reshape(len(heads), -1),
            overhead_ns=problem.overhead_ns,
            in_ns_per_byte=problem.in_ns_per_byte,
            out_ns_per_byte=problem.out_ns_per_byte,
            region_ns={
                (frozenset(place[u] for u in units), k): ns
                for (units, k), ns in problem.region_ns.items()
            },
            formats=problem.formats,
        )
        return Reduced(smaller, groups, tuple(place))

    def _ordered_heads(self) -> list[int]:
        """Representatives in a topological order, the earliest unit first."""
        missing = {
            head: {self._of[p] for u in group for p in self._problem.predecessors[u]} - {head}
            for head, group in self._group.items()
        }
        follow: dict[int, list[int]] = {head: [] for head in missing}
        for head, needs in missing.items():
            for need in needs:
                follow[need].append(head)
        ready = [head for head, needs in missing.items() if not needs]
        heapq.heapify(ready)
        order = []
        while ready:
            head = heapq.heappop(ready)
            order.append(head)
            for s in follow[head]:
                missing[s].discard(head)
                if not missing[s]:
                    heapq.heappush(ready, s)
        return order


# ---- windows: parts of a problem, the rest of a plan held fixed ----------------------------------


SMALLEST, LARGEST = 12, 60
"""Units of a window, about."""


def windows(problem: Problem, plan: Sequence[Placement], turn: int) -> Iterator[tuple[int, int]]:
    """First and behind-the-last segment of stretches of a plan, overlapping, of about as many units
    as a window has; with each turn others."""
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
    """The problem of some units alone (ascending): what others make are inputs, what others read
    are outputs. Its best plan, put in the place of these segments, is the best with the others
    held fixed where ``plan`` has them, if the units are those of consecutive segments."""
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
        if not is_inner:  # in the format it is made in, and in those that others have it in anyhow
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
    )
