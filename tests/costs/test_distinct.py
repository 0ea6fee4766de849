"""Which targets plans are made of: preferences and "auto" that add nothing are left out."""

from __future__ import annotations

from nnapi_prof.costs.measurement import Measurement, Status
from nnapi_prof.costs.model import CostModel
from nnapi_prof.costs.model.fit import chains, fit
from nnapi_prof.costs.table import drop_dominated_targets
from nnapi_prof.graph.plan import AUTO, CPU, Preference, Target
from tests.costs.graphs import chain_graph, row

FAST, LOW, LONG = (
    Target.nnapi("npu", Preference.FAST_SINGLE_ANSWER),
    Target.nnapi("npu", Preference.LOW_POWER),
    Target.nnapi("npu", Preference.SUSTAINED_SPEED),
)
OTHER = Target.nnapi("gpu", Preference.FAST_SINGLE_ANSWER)
CHOICE = Target.nnapi(AUTO, Preference.FAST_SINGLE_ANSWER)
GRAPH = chain_graph([1000] * 7)
REGIONS = [chain for length in (1, 2, 3) for chain in chains(GRAPH, length)]


def costs(factors: dict[Target, float], *more: Measurement, n_low: int = 99) -> CostModel:
    """The CPU, and targets that take so many times 0.5 ms + 0.1 ms a unit; ``n_low`` regions of
    LOW."""
    rows = [row(GRAPH, region, CPU, 1e6 * len(region)) for region in REGIONS]
    for target, factor in factors.items():
        measured = REGIONS[:n_low] if target == LOW else REGIONS
        rows += [row(GRAPH, r, target, factor * (5e5 + 1e5 * len(r))) for r in measured]
    return fit(GRAPH, [*rows, *more])


def left(model: CostModel, **options: bool) -> list[Target]:
    return [
        target for target in drop_dominated_targets(model.table, **options).targets if target != CPU
    ]


def test_of_equal_preferences_that_for_fast_answers_stays():
    assert left(costs({FAST: 1, LOW: 1, LONG: 1})) == [FAST]
    assert left(costs({FAST: 1, LOW: 1.4, LONG: 1.001})) == [FAST]
    assert left(costs({LOW: 1, LONG: 1})) == [LOW]


def test_a_faster_preference_stays():
    assert set(left(costs({FAST: 1, LOW: 0.9, LONG: 1}))) == {FAST, LOW}
    # Faster for some regions only is enough.
    single = row(GRAPH, (2,), LOW, 3e5)
    assert set(left(costs({FAST: 1, LOW: 1.2}, single))) == {FAST, LOW}


def test_what_the_other_cannot_run_stays():
    refused = row(GRAPH, (2,), FAST, None, status=Status.REFUSED, message="no")
    assert set(left(costs({FAST: 1, LOW: 1}, refused))) == {FAST, LOW}
    failed = row(GRAPH, (2, 3), FAST, None, status=Status.CRASHED, message="no")
    assert set(left(costs({FAST: 1, LOW: 1}, failed))) == {FAST, LOW}


def test_accelerators_and_the_cpu_are_never_one():
    assert left(costs({FAST: 1, OTHER: 1})) == [OTHER, FAST]
    slow = costs({FAST: 9})
    assert drop_dominated_targets(slow.table).targets == (CPU, FAST)


def test_auto_goes_where_a_named_accelerator_does_the_same():
    model = costs({FAST: 1, CHOICE: 1})
    assert left(model) == [FAST]
    assert left(model, auto=True) == [FAST, CHOICE]
    assert left(costs({FAST: 1, CHOICE: 0.8})) == [FAST, CHOICE]


def test_what_was_compared_nowhere_stays():
    assert set(left(costs({FAST: 1, LOW: 1}, n_low=1))) == {FAST}
    apart = [row(GRAPH, region, FAST, 6e5) for region in REGIONS[:3]]
    apart += [row(GRAPH, region, LOW, 6e5) for region in REGIONS[3:6]]
    assert set(left(costs({}, *apart))) == {FAST, LOW}


def test_nothing_but_the_targets_changes():
    table = costs({FAST: 1, LOW: 1}).table
    narrow = drop_dominated_targets(table)
    assert narrow.targets == (CPU, FAST) and narrow.noise == table.noise
    assert narrow.unit_cost(0, LOW) is None and narrow.unit_cost(0, FAST) == table.unit_cost(
        0, FAST
    )
    assert narrow.region_ns == table.region_ns and narrow.refusals == table.refusals
