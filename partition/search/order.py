"""Rows of the relaxation that know the order of segments: cycles that a plan cannot have.

A row of the relaxation lets two units of a target share a segment whatever stands between them. In
a plan they do so only where no way leads from one to the other over a unit elsewhere, and that
holds of chains of such pairs as well: along a cycle of dependencies and of pairs that share a
segment, all units stand in one phase of the plan, so in one segment. Of a cycle through unit c with
pairs e0, e1, ..., and of any set A of targets,

    sum over A of joined[e0, k]  +  sum over e1, ... and all k of joined[e, k]
        <= number of pairs - 1  +  sum over A of x[c, k]

where ``joined[e, k]`` is at most ``x`` of both its units on k. It takes the place of the maker's
``x`` (or the reader's) in rows of the relaxation: a reader on k that is not joined with the maker
has the value brought in, a dependency that is not joined begins a segment. Two readers on k that
are joined neither with the maker nor with each other have it brought in twice.

There are more such rows than can be written down; those that a solution violates are looked for by
shortest ways, a pair being as long as its units are apart (Grötschel, Jünger, Reinelt, "A Cutting
Plane Algorithm for the Linear Ordering Problem", Operations Research 32, 1984, has cycles alike).
"""

from __future__ import annotations

import itertools

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from nnapi_prof.partition.arrays import Bools, Floats, Ints
from nnapi_prof.partition.problem import GRAPH_INPUT, Problem
from nnapi_prof.partition.search.programme import Programme

MOST_READERS = 8
"""Of values whose readers count as pairs: there are as many as its square."""
LEAST_VIOLATION = 1e-3
_STEP = 1e-7
"""Length of a dependency: a sparse matrix knows no zeros."""

Pair = tuple[int, int]


class OrderRows:
    """The rows of cycles in one programme; columns are [.., t], -1 where there is none."""

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
        """By value and target: the column of what is brought in more than once."""
        self._rows: set[tuple[int, tuple[Pair, ...]]] = set()
        self._head = np.repeat(np.arange(a.n), np.diff(a.predecessor_at))
        pairs = set(zip(a.predecessors.tolist(), self._head.tolist(), strict=True))
        for value in problem.values:
            if 1 < len(value.readers) <= MOST_READERS:
                readers = sorted(value.readers)
                pairs |= {(p, q) for i, q in enumerate(readers) for p in readers[:i]}
        self._pairs = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)

    def add_violated(self, solution: Floats) -> bool:
        """Adds rows that a solution violates; whether there were any."""
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
        """[targets that count]: how far two units share a segment."""
        most: Floats = np.minimum(share[pair[0]], share[pair[1]])[self._targets]
        columns = self._joined.get(pair, {})
        if columns and max(columns.values()) < len(solution):  # none of those just added
            own = [solution[columns[k]] if k in columns else 0.0 for k in self._targets.tolist()]
            most = np.minimum(most, own)
        return most

    def _apart(self, solution: Floats, share: Floats) -> Floats:
        """[pairs]: how far two units are from sharing a segment."""
        both = np.minimum(share[self._pairs[:, 0]], share[self._pairs[:, 1]])
        joined = both[:, self._targets].sum(axis=1)
        for i, (p, q) in enumerate(self._pairs.tolist()):
            if (p, q) in self._joined:
                joined[i] = self._of_pair((p, q), solution, share).sum()
        return np.asarray(np.maximum(1 - joined, 0.0))

    def _graph(self, apart: Floats) -> csr_array:
        """Dependencies forwards, pairs both ways."""
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
        """The row of a cycle, if the solution violates it."""
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
        """The columns of a pair; with the first, the rows that ask for them."""
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
        """Adds rows by which two readers that share no segment, nor that of the maker, each have
        the value brought in."""
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
