"""A user's whole path by the command line: profile, partition, run, report, on all kinds of device.

Inputs are 64x64 here to keep the suite short; `make bench` takes the models at full size.
"""

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from nnapi_prof.execution.report import RunReport
from tests import warm
from tests.cli.common import TinyNet, call, hurry, trace
from tests.parts import again_but
from tests.processes import output_of

pytestmark = pytest.mark.slow("the whole way of a published network, each in its own process")

MODELS = ("mobilenet_v2", "resnet18", "squeezenet1_1", "unet")
NAMES = again_but(MODELS, "unet", why="goes the way of unet")
SIZE = 64
INPUT = f"1x3x{SIZE}x{SIZE}"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``saved(NAME)``: an example model as TorchScript, made when it is first asked for."""
    folder = tmp_path_factory.mktemp("models")

    @functools.cache
    def save(name: str) -> Path:
        path = folder / f"{name}.pt"
        if name == "tiny":
            return trace(TinyNet(), path, (1, 3, SIZE, SIZE))
        script = Path(__file__).parents[2] / "examples" / "models.py"
        words = [*warm.python(), script, name, path, "--size", str(SIZE)]
        assert output_of(words) == f"saved {name} as {path}, input {INPUT}\n"
        return path

    return save


def whole_path(
    model: Path, device: str, folder: Path, *profile: object, threads: object = "auto"
) -> RunReport:
    """profile, partition, run and report; returns the run's report, which is checked: outputs agree
    with eager PyTorch, and everything that was asked for ran."""
    costs, bundle, page = folder / "costs.sqlite", folder / "model.nnprof", folder / "report.html"
    named = ("--device", device, "--input", INPUT, "--costs", costs, "--threads", threads)
    call("profile", *named, *profile, model)
    call("partition", *named, "--output", bundle, model)
    call("run", "--device", device, bundle)
    call("report", "--costs", costs, "--output", page, bundle)
    text, report = page.read_text(), checked(bundle)
    assert f"<h1>{model.stem}" in text
    assert ('<span class="badge">simulated</span>' in text) == report.simulated
    return report


def checked(bundle: Path) -> RunReport:
    report = RunReport.from_json((bundle / "run.json").read_text())
    assert report.checks and all(c.ok and c.tolerance <= 1e-4 for c in report.checks)
    assert len(report.runs) > 1
    assert all(run.error is None and run.total_ns for run in report.runs)
    return report


def no_rival_is_faster(report: RunReport) -> None:
    plan, *rivals = report.runs
    assert plan.median_ns is not None
    assert [r.plan.name for r in rivals if not r.median_ns or plan.median_ns > r.median_ns] == []


@pytest.mark.parametrize(
    "device", again_but(["sim:npu-phone", "sim:gpu-phone"], "sim:npu-phone", why="another phone")
)
@pytest.mark.parametrize("name", NAMES)
def test_simulated_phone(name, device, saved, tmp_path):
    report = whole_path(saved(name), device, tmp_path)
    assert report.simulated
    no_rival_is_faster(report)


@pytest.mark.parametrize(
    "name", again_but(["tiny", *MODELS], "tiny", why="a published network takes half a minute")
)
def test_local(name, saved, tmp_path, monkeypatch):
    """Without the trial of threads: tests/measure has one on this machine."""
    hurry(monkeypatch)
    few = ("--runs", 3, "--budget-ms", 0, "--warmup-ms", 5, "--preference", "fast")
    assert not whole_path(saved(name), "local", tmp_path, *few, threads=1).simulated


@pytest.mark.parametrize("name", NAMES)
def test_adbd(name, saved, tmp_path, start_adbd):
    no_rival_is_faster(whole_path(saved(name), start_adbd("npu-phone"), tmp_path))


@pytest.mark.device
@pytest.mark.parametrize("name", NAMES)
def test_phone(name, saved, tmp_path, phone_serial):
    """On the phone of `pytest --device SERIAL`: nothing is said of who is fastest there."""
    whole_path(saved(name), phone_serial, tmp_path)


def test_adb_server(saved, tmp_path, start_daemon, adb_server, capsys):
    """A running adb server that owns the phone is used, and with one phone none must be named."""
    adb_server.connect(start_daemon("gpu-phone").serial)
    named = ("--input", INPUT, "--costs", tmp_path / "costs.sqlite")
    model, bundle = saved("squeezenet1_1"), tmp_path / "b.nnprof"
    call("devices")
    assert "adb server" in capsys.readouterr().out
    call("profile", *named, "--preference", "fast", model)
    assert "the only one" in capsys.readouterr().err
    call("partition", *named, "--output", bundle, model)
    call("run", bundle)
    checked(bundle)
