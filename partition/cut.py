"""A minimum s-t cut: what additive costs alone decide, and a lower bound of every plan.

With two targets, sequential execution and no cost per segment, a plan's latency is the sum of its
units' costs and of the values that change sides, and the least such sum is a minimum cut (Stone,
"Multiprocessor scheduling with the aid of network flow algorithms", 1977). With more targets, or
with overheads, it bounds every plan from below: targets that values enter and leave for nothing are
one side, each unit at its cheapest there; the others are the other side, at their lowest rates. A
plan that uses the other side at all pays its least overhead once.

It is what is left of the relaxation where that is too large to be solved.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.partition.baselines import merge_by_target
from nnapi_prof.partition.flow import Network
from nnapi_prof.partition.problem import Placement, Problem


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut, and which units lie on the accelerators' side of it."""

    ns: float
    """No plan costs less: its capacity less the rounding of capacities, and an overhead where no
    plan goes without."""
    accelerated: NDArray[np.bool_]
    """[n]"""

    def plan(self, problem: Problem) -> tuple[Placement, ...]:
        """Each unit on the fastest target of its side."""
        free = _free_targets(problem)
        side = np.where(self.accelerated[:, None], ~free[None, :], free[None, :])
        return merge_by_target(
            problem, np.where(side, problem.unit_ns, np.inf).argmin(axis=1).tolist()
        )


def minimum_cut(problem: Problem) -> Cut | None:
    """The cut, or None where the problem has no two sides, or where a region measured whole is
    cheaper than its parts: additive costs bound nothing then."""
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
    made = a.producer >= 0
    output = made & a.is_output
    # Once from near to far, however many readers there are far; and once back.
    enters = np.flatnonzero((into > 0) & (np.diff(a.reader_at) > 0))
    hub = net.nodes(len(enters))
    of_value = np.full(len(into), -1)
    of_value[enters] = hub
    reading = of_value[a.reader_value] >= 0
    net.forbid(of_value[a.reader_value[reading]], a.readers[reading])
    net.source_arc(hub[~made[enters]], into[enters[~made[enters]]])
    net.arc(a.producer[enters[made[enters]]], hub[made[enters]], into[enters[made[enters]]])
    leaves = np.flatnonzero(made & (out > 0))
    hub = net.nodes(len(leaves))
    of_value[:] = -1
    of_value[leaves] = hub
    reading = of_value[a.reader_value] >= 0
    net.forbid(a.readers[reading], of_value[a.reader_value[reading]])
    net.arc(hub, a.producer[leaves], out[leaves])
    outputs = np.flatnonzero(output & (of_value >= 0))
    net.forbid(np.full(len(outputs), Network.SOURCE), of_value[outputs])
    found = net.cut()
    if found is None:
        return None
    ns, beyond = found
    accelerated = beyond[: a.n]
    alone = float(near.sum()) + float(problem.overhead_ns[free].min())
    bound = min(alone, ns + float(problem.overhead_ns[~free].min()))
    return Cut(max(bound, 0.0), accelerated)


def _free_targets(problem: Problem) -> NDArray[np.bool_]:
    """[t]: those that values enter and leave for nothing."""
    free: NDArray[np.bool_] = (problem.in_ns_per_byte == 0) & (problem.out_ns_per_byte == 0)
    return free
