"""Targets that differ in format: conversions are once each way, in every step of the search."""

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from nnapi_prof.costs.table import Conversions, CostTable
from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import CPU, Engine, Plan, Precision, ProofKind, Target
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.partition import (
    Constraints,
    ErrorLimit,
    SearchLimits,
    evaluate,
    make_problem,
    plan_problem,
)
from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.problem import GRAPH_INPUT, Problem, ValueFlow
from nnapi_prof.partition.search import Watch, annealing, anytime, exact, windows
from nnapi_prof.partition.search.annealing import Annealer, Labelling, MoveTables
from nnapi_prof.partition.search.anytime import search
from nnapi_prof.partition.search.exact import search_ideals
from nnapi_prof.partition.search.expansion import (
    _best_move,
    labelling_of_plan,
    plan_of_labelling,
)
from nnapi_prof.partition.search.relaxation import relax
from nnapi_prof.partition.search.windows import subproblem
from tests.partition.cases import GPU, NPU, Table, build_graph
from tests.partition.milp import solve_milp
from tests.partition.precisions import (
    converting_ns,
    draw_noise,
    optimum_with_formats,
    with_formats,
)
from tests.partition.problems import check_plan, draw_plan, draw_problem, every_plan
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
        ValueFlow(GRAPH_INPUT, (0,), 4, False, 5.0, 3.0),
        ValueFlow(0, (1, 2), 4, False, 5.0, 3.0),
        ValueFlow(1, (2,), 4, False, 5.0, 3.0),
        ValueFlow(2, (), 4, True, 5.0, 3.0),
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
    answer = plan_problem(problem)
    assert answer.best.predicted_ns == 20 + 1 + 14 + 8 == optimum_with_formats(problem)
    assert answer.best.conversions_ns == 8.0
    assert evaluate(problem, answer.best.segments) == answer.best.predicted_ns
    assert sum(s.predicted_ns for s in answer.best.segments) == 35.0


def test_a_plan_keeps_its_conversions_in_json() -> None:
    plan = plan_problem(chain()).best
    again = Plan.from_json(plan.to_json())
    assert again.conversions_ns == 8.0 and again.predicted_ns == plan.predicted_ns
    free = replace(plan, conversions_ns=0.0)
    assert "conversions" not in free.to_json() and free.predicted_ns == 35.0


def test_costs_of_conversions_come_from_a_cost_model() -> None:
    graph = build_graph([[], [0]], [4, 4])
    int8 = CPU.at(Precision.INT8)

    table = CostTable(
        targets=(CPU, int8),
        unit_ns=np.array([[50.0, 10.0], [50.0, 10.0]]),
        overhead_ns=np.zeros(2),
        in_ns_per_byte=np.zeros(2),
        out_ns_per_byte=np.zeros(2),
        conversions=Conversions(np.array([0, 1]), {"x": 7.0}, {"v1": 9.0}),
    )
    assert table.on([CPU]).conversions is None
    problem = make_problem(graph, table)
    assert plan_problem(problem).best.predicted_ns == 10 + 10 + 7 + 9
    with pytest.raises(PartitionError, match="converting a value that op0"):
        replace(problem, values=(replace(problem.values[1], to_float_ns=math.nan),))
    with pytest.raises(PartitionError, match="formats are"):
        replace(problem, formats=np.array([0, 2]))


@dataclass(frozen=True)
class Copying(Table):
    """A cost model that tells what copies of the graph's inputs and outputs take."""

    graph: UnitGraph = field(kw_only=True)

    @property
    def copies_ns(self) -> dict[str, float]:
        border = (*self.graph.inputs, *self.graph.outputs)
        return {name: 0.5 * self.graph.values[name].n_bytes for name in border}

    def copied(self, placements: Iterable[tuple[Iterable[int], Target]]) -> float:
        """Returns what copies of a plan take."""
        touched = {
            name
            for units, target in placements
            if target.engine is Engine.NNAPI
            for u in units
            for name in (*self.graph.units[u].inputs, *self.graph.units[u].outputs)
        }
        return sum(ns for name, ns in self.copies_ns.items() if name in touched)

    @property
    def table(self) -> CostTable:
        return replace(self.of(self.graph), copies_ns=self.copies_ns)


def draw_copying(chance: random.Random) -> Copying:
    n = chance.randint(1, 5)
    reads = [sorted(chance.sample(range(u), min(u, chance.choice((0, 1, 2))))) for u in range(n)]
    graph = build_graph(reads, [chance.randint(1, 12) for _ in range(n)], (chance.randrange(n),))
    targets = (CPU, NPU, GPU)
    cost = {(u, target): float(chance.randint(5, 40)) for u in range(n) for target in targets}
    runs = {at: ns for at, ns in cost.items() if at[1] == CPU or chance.random() < 0.8}
    start = {target: 0.0 if target == CPU else float(chance.randint(0, 9)) for target in targets}
    return Copying(targets, runs, start, dict.fromkeys(targets, (0.1, 0.1)), graph=graph)


@pytest.mark.slow
def test_the_least_latency_contains_copies_from_and_to_an_app() -> None:
    """Against every plan: a border value is copied once where an accelerator touches it."""
    moved = 0
    for seed in range(40):
        costs = draw_copying(random.Random(seed))
        bare = make_problem(costs.graph, costs.table)
        plans = []
        for plan in every_plan(bare):
            named = [(units, bare.targets[k]) for units, k in plan]
            plans.append((sum(bare.segment_ns(*each) for each in plan), costs.copied(named)))
        least = min(map(sum, plans))
        answer = plan_problem(make_problem(costs.graph, costs.table, copies=True), tolerance=0.0)
        best = answer.best
        assert best.predicted_ns == pytest.approx(least, rel=1e-6), seed
        assert best.copies_ns == costs.copied((s.units, s.target) for s in best.segments), seed
        assert best.conversions_ns == 0 and best.proof is not None and best.proof.is_optimal
        without = plan_problem(bare, tolerance=0.0).best
        assert without.copies_ns == 0
        late = without.predicted_ns + costs.copied((s.units, s.target) for s in without.segments)
        moved += late > least * (1 + 1e-6)
    assert moved > 5, "plans that are the best without copies are not with them"


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


@pytest.mark.slow
def test_the_search_keeps_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    """With little effort for each step, so that all get their turn."""
    steps = set()
    for seed in range(240):
        if seed == 120:
            for module, name, effort in (
                (anytime, "FIRST_STEPS", 20),
                (anytime, "WHOLE_STEPS", 20),
                (anytime, "MOST_STEPS", 20),
                (anytime, "MOVES", 512),
                (anytime, "CLOSE", 0.0),
                (windows, "STEPS", 500),
                (windows, "WIDTH", 4),
            ):
                monkeypatch.setattr(module, name, effort)
            monkeypatch.setattr(exact, "SLICE", 20)
        problem = mixed(seed)
        least = optimum_with_formats(problem)
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
    calls: list[tuple[MoveTables, Labelling]] = []
    anneal = annealing.anneal

    def recorded(tables: MoveTables, labelling: Labelling, *rest: float) -> None:
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


# ---- error as a budget ---------------------------------------------------------------------------


@pytest.mark.slow
def test_several_outputs_each_have_a_limit() -> None:
    for seed in range(40):
        problem = mixed(seed, 5)
        noises = [draw_noise(problem, seed), draw_noise(problem, -1 - seed)]
        chance = random.Random(seed)
        limits = [chance.choice((0.3, 0.6, 1.0)) * math.sqrt(n.max(axis=1).sum()) for n in noises]
        errors = tuple(map(ErrorLimit, noises, limits, ("logits", "boxes")))
        plans = [
            total_ns(problem, plan)
            for plan in every_plan(problem)
            if all(error.error(plan) <= error.limit * (1 + 1e-10) for error in errors)
        ]
        if not plans:
            with pytest.raises(PartitionError, match="an error of at most"):
                plan_problem(problem, constraints=Constraints(errors=errors))
            continue
        answer = plan_problem(problem, constraints=Constraints(errors=errors), tolerance=0.0)
        assert answer.best.predicted_ns == pytest.approx(min(plans), rel=2e-6), seed


def test_what_is_said_of_errors() -> None:
    problem, noise = chain(), np.array([[0.0, 1e-4], [0.0, 1e-4], [1e-4, 4e-4]])
    within = plan_problem(problem, constraints=Constraints(errors=(ErrorLimit(noise, 0.02),)))
    assert "(an error of at most 2 %)" in within.best.notes[0]
    assert within.best.predicted_ns == 20 + 1 + 20 + 8
    with pytest.raises(
        PartitionError, match=r"no plan has an error of at most 0\.5 % in x.* is 1 %"
    ):
        limit = ErrorLimit(noise, 0.005, "x")
        plan_problem(problem, constraints=Constraints(errors=(limit,)))
    with pytest.raises(PartitionError, match="shape"):
        plan_problem(problem, constraints=Constraints(errors=(ErrorLimit(noise[:2], 1),)))
    unknown = np.where(np.arange(2) == 1, np.inf, noise)
    alone = plan_problem(problem, constraints=Constraints(errors=(ErrorLimit(unknown, 1),)))
    assert {segment.target for segment in alone.best.segments} == {CPU}
