"""The command line and an app with Android phones: a real adbd, the agent for the phone's ABI."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from nnapi_prof.bundle.deployment import runtime_bundle
from nnapi_prof.cli import main
from nnapi_prof.costs.measurement import Status
from nnapi_prof.costs.store import CostStore
from nnapi_prof.device.transport.adb import connect_tcp
from nnapi_prof.device_agent import SOURCE_DIR
from nnapi_prof.execution.report import RunReport
from tests.android.phone import MACHINES
from tests.cli.common import trace
from tests.device import android_elf
from tests.library.conftest import REFERENCE
from tests.library.embedding import in_two_segments
from tests.phones.conftest import TenUnits


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    torch.manual_seed(3)
    return trace(TenUnits(), tmp_path_factory.mktemp("model") / "ten.pt", (1, 3, 24, 24))


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
    named = ("--device", device, "--input", "1x3x24x24", "--costs", costs)
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


@pytest.mark.parametrize("abi", MACHINES)
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


# ---- examples/embed with the runtime library, built without an NDK -------------------------------

HERE_ON_THE_PHONE = "/data/local/tmp"


def classify(
    device: str, brought: Sequence[Path], bundle: bytes, image: torch.Tensor, *options: str
) -> tuple[str, NDArray[np.float32]]:
    """Runs the example on a phone; what it says, and the scores."""
    host, _, port = device.partition(":")
    with contextlib.closing(connect_tcp(host, int(port))) as transport:
        for path in brought:
            transport.push(path, f"{HERE_ON_THE_PHONE}/{path.name}", 0o755)
        transport.push(bundle, f"{HERE_ON_THE_PHONE}/small.nnprt")
        transport.push(image.numpy().tobytes(), f"{HERE_ON_THE_PHONE}/image.raw")
        command = ["sh", "-c", 'cd "$0" && LD_LIBRARY_PATH="$0" exec ./classify "$@"']
        command += [HERE_ON_THE_PHONE, "small.nnprt", "image.raw", "scores.raw", "--runs", "2"]
        ran = transport.shell([*command, *options])
        assert ran.exit_code == 0, ran.output
        scores = np.frombuffer(transport.pull(f"{HERE_ON_THE_PHONE}/scores.raw"), np.float32)
    return ran.output, scores


@pytest.mark.parametrize("static", [False, True], ids=["shared", "static"])
def test_the_example_on_a_phone(static, embedded, start_phone):
    bundle, model, image = in_two_segments(REFERENCE)
    text, scores = classify(
        start_phone("arm64-v8a"), embedded(static), runtime_bundle(bundle), image
    )
    assert "segment 0: nnapi nnapi-reference, compiled in " in text
    assert "segment 1: cpu, compiled in " in text
    with torch.inference_mode():
        expected = model(image).numpy().ravel()
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)


def test_the_shared_library_suits_a_phone(embedded):
    """Its functions are of the API alone, and what it needs every phone has."""
    elf = android_elf.read(embedded(False)[1])
    header = (SOURCE_DIR / "library/nnapi_prof_runtime.h").read_text()
    exported = android_elf.exported(elf)
    assert len(exported) == header.count("\nNNP_API")
    assert all(name.startswith("nnp_") and f"{name}(" in header for name in exported)
    tags = list(elf.get_section_by_name(".dynamic").iter_tags())
    needed = {t.needed for t in tags if t.entry.d_tag == "DT_NEEDED"}
    assert needed == {"libc.so", "libm.so", "libdl.so"}
    assert [t.soname for t in tags if t.entry.d_tag == "DT_SONAME"] == ["libnnapi_prof_runtime.so"]
    assert [t.entry.d_val for t in tags if t.entry.d_tag == "DT_FLAGS_1"] == [1]
    symbols = android_elf.listed("arm64-v8a")
    for name in android_elf.imported(elf):
        assert any(line.how in ("same", "data", "bionic") for line in symbols[name]), name
    assert not [s for s in elf.iter_segments() if s["p_type"] == "PT_TLS"]
    assert {s["p_align"] for s in elf.iter_segments() if s["p_type"] == "PT_LOAD"} == {16384}
