"""Real graphs of up to 604 nodes: the search against a mixed-integer programme and the minimum cut.

The programme is solved by HiGHS, via scipy, and shares no search code with the partitioner: units
go into ordered slots, a slot has at most one target, and no unit stands in an earlier slot than
what it reads. How many slots a plan can need follows from how far a known plan is above a lower
bound: each segment on the accelerator costs its overhead beyond that bound.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from nnapi_prof.partition.baselines import find_baselines, total_ns
from nnapi_prof.partition.problem import Problem
from nnapi_prof.partition.search import SearchLimits, SearchResult, Watch
from nnapi_prof.partition.search.anytime import search
from nnapi_prof.partition.search.minimum_cut import minimum_cut
from tests.partition.placement_graphs import names, placement_problem
from tests.partition.problems import check_plan
from tests.parts import again_but

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


def least_by_milp(problem: Problem, upper_ns: float) -> float:
    """The latency of the best plan in ns; ``upper_ns`` is that of some known plan."""
    model, n, targets = _Model(), problem.n, range(len(problem.targets))
    places = list(itertools.product(range(_slots_needed(problem, upper_ns)), targets))
    used = {(s, k): model.column(float(problem.overhead_ns[k]), binary=True) for s, k in places}
    each = [(u, s, k) for u in range(n) for s, k in places]
    here = {place: model.column(float(problem.unit_ns[place[::2]]), binary=True) for place in each}
    slots = dict.fromkeys(s for s, _ in places)
    up_to = {(u, s): model.column(0.0) for u in range(n) for s in slots}
    for s in slots:
        model.row({used[s, k]: 1 for k in targets}, 0, 1)
    for u in range(n):
        model.row({here[u, s, k]: 1 for s, k in places}, 1, 1)
        for s, k in places:
            model.row({here[u, s, k]: 1, used[s, k]: -1}, -math.inf, 0)
        for s in slots:
            before = {up_to[u, s - 1]: -1.0} if s else {}
            model.row({up_to[u, s]: 1, **before, **{here[u, s, k]: -1 for k in targets}}, 0, 0)
            for p in problem.predecessors[u]:  # p stands in a slot up to s wherever u does
                model.row({up_to[u, s]: 1, up_to[p, s]: -1}, -math.inf, 0)
    for s, k in places:
        _add_transfers(model, problem, [here[u, s, k] for u in range(n)], k)
    chosen = model.solve()
    segments: dict[tuple[int, int], list[int]] = {}
    for (u, s, k), column in here.items():
        if chosen[column]:
            segments.setdefault((s, k), []).append(u)
    return total_ns(problem, [(tuple(units), k) for (_, k), units in sorted(segments.items())])


def _slots_needed(problem: Problem, upper_ns: float) -> int:
    """How many segments a plan of at most ``upper_ns`` ns can have at most; of plans that cost
    the same, one whose neighbours on the CPU are joined, which costs nothing."""
    cut = minimum_cut(replace(problem, overhead_ns=np.zeros(2)))  # no plan costs less without them
    regions = (upper_ns - cut.ns) / problem.overhead_ns[1] * (1 + 1e-9) + 1e-9
    return min(problem.n, 2 * max(0, math.floor(regions)) + 1)


def _add_transfers(model: _Model, problem: Problem, here: list[int], k: int) -> None:
    """A value enters a slot that reads and does not make it; it leaves the other way round.

    ``here`` has the column of each unit in that slot and on that target.
    """
    for value in problem.values:
        maker = here[value.producer]
        into = model.column(value.n_bytes * float(problem.in_ns_per_byte[k]))
        out = model.column(value.n_bytes * float(problem.out_ns_per_byte[k]))
        if value.is_output:
            model.row({out: 1, maker: -1}, 0, math.inf)
        for reader in value.readers:
            model.row({into: 1, here[reader]: -1, maker: 1}, 0, math.inf)
            model.row({out: 1, here[reader]: 1, maker: -1}, 0, math.inf)


def searched(problem: Problem) -> SearchResult:
    result = search(problem, Watch(SearchLimits(seconds=60.0)))
    check_plan(problem, result.placements)
    return result


@pytest.mark.slow
@pytest.mark.parametrize("name", again_but(names(), *names()[:2], why="larger graphs"))
def test_search_and_milp_agree(name):
    problem = placement_problem(name)
    result = searched(problem)
    assert result.gap < 0.01
    assert result.ns == pytest.approx(least_by_milp(problem, result.ns), rel=1e-6)
    assert result.ns <= min(b.predicted_ns for b in find_baselines(problem)) * (1 + 1e-9)


@pytest.mark.parametrize("name", [n for n in names() if "Layer" in n])
def test_with_refusals_the_cut_is_a_bound_and_without_overhead_nearly_all(name):
    problem = placement_problem(name, refused=0.1)
    result = searched(problem)
    assert result.gap < 1e-3
    cut = minimum_cut(problem)
    assert cut.ns <= result.ns
    free = replace(problem, overhead_ns=np.zeros(2))
    without = searched(free)
    assert without.gap < 1e-3
    assert total_ns(free, without.placements) == pytest.approx(without.ns)
    # A value that comes back into a second region is paid twice there, and once by the cut.
    cut = minimum_cut(free)
    assert cut.ns <= without.ns * (1 + 1e-6) <= cut.ns * 1.01
