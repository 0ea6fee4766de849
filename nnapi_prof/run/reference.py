"""Eager PyTorch: the model as it was saved, run on the host for the outputs to compare with."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.utils._pytree import tree_leaves

from nnapi_prof.graph.program import Program


def choose_inputs(program: Program, seed: int | None) -> tuple[torch.Tensor, ...]:
    """The inputs to run with: the program's examples (bundled ones where the file has them), or
    with a seed new ones of the same shapes: normal floats, integers and truth values kept."""
    if seed is None:
        return program.example_inputs
    random = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(value.shape, generator=random).to(value.dtype)
        if value.dtype.is_floating_point
        else value
        for value in program.example_inputs
    )


def run_eager(model: Path, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The outputs, flattened, of the untouched model file: TorchScript, or an ExportedProgram.

    ``model`` is a file that the front end has already accepted.
    """
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # torch's deprecations of TorchScript concern us, not users
        if model.suffix == ".pt2":
            module: torch.nn.Module = torch.export.load(model).module()
        else:
            module = torch.jit.load(model, map_location="cpu").eval()
        outputs = module(*(value.clone() for value in inputs))
    return tuple(leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor))
