"""Convex sets, counted."""

import itertools

from hypothesis import given

from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.partition.blocks import convex_sets, members
from tests.partition.cases import SETTINGS, graphs


@SETTINGS
@given(graphs(max_units=6))
def test_sets_without_a_way_out_and_back(graph: UnitGraph) -> None:
    n = len(graph.units)
    predecessors = [graph.predecessors(u) for u in range(n)]
    behind: list[set[int]] = []
    for u in range(n):
        behind.append(set(predecessors[u]).union(*(behind[p] for p in predecessors[u])))
    expected = {
        units
        for size in range(1, n + 1)
        for units in itertools.combinations(range(n), size)
        if not any(
            set(units) & behind[w] and any(w in behind[u] for u in units)
            for w in range(n)
            if w not in units
        )
    }
    actual = convex_sets(predecessors, 1000)
    assert actual is not None and {members(bits) for bits in actual} == expected


def test_too_many_are_not_counted() -> None:
    assert convex_sets([[] for _ in range(12)], 1000) is None
    assert convex_sets([[] for _ in range(3)], 1000) == set(range(1, 8))
