"""Contention measured by a profile, on the real agent and a simulated phone."""

import itertools
from dataclasses import replace

import pytest
import torch
from torch import nn

from nnapi_prof.costs.contention import ContentionBasis
from nnapi_prof.costs.measurement import Kind, Measurement
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.files import merge
from nnapi_prof.costs.store.selection import Selection
from nnapi_prof.device.find import open_device
from nnapi_prof.execution.profile import ProfileOptions
from nnapi_prof.execution.profile.session import profile
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import CPU, HOST, Preference, Target

GPU = Target.nnapi("sim-gpu", Preference.FAST_SINGLE_ANSWER)
ALONE = ProfileOptions(preferences=("fast",), runs=10, refine=False)
CORUN = replace(ALONE, contention=True)


@pytest.fixture(scope="module")
def program():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.Hardswish(), nn.Conv2d(16, 16, 3, padding=1, groups=16)
    )
    return prepare(net.eval(), (torch.zeros(1, 3, 32, 32),), "small")


@pytest.fixture(scope="module")
def phone():
    with open_device("sim:gpu-phone") as opened:
        yield opened.client


def coruns(store: CostStore) -> list[Measurement]:
    return store.select(Selection(kinds=(Kind.CORUN,)))


def test_units_of_each_type_run_side_by_side(program, phone, store):
    outcome = profile(program, phone, store, CORUN)
    rows = coruns(store)
    on_cpu = [row for row in rows if row.target == CPU]
    assert len(on_cpu) == sum(row.corunner == CPU for row in rows) == len(rows) / 2
    assert {row.operation for row in on_cpu} >= {"CONV_2D", "DEPTHWISE_CONV_2D"}
    for row in rows:
        assert row.usable and len(row.alone_ns) == len(row.samples_ns) == len(row.cpu_ns) == 10
        assert row.simulated and row.corunner in (CPU, GPU)
    pairs = {(pair.lane, pair.corunner): pair for pair in outcome.contention.measured}
    assert set(pairs) == {("cpu", "sim-gpu"), ("sim-gpu", "cpu")}
    for pair in pairs.values():
        assert 1.0 <= pair.factor.low <= pair.factor.value <= pair.factor.high < 1.5
    gpu = pairs["sim-gpu", "cpu"]
    assert gpu.wait_ns is not None and 0 < gpu.cpu_share.value < 0.5

    with CostStore("sqlite://") as other:
        merge(other, store)
        assert coruns(other) == rows
        again = profile(program, phone, other, CORUN)
    assert again.n_measured == 0 and again.contention == outcome.contention


def test_accelerators_run_beside_each_other(program, store):
    options = replace(CORUN, accelerators=("sim-npu", "sim-gpu"))
    with open_device("sim:npu-phone") as opened:
        outcome = profile(program, opened.client, store, options)
        pairs = {(pair.lane, pair.corunner): pair for pair in outcome.contention.pairs}
        assert set(pairs) == set(itertools.permutations(("cpu", "sim-npu", "sim-gpu"), 2))
        assert outcome.contention.basis is ContentionBasis.MEASURED
        assert 1 < pairs["sim-npu", "sim-gpu"].n_units <= pairs["sim-gpu", "cpu"].n_units
        rows = [row for row in coruns(store) if CPU not in (row.target, row.corunner)]
        assert len(rows) == 2 * pairs["sim-npu", "sim-gpu"].n_units
        assert profile(program, opened.client, store, options).n_measured == 0


def test_costs_are_as_without_it(program, phone, store):
    plain = profile(program, phone, store, ALONE)
    assert plain.contention is None
    with_rows = profile(program, phone, store, CORUN)
    assert with_rows.n_measured == len(coruns(store))
    for unit in range(len(program.units.units)):
        for target in plain.costs.targets:
            expected = plain.costs.unit_cost(unit, target)
            assert with_rows.costs.unit_cost(unit, target) == expected
    assert with_rows.plan == plain.plan


def test_an_interrupt_keeps_what_ran_side_by_side(program, phone, store):
    def interrupt(progress):
        if progress.phase == "side by side" and progress.done == 2:
            raise KeyboardInterrupt

    outcome = profile(program, phone, store, CORUN, interrupt)
    assert outcome.interrupted and outcome.plan is not None and len(coruns(store)) == 4
    outcome = profile(program, phone, store, CORUN)
    assert outcome.contention.basis is not ContentionBasis.ASSUMED
    assert len(coruns(store)) == 4 + outcome.n_measured


def test_a_long_run_says_how_clocks_do(program, phone, store):
    options = replace(CORUN, contention_s=3.5)
    outcome = profile(program, phone, store, options)
    first, second = (row for row in coruns(store) if len(row.rounds) == 1)
    assert max(sum(first.samples_ns), sum(second.samples_ns)) > 3e9
    assert any(pair.later and pair.later.value > 0.5 for pair in outcome.contention.pairs)
    assert profile(program, phone, store, options).n_measured == 0


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
