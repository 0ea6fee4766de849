"""The families of large problems are what they say."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from nnapi_prof.graph.plan import CPU
from nnapi_prof.partition.problem import GRAPH_INPUT, Problem
from tests.partition.families import (
    WIDE,
    cells_problem,
    decoder_problem,
    heads_problem,
    wide_problem,
)
from tests.partition.pairs import all_ideals

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def same(problem: Problem, other: Problem) -> bool:
    arrays = ("unit_ns", "overhead_ns", "in_ns_per_byte", "out_ns_per_byte")
    fields = ("labels", "predecessors", "values", "targets", "region_ns")
    return all(np.array_equal(getattr(problem, a), getattr(other, a)) for a in arrays) and all(
        getattr(problem, field) == getattr(other, field) for field in fields
    )


@pytest.mark.parametrize("structure", WIDE)
def test_wide_graphs(structure: str) -> None:
    problem = wide_problem(structure, 400, 4, 3)
    assert problem.unit_ns.shape == (400, 4)
    assert same(problem, wide_problem(structure, 400, 4, 3))
    assert not same(problem, wide_problem(structure, 400, 4, 4))
    refused = np.isinf(problem.unit_ns)
    assert not refused[:, 0].any() and 0.07 < refused[:, 1:].mean() < 0.13
    read = {p for preds in problem.predecessors for p in preds}
    for value in problem.values:
        if value.producer == GRAPH_INPUT:
            assert value.readers == (0,) and value.n_bytes == 50_000
        else:
            assert value.is_output == (value.producer not in read)
            assert 5_000 <= value.n_bytes <= 100_000
    ends = {
        "stem": list(range(1, 399)),
        "chains": [*range(24, 49, 24), *range(73, 399, 25)],
        "skips": [398],
    }
    if structure in ends:
        assert list(problem.predecessors[-1]) == ends[structure]


def test_blocks_are_eight_chains_of_three() -> None:
    problem = wide_problem("blocks", 51, 2, 0)
    assert problem.predecessors[25] == tuple(range(3, 25, 3)) == (3, 6, 9, 12, 15, 18, 21, 24)
    assert [problem.predecessors[u] for u in (26, 27, 28, 29)] == [(25,), (26,), (27,), (25,)]
    assert problem.predecessors[50] == tuple(range(28, 50, 3))


def test_heads() -> None:
    for n_taps in (1, 8):
        problem = heads_problem(n_taps, 0)
        assert problem.n == 13 + 12 * n_taps and len(problem.targets) == 13
        assert sum(value.is_output for value in problem.values) == 2 * n_taps
        assert np.isfinite(problem.unit_ns[:, 0]).all() and np.isinf(problem.unit_ns[:, 1:]).any()
        assert 300 < len(problem.region_ns) < 2000


@pytest.mark.parametrize("style", ["nasnet", "pnasnet"])
def test_cells(style: str) -> None:
    for seed in range(10):
        problem = cells_problem(style, seed)
        assert 800 <= problem.n <= 1050 and problem.targets[0] == CPU
        assert len(problem.targets) == 2 and not problem.overhead_ns.any()
        moves = sorted(value.n_bytes for value in problem.values)
        assert moves[9 * len(moves) // 10] < 1.5 * moves[len(moves) // 10]


def test_decoder() -> None:
    problem = decoder_problem(0)
    assert problem.n == 220 and len(problem.targets) == 13
    assert 8_000 < len(all_ideals(problem)) < 10_000
    assert 0.3 < np.isinf(problem.unit_ns[:, 1:]).mean() < 0.37


def test_problems_go_through_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.delitem(sys.modules, "plan_one", raising=False)
    import plan_one

    for problem in (heads_problem(2, 1), wide_problem("random", 60, 3, 0)):
        plan_one.write_problem(problem, tmp_path / "problem.json")
        assert same(problem, plan_one.read_problem(tmp_path / "problem.json"))
