"""Which targets plans are made of: preferences and "auto" that add nothing are left out."""

from __future__ import annotations

import pytest

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


def failed(status: Status, *region: int) -> Measurement:
    return row(GRAPH, region, FAST, None, status=status, message="no")


def left(model: CostModel, **options: bool) -> set[Target]:
    return {*drop_dominated_targets(model.table, **options).targets} - {CPU}


@pytest.mark.parametrize(
    ("factors", "more", "stays"),
    [
        # Of equal preferences, that for fast answers.
        ({FAST: 1, LOW: 1, LONG: 1}, (), {FAST}),
        ({FAST: 1, LOW: 1.4, LONG: 1.001}, (), {FAST}),
        ({LOW: 1, LONG: 1}, (), {LOW}),
        # What is faster, if only for some regions.
        ({FAST: 1, LOW: 0.9, LONG: 1}, (), {FAST, LOW}),
        ({FAST: 1, LOW: 1.2}, (row(GRAPH, (2,), LOW, 3e5),), {FAST, LOW}),
        # What the other cannot run.
        ({FAST: 1, LOW: 1}, (failed(Status.REFUSED, 2),), {FAST, LOW}),
        ({FAST: 1, LOW: 1}, (failed(Status.CRASHED, 2, 3),), {FAST, LOW}),
        # Accelerators and the CPU are never one.
        ({FAST: 1, OTHER: 1}, (), {FAST, OTHER}),
        ({FAST: 9}, (), {FAST}),
        # Auto goes where a named accelerator does the same.
        ({FAST: 1, CHOICE: 1}, (), {FAST}),
        ({FAST: 1, CHOICE: 0.8}, (), {FAST, CHOICE}),
    ],
)
def test_what_stays(factors, more, stays):
    assert left(costs(factors, *more)) == stays


def test_auto_stays_where_it_is_asked_for():
    assert left(costs({FAST: 1, CHOICE: 1}), auto=True) == {FAST, CHOICE}


def test_what_was_compared_nowhere_stays():
    assert left(costs({FAST: 1, LOW: 1}, n_low=1)) == {FAST}
    apart = [row(GRAPH, region, FAST, 6e5) for region in REGIONS[:3]]
    apart += [row(GRAPH, region, LOW, 6e5) for region in REGIONS[3:6]]
    assert left(costs({}, *apart)) == {FAST, LOW}


def test_nothing_but_the_targets_changes():
    table = costs({FAST: 1, LOW: 1}).table
    narrow = drop_dominated_targets(table)
    assert narrow.targets == (CPU, FAST) and narrow.noise == table.noise
    assert narrow.unit_cost(0, LOW) is None
    assert narrow.unit_cost(0, FAST) == table.unit_cost(0, FAST)
    assert narrow.region_ns == table.region_ns and narrow.refusals == table.refusals
