"""Files that are no model, or whose operators another package registers."""

import os
import pickle
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

from nnapi_prof import frontend
from nnapi_prof.errors import ModelFileError
from nnapi_prof.frontend.loader import with_extensions
from tests import warm
from tests.hostile.test_models import Trap

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


def trap(path: Path) -> bytes:
    """A pickle that makes a folder beside the file when it is loaded."""
    return pickle.dumps(Trap(path.with_name("sprung")))


LAYER = nn.Linear(2, 2)
NO_MODEL = {
    "a state_dict": (lambda path: torch.save(LAYER.state_dict(), path), PICKLED),
    "a whole module": (lambda path: torch.save(LAYER, path), PICKLED),
    "a legacy pickle": (
        lambda path: torch.save(LAYER.state_dict(), path, _use_new_zipfile_serialization=False),
        PICKLED,
    ),
    "a pickle that acts": (lambda path: path.write_bytes(trap(path)), PICKLED),
    "the same in an archive": (lambda path: archive(path, **{"data.pkl": trap(path)}), PICKLED),
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
    assert not (tmp_path / "sprung").exists()


def test_damaged_models(tmp_path: Path, saved):
    archive(tmp_path / "model.pt2", archive_format=b"pt2")
    words = "{path} cannot be loaded as an ExportedProgram: "
    assert refusal(tmp_path / "model.pt2").startswith(words)
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


# ---- operators of another package ----------------------------------------------------------------

PACKAGE = """
import torch

library = torch.library.Library("fbgemm", "DEF")
library.define("twice_of_ours(Tensor x) -> Tensor")
library.impl("twice_of_ours", lambda x: x * 2, "CompositeExplicitAutograd")
library.define("rows_of_ours(Tensor x) -> Tensor")
library.impl("rows_of_ours", lambda x: x.sum(1).gt(0).nonzero()[:, 0], "CPU")


@torch.library.register_fake("fbgemm::rows_of_ours")
def rows(x):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)
"""

SAVE = """
import torch
import fbgemm_gpu

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(torch.ops.fbgemm.twice_of_ours(x + 1))

class Detector(torch.nn.Module):
    # picks rows of what a layer gives, as non-maximum suppression does

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 4)

    def forward(self, x):
        y = self.layer(x)
        return y[torch.ops.fbgemm.rows_of_ours(y)]

x = torch.ones(2, 3)
for name, model in ("model", Model()), ("detector", Detector()):
    torch.jit.save(torch.jit.trace(model, x), name + ".pt")
    torch.export.save(torch.export.export(model, (x,)), name + ".pt2")
"""


def python(*words, folder, package=None):
    command = [*warm.python(), "-W", "ignore", *words]
    env = {**os.environ, "PYTHONPATH": str(package or "")}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


def convert(name, *options, folder, package=None):
    command = ["-m", "nnapi_prof", "convert", "--input", "2x3", "--output", "out.nnapi.pt"]
    done = python(*command, *options, name, folder=folder, package=package)
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("extensions")
    (folder / "with" / "fbgemm_gpu").mkdir(parents=True)
    (folder / "with" / "fbgemm_gpu" / "__init__.py").write_text(PACKAGE)
    saved = python("-c", SAVE, folder=folder, package=folder / "with")
    assert saved.returncode == 0, saved.stderr
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", ["detector.pt", "detector.pt2"])
def test_the_package_is_imported_and_its_operator_decides_on_data_on_the_host(folder, name):
    done = convert(name, folder=folder, package=folder / "with")
    assert done.returncode == 0, done.stderr
    assert "rows_of_ours_on_data" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model.pt", "model.pt2"])
@pytest.mark.parametrize(
    ("owner", "words"),
    [
        ("fbgemm", "an operator of the package fbgemm_gpu.*install the fbgemm_gpu that belongs to"),
        ("nobody", "an operator that this torch does not have"),
    ],
)
def test_whose_operator_is_not_there(folder, name, owner, words, tmp_path):
    with zipfile.ZipFile(folder / name) as source, zipfile.ZipFile(tmp_path / name, "w") as copy:
        for entry in source.namelist():
            data = source.read(entry).replace(b"fbgemm.twice", f"{owner}.twice".encode())
            copy.writestr(entry, data)
    done = convert(name, "--whole", folder=tmp_path)
    told = " ".join(done.stderr.split())
    assert done.returncode == 2 and re.search(f"{name} uses {owner}::twice_of_ours, {words}", told)
    assert len(done.stderr.splitlines()) <= 3  # nothing of what torch logs


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("failed to resolve torch.ops.transformers.grouped_mm", ModelFileError, "'batched_mm'"),
        ("torch.ops.aten.add is fine", RuntimeError, "is fine"),
    ],
)
def test_a_way_around_an_operator_is_named(tmp_path, monkeypatch, text, error, words):
    def fails():
        raise RuntimeError(text)

    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(error, match=words):
        with_extensions(fails, tmp_path)
