"""The example models: sizes as published, outputs that say something, a command line."""

import importlib.util
import subprocess
from pathlib import Path

import pytest
import torch

from tests import warm

SCRIPT = Path(__file__).parents[2] / "examples" / "models.py"


@pytest.fixture(scope="module")
def models():
    spec = importlib.util.spec_from_file_location("nnapi_prof_examples", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "parameters"),
    # torchvision's documentation gives these counts for the same architectures
    [("mobilenet_v2", 3_504_872), ("resnet18", 11_689_512), ("squeezenet1_1", 1_235_496)],
)
def test_parameter_counts(models, name: str, parameters: int):
    assert sum(p.numel() for p in models.MODELS[name][0]().parameters()) == parameters


@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet18", "squeezenet1_1", "unet"])
def test_outputs_are_alive_and_repeatable(models, name: str):
    factory, shape = models.MODELS[name]
    assert len(shape) == 4 and not factory().training
    random = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, 64, 64, generator=random)
    with torch.no_grad():
        y = factory()(x)
        assert torch.equal(y, factory()(x))
    assert torch.isfinite(y).all()
    assert y.std() > 0.05 and y.abs().max() < 1e3
    assert (y[0] - y[1]).abs().max() > 1e-2  # depends on the input


@pytest.mark.slow
def test_command_line(tmp_path: Path):
    path = tmp_path / "unet.pt"
    done = subprocess.run(
        [*warm.python(), SCRIPT, "unet", path, "--size", "16"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"saved unet as {path}, input 1x3x16x16\n"
    assert done.stderr == "" and path.stat().st_size > 100_000
