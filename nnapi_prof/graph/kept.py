"""A call in the graph that stays what it was in TorchScript: control flow on data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor


class Kept:
    """TorchScript that takes tensors and returns a tuple of them.

    What it computes hangs on the values of tensors, so that no NNAPI operation can say it; its
    outputs are read by ``getitem``. ``where`` is the source line.
    """

    def __init__(
        self, function: Callable[..., Any], number: int, construct: str, where: str
    ) -> None:
        self.function = function
        self.construct = construct
        self.where = where
        self.__name__ = f"{construct}_{number}"
        self.__qualname__ = self.__name__

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        returned = self.function(*inputs)
        return returned if isinstance(returned, tuple) else (returned,)
