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
from tests.executorch.common import exported, profiled_plan
from tests.models import Function


def pictures(x, first, second):
    """Two convolutions, which the plans have on NNAPI, with something between for the CPU."""
    y = torch.tanh(torch.relu(first(x))) * 0.5
    return torch.sigmoid(second(y)) + y


@pytest.fixture(scope="session", autouse=True)
def delegate(session_environment: None) -> None:
    """The delegate is compiled before the time of a test begins."""
    if find_spec("executorch") is not None:
        from nnapi_prof.executorch.host import build_delegate

        build_delegate()


@pytest.fixture(scope="session")
def picture_model(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("executorch") / "pictures.pt2"
    first, second = (nn.Conv2d(channels, 8, 3, padding=1) for channels in (3, 8))
    model = Function(pictures, first=first, second=second)
    return exported(model, path, torch.rand(1, 3, 16, 16)).path


@pytest.fixture(scope="session")
def picture_plan(picture_model, tmp_path_factory) -> nnapi_prof.ModelPlan:
    pins = {"conv2d*": "nnapi:sim-gpu/fast", "tanh*": "cpu", "add*": "cpu"}
    return profiled_plan(nnapi_prof.load(picture_model), tmp_path_factory.mktemp("costs"), pins)


@pytest.fixture(scope="session")
def run_pte() -> Callable[..., dict[str, Any]]:
    """Runs ``nnapi-prof run --json`` in a process; its document, and what it logged."""

    def run(path: Path, *options: str, code: int = 0, **variables: str) -> dict[str, Any]:
        command = [*warm.python(), "-m", "nnapi_prof", "run", "--json", *options, str(path)]
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, **variables}, timeout=240
        )
        assert done.returncode == code, done.stderr
        return {**json.loads(done.stdout), "log": done.stderr}

    return run
