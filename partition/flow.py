"""Minimum cuts of networks that are built from arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from nnapi_prof.partition.arrays import Floats, Ints

_STEPS = (1 << 30) - 1
"""scipy's flows have capacities of 31 bits: what the finite ones sum to."""
_NEVER = np.iinfo(np.int32).max


class Network:
    """Nodes 0, 1, ... between a source and a sink; arcs with capacities, or that are never cut.

    A node on the source's side of the cut pays for its arc to the sink, one on the sink's side for
    that from the source; an arc is paid for where it leads from the source's side to the sink's.
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
        """Adds arcs of some capacities; inf is never cut."""
        if len(tail):
            self._tail.append(np.asarray(tail, dtype=np.int64))
            self._head.append(np.asarray(head, dtype=np.int64))
            self._ns.append(np.broadcast_to(np.asarray(ns, dtype=np.float64), len(tail)))

    def forbid(self, tail: Ints, head: Ints) -> None:
        """No cut has ``tail`` on the source's side and ``head`` on the sink's."""
        self.arc(tail, head, np.inf)

    def source_arc(self, nodes: Ints, ns: ArrayLike) -> None:
        """What nodes pay on the sink's side."""
        self.arc(np.full(len(nodes), self.SOURCE), nodes, ns)

    def sink_arc(self, nodes: Ints, ns: ArrayLike) -> None:
        """What nodes pay on the source's side."""
        self.arc(nodes, np.full(len(nodes), self.SINK), ns)

    def forbid_sink(self, nodes: Ints) -> None:
        """Nodes stay on the source's side."""
        self.source_arc(nodes, np.inf)

    def forbid_source(self, nodes: Ints) -> None:
        """Nodes stay on the sink's side."""
        self.sink_arc(nodes, np.inf)

    def terminal(self, nodes: Ints, sink_ns: Floats, source_ns: Floats) -> None:
        """What nodes pay on the sink's and on the source's side."""
        both = np.minimum(sink_ns, source_ns)
        self.source_arc(nodes, sink_ns - both)
        self.sink_arc(nodes, source_ns - both)

    def cut(self) -> tuple[float, NDArray[np.bool_]] | None:
        """Capacity of the least cut, rounded down, and which nodes lie on the sink's side; None
        where no cut is allowed."""
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
        """Which nodes lie on the sink's side of the least cut; None where no cut is allowed."""
        found = self.cut()
        return None if found is None else found[1]
