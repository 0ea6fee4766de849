"""Targets that differ in format: conversions are once each way, in every step of the search."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from nnapi_prof.costs.model.region import Conversions, CostArrays
from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import CPU, Plan, Precision, ProofKind
from nnapi_prof.partition import SearchLimits, evaluate, make_problem, plan_problem
from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.milp import solve_milp
from nnapi_prof.partition.problem import GRAPH_INPUT, Problem, Value
from nnapi_prof.partition.search import annealing, anytime, exact
from nnapi_prof.partition.search.annealing import Annealer, Labelling, Tables
from nnapi_prof.partition.search.anytime import search
from nnapi_prof.partition.search.exact import search_ideals
from nnapi_prof.partition.search.expansion import (
    _best_move,
    labelling_of_plan,
    plan_of_labelling,
)
from nnapi_prof.partition.search.reduce import reduce_problem, subproblem
from nnapi_prof.partition.search.relaxation import free_prices, relax, unit_shares
from nnapi_prof.partition.search.result import Watch
from tests.partition import reference_annealing, reference_ideals
from tests.partition.cases import Table, build_graph
from tests.partition.precisions import converting_ns, optimum_with_formats, with_formats
from tests.partition.problems import check_plan, draw_plan, draw_problem
from tests.partition.test_exact import costlier, prices_of, unhurried
from tests.partition.test_expansion import best_of_all


def mixed(seed: int, most_units: int = 8, *, regions: bool = True) -> Problem:
    return with_formats(draw_problem(seed, most_units, regions=regions), seed)


def of_units_that_run(count: int, most_units: int = 8) -> list[tuple[int, Problem]]:
    drawn = [(seed, mixed(seed, most_units)) for seed in range(count)]
    return [(s, p) for s, p in drawn if np.isfinite(p.unit_ns).any(axis=1).all()]


def chain() -> Problem:
    """u0 -> u1 -> u2 on the CPU in floats and in 8 bits; converting costs 5 and 3 ns a value."""
    values = (
        Value(GRAPH_INPUT, (0,), 4, False, 5.0, 3.0),
        Value(0, (1, 2), 4, False, 5.0, 3.0),
        Value(1, (2,), 4, False, 5.0, 3.0),
        Value(2, (), 4, True, 5.0, 3.0),
    )
    return Problem(
        labels=("u0", "u1", "u2"),
        predecessors=((), (0,), (0, 1)),
        values=values,
        targets=(CPU, CPU.at(Precision.INT8)),
        unit_ns=np.array([[20.0, 20.0], [20.0, 1.0], [20.0, 14.0]]),
        overhead_ns=np.zeros(2),
        in_ns_per_byte=np.zeros(2),
        out_ns_per_byte=np.zeros(2),
        formats=np.array([0, 1]),
    )


def test_a_value_is_converted_once_each_way() -> None:
    problem = chain()
    assert (
        problem.conversions_ns((((0,), 0), ((1, 2), 1))) == 5.0 + 3.0
    )  # into both, out at the end
    assert problem.conversions_ns((((0, 1, 2), 1),)) == 5.0 + 3.0
    assert problem.conversions_ns((((0,), 0), ((1,), 1), ((2,), 0))) == 5.0 + 3.0
    assert problem.conversions_ns((((0,), 1), ((1, 2), 0))) == 5.0 + 3.0
    assert problem.conversions_ns((((0, 1, 2), 0),)) == 0.0
    answer = plan_problem(problem, True)
    assert answer.best.predicted_ns == 20 + 1 + 14 + 8 == optimum_with_formats(problem)
    assert answer.best.conversions_ns == 8.0
    assert evaluate(problem, answer.best.segments) == answer.best.predicted_ns
    assert sum(s.predicted_ns for s in answer.best.segments) == 35.0


def test_a_plan_keeps_its_conversions_in_json() -> None:
    plan = plan_problem(chain(), True).best
    again = Plan.from_json(plan.to_json())
    assert again.conversions_ns == 8.0 and again.predicted_ns == plan.predicted_ns
    free = replace(plan, conversions_ns=0.0)
    assert "conversions" not in free.to_json() and free.predicted_ns == 35.0


def test_costs_of_conversions_come_from_a_cost_model() -> None:
    graph = build_graph([[], [0]], [4, 4])
    int8 = CPU.at(Precision.INT8)

    class Converting(Table):
        def arrays(self) -> CostArrays:
            return CostArrays(
                targets=(CPU, int8),
                unit_ns=np.array([[50.0, 10.0], [50.0, 10.0]]),
                overhead_ns=np.zeros(2),
                in_ns_per_byte=np.zeros(2),
                out_ns_per_byte=np.zeros(2),
                region_ns={},
                estimated=np.zeros((2, 2), dtype=np.bool_),
                conversions=Conversions(np.array([0, 1]), {"x": 7.0}, {"v1": 9.0}),
            )

    problem = make_problem(graph, Converting((CPU, int8), {}, {}, {}))
    assert plan_problem(problem, True).best.predicted_ns == 10 + 10 + 7 + 9
    with pytest.raises(PartitionError, match="converting a value that op0"):
        replace(problem, values=(replace(problem.values[1], to_float_ns=math.nan),))
    with pytest.raises(PartitionError, match="formats are"):
        replace(problem, formats=np.array([0, 2]))


def test_a_plan_costs_what_the_definition_says() -> None:
    for seed, problem in of_units_that_run(60):
        plan = draw_plan(problem, random.Random(seed))
        assert problem.formats is not None
        eight = sum(1 << u for units, k in plan for u in units if problem.formats[k])
        ns = sum(problem.segment_ns(units, k) for units, k in plan) + converting_ns(problem, eight)
        assert total_ns(problem, plan) == pytest.approx(ns, rel=1e-12), seed


def test_the_exact_programme_finds_the_optimum() -> None:
    for seed in range(200):
        problem = mixed(seed)
        least = optimum_with_formats(problem)
        watched = costlier(problem)
        prices = prices_of(problem, seed)
        result = search_ideals(problem, prices, math.inf, unhurried(), watched=watched)
        assert result is not None and result.complete, seed
        check_plan(problem, result.placements)
        assert total_ns(problem, result.placements) == pytest.approx(least, rel=1e-9), seed
        assert result.fronts[0][0] == pytest.approx(least, rel=1e-9), seed
        limited = search_ideals(
            problem, prices, least * (1 + 1e-8), unhurried(), watched=watched, width=1 + seed % 5
        )
        assert limited is not None and limited.bound_ns <= least * (1 + 1e-8), seed
        if limited.complete:
            assert total_ns(problem, limited.placements) == pytest.approx(least, rel=1e-8), seed


def test_the_relaxation_bounds_every_plan() -> None:
    tight = solved = 0
    for seed in range(200):
        problem = mixed(seed)
        relaxation, least = relax(problem), optimum_with_formats(problem)
        if relaxation is None or math.isinf(least):
            continue
        assert relaxation.bound_ns <= least * (1 + 1e-9), seed
        solved += 1
        tight += relaxation.bound_ns >= least * (1 - 1e-6)
    assert tight > 0.5 * solved


def test_reduction_and_search_keep_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    """With little effort for each step, so that all get their turn."""
    steps = set()
    for seed in range(240):
        if seed == 120:
            for name, effort in (
                ("FIRST_STEPS", 20),
                ("WHOLE_STEPS", 20),
                ("MOST_STEPS", 20),
                ("MOVES", 512),
                ("WINDOW_STEPS", 500),
                ("WIDTH", 4),
                ("STEPS_OF_WIDTH", 100),
                ("CLOSE", 0.0),
            ):
                monkeypatch.setattr(anytime, name, effort)
            monkeypatch.setattr(exact, "SLICE", 20)
        problem = mixed(seed)
        least = optimum_with_formats(problem)
        assert optimum_with_formats(reduce_problem(problem).problem) == pytest.approx(least), seed
        result = search(problem, Watch(SearchLimits(seconds=1e6, effort=1e7)))
        if result is None:
            assert math.isinf(least) or seed >= 120
            continue
        check_plan(problem, result.placements)
        steps.add(result.found_by)
        assert result.bound_ns <= least * (1 + 1e-9), seed
        assert result.ns >= least * (1 - 1e-9), seed
        assert result.kind is not ProofKind.EXACT or result.ns <= least * (1 + 1e-9), seed
        assert result.kind is not ProofKind.BOUND_MET or result.ns <= least * (1 + 1e-6), seed
    assert {"baseline", "exact", "annealing"} <= steps


def test_an_expansion_is_the_best_move_of_all() -> None:
    for seed in range(60):
        chance = random.Random(seed)
        problem = mixed(seed, 6, regions=False)
        plan = draw_plan(problem, chance)
        phase, phase_target = labelling_of_plan(plan, problem.n, range(len(problem.targets)))
        for g in chance.sample(range(len(phase_target)), min(4, len(phase_target))):
            moved = _best_move(problem, phase, phase_target, g)
            after = plan if moved is None else plan_of_labelling(moved, phase_target)
            least = best_of_all(problem, phase, phase_target, g)
            assert total_ns(problem, after) == pytest.approx(least, rel=1e-6), (seed, g)


def test_what_annealing_moves_cost_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Tables, Labelling]] = []
    anneal = annealing.anneal

    def recorded(tables: Tables, labelling: Labelling, *rest: float) -> None:
        anneal(tables, labelling, *rest)  # type: ignore[arg-type]
        calls.append((tables, labelling))

    monkeypatch.setattr(annealing, "anneal", recorded)
    for seed, problem in of_units_that_run(60, 9):
        plan = draw_plan(problem, random.Random(seed))
        before, hot = total_ns(problem, plan), float(np.nanmax(problem.overhead_ns)) + 50.0
        Annealer(problem, range(len(problem.targets))).run(
            plan, 2_000, hot, hot / 30, seed, Watch(SearchLimits(seconds=1e6, effort=math.inf))
        )
        tables, labelling = calls[-1]
        for phase, change in zip((labelling.phase, labelling.best), labelling.cost, strict=True):
            after = total_ns(problem, plan_of_labelling(phase, tables.phase_target))
            if math.isfinite(before) and math.isfinite(after):
                assert before + change == pytest.approx(after, rel=1e-9, abs=1e-6), seed


def test_a_part_costs_on_its_own_what_it_costs_in_the_plan() -> None:
    """Up to what the rest costs: two plans that differ in a part differ there by as much."""
    for seed, problem in of_units_that_run(150, 9):
        chance = random.Random(seed)
        plan = draw_plan(problem, chance)
        first = chance.randrange(len(plan))
        last = chance.randint(first + 1, len(plan))
        units = sorted(u for segment, _ in plan[first:last] for u in segment)
        part = subproblem(problem, units, plan)
        costs = []
        for own in (draw_plan(part, chance), draw_plan(part, chance)):
            there = tuple((tuple(units[i] for i in segment), k) for segment, k in own)
            whole = total_ns(problem, (*plan[:first], *there, *plan[last:]))
            costs.append((total_ns(part, own), whole))
        (a, whole_a), (b, whole_b) = costs
        if all(map(math.isfinite, (whole_a, whole_b))):
            assert a - b == pytest.approx(whole_a - whole_b, rel=1e-9, abs=1e-6 * whole_a), seed


def test_the_milp_agrees() -> None:
    for seed in range(6):
        problem = mixed(seed, 4)
        least = optimum_with_formats(problem)
        if math.isfinite(least):
            assert solve_milp(problem).ns == pytest.approx(least, rel=1e-6), seed


def test_the_loops_in_c_do_what_those_in_python_do(monkeypatch: pytest.MonkeyPatch) -> None:
    problems = [(seed, mixed(seed, 7)) for seed in range(24)]

    def answers() -> list[object]:
        every: list[object] = []
        for seed, problem in problems:
            relaxation = relax(problem) if seed % 2 else None
            free = free_prices(problem, unit_shares(problem))
            every.append(
                search_ideals(
                    problem,
                    free if relaxation is None else relaxation.prices,
                    math.inf,
                    unhurried(),
                    watched=list(problem.region_ns),
                    width=4 if seed % 4 == 0 else 1 << 40,
                )
            )
            if np.isfinite(problem.unit_ns).any(axis=1).all():
                plan = draw_plan(problem, random.Random(seed))
                annealer = Annealer(problem, range(len(problem.targets)))
                every.append(annealer.run(plan, 512, 50.0, 5.0, seed, unhurried()))
        return every

    compiled = answers()
    monkeypatch.setattr(exact, "advance", reference_ideals.advance)
    monkeypatch.setattr(exact, "rehash", reference_ideals.rehash)
    monkeypatch.setattr(annealing, "anneal", reference_annealing.anneal)
    assert answers() == compiled
