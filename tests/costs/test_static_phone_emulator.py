"""The emulator's simulated latency (device_agent/emulator/latency.c, runtime/graph/work.c) and the
estimate's (nnapi_prof/costs/estimate/phones.py, nnapi_prof/execution/estimation.py) are one
formula."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from nnapi_prof.costs import Conditions, Mode, Precision
from nnapi_prof.costs.model.fit import RegionMatcher
from nnapi_prof.costs.model.forms import best_of_forms, other_forms, product_units
from nnapi_prof.costs.store import CostStore
from nnapi_prof.device.find import list_phones, open_simulated, phone_file
from nnapi_prof.execution.estimation import estimated_costs
from nnapi_prof.execution.profile import ProfileOptions
from nnapi_prof.execution.profile.jobs import device_targets, grid
from nnapi_prof.execution.profile.measurer import Measurer
from nnapi_prof.execution.profile.regions import unit_regions
from nnapi_prof.execution.profile.unit_graph_cache import UnitGraphCache
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import AUTO, Engine
from nnapi_prof.graph.program import Program
from nnapi_prof.nnapi import level_number
from tests.convert.quantised_models import ExportedNet
from tests.parts import slow_but


class Operations(nn.Module):
    """Operations of many kinds, shapes and ranks. [1, 8, 12, 10] -> several"""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            [
                nn.Conv2d(8, 16, 1),
                nn.Conv2d(8, 16, 3, padding=1),
                nn.Conv2d(8, 24, (3, 5), stride=2),
                nn.Conv2d(8, 8, 3, groups=8),
                nn.Conv2d(8, 16, 3, groups=4),
                nn.ConvTranspose2d(8, 6, 2, stride=2),
            ]
        )
        self.linear = nn.Linear(10, 7)
        self.norm = nn.LayerNorm(10)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        flat = x.reshape(8, 12, 10)
        return (
            *(convolution(x) for convolution in self.convolutions),
            self.linear(x),
            self.norm(x),
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
    return prepare(Operations().eval(), (torch.rand(1, 8, 12, 10),), "operations")


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
    costs = estimated_costs(
        program,
        description,
        threads=conditions.threads,
        burst=conditions.mode is Mode.BURST,
        relaxed=conditions.precision is Precision.RELAXED,
    )
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
