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
from click.testing import CliRunner
from torch import nn

import nnapi_prof
from nnapi_prof.cli import cli
from nnapi_prof.errors import UsageError
from tests import warm
from tests.models import Function


def exported(module: torch.nn.Module, path: Path, *example: torch.Tensor) -> nnapi_prof.Model:
    """A model from an exported program's file."""
    torch.export.save(torch.export.export(module.eval(), example), path)
    return nnapi_prof.load(path)


def profiled_plan(
    model: nnapi_prof.Model, folder: Path, pin: dict[str, str], device: str = "sim:gpu-phone"
) -> nnapi_prof.ModelPlan:
    """Profiles a model in few runs and plans it."""
    few = nnapi_prof.MeasureOptions(runs=2, preferences="fast")
    costs = nnapi_prof.profile(model, device=device, options=few, costs=folder / "costs.db")
    return nnapi_prof.partition(model, costs, nnapi_prof.Latency(pin=pin))


def estimated_plan(model: nnapi_prof.Model, pin: dict[str, str] | str) -> nnapi_prof.ModelPlan:
    """Plans a model for a phone by estimates."""
    costs = nnapi_prof.estimate(model, "npu-phone")
    return nnapi_prof.partition(model, costs, nnapi_prof.Latency(pin=pin))


def convert(*arguments: object) -> str:
    """Runs ``nnapi-prof convert --to executorch``; what it printed."""
    done = CliRunner().invoke(cli, ["convert", "--to", "executorch", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.stdout


def refusal(*arguments: object) -> str:
    """Why a command is a mistake of usage."""
    done = CliRunner().invoke(cli, [*map(str, arguments)])
    assert isinstance(done.exception, UsageError), done.output
    return str(done.exception)


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
        env = {**os.environ, **variables}
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=240)
        assert done.returncode == code, done.stderr
        return {**json.loads(done.stdout), "log": done.stderr}

    return run
