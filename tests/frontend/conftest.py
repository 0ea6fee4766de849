"""Models on disk for the tests of the front end."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from nnapi_prof.frontend.torch_logging import quiet_torch


@pytest.fixture(scope="session")
def examples():
    """The module examples/models.py."""
    path = Path(__file__).parents[2] / "examples" / "models.py"
    spec = importlib.util.spec_from_file_location("nnapi_prof_example_models", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def saved(tmp_path):
    """Saves a module as TorchScript: traced with ``inputs``, scripted where there are none."""

    def save(model: nn.Module, *inputs: torch.Tensor, name: str = "model.pt") -> Path:
        path = tmp_path / name
        with quiet_torch(), torch.no_grad():
            script = torch.jit.trace(model, inputs) if inputs else torch.jit.script(model)
            torch.jit.save(script, str(path))
        return path

    return save
