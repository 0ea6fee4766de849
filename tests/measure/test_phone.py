"""The session on the real agent and a simulated phone: a small CNN from module to plan."""

import json
import statistics
from dataclasses import replace

import pytest
import torch
from torch import nn

from nnapi_prof.costs.measurement import Kind, Status
from nnapi_prof.costs.store import CostStore
from nnapi_prof.device.find import open_device, phone_file
from nnapi_prof.execution.profile import ProfileOptions
from nnapi_prof.execution.profile.session import profile
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import AUTO, CPU, Preference, Target

FAST = ProfileOptions(preferences=("fast",), runs=10)
NPU = Target.nnapi("sim-npu", Preference.FAST_SINGLE_ANSWER)


class SmallNet(nn.Module):
    """Two convolutions, between them a sigmoid, which the simulated NPU lacks."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.second = nn.Conv2d(16, 16, 3, padding=1)
        self.last = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        x = torch.sigmoid(x)
        x = torch.relu(self.second(x))
        return self.last(x.mean((2, 3)))


@pytest.fixture(scope="module")
def program():
    torch.manual_seed(0)
    return prepare(SmallNet().eval(), (torch.zeros(1, 3, 64, 64),), "small")


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
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ELU(), nn.Conv2d(8, 4, 3))
    image = torch.zeros(1, 3, 16, 16)
    program = prepare(network.eval(), (image,), "elu")
    with open_device(f"sim:{description}") as opened:
        cpu = opened.client.info().nnapi.accelerators[0]
        assert (cpu.name, cpu.feature_level) == ("sim-npu", 10000)
        outcome = profile(program, opened.client, store, FAST)
    rows = [row for row in store.measurements(outcome.fingerprint) if row.target == NPU]
    assert {row.status for row in rows} == {Status.OK}
    assert any("elu" in row.label for row in rows)
