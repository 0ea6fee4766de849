"""Models from files and from memory."""

import gc
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import nnapi_prof as np_
from nnapi_prof.errors import FrontendError, InputSpecError, ModelFileError
from tests.api.conftest import PHONE


class Net(nn.Module):
    """[N, 3, 8, 8] -> [N, 5]; dropout does something in training mode only."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.dropout = nn.Conv2d(3, 4, 3, padding=1), nn.Dropout(0.5)
        self.linear = nn.Linear(4 * 64, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.dropout(torch.relu(self.conv(x))).flatten(1))


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


X = torch.zeros(1, 3, 8, 8)


def scripted(module: nn.Module, *traced_with: torch.Tensor) -> torch.jit.ScriptModule:
    """TorchScript, without its announcement that it retires."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(module, traced_with) if traced_with else torch.jit.script(module)


SOURCES: dict[str, Callable[[Net], tuple[object, object]]] = {
    "module": lambda net: (net, X),
    "texts": lambda net: (net, ["1x3x8x8"]),
    "traced": lambda net: (scripted(net, X), [X]),
    "scripted": lambda net: (scripted(net), "1x3x8x8"),
    "exported": lambda net: (torch.export.export(net, (X,)), None),
}
ONCE = np_.MeasureOptions(refine=False)


@pytest.mark.parametrize("kind", SOURCES)
def test_a_model_in_memory_is_the_one_that_runs(net, tmp_path, kind):
    with torch.no_grad():
        source, inputs = SOURCES[kind](net)
    model = np_.load(source, inputs, name="mine")
    assert model.name == "mine" and len(model.graph.units) >= 3
    x = torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(model.eager(x)[0], net(x))
    costs = np_.profile(model, PHONE, costs=tmp_path / "costs.sqlite", options=ONCE)
    ran = np_.run(np_.partition(model, costs, verify=False), inputs=[x], runs=2, baselines=False)
    assert ran.agrees
    again = np_.run(ran.save(tmp_path / "mine.nnprof"), device=PHONE, runs=2, baselines=False)
    assert again.agrees


def test_a_module_in_training_stays_so_and_is_measured_as_it_infers(net):
    net.train()
    try:
        model = np_.load(net, X)
        assert net.training and net.dropout.training
        assert torch.equal(model.eager(X + 1)[0], model.eager(X + 1)[0]), "dropout is at work"
        assert model.name == "Net"
    finally:
        net.eval()


def test_the_copy_of_a_model_from_memory_goes_with_it(net):
    model = np_.load(net, X)
    folder = model.path.parent
    assert model.path.is_file()
    del model
    gc.collect()
    assert not folder.exists()


def test_guessed_inputs_are_told():
    model = np_.load(scripted(nn.Sequential(nn.Linear(7, 2))))
    assert any("guess" in note for note in model.notes) and "guess" in model._repr_html_()


def test_sizes_left_open_stay_open_in_the_bundle(net, tmp_path):
    model = np_.load(scripted(nn.Sequential(nn.Conv2d(3, 4, 3))), ["1x3x?=8x?=8"])
    costs = np_.profile(model, PHONE, costs=tmp_path / "costs.sqlite", options=ONCE)
    planned = np_.partition(model, costs, verify=False)
    assert planned.bundle.inputs == ("1x3x?=8x?=8",)


class Data(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x


@pytest.mark.parametrize(
    ("source", "inputs", "error", "words"),
    [
        (Path("none.pt"), None, ModelFileError, "does not exist"),
        (Net(), None, InputSpecError, "say its inputs"),
        (Net(), ["1x4x8x8"], InputSpecError, "does not run on the inputs 1x4x8x8"),
        (3, ["1x4x8x8"], InputSpecError, "int is not one of these"),
        (Data(), X, FrontendError, "cannot be exported"),
    ],
)
def test_models_that_cannot_be_loaded(source, inputs, error, words):
    with pytest.raises(error, match=words):
        np_.load(source, inputs)  # type: ignore[arg-type]
