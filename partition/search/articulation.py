"""The exact programme from one articulation unit to the next.

All other units are before or behind an articulation unit, and no value bypasses it. Only that
unit's target links a plan before it with the plan behind it. So the stretch between two such units
is a separate problem for each pair of their targets: its first unit is free, and its segment has no
overhead, since the stretch before has paid for both. A plan is a path through the pairs, and no
plan costs less than the shortest one.

Lengths start from the relaxation's prices. On a shortest path, the stretch that took the fewest
steps so far is solved again, for plans that cost a little more: either one is found, and the length
is exact, or there is none, and the length grows. As soon as all stretches of a shortest path are
exact, that is the optimum. Each stretch has its own relaxation, which rules out far more than that
of the whole graph: there, the excess of all stretches over their bounds adds up.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from nnapi_prof.partition.arrays import AS_FLOAT, AS_INT8, GRAPH_INPUT, Bools, Floats
from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.problem import Placement, Problem, Region
from nnapi_prof.partition.search import Plan, Watch
from nnapi_prof.partition.search.exact import search_repeatedly
from nnapi_prof.partition.search.relaxation import Relaxation, relax
from nnapi_prof.partition.search.tables import NEGLIGIBLE, Prices
from nnapi_prof.partition.search.windows import SHARE_OF_MEMORY, subproblem

SHORTEST = 12
"""Least number of units of a stretch."""
LARGEST_SHARE = 0.7
"""Largest share of all units in one stretch."""
SLACK = 0.015
"""Excess of plans in the first run, as a share of a stretch's bound or of its largest cost."""
WIDER = 1.25
"""Growth of the slack from run to run."""
MOST_STEPS = 40_000_000
"""Largest number of steps of one run; a stretch that takes more is not solved."""
ROUNDING = 1e-11


Pair = tuple[int, int, int]
"""A stretch, and the targets of its first and its last unit; 0 at the ends of the graph."""


def articulation_units(problem: Problem) -> list[int]:
    """Returns units with stretches of at least :data:`SHORTEST` units before, between and behind
    them; none where one stretch is most of the graph."""
    units: list[int] = []
    for u in np.flatnonzero(_separates(problem)).tolist():
        if u - (units[-1] if units else 0) >= SHORTEST and problem.n - 1 - u >= SHORTEST:
            units.append(u)
    longest = max(np.diff([0, *units, problem.n - 1]), default=0)
    return units if longest <= LARGEST_SHARE * problem.n else []


def _separates(problem: Problem) -> Bools:
    """Returns [n]: true where all other units are before or behind this one, and neither a value
    nor a region cheaper than its parts reaches from one side to the other."""
    a, n = problem.arrays, problem.n
    unit = np.arange(n)
    head = np.repeat(unit, np.diff(a.predecessor_at))
    successor, predecessor = np.full(n, n), np.full(n, -1)
    np.minimum.at(successor, a.predecessors, head)
    np.maximum.at(predecessor, head, a.predecessors)
    before = np.maximum.accumulate(np.append(-1, successor[:-1]))
    behind = np.minimum.accumulate(np.append(predecessor[1:], n)[::-1])[::-1]
    spans = []
    for value in problem.values:
        touched = [u for u in (value.producer, *value.readers) if u != GRAPH_INPUT]
        if touched:
            spans.append((min(touched) + 1, max(touched)))
    regions = problem.regions
    cheaper = (regions.ns < regions.parts_ns) & np.isfinite(regions.ns)
    whole = cheaper & ((np.diff(regions.unit_at) > 1) | ~np.isfinite(regions.parts_ns))
    for g in np.flatnonzero(whole).tolist():
        units = regions.units[regions.unit_at[g] : regions.unit_at[g + 1]]
        spans.append((int(units[0]), int(units[-1]) + 1))
    crossed = np.zeros(n + 1, dtype=np.int64)
    for first, end in spans:
        if first < end:
            crossed[first] += 1
            crossed[end] -= 1
    free = crossed.cumsum()[:n] == 0
    return np.asarray(free & (before <= unit) & (behind >= unit))


@dataclass
class _Stretch:
    """A stretch for one target of its first unit and one of its last."""

    problem: Problem
    paid_ns: float
    """Part of the cost of the problem's plans that the stretch before pays."""
    relaxation: Relaxation
    bound_ns: float
    slack_ns: float
    steps: int = 0
    plan: Plan | None = None
    """Best plan, where known."""
    costlier: set[Region] = field(default_factory=set)


def _pairs_of(path: Sequence[int]) -> list[Pair]:
    """Returns the pairs along a path of targets."""
    return [(j, k, m) for j, (k, m) in enumerate(itertools.pairwise(path))]


def _shortest(lengths: Sequence[Floats]) -> tuple[list[int], list[Floats], list[Floats]]:
    """Returns the targets along a shortest path, and the lengths of the way to each target and of
    the way on from it."""
    before, behind = [np.zeros(1)], [np.zeros(1)]
    for length in lengths:
        before.append((before[-1][:, None] + length).min(axis=0))
    for length in reversed(lengths):
        behind.append((length + behind[-1]).min(axis=1))
    behind.reverse()
    path = [0]
    for length, rest in zip(lengths, behind[1:], strict=True):
        path.append(int((length[path[-1]] + rest).argmin()))
    return path, before, behind


def _largest_cost(problem: Problem) -> float:
    """Returns the largest cost in ns of one unit, segment, transfer or conversion."""
    a = problem.arrays
    units = a.unit_ns[np.isfinite(a.unit_ns)]
    costs = (units, a.overhead_ns, a.in_ns, a.out_ns, a.to_int8_ns, a.to_float_ns)
    return max(float(ns.max(initial=0.0)) for ns in costs)


class Stretches:
    """Stretches of a problem, and the bounds of their lengths."""

    def __init__(self, problem: Problem, prices: Prices) -> None:
        self._problem = problem
        units = articulation_units(problem)
        self.count = len(units) + 1
        self._ends = [0, *units, problem.n - 1]
        self._pairs: dict[Pair, _Stretch] = {}
        self._unsolved: set[Pair] = set()
        """Pairs that the exact programme does not finish."""
        self._lengths = self._priced(units, prices)
        """Lengths of each stretch in ns, by the targets of its first and its last unit; the first
        stretch has one row, the last one has one column"""

    def _priced(self, units: Sequence[int], prices: Prices) -> list[Floats]:
        """Returns lengths by prices: the bound of the rest at one end, less that at the other."""
        a = self._problem.arrays
        total = prices.least.cumsum()
        switched = prices.switch_begin + prices.switch.cumsum(axis=0)
        rest = [total[-1:]]
        for u in units:
            ns = total[-1] - total[u] + switched[u]
            for v in a.makes[a.make_at[u] : a.make_at[u + 1]].tolist():
                own = slice(a.reader_at[v], a.reader_at[v + 1])
                ns = ns + (prices.leaves[own] - prices.enters[own]).sum(axis=0)
                ns = ns - np.where(a.format, prices.to_int8[own].sum(), prices.to_float[own].sum())
                if a.is_output[v]:  # prices count this as paid once the unit has run
                    ns = ns + a.out_ns[v] + self._output_conversions(v)
            rest.append(np.maximum(ns, 0.0))
        rest.append(np.zeros(1))
        lengths = []
        for begin, end in itertools.pairwise(rest):
            length = np.maximum(begin[:, None] - end[None, :] + prices.slack, 0.0)
            lengths.append(length * (1 - ROUNDING))
        for j, u in enumerate(units):
            never = ~np.isfinite(a.unit_ns[u])
            lengths[j][:, never] = lengths[j + 1][never] = np.inf
        return lengths

    def _output_conversions(self, v: int) -> Floats:
        """Returns [t], ns: cost of an output's conversions to the formats needed, by its maker's
        target."""
        a = self._problem.arrays
        lacking = a.formats_out[v] & ~(1 << a.format)
        to_int8_ns = np.where(lacking & AS_INT8, a.to_int8_ns[v], 0.0)
        return np.asarray(to_int8_ns + np.where(lacking & AS_FLOAT, a.to_float_ns[v], 0.0))

    def solve(self, plan: Plan, watch: Watch) -> tuple[float, Plan]:
        """Returns a bound of all plans, and the best plan made of stretches of this one and of
        solved stretches, if no region measured whole costs more than its parts. Ends at the limits,
        or where the bound is reached."""
        best_ns = total_ns(self._problem, plan) * (1 - NEGLIGIBLE / 2)
        while True:
            path, before, behind = _shortest(self._lengths)
            bound_ns = float(behind[0][0]) * (1 - ROUNDING)
            steps = {key: self._steps(key) for key in _pairs_of(path)}
            key = min(steps, key=steps.__getitem__)
            if bound_ns >= best_ns or watch.is_over or math.isinf(steps[key]):
                return bound_ns, self._recombined(plan)
            others_ns = float(before[key[0]][key[1]] + behind[key[0] + 1][key[2]])
            self._refine(key, best_ns - others_ns, watch)

    def _steps(self, key: Pair) -> float:
        """Returns the steps made for a pair; inf where there will be no more."""
        if key in self._unsolved:
            return math.inf
        pair = self._pairs.get(key)
        if pair is None:
            return -1.0
        return pair.steps if pair.plan is None else math.inf

    def _refine(self, key: Pair, most_ns: float, watch: Watch) -> None:
        """Raises a pair's length, or finds its best plan; plans that cost more than ``most_ns`` do
        not matter."""
        j, k, m = key
        pair = self._pairs.get(key)
        if pair is None:
            pair = self._begin(key, watch)
        else:
            self._search(key, pair, most_ns, watch)
        if pair is not None:
            length = self._lengths[j]
            length[k, m] = max(float(length[k, m]), pair.bound_ns - pair.paid_ns)

    def _begin(self, key: Pair, watch: Watch) -> _Stretch | None:
        """Solves the relaxation of a pair."""
        problem, paid_ns = self._stretch(*key)
        relaxation = relax(problem, watch.seconds_left)
        if relaxation is None:
            if not watch.is_over:
                self._unsolved.add(key)
            return None
        bound_ns = relaxation.bound_ns
        slack_ns = SLACK * max(bound_ns, _largest_cost(problem))
        pair = _Stretch(problem, paid_ns, relaxation, bound_ns, slack_ns)
        self._pairs[key] = pair
        return pair

    def _search(self, key: Pair, pair: _Stretch, most_ns: float, watch: Watch) -> None:
        """Runs the exact programme for plans of a pair that cost a little more than its bound."""
        upper_ns = min(pair.bound_ns + pair.slack_ns, most_ns + pair.paid_ns) * (1 + NEGLIGIBLE)
        steps, result = 0, None
        for result, _ in search_repeatedly(
            pair.relaxation.fixed(pair.problem, upper_ns),
            pair.relaxation.prices,
            lambda: upper_ns,
            watch,
            pair.costlier,
            steps=MOST_STEPS,
            memory_share=SHARE_OF_MEMORY,
        ):
            steps += result.steps
        if result is None:
            self._unsolved.add(key)
            return
        pair.steps += steps
        pair.slack_ns *= WIDER
        pair.bound_ns = max(pair.bound_ns, min(result.bound_ns, upper_ns) * (1 - ROUNDING))
        if result.complete and result.placements:
            pair.plan = result.placements
        elif not result.complete and not watch.is_over:
            self._unsolved.add(key)

    def _stretch(self, j: int, k: int, m: int) -> tuple[Problem, float]:
        """Returns a pair as a problem, and the cost that it counts twice: each value belongs to one
        stretch, and an articulation unit's own cost to the stretch that it ends."""
        first, last = self._ends[j], self._ends[j + 1]
        small = subproblem(self._problem, range(first, last + 1))
        unit_ns, values, paid_ns = small.unit_ns.copy(), small.values, 0.0
        ends = set()
        if j > 0:
            ends.add(0)
            unit_ns[0] = np.inf
            unit_ns[0, k] = 0.0
            paid_ns = float(self._problem.overhead_ns[k])
            values = tuple(v for v in values if v.producer != GRAPH_INPUT or v.readers != (0,))
        if j + 1 < self.count:
            ends.add(small.n - 1)
            own_ns = max(0.0, unit_ns[-1, m] - self._saved_alone(last, m))
            unit_ns[-1] = np.inf
            unit_ns[-1, m] = own_ns
            values = tuple(v for v in values if v.producer != small.n - 1)
        regions = {region: ns for region, ns in small.region_ns.items() if not ends & region[0]}
        return replace(small, values=values, unit_ns=unit_ns, region_ns=regions), paid_ns

    def _saved_alone(self, unit: int, k: int) -> float:
        """Returns the ns that a unit measured alone costs less than by its parts."""
        region = frozenset({unit}), k
        if region not in self._problem.region_ns:
            return 0.0
        return max(0.0, self._problem.region_parts_ns[region] - self._problem.region_ns[region])

    def _recombined(self, plan: Plan) -> Plan:
        """Returns the best plan made of solved stretches and those of a plan."""
        target = np.zeros(self._problem.n, dtype=np.int64)
        for units, k in plan:
            target[list(units)] = k
        parts: dict[Pair, tuple[float, Plan]] = {}
        path = [0, *target[self._ends[1:-1]].tolist(), 0]
        for key in _pairs_of(path):
            problem, paid_ns = self._stretch(*key)
            first, last = self._ends[key[0]], self._ends[key[0] + 1]
            inside = [
                (tuple(u - first for u in units if first <= u <= last), k) for units, k in plan
            ]
            part = tuple((units, k) for units, k in inside if units)
            parts[key] = total_ns(problem, part) - paid_ns, part
        for key, pair in self._pairs.items():
            if pair.plan is not None:
                ns = total_ns(pair.problem, pair.plan) - pair.paid_ns
                if key not in parts or ns < parts[key][0]:
                    parts[key] = ns, pair.plan
        lengths = [np.full(length.shape, np.inf) for length in self._lengths]
        for (j, k, m), (ns, _) in parts.items():
            lengths[j][k, m] = ns
        path, before, _ = _shortest(lengths)
        if not math.isfinite(before[-1][0]):  # no better plan has some placement of this one
            return plan
        return self._joined([parts[key][1] for key in _pairs_of(path)])

    def _joined(self, plans: Sequence[Plan]) -> Plan:
        """Returns the stretches' plans as one, joining segments that share an articulation unit."""
        whole: list[Placement] = []
        for first, plan in zip(self._ends[:-1], plans, strict=True):
            segments = [(tuple(first + u for u in units), k) for units, k in plan]
            if whole:
                units, k = whole.pop()
                segments[0] = (*units, *segments[0][0][1:]), k
            whole += segments
        return tuple(whole)
