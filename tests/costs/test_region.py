"""The cost model of a graph: sums, whole regions, refusals, and where regions are found."""

import math
from dataclasses import replace

import pytest

from nnapi_prof.costs.measurement import Measurement, Status
from nnapi_prof.costs.model.fit import RegionMatcher, chains, fit
from nnapi_prof.errors import CostError
from nnapi_prof.graph.plan import CPU, HOST, Plan, Preference, Segment, Target
from nnapi_prof.partition.problem import make_problem
from tests.costs.graphs import NPU, chain_graph, diamond, row

SIZES = [40_000, 90_000, 10_000, 60_000, 20_000, 5_000, 1_000]
CPU_NS = [2e6, 5e6, 1e6, 3e6, 4e6, 5e5]
NPU_NS = [2e5, 5e5, 1e5, 3e5, 4e5, 5e4]
OVERHEAD, RATE = 4e5, 0.5


def truth(region: tuple[int, ...], target: Target) -> float:
    if target == CPU:
        return sum(CPU_NS[u] for u in region)
    boundary = 4 * (SIZES[region[0]] + SIZES[region[-1] + 1])
    return OVERHEAD + RATE * boundary + sum(NPU_NS[u] for u in region)


GRAPH = chain_graph(SIZES)


def rows(*more: Measurement) -> list[Measurement]:
    regions = [chain for length in (1, 2, 3) for chain in chains(GRAPH, length)]
    return [row(GRAPH, r, t, truth(r, t)) for r in regions for t in (CPU, NPU)] + list(more)


def test_parts_and_sums():
    model = fit(GRAPH, rows())
    assert model.targets == (CPU, NPU) and model.simulated and not model.refusals
    whole = tuple(range(6))
    for target in (CPU, NPU):
        cost = model.region_cost(whole, target)
        assert not cost.measured and not cost.estimated
        assert cost.ns == pytest.approx(truth(whole, target), rel=0.01)
        assert len(model.residuals[target]) == 6 + 5 + 4
    assert model.overhead(NPU) == pytest.approx(OVERHEAD, rel=0.05)
    assert model.transfer(CPU, 1000, 1000) == 0
    parts = [model.unit_cost(u, NPU) for u in whole]
    total = model.overhead(NPU) + model.transfer(NPU, 4 * SIZES[0], 4 * SIZES[6])
    cost = model.region_cost(whole, NPU)
    assert total + sum(p for p in parts if p is not None) == pytest.approx(cost.ns)
    (entering,), _ = GRAPH.boundary(whole)
    counted = replace(model, border_bytes={entering: 4 * SIZES[0] + 1000})
    more = counted.region_cost(whole, NPU)
    assert more.ns - cost.ns == pytest.approx(model.transfer(NPU, 1000, 0))
    assert make_problem(GRAPH, counted.table).segment_ns(whole, 1) == pytest.approx(more.ns)


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
    tried = model.whole([0, 1, 2, 3], NPU)
    assert tried.why_not == "crashed: SIGSEGV"


def test_refusals_are_sentences_and_leave_the_unit_without_cost():
    refused = row(GRAPH, [1], NPU, None, status=Status.REFUSED, message="no such operation")
    model = fit(
        GRAPH, [r for r in rows() if r.target == CPU or "sig1" not in r.members] + [refused]
    )
    assert model.refusals == {(1, NPU): "refused: no such operation"}
    assert model.unit_cost(1, NPU) is None
    assert model.region_cost([0, 1, 2], NPU) is None
    assert model.region_cost([2, 3], NPU) is not None
    assert HOST not in model.targets


def test_what_no_engine_runs_is_priced_by_the_static_model():
    refused = [
        row(GRAPH, [3], target, None, status=Status.REFUSED, message="gelu")
        for target in (CPU, NPU)
    ]
    model = fit(GRAPH, [r for r in rows() if "sig3" not in r.members] + refused)
    assert model.targets == (CPU, NPU, HOST)
    cost = model.region_cost([3], HOST)
    assert cost.estimated and not cost.measured and cost.ns > 0
    assert model.unit_cost(3, HOST) == cost.ns
    assert model.unit_cost(2, HOST) is None and model.region_cost([2, 3], HOST) is None
    assert model.region_cost([3], CPU) is None


def test_units_that_were_never_tried_are_named():
    few = [r for r in rows() if r.signature not in ("sig4", "sig5")]
    with pytest.raises(CostError, match=r"2 of the model's 6 units were never measured.*u4, op4"):
        fit(GRAPH, few)


def test_rows_of_other_models_do_not_matter():
    other = chain_graph([1, 2, 3], ["sig0", "elsewhere"])
    strange = row(other, [0, 1], NPU, 1)
    assert fit(GRAPH, rows(strange)).fits == fit(GRAPH, rows()).fits


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


def test_a_region_with_a_gap_is_found_again():
    graph = diamond()
    singles = [row(graph, [u], t, 10.0) for u in range(4) for t in (CPU, NPU)]
    model = fit(graph, [*singles, row(graph, [0, 2], NPU, 99)])
    assert model.table.region_ns[frozenset([0, 2]), NPU] == 99
    assert (frozenset([0, 1]), NPU) not in model.table.region_ns


def test_a_named_region_is_found_where_its_units_stand_apart():
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
