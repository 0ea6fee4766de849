"""Files of models whose operators another package registers."""

import os
import subprocess
import sys
import zipfile

import pytest

from nnapi_prof.errors import ModelFileError
from nnapi_prof.frontend.loader import with_extensions
from tests import warm

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
    return subprocess.run(
        [*warm.python(), "-W", "ignore", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(package or "")},
        capture_output=True,
        text=True,
    )


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
@pytest.mark.parametrize("name", ["model.pt", "model.pt2"])
def test_the_package_is_imported(folder, name):
    done = convert(name, "--whole", folder=folder, package=folder / "with")
    assert done.returncode == 1
    assert "twice_of_ours" in done.stderr
    assert "cannot be imported" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["detector.pt", "detector.pt2"])
def test_its_operator_decides_on_data_on_the_host(folder, name):
    done = convert(name, folder=folder, package=folder / "with")
    assert done.returncode == 0, done.stderr
    assert "rows_of_ours_on_data" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model.pt", "model.pt2"])
def test_a_package_that_is_not_there_is_named(folder, name):
    done = convert(name, "--whole", folder=folder)
    assert done.returncode == 2
    words = " ".join(done.stderr.split())
    assert f"{name} uses fbgemm::twice_of_ours, an operator of the package fbgemm_gpu" in words
    assert "install the fbgemm_gpu that belongs to this torch" in words
    assert len(done.stderr.splitlines()) <= 3  # nothing of what torch logs


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model.pt", "model.pt2"])
def test_an_operator_of_nobody(folder, name, tmp_path):
    with zipfile.ZipFile(folder / name) as source, zipfile.ZipFile(tmp_path / name, "w") as copy:
        for entry in source.namelist():
            copy.writestr(entry, source.read(entry).replace(b"fbgemm.twice", b"nobody.twice"))
    done = convert(name, folder=tmp_path)
    assert done.returncode == 2
    words = " ".join(done.stderr.split())
    assert f"{name} uses nobody::twice_of_ours, an operator that this torch does not have" in words
    assert len(done.stderr.splitlines()) <= 3


def test_a_way_around_an_operator_is_named(tmp_path, monkeypatch):
    def fails():
        raise RuntimeError("failed to resolve torch.ops.transformers.grouped_mm_fallback.default")

    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModelFileError) as raised:
        with_extensions(fails, tmp_path)
    assert "set_experts_implementation('batched_mm')" in str(raised.value)


def test_other_errors_are_left_alone(tmp_path):
    def fails():
        raise RuntimeError("torch.ops.aten.add is fine")

    with pytest.raises(RuntimeError, match="is fine"):
        with_extensions(fails, tmp_path)
