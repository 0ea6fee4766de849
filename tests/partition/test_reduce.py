"""Joining units before the search keeps the optimum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nnapi_prof.partition import plan_problem
from nnapi_prof.partition.problem import GRAPH_INPUT, Problem, Value
from nnapi_prof.partition.search.reduce import identity_reduction, reduce_problem
from tests.partition.pairs import optimum
from tests.partition.problems import TARGETS, draw_problem


def test_the_optimum_stays() -> None:
    joined = 0
    for seed in range(200):
        problem = draw_problem(seed, 8)
        reduced = reduce_problem(problem)
        small = reduced.problem
        assert sorted(u for group in reduced.groups for u in group) == list(range(problem.n))
        assert all(u in reduced.groups[reduced.place[u]] for u in range(problem.n))
        assert optimum(small) == pytest.approx(optimum(problem), rel=1e-9), seed
        for units, k in ((tuple(range(small.n)), 0), ((small.n - 1,), 0)):
            ns = problem.segment_ns(reduced.expand(units), k)
            assert small.segment_ns(units, k) == pytest.approx(ns, rel=1e-9), seed
        joined += small.n < problem.n
    assert joined > 20


def test_without_a_reduction_units_stand_for_themselves() -> None:
    problem = draw_problem(1)
    same = identity_reduction(problem)
    assert same.problem is problem and same.expand((0,)) == (0,)


def test_heads_that_share_a_value_do_not_each_pay_for_it() -> None:
    """Of three readers of a value each counted bringing it in for itself: 85 was called optimal."""
    problem = Problem(
        labels=("u0", "u1", "u2", "u3"),
        predecessors=((), (0,), (0,), (0,)),
        values=(
            Value(GRAPH_INPUT, (0,), 1),
            Value(0, (1, 2, 3), 16),
            Value(1, (), 16, True),
            Value(2, (), 1, True),
            Value(3, (), 4, True),
        ),
        targets=TARGETS[:2],
        unit_ns=np.array([[29, np.inf], [18, 5], [17, 4], [30, 8]], dtype=np.float64),
        overhead_ns=np.array([0.0, 2.0]),
        in_ns_per_byte=np.array([0.0, 1.0]),
        out_ns_per_byte=np.array([0.0, 1.0]),
    )
    assert optimum(problem) == optimum(reduce_problem(problem).problem) == 82
    assert plan_problem(problem, True).best.predicted_ns == 82


def operators() -> Problem:
    """u0, u1: free constants that u2 reads; u3 reads u2, is free and makes nothing; u4 reads u2."""
    unit_ns = np.zeros((5, 2))
    unit_ns[2] = 10.0, 100.0
    unit_ns[4] = 10.0
    return Problem(
        labels=tuple(f"u{u}" for u in range(5)),
        predecessors=((), (), (0, 1), (2,), (2,)),
        values=(
            Value(0, (2,), 16),
            Value(1, (2,), 16),
            Value(2, (3, 4), 16),
            Value(4, (), 16, True),
        ),
        targets=TARGETS[:2],
        unit_ns=unit_ns,
        overhead_ns=np.array([0.0, 5.0]),
        in_ns_per_byte=np.array([0.0, 1.0]),
        out_ns_per_byte=np.array([0.0, 1.0]),
    )


def test_constants_and_dead_ends_join_their_neighbours() -> None:
    assert reduce_problem(operators()).groups == ((0, 1, 2, 3), (4,))
    told_apart = replace(operators(), region_ns={(frozenset({0, 2}), 1): 30.0})
    assert set(reduce_problem(told_apart).groups) == {(0, 2), (1,), (3,), (4,)}
