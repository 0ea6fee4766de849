"""Targets of different formats: conversions, errors as budgets, the front of time against noise."""

import importlib
import math
import random
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from nnapi_prof.costs.table import Conversions
from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import CPU, Engine, Plan, Precision, ProofKind, Target
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.partition import (
    Constraints,
    CostTable,
    ErrorLimit,
    SearchLimits,
    Watch,
    best_within,
    evaluate,
    front,
    make_problem,
    plan_problem,
    uniform,
)
from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.constraints import Budget
from nnapi_prof.partition.problem import GRAPH_INPUT, Problem, ValueFlow
from nnapi_prof.partition.search import anytime, exact, windows
from nnapi_prof.partition.search.anytime import search
from tests.partition.cases import GPU, NPU, build_graph, table
from tests.partition.mixed import mixed_network
from tests.partition.networks import problem_on
from tests.partition.precision_trial import complaints, draw_noisy
from tests.partition.precisions import draw_noise, optimum
from tests.partition.problems import check_plan, draws, every_plan

INT8 = CPU.at(Precision.INT8)


def converted_chain() -> Problem:
    """u0 -> u1 -> u2 on the CPU in floats and in 8 bits; converting costs 5 and 3 ns a value."""
    readers = {GRAPH_INPUT: (0,), 0: (1, 2), 1: (2,), 2: ()}
    return problem_on(
        [[], [0], [0, 1]],
        [[20, 20], [20, 1], [20, 14]],
        values=tuple(ValueFlow(u, by, 4, not by, 5.0, 3.0) for u, by in readers.items()),
        targets=(CPU, INT8),
        formats=np.array([0, 1]),
    )


def test_a_value_is_converted_once_each_way():
    problem = converted_chain()
    for plan in (
        (((0,), 0), ((1, 2), 1)),  # into both, out at the end
        (((0, 1, 2), 1),),
        (((0,), 0), ((1,), 1), ((2,), 0)),
        (((0,), 1), ((1, 2), 0)),
    ):
        assert problem.conversions_ns(plan) == 5.0 + 3.0
    assert problem.conversions_ns((((0, 1, 2), 0),)) == 0.0
    best = plan_problem(problem).best
    assert best.predicted_ns == 20 + 1 + 14 + 8 == optimum(problem)
    assert best.conversions_ns == 8.0
    assert evaluate(problem, best.segments) == best.predicted_ns
    assert sum(s.predicted_ns for s in best.segments) == 35.0
    again = Plan.from_json(best.to_json())
    assert again.conversions_ns == 8.0 and again.predicted_ns == best.predicted_ns
    free = replace(best, conversions_ns=0.0)
    assert "conversions" not in free.to_json() and free.predicted_ns == 35.0


def test_costs_of_conversions_come_from_a_cost_model():
    graph = build_graph([[], [0]], [4, 4])
    conversions = Conversions(np.array([0, 1]), {"x": 7.0}, {"v1": 9.0})
    costs = replace(table({CPU: [50, 50], INT8: [10, 10]}), conversions=conversions)
    assert costs.on([CPU]).conversions is None
    problem = make_problem(graph, costs)
    assert plan_problem(problem).best.predicted_ns == 10 + 10 + 7 + 9
    with pytest.raises(PartitionError, match="converting a value that op0"):
        replace(problem, values=(replace(problem.values[1], to_float_ns=math.nan),))
    with pytest.raises(PartitionError, match="formats are"):
        replace(problem, formats=np.array([0, 2]))


def draw_copying(chance: random.Random) -> tuple[UnitGraph, CostTable]:
    """A graph, and costs that tell what copies of its inputs and outputs take."""
    n = chance.randint(1, 5)
    reads = [sorted(chance.sample(range(u), min(u, chance.choice((0, 1, 2))))) for u in range(n)]
    graph = build_graph(reads, [chance.randint(1, 12) for _ in range(n)], (chance.randrange(n),))
    rows: dict[Target, list[float | None]] = {CPU: [chance.randint(5, 40) for _ in range(n)]}
    for target in (NPU, GPU):
        rows[target] = [chance.choice((None, *[chance.randint(5, 40)] * 4)) for _ in range(n)]
    start = {target: float(chance.randint(0, 9)) for target in (NPU, GPU)}
    costs = table(rows, start=start, per_byte=dict.fromkeys(rows, (0.1, 0.1)))
    border = (*graph.inputs, *graph.outputs)
    return graph, replace(costs, copies_ns={v: 0.5 * graph.values[v].n_bytes for v in border})


def copied(graph: UnitGraph, costs: CostTable, plan: list[tuple[tuple[int, ...], Target]]) -> float:
    """Returns a plan's copies in ns: border values that an accelerator touches, once each."""
    touched: set[str] = set()
    for units, target in plan:
        if target.engine is Engine.NNAPI:
            touched.update(*((*graph.units[u].inputs, *graph.units[u].outputs) for u in units))
    return sum(ns for name, ns in costs.copies_ns.items() if name in touched)


@pytest.mark.slow
def test_the_least_latency_contains_copies_from_and_to_an_app():
    moved = 0
    for seed in range(40):
        graph, costs = draw_copying(random.Random(seed))
        bare = make_problem(graph, costs)
        least = min(
            total_ns(bare, plan) + copied(graph, costs, [(u, bare.targets[k]) for u, k in plan])
            for plan in every_plan(bare)
        )
        best = plan_problem(make_problem(graph, costs, copies=True), tolerance=0.0).best
        assert best.predicted_ns == pytest.approx(least, rel=1e-6), seed
        own = copied(graph, costs, [(s.units, s.target) for s in best.segments])
        assert (best.copies_ns, best.conversions_ns) == (own, 0), seed
        assert best.proof.is_optimal
        without = plan_problem(bare, tolerance=0.0).best
        assert without.copies_ns == 0
        late = copied(graph, costs, [(s.units, s.target) for s in without.segments])
        moved += without.predicted_ns + late > least * (1 + 1e-6)
    assert moved > 5, "plans that are the best without copies are not with them"


@pytest.mark.slow
def test_the_search_keeps_the_optimum(monkeypatch):
    """With little effort for each step, so that all get their turn."""
    steps = set()
    for seed, problem in draws(240, formats=True):
        if seed == 120:
            little = {windows: dict(STEPS=500, WIDTH=4), exact: dict(SLICE=20)}
            steps_20 = dict.fromkeys(("FIRST_STEPS", "WHOLE_STEPS", "MOST_STEPS"), 20)
            little[anytime] = dict(MOVES=512, CLOSE=0.0, **steps_20)
            for module, efforts in little.items():
                for name, effort in efforts.items():
                    monkeypatch.setattr(module, name, effort)
        least = optimum(problem)
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


# ---- error as a budget ---------------------------------------------------------------------------


@pytest.mark.slow
def test_several_outputs_each_have_a_limit():
    for seed, problem in draws(40, 5, formats=True):
        chance, errors = random.Random(seed), []
        for name, own in (("logits", seed), ("boxes", -1 - seed)):
            noise, share = draw_noise(problem, own), chance.choice((0.3, 0.6, 1.0))
            errors.append(ErrorLimit(noise, share * math.sqrt(noise.max(axis=1).sum()), name))
        plans = [
            total_ns(problem, plan)
            for plan in every_plan(problem)
            if all(error.error(plan) <= error.limit * (1 + 1e-10) for error in errors)
        ]
        planned = partial(plan_problem, problem, constraints=Constraints(errors=tuple(errors)))
        if plans:
            ns = planned(tolerance=0.0).best.predicted_ns
            assert ns == pytest.approx(min(plans), rel=2e-6), seed
        else:
            with pytest.raises(PartitionError, match="an error of at most"):
                planned()


def test_what_is_said_of_errors():
    noise = np.array([[0.0, 1e-4], [0.0, 1e-4], [1e-4, 4e-4]])

    def limited(noise: np.ndarray, limit: float) -> Plan:
        constraints = Constraints(errors=(ErrorLimit(noise, limit, "x"),))
        return plan_problem(converted_chain(), constraints=constraints).best

    within = limited(noise, 0.02)
    assert "(an error of at most 2 % in x)" in within.notes[0]
    assert within.predicted_ns == 20 + 1 + 20 + 8
    with pytest.raises(PartitionError, match=r"no plan has an error of .* 0\.5 % in x.* is 1 %"):
        limited(noise, 0.005)
    with pytest.raises(PartitionError, match="shape"):
        limited(noise[:2], 1)
    alone = limited(np.where(np.arange(2) == 1, np.inf, noise), 1)
    assert {segment.target for segment in alone.segments} == {CPU}


# ---- the front of latency against noise ----------------------------------------------------------

LONG = SearchLimits(seconds=1e4, effort=1e10)


def test_fronts_are_those_of_brute_force(monkeypatch):
    for seed in range(100):
        assert complaints(seed) == [], seed
    # Where the whole front at once is out of reach:
    module = importlib.import_module("nnapi_prof.partition.front")  # the package has the function
    monkeypatch.setattr(module, "WHOLE_STEPS", 0)
    for seed in range(14):
        assert complaints(seed) == [], seed


def test_a_network_has_a_front_that_no_rule_betters():
    problem, noise = mixed_network(24, 2, 3, preferences=1)
    budgets = [1e-5, 1e-4, 4e-4]
    rules = [uniform(problem, precision, noise, limits=LONG) for precision in Precision]
    rivals = [plan.placements for plan in rules]
    points = front(problem, noise, budgets=budgets, rivals=rivals, most=12, limits=LONG)
    for plan in rules:
        check_plan(problem, plan.placements)
        assert plan.ns == pytest.approx(total_ns(problem, plan.placements))
        assert best_within(points, plan.noise).ns <= plan.ns * (1 + 1e-9)
    assert all(point.proof.kind is not ProofKind.GAP for point in points)
    assert [p.ns for p in points] == sorted(p.ns for p in points)
    assert points[0].budget == math.inf and points[-1].noise == points[-1].error == 0.0


def test_a_uniform_precision_is_what_every_unit_has_that_can():
    problem, noise = mixed_network(20, 2, 2, preferences=1)
    for precision in Precision:
        plan = uniform(problem, precision, noise, limits=LONG)
        for units, k in plan.placements:
            target = problem.targets[k]
            if target.precision is precision or target == CPU:
                continue
            can = [j for j, t in enumerate(problem.targets) if t.precision is precision]
            assert not np.isfinite(problem.unit_ns[list(units)][:, can]).any()
    assert sum(len(units) for units, k in plan.placements if problem.arrays.format[k]) == 20


def test_of_several_outputs_the_largest_noise_counts():
    for seed in range(30):
        problem, noise = draw_noisy(2 * seed)
        if problem.n > 4:
            continue
        noises = [noise, draw_noise(problem, -1 - seed)]
        rows = [
            (total_ns(problem, plan), max(Budget.error(n).of(plan) for n in noises))
            for plan in every_plan(problem)
        ]
        budget = random.Random(seed).choice(rows)[1]
        points = front(problem, noises, budgets=[budget], limits=LONG)
        for limit in (budget, math.inf):
            best = best_within(points, limit)
            least = min(ns for ns, power in rows if power <= limit * (1 + 1e-9))
            assert best.ns == pytest.approx(least, rel=2e-6), seed


def test_limits_and_interruptions_leave_what_there_is():
    problem, noise = mixed_network(40, 2, 4, preferences=1)
    hurried = front(problem, noise, limits=SearchLimits(seconds=0.0))
    assert hurried and all(p.ns == total_ns(problem, p.placements) for p in hurried)
    looks: list[Watch] = []

    def interrupt(watch: Watch) -> None:
        looks.append(watch)
        if len(looks) == 12:
            raise KeyboardInterrupt

    points = front(problem, noise, report=interrupt, limits=LONG)
    assert len(looks) >= 12 and points[0].ns <= hurried[0].ns * (1 + 1e-9)


def test_noise_that_is_none_is_refused_and_what_is_unknown_avoided():
    problem, noise = mixed_network(8, 1, 1)
    with pytest.raises(PartitionError, match="shape"):
        front(problem, noise[:-1])
    with pytest.raises(PartitionError, match="at least 0"):
        front(problem, -1.0 - noise)
    unknown = noise.copy()
    unknown[3, 1:] = np.inf
    points = front(problem, unknown, limits=LONG)
    assert all(k == 0 for p in points for units, k in p.placements if 3 in units)
