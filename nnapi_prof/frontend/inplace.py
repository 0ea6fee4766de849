"""Writing in place while views share the memory: what each of them is afterwards, without writing.

All shapes are known, so that where a view lies in its base is a matter of numbers: a box that
slices cut out, or positions in the flattened base.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from nnapi_prof.frontend.calls import Step, TracedValue

aten = torch.ops.aten

Cut = tuple[int, int, int, int]
"""Dimension, start, stop and step of a slice."""
Call = Callable[[Step], Any]
"""Carries out a call of ATen on at least one TracedValue."""


class WritesToViews(Exception):
    """A tensor is written in place while views that are no part of one tensor share its memory.

    Only PyTorch's own functionalisation takes that apart.
    """


def is_base(value: Tensor) -> bool:
    """Whether a tensor fills its memory in the order of its shape."""
    n_bytes = value.numel() * value.element_size()
    return (
        value.is_contiguous()
        and value.storage_offset() == 0
        and value.untyped_storage().nbytes() == n_bytes
    )


def after_write(
    call: Call, written: TracedValue, result: TracedValue, sharing: Sequence[TracedValue]
) -> list[TracedValue]:
    """What the values ``sharing`` one memory are after ``written``, one of them, became ``result``.

    Raises WritesToViews where none of them is the base of all.
    """
    base = next((value for value in sharing if is_base(value.fake)), None)
    name = "a view whose base is unknown"
    if base is None or any(value.fake.dtype != base.fake.dtype for value in sharing):
        raise WritesToViews(name)
    places = _places(base.fake, written.fake)
    if len(set(places.reshape(-1).tolist())) != places.numel():
        raise WritesToViews(name)
    whole = result if written.place == base.place else _placed(call, base, written, result)
    values_after = []
    for value in sharing:
        if value.place == base.place:
            values_after.append(whole)
        elif value.place == written.place:
            values_after.append(result)
        else:
            values_after.append(viewed(call, whole, base.fake, value.fake))
    return values_after


def viewed(call: Call, whole: TracedValue, base: Tensor, view: Tensor) -> TracedValue:
    """The part of ``whole``, which is as ``base`` lies, that ``view`` of the same memory shows."""
    cuts = _cuts(base, view)
    value: Any = whole
    if cuts is None:
        index = _places(base, view).reshape(-1)
        value = _do(call, aten.reshape.default, value, [base.numel()])
        value = _do(call, aten.index_select.default, value, 0, index)
    for cut in cuts or ():
        value = _do(call, aten.slice.Tensor, value, *cut)
    part: TracedValue = _do(call, aten.reshape.default, value, list(view.shape))
    return part


def _placed(
    call: Call, base: TracedValue, written: TracedValue, result: TracedValue
) -> TracedValue:
    """``base`` with ``result`` where ``written`` lies."""
    cuts = _cuts(base.fake, written.fake)
    if cuts is not None:
        lengths = list(base.fake.shape)
        for dim, start, stop, step in cuts:
            lengths[dim] = len(range(start, stop, step))
        return _scattered(call, base, _do(call, aten.reshape.default, result, lengths), cuts)
    index = _places(base.fake, written.fake).reshape(-1)
    flat = _do(call, aten.reshape.default, base, [base.fake.numel()])
    values = _do(call, aten.reshape.default, result, [index.numel()])
    flat = _do(call, aten.index_put.default, flat, [index], values)
    updated: TracedValue = _do(call, aten.reshape.default, flat, list(base.fake.shape))
    return updated


def _scattered(
    call: Call, base: TracedValue, values: TracedValue, cuts: Sequence[Cut]
) -> TracedValue:
    if not cuts:
        return values
    first, *rest = cuts
    if rest:
        values = _scattered(call, _do(call, aten.slice.Tensor, base, *first), values, rest)
    updated: TracedValue = _do(call, aten.slice_scatter.default, base, values, *first)
    return updated


def _do(call: Call, target: Any, *args: Any) -> Any:
    return call(Step(target, args, {}, "a write in place", "written"))


def _places(base: Tensor, view: Tensor) -> Tensor:
    """The position in the flattened base of each element of a view."""
    numbers = torch.arange(base.numel())
    return numbers.as_strided(view.shape, view.stride(), view.storage_offset())


def _cuts(base: Tensor, view: Tensor) -> list[Cut] | None:
    """The slices of ``base`` that give a view, dimensions of size 1 aside; None where none do."""
    left = [
        (size, stride) for size, stride in zip(view.shape, view.stride(), strict=True) if size > 1
    ]
    cuts: list[Cut] = []
    offset = int(view.storage_offset())
    for dim, (size, stride) in enumerate(zip(base.shape, base.stride(), strict=True)):
        if size == 1:
            continue
        start, offset = divmod(offset, stride)
        length = step = 1
        if left and left[0][1] >= stride and left[0][1] % stride == 0:
            length, step = left[0][0], left.pop(0)[1] // stride
        stop = start + (length - 1) * step + 1
        if stop > size:
            return None
        if length != size:
            cuts.append((dim, start, stop, step))
    if left or math.prod(view.shape) == 0:
        return None
    part = torch.arange(base.numel()).reshape(base.shape)
    for dim, start, stop, step in cuts:
        part = part.narrow(dim, start, stop - start)
        part = part.index_select(dim, torch.arange(0, stop - start, step))
    return cuts if torch.equal(part.reshape(-1), _places(base, view).reshape(-1)) else None
