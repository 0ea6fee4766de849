"""Files that are no model, and what their readers are told."""

import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

from nnapi_prof import frontend
from nnapi_prof.errors import ModelFileError

ADVICE = (
    "save torch.jit.trace(model.eval(), example) with torch.jit.save, or torch.export.export(...) "
    "with torch.export.save"
)
PICKLED = (
    "{path} holds pickled Python objects (a state_dict or a whole module), not TorchScript: "
    + ADVICE
)


def refusal(path: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        frontend.load(path)
    assert caught.value.exit_code == 2
    return str(caught.value).replace(str(path), "{path}")


def archive(path: Path, **records: bytes) -> None:
    with zipfile.ZipFile(path, "w") as target:
        for name, data in records.items():
            target.writestr(f"model/{name}", data)


LAYER = nn.Linear(2, 2)
NO_MODEL = {
    "a state_dict": (lambda path: torch.save(LAYER.state_dict(), path), PICKLED),
    "a whole module": (lambda path: torch.save(LAYER, path), PICKLED),
    "a legacy pickle": (
        lambda path: torch.save(LAYER.state_dict(), path, _use_new_zipfile_serialization=False),
        PICKLED,
    ),
    "missing": (lambda path: None, "{path} does not exist: give the path of a .pt or .pt2 file"),
    "a folder": (Path.mkdir, "{path} is a folder: give the path of a .pt or .pt2 file"),
    "empty": (Path.touch, "{path} is empty: " + ADVICE),
    "a text": (lambda path: path.write_text("hello"), "{path} is not a PyTorch model: " + ADVICE),
    "an archive": (
        lambda path: archive(path, readme=b"hello"),
        "{path} is a zip archive but no PyTorch model: " + ADVICE,
    ),
}


@pytest.mark.parametrize(("write", "words"), NO_MODEL.values(), ids=NO_MODEL)
def test_what_is_no_model(tmp_path, write, words):
    write(tmp_path / "model.pt")
    assert refusal(tmp_path / "model.pt") == words


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
        archive(path, **{"data.pkl": data})
    else:
        path.write_bytes(data)
    assert refusal(path) == PICKLED
    assert not sprung.exists()


def test_damaged_export(tmp_path: Path):
    archive(tmp_path / "model.pt2", archive_format=b"pt2")
    words = "{path} cannot be loaded as an ExportedProgram: "
    assert refusal(tmp_path / "model.pt2").startswith(words)


def test_damaged_torchscript(tmp_path: Path, saved):
    whole, broken = saved(LAYER.eval(), torch.ones(1, 2)), tmp_path / "broken.pt"
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(broken, "w") as target:
        for name in source.namelist():
            if "/data/" not in name:
                target.writestr(name, source.read(name))
    assert refusal(broken).startswith("{path} cannot be loaded as TorchScript: ")
    whole.write_bytes(whole.read_bytes()[:-200])
    assert refusal(whole).startswith("{path} is truncated or damaged (")


def test_content_decides_and_not_the_name(tmp_path: Path, saved):
    path = saved(nn.Linear(2, 2).eval(), torch.ones(1, 2), name="model.pt2")
    assert frontend.model_kind(path) is frontend.ModelKind.TORCHSCRIPT
    assert frontend.load(path, [frontend.InputSpec((1, 2))]).name == "model"


def test_names_that_would_be_written_into_code(tmp_path: Path) -> None:
    path, named = tmp_path / "named.pt2", nn.ModuleDict({'a"b': nn.Linear(4, 4)})
    named.forward = lambda x: named['a"b'](x)
    torch.export.save(torch.export.export(named.eval(), (torch.rand(1, 4),)), path)
    with pytest.raises(ModelFileError, match=r'the name a"b.*, with a quote or line break'):
        frontend.load(path)


def test_a_cut_export_is_not_taken_for_the_weights_in_it(tmp_path):
    """Its weights and examples are archives of their own, whose ends are left."""
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(nn.Linear(4, 2).eval(), (torch.ones(1, 4),)), path)
    whole = path.read_bytes()
    ends = [at for at in range(len(whole)) if whole.startswith(b"PK\x05\x06", at)]
    path.write_bytes(whole[: ends[-2] + 22])
    with pytest.raises(ModelFileError, match="truncated or damaged"):
        frontend.model_kind(path)
