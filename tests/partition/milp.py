"""An independent judge: the same problem as a mixed-integer linear programme (HiGHS, via scipy).

Shares no search code with the dynamic programme: units go into ordered slots, a slot has at most
one target, and no unit stands in an earlier slot than what it reads. How many slots a plan can need
follows from how far a known plan is above a lower bound: each segment on an accelerator costs its
overhead beyond that bound. Where overheads are small it is n slots, and n^2 x targets binaries.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.problem import GRAPH_INPUT, Problem
from nnapi_prof.partition.search.minimum_cut import minimum_cut
from tests.partition.cases import lower_bound

Terms = Mapping[int, float]
"""Column -> factor."""


@dataclass
class _Model:
    """A MILP under construction: columns with costs, rows as sparse triples."""

    cost: list[float] = field(default_factory=list)
    binary: list[bool] = field(default_factory=list)
    rows: list[tuple[Terms, float, float]] = field(default_factory=list)

    def column(self, cost: float, *, binary: bool = False) -> int:
        self.cost.append(cost)
        self.binary.append(binary)
        return len(self.cost) - 1

    def row(self, terms: Terms, low: float, high: float) -> None:
        self.rows.append((terms, low, high))

    def solve(self) -> list[bool]:
        """Which columns are 1 in the best solution; HiGHS proves it within 1e-6."""
        data = [(v, r, c) for r, (terms, _, _) in enumerate(self.rows) for c, v in terms.items()]
        v, r, c = zip(*data, strict=True)
        matrix = csr_array((v, (r, c)), shape=(len(self.rows), len(self.cost)))
        _, low, high = zip(*self.rows, strict=True)
        result = milp(
            np.array(self.cost) / max(1.0, *map(abs, self.cost)),
            integrality=np.array(self.binary, dtype=np.int8),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(matrix, low, high),
            options={"mip_rel_gap": 0.0},
        )
        assert result.status == 0, result.message
        return (result.x > 0.5).tolist()


def least_by_milp(problem: Problem, upper_ns: float = math.inf) -> float:
    """The latency of the best plan in ns.

    ``upper_ns`` is that of some known plan: the closer, the fewer slots.
    """
    model, n, targets = _Model(), problem.n, range(len(problem.targets))
    n_slots = n if math.isinf(upper_ns) else _slots_needed(problem, upper_ns)
    places = list(itertools.product(range(n_slots), targets))
    finite = np.where(np.isfinite(problem.unit_ns), problem.unit_ns, 0.0)
    used = {(s, k): model.column(float(problem.overhead_ns[k]), binary=True) for s, k in places}
    each = [(u, s, k) for u in range(n) for s, k in places]
    here = {(u, s, k): model.column(float(finite[u, k]), binary=True) for u, s, k in each}
    up_to = {(u, s): model.column(0.0) for u in range(n) for s in range(n_slots)}
    for s in range(n_slots):
        model.row({used[s, k]: 1 for k in targets}, 0, 1)
    for u in range(n):
        model.row({here[u, s, k]: 1 for s, k in places}, 1, 1)
        for s, k in places:
            model.row({here[u, s, k]: 1, used[s, k]: -1}, -math.inf, 0)
        for s in range(n_slots):
            before = {up_to[u, s - 1]: -1.0} if s else {}
            model.row({up_to[u, s]: 1, **before, **{here[u, s, k]: -1 for k in targets}}, 0, 0)
            for p in problem.predecessors[u]:  # p stands in a slot up to s wherever u does
                model.row({up_to[u, s]: 1, up_to[p, s]: -1}, -math.inf, 0)
    for s, k in places:
        _add_transfers(model, problem, [here[u, s, k] for u in range(n)], k)
    _add_measured(model, problem, here, n_slots)
    chosen = model.solve()
    segments: dict[tuple[int, int], list[int]] = {}
    for (u, s, k), column in here.items():
        if chosen[column]:
            segments.setdefault((s, k), []).append(u)
    return total_ns(problem, [(tuple(units), k) for (_, k), units in sorted(segments.items())])


def _slots_needed(problem: Problem, upper_ns: float) -> int:
    """How many segments a plan of at most ``upper_ns`` ns can have at most; of plans that cost
    the same, one whose neighbours on one target are joined where that costs nothing."""
    costs = problem.overhead_ns, problem.in_ns_per_byte, problem.out_ns_per_byte
    free = np.flatnonzero(~np.any(costs, axis=0)).tolist()
    paid = np.delete(problem.overhead_ns, free)
    measured_free = any(k in free for _, k in problem.region_ns)
    if len(free) > 1 or measured_free or paid.min(initial=math.inf) in (0, math.inf):
        return problem.n
    if any(ns < problem.additive_ns(units, k) for (units, k), ns in problem.region_ns.items()):
        return problem.n  # such a region may cost less than its overhead
    # Without overheads: segments pay theirs beyond the bound.
    cut = minimum_cut(replace(problem, overhead_ns=np.zeros_like(problem.overhead_ns)))
    bound = max(lower_bound(problem), cut.ns if cut is not None else 0.0)
    regions = math.floor(max(0.0, upper_ns - bound) / paid.min() * (1 + 1e-9) + 1e-9)
    return max(1, min(problem.n, regions + (regions + 1) * len(free)))


def _add_transfers(model: _Model, problem: Problem, here: list[int], k: int) -> None:
    """A value enters a slot that reads and does not make it; it leaves the other way round.

    ``here`` has the column of each unit in that slot and on that target.
    """
    for value in problem.values:
        maker = {} if value.producer == GRAPH_INPUT else {here[value.producer]: 1.0}
        into = model.column(value.n_bytes * float(problem.in_ns_per_byte[k]))
        for reader in value.readers:
            model.row({into: 1, here[reader]: -1, **maker}, 0, math.inf)
        if not maker:
            continue
        out = model.column(value.n_bytes * float(problem.out_ns_per_byte[k]))
        minus = dict.fromkeys(maker, -1.0)
        if value.is_output:
            model.row({out: 1, **minus}, 0, math.inf)
        for reader in value.readers:
            model.row({out: 1, here[reader]: 1, **minus}, 0, math.inf)


def _add_measured(
    model: _Model, problem: Problem, here: dict[tuple[int, int, int], int], n_slots: int
) -> None:
    """Regions measured whole: ``whole`` is 1 exactly where a slot holds that region and no more."""
    permits: dict[tuple[int, int, int], list[int]] = {}
    runs = np.where(np.isfinite(problem.unit_ns), problem.unit_ns, 0.0)
    for (region, k), ns in problem.region_ns.items():
        inside = sorted(region)
        outside = [u for u in range(problem.n) if u not in region]
        parts = replace(problem, unit_ns=runs, region_ns={}).additive_ns(inside, k)
        for s in range(n_slots):
            exactly = {here[u, s, k]: 1.0 for u in inside} | {here[w, s, k]: -1.0 for w in outside}
            if math.isinf(ns):
                model.row(exactly, -math.inf, len(inside) - 1)
                continue
            whole = model.column(ns - parts, binary=True)
            for u in inside:
                model.row({whole: 1, here[u, s, k]: -1}, -math.inf, 0)
                permits.setdefault((u, s, k), []).append(whole)
            for w in outside:
                model.row({whole: 1, here[w, s, k]: 1}, -math.inf, 1)
            model.row({whole: -1, **exactly}, -math.inf, len(inside) - 1)
    for u, k in np.argwhere(np.isinf(problem.unit_ns)).tolist():
        for s in range(n_slots):
            allowed = dict.fromkeys(permits.get((u, s, k), []), -1.0)
            model.row({here[u, s, k]: 1, **allowed}, -math.inf, 0)
