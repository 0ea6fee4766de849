"""Calls that constants settle: those that read no more than shape and type of a tensor, and those
whose result's shape hangs on constant tensors, in overloads that take numbers.

TorchScript keeps arithmetic on sizes as tensor operations. What becomes of it on known shapes are
constants, but operators that read a start, counts or a mask from a tensor still seem to make
shapes depend on data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nnapi_prof.frontend.steps import Moving, Step
from nnapi_prof.graph.node import bind

aten = torch.ops.aten


def settled(step: Step) -> Step:
    """The same call with constant tensors read; itself where there is nothing to read.

    ``narrow(x, 0, tensor(3), 2)`` -> ``narrow(x, 0, 3, 2)``,
    ``x.new_zeros(2)`` -> ``c.new_zeros(2)``, ``c`` an empty constant of the type of ``x``,
    ``x[mask]`` -> ``x[mask.nonzero()]``,
    ``repeat_interleave(x, tensor([1, 2]), 0)`` -> ``index_select(x, 0, tensor([0, 1, 1]))``.
    """
    if step.target in _LIKE and isinstance(step.args[0], Moving):
        fake = step.args[0].fake
        alike = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype)
        return replace(step, args=(alike, *step.args[1:]))
    rule = _RULES.get(step.target)
    if rule is None:
        return step
    arg = bind(step.target, step.args, step.kwargs)  # type: ignore[arg-type]
    found = rule(arg)
    return step if found is None else replace(step, target=found[0], args=found[1], kwargs={})


_Call = tuple[Any, tuple[Any, ...]]


def _narrow(arg: dict[str, Any]) -> _Call | None:
    start = arg["start"]
    if not isinstance(start, Tensor):
        return None
    return aten.narrow.default, (arg["self"], arg["dim"], int(start), arg["length"])


def _interleave(arg: dict[str, Any]) -> _Call | None:
    repeats, source, dim = arg["repeats"], arg["self"], arg["dim"]
    if not isinstance(repeats, Tensor) or not isinstance(source, Moving):
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
    found: list[Any] = []
    for index in indices:
        if isinstance(index, Tensor) and index.dtype in _MASKS:
            found += index.nonzero(as_tuple=True)
        else:
            found.append(index)
    return found


def _masked_select(arg: dict[str, Any]) -> _Call | None:
    mask, source = arg["mask"], arg["self"]
    if not isinstance(mask, Tensor) or not isinstance(source, Moving):
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
