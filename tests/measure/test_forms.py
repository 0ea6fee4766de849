"""Products of two activations in the form that is cheapest on the device."""

import itertools
import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import nnapi_prof as nnp
from nnapi_prof.bundle.storage import read_bundle
from nnapi_prof.costs.model.forms import ProductForm
from nnapi_prof.device.protocol import Accelerator
from nnapi_prof.errors import UsageError
from nnapi_prof.execution.profile.jobs import device_targets
from nnapi_prof.graph.plan import Engine, Preference
from nnapi_prof.nnapi.codes import FeatureLevel
from tests.emulator.phones.descriptions import npu, operations, phone, ratio, us
from tests.emulator.phones.test_clock import constant
from tests.measure.scripted import info

HEADS = 8


class Attention(nn.Module):
    """Scores, weights and values of several heads, and a convolution before and after."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Conv2d(16, 3 * HEADS * 8, 1)
        self.out = nn.Conv2d(HEADS * 8, 16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).flatten(2).reshape(3, HEADS, 8, -1).unbind(0)
        weights = (q.transpose(1, 2) @ k / 3).softmax(-1)
        values = (weights @ v.transpose(1, 2)).transpose(1, 2)
        return self.out(values.reshape(1, HEADS * 8, *x.shape[2:]))


def write_phone(folder: Path, level: int, slow: Collection[str] = ()) -> str:
    """A phone of Android 13 whose accelerator of a level is fast but for these operations."""
    accelerator = npu(
        efficiency={"default": ratio(1.0), **dict.fromkeys(slow, ratio(1e-4))},
        invocation=us(5),
        operation_overhead=us(0.1),
        bandwidth=constant(500, "GB/s"),
        transfer_bandwidth=constant(100, "GB/s"),
    )
    described = phone(operations(), accelerator)
    described["properties"]["ro.build.version.sdk"] = "33"
    described["accelerators"][0]["feature_level"] = level
    path = folder / "phone.json"
    path.write_text(json.dumps(described))
    return f"sim:{path}"


@pytest.mark.parametrize(
    ("api", "reported", "level", "newest"),
    [
        (33, FeatureLevel.LEVEL_6, 30, FeatureLevel.LEVEL_6),
        (33, FeatureLevel.LEVEL_5, 30, FeatureLevel.LEVEL_5),
        (30, FeatureLevel.LEVEL_6, 30, 30),  # NNAPI itself does not know it
        (29, 10000, 29, 29),
    ],
)
def test_newest_level_of_an_accelerator(api, reported, level, newest):
    phone_info = replace(info(Accelerator("npu", "ACCELERATOR", "1", reported)), api_level=api)
    specs = device_targets(phone_info, [Preference.FAST_SINGLE_ANSWER])
    (spec,) = (s for s in specs if s.target.accelerator == "npu")
    assert (spec.level, spec.newest) == (level, newest)


@pytest.mark.slow  # a phone for each form is profiled, planned for and run
@pytest.mark.parametrize(
    ("form", "slow", "level"),
    [
        (ProductForm.SUMS, ("GROUPED_CONV_2D", "STRIDED_SLICE"), 30),
        (None, ("MUL", "STRIDED_SLICE"), 31),
        (ProductForm.BATCHED, ("MUL", "STRIDED_SLICE", "GROUPED_CONV_2D"), 1000006),
    ],
)
def test_the_cheapest_form_is_in_plan_and_bundle(tmp_path, form, slow, level):
    torch.manual_seed(0)
    path = tmp_path / "attention.pt2"
    torch.export.save(torch.export.export(Attention().eval(), (torch.randn(1, 16, 8, 8),)), path)
    device, table = write_phone(tmp_path, level, slow), tmp_path / "costs.sqlite"
    options = nnp.MeasureOptions(preferences=["fast"], runs=3)
    costs = nnp.profile(path, device, costs=table, options=options)
    products = [u.index for u in costs.model.graph.units if u.operation == "matmul"]
    assert len(products) == 2
    chosen = {} if form is None else dict.fromkeys(products, form)
    assert costs.forms.get("sim-npu", {}) == chosen

    planned = nnp.partition(costs.model, costs, device=device)
    on_npu = [s.units for s in planned.plan.segments if s.target.engine is Engine.NNAPI]
    assert set(products) <= set(itertools.chain(*on_npu))
    assert nnp.run(planned, device).agrees
    planned.save(tmp_path / "bundle")
    bundle = read_bundle(tmp_path / "bundle")
    assert bundle.forms.get("sim-npu", {}) == chosen
    used = {u: f for _, _, forms in bundle.regions for u, f in forms}
    assert used == chosen
    batched = [r for r in bundle.regions.values() if "BATCH_MATMUL" in r.operations]
    assert bool(batched) == (form is ProductForm.BATCHED)
    assert {r.level for r in batched} <= {FeatureLevel.LEVEL_6}
    tried = {row.signature.partition("~")[2] for row in costs.measurements}
    assert ("batched" in tried) == (level >= FeatureLevel.LEVEL_6)
    assert any("in the form that was cheapest" in note for note in bundle.notes) == bool(chosen)

    # The table tells the same without the device, and nothing is measured again.
    read = nnp.read_costs(costs.model, table)
    assert read.forms == costs.forms
    assert nnp.partition(read.model, read, verify=False).plan.predicted_ns == pytest.approx(
        nnp.partition(costs.model, costs, verify=False).plan.predicted_ns
    )
    again = nnp.profile(path, device, costs=table, options=options)
    assert again.outcome.n_measured == 0
    assert again.forms == costs.forms
    alone = nnp.fleet(costs.model, {"one": costs}).bundle
    assert alone.forms.get("sim-npu", {}) == chosen
    if batched:  # a phone whose accelerator of this name has an older level
        other = write_phone(tmp_path, 30)
        with pytest.raises(UsageError, match="feature level 1000006"):
            nnp.run(tmp_path / "bundle", other)
        older = nnp.profile(costs.model, other, costs=tmp_path / "older.sqlite", options=options)
        both = nnp.fleet(costs.model, {"one": costs, "other": older}, k=1).bundle
        assert "sim-npu" not in both.forms, "a model that both run"
