"""Profiles on the real agent and simulated phones: from module to plan, contention, and forms of
products of two activations."""

import itertools
import json
import statistics
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import nnapi_prof as nnp
from nnapi_prof.bundle.storage import read_bundle
from nnapi_prof.costs.contention import ContentionBasis
from nnapi_prof.costs.measurement import Kind, Measurement, Status
from nnapi_prof.costs.model.forms import ProductForm
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.files import merge
from nnapi_prof.costs.store.selection import Selection
from nnapi_prof.device.find import open_device, phone_file
from nnapi_prof.device.protocol import Accelerator
from nnapi_prof.errors import UsageError
from nnapi_prof.execution.profile import ProfileOptions
from nnapi_prof.execution.profile.jobs import device_targets
from nnapi_prof.execution.profile.session import profile
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import AUTO, CPU, HOST, Engine, Preference, Target
from nnapi_prof.graph.program import Program
from nnapi_prof.nnapi.codes import FeatureLevel
from tests.emulator.phones.descriptions import constant, npu, operations, phone, ratio, us
from tests.measure.scripted import info, interrupt_at
from tests.models import Function

FAST = ProfileOptions(preferences=("fast",), runs=10)
NPU = Target.nnapi("sim-npu", Preference.FAST_SINGLE_ANSWER)


def prepared(*modules: nn.Module, side: int) -> Program:
    return prepare(nn.Sequential(*modules).eval(), (torch.zeros(1, 3, side, side),), "small")


@pytest.fixture(scope="module")
def program():
    """Two convolutions, between them a sigmoid, which the simulated NPU lacks."""
    first, second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
    last = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)
    return prepared(first, nn.ReLU(), nn.Sigmoid(), second, nn.ReLU(), *last, side=64)


@pytest.fixture(scope="module")
def profiled(program):
    """Holds the outcome of a profile, its table and its phone."""
    with open_device("sim:npu-phone") as opened, CostStore("sqlite://") as store:
        yield profile(program, opened.client, store, FAST), store, opened.client


def test_the_plan_is_measured_whole_and_faster_than_baselines(program, profiled):
    outcome, store, _ = profiled
    assert outcome.stable
    placed = sorted(u for s in outcome.plan.segments for u in s.units)
    assert placed == list(range(len(program.units.units)))
    assert all(s.measured for s in outcome.plan.segments)
    assert all(outcome.plan.predicted_ns <= b.predicted_ns for b in outcome.baselines)
    rows = store.measurements(outcome.fingerprint)
    assert {row.kind for row in rows} >= {Kind.UNIT, Kind.CHAIN}
    assert all(row.simulated and row.clock == "simulated" for row in rows if row.usable)
    assert all(row.hardware_ns for row in rows if row.usable and row.target == NPU)


def test_a_target_far_behind_is_left_at_a_trial(program, profiled):
    outcome, store, phone = profiled
    reference = Target.nnapi("nnapi-reference", Preference.FAST_SINGLE_ANSWER)
    own_choice = Target.nnapi(AUTO, Preference.FAST_SINGLE_ANSWER)
    assert outcome.costs.partial == {reference, own_choice}
    whole, regions = frozenset(range(len(program.units.units))), outcome.costs.table.region_ns
    assert (whole, own_choice) in regions  # what one gets without a plan
    assert (whole, reference) not in regions
    assert not any(reference in (s.target for s in b.segments) for b in outcome.baselines)
    asked = profile(program, phone, store, replace(FAST, accelerators=("nnapi-reference",)))
    assert asked.n_measured > 0 and reference not in asked.costs.partial


def test_an_operation_the_driver_lacks_is_refused_by_name(program, profiled):
    outcome, store, _ = profiled
    (sigmoid,) = (u for u in program.units.units if "sigmoid" in u.label)
    rows = {r.target: r for r in store.measurements(outcome.fingerprint, [sigmoid.signature])}
    assert rows[NPU].status is Status.REFUSED and rows[NPU].message
    assert rows[CPU].status is Status.OK
    assert (sigmoid.index, NPU) in outcome.costs.refusals
    assert outcome.costs.unit_cost(sigmoid.index, NPU) is None


def test_the_fit_finds_what_the_phone_was_described_with(profiled):
    costs = profiled[0].costs
    # npu-phone.json: an execution takes 750 us beside what it computes and moves at 2 bytes/ns
    assert costs.overhead(NPU) == pytest.approx(750e3, rel=0.05)
    additive = {t: r for t, r in costs.residuals.items() if t.accelerator != AUTO}
    assert len(additive) == 4
    for target, residuals in additive.items():
        assert statistics.median(map(abs, residuals)) < 0.01, target


def test_no_model_is_beyond_a_phones_api(tmp_path, store):
    """Android 10 says of its CPU that its level is 10000; ELU came with the one after."""
    described = json.loads(phone_file("npu-phone").read_text())
    described["properties"]["ro.build.version.sdk"] = "29"
    first, *_ = described["accelerators"]
    first |= {"feature_level": 10000, "operations": {"except": [], "origin": "a test"}}
    description = tmp_path / "android-10.json"
    description.write_text(json.dumps(described))
    program = prepared(nn.Conv2d(3, 8, 3), nn.ELU(), nn.Conv2d(8, 4, 3), side=16)
    with open_device(f"sim:{description}") as opened:
        cpu = opened.client.info().nnapi.accelerators[0]
        assert (cpu.name, cpu.feature_level) == ("sim-npu", 10000)
        outcome = profile(program, opened.client, store, FAST)
    rows = [row for row in store.measurements(outcome.fingerprint) if row.target == NPU]
    assert {row.status for row in rows} == {Status.OK}
    assert any("elu" in row.label for row in rows)


# ---- contention ----------------------------------------------------------------------------------

SIM_GPU = Target.nnapi("sim-gpu", Preference.FAST_SINGLE_ANSWER)
ALONE = replace(FAST, refine=False)
CORUN = replace(ALONE, contention=True)


@pytest.fixture(scope="module")
def convolutions():
    first, second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1, groups=16)
    return prepared(first, nn.Hardswish(), second, side=32)


@pytest.fixture(scope="module")
def gpu_phone():
    with open_device("sim:gpu-phone") as opened:
        yield opened.client


def coruns(store: CostStore) -> list[Measurement]:
    return store.select(Selection(kinds=(Kind.CORUN,)))


def test_units_of_each_type_run_side_by_side(convolutions, gpu_phone, store):
    outcome = profile(convolutions, gpu_phone, store, CORUN)
    rows = coruns(store)
    on_cpu = [row for row in rows if row.target == CPU]
    assert len(on_cpu) == sum(row.corunner == CPU for row in rows) == len(rows) / 2
    assert {row.operation for row in on_cpu} >= {"CONV_2D", "DEPTHWISE_CONV_2D"}
    for row in rows:
        assert row.usable and len(row.alone_ns) == len(row.samples_ns) == len(row.cpu_ns) == 10
        assert row.simulated and row.corunner in (CPU, SIM_GPU)
    pairs = {(pair.lane, pair.corunner): pair for pair in outcome.contention.measured}
    assert set(pairs) == {("cpu", "sim-gpu"), ("sim-gpu", "cpu")}
    for pair in pairs.values():
        assert 1.0 <= pair.factor.low <= pair.factor.value <= pair.factor.high < 1.5
    gpu = pairs["sim-gpu", "cpu"]
    assert gpu.wait_ns is not None and 0 < gpu.cpu_share.value < 0.5
    with CostStore("sqlite://") as other:
        merge(other, store)
        assert coruns(other) == rows
        again = profile(convolutions, gpu_phone, other, CORUN)
    assert again.n_measured == 0 and again.contention == outcome.contention


def test_accelerators_run_beside_each_other(convolutions, store):
    options = replace(CORUN, accelerators=("sim-npu", "sim-gpu"))
    with open_device("sim:npu-phone") as opened:
        outcome = profile(convolutions, opened.client, store, options)
        pairs = {(pair.lane, pair.corunner): pair for pair in outcome.contention.pairs}
        assert set(pairs) == set(itertools.permutations(("cpu", "sim-npu", "sim-gpu"), 2))
        assert outcome.contention.basis is ContentionBasis.MEASURED
        assert 1 < pairs["sim-npu", "sim-gpu"].n_units <= pairs["sim-gpu", "cpu"].n_units
        rows = [row for row in coruns(store) if CPU not in (row.target, row.corunner)]
        assert len(rows) == 2 * pairs["sim-npu", "sim-gpu"].n_units
        assert profile(convolutions, opened.client, store, options).n_measured == 0


def test_costs_are_as_without_it(convolutions, gpu_phone, store):
    plain = profile(convolutions, gpu_phone, store, ALONE)
    assert plain.contention is None
    with_rows = profile(convolutions, gpu_phone, store, CORUN)
    assert with_rows.n_measured == len(coruns(store))
    before, after = plain.costs.table, with_rows.costs.table
    assert after.unit_ns.tolist() == before.unit_ns.tolist() and with_rows.plan == plain.plan


def test_an_interrupt_keeps_what_ran_side_by_side(convolutions, gpu_phone, store):
    outcome = profile(convolutions, gpu_phone, store, CORUN, interrupt_at(2, "side by side"))
    assert outcome.interrupted and outcome.plan is not None and len(coruns(store)) == 4
    outcome = profile(convolutions, gpu_phone, store, CORUN)
    assert outcome.contention.basis is not ContentionBasis.ASSUMED
    assert len(coruns(store)) == 4 + outcome.n_measured


def test_a_long_run_says_how_clocks_do(convolutions, gpu_phone, store):
    options = replace(CORUN, contention_s=3.5)
    outcome = profile(convolutions, gpu_phone, store, options)
    first, second = (row for row in coruns(store) if len(row.rounds) == 1)
    assert max(sum(first.samples_ns), sum(second.samples_ns)) > 3e9
    assert any(pair.later and pair.later.value > 0.5 for pair in outcome.contention.pairs)
    assert profile(convolutions, gpu_phone, store, options).n_measured == 0


def test_a_unit_that_only_the_host_runs_ends_no_profile(gpu_phone, store):
    def orthogonal(x, conv):
        return torch.linalg.qr(torch.relu(conv(x)).flatten(2)[0])[0]

    model = Function(orthogonal, conv=nn.Conv2d(3, 8, 3))
    model = prepare(model, (torch.rand(1, 3, 8, 8),), "orthogonal")
    outcome = profile(model, gpu_phone, store, replace(CORUN, refine=True))
    assert outcome.plan is not None and not outcome.interrupted
    assert any(segment.target == HOST for segment in outcome.plan.segments)


# ---- products in the form that is cheapest on the device -----------------------------------------

HEADS = 8


def attention(x, project, out):
    """Scores, weights and values of several heads, and a convolution before and after."""
    q, k, v = project(x).flatten(2).reshape(3, HEADS, 8, -1).unbind(0)
    weights = (q.transpose(1, 2) @ k / 3).softmax(-1)
    values = (weights @ v.transpose(1, 2)).transpose(1, 2)
    return out(values.reshape(1, HEADS * 8, *x.shape[2:]))


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
    project, out = nn.Conv2d(16, 3 * HEADS * 8, 1), nn.Conv2d(HEADS * 8, 16, 1)
    module = Function(attention, project=project, out=out)
    torch.export.save(torch.export.export(module, (torch.randn(1, 16, 8, 8),)), path)
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
    assert {u: f for _, _, forms in bundle.regions for u, f in forms} == chosen
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
    assert nnp.fleet(costs.model, {"one": costs}).bundle.forms.get("sim-npu", {}) == chosen
    if batched:  # a phone whose accelerator of this name has an older level
        other = write_phone(tmp_path, 30)
        with pytest.raises(UsageError, match="feature level 1000006"):
            nnp.run(tmp_path / "bundle", other)
        older = nnp.profile(costs.model, other, costs=tmp_path / "older.sqlite", options=options)
        both = nnp.fleet(costs.model, {"one": costs, "other": older}, k=1).bundle
        assert "sim-npu" not in both.forms, "a model that both run"
