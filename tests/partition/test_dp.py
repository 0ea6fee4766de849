"""Plans against numbers worked out by hand, a MILP and every baseline."""

import math
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import CPU, HOST, Plan, Preference, Target
from nnapi_prof.partition import baselines, evaluate, is_optimum, plan_problem
from tests.partition.cases import NPU, build_graph, chain, problem_of, solve, table
from tests.partition.families import skips
from tests.partition.milp import least_by_milp
from tests.partition.problems import draw_problem

AUTO = Target.nnapi("auto", Preference.FAST_SINGLE_ANSWER)

paid = partial(table, start={NPU: 100.0}, per_byte={NPU: (1.0, 1.0)})


def segments_of(plan: Plan) -> list[tuple[tuple[int, ...], Target]]:
    return [(segment.units, segment.target) for segment in plan.segments]


def test_milp_agrees() -> None:
    for seed in range(25):
        problem = draw_problem(seed, 4)
        plan = plan_problem(problem, tolerance=0).best
        for upper_ns in (math.inf, plan.predicted_ns):
            least = least_by_milp(problem, upper_ns)
            assert plan.predicted_ns == pytest.approx(least, rel=1e-6), seed


def test_chain_goes_to_the_accelerator_once_it_pays() -> None:
    # In and out of the accelerator: 100 + 32 (x, 8 floats) + 40 = 172 ns beside the work.
    pays = solve(chain(4), paid({CPU: [50] * 4, NPU: [5] * 4}))
    assert segments_of(pays) == [((0, 1, 2, 3), NPU)]
    assert pays.predicted_ns == 100 + 32 + 40 + 20
    does_not = solve(chain(4), paid({CPU: [40] * 4, NPU: [5] * 4}))
    assert segments_of(does_not) == [((0, 1, 2, 3), CPU)]


def test_each_value_crosses_once_and_branches_of_a_diamond_run_in_one_segment_each() -> None:
    diamond = build_graph([[], [0], [0], [1, 2]], [10, 10, 10, 10])
    plan = solve(diamond, paid({CPU: [1e4, 0, 0, 0], NPU: [0, None, None, None]}))
    assert plan.segments[0].target == NPU  # u0's value has two readers and leaves once: 40 bytes
    assert plan.segments[0].predicted_ns == 100 + 32 + 40
    plan = solve(diamond, paid({CPU: [10, 1e4, 10, 10], NPU: [None, 5, None, None]}))
    assert [s.target for s in plan.segments] == [CPU, NPU, CPU]
    assert plan.segments[1].units == (1,)  # u2 joins either side, so the CPU has two stretches


def test_measured_region_replaces_the_sum() -> None:
    def with_whole(ns: float) -> Plan:
        whole = {(frozenset(range(3)), NPU): ns}
        return solve(chain(3), paid({CPU: [100] * 3, NPU: [5] * 3}, whole=whole))

    assert segments_of(with_whole(1e6))[0] != ((0, 1, 2), NPU)
    assert with_whole(7.0).segments[0].measured and with_whole(7.0).predicted_ns == 7.0
    failed = with_whole(math.inf)
    assert failed.predicted_ns < math.inf and len(failed.segments) > 1


def test_measured_region_may_hold_units_that_cannot_run_alone() -> None:
    whole = {(frozenset({0, 1}), NPU): 4.0}
    costs = paid({CPU: [5, None, 5], NPU: [1, None, 1]}, whole=whole)
    plan = solve(chain(3), costs)
    assert segments_of(plan) == [((0, 1), NPU), ((2,), CPU)]
    assert [s.measured for s in plan.segments] == [True, False]
    assert baselines(problem_of(chain(3), costs)) == ()


def test_host_units_stand_alone() -> None:
    rows = {CPU: [1, None, 1], HOST: [None, 5, None]}
    costs = table(rows, start={CPU: 1.0}, guessed=frozenset({(1, HOST)}))
    for plan in (solve(chain(3), costs), *baselines(problem_of(chain(3), costs))):
        assert segments_of(plan) == [((0,), CPU), ((1,), HOST), ((2,), CPU)]
        assert [s.estimated for s in plan.segments] == [False, True, False]


def test_unit_without_target_is_an_error_that_names_it() -> None:
    costs = paid({CPU: [1, None], NPU: [1, None]}, refusals={(1, CPU): "no kernel for FOO"})
    with pytest.raises(PartitionError, match=r"op1 \(unit 1\).*no kernel for FOO"):
        solve(chain(2), costs)


@pytest.mark.parametrize("bad", [-1.0, math.nan])
def test_costs_that_are_no_costs_are_refused(bad: float) -> None:
    with pytest.raises(PartitionError, match=r"op1 .* on cpu costs"):
        solve(chain(2), paid({CPU: [1, bad], NPU: [1, 1]}))


def test_evaluate_refuses_what_is_no_plan() -> None:
    problem = problem_of(chain(3), paid({CPU: [1] * 3, NPU: [1] * 3}))
    (segment,) = plan_problem(problem).default.segments
    part = replace(segment, units=(0, 1))
    for segments, words in (
        ([part], "in no segment"),
        ([part, part], "repeats a unit"),
        ([replace(segment, units=(1, 2)), replace(segment, units=(0,))], "runs before"),
        ([replace(segment, target=HOST)], "no costs for target"),
    ):
        with pytest.raises(PartitionError, match=words):
            evaluate(problem, segments)


@pytest.mark.parametrize(
    ("units", "targets", "seconds"), [(65, 12, 2.0), (300, 3, 6.0)], ids=["mobilenet", "long"]
)
def test_near_chains_are_exact_and_quick(units: int, targets: int, seconds: float) -> None:
    """The bars are 10 times what it takes on an idle core, for shared machines."""
    chance = np.random.default_rng(units)
    graph = build_graph(skips(units), [1000] * units)
    named = [Target.nnapi(f"acc{i // 3}", list(Preference)[i % 3]) for i in range(targets)]
    rows = {CPU: chance.uniform(2e4, 1e6, units).tolist()}
    for target in named:
        refused = chance.random(units) < 0.1
        rows[target] = np.where(refused, np.inf, chance.uniform(1e4, 3e5, units)).tolist()
    start = {CPU: 1e3} | dict.fromkeys(named, 2e5)
    problem = problem_of(graph, table(rows, start=start, per_byte=dict.fromkeys(named, (0.3, 0.3))))
    begin = time.perf_counter()
    plan = plan_problem(problem, with_curve=False).default
    assert time.perf_counter() - begin < seconds
    assert evaluate(problem, plan.segments) == pytest.approx(plan.predicted_ns)
    assert is_optimum(plan) and "optimal over all plans" in plan.notes[0]
    assert min(p.predicted_ns for p in baselines(problem)) > plan.predicted_ns


def test_the_whole_model_on_a_target_that_was_left_at_a_trial_is_a_baseline() -> None:
    def found(whole_ns: float) -> dict[str, Plan]:
        whole = {(frozenset(range(4)), AUTO): whole_ns}
        costs = table({CPU: [1e6] * 4, AUTO: []}, start={AUTO: 1e5}, whole=whole)
        return {plan.name: plan for plan in baselines(problem_of(chain(4), costs))}

    plan = found(5e6)[f"largest-supported {AUTO}"]
    assert segments_of(plan) == [((0, 1, 2, 3), AUTO)]
    assert plan.segments[0].measured and plan.predicted_ns == 5e6
    assert f"largest-supported {AUTO}" not in found(math.inf)
