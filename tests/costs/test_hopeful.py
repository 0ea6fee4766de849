"""Intervals of plans, costs at their lower ends, preferences from a sample, compile times."""

import dataclasses

import pytest

from nnapi_prof.costs.measurement import Measurement, Status
from nnapi_prof.costs.model import CostModel
from nnapi_prof.costs.model.fit import chains, fit
from nnapi_prof.costs.model.views import with_intervals
from nnapi_prof.costs.table import optimistic
from nnapi_prof.graph.plan import CPU, HOST, Plan, Segment, Target
from nnapi_prof.partition import make_problem
from tests.costs.graphs import LOW, NPU, chain_graph, row

GRAPH = chain_graph([1000] * 7)
UNITS = tuple(range(6))
OVERHEAD, UNIT, LOWER_CLOCK = 5e5, 1e5, 1.5


def truth(region: tuple[int, ...], target: Target) -> float:
    if target == CPU:
        return 1e6 * len(region)
    return OVERHEAD + UNIT * sum(u + 1 for u in region) * (LOWER_CLOCK if target == LOW else 1)


def rows(*more: Measurement, low: tuple[int, ...] = UNITS) -> list[Measurement]:
    regions = [chain for length in (1, 2, 3) for chain in chains(GRAPH, length)]
    places = [(region, t) for region in regions for t in (CPU, NPU)] + [((u,), LOW) for u in low]
    return [*(row(GRAPH, region, t, truth(region, t)) for region, t in places), *more]


def model(*more: Measurement, low: tuple[int, ...] = UNITS) -> CostModel:
    return fit(GRAPH, rows(*more, low=low))


def plan(*segments: Segment) -> Plan:
    return Plan("dp", segments, True, ("first",))


def test_measured_segments_are_known_better_than_sums():
    costs = model()
    measured = Segment((0, 1), NPU, truth((0, 1), NPU), "", measured=True)
    summed = Segment((2, 3, 4, 5), NPU, truth((2, 3, 4, 5), NPU), "")
    result = with_intervals(plan(measured, summed), costs)
    (low, high), (low_sum, high_sum) = (s.interval_ns or (0.0, 0.0) for s in result.segments)
    assert 0 < low < measured.predicted_ns < high
    assert (high - low) / measured.predicted_ns <= (high_sum - low_sum) / summed.predicted_ns
    assert result.notes[0] == "first" and "95 % interval" in result.notes[1]
    assert "1 of 2 segments were measured whole; these latencies are simulated" in result.notes[1]
    assert Plan.from_json(result.to_json()) == result


def test_the_host_has_no_interval():
    segment = Segment((0,), HOST, 1e6, "", estimated=True)
    result = with_intervals(plan(segment), model())
    assert result.segments == (segment,) and "estimated, and has none" in result.notes[1]


def test_plans_of_before_have_no_intervals():
    text = plan(Segment((0,), CPU, 1.0, "")).to_json()
    old = text.replace(',\n   "interval_ns": null', "")
    assert "interval_ns" not in old
    assert Plan.from_json(old).segments[0].interval_ns is None


def test_hope_lowers_sums_and_leaves_measurements():
    off = [row(GRAPH, r, NPU, 0.8 * truth(r, NPU)) for r in ((0, 1, 2), (3, 4, 5), (1, 2, 3))]
    costs = model(*off, row(GRAPH, UNITS, NPU, 2e6))
    hopeful = optimistic(costs.table)
    now, hoped = (make_problem(GRAPH, each) for each in (costs.table, hopeful))
    k = now.target_index(NPU)
    assert hoped.segment_ns(UNITS, k) == now.segment_ns(UNITS, k) == 2e6
    assert hoped.segment_ns((0, 1, 2, 3), k) < 0.95 * now.segment_ns((0, 1, 2, 3), k)
    assert hoped.unit_ns[5, k] < now.unit_ns[5, k]
    assert hoped.overhead_ns[k] <= now.overhead_ns[k]
    assert hopeful.region_ns == costs.table.region_ns
    # The sums of the CPU hold; regions twice as long as any measured may still differ somewhat.
    assert hopeful.unit_cost(0, CPU) == pytest.approx(costs.unit_cost(0, CPU), rel=0.1)


def test_units_of_a_preference_are_inferred_from_a_sample():
    costs = model(low=(0, 5))
    assert costs.targets == (CPU, NPU, LOW)
    assert costs.inferred(2, LOW) and not costs.inferred(0, LOW) and not costs.inferred(2, NPU)
    result = costs.region_cost((2, 3), LOW)
    assert not result.measured
    assert result.ns == pytest.approx(truth((2, 3), LOW), rel=0.1)
    assert (frozenset({2}), LOW) not in costs.table.region_ns


def test_what_one_preference_refuses_the_other_does_too():
    refused = row(GRAPH, (2,), NPU, None, status=Status.REFUSED, message="no kernel")
    costs = model(refused, low=(0, 5))
    assert costs.unit_cost(2, LOW) is None and costs.refusals[2, LOW] == "refused: no kernel"


def test_compile_times_add_up_and_whole_regions_are_as_measured():
    def compiled(found):
        ns = 60_000_000 + 10_000_000 * found.n_units
        return dataclasses.replace(found, compile_ns=0 if found.target == CPU else ns)

    costs = fit(GRAPH, [compiled(found) for found in rows(low=(0, 5))])
    times = costs.compile_times((CPU, NPU, LOW))
    assert times.fixed_ns[1] == pytest.approx(60e6, rel=0.01)
    assert times.unit_ns[3, 2] == pytest.approx(10e6, rel=0.02)
    assert times.fixed_ns[0] == times.unit_ns[3, 0] == 0
    whole = times.region_ns
    assert whole[frozenset({0, 1, 2}), 1] == whole[frozenset({0, 1, 2}), 2] == 90e6
    assert not any(k == 0 for _, k in whole)
