"""The cost model of a graph: sums, whole regions and refusals; intervals and hope; preferences
from a sample; targets that add nothing."""

import math
from dataclasses import replace

import pytest

from nnapi_prof.costs.measurement import Measurement, Status
from nnapi_prof.costs.model import CostModel
from nnapi_prof.costs.model.fit import RegionMatcher, chains, fit
from nnapi_prof.costs.model.views import with_intervals
from nnapi_prof.costs.table import drop_dominated_targets, optimistic
from nnapi_prof.errors import CostError
from nnapi_prof.graph.plan import AUTO, CPU, HOST, Plan, Preference, Segment, Target
from nnapi_prof.partition import make_problem
from tests.costs.graphs import LOW, NPU, chain_graph, diamond, row

SIZES = [40_000, 90_000, 10_000, 60_000, 20_000, 5_000, 1_000]
CPU_NS = [2e6, 5e6, 1e6, 3e6, 4e6, 5e5]
NPU_NS = [2e5, 5e5, 1e5, 3e5, 4e5, 5e4]
OVERHEAD, RATE, LOWER_CLOCK = 4e5, 0.5, 1.5


def truth(region: tuple[int, ...], target: Target) -> float:
    if target == CPU:
        return sum(CPU_NS[u] for u in region)
    boundary = 4 * (SIZES[region[0]] + SIZES[region[-1] + 1])
    slower = LOWER_CLOCK if target == LOW else 1
    return OVERHEAD + RATE * boundary + slower * sum(NPU_NS[u] for u in region)


GRAPH, WHOLE = chain_graph(SIZES), tuple(range(6))
REGIONS = [chain for length in (1, 2, 3) for chain in chains(GRAPH, length)]


def rows(*more: Measurement) -> list[Measurement]:
    return [row(GRAPH, r, t, truth(r, t)) for r in REGIONS for t in (CPU, NPU)] + list(more)


def test_parts_and_sums():
    model = fit(GRAPH, rows())
    assert model.targets == (CPU, NPU) and model.simulated and not model.refusals
    for target in (CPU, NPU):
        cost = model.region_cost(WHOLE, target)
        assert not cost.measured and not cost.estimated
        assert cost.ns == pytest.approx(truth(WHOLE, target), rel=0.01)
        assert len(model.residuals[target]) == 6 + 5 + 4
        assert max(map(abs, model.residuals[target])) < 0.01
    assert model.overhead(NPU) == pytest.approx(OVERHEAD, rel=0.02)
    assert model.transfer(NPU, 1000, 1000) == pytest.approx(RATE * 2000, rel=0.02)
    assert model.transfer(CPU, 1000, 1000) == 0
    total = model.overhead(NPU) + model.transfer(NPU, 4 * SIZES[0], 4 * SIZES[6])
    assert total + sum(model.unit_cost(u, NPU) for u in WHOLE) == pytest.approx(cost.ns)
    (entering,), _ = GRAPH.boundary(WHOLE)
    counted = replace(model, border_bytes={entering: 4 * SIZES[0] + 1000})
    more = counted.region_cost(WHOLE, NPU)
    assert more.ns - cost.ns == pytest.approx(model.transfer(NPU, 1000, 0))
    assert make_problem(GRAPH, counted.table).segment_ns(WHOLE, 1) == pytest.approx(more.ns)


def test_a_region_measured_whole_overrides_the_sum_and_the_last_row_counts():
    region = range(1, 6)
    measured = (row(GRAPH, region, NPU, 123_456), row(GRAPH, [2], CPU, 77))
    model = fit(GRAPH, rows(*measured))
    cost = model.region_cost(region, NPU)
    assert cost.measured and cost.ns == 123_456
    assert model.table.region_ns[frozenset(region), NPU] == 123_456
    assert not model.region_cost(range(6), NPU).measured
    assert model.region_cost([2], CPU).ns == 77


def test_copies_of_a_plan_are_of_its_borders_on_accelerators():
    bare = fit(GRAPH, rows())
    assert bare.copy_ns_per_byte == 0 and bare.table.copies_ns == {}
    copied = [
        replace(each, copies_ns=(round((each.input_bytes + each.output_bytes) / 8),))
        for each in rows()
        if each.target == NPU
    ]
    model = fit(GRAPH, rows(*copied))
    assert model.copy_ns_per_byte == pytest.approx(1 / 8)

    def copies(*targets):
        segments = tuple(Segment((u,), target, 1e6, "") for u, target in enumerate(targets))
        plan = Plan("dp", segments, False)
        assert bare.with_copies(plan) == plan
        planned = model.with_copies(plan)
        assert planned.predicted_ns == plan.predicted_ns + planned.copies_ns
        assert Plan.from_json(planned.to_json()).copies_ns == planned.copies_ns
        return planned.copies_ns

    assert copies(*[CPU] * 6) == copies(CPU, *[NPU] * 4, CPU) == 0
    assert copies(NPU, *[CPU] * 5) == pytest.approx(4 * SIZES[0] / 8)
    assert copies(*[NPU] * 6) == pytest.approx(4 * (SIZES[0] + SIZES[6]) / 8)


def test_a_region_that_failed_whole_cannot_run():
    failed = row(GRAPH, [0, 1, 2, 3], NPU, None, status=Status.CRASHED, message="SIGSEGV")
    model = fit(GRAPH, rows(failed))
    assert model.region_cost([0, 1, 2, 3], NPU) is None
    assert model.table.region_ns[frozenset([0, 1, 2, 3]), NPU] == math.inf
    assert model.region_cost([0, 1, 2, 3, 4], NPU) is not None
    assert model.whole([0, 1, 2, 3], NPU).why_not == "crashed: SIGSEGV"


def test_refusals_are_sentences_and_leave_the_unit_without_cost():
    refused = row(GRAPH, [1], NPU, None, status=Status.REFUSED, message="no such operation")
    others = [r for r in rows() if r.target == CPU or "sig1" not in r.members]
    model = fit(GRAPH, [*others, refused])
    assert model.refusals == {(1, NPU): "refused: no such operation"}
    assert model.unit_cost(1, NPU) is None
    assert model.region_cost([0, 1, 2], NPU) is None
    assert model.region_cost([2, 3], NPU) is not None
    assert HOST not in model.targets


def test_what_no_engine_runs_is_priced_by_the_static_model():
    refused = [row(GRAPH, [3], t, None, status=Status.REFUSED, message="gelu") for t in (CPU, NPU)]
    model = fit(GRAPH, [r for r in rows() if "sig3" not in r.members] + refused)
    assert model.targets == (CPU, NPU, HOST)
    cost = model.region_cost([3], HOST)
    assert cost.estimated and not cost.measured and cost.ns > 0
    assert model.unit_cost(3, HOST) == cost.ns
    assert model.unit_cost(2, HOST) is None and model.region_cost([2, 3], HOST) is None
    assert model.region_cost([3], CPU) is None


def test_rows_of_other_models_do_not_matter_and_units_that_were_never_tried_are_named():
    other = chain_graph([1, 2, 3], ["sig0", "elsewhere"])
    assert fit(GRAPH, rows(row(other, [0, 1], NPU, 1))).fits == fit(GRAPH, rows()).fits
    few = [r for r in rows() if r.signature not in ("sig4", "sig5")]
    with pytest.raises(CostError, match=r"2 of the model's 6 units were never measured.*u4, op4"):
        fit(GRAPH, few)


def test_equal_units_share_their_measurements():
    graph = chain_graph([8] * 5, ["a", "b", "a", "b"])
    measured = [row(graph, u, CPU, ns) for u, ns in (([0], 10), ([1], 20), ([0, 1], 28))]
    model = fit(graph, measured)
    for region in ([0, 1], [2, 3]):
        cost = model.region_cost(region, CPU)
        assert cost.measured and cost.ns == 28
    assert (frozenset([1, 2]), CPU) not in model.table.region_ns


def test_chains_stop_where_a_value_is_read_twice():
    assert list(chains(diamond(), 2)) == [(1, 3), (2, 3)]
    assert list(chains(diamond(), 3)) == []
    assert list(chains(chain_graph([1, 2, 3, 4]), 2)) == [(0, 1), (1, 2)]
    assert list(chains(chain_graph([1, 2, 3, 4]), 3)) == [(0, 1, 2)]


def test_regions_whose_units_stand_apart_are_found_again():
    graph = diamond()
    singles = [row(graph, [u], t, 10.0) for u in range(4) for t in (CPU, NPU)]
    model = fit(graph, [*singles, row(graph, [0, 2], NPU, 99)])
    assert model.table.region_ns[frozenset([0, 2]), NPU] == 99
    assert (frozenset([0, 1]), NPU) not in model.table.region_ns
    graph = chain_graph([8, 8, 8], ["a", "b"])
    measured = row(graph, [0, 1], CPU, 5)
    places = RegionMatcher(graph).places([measured], extra=[(0, 1)])
    assert places == {(frozenset([0, 1]), CPU): measured}


def test_a_target_that_some_units_were_never_tried_on_has_its_measured_regions_alone():
    other = Target.nnapi("other", Preference.FAST_SINGLE_ANSWER)
    few = [row(GRAPH, (0,), other, 2e6), row(GRAPH, range(6), other, 9e6)]
    model = fit(GRAPH, rows(*few))
    assert model.partial == {other} and other in model.targets
    assert model.unit_cost(0, other) is None and model.region_cost((0, 1), other) is None
    whole = model.region_cost(range(6), other)
    assert whole.measured and whole.ns == 9e6
    tried = [row(GRAPH, (u,), other, None, status=Status.REFUSED) for u in range(1, 6)]
    assert fit(GRAPH, rows(*few, *tried)).partial == frozenset()


def test_a_fit_that_was_kept_is_taken_as_it_is():
    before = fit(GRAPH, rows())
    slower = [replace(row, samples_ns=tuple(2 * ns for ns in row.samples_ns)) for row in rows()]
    again = fit(GRAPH, slower, fits=before.fits)
    assert again.fits == before.fits and again.unit_cost(1, NPU) == before.unit_cost(1, NPU)
    assert fit(GRAPH, slower).unit_cost(1, NPU) != before.unit_cost(1, NPU)


# ---- intervals, hope, preferences from a sample -------------------------------------------------


def in_low_power() -> list[Measurement]:
    """Two units of six."""
    return [row(GRAPH, (u,), LOW, truth((u,), LOW)) for u in (1, 4)]


def plan(*segments: Segment) -> Plan:
    return Plan("dp", segments, True, ("first",))


def test_measured_segments_are_known_better_than_sums():
    costs = fit(GRAPH, rows())
    measured = Segment((0, 1), NPU, truth((0, 1), NPU), "", measured=True)
    summed = Segment((2, 3, 4, 5), NPU, truth((2, 3, 4, 5), NPU), "")
    result = with_intervals(plan(measured, summed), costs)
    (low, high), (low_sum, high_sum) = (s.interval_ns or (0.0, 0.0) for s in result.segments)
    assert 0 < low < measured.predicted_ns < high
    assert (high - low) / measured.predicted_ns <= (high_sum - low_sum) / summed.predicted_ns
    assert result.notes[0] == "first" and "95 % interval" in result.notes[1]
    assert "1 of 2 segments were measured whole; these latencies are simulated" in result.notes[1]
    assert Plan.from_json(result.to_json()) == result


def test_the_host_and_plans_of_before_have_no_intervals():
    segment = Segment((0,), HOST, 1e6, "", estimated=True)
    result = with_intervals(plan(segment), fit(GRAPH, rows()))
    assert result.segments == (segment,) and "estimated, and has none" in result.notes[1]
    text = plan(Segment((0,), CPU, 1.0, "")).to_json()
    old = text.replace(',\n   "interval_ns": null', "")
    assert "interval_ns" not in old
    assert Plan.from_json(old).segments[0].interval_ns is None


def test_hope_lowers_sums_and_leaves_measurements():
    off = [row(GRAPH, r, NPU, 0.8 * truth(r, NPU)) for r in ((0, 1, 2), (3, 4, 5), (1, 2, 3))]
    costs = fit(GRAPH, rows(*off, row(GRAPH, WHOLE, NPU, 2e6)))
    hopeful = optimistic(costs.table)
    now, hoped = (make_problem(GRAPH, each) for each in (costs.table, hopeful))
    k = now.target_index(NPU)
    assert hoped.segment_ns(WHOLE, k) == now.segment_ns(WHOLE, k) == 2e6
    assert hoped.segment_ns((0, 1, 2, 3), k) < 0.95 * now.segment_ns((0, 1, 2, 3), k)
    assert hoped.unit_ns[1, k] < now.unit_ns[1, k]
    assert hoped.overhead_ns[k] <= now.overhead_ns[k]
    assert hopeful.region_ns == costs.table.region_ns
    # The sums of the CPU hold; regions twice as long as any measured may still differ somewhat.
    assert hopeful.unit_cost(0, CPU) == pytest.approx(costs.unit_cost(0, CPU), rel=0.1)


def test_units_of_a_preference_are_inferred_from_a_sample_and_refused_as_by_the_other():
    costs = fit(GRAPH, rows(*in_low_power()))
    assert costs.targets == (CPU, NPU, LOW)
    assert costs.inferred(2, LOW) and not costs.inferred(1, LOW) and not costs.inferred(2, NPU)
    result = costs.region_cost((2, 3), LOW)
    assert not result.measured
    assert result.ns == pytest.approx(truth((2, 3), LOW), rel=0.1)
    assert (frozenset({2}), LOW) not in costs.table.region_ns
    refused = row(GRAPH, (2,), NPU, None, status=Status.REFUSED, message="no kernel")
    costs = fit(GRAPH, rows(refused, *in_low_power()))
    assert costs.unit_cost(2, LOW) is None and costs.refusals[2, LOW] == "refused: no kernel"


def test_compile_times_add_up_and_whole_regions_are_as_measured():
    def compiled(found):
        ns = 60_000_000 + 10_000_000 * found.n_units
        return replace(found, compile_ns=0 if found.target == CPU else ns)

    costs = fit(GRAPH, [compiled(found) for found in rows(*in_low_power())])
    times = costs.compile_times((CPU, NPU, LOW))
    assert times.fixed_ns[1] == pytest.approx(60e6, rel=0.01)
    assert times.unit_ns[3, 2] == pytest.approx(10e6, rel=0.02)
    assert times.fixed_ns[0] == times.unit_ns[3, 0] == 0
    whole = times.region_ns
    assert whole[frozenset({0, 1, 2}), 1] == whole[frozenset({0, 1, 2}), 2] == 90e6
    assert not any(k == 0 for _, k in whole)


LONG = Target.nnapi("npu", Preference.SUSTAINED_SPEED)
OTHER, CHOICE = (Target.nnapi(name, Preference.FAST_SINGLE_ANSWER) for name in ("gpu", AUTO))


def costs(factors: dict[Target, float], *more: Measurement, n_low: int = 99) -> CostModel:
    """The CPU, and targets that take so many times what the NPU does; ``n_low`` regions of LOW."""
    measured = [row(GRAPH, region, CPU, truth(region, CPU)) for region in REGIONS]
    for target, factor in factors.items():
        regions = REGIONS[:n_low] if target == LOW else REGIONS
        measured += [row(GRAPH, r, target, factor * truth(r, NPU)) for r in regions]
    return fit(GRAPH, [*measured, *more])


def failed(status: Status, *region: int) -> Measurement:
    return row(GRAPH, region, NPU, None, status=status, message="no")


def left(model: CostModel, **options: bool) -> set[Target]:
    return {*drop_dominated_targets(model.table, **options).targets} - {CPU}


@pytest.mark.parametrize(
    ("factors", "more", "stays"),
    [
        # Of equal preferences, that for fast answers.
        ({NPU: 1, LOW: 1, LONG: 1}, (), {NPU}),
        ({NPU: 1, LOW: 1.4, LONG: 1.001}, (), {NPU}),
        ({LOW: 1, LONG: 1}, (), {LOW}),
        # What is faster, if only for some regions.
        ({NPU: 1, LOW: 0.9, LONG: 1}, (), {NPU, LOW}),
        ({NPU: 1, LOW: 1.2}, (row(GRAPH, (2,), LOW, 3e5),), {NPU, LOW}),
        # What the other cannot run.
        ({NPU: 1, LOW: 1}, (failed(Status.REFUSED, 2),), {NPU, LOW}),
        ({NPU: 1, LOW: 1}, (failed(Status.CRASHED, 2, 3),), {NPU, LOW}),
        # Accelerators and the CPU are never one.
        ({NPU: 1, OTHER: 1}, (), {NPU, OTHER}),
        ({NPU: 9}, (), {NPU}),
        # Auto goes where a named accelerator does the same.
        ({NPU: 1, CHOICE: 1}, (), {NPU}),
        ({NPU: 1, CHOICE: 0.8}, (), {NPU, CHOICE}),
    ],
)
def test_what_stays(factors, more, stays):
    assert left(costs(factors, *more)) == stays


def test_auto_that_is_asked_for_and_what_was_compared_nowhere_stay():
    assert left(costs({NPU: 1, CHOICE: 1}), auto=True) == {NPU, CHOICE}
    assert left(costs({NPU: 1, LOW: 1}, n_low=1)) == {NPU}
    apart = [row(GRAPH, region, NPU, 6e5) for region in REGIONS[:3]]
    apart += [row(GRAPH, region, LOW, 6e5) for region in REGIONS[3:6]]
    assert left(costs({}, *apart)) == {NPU, LOW}


def test_nothing_but_the_targets_changes():
    table = costs({NPU: 1, LOW: 1}).table
    narrow = drop_dominated_targets(table)
    assert narrow.targets == (CPU, NPU) and narrow.noise == table.noise
    assert narrow.unit_cost(0, LOW) is None
    assert narrow.unit_cost(0, NPU) == table.unit_cost(0, NPU)
    assert narrow.region_ns == table.region_ns and narrow.refusals == table.refusals
