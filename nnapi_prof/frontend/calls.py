"""Calls that the front end traces: values that depend on the inputs, and arguments that do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from nnapi_prof.errors import FrontendError
from nnapi_prof.graph.node import bind


class DataDependent(FrontendError):
    """A shape, a number or a branch depends on the values of a tensor."""


@dataclass(eq=False)
class TracedValue:
    """A value that depends on the inputs: the node that makes it, and a stand-in without data.

    Writing to the value in place makes ``node`` the node of the new value.
    """

    node: fx.Node
    fake: Tensor

    @property
    def memory(self) -> Any:
        """The stand-in's storage: views of one tensor have the same."""
        return self.fake.untyped_storage()._cdata

    @property
    def place(self) -> tuple[Any, ...]:
        """Where in its storage the value lies."""
        return (self.fake.shape, self.fake.stride(), self.fake.storage_offset())


@dataclass(frozen=True)
class Step:
    """One call to carry out. ``where`` is its source line or node, ``hint`` a name for its node."""

    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    where: str
    hint: str


# Python numbers that TorchScript holds as tensors
#
# ``x * 2.5`` is traced as a product of two tensors. TorchScript takes a constant without dimensions
# as a number again: it has no say in the result's type but for its kind, so that an int64 tensor
# times 2.5 is float32. As a float64 tensor of a graph it would make the product float64.


class Numbers:
    """The constants of a graph that are numbers."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        self._numbers: dict[int, Tensor] = {}

    def note(self, value: Any) -> None:
        """Remembers a TorchScript constant that is a number."""
        if isinstance(value, Tensor) and not value.dim() and not value.is_quantized:
            self._numbers[id(value)] = value

    def among(self, step: Step) -> bool:
        """Whether a step is a pointwise one that reads a number held as a tensor."""
        if not isinstance(step.target, OpOverload) or torch.Tag.pointwise not in step.target.tags:
            return False
        return any(map(self._is_one, pytree.tree_leaves((step.args, step.kwargs))))

    def read(self, step: Step) -> Step:
        """The step with its numbers as Python's."""
        arguments = (step.args, step.kwargs)
        args, kwargs = pytree.tree_map(lambda v: v.item() if self._is_one(v) else v, arguments)
        return replace(step, args=args, kwargs=kwargs)

    def promoted(self, step: Step) -> Step:
        """The step with its numbers as tensors of a type that gives the result the type it has
        with Python's numbers; itself where it has that already."""
        python_result, tensor_result = (self._result(s) for s in (self.read(step), step))
        if not isinstance(python_result, Tensor) or python_result.dtype is tensor_result.dtype:
            return step
        arguments = (step.args, step.kwargs)
        args, kwargs = pytree.tree_map(
            lambda v: v.to(python_result.dtype) if self._is_one(v) else v, arguments
        )
        return replace(step, args=args, kwargs=kwargs)

    def _is_one(self, value: Any) -> bool:
        return self._numbers.get(id(value)) is value if isinstance(value, Tensor) else False

    def _result(self, step: Step) -> Any:
        args, kwargs = pytree.tree_map_only(TracedValue, lambda v: v.fake, (step.args, step.kwargs))
        with self._mode, torch.no_grad():
            return step.target(*args, **kwargs)


# Arguments that are constants
#
# TorchScript keeps arithmetic on sizes as tensor operations. What becomes of it on known shapes are
# constants, but operators that read a start, counts or a mask from a tensor still seem to make
# shapes depend on data.


aten = torch.ops.aten


def specialize_constant_args(step: Step) -> Step:
    """The same call with constant tensors read; itself where there is nothing to read.

    ``narrow(x, 0, tensor(3), 2)`` -> ``narrow(x, 0, 3, 2)``,
    ``x.new_zeros(2)`` -> ``c.new_zeros(2)``, ``c`` an empty constant of the type of ``x``,
    ``x[mask]`` -> ``x[mask.nonzero()]``,
    ``repeat_interleave(x, tensor([1, 2]), 0)`` -> ``index_select(x, 0, tensor([0, 1, 1]))``.
    """
    if step.target in _LIKE and isinstance(step.args[0], TracedValue):
        fake = step.args[0].fake
        alike = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype)
        return replace(step, args=(alike, *step.args[1:]))
    rule = _RULES.get(step.target)
    if rule is None:
        return step
    arg = bind(step.target, step.args, step.kwargs)  # type: ignore[arg-type]
    rewritten = rule(arg)
    return (
        step
        if rewritten is None
        else replace(step, target=rewritten[0], args=rewritten[1], kwargs={})
    )


_Call = tuple[Any, tuple[Any, ...]]


def _narrow(arg: dict[str, Any]) -> _Call | None:
    start = arg["start"]
    if not isinstance(start, Tensor):
        return None
    return aten.narrow.default, (arg["self"], arg["dim"], int(start), arg["length"])


def _interleave(arg: dict[str, Any]) -> _Call | None:
    repeats, source, dim = arg["repeats"], arg["self"], arg["dim"]
    if not isinstance(repeats, Tensor) or not isinstance(source, TracedValue):
        return None
    if dim is None:
        return None
    size = source.fake.shape[dim]
    index = torch.repeat_interleave(torch.arange(size), repeats.expand(size))
    return aten.index_select.default, (source, dim, index)


def _tensor_split(arg: dict[str, Any]) -> _Call | None:
    places = arg["tensor_indices_or_sections"]
    if not isinstance(places, Tensor):
        return None
    listed: Any = places.tolist()
    target = aten.tensor_split.sections if isinstance(listed, int) else aten.tensor_split.indices
    return target, (arg["self"], listed, arg["dim"])


def _index(arg: dict[str, Any]) -> _Call | None:
    indices = _as_numbers(arg["indices"])
    return None if indices is None else (aten.index.Tensor, (arg["self"], indices))


def _index_put(arg: dict[str, Any]) -> _Call | None:
    indices = _as_numbers(arg["indices"])
    if indices is None:
        return None
    return aten.index_put.default, (arg["self"], indices, arg["values"], arg["accumulate"])


def _as_numbers(indices: Any) -> list[Any] | None:
    """Constant masks as the indices of what they pick; None where there is none."""
    if not any(isinstance(index, Tensor) and index.dtype in _MASKS for index in indices):
        return None
    expanded: list[Any] = []
    for index in indices:
        if isinstance(index, Tensor) and index.dtype in _MASKS:
            expanded += index.nonzero(as_tuple=True)
        else:
            expanded.append(index)
    return expanded


def _masked_select(arg: dict[str, Any]) -> _Call | None:
    mask, source = arg["mask"], arg["self"]
    if not isinstance(mask, Tensor) or not isinstance(source, TracedValue):
        return None
    if mask.shape != source.fake.shape:
        return None
    return aten.index.Tensor, (source, list(mask.nonzero(as_tuple=True)))


_LIKE = frozenset(
    {
        *(aten.new_zeros.default, aten.new_ones.default, aten.new_full.default),
        *(aten.new_empty.default, aten.zeros_like.default, aten.ones_like.default),
        *(aten.full_like.default, aten.empty_like.default),
    }
)
"""What reads no element of its tensor. Made at once, the result can be written to in parts."""
_MASKS = (torch.bool, torch.uint8)
_RULES: dict[Any, Callable[[dict[str, Any]], _Call | None]] = {
    aten.narrow.Tensor: _narrow,
    aten.repeat_interleave.self_Tensor: _interleave,
    aten.tensor_split.tensor_indices_or_sections: _tensor_split,
    aten.index.Tensor: _index,
    aten.index_put.default: _index_put,
    aten.masked_select.default: _masked_select,
}
