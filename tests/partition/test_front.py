"""The front of latency against noise, and the rules that it is to better."""

import importlib
import math
import random

import numpy as np
import pytest

from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import CPU, Precision, ProofKind
from nnapi_prof.partition import SearchLimits, Watch, best_within, front, uniform
from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.constraints import Budget
from tests.partition.mixed import mixed_network
from tests.partition.precision_trial import complaints, drawn
from tests.partition.precisions import draw_noise
from tests.partition.problems import check_plan, every_plan

LONG = SearchLimits(seconds=1e4, effort=1e10)


def test_equal_to_brute_force() -> None:
    for seed in range(100):
        assert complaints(seed) == [], seed


def test_what_prices_and_limits_meet_is_right_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the whole front at once is out of reach."""
    module = importlib.import_module("nnapi_prof.partition.front")  # the package has the function
    monkeypatch.setattr(module, "WHOLE_STEPS", 0)
    for seed in range(14):
        assert complaints(seed) == [], seed


def test_a_network_has_a_front_that_no_rule_betters() -> None:
    problem, noise = mixed_network(24, 2, 3, preferences=1)
    budgets = [1e-5, 1e-4, 4e-4]
    rules = [uniform(problem, precision, noise, limits=LONG) for precision in Precision]
    rivals = [plan.placements for plan in rules]
    points = front(problem, noise, budgets=budgets, rivals=rivals, most=12, limits=LONG)
    for plan in rules:
        check_plan(problem, plan.placements)
        assert plan.ns == pytest.approx(total_ns(problem, plan.placements))
        best = best_within(points, plan.noise)
        assert best is not None and best.ns <= plan.ns * (1 + 1e-9)
    assert all(point.proof.kind is not ProofKind.GAP for point in points)
    assert [p.ns for p in points] == sorted(p.ns for p in points)
    assert points[0].budget == math.inf and points[-1].noise == points[-1].error == 0.0


def test_a_uniform_precision_is_what_every_unit_has_that_can() -> None:
    problem, noise = mixed_network(20, 2, 2, preferences=1)
    for precision in Precision:
        plan = uniform(problem, precision, noise, limits=LONG)
        assert plan is not None
        for units, k in plan.placements:
            target = problem.targets[k]
            if target.precision is precision or target == CPU:
                continue
            can = [j for j, t in enumerate(problem.targets) if t.precision is precision]
            assert not np.isfinite(problem.unit_ns[list(units)][:, can]).any()
    assert sum(len(units) for units, k in plan.placements if problem.arrays.format[k]) == 20


def test_of_several_outputs_the_largest_noise_counts() -> None:
    for seed in range(30):
        problem, noise = drawn(2 * seed)
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
            assert best is not None and best.ns == pytest.approx(least, rel=2e-6), seed


def test_limits_and_interruptions_leave_what_there_is() -> None:
    problem, noise = mixed_network(40, 2, 4, preferences=1)
    hurried = front(problem, noise, limits=SearchLimits(seconds=0.0))
    assert hurried and all(p.ns == total_ns(problem, p.placements) for p in hurried)
    looks = 0

    def interrupt(watch: Watch) -> None:
        nonlocal looks
        looks += 1
        if looks == 12:
            raise KeyboardInterrupt

    points = front(problem, noise, report=interrupt, limits=LONG)
    assert looks >= 12 and points and points[0].ns <= hurried[0].ns * (1 + 1e-9)


def test_noise_that_is_none_is_refused_and_what_is_unknown_avoided() -> None:
    problem, noise = mixed_network(8, 1, 1)
    with pytest.raises(PartitionError, match="shape"):
        front(problem, noise[:-1])
    with pytest.raises(PartitionError, match="at least 0"):
        front(problem, -1.0 - noise)
    unknown = noise.copy()
    unknown[3, 1:] = np.inf
    points = front(problem, unknown, limits=LONG)
    assert all(k == 0 for p in points for units, k in p.placements if 3 in units)
