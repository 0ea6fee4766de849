"""The whole command line with Android phones: a real adbd, the agent for the phone's ABI."""

from pathlib import Path

import pytest
import torch

from nnapi_prof.cli import main
from nnapi_prof.costs.measurement import Status
from nnapi_prof.costs.store import CostStore
from nnapi_prof.execution.report import RunReport
from tests.cli.common import trace
from tests.phones.conftest import TenUnits

SHAPE = (1, 3, 24, 24)
INPUT = "1x3x24x24"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    torch.manual_seed(3)
    return trace(TenUnits(), tmp_path_factory.mktemp("model") / "ten.pt", SHAPE)


@pytest.fixture(autouse=True)
def no_usb(monkeypatch):
    monkeypatch.setattr("nnapi_prof.device.transport.adb.UsbTransport", None)


def call(*arguments: object) -> None:
    """One command, which must succeed."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert ended.value.code == 0


def whole_path(model: Path, device: str, folder: Path, *profile: object) -> RunReport:
    """profile, partition and run; returns the run's report."""
    costs, bundle = folder / "costs.sqlite", folder / "model.nnprof"
    named = ("--device", device, "--input", INPUT, "--costs", costs)
    call("profile", *named, *profile, model)
    call("partition", *named, "--output", bundle, model)
    call("run", "--device", device, bundle)
    return RunReport.from_json((bundle / "run.json").read_text())


def check(report: RunReport) -> None:
    """Outputs agree with eager PyTorch, and everything that was asked for ran."""
    assert report.checks and all(c.ok and c.tolerance <= 1e-4 for c in report.checks)
    assert len(report.runs) > 1
    assert all(run.error is None and run.total_ns for run in report.runs)


def test_simulated_phone(model, tmp_path, start_phone):
    """The phone's times come from its description, so what is fastest is certain."""
    device = start_phone("arm64-v8a", "npu-phone")
    report = whole_path(model, device, tmp_path, "--preference", "fast")
    check(report)
    assert report.simulated
    plan, *rivals = report.runs
    for rival in rivals:
        assert plan.median_ns <= rival.median_ns, f"{rival.plan.name} is faster than the plan"


@pytest.mark.parametrize("abi", ["arm64-v8a", "armeabi-v7a", "x86_64"])
def test_real_time(abi, model, tmp_path, start_phone):
    few = ("--runs", 3, "--budget-ms", 0, "--preference", "fast")
    report = whole_path(model, start_phone(abi), tmp_path, *few)
    check(report)
    assert not report.simulated


def test_a_driver_that_dies(model, tmp_path, start_phone):
    """It costs the results of what it ran, and nothing else; the plan goes without."""
    device = start_phone("arm64-v8a", "npu-phone", "abort:execute:DEPTHWISE_CONV_2D@sim-npu")
    report = whole_path(model, device, tmp_path, "--preference", "fast")
    with CostStore(tmp_path / "costs.sqlite") as store:
        (phone,) = store.devices()
        rows = list(store.measurements(phone.fingerprint))
    crashed = [row for row in rows if row.status is Status.CRASHED]
    assert crashed
    for row in crashed:
        assert row.target.key in ("nnapi:sim-npu/fast", "nnapi:auto/fast"), row.target.key
        assert "SIGABRT" in (row.message or "")
        assert "depthwise" in row.label
    others = {row.status for row in rows if row.target.key.startswith(("cpu", "nnapi:sim-gpu"))}
    assert others == {Status.OK}
    assert report.checks and all(c.ok for c in report.checks)
    assert report.runs[0].error is None
