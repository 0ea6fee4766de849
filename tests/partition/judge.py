"""The judge of plans: the truth about a small problem, by brute force.

It goes by the definition in the docstring of :class:`Problem` and shares no code with the
partitioner: the cost of all 2^n sets of units on all targets, then the best way to every
downward-closed set (ideal) from every smaller one, by the number of segments, of segments on
accelerators, and, under a limit of compile time, as a Pareto front. Up to 14 units.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from nnapi_prof.costs.table import CompileTimes
from nnapi_prof.graph.plan import Engine, Target
from nnapi_prof.partition.constraints import Constraints
from nnapi_prof.partition.problem import Problem

LIMIT_SLACK = 1e-9
"""Relative: sums of compile times in another order may differ by so much."""


@dataclass(frozen=True)
class Case:
    """A problem and what is asked about it."""

    problem: Problem
    constraints: Constraints = Constraints()
    compiling: CompileTimes | None = None
    """None where the constraints limit no compile time."""
    tolerance: float = 0.0
    seconds: float = 10.0
    """What the partitioner may take; of small problems it needs little."""


@dataclass(frozen=True)
class Truth:
    """What is true of all plans that keep to the constraints of a case."""

    least_ns: NDArray[np.float64]
    """[n]: least latency of plans of at most 1, 2, ... n segments; inf where there is none."""
    region_ns: NDArray[np.float64]
    """[2^n, t]: cost of each set of units (bit u for unit u); inf where it is not allowed."""
    compile_ns: NDArray[np.float64]
    """[2^n, t]: its compile time; zero where no limit asks for it."""

    @property
    def optimum_ns(self) -> float:
        return float(self.least_ns[-1])


def truth_of(case: Case) -> Truth:
    """Every plan of a case, judged; some 10 ms, a second for 14 units that read nothing."""
    problem, constraints = case.problem, case.constraints
    costs, sets = region_costs(problem), np.arange(1 << problem.n)
    for k, target in enumerate(problem.targets):
        costs[sets & mask_of(_ruled_out(problem.n, constraints, target)) != 0, k] = np.inf
    times = _compile_times(problem, case.compiling)
    most = constraints.max_regions
    n_layers = 1 if most is None else min(most, problem.n) + 1
    accelerated = np.array([target.engine is Engine.NNAPI for target in problem.targets])
    counted = accelerated & (most is not None)
    n, ideals = problem.n, ideals_of(problem)
    if constraints.max_compile_ns is None:
        free_ns = costs[:, ~counted].min(axis=1, initial=np.inf)
        counted_ns = costs[:, counted].min(axis=1, initial=np.inf)
        exact = _least_by_segments(n, ideals, free_ns, counted_ns, n_layers)
    else:
        limit_ns = constraints.max_compile_ns * (1 + LIMIT_SLACK)
        limits = np.array([np.inf, limit_ns, n_layers - 1, n])
        numbers = np.stack(np.broadcast_arrays(costs, times, counted, 1.0), axis=-1)
        floats = np.zeros(len(accelerated), np.int64)
        exact = np.full(n + 1, np.inf)
        for ns, *_, count in sums_of_plans(ideals, numbers, limits, np.zeros(4), floats, 0):
            exact[int(count)] = min(exact[int(count)], ns)
    return Truth(np.minimum.accumulate(exact[1:]), costs, times)


def mask_of(units: Iterable[int]) -> int:
    """A set of units as bits."""
    return sum(1 << u for u in units)


def ideals_of(problem: Problem) -> NDArray[np.int64]:
    """Downward-closed sets of units as bits, ascending, so that each stands after its subsets."""
    return _ideals(problem.n, np.array([mask_of(p) for p in problem.predecessors], dtype=np.int64))


def region_costs(problem: Problem) -> NDArray[np.float64]:
    """[2^n, t]: ns of every set of units on every target, by the definition; convex or not."""
    values = problem.values
    costs = _additive_costs(
        problem.unit_ns,
        problem.overhead_ns,
        problem.in_ns_per_byte,
        problem.out_ns_per_byte,
        np.array([value.producer for value in values], dtype=np.int64),
        np.array([mask_of(value.readers) for value in values], dtype=np.int64),
        np.array([value.n_bytes for value in values], dtype=np.float64),
        np.array([value.is_output for value in values], dtype=np.bool_),
    )
    for (units, k), ns in problem.region_ns.items():
        costs[mask_of(units), k] = ns
    return costs


def _ruled_out(n: int, constraints: Constraints, target: Target) -> set[int]:
    """The units that may not run on a target."""
    wrong = constraints.preference not in (None, target.preference)
    if wrong and target.engine is Engine.NNAPI:
        return set(range(n))
    pinned_elsewhere = {u for u, pin in constraints.pinned.items() if pin != target}
    return pinned_elsewhere | {u for u, out in constraints.forbidden.items() if target in out}


def _compile_times(problem: Problem, compiling: CompileTimes | None) -> NDArray[np.float64]:
    """[2^n, t], ns."""
    n, t = problem.unit_ns.shape
    if compiling is None:
        return np.zeros((1 << n, t))
    member = (np.arange(1 << n)[:, None] >> np.arange(n) & 1).astype(np.float64)
    times = compiling.fixed_ns + member @ compiling.unit_ns
    for (units, k), ns in compiling.region_ns.items():
        times[mask_of(units), k] = ns
    return times


@numba.njit(cache=True)
def _additive_costs(unit_ns, overhead, into, out, producers, readers, n_bytes, is_output):
    n, t = unit_ns.shape
    costs = np.empty((1 << n, t))
    for mask in range(1 << n):
        entering = leaving = 0.0
        for v in range(len(producers)):
            if producers[v] >= 0 and mask >> producers[v] & 1:
                if is_output[v] or readers[v] & ~mask:
                    leaving += n_bytes[v]
            elif readers[v] & mask:
                entering += n_bytes[v]
        for k in range(t):
            ns = overhead[k] + entering * into[k] + leaving * out[k]
            for u in range(n):
                if mask >> u & 1:
                    ns += unit_ns[u, k]
            costs[mask, k] = ns
    return costs


@numba.njit(cache=True)
def _ideals(n, needs):
    """Downward-closed sets, ascending, so that each stands after its subsets."""
    ideals = []
    for mask in range(1 << n):
        reads = 0
        for u in range(n):
            if mask >> u & 1:
                reads |= needs[u]
        if not reads & ~mask:
            ideals.append(mask)
    return np.array(ideals)


@numba.njit(cache=True)
def _least_by_segments(n, ideals, free_ns, counted_ns, n_layers):
    """[n + 1]: least latency of plans of exactly so many segments, of which at most
    ``n_layers - 1`` cost what ``counted_ns`` says."""
    best = np.full((len(ideals), n + 1, n_layers), np.inf)
    best[0, 0, 0] = 0.0
    for j in range(1, len(ideals)):
        for i in range(j):
            if ideals[i] & ~ideals[j]:
                continue
            region = ideals[j] ^ ideals[i]
            free, counted = free_ns[region], counted_ns[region]
            if free == np.inf and counted == np.inf:
                continue
            for s in range(n):
                for layer in range(n_layers):
                    ns = best[i, s, layer]
                    if ns + free < best[j, s + 1, layer]:
                        best[j, s + 1, layer] = ns + free
                    if layer + 1 < n_layers and ns + counted < best[j, s + 1, layer + 1]:
                        best[j, s + 1, layer + 1] = ns + counted
    return np.array([best[len(ideals) - 1, s].min() for s in range(n + 1)])


@numba.njit(cache=True)
def sums_of_plans(ideals, costs, limits, begin, formats, int8):
    """Sums of costs [2^n, t, m], from ``begin`` on and up to ``limits``, of all plans that no plan
    betters in every number, and in which the units of ``int8`` run on targets whose format is 1."""
    sums, ends = [begin], [0, 1]
    for j in range(1, len(ideals)):
        many = [begin]
        many.clear()
        for i in range(j):
            if ideals[i] & ~ideals[j] or ends[i] == ends[i + 1]:
                continue
            region = ideals[j] ^ ideals[i]
            for k in range(costs.shape[1]):
                wrong = region & ~int8 if formats[k] else region & int8
                if wrong or not np.isfinite(costs[region, k]).all():
                    continue
                for label in range(ends[i], ends[i + 1]):
                    total = sums[label] + costs[region, k]
                    if (total <= limits).all():
                        many.append(total)
        if len(many):
            sums.extend(not_bettered(many))
        ends.append(len(sums))
    return sums[ends[-2] :]


@numba.njit(cache=True)
def not_bettered(points):
    first = np.array([point[0] for point in points])
    front = [points[0]]
    front.clear()
    for p in np.argsort(first, kind="mergesort"):
        bettered = False
        for other in front:
            if (other <= points[p]).all():
                bettered = True
                break
        if not bettered:
            front.append(points[p])
    return front
