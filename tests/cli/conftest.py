"""What the tests of the command line share: calling it, tiny models, and a profiled one."""

import shutil
from pathlib import Path

import pytest
import torch

from tests.cli.common import Cli, Profiled, TinyNet, call, trace
from tests.device.asking_phone import asking_phone as asking_phone


@pytest.fixture(autouse=True)
def nothing_of_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither the developer's phone on USB nor their cost table takes part."""
    monkeypatch.setattr("nnapi_prof.device.transport.adb.UsbTransport", None)
    monkeypatch.delenv("NNAPI_PROF_COSTS", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two convolutions, as TorchScript."""
    torch.manual_seed(0)
    return trace(TinyNet(), tmp_path_factory.mktemp("models") / "tiny.pt")


@pytest.fixture(scope="session")
def _profiled(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Profiled:
    folder = tmp_path_factory.mktemp("profiled")
    result = Profiled(tiny, folder / "costs.sqlite", folder / "tiny.nnprof")
    call("profile", *result.named, "--preference", "fast", tiny)
    call("partition", *result.named, "--output", result.bundle, tiny)
    return result


@pytest.fixture
def profiled(_profiled: Profiled, tmp_path: Path) -> Profiled:
    folder = shutil.copytree(_profiled.costs.parent, tmp_path / "profiled")
    return Profiled(_profiled.model, folder / "costs.sqlite", folder / "tiny.nnprof")
