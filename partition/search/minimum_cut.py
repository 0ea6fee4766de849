"""Minimum s-t cuts: the optimum of additive costs alone, and a lower bound of every plan.

With two targets, sequential execution and no cost per segment, a plan's latency is the sum of its
units' costs and of the values that change sides, and the least such sum is a minimum cut (Stone,
"Multiprocessor scheduling with the aid of network flow algorithms", 1977). With more targets, or
with overheads, it bounds every plan from below: targets that values enter and leave for free are
one side, with each unit at its cheapest there; the others are the other side, at their lowest
rates. A plan that uses the other side at all pays its least overhead once.

The bound replaces the relaxation where that is too large to solve.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from nnapi_prof.partition.arrays import Floats, Ints
from nnapi_prof.partition.baselines import merge_by_target
from nnapi_prof.partition.problem import Placement, Problem

_STEPS = (1 << 30) - 1
"""Sum of the finite capacities, as integers: scipy's flows have 31 bits."""
_NEVER = np.iinfo(np.int32).max


class Network:
    """Nodes 0, 1, ... between a source and a sink, and arcs that have capacities or are never cut.

    A node on the source's side of the cut pays for its arc to the sink, one on the sink's side for
    its arc from the source. An arc is paid for where it leads from the source's side to the sink's.
    """

    def __init__(self, n_nodes: int) -> None:
        self._n = n_nodes
        self._tail: list[Ints] = []
        self._head: list[Ints] = []
        self._ns: list[Floats] = []

    SOURCE, SINK = -1, -2

    def nodes(self, count: int) -> Ints:
        """Adds nodes."""
        added = np.arange(self._n, self._n + count)
        self._n += count
        return added

    def arc(self, tail: Ints, head: Ints, ns: ArrayLike) -> None:
        """Adds arcs with capacities; inf is never cut."""
        if len(tail):
            self._tail.append(np.asarray(tail, dtype=np.int64))
            self._head.append(np.asarray(head, dtype=np.int64))
            self._ns.append(np.broadcast_to(np.asarray(ns, dtype=np.float64), len(tail)))

    def forbid(self, tail: Ints, head: Ints) -> None:
        """Forbids cuts with ``tail`` on the source's side and ``head`` on the sink's."""
        self.arc(tail, head, np.inf)

    def source_arc(self, nodes: Ints, ns: ArrayLike) -> None:
        """Adds the cost of nodes on the sink's side."""
        self.arc(np.full(len(nodes), self.SOURCE), nodes, ns)

    def sink_arc(self, nodes: Ints, ns: ArrayLike) -> None:
        """Adds the cost of nodes on the source's side."""
        self.arc(nodes, np.full(len(nodes), self.SINK), ns)

    def forbid_sink(self, nodes: Ints) -> None:
        """Keeps nodes on the source's side."""
        self.source_arc(nodes, np.inf)

    def forbid_source(self, nodes: Ints) -> None:
        """Keeps nodes on the sink's side."""
        self.sink_arc(nodes, np.inf)

    def terminal(self, nodes: Ints, sink_ns: Floats, source_ns: Floats) -> None:
        """Adds the cost of nodes on the sink's and on the source's side."""
        both = np.minimum(sink_ns, source_ns)
        self.source_arc(nodes, sink_ns - both)
        self.sink_arc(nodes, source_ns - both)

    def cut(self) -> tuple[float, NDArray[np.bool_]] | None:
        """Returns the capacity of the least cut, rounded down, and the nodes on the sink's side;
        None where no cut is allowed."""
        ns = np.concatenate(self._ns) if self._ns else np.zeros(0)
        tail = np.concatenate(self._tail) if self._tail else np.zeros(0, np.int64)
        head = np.concatenate(self._head) if self._head else np.zeros(0, np.int64)
        finite = np.isfinite(ns)
        total = float(ns[finite].sum())
        step = max(total / _STEPS, 1e-300)
        capacity = np.where(finite, np.floor(np.where(finite, ns, 0.0) / step), _NEVER)
        useful = capacity > 0
        size = self._n + 2
        tail = np.where(tail < 0, tail + self._n + 2, tail)[useful]
        head = np.where(head < 0, head + self._n + 2, head)[useful]
        # Arcs between the same nodes add up, which must not pass 31 bits.
        key, which = np.unique(tail * size + head, return_inverse=True)
        sums = np.minimum(np.bincount(which, capacity[useful], len(key)), _NEVER)
        graph = csr_array((sums.astype(np.int32), (key // size, key % size)), shape=(size, size))
        source, sink = size + self.SOURCE, size + self.SINK
        flow = maximum_flow(graph, source, sink)
        if flow.flow_value > _STEPS:
            return None
        residual = csr_array(graph - flow.flow)
        residual.eliminate_zeros()
        reached = breadth_first_order(residual, source, return_predecessors=False)
        near = np.zeros(size, dtype=np.bool_)
        near[reached] = True
        return float(flow.flow_value) * step, ~near[: self._n]

    def sink_side(self) -> NDArray[np.bool_] | None:
        """Returns the nodes on the sink's side of the least cut; None where no cut is allowed."""
        cut = self.cut()
        return None if cut is None else cut[1]


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut, and the units on the accelerators' side of it."""

    ns: float
    """Lower bound of any plan: the cut's capacity less the rounding of capacities, plus an overhead
    where every plan has one."""
    accelerated: NDArray[np.bool_]
    """[n]"""

    def plan(self, problem: Problem) -> tuple[Placement, ...]:
        """Returns the plan with each unit on the fastest target of its side."""
        free = _free_targets(problem)
        side = np.where(self.accelerated[:, None], ~free[None, :], free[None, :])
        return merge_by_target(
            problem, np.where(side, problem.unit_ns, np.inf).argmin(axis=1).tolist()
        )


def minimum_cut(problem: Problem) -> Cut | None:
    """Returns the cut. None where the problem has no two sides, or where a region measured whole is
    cheaper than its parts: then additive costs are not a bound."""
    free = _free_targets(problem)
    if free.all() or not free.any():
        return None
    for (units, k), ns in problem.region_ns.items():
        if ns < problem.additive_ns(units, k):
            return None
    a = problem.arrays
    near, far = problem.unit_ns[:, free].min(axis=1), problem.unit_ns[:, ~free].min(axis=1)
    into, out = a.in_ns[:, ~free].min(axis=1), a.out_ns[:, ~free].min(axis=1)
    net = Network(a.n)
    unit = np.arange(a.n)
    net.source_arc(unit, far)
    net.sink_arc(unit, near)
    has_maker = a.producer >= 0
    output = has_maker & a.is_output
    # A value goes once from near to far, for any number of far readers, and once back.
    enters = np.flatnonzero((into > 0) & (np.diff(a.reader_at) > 0))
    hub = net.nodes(len(enters))
    of_value = np.full(len(into), -1)
    of_value[enters] = hub
    reading = of_value[a.reader_value] >= 0
    net.forbid(of_value[a.reader_value[reading]], a.readers[reading])
    net.source_arc(hub[~has_maker[enters]], into[enters[~has_maker[enters]]])
    net.arc(
        a.producer[enters[has_maker[enters]]],
        hub[has_maker[enters]],
        into[enters[has_maker[enters]]],
    )
    leaves = np.flatnonzero(has_maker & (out > 0))
    hub = net.nodes(len(leaves))
    of_value[:] = -1
    of_value[leaves] = hub
    reading = of_value[a.reader_value] >= 0
    net.forbid(a.readers[reading], of_value[a.reader_value[reading]])
    net.arc(hub, a.producer[leaves], out[leaves])
    outputs = np.flatnonzero(output & (of_value >= 0))
    net.forbid(np.full(len(outputs), Network.SOURCE), of_value[outputs])
    cut = net.cut()
    if cut is None:
        return None
    ns, beyond = cut
    accelerated = beyond[: a.n]
    alone = float(near.sum()) + float(problem.overhead_ns[free].min())
    bound = min(alone, ns + float(problem.overhead_ns[~free].min()))
    return Cut(max(bound, 0.0), accelerated)


def _free_targets(problem: Problem) -> NDArray[np.bool_]:
    """Returns [t]: true for targets that values enter and leave for free."""
    free: NDArray[np.bool_] = (problem.in_ns_per_byte == 0) & (problem.out_ns_per_byte == 0)
    return free
