"""The inputs that plans run with."""

from __future__ import annotations

import torch

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
