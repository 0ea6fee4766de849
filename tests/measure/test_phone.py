"""The session on the real agent and simulated phones: from module to plan, and contention."""

import itertools
import json
import statistics
from dataclasses import replace

import pytest
import torch
from torch import nn

from nnapi_prof.costs.contention import ContentionBasis
from nnapi_prof.costs.measurement import Kind, Measurement, Status
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.files import merge
from nnapi_prof.costs.store.selection import Selection
from nnapi_prof.device.find import open_device, phone_file
from nnapi_prof.execution.profile import ProfileOptions
from nnapi_prof.execution.profile.session import profile
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import AUTO, CPU, HOST, Preference, Target
from nnapi_prof.graph.program import Program

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
def phone():
    with open_device("sim:gpu-phone") as opened:
        yield opened.client


def coruns(store: CostStore) -> list[Measurement]:
    return store.select(Selection(kinds=(Kind.CORUN,)))


def test_units_of_each_type_run_side_by_side(convolutions, phone, store):
    outcome = profile(convolutions, phone, store, CORUN)
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
        again = profile(convolutions, phone, other, CORUN)
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


def test_costs_are_as_without_it(convolutions, phone, store):
    plain = profile(convolutions, phone, store, ALONE)
    assert plain.contention is None
    with_rows = profile(convolutions, phone, store, CORUN)
    assert with_rows.n_measured == len(coruns(store))
    before, after = plain.costs.table, with_rows.costs.table
    assert after.unit_ns.tolist() == before.unit_ns.tolist() and with_rows.plan == plain.plan


def test_an_interrupt_keeps_what_ran_side_by_side(convolutions, phone, store):
    def interrupt(progress):
        if progress.phase == "side by side" and progress.done == 2:
            raise KeyboardInterrupt

    outcome = profile(convolutions, phone, store, CORUN, interrupt)
    assert outcome.interrupted and outcome.plan is not None and len(coruns(store)) == 4
    outcome = profile(convolutions, phone, store, CORUN)
    assert outcome.contention.basis is not ContentionBasis.ASSUMED
    assert len(coruns(store)) == 4 + outcome.n_measured


def test_a_long_run_says_how_clocks_do(convolutions, phone, store):
    options = replace(CORUN, contention_s=3.5)
    outcome = profile(convolutions, phone, store, options)
    first, second = (row for row in coruns(store) if len(row.rounds) == 1)
    assert max(sum(first.samples_ns), sum(second.samples_ns)) > 3e9
    assert any(pair.later and pair.later.value > 0.5 for pair in outcome.contention.pairs)
    assert profile(convolutions, phone, store, options).n_measured == 0


def test_a_unit_that_only_the_host_runs_ends_no_profile(phone, store):
    class Orthogonal(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)

        def forward(self, x):
            return torch.linalg.qr(torch.relu(self.conv(x)).flatten(2)[0])[0]

    model = prepare(Orthogonal().eval(), (torch.rand(1, 3, 8, 8),), "orthogonal")
    outcome = profile(model, phone, store, replace(CORUN, refine=True))
    assert outcome.plan is not None and not outcome.interrupted
    assert any(segment.target == HOST for segment in outcome.plan.segments)
