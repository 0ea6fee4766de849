"""One call of the partitioner: best plan, plan to ship, curve, warm starts, Ctrl-C, constraints."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nnapi_prof.costs.table import CompileTimes
from nnapi_prof.errors import BuildError, PartitionError
from nnapi_prof.graph.plan import CPU, Engine, Plan, Preference, ProofKind
from nnapi_prof.partition import (
    Constraints,
    Partitioning,
    Problem,
    SearchLimits,
    Watch,
    baselines,
    evaluate,
    is_optimum,
    plan_problem,
)
from nnapi_prof.partition.baselines import find_baselines, total_ns
from nnapi_prof.partition.constraints import Budget, add_prices, compile_budget
from nnapi_prof.partition.search import SearchResult, library, pointers
from nnapi_prof.partition.search.anytime import search
from nnapi_prof.partition.search.lagrangian import search_within
from nnapi_prof.partition.search.tradeoff import TradeOff
from tests.partition.cases import NPU, NPU_LOW, chain, problem_of, solve, table
from tests.partition.judge import Case
from tests.partition.networks import problem_on
from tests.partition.precisions import optimum
from tests.partition.problems import (
    check_plan,
    draw_problem,
    draws,
    every_plan,
    on_targets,
    stem_problem,
)
from tests.partition.trial import ask, judge

WIDE = stem_problem(24, length=2)


def check(problem: Problem, answer: Partitioning) -> None:
    proof = answer.best.proof
    for plan in (answer.best, answer.default):
        assert evaluate(problem, plan.segments) == pytest.approx(plan.predicted_ns)
        assert plan.name == "dp" and plan.notes and plan.proof == proof
    assert proof.least_ns == pytest.approx(answer.best.predicted_ns)
    assert proof.bound_ns <= proof.least_ns and proof.found_by and proof.bounded_by


def lucky_chain() -> Problem:
    """Four units on the CPU, two pairs of which were measured a little below their parts."""
    pairs = {(frozenset({0, 1}), 0): 198.0, (frozenset({2, 3}), 0): 199.0}
    return problem_on([[], [0], [1], [2]], np.full((4, 1), 100.0), region_ns=pairs)


def test_the_plan_to_ship_needs_no_curve_and_says_what_it_gives_up():
    problem = draw_problem(11, 8)
    answer = plan_problem(problem, with_curve=False)
    assert answer.curve == () and answer.default == plan_problem(problem).default
    answer = plan_problem(lucky_chain())
    assert len(answer.best.segments) == 2 and len(answer.default.segments) == 1
    assert "2 segments, this plan 1, for 0.8% more latency" in answer.default.notes[0]


@pytest.fixture(scope="module")
def cold() -> Partitioning:
    """Plans the wide problem, for a minute at most."""
    return plan_problem(WIDE, limits=SearchLimits(seconds=60.0, effort=4e6))


def test_a_warm_start_gives_no_worse_plan(cold):
    assert cold.warm.plans
    costlier = replace(WIDE, unit_ns=WIDE.unit_ns * 1.01)
    warm = plan_problem(costlier, limits=SearchLimits(effort=2e5), warm=cold.warm)
    check(costlier, warm)
    for plan in cold.warm.plans:
        ns = sum(costlier.segment_ns(units, costlier.target_index(t)) for units, t in plan)
        assert warm.best.predicted_ns <= ns * (1 + 1e-9)


def test_a_warm_start_with_a_target_that_is_gone_does_no_harm():
    for seed, problem in draws(30, 7):
        fewer = on_targets(problem, 1)
        least = optimum(fewer)
        if math.isfinite(least):
            answer = plan_problem(fewer, warm=plan_problem(problem).warm)
            assert answer.best.predicted_ns == pytest.approx(least, rel=2e-6), seed


@pytest.mark.parametrize(
    "limits",
    [dict(seconds=0.0), dict(seconds=1e-9), dict(seconds=0.05), dict(effort=0.0), dict(effort=1e5)],
)
def test_hardly_any_time_still_gives_a_plan_with_a_bound(limits, cold):
    answer = plan_problem(WIDE, limits=SearchLimits(**limits))
    check(WIDE, answer)
    proof = answer.best.proof
    assert proof.kind is ProofKind.GAP and not is_optimum(answer.best)
    assert proof.least_ns == pytest.approx(proof.bound_ns * (1 + proof.gap))
    assert proof.bound_ns <= cold.best.predicted_ns <= proof.least_ns * (1 + 1e-9)
    assert proof.least_ns <= min(rival.predicted_ns for rival in baselines(WIDE))
    assert "no plan at all is faster than" in answer.best.notes[0]


def test_little_memory_is_no_reason_to_give_up():
    little = SearchLimits(seconds=60.0, effort=2e6, memory_bytes=1 << 16)
    roomy = plan_problem(stem_problem(14)).best.proof
    poor = plan_problem(stem_problem(14), limits=little).best.proof
    assert poor.bound_ns <= roomy.least_ns <= poor.least_ns * (1 + 1e-9)


def test_effort_alone_decides_which_plan_it_is():
    problem = stem_problem(30, seed=2, length=2)
    limits = SearchLimits(seconds=1e4, effort=3e6)  # shares of it must not run out
    one, two = search(problem, Watch(limits)), search(problem, Watch(limits))
    assert (one.placements, one.bound_ns, one.steps) == (two.placements, two.bound_ns, two.steps)
    assert one.kind is ProofKind.GAP and one.ns == pytest.approx(one.bound_ns * (1 + one.gap))
    problem.unit_ns[0] = math.inf
    assert search(problem, Watch(SearchLimits())) is None, "there is no plan"


def stop_after(reports: int) -> Callable[[Watch], None]:
    """Ctrl-C, once: whoever is told raises it at that report."""
    left = iter(range(reports - 1, -1, -1))

    def report(watch: Watch) -> None:
        if next(left, None) == 0:
            raise KeyboardInterrupt

    return report


@pytest.mark.parametrize(
    "constraints", [None, Constraints(max_regions=2)], ids=["free", "constrained"]
)
def test_ctrl_c_keeps_the_best_plan_wherever_it_comes(constraints):
    problem = stem_problem(9, length=2)
    seen: list[Watch] = []
    plan_problem(problem, constraints=constraints, report=seen.append)
    assert len(seen) > 3
    for reports in sorted({1, 2, 3, len(seen) // 2, len(seen) - 1, len(seen)}):
        try:
            answer = plan_problem(problem, constraints=constraints, report=stop_after(reports))
        except KeyboardInterrupt:  # as such it would end all tests
            pytest.fail(f"Ctrl-C at report {reports} of {len(seen)} loses the plan")
        check(problem, answer)
        assert answer.interrupted and not (reports == 1 and is_optimum(answer.best)), reports
        rival_ns = min(rival.predicted_ns for rival in baselines(problem))
        assert answer.default.predicted_ns <= rival_ns * (1 + 1e-9) or constraints


# ---- fewest segments and the curve ---------------------------------------------------------------


def trade_off(problem: Problem, seconds: float = 100.0) -> TradeOff:
    watch = Watch(SearchLimits(seconds=seconds))
    return TradeOff(problem, search(problem, watch), find_baselines(problem), [], watch)


@pytest.mark.slow
def test_a_curve_by_prices_has_valid_bounds():
    points = trade_off(stem_problem(30, length=2), 2.0).curve()  # too wide for the exact front
    assert len(points) > 1 and all(0 < p.bound_ns <= p.ns for p in points)
    for one, more in itertools.pairwise(points):
        assert more.ns <= one.ns and more.n_segments == one.n_segments + 1


def near_ties(n: int, overhead_ns: float = 80.0) -> Problem:
    """A chain on a CPU that is slow, and two names of one accelerator that noise tells apart."""
    chance = np.random.default_rng(0)
    unit_ns = np.full((n, 3), 1e6)
    unit_ns[:, 1:] = 1e5 * chance.normal(1.0, 0.001, (n, 2))
    reads = [[u - 1] if u else [] for u in range(n)]
    return problem_on(reads, unit_ns, overhead_ns=[0.0, overhead_ns, overhead_ns])


def test_noise_between_two_names_of_one_thing_does_not_split_a_plan():
    trade = trade_off(near_ties(12))
    assert len(trade.best.placements) > 1
    ((_, k),) = trade.fewest(0.01)
    assert k in (1, 2)


def test_segments_that_a_refusal_keeps_apart_run_on_one_target():
    problem = near_ties(9, 400.0)
    problem.unit_ns[[2, 5], 1:] = np.inf
    problem.unit_ns[7, 0] = problem.unit_ns[7, 1:].min() - 10.0  # so that greedy is slower
    trade = trade_off(problem)
    assert len({k for _, k in trade.best.placements}) == 3
    plan = trade.fewest(0.01)
    assert len(plan) == 5 and len({k for _, k in plan}) == 2


def test_the_curve_knows_the_plan_that_is_shipped():
    problem = near_ties(12)
    best = search(problem, Watch(SearchLimits()))
    assert len(best.placements) > 1
    over = Watch(SearchLimits(seconds=1e-9))  # no time to find that plan otherwise
    trade = TradeOff(problem, replace(best, plans=()), [], [], over)
    shipped = trade.fewest(0.01)
    assert len(shipped) == 1
    (point,) = (p for p in trade.curve() if p.n_segments == len(shipped))
    assert point.ns <= total_ns(problem, shipped)


# ---- the loops in C, compiled on first use -------------------------------------------------------


@pytest.fixture
def no_library_yet() -> Iterator[None]:
    library.cache_clear()
    yield
    library.cache_clear()


def test_without_a_compiler_the_error_says_what_to_do(no_library_yet, tmp_path, monkeypatch):
    monkeypatch.setenv("NNAPI_PROF_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NNAPI_PROF_CC", "no-such-compiler")
    with pytest.raises(BuildError, match="not a working C compiler: name another"):
        plan_problem(stem_problem(4))


def test_an_unwritable_cache_is_done_without(no_library_yet, tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("NNAPI_PROF_CACHE_DIR", str(tmp_path / "file"))
    assert plan_problem(stem_problem(4)).best.segments
    assert "compiled for this once" in caplog.text


def test_arrays_that_c_would_misread_are_refused():
    with pytest.raises(ValueError, match="array 1 of 2 is not contiguous"):
        pointers([np.zeros(4), np.zeros((4, 4))[:, ::2]])


# ---- constraints and rules of others -------------------------------------------------------------


def solved(**constraints: object) -> Plan:
    """Four units that are 100 times as fast on either of two names of an accelerator."""
    rows = {CPU: [100] * 4, NPU: [1] * 4, NPU_LOW: [1] * 4}
    costs = table(rows, start=dict.fromkeys(rows, 1.0))
    return solve(chain(4), costs, constraints=Constraints(**constraints))


@pytest.mark.parametrize(
    ("constraints", "words", "targets"),
    [
        (dict(pinned={1: CPU}), "1 unit pinned", [NPU, CPU, NPU]),
        (dict(forbidden={0: {NPU}, 1: {NPU}}), "2 units kept off targets", [NPU_LOW]),
        (dict(forbidden={1: {CPU}}), "1 unit kept off targets", [NPU]),
        (dict(preference=Preference.LOW_POWER), "preference low_power only", [NPU_LOW]),
        (dict(max_regions=0), "at most 0 on accelerators", [CPU]),
        (dict(pinned={1: CPU}, max_regions=1),
         "1 unit pinned, at most 1 on accelerators", [CPU, NPU]),
    ],
)  # fmt: skip
def test_a_constrained_plan_is_not_called_the_optimum(constraints, words, targets):
    assert is_optimum(solved())
    plan = solved(**constraints)
    assert not is_optimum(plan) and f"within the constraints ({words})" in plan.notes[0]
    assert [segment.target for segment in plan.segments] == targets


def test_a_pinned_unit_has_its_cause():
    split = solved(pinned={1: CPU})
    assert [s.units for s in split.segments] == [(0,), (1,), (2, 3)]
    assert split.segments[1].cause == "stays on the CPU: kept off sim-npu: pinned to cpu"


@pytest.mark.parametrize(
    ("constraints", "words"),
    [
        (Constraints(forbidden={1: frozenset({CPU, NPU})}), r"op1 .*nowhere to run.*forbidden"),
        (Constraints(pinned={9: CPU}), "names unit 9; there are 3"),
        (Constraints(pinned={0: NPU_LOW}), "no costs for target"),
        (Constraints(max_regions=0, pinned={0: NPU}), "at most 0 on accelerators"),
    ],
)
def test_what_cannot_be_kept_is_said(constraints, words):
    with pytest.raises(PartitionError, match=words):
        solve(chain(3), table({CPU: [10] * 3, NPU: [1] * 3}), constraints=constraints)


def test_baselines_of_tflite_and_of_a_list():
    # The first region of the accelerator has five units.
    npu = [1.0 if u in (0, 1, 2, 3, 4, 6, 8, 10) else None for u in range(11)]
    costs = table({CPU: [3] * 11, NPU: npu}, start={CPU: 1.0, NPU: 1.0})
    result = {plan.name: plan for plan in baselines(problem_of(chain(11), costs), listed=[6])}

    def on_npu(name: str) -> list[tuple[int, ...]]:
        return [s.units for s in result[name].segments if s.target == NPU]

    assert on_npu(f"largest-3 {NPU}") == [(0, 1, 2, 3, 4), (6,), (8,)]
    assert on_npu(f"listed {NPU}") == [(0, 1, 2, 3, 4)]
    assert result[f"best-single {CPU}"].predicted_ns == result["all-cpu"].predicted_ns


# ---- limits of compile time ----------------------------------------------------------------------

TIMES = CompileTimes(np.array([0.0, 1e7]), np.array([[0.0, 1e7]] * 6))
CHAIN = problem_of(chain(6), table({CPU: [3e6] * 6, NPU: [1e6] * 6}, start={NPU: 1e6}))


def within(limit_ms: float, problem: Any = CHAIN, times: Any = TIMES) -> Partitioning:
    limited = Constraints(max_compile_ns=limit_ms * 1e6)
    return plan_problem(problem, constraints=limited, compiling=times)


@pytest.mark.parametrize(
    ("limit_ms", "ms", "words"),
    [
        (70, 7, ["regions compile in 70.0 ms together, of 70.0 ms allowed"]),
        # Three units in one region: 10 + 3 x 10 ms.
        (40, 1 + 3 + 3 * 3, ["of 40.0 ms", "the constraints (at most 40 ms of compilation)"]),
        (0, 18, []),
    ],
)
def test_the_plan_keeps_to_the_limit_and_says_what_is_proven(limit_ms, ms, words):
    plan = within(limit_ms).default
    assert evaluate(CHAIN, plan.segments) == pytest.approx(plan.predicted_ns)
    assert plan.proof.is_optimal and plan.proof.constrained
    assert plan.predicted_ns == ms * 1e6
    assert all(each in " ".join(plan.notes) for each in words)


def test_a_region_takes_what_was_measured_of_it_or_its_parts_and_may_take_too_long():
    whole = replace(TIMES, region_ns={(frozenset({0, 1}), 1): 5e6})
    budget = compile_budget(whole, 1e9)
    assert budget.of([((0, 1), 1), ((2,), 1), ((3, 4, 5), 0)]) == 5e6 + 2e7
    with pytest.raises(PartitionError, match=r"compiles within 1.00 ms"):
        within(1, problem_of(chain(6), table({CPU: [], NPU: [1e6] * 6}, start={NPU: 1e6})))
    with pytest.raises(PartitionError, match="needs costs that tell compile times"):
        within(1, times=None)


def compile_times(problem: Problem, seed: int) -> CompileTimes:
    """Whole numbers, so that sums and limits are exact; nothing off accelerators."""
    chance = np.random.default_rng(seed)
    accelerated = np.array([target.engine is Engine.NNAPI for target in problem.targets])
    regions = [region for region in problem.region_ns if accelerated[region[1]]]
    return CompileTimes(
        chance.integers(0, 30, len(accelerated)) * accelerated.astype(np.float64),
        chance.integers(0, 30, problem.unit_ns.shape) * accelerated.astype(np.float64),
        {region: float(chance.integers(0, 30)) for region in regions},
    )


def test_a_limit_of_compile_time_and_both():
    for seed, problem in draws(60, 4):
        time = Constraints(max_compile_ns=float(seed % 7) * 10)
        for constraints in (time, replace(time, max_regions=seed % 3)):
            case = Case(problem, constraints, compile_times(problem, seed))
            answers = []

            def recorded(case: Case, answers: list[Partitioning] = answers) -> Partitioning:
                answers.append(ask(case))
                return answers[0]

            assert judge(case, recorded) == [], seed
            for answer in answers:  # so few units have few ideals
                assert answer.best.proof.is_optimal


def test_a_price_on_a_budget_is_a_problem_of_the_same_kind():
    for seed, problem in draws(20, 4):
        budget = compile_budget(compile_times(problem, seed), math.inf)
        rival = add_prices(problem, [budget], [2.5])
        for plan in every_plan(problem):
            expected = total_ns(problem, plan) + 2.5 * budget.of(plan)
            assert total_ns(rival, plan) == pytest.approx(expected), seed


def test_out_of_time_there_is_a_plan_and_a_bound():
    problem = stem_problem(40, length=2)
    budget = Budget.accelerated(problem, 2)

    def within(limits: SearchLimits) -> SearchResult:
        result = search_within(problem, [budget], Watch(limits))
        assert budget.keeps(result.placements)
        check_plan(problem, result.placements)
        return result

    whole, hasty = within(SearchLimits(seconds=60.0, effort=4e6)), within(SearchLimits(1e-6))
    assert max(whole.bound_ns, hasty.bound_ns) <= whole.ns <= hasty.ns * (1 + 1e-9)
