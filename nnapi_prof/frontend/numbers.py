"""Python numbers that TorchScript holds as tensors.

``x * 2.5`` is traced as a product of two tensors. TorchScript takes a constant without dimensions
as a number again: it has no say in the result's type but for its kind, so that an int64 tensor
times 2.5 is float32. As a float64 tensor of a graph it would make the product float64.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from nnapi_prof.frontend.steps import Moving, Step


class Numbers:
    """The constants of a graph that are numbers."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        self._known: dict[int, Tensor] = {}

    def note(self, value: Any) -> None:
        """Remembers a TorchScript constant that is a number."""
        if isinstance(value, Tensor) and not value.dim() and not value.is_quantized:
            self._known[id(value)] = value

    def among(self, step: Step) -> bool:
        """Whether a step is a pointwise one that reads a number held as a tensor."""
        if not isinstance(step.target, OpOverload) or torch.Tag.pointwise not in step.target.tags:
            return False
        return any(map(self._is_one, pytree.tree_leaves((step.args, step.kwargs))))

    def read(self, step: Step) -> Step:
        """The step with its numbers as Python's."""
        given = (step.args, step.kwargs)
        args, kwargs = pytree.tree_map(lambda v: v.item() if self._is_one(v) else v, given)
        return replace(step, args=args, kwargs=kwargs)

    def promoted(self, step: Step) -> Step:
        """The step with its numbers as tensors of a type that gives the result the type it has
        with Python's numbers; itself where it has that already."""
        wanted, found = (self._result(s) for s in (self.read(step), step))
        if not isinstance(wanted, Tensor) or wanted.dtype is found.dtype:
            return step
        given = (step.args, step.kwargs)
        args, kwargs = pytree.tree_map(
            lambda v: v.to(wanted.dtype) if self._is_one(v) else v, given
        )
        return replace(step, args=args, kwargs=kwargs)

    def _is_one(self, value: Any) -> bool:
        return self._known.get(id(value)) is value if isinstance(value, Tensor) else False

    def _result(self, step: Step) -> Any:
        args, kwargs = pytree.tree_map_only(Moving, lambda v: v.fake, (step.args, step.kwargs))
        with self._mode, torch.no_grad():
            return step.target(*args, **kwargs)
