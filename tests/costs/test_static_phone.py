import json
from dataclasses import replace
from typing import Any

import pytest

from nnapi_prof.costs.estimate import Work
from nnapi_prof.costs.estimate.phones import PhoneUnit, phone_units, thread_speed
from nnapi_prof.device.find import phone_file
from nnapi_prof.errors import CostError
from nnapi_prof.graph.plan import CPU, Preference, Target

CONV = Work("CONV_2D", "float32", 1e6, 4000.0, 4000.0, 2000.0, 100.0, 10.0, 3.0, 10.0)


def constant(value: float) -> dict[str, Any]:
    return {"value": value, "unit": "any", "origin": "test"}


def description() -> dict[str, Any]:
    """Rates that make the arithmetic easy to follow."""
    unit = {
        "peak": {"default": constant(10), "quant8": constant(40), "relaxed": constant(20)},
        "bandwidth": constant(2),
        "operation_overhead": constant(3),
        "efficiency": {"CONV_2D": constant(0.5), "default": constant(0.1)},
    }
    npu = {
        **unit,
        "name": "npu",
        "feature_level": 29,
        "operations": {
            "only": ["CONV_2D", "ADD"],
            "default": "float32 quant8 rank<=4",
            "limits": {"ADD": "quant8"},
        },
        "transfer_bandwidth": constant(4),
        "transfer_floor": constant(50),
        "invocation": constant(700),
        "burst_invocation": constant(400),
        "preference": {p.short: constant(p.value + 1) for p in Preference},
    }
    cpu = {**unit, "thread_scaling": constant(0.5)}
    return {"cpu": cpu, "accelerators": [npu]}


def unit(target: Target, threads: int = 1, burst: bool = False) -> PhoneUnit:
    (result,) = (u for u in phone_units(description(), threads, burst) if u.target == target)
    return result


FAST = Target.nnapi("npu", Preference.FAST_SINGLE_ANSWER)


def test_the_slower_of_arithmetic_and_memory_and_the_overhead():
    assert unit(CPU).ns([CONV]) == pytest.approx(1e6 / 5 + 3000)
    heavy = replace(CONV, in_bytes=1e6)
    assert unit(CPU).ns([CONV, heavy]) == pytest.approx(203_000 + 1_006_000 / 2 + 3000)


def test_threads_add_up_as_the_emulator_has_it():
    assert unit(CPU, threads=3).ns([CONV]) == pytest.approx(1e6 / (5 * 1.75) + 3000)
    limited = {"thread_scaling": constant(0.5), "cores": constant(2)}
    assert thread_speed(limited, 9) == 1.5
    rows = {**limited, "cores": constant(7), "thread_speed": {"2": constant(1.5), "8": constant(1)}}
    assert [thread_speed(rows, n) for n in (1, 2, 5)] == pytest.approx([1, 1.5, 1.25])


def test_the_preference_is_a_factor_of_the_hardware():
    assert unit(FAST).ns([CONV]) == pytest.approx(2 * 203_000)


def test_invocation_and_transfer():
    price = unit(FAST).price
    assert (price.invocation_ns, price.ns_per_in_byte, price.ns_per_out_byte) == (750e3, 0.25, 0.25)
    assert unit(FAST, burst=True).price.invocation_ns == 450e3


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
