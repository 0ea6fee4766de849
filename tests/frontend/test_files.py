"""Files that are no model, and what their readers are told."""

import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

from nnapi_prof import frontend
from nnapi_prof.errors import ModelFileError

PICKLED = (
    "{path} holds pickled Python objects (a state_dict or a whole module), not TorchScript: save "
    "torch.jit.trace(model.eval(), example) with torch.jit.save, or torch.export.export(...) with "
    "torch.export.save"
)


def refusal(path: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        frontend.load(path)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_missing_file(tmp_path: Path):
    path = tmp_path / "absent.pt"
    assert refusal(path) == f"{path} does not exist: give the path of a .pt or .pt2 file"


def test_folder(tmp_path: Path):
    assert refusal(tmp_path) == f"{tmp_path} is a folder: give the path of a .pt or .pt2 file"


def test_empty_file(tmp_path: Path):
    path = tmp_path / "model.pt"
    path.touch()
    assert refusal(path).startswith(f"{path} is empty: save torch.jit.trace(")


def test_state_dict(tmp_path: Path):
    path = tmp_path / "model.pt"
    torch.save(nn.Linear(2, 2).state_dict(), path)
    assert refusal(path) == PICKLED.format(path=path)


def test_whole_module(tmp_path: Path):
    path = tmp_path / "model.pt"
    torch.save(nn.Linear(2, 2), path)
    assert refusal(path) == PICKLED.format(path=path)


def test_legacy_pickle(tmp_path: Path):
    path = tmp_path / "model.pt"
    torch.save(nn.Linear(2, 2).state_dict(), path, _use_new_zipfile_serialization=False)
    assert refusal(path) == PICKLED.format(path=path)


class Trap:
    """Unpickling this would create a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("zipped", [False, True])
def test_a_pickle_is_never_unpickled(tmp_path: Path, zipped: bool):
    path, sprung = tmp_path / "model.pt", tmp_path / "sprung"
    data = pickle.dumps(Trap(sprung))
    if zipped:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("model/data.pkl", data)
    else:
        path.write_bytes(data)
    assert refusal(path) == PICKLED.format(path=path)
    assert not sprung.exists()


def test_truncated_file(tmp_path: Path, saved):
    path = saved(nn.Linear(2, 2).eval(), torch.ones(1, 2))
    path.write_bytes(path.read_bytes()[:-200])
    assert refusal(path).startswith(f"{path} is truncated or damaged (")


def test_damaged_torchscript(tmp_path: Path, saved):
    whole = saved(nn.Linear(2, 2).eval(), torch.ones(1, 2))
    broken = tmp_path / "broken.pt"
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(broken, "w") as target:
        for name in source.namelist():
            if "/data/" not in name:
                target.writestr(name, source.read(name))
    assert refusal(broken).startswith(f"{broken} cannot be loaded as TorchScript: ")


def test_damaged_export(tmp_path: Path):
    path = tmp_path / "model.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/archive_format", "pt2")
    assert refusal(path).startswith(f"{path} cannot be loaded as an ExportedProgram: ")


def test_other_files(tmp_path: Path):
    text, archive = tmp_path / "model.pt", tmp_path / "model.zip"
    text.write_text("hello")
    assert refusal(text).startswith(f"{text} is not a PyTorch model: save ")
    with zipfile.ZipFile(archive, "w") as target:
        target.writestr("readme.txt", "hello")
    assert refusal(archive).startswith(f"{archive} is a zip archive but no PyTorch model: save ")


def test_content_decides_and_not_the_name(tmp_path: Path, saved):
    path = saved(nn.Linear(2, 2).eval(), torch.ones(1, 2), name="model.pt2")
    assert frontend.model_kind(path) is frontend.ModelKind.TORCHSCRIPT
    assert frontend.load(path, [frontend.InputSpec((1, 2))]).name == "model"


def test_names_that_would_be_written_into_code(tmp_path: Path) -> None:
    class Named(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add_module('a"b', torch.nn.Linear(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = getattr(self, 'a"b')(x)
            return out

    path = tmp_path / "named.pt2"
    torch.export.save(torch.export.export(Named().eval(), (torch.rand(1, 4),)), path)
    with pytest.raises(ModelFileError, match=r'the name a"b.*, with a quote or line break'):
        frontend.load(path)
