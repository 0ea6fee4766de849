"""Example networks: units as documented, sizes as published, outputs that say something."""

import importlib
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves

import nnapi_prof
from nnapi_prof.frontend.torch_logging import quiet_torch
from tests import warm
from tests.precision import digits

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


def test_units_and_program_agree(zoo, loaded):
    """The file, the program and the network, whose weights are the same every time."""
    name, model = loaded
    assert len(model.graph.units) == UNITS[name] and model.notes == ()
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


def test_command_line(tmp_path):
    """tests/cli/test_end_to_end.py calls models.py."""
    path = tmp_path / "bert.pt"
    command = [*warm.python(), EXAMPLES / "zoo.py", "bert", path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"saved bert as {path}, input 1x64:int64\n"
    assert done.stderr == "" and path.stat().st_size > 1_000_000


# ---- the nets that learn digits ------------------------------------------------------------------


def test_data_is_cut_in_three() -> None:
    data = digits.script().read_digits()
    assert [len(part) for part in (data.train, data.calibration, data.held_out)] == [1000, 200, 597]
    size = digits.script().SIZE
    assert data.train.images.shape == (1000, 1, size, size)
    other = digits.script().read_digits(seed=1)
    assert torch.equal(other.train.images, data.train.images)
    assert not torch.equal(other.held_out.images, data.held_out.images)
    assert data.calibration.samples[3][0].shape == (1, 1, size, size)


@pytest.mark.parametrize("name", ["plain", "residual", "mobile"])
def test_training_is_repeatable(name: str) -> None:
    few = digits.script().read_digits().train.part(torch.arange(50))
    before = torch.get_rng_state()
    first, second = (digits.script().train(name, few, epochs=1) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before) and not first.training
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_a_net_learns() -> None:
    data = digits.images("held_out")
    right = digits.script().accuracy(digits.net(), data)
    assert right > 0.95
    with torch.no_grad():
        outputs = digits.net()(data.images)
    assert digits.script().wrong(outputs, data.labels) == pytest.approx(1 - right, abs=1e-6)


@pytest.mark.again("trains a network, as those did that the other tests read")
def test_command_line_of_digits(tmp_path: Path) -> None:
    path = tmp_path / "plain.pt"
    script = EXAMPLES / "digits.py"
    command = [*warm.python(), script, "plain", path, "--data", tmp_path / "data", "--epochs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "of held-out images are right" in done.stdout
    with np.load(tmp_path / "data" / "held_out.npz") as arrays:
        images, labels = arrays["images"], arrays["labels"]
    size = digits.script().SIZE
    assert images.shape == (597, 1, 1, size, size) and labels.shape == (597,)
    with quiet_torch():
        model = torch.jit.load(str(path))
    assert model(torch.from_numpy(images[0])).shape == (1, 10)
