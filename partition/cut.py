"""A minimum s-t cut: what additive costs alone decide, and a lower bound of every plan.

With two targets, sequential execution and no cost per segment, a plan's latency is the sum of its
units' costs and of the values that change sides, and the least such sum is a minimum cut (Stone,
"Multiprocessor scheduling with the aid of network flow algorithms", 1977). With more targets, or
with overheads, it bounds every plan from below: targets that values enter and leave for nothing are
one side, each unit at its cheapest there; the others are the other side, at their lowest rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from nnapi_prof.partition.problem import GRAPH_INPUT, Problem

_STEPS = 1 << 30
"""scipy's flows are 32-bit integers: the largest capacity is worth this many steps."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut, and which units lie on the accelerators' side of it."""

    ns: float
    """Its capacity less the rounding of capacities: no plan costs less."""
    accelerated: NDArray[np.bool_]
    """[n]"""


def minimum_cut(problem: Problem) -> Cut | None:
    """The cut, or None where the problem has no two sides, or where a region measured whole is
    cheaper than its parts: additive costs bound nothing then."""
    free = (problem.in_ns_per_byte == 0) & (problem.out_ns_per_byte == 0)
    if free.all() or not free.any():
        return None
    for (units, k), ns in problem.region_ns.items():
        if ns < problem.additive_ns(units, k):
            return None
    near = problem.unit_ns[:, free].min(axis=1)
    far = problem.unit_ns[:, ~free].min(axis=1)
    into = float(problem.in_ns_per_byte[~free].min())
    out = float(problem.out_ns_per_byte[~free].min())
    return _Network(problem, near, far, into, out).cut()


class _Network:
    """Nodes: source (near side), sink (far side), units, and two for each value."""

    def __init__(
        self,
        problem: Problem,
        near: NDArray[np.float64],
        far: NDArray[np.float64],
        into: float,
        out: float,
    ) -> None:
        self._n = problem.n
        self._tail: list[int] = []
        self._head: list[int] = []
        self._ns: list[float] = []
        self._source, self._sink = problem.n, problem.n + 1
        self._size = problem.n + 2
        for u in range(problem.n):
            self._arc(self._source, u, float(far[u]))  # cut where the unit is accelerated
            self._arc(u, self._sink, float(near[u]))
        for value in problem.values:
            made = value.producer != GRAPH_INPUT
            producer = value.producer if made else self._source
            # Once from near to far, however many far readers there are; and once back.
            self._hand_over(producer, value.readers, value.n_bytes * into, forward=True)
            if made:
                home = (self._source,) if value.is_output else ()
                readers = (*value.readers, *home)
                self._hand_over(producer, readers, value.n_bytes * out, forward=False)

    def _arc(self, tail: int, head: int, ns: float) -> None:
        self._tail.append(tail)
        self._head.append(head)
        self._ns.append(ns)

    def _hand_over(
        self, producer: int, readers: tuple[int, ...], ns: float, *, forward: bool
    ) -> None:
        if ns == 0 or not readers:
            return
        hub = self._size
        self._size += 1
        ends = [(producer, hub, ns), *((hub, reader, math.inf) for reader in readers)]
        for tail, head, capacity in ends:
            self._arc(*((tail, head) if forward else (head, tail)), capacity)

    def cut(self) -> Cut:
        finite = [ns for ns in self._ns if math.isfinite(ns)]
        total = sum(finite)
        step = max(total / _STEPS, 1e-300)
        whole = [min(_STEPS, int(ns / step)) if math.isfinite(ns) else _STEPS for ns in self._ns]
        graph = csr_array(
            (np.array(whole, dtype=np.int32), (self._tail, self._head)),
            shape=(self._size, self._size),
        )
        graph.sum_duplicates()
        flow = maximum_flow(graph, self._source, self._sink)
        residual = csr_array(graph - flow.flow)
        residual.eliminate_zeros()
        reached = breadth_first_order(residual, self._source, return_predecessors=False)
        near = np.zeros(self._size, dtype=np.bool_)
        near[reached] = True
        # Rounded down, so that the flow bounds from below.
        return Cut(float(flow.flow_value) * step, ~near[: self._n])
