"""Plans of small models on simulated phones; each run has a process, for that has one NNAPI."""

import json
import os
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import nnapi_prof
from tests import warm

NNAPI = "nnapi:sim-gpu/fast"
PINS = {"conv2d*": NNAPI, "tanh*": "cpu", "add*": "cpu"}


class Pictures(nn.Module):
    """Two convolutions, which the plans have on NNAPI, with something between for the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first(x))
        y = torch.tanh(y) * 0.5
        return torch.sigmoid(self.second(y)) + y


@pytest.fixture(scope="session", autouse=True)
def delegate(session_environment: None) -> None:
    """The delegate is compiled before the time of a test begins."""
    if find_spec("executorch") is not None:
        from nnapi_prof.executorch.host import build_delegate

        build_delegate()


@pytest.fixture(scope="session")
def picture_model(tmp_path_factory):
    path = tmp_path_factory.mktemp("executorch") / "pictures.pt2"
    torch.manual_seed(0)
    program = torch.export.export(Pictures().eval(), (torch.rand(1, 3, 16, 16),))
    torch.export.save(program, path)
    return path


@pytest.fixture(scope="session")
def picture_plan(picture_model, tmp_path_factory) -> nnapi_prof.ModelPlan:
    model = nnapi_prof.load(picture_model)
    table = tmp_path_factory.mktemp("costs") / "costs.db"
    costs = nnapi_prof.profile(
        model, device="sim:gpu-phone", options=nnapi_prof.MeasureOptions(runs=2), costs=table
    )
    return nnapi_prof.partition(model, costs, nnapi_prof.Latency(pin=PINS))


@pytest.fixture(scope="session")
def run_pte() -> Callable[..., dict[str, Any]]:
    """Runs ``nnapi-prof run --json`` in a process; its document, and what it logged."""

    def run(path: Path, *options: str, code: int = 0, **variables: str) -> dict[str, Any]:
        command = [*warm.python(), "-m", "nnapi_prof", "run", "--json", *options, str(path)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **variables},
            timeout=240,
        )
        assert done.returncode == code, done.stderr
        return {**json.loads(done.stdout), "log": done.stderr}

    return run
