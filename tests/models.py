"""Small models for tests, without a class for each."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Function(nn.Module):
    """Calls a function on its inputs, and on its layers by their names."""

    def __init__(self, function: Callable[..., Any], **layers: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.layers = nn.ModuleDict(layers)
        self.eval()

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs, **self.layers)
