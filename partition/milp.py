"""An independent judge: the same problem as a mixed-integer linear programme (HiGHS, via scipy).

Shares no search code with the dynamic programme: units go into ordered slots, a slot has at most
one target, and no unit stands in an earlier slot than what it reads. Meant for small problems (the
programme has n slots, so n^2 x targets binaries).
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from nnapi_prof.errors import PartitionError
from nnapi_prof.partition.problem import GRAPH_INPUT, Placement, Problem


class _Model:
    """A MILP under construction: columns with costs, rows as sparse triples."""

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.binary: list[bool] = []
        self.rows: list[tuple[dict[int, float], float, float]] = []

    def column(self, cost: float, *, binary: bool) -> int:
        self.cost.append(cost)
        self.binary.append(binary)
        return len(self.cost) - 1

    def row(self, terms: dict[int, float], low: float, high: float) -> None:
        self.rows.append((terms, low, high))

    def solve(self) -> list[float]:
        """Values of the columns. Raises PartitionError where there is no solution."""
        data = [(r, c, v) for r, (terms, _, _) in enumerate(self.rows) for c, v in terms.items()]
        r, c, v = zip(*data, strict=True)
        matrix = csr_array((v, (r, c)), shape=(len(self.rows), len(self.cost)))
        low = np.array([row[1] for row in self.rows])
        high = np.array([row[2] for row in self.rows])
        scale = max(1.0, max(abs(x) for x in self.cost))
        result = milp(
            np.array(self.cost) / scale,
            integrality=np.array(self.binary, dtype=np.int8),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(matrix, low, high),
            options={"mip_rel_gap": 0.0},
        )
        if result.x is None:
            raise PartitionError(f"the mixed-integer programme has no solution: {result.message}")
        return [float(x) for x in result.x]


def solve_milp(problem: Problem) -> list[Placement]:
    """The optimal segments in order. Raises PartitionError where no plan exists."""
    model = _Model()
    n, targets, slots = problem.n, range(len(problem.targets)), range(problem.n)
    finite = np.where(np.isfinite(problem.unit_ns), problem.unit_ns, 0.0)
    used = {
        (s, k): model.column(float(problem.overhead_ns[k]), binary=True)
        for s in slots
        for k in targets
    }
    here = {
        (u, s, k): model.column(float(finite[u, k]), binary=True)
        for u in range(n)
        for s in slots
        for k in targets
    }
    for s in slots:
        model.row({used[s, k]: 1 for k in targets}, 0, 1)
    for u in range(n):
        model.row({here[u, s, k]: 1 for s in slots for k in targets}, 1, 1)
        for s in slots:
            for k in targets:
                model.row({here[u, s, k]: 1, used[s, k]: -1}, -math.inf, 0)
            for p in problem.predecessors[u]:  # p stands in a slot up to s wherever u does
                up_to_s = {here[u, r, k]: 1.0 for r in range(s + 1) for k in targets}
                up_to_s |= {here[p, r, k]: -1.0 for r in range(s + 1) for k in targets}
                model.row(up_to_s, -math.inf, 0)
    _add_transfers(model, problem, here)
    _add_measured(model, problem, here)
    x = model.solve()
    segments: dict[tuple[int, int], list[int]] = {}
    for (u, s, k), column in here.items():
        if x[column] > 0.5:
            segments.setdefault((s, k), []).append(u)
    return [(tuple(units), k) for (_, k), units in sorted(segments.items())]


def _add_transfers(model: _Model, problem: Problem, here: dict[tuple[int, int, int], int]) -> None:
    """A value enters a slot that reads and does not make it; it leaves the other way round."""
    for value in problem.values:
        for s in range(problem.n):
            for k in range(len(problem.targets)):
                made = {}
                if value.producer != GRAPH_INPUT:
                    made = {here[value.producer, s, k]: 1.0}
                into = model.column(value.n_bytes * float(problem.in_ns_per_byte[k]), binary=False)
                for reader in value.readers:
                    model.row({into: 1, here[reader, s, k]: -1, **made}, 0, math.inf)
                if not made:
                    continue
                cost = value.n_bytes * float(problem.out_ns_per_byte[k])
                out = model.column(cost, binary=False)
                minus = {column: -1.0 for column in made}
                if value.is_output:
                    model.row({out: 1, **minus}, 0, math.inf)
                for reader in value.readers:
                    model.row({out: 1, here[reader, s, k]: 1, **minus}, 0, math.inf)


def _add_measured(model: _Model, problem: Problem, here: dict[tuple[int, int, int], int]) -> None:
    """Regions measured whole: ``whole`` is 1 exactly where a slot holds that region and no more."""
    permits: dict[tuple[int, int, int], list[int]] = {}
    for (region, k), ns in problem.region_ns.items():
        inside = sorted(region)
        outside = [u for u in range(problem.n) if u not in region]
        entering, leaving = problem.boundary_bytes(inside)
        parts = float(
            problem.overhead_ns[k]
            + entering * problem.in_ns_per_byte[k]
            + leaving * problem.out_ns_per_byte[k]
            + sum(ns for ns in problem.unit_ns[inside, k] if math.isfinite(ns))
        )
        for s in range(problem.n):
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
    for (u, s, k), column in here.items():
        if math.isinf(problem.unit_ns[u, k]):
            allowed = {whole: -1.0 for whole in permits.get((u, s, k), [])}
            model.row({column: 1, **allowed}, -math.inf, 0)
