"""Contention from rows of units that ran alone and side by side."""

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings

from nnapi_prof.costs import Conditions, Mode
from nnapi_prof.costs.contention import (
    ASSUMED,
    ContentionBasis,
    Slowdown,
    corun_rows,
    given,
    lanes_of,
    slowdowns,
)
from nnapi_prof.costs.measurement import Kind, Measurement, Round
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.table import CostTable
from nnapi_prof.graph.plan import AUTO, CPU, HOST, Preference, Target
from nnapi_prof.graph.unit import UnitGraph, Work
from tests.costs.graphs import chain_graph
from tests.costs.test_store import measurement

GPU = Target.nnapi("gpu", Preference.SUSTAINED_SPEED)
FAST = Target.nnapi("gpu", Preference.FAST_SINGLE_ANSWER)


def of_operations(*kinds: str) -> UnitGraph:
    graph = chain_graph([1, 1, 1])
    works = [Work(kind, "float32", 64, 256, 256, 0, 8, 8, 8, 8) for kind in kinds]
    units = [replace(unit, work=work) for unit, work in zip(graph.units, works, strict=True)]
    return replace(graph, units=tuple(units))


def prices(ns: dict[int, float]) -> CostTable:
    """Units of each operation on the CPU and the GPU."""
    targets = (CPU, GPU, FAST, Target.nnapi(AUTO, Preference.LOW_POWER), HOST)
    unit_ns = np.full((3, len(targets)), np.inf)
    for unit, each in ns.items():
        unit_ns[unit, :2] = each
    return CostTable(targets, unit_ns, *np.zeros((3, len(targets))))


def row(
    target: Target, corunner: Target, operation: str, slower: float, **more: object
) -> Measurement:
    alone = (1000, 1010, 990) * 5
    base = measurement(
        signature=f"{operation} {target} {corunner}",
        kind=Kind.CORUN,
        target=target,
        conditions=Conditions().on(target),
        operation=operation,
        corunner=corunner,
        alone_ns=alone,
        samples_ns=tuple(round(ns * slower) for ns in alone),
        cpu_ns=(250,) * 15,
        rounds=(Round(3),) * 5,
    )
    return replace(base, **more)


GRAPH = of_operations("CONV_2D", "DEPTHWISE_CONV_2D")


def of_pair(rows: list[Measurement], conv_ns: float = 1.0, lane: str = "cpu") -> Slowdown:
    """What rows tell of a lane, of units that take so long and 1 ns."""
    pairs = slowdowns(GRAPH, prices({0: conv_ns, 1: 1.0}), rows).pairs
    return next(pair for pair in pairs if pair.lane == lane)


def test_operations_count_by_their_share_of_the_time():
    rows = [row(CPU, GPU, "CONV_2D", 1.0), row(CPU, GPU, "DEPTHWISE_CONV_2D", 1.5)]
    assert of_pair(rows).factor.value == pytest.approx(1.25)
    assert of_pair(rows, 4.0).factor.value == pytest.approx(1.1)
    assert of_pair(rows[:1], 4.0).factor.value == pytest.approx(1.0)
    others = [row(CPU, GPU, "ADD", 1.2), row(CPU, GPU, "MUL", 1.4)]
    assert of_pair(others).factor.value == pytest.approx(1.3)


def test_pairs_that_were_not_measured_are_assumed():
    table = prices({0: 1.0, 1: 1.0})
    found = slowdowns(GRAPH, table, [row(GPU, CPU, "CONV_2D", 1.3)])
    assert found.basis is ContentionBasis.PARTLY
    assert found.factors == {("cpu", "gpu"): ASSUMED, ("gpu", "cpu"): pytest.approx(1.3)}
    cpu, gpu = sorted(found.pairs, key=lambda pair: pair.lane)
    assert (cpu.basis, gpu.basis) == (ContentionBasis.ASSUMED, ContentionBasis.MEASURED)
    assert gpu.cpu_share.value == pytest.approx(0.25, rel=0.02)
    assert slowdowns(GRAPH, table, []).basis is ContentionBasis.ASSUMED
    assert given(table.targets, 1.2).factors == {("cpu", "gpu"): 1.2, ("gpu", "cpu"): 1.2}
    assert lanes_of(table.targets) == ("cpu", "gpu")


def test_starting_and_waiting_is_told_by_the_same_unit_in_both_modes():
    in_call, waiting = row(GPU, CPU, "CONV_2D", 1.0), Conditions(mode=Mode.ASYNC).on(GPU)
    alone = tuple(ns + 40 for ns in in_call.alone_ns)
    waits = replace(in_call, signature="waiting", conditions=waiting, alone_ns=alone)
    wait_ns = of_pair([in_call, waits], lane="gpu").wait_ns
    assert wait_ns.value == pytest.approx(40) and wait_ns.low <= 40 <= wait_ns.high


def test_long_runs_say_how_clocks_do_and_nothing_else():
    ns = tuple(range(10**7, 2 * 10**7, 10**4))
    long = row(CPU, GPU, "ADD", 1.0, samples_ns=ns, alone_ns=ns, rounds=(Round(1000),), cpu_ns=())
    pair = of_pair([long, row(CPU, GPU, "CONV_2D", 1.2)])
    assert pair.factor.value == pytest.approx(1.2)
    assert pair.later.value == pytest.approx(1.95 / 1.05, rel=0.01)


@settings(deadline=None, max_examples=30)
@drawn(st.lists(st.floats(0.8, 3.0), min_size=5, max_size=5), st.floats(0.1, 10))
def test_factors_are_slowdowns_inside_their_interval(ratios, share):
    samples = tuple(round(1e6 * ratio) for ratio in ratios for _ in range(3))
    rows = [row(CPU, GPU, "CONV_2D", 1.0, alone_ns=(10**6,) * 15, samples_ns=samples)]
    factor = of_pair(rows, share).factor
    assert 1.0 <= factor.low <= factor.value <= factor.high <= max(1.0, *ratios) + 1e-6


def test_rows_come_back_under_their_conditions():
    one = row(CPU, GPU, "CONV_2D", 1.1)
    two = replace(one, conditions=Conditions(threads=2))
    waits = row(GPU, CPU, "CONV_2D", 1.1, conditions=Conditions(mode=Mode.ASYNC).on(GPU))
    with CostStore("sqlite://") as store:
        store.add(one, two, waits)
        rows = corun_rows(store, one.fingerprint, Conditions())
    assert [replace(each, measured_at=one.measured_at) for each in rows] == [one, waits]
