"""Few plans for many phones: the choice against brute force, and candidates of groups."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nnapi_prof.errors import PartitionError
from nnapi_prof.partition.fleet import FleetObjective, choose_plans, regrets
from nnapi_prof.partition.fleet_search import latency_of, plan_fleet, summed_problem
from nnapi_prof.partition.problem import Problem
from tests.partition.problems import draw_problem, every_plan, on_targets


def brute_force(regret, k, objective, weights):
    """The least objective of any k plans; inf where none serve all phones."""
    regret, share = regret[:, weights > 0], weights[weights > 0] / weights.sum()
    sets = itertools.combinations(range(len(regret)), min(k, len(regret)))
    least = [regret[list(plans)].min(axis=0) for plans in sets]
    is_mean = objective is FleetObjective.MEAN
    return min(float(own @ share if is_mean else own.max()) for own in least)


@settings(max_examples=80)
@given(st.integers(0, 1 << 30), st.integers(1, 8), st.integers(1, 12), st.integers(1, 8))
def test_equal_to_brute_force(seed, n, phones, k):
    random = np.random.default_rng(seed)
    regret = random.choice([0.0, 0.01, 0.5, 3.0], (n, phones)) * random.random((n, phones))
    if seed % 3 == 0:  # some plans do not run on some phones
        regret[random.random((n, phones)) < 0.3] = math.inf
    weights = random.choice([0.0, 1.0, 2.5], phones)
    weights[0] = 1.0
    for objective in FleetObjective:
        least = brute_force(regret, k, objective, weights)
        if math.isinf(least):
            with pytest.raises(PartitionError, match="serve every phone"):
                choose_plans(regret, k, objective=objective, weights=weights)
            continue
        choice = choose_plans(regret, k, objective=objective, weights=weights)
        assert choice.value == pytest.approx(least, abs=1e-6)
        assert choice.is_optimal and len(choice.plans) <= k
        assert set(choice.plan_of) == set(choice.plans)
        own = regret[list(choice.plan_of), range(phones)].tolist()
        assert list(choice.regrets) == own == regret[list(choice.plans)].min(axis=0).tolist()


@pytest.mark.slow
def test_more_plans_than_are_solved_exactly_have_a_bound():
    regret = np.random.default_rng(1).random((60, 40))
    for objective in FleetObjective:
        limits = (1, 60.0), (2, 0.2), (4, 0.2)  # enough for one of 40, not for the others
        one, two, four = (
            choose_plans(regret, k, objective=objective, seconds=seconds) for k, seconds in limits
        )
        assert all(c.bound <= c.value + 1e-12 for c in (one, two, four))
        assert one.is_optimal and one.value >= two.value >= four.value


def test_regrets_are_of_the_least_latency():
    latency = np.array([[2e6, 3e6], [1e6, math.inf]])
    assert regrets(latency, [0.5e6, 3e6]).tolist() == [[3.0, 0.0], [1.0, math.inf]]
    with pytest.raises(PartitionError, match="phone 1"):
        regrets(latency[1:], [0.5e6, math.inf])
    with pytest.raises(PartitionError, match="weights"):
        choose_plans(regrets(latency, [1e6, 3e6]), 1, weights=[0, 0])
    with pytest.raises(PartitionError, match="1 is the least"):
        choose_plans(regrets(latency, [1e6, 3e6]), 0)


def draw_fleet(seed: int, phones: int, most_units: int = 6) -> list[Problem]:
    """One random model on several phones: other costs, and on some fewer targets and regions."""
    chance = np.random.default_rng(seed)
    first = draw_problem(seed, most_units)
    whole = first.unit_ns + 1.0  # no unit is free: a latency of 0 has no regret
    alone = np.isfinite(whole).any(axis=1).all()
    fleet = []
    for _ in range(phones):
        unit_ns = whole * chance.choice([0.5, 1.0, 3.0], whole.shape)
        overhead_ns = first.overhead_ns * chance.random(first.overhead_ns.shape)
        regions = {}
        for region, ns in first.region_ns.items():
            if chance.random() < 0.7 and alone:
                regions[region] = (ns + 1.0) * chance.choice([0.5, 2.0])
        problem = replace(first, unit_ns=unit_ns, overhead_ns=overhead_ns, region_ns=regions)
        if chance.random() < 0.3 and np.isfinite(whole[:, :-1]).any(axis=1).all():
            problem = on_targets(problem, len(problem.targets) - 1)
        fleet.append(problem)
    return fleet


def runnable(fleet: list[Problem]) -> bool:
    """Each unit runs alone somewhere on each phone: that region did not fail there."""
    return all(
        min(problem.segment_ns((unit,), k) for k in range(len(problem.targets))) < math.inf
        for problem in fleet
        for unit in range(problem.n)
    )


@pytest.mark.slow
@settings(max_examples=50)
@given(st.integers(0, 100_000), st.integers(1, 4))
def test_one_plan_for_all_is_the_best_of_all_plans(seed, phones):
    fleet = draw_fleet(seed, phones, 5)
    assume(runnable(fleet))
    weights = np.random.default_rng(seed).choice([0.5, 1.0, 4.0], phones)
    search = plan_fleet(fleet, 3, weights=weights.tolist())
    share = weights / weights.sum()
    least = math.inf
    for placements in every_plan(fleet[0]):
        plan = tuple((units, fleet[0].targets[k]) for units, k in placements)
        each = [latency_of(problem, plan) for problem in fleet]
        least = min(least, float((share * each / search.least_ns).sum()) - 1)
    assert search.choices[0].mean == pytest.approx(least, rel=1e-6, abs=1e-9)
    assert search.least_mean_of_one <= search.choices[0].mean + 1e-9
    values = [choice.value for choice in search.choices]
    assert values == sorted(values, reverse=True)
    if phones <= 3:
        assert values[2] == pytest.approx(0, abs=1e-9)  # each has its own


@settings(max_examples=40)
@given(st.integers(0, 100_000))
def test_a_sum_of_problems_costs_the_sum(seed):
    fleet = draw_fleet(seed, 3)
    factors = [0.5, 2.0, 0.125]
    summed = summed_problem(fleet, factors)
    for placements in itertools.islice(every_plan(summed), 30):
        plan = tuple((units, summed.targets[k]) for units, k in placements)
        parts = [f * latency_of(p, plan) for p, f in zip(fleet, factors, strict=True)]
        assert latency_of(summed, plan) == pytest.approx(sum(parts), rel=1e-9)


def test_plans_that_must_not_be_are_left_out():
    fleet = next(fleet for seed in range(50) if runnable(fleet := draw_fleet(seed, 3)))
    search = plan_fleet(fleet, 1)
    unwanted = search.plans[search.choices[0].plans[0]]
    other = plan_fleet(fleet, 1, without=[unwanted])
    assert unwanted not in other.plans
    assert other.choices[0].mean > search.choices[0].mean
    assert other.least_ns.tolist() == search.least_ns.tolist()
    with pytest.raises(PartitionError, match="different models"):
        plan_fleet([fleet[0], draw_fleet(4, 1)[0]], 1)
