"""One row of the coverage table."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tests.convert.harness import image
from tests.models import Function


@dataclass(frozen=True)
class Row:
    """``make`` gives the model (a module, or a function of tensors) and its inputs.

    ``missing`` says why the row is not converted yet, in the words of the refusal; None where it
    must convert. ``level`` is the feature level to convert for. ``tolerance`` is absolute and
    relative.
    """

    make: Callable[[], tuple[nn.Module | Callable[..., Any], tuple[Tensor, ...]]]
    missing: str | None = None
    level: int = 30
    tolerance: float = 1e-4


numbers = image


def seeded(module: Callable[[], nn.Module]) -> nn.Module:
    """A module whose random weights are always the same, in eval mode."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return module().eval()


def row(function: Callable[..., Any], *inputs: Tensor, **options: Any) -> Row:
    """A row of a plain function of tensors."""
    return Row(lambda: (Function(function), inputs), **options)


def layer(module: Callable[[], nn.Module], *inputs: Tensor, **options: Any) -> Row:
    """A row of a module with weights."""
    return Row(lambda: (seeded(module), inputs), **options)
