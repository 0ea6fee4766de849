"""What the tests of the command line share: calling it, tiny models, and a profiled one."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from nnapi_prof.cli import main
from tests.cli.common import INPUT, Profiled, Result, TinyNet, trace
from tests.device.asking_phone import AskingPhone


@pytest.fixture(autouse=True)
def nothing_of_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither the developer's phone on USB nor their cost table takes part."""
    monkeypatch.setattr("nnapi_prof.device.transport.adb.UsbTransport", None)
    monkeypatch.delenv("NNAPI_PROF_COSTS", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """``cli("profile", "--device", ...)`` as a shell would run it, in this process."""

    def call(*arguments: object) -> Result:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Result(ended.value.code, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two convolutions, as TorchScript."""
    torch.manual_seed(0)
    return trace(TinyNet(), tmp_path_factory.mktemp("models") / "tiny.pt")


@pytest.fixture(scope="session")
def _profiled(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Profiled:
    folder = tmp_path_factory.mktemp("profiled")
    result = Profiled(tiny, folder / "costs.sqlite", folder / "tiny.nnprof")
    named = ["--device", "sim:npu-phone", "--input", INPUT, "--costs", str(result.costs)]
    for command in (
        ["profile", *named, "--preference", "fast", str(tiny)],
        ["partition", *named, "--output", str(result.bundle), str(tiny)],
    ):
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert ended.value.code == 0
    return result


@pytest.fixture
def profiled(_profiled: Profiled, tmp_path: Path) -> Profiled:
    folder = tmp_path / "profiled"
    folder.mkdir()
    shutil.copyfile(_profiled.costs, folder / "costs.sqlite")
    shutil.copytree(_profiled.bundle, folder / "tiny.nnprof")
    return Profiled(_profiled.model, folder / "costs.sqlite", folder / "tiny.nnprof")


@pytest.fixture
def asking_phone() -> Iterator[Callable[..., AskingPhone]]:
    """Starts phones that want a known key."""
    phones: list[AskingPhone] = []

    def make(*accepts: bytes, silent: bool = False) -> AskingPhone:
        phones.append(AskingPhone(accepts, silent))
        return phones[-1]

    yield make
    for phone in phones:
        phone.close()
