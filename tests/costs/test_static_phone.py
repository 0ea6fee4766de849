import json
from dataclasses import replace
from typing import Any

import pytest

from nnapi_prof.costs.estimate import Work
from nnapi_prof.costs.estimate.phones import PhoneUnit, phone_units, thread_speed
from nnapi_prof.costs.model import PHONE_CPU, Roofline
from nnapi_prof.device.find import phone_file
from nnapi_prof.errors import CostError
from nnapi_prof.graph.plan import CPU, Preference, Target
from tests.costs.graphs import chain_graph

CONV = Work("CONV_2D", "float32", 1e6, 4000.0, 4000.0, 2000.0, 100.0, 10.0, 3.0, 10.0)


def constant(value: float) -> dict[str, Any]:
    return {"value": value, "unit": "any", "origin": "test"}


def constants(**values: float) -> dict[str, Any]:
    return {name: constant(value) for name, value in values.items()}


def description() -> dict[str, Any]:
    """Rates that make the arithmetic easy to follow."""
    unit = {
        "peak": constants(default=10, quant8=40, relaxed=20),
        "efficiency": constants(CONV_2D=0.5, default=0.1),
        **constants(bandwidth=2, operation_overhead=3),
    }
    taken = {"only": ["CONV_2D", "ADD"], "default": "float32 quant8 rank<=4"}
    npu = {
        **unit,
        "name": "npu",
        "feature_level": 29,
        "operations": {**taken, "limits": {"ADD": "quant8"}},
        "preference": {p.short: constant(p.value + 1) for p in Preference},
        **constants(transfer_bandwidth=4, transfer_floor=50, invocation=700, burst_invocation=400),
    }
    return {"cpu": {**unit, **constants(thread_scaling=0.5)}, "accelerators": [npu]}


def unit(target: Target, threads: int = 1, burst: bool = False) -> PhoneUnit:
    (result,) = (u for u in phone_units(description(), threads, burst) if u.target == target)
    return result


FAST = Target.nnapi("npu", Preference.FAST_SINGLE_ANSWER)


def test_threads_add_up_as_the_emulator_has_it():
    assert unit(CPU, threads=3).ns([CONV]) == pytest.approx(1e6 / (5 * 1.75) + 3000)
    assert thread_speed(constants(thread_scaling=0.5, cores=2), 9) == 1.5
    measured = {"2": constant(1.5), "8": constant(1)}
    rows = {**constants(thread_scaling=0.5, cores=7), "thread_speed": measured}
    assert [thread_speed(rows, n) for n in (1, 2, 5)] == pytest.approx([1, 1.5, 1.25])


def test_rates_of_other_data():
    for data, rate in (("relaxed", 20), ("float16", 20), ("per_channel", 40), ("int32", 10)):
        result = unit(CPU).ns([replace(CONV, data=data)])
        assert result == pytest.approx(1e6 / (rate * 0.5) + 3000)


@pytest.mark.parametrize(
    "work, said",
    [
        (replace(CONV, kind="MUL"), "has no MUL"),
        (replace(CONV, data="float16"), "CONV_2D of float16"),
        (replace(CONV, rank=5), "CONV_2D of rank 5"),
        (replace(CONV, kind="ADD"), "ADD of float32"),
        (CONV, None),
        (replace(CONV, data="relaxed"), None),
        (replace(CONV, kind="ADD", data="quant8", rank=5), None),
    ],
)
def test_what_is_taken(work, said):
    result = unit(FAST).why_not([CONV, work])
    assert result is None if said is None else result is not None and said in result


def test_a_damaged_description_is_refused():
    broken = description()
    del broken["cpu"]["bandwidth"]
    with pytest.raises(CostError, match="bandwidth"):
        phone_units(broken, 1, False)


def test_a_phone_that_joins_operations_says_so():
    described = json.loads(phone_file("dsp-phone").read_text())
    assert any(result.fuses for result in phone_units(described, 1, False))


def test_the_roofline_of_a_unit():
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
