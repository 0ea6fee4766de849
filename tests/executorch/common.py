"""Shared by tests of files for ExecuTorch: models, their plans, and the command line."""

from pathlib import Path

import torch
from click.testing import CliRunner

import nnapi_prof
from nnapi_prof.cli import cli
from nnapi_prof.errors import UsageError


def exported(module: torch.nn.Module, path: Path, *example: torch.Tensor) -> nnapi_prof.Model:
    """A model from an exported program's file."""
    torch.export.save(torch.export.export(module.eval(), example), path)
    return nnapi_prof.load(path)


def profiled_plan(
    model: nnapi_prof.Model, folder: Path, pin: dict[str, str], device: str = "sim:gpu-phone"
) -> nnapi_prof.ModelPlan:
    """Profiles a model in few runs and plans it."""
    few = nnapi_prof.MeasureOptions(runs=2)
    costs = nnapi_prof.profile(model, device=device, options=few, costs=folder / "costs.db")
    return nnapi_prof.partition(model, costs, nnapi_prof.Latency(pin=pin))


def estimated_plan(model: nnapi_prof.Model, pin: dict[str, str] | str) -> nnapi_prof.ModelPlan:
    """Plans a model for a phone by estimates."""
    costs = nnapi_prof.estimate(model, "npu-phone")
    return nnapi_prof.partition(model, costs, nnapi_prof.Latency(pin=pin))


def convert(*arguments: object) -> str:
    """Runs ``nnapi-prof convert --to executorch``; what it printed."""
    words = ["convert", "--to", "executorch", *map(str, arguments)]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    return done.stdout


def refusal(*arguments: object) -> str:
    """Why a command is a mistake of usage."""
    done = CliRunner().invoke(cli, [*map(str, arguments)])
    assert isinstance(done.exception, UsageError), done.output
    return str(done.exception)
