from dataclasses import replace

import pytest

from nnapi_prof.costs.model import PHONE_CPU, Roofline
from tests.costs.graphs import chain_graph


def test_the_slower_of_arithmetic_and_memory_counts():
    graph = chain_graph([100, 200])
    unit = graph.units[0]
    roof = Roofline(macs_per_ns=10, bytes_per_ns=2, operation_ns=7)
    assert roof.unit_ns(graph, unit) == pytest.approx(1200 / 2 + 7)
    assert roof.unit_ns(graph, replace(unit, macs=100_000)) == pytest.approx(10_000 + 7)
    assert roof.unit_ns(graph, replace(unit, constant_bytes=800)) == pytest.approx(1000 + 7)


def test_regions_add_up():
    graph = chain_graph([10, 20, 30])
    parts = sum(PHONE_CPU.unit_ns(graph, unit) for unit in graph.units)
    assert PHONE_CPU.region_ns(graph, (0, 1)) == pytest.approx(parts)


def test_mobilenet_v1_takes_what_the_source_of_the_constant_says():
    assert 569e6 / PHONE_CPU.macs_per_ns == pytest.approx(14.0e6, rel=0.01)
