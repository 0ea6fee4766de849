"""The loops in C and those in Python do the same, step by step."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from nnapi_prof.errors import BuildError
from nnapi_prof.partition import Partitioning, SearchLimits, plan_problem
from nnapi_prof.partition.constraints import Budget
from nnapi_prof.partition.problem import Problem
from nnapi_prof.partition.search import annealing, anytime, exact, native, windows
from nnapi_prof.partition.search.annealing import Annealer
from nnapi_prof.partition.search.exact import ExactResult, search_ideals
from nnapi_prof.partition.search.prices import free_prices, unit_shares
from nnapi_prof.partition.search.relaxation import relax
from nnapi_prof.partition.search.result import Watch
from tests.partition import reference_annealing, reference_ideals
from tests.partition.problems import Plan, draw_plan, draw_problem, stem_problem


@pytest.fixture
def interpret(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Lets the loops in Python take the place of those in C."""
    monkeypatch.setattr(exact, "SLICE", 5_000)
    monkeypatch.setattr(annealing, "SLICE", 4_096)

    def replace_loops() -> None:
        monkeypatch.setattr(exact, "advance", reference_ideals.advance)
        monkeypatch.setattr(exact, "rehash", reference_ideals.rehash)
        monkeypatch.setattr(annealing, "anneal", reference_annealing.anneal)
        monkeypatch.setattr(native, "library", None)

    return replace_loops


@pytest.fixture
def no_library_yet() -> Iterator[None]:
    native.library.cache_clear()
    yield
    native.library.cache_clear()


def unhurried() -> Watch:
    return Watch(SearchLimits(seconds=1e6, effort=math.inf))


def by_ideals(problem: Problem, seed: int) -> ExactResult:
    """With prices, budgets, watched regions and little room, in turn."""
    relaxation = relax(problem) if seed % 2 else None
    free = free_prices(problem, unit_shares(problem))
    solution = search_ideals(
        problem,
        free if relaxation is None else relaxation.prices,
        math.inf,
        unhurried(),
        budgets=[Budget.segments(problem)] if seed % 3 == 0 else (),
        watched=list(problem.region_ns) if seed % 5 else (),
        width=4 if seed % 4 == 0 else 1 << 40,
    )
    assert solution is not None
    return solution


def test_the_exact_programme(interpret) -> None:  # type: ignore[no-untyped-def]
    problems = [(draw_problem(seed, 7), seed) for seed in range(30)] + [(stem_problem(7), 1)]
    compiled = [by_ideals(*case) for case in problems]
    interpret()
    assert [by_ideals(*case) for case in problems] == compiled


def annealed(problem: Problem, seed: int) -> Plan:
    annealer = Annealer(problem, range(len(problem.targets)))
    plan = draw_plan(problem, random.Random(seed))
    hot = float(problem.unit_ns[np.isfinite(problem.unit_ns)].max()) + 1.0
    return annealer.run(plan, 512, hot, hot / 30, seed, unhurried())


def test_annealing(interpret, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(annealing, "MANY_READERS", 2)
    problems = [(draw_problem(seed, 9), seed) for seed in range(24)] + [(stem_problem(9), 1)]
    problems = [(p, seed) for p, seed in problems if np.isfinite(p.unit_ns).any(axis=1).all()]
    compiled = [annealed(*case) for case in problems]
    interpret()
    assert [annealed(*case) for case in problems] == compiled


def test_a_whole_call(interpret, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    """Of a graph that every step gets a turn at, each with little effort."""
    for module, name, effort in (
        (anytime, "FIRST_STEPS", 500),
        (anytime, "WHOLE_STEPS", 500),
        (anytime, "MOST_STEPS", 500),
        (anytime, "MOVES", 512),
        (anytime, "CLOSE", 0.0),
        (windows, "STEPS", 500),
        (windows, "WIDTH", 4),
    ):
        monkeypatch.setattr(module, name, effort)
    problem = stem_problem(8, seed=1, length=2)

    def planned() -> Partitioning:
        return plan_problem(problem, True, limits=SearchLimits(1e6, effort=2e4), with_curve=False)

    compiled = planned()
    interpret()
    interpreted = planned()
    assert interpreted.steps == compiled.steps > 2_000
    assert interpreted == compiled


@pytest.mark.usefixtures("no_library_yet")
def test_without_a_compiler_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNAPI_PROF_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NNAPI_PROF_CC", "no-such-compiler")
    with pytest.raises(BuildError, match="not a working C compiler: name another"):
        plan_problem(stem_problem(4), True)


@pytest.mark.usefixtures("no_library_yet")
def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NNAPI_PROF_CACHE_DIR", str(tmp_path / "file"))
    assert plan_problem(stem_problem(4), True).best.segments
    assert "compiled for this once" in caplog.text


def test_arrays_that_c_would_misread_are_refused() -> None:
    with pytest.raises(ValueError, match="array 1 of 2 is not contiguous"):
        native.pointers([np.zeros(4), np.zeros((4, 4))[:, ::2]])
