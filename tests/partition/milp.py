"""An independent judge: the same problem as a mixed-integer linear programme (HiGHS, via scipy).

Shares no search code with the dynamic programme: units go into ordered slots, a slot has at most
one target, and no unit stands in an earlier slot than what it reads. How many slots a plan can need
follows from how far a known plan is above a lower bound: each segment on an accelerator costs its
overhead beyond that bound. Where overheads are small it is n slots, and n^2 x targets binaries.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import Engine
from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.problem import GRAPH_INPUT, Placement, Problem
from nnapi_prof.partition.search.minimum_cut import minimum_cut
from tests.partition.cases import lower_bound


@dataclass(frozen=True, slots=True)
class MilpResult:
    """The best plan that HiGHS found."""

    placements: tuple[Placement, ...]
    ns: float
    bound_ns: float
    """No plan costs less, as HiGHS proves within its tolerances (1e-6)."""
    proven: bool
    """It is the optimum; else the time ran out."""
    slots: int


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

    def solve(self) -> tuple[list[float], float, bool]:
        """Values of the columns, a bound of the least cost, and whether it is reached.

        Raises PartitionError where there is no solution.
        """
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
        bound = getattr(result, "mip_dual_bound", None)
        least = float(result.fun if bound is None else bound) * scale
        return [float(x) for x in result.x], least, result.status == 0


def slots_needed(problem: Problem, upper_ns: float) -> int:
    """How many segments a plan of at most ``upper_ns`` ns can have at most; of plans that cost
    the same, one whose neighbours on one target are joined where that costs nothing."""
    free = [
        k
        for k in range(len(problem.targets))
        if problem.overhead_ns[k] == problem.in_ns_per_byte[k] == problem.out_ns_per_byte[k] == 0
    ]
    paid = [float(ns) for k, ns in enumerate(problem.overhead_ns) if k not in free]
    measured_free = any(k in free for _, k in problem.region_ns)
    if len(free) > 1 or measured_free or not paid or min(paid) <= 0:
        return problem.n
    # Without overheads: segments pay theirs beyond the bound.
    cut = minimum_cut(replace(problem, overhead_ns=np.zeros_like(problem.overhead_ns)))
    bound = max(lower_bound(problem), cut.ns if cut is not None else 0.0)
    if any(ns < problem.additive_ns(units, k) for (units, k), ns in problem.region_ns.items()):
        return problem.n  # such a region may cost less than its overhead
    regions = math.floor(max(0.0, upper_ns - bound) / min(paid) * (1 + 1e-9) + 1e-9)
    return max(1, min(problem.n, regions + (regions + 1) * len(free)))


def solve_milp(
    problem: Problem,
    *,
    upper_ns: float = math.inf,
    max_regions: int | None = None,
) -> MilpResult:
    """The optimal segments in order, at most ``max_regions`` of them on accelerators.

    ``upper_ns`` is the latency of some known plan that keeps to that: the closer, the fewer slots.
    Raises PartitionError where no plan exists.
    """
    model = _Model()
    n, targets = problem.n, range(len(problem.targets))
    n_slots = problem.n if math.isinf(upper_ns) else slots_needed(problem, upper_ns)
    slots = range(n_slots)
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
    up_to = {(u, s): model.column(0.0, binary=False) for u in range(n) for s in slots}
    for s in slots:
        model.row({used[s, k]: 1 for k in targets}, 0, 1)
    accelerated = [k for k in targets if problem.targets[k].engine is Engine.NNAPI]
    if max_regions is not None and accelerated:
        model.row({used[s, k]: 1 for s in slots for k in accelerated}, 0, max_regions)
    for u in range(n):
        model.row({here[u, s, k]: 1 for s in slots for k in targets}, 1, 1)
        for s in slots:
            for k in targets:
                model.row({here[u, s, k]: 1, used[s, k]: -1}, -math.inf, 0)
            before = {up_to[u, s - 1]: -1.0} if s else {}
            model.row({up_to[u, s]: 1, **before, **{here[u, s, k]: -1 for k in targets}}, 0, 0)
            for p in problem.predecessors[u]:  # p stands in a slot up to s wherever u does
                model.row({up_to[u, s]: 1, up_to[p, s]: -1}, -math.inf, 0)
    _add_transfers(model, problem, here, n_slots)
    _add_conversions(model, problem, here, n_slots)
    _add_measured(model, problem, here, n_slots)
    x, bound, proven = model.solve()
    segments: dict[tuple[int, int], list[int]] = {}
    for (u, s, k), column in here.items():
        if x[column] > 0.5:
            segments.setdefault((s, k), []).append(u)
    placements = tuple((tuple(units), k) for (_, k), units in sorted(segments.items()))
    ns = total_ns(problem, placements)
    return MilpResult(placements, ns, min(bound, ns), proven, n_slots)


def _add_transfers(
    model: _Model, problem: Problem, here: dict[tuple[int, int, int], int], n_slots: int
) -> None:
    """A value enters a slot that reads and does not make it; it leaves the other way round."""
    for value in problem.values:
        for s in range(n_slots):
            for k in range(len(problem.targets)):
                maker = {}
                if value.producer != GRAPH_INPUT:
                    maker = {here[value.producer, s, k]: 1.0}
                into = model.column(value.n_bytes * float(problem.in_ns_per_byte[k]), binary=False)
                for reader in value.readers:
                    model.row({into: 1, here[reader, s, k]: -1, **maker}, 0, math.inf)
                if not maker:
                    continue
                cost = value.n_bytes * float(problem.out_ns_per_byte[k])
                out = model.column(cost, binary=False)
                minus = dict.fromkeys(maker, -1.0)
                if value.is_output:
                    model.row({out: 1, **minus}, 0, math.inf)
                for reader in value.readers:
                    model.row({out: 1, here[reader, s, k]: 1, **minus}, 0, math.inf)


def _add_conversions(
    model: _Model, problem: Problem, here: dict[tuple[int, int, int], int], n_slots: int
) -> None:
    """A value is converted to a format that it is not made in and that a reader needs it in."""
    if problem.formats is None:
        return

    def of_format(unit: int, fmt: int, factor: float) -> dict[int, float]:
        own = np.flatnonzero(problem.formats == fmt).tolist()
        return {here[unit, s, k]: factor for s in range(n_slots) for k in own}

    for value in problem.values:
        for fmt, ns in ((0, value.to_float_ns), (1, value.to_int8_ns)):
            is_input = value.producer == GRAPH_INPUT
            if ns == 0 or (is_input and value.formats >> fmt & 1):
                continue
            converted = model.column(ns, binary=False)
            maker = {} if is_input else of_format(value.producer, fmt, 1.0)
            for reader in value.readers:
                model.row({converted: 1, **of_format(reader, fmt, -1.0), **maker}, 0, math.inf)
            if value.is_output and value.formats >> fmt & 1:
                model.row({converted: 1, **maker}, 1, math.inf)


def _add_measured(
    model: _Model, problem: Problem, here: dict[tuple[int, int, int], int], n_slots: int
) -> None:
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
    for (u, s, k), column in here.items():
        if math.isinf(problem.unit_ns[u, k]):
            allowed = dict.fromkeys(permits.get((u, s, k), []), -1.0)
            model.row({column: 1, **allowed}, -math.inf, 0)
