"""The example networks: units as documented, sizes as published, outputs that say something."""

import importlib
import subprocess
from pathlib import Path

import pytest
import torch
from torch.utils._pytree import tree_leaves

import nnapi_prof
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
"""Numbers of the zoo's docstring."""
QUICK = ("bert", "backbone_1")


@pytest.fixture(scope="module", autouse=True)
def scripts():
    """The examples can be imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        yield


@pytest.fixture(scope="module")
def zoo(scripts):
    return importlib.import_module("zoo").MODELS


@pytest.fixture(scope="module")
def models(scripts):
    """Factory and shape by name."""
    return importlib.import_module("models").MODELS


@pytest.fixture(
    scope="module",
    params=[pytest.param(n, marks=() if n in QUICK else pytest.mark.again) for n in UNITS],
)
def loaded(zoo, request, tmp_path_factory):
    """A network's name, and the network read from its file."""
    path = tmp_path_factory.mktemp("zoo") / f"{request.param}.pt"
    importlib.import_module("zoo").save(request.param, path)
    return request.param, nnapi_prof.load(path, inputs=[zoo[request.param].input])


def test_units(loaded):
    name, model = loaded
    assert len(model.graph.units) == UNITS[name]
    assert model.notes == ()


def test_program_agrees_with_eager(zoo, loaded):
    """The file, the program and the network, whose weights are the same every time."""
    name, model = loaded
    x = zoo[name].examples(seed=1)
    with torch.no_grad():
        expected_values = tree_leaves(zoo[name].model()(x))
    for outputs in (model.program.module(x), model.eager(x)):
        for output, expected in zip(outputs, expected_values, strict=True):
            atol = 1e-4 * expected.abs().max().item()
            torch.testing.assert_close(output, expected, rtol=0, atol=atol)


def test_outputs_are_alive(zoo, loaded):
    name, model = loaded
    first, second = (model.eager(zoo[name].examples(seed=seed)) for seed in (1, 2))
    for output, other in zip(first, second, strict=True):
        assert torch.isfinite(output).all() and output.abs().max() < 1e3
        assert (output - other).abs().max() > 0.1 * output.abs().max()  # depends on the input


@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet18", "squeezenet1_1", "unet"])
def test_outputs_of_models_are_alive_and_repeatable(models, name):
    factory, shape = models[name]
    assert len(shape) == 4 and not factory().training
    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        y = factory()(x)
        assert torch.equal(y, factory()(x))
    assert torch.isfinite(y).all()
    assert y.std() > 0.05 and y.abs().max() < 1e3
    assert (y[0] - y[1]).abs().max() > 1e-2  # depends on the input


@pytest.mark.parametrize(
    ("name", "parameters"),
    [  # torchvision's documentation gives these counts for the same architectures
        ("mobilenet_v2", 3_504_872),
        ("resnet18", 11_689_512),
        ("squeezenet1_1", 1_235_496),
        ("mobilenet_v3_large", 5_483_032),
        ("resnet50", 25_557_032),
        # DeiT-tiny's 5,717,416 less the positions of 96 tokens of width 192
        ("vit", 5_698_984),
    ],
)
def test_parameter_counts(models, zoo, name, parameters):
    network = models[name][0]() if name in models else zoo[name].factory()
    assert sum(p.numel() for p in network.parameters()) == parameters


def test_a_causal_mask_hides_later_ids(zoo):
    entry = zoo["decoder"]
    ids = entry.examples()
    changed = ids.clone()
    changed[:, 20:] = (changed[:, 20:] + 1) % entry.words
    with torch.no_grad():
        before, after = (entry.model()(value) for value in (ids, changed))
    assert torch.equal(before[:, :20], after[:, :20])
    assert not torch.allclose(before[:, 20:], after[:, 20:])


@pytest.mark.parametrize(
    ("script", "name", "options", "shape", "least_bytes"),
    [
        ("zoo.py", "bert", (), "1x64:int64", 1_000_000),
        pytest.param(
            *("models.py", "unet", ("--size", "16"), "1x3x16x16", 100_000), marks=pytest.mark.slow
        ),
    ],
)
def test_command_line(tmp_path, script, name, options, shape, least_bytes):
    path = tmp_path / f"{name}.pt"
    command = [*warm.python(), EXAMPLES / script, name, path, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"saved {name} as {path}, input {shape}\n"
    assert done.stderr == "" and path.stat().st_size > least_bytes
