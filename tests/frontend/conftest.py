"""Models on disk for the tests of the front end."""

from pathlib import Path
from typing import Any

import pytest
import torch

from nnapi_prof.frontend.torch_logging import quiet_torch


@pytest.fixture
def saved(tmp_path):
    """Saves a module or function: traced with ``inputs``, scripted where there are none."""

    def save(model: Any, *inputs: torch.Tensor, name: str = "model.pt") -> Path:
        path = tmp_path / name
        with quiet_torch(), torch.no_grad():
            script = torch.jit.trace(model, inputs) if inputs else torch.jit.script(model)
            torch.jit.save(script, str(path))
        return path

    return save
