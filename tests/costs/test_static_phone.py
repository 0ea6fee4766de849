"""Estimates by descriptions of simulated phones; the emulator's latency
(device_agent/emulator/latency.c, runtime/graph/work.c) and the estimate's
(nnapi_prof/costs/estimate/phones.py, nnapi_prof/execution/estimation.py) are one formula."""

import functools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from nnapi_prof.costs import Conditions, Mode, Precision
from nnapi_prof.costs.estimate import Work
from nnapi_prof.costs.estimate.phones import PhoneUnit, phone_units, thread_speed
from nnapi_prof.costs.model import Roofline
from nnapi_prof.costs.model.fit import RegionMatcher
from nnapi_prof.costs.model.forms import best_of_forms, other_forms, product_units
from nnapi_prof.costs.store import CostStore
from nnapi_prof.device.find import list_phones, open_simulated, phone_file
from nnapi_prof.errors import CostError
from nnapi_prof.execution.estimation import estimated_costs
from nnapi_prof.execution.profile import ProfileOptions
from nnapi_prof.execution.profile.jobs import device_targets, grid
from nnapi_prof.execution.profile.measurer import Measurer
from nnapi_prof.execution.profile.regions import unit_regions
from nnapi_prof.execution.profile.unit_graph_cache import UnitGraphCache
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import AUTO, CPU, Engine, Preference, Target
from nnapi_prof.graph.program import Program
from nnapi_prof.nnapi import level_number
from tests.convert.quantised_models import ExportedNet
from tests.costs.graphs import chain_graph
from tests.models import Function
from tests.parts import slow_but

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
    return next(u for u in phone_units(description(), threads, burst) if u.target == target)


FAST = Target.nnapi("npu", Preference.FAST_SINGLE_ANSWER)


def test_threads_add_up_as_the_emulator_has_it_and_other_data_have_their_rates():
    assert unit(CPU, threads=3).ns([CONV]) == pytest.approx(1e6 / (5 * 1.75) + 3000)
    assert thread_speed(constants(thread_scaling=0.5, cores=2), 9) == 1.5
    measured = {"2": constant(1.5), "8": constant(1)}
    rows = {**constants(thread_scaling=0.5, cores=7), "thread_speed": measured}
    assert [thread_speed(rows, n) for n in (1, 2, 5)] == pytest.approx([1, 1.5, 1.25])
    for data, rate in (("relaxed", 20), ("float16", 20), ("per_channel", 40), ("int32", 10)):
        assert unit(CPU).ns([replace(CONV, data=data)]) == pytest.approx(1e6 / (rate * 0.5) + 3000)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (dict(kind="MUL"), "has no MUL"),
        (dict(data="float16"), "CONV_2D of float16"),
        (dict(rank=5), "CONV_2D of rank 5"),
        (dict(kind="ADD"), "ADD of float32"),
        (dict(), None),
        (dict(data="relaxed"), None),
        (dict(kind="ADD", data="quant8", rank=5), None),
    ],
)
def test_what_is_taken(changes, words):
    result = unit(FAST).why_not([CONV, replace(CONV, **changes)])
    assert result is None if words is None else words in result


def test_a_damaged_description_is_refused_and_joined_operations_are_told():
    broken = description()
    del broken["cpu"]["bandwidth"]
    with pytest.raises(CostError, match="bandwidth"):
        phone_units(broken, 1, False)
    described = json.loads(phone_file("dsp-phone").read_text())
    assert any(result.fuses for result in phone_units(described, 1, False))


def test_the_roofline_of_units_and_regions():
    graph = chain_graph([100, 200, 300])
    unit, other = graph.units
    roof = Roofline(macs_per_ns=10, bytes_per_ns=2, operation_ns=7)
    assert roof.unit_ns(graph, unit) == pytest.approx(1200 / 2 + 7)
    assert roof.unit_ns(graph, replace(unit, macs=100_000)) == pytest.approx(10_000 + 7)
    assert roof.unit_ns(graph, replace(unit, constant_bytes=800)) == pytest.approx(1000 + 7)
    parts = roof.unit_ns(graph, unit) + roof.unit_ns(graph, other)
    assert roof.region_ns(graph, (0, 1)) == pytest.approx(parts)


LAYERS = {
    "linear": nn.Linear(10, 7),
    "norm": nn.LayerNorm(10),
    "pointwise": nn.Conv2d(8, 16, 1),
    "square": nn.Conv2d(8, 16, 3, padding=1),
    "oblong": nn.Conv2d(8, 24, (3, 5), stride=2),
    "depthwise": nn.Conv2d(8, 8, 3, groups=8),
    "grouped": nn.Conv2d(8, 16, 3, groups=4),
    "transposed": nn.ConvTranspose2d(8, 6, 2, stride=2),
}


def of_many_kinds(x: torch.Tensor, **layers: nn.Module) -> tuple[torch.Tensor, ...]:
    """Operations of many kinds, shapes and ranks. [1, 8, 12, 10] -> several"""
    flat = x.reshape(8, 12, 10)
    return (
        *(layer(x) for layer in layers.values()),
        torch.relu(x + 1) * torch.sigmoid(x),
        x - x.mean((2, 3), keepdim=True),
        torch.softmax(flat @ flat.transpose(1, 2), -1),
        torch.cat([torch.tanh(x), x / 3], 1),
        nn.functional.max_pool2d(x, 2),
        nn.functional.avg_pool2d(x, 3, stride=1),
        nn.functional.interpolate(x, scale_factor=2, mode="bilinear"),
        nn.functional.interpolate(x, scale_factor=2, mode="nearest"),
        nn.functional.pad(x, (1, 2, 0, 1)),
        x.permute(0, 3, 1, 2)[:, 2:7],
        x.amax(3),
        torch.argmax(x, 1),
        torch.topk(flat, 3)[0],
        nn.functional.hardswish(x),
        torch.sqrt(torch.abs(x)) > torch.exp(-x),
    )


def quiet(phone: str) -> dict[str, Any]:
    """A phone that comes along, without what no estimate tells: noise, heat, joined operations."""
    description = json.loads(phone_file(phone).read_text())
    description["noise"]["spread"]["value"] = 0
    for part in (description, description["cpu"], *description["accelerators"]):
        for unknown in ("thermal", "heat", "fusion"):
            part.pop(unknown, None)
    return description


@functools.cache
def operations() -> Program:
    return prepare(Function(of_many_kinds, **LAYERS), (torch.rand(1, 8, 12, 10),), "operations")


@functools.cache
def quantised(channels: bool) -> Program:
    return prepare(ExportedNet(channels).eval(), (torch.rand(1, 3, 16, 16),), "quantised")


OTHERS = Conditions(threads=3, mode=Mode.BURST, precision=Precision.RELAXED)


@pytest.mark.parametrize(
    ("phone", "conditions"),
    [
        ("npu-phone", OTHERS),
        *(pytest.param(phone, Conditions(), marks=pytest.mark.slow) for phone in list_phones()),
    ],
)
def test_every_operation_takes_on_the_phone_what_it_is_estimated_at(phone, conditions, tmp_path):
    compared = compare(operations(), phone, conditions, tmp_path)
    assert compared[Engine.CPU] > 25 and compared[Engine.NNAPI] > 25


@pytest.mark.parametrize("channels", [False, True], ids=["per-tensor", "per-channel"])
@pytest.mark.parametrize("phone", slow_but(list_phones(), "dsp-phone"))
def test_in_8_bits_as_well(phone, channels, tmp_path):
    compared = compare(quantised(channels), phone, Conditions(), tmp_path)
    assert compared[Engine.CPU] > 5 and compared[Engine.NNAPI] > 5


def compare(
    program: Program, phone: str, conditions: Conditions, folder: Path
) -> dict[Engine, int]:
    """Every unit estimated and measured, which must agree; how many ran."""
    graph, description, path = program.units, quiet(phone), folder / f"{phone}.json"
    path.write_text(json.dumps(description))
    burst, relaxed = conditions.mode is Mode.BURST, conditions.precision is Precision.RELAXED
    how = dict(threads=conditions.threads, burst=burst, relaxed=relaxed)
    costs = estimated_costs(program, description, **how)
    options = ProfileOptions(conditions=conditions, runs=1)
    with open_simulated(str(path)) as client, CostStore("sqlite://") as store:
        measurer = Measurer(UnitGraphCache.of(program), client, store, options, None)
        device = measurer.info
        every = device_targets(device, options.preference_codes)
        specs = [spec for spec in every if spec.target.accelerator != AUTO]
        jobs = grid(RegionMatcher(graph), unit_regions(graph), specs, conditions, device.agent)
        products = {(unit.index,): unit for unit in product_units(graph)}
        in_forms = [
            job.in_form(form)
            for job in jobs
            if job.spec.target.engine is Engine.NNAPI and job.region in products
            for form in other_forms(graph, products[job.region], level_number(job.spec.level))
        ]
        measurer.measure("units", [*jobs, *in_forms])
    rows = best_of_forms(measurer.rows.values())
    by_target = {(row.signature, row.target): row for row in rows}
    compared = {Engine.CPU: 0, Engine.NNAPI: 0}
    for job in jobs:
        row = by_target[job.key.signature, job.spec.target]
        cost = costs.region_cost(job.region, job.spec.target)
        assert (cost is not None) == row.usable, (row.label, row.target, row.why_not)
        if cost is not None:
            assert row.summary.median_ns == pytest.approx(cost.ns, abs=1.5), row.label
            compared[job.spec.target.engine] += 1
    return compared
