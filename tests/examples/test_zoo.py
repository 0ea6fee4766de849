"""The zoo: units as documented, sizes as published, outputs that say something, a command line."""

import importlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

import nnapi_prof
from nnapi_prof.api.model import Model
from tests import warm

EXAMPLES = Path(__file__).parents[2] / "examples"
UNITS = {
    "mobilenet_v3_large": 122,
    "resnet50": 74,
    "vit": 298,
    "bert": 145,
    "decoder": 220,
    "inception": 62,
    "ssdlite": 122,
    "yolo": 174,
    "backbone_1": 16,
    "backbone_8": 103,
}
"""What the zoo's docstring says."""
QUICK = ("bert", "backbone_1")


@pytest.fixture(scope="module")
def zoo() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        yield importlib.import_module("zoo")


@pytest.fixture(
    scope="module",
    params=[pytest.param(n, marks=() if n in QUICK else pytest.mark.again) for n in UNITS],
)
def loaded(zoo, request, tmp_path_factory) -> tuple[str, Model]:
    """A network's name, and the network read from its file."""
    path = tmp_path_factory.mktemp("zoo") / f"{request.param}.pt"
    zoo.save(request.param, path)
    return request.param, nnapi_prof.load(path, inputs=[zoo.MODELS[request.param].input])


def test_units(loaded: tuple[str, Model]):
    name, model = loaded
    assert len(model.graph.units) == UNITS[name]
    assert model.notes == ()


def test_program_agrees_with_eager(zoo, loaded: tuple[str, Model]):
    """The file, the program and the network give the same."""
    name, model = loaded
    x = zoo.MODELS[name].examples(seed=1)
    with torch.no_grad():
        expected = as_tuple(zoo.MODELS[name].model()(x))
    for outputs in (model.program.module(x), model.eager(x)):
        for output, expected_output in zip(outputs, expected, strict=True):
            torch.testing.assert_close(
                output, expected_output, rtol=0, atol=1e-4 * expected_output.abs().max().item()
            )


def test_outputs_are_alive(zoo, loaded: tuple[str, Model]):
    name, model = loaded
    first, second = (model.eager(zoo.MODELS[name].examples(seed=seed)) for seed in (1, 2))
    for output, other in zip(first, second, strict=True):
        assert torch.isfinite(output).all() and output.abs().max() < 1e3
        assert (output - other).abs().max() > 0.1 * output.abs().max()  # depends on the input


def as_tuple(outputs: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return (outputs,) if isinstance(outputs, torch.Tensor) else outputs


@pytest.mark.parametrize(
    ("name", "parameters"),
    # torchvision's documentation gives the first two; the third is DeiT-tiny's 5,717,416 less the
    # positions of 96 tokens of width 192
    [("mobilenet_v3_large", 5_483_032), ("resnet50", 25_557_032), ("vit", 5_698_984)],
)
def test_parameter_counts(zoo, name: str, parameters: int):
    assert sum(p.numel() for p in zoo.MODELS[name].factory().parameters()) == parameters


def test_weights_are_the_same_every_time(zoo):
    entry = zoo.MODELS["bert"]
    first, second = (dict(entry.model().named_parameters()) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_causal_mask_hides_later_ids(zoo):
    entry = zoo.MODELS["decoder"]
    ids = entry.examples()
    changed = ids.clone()
    changed[:, 20:] = (changed[:, 20:] + 1) % entry.words
    with torch.no_grad():
        before, after = (entry.model()(value) for value in (ids, changed))
    assert torch.equal(before[:, :20], after[:, :20])
    assert not torch.allclose(before[:, 20:], after[:, 20:])


def test_command_line(tmp_path: Path):
    path = tmp_path / "bert.pt"
    done = subprocess.run(
        [*warm.python(), EXAMPLES / "zoo.py", "bert", path],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"saved bert as {path}, input 1x64:int64\n"
    assert done.stderr == "" and path.stat().st_size > 1_000_000
