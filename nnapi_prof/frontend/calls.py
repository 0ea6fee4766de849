"""Calls that the front end traces: numbers, constant arguments, and writing in place."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
    """A shape, number or branch that depends on the values of a tensor."""


@dataclass(eq=False)
class TracedValue:
    """A value that depends on the inputs: the node that makes it, and a stand-in without data.

    Writing to the value in place makes ``node`` the node of the new value.
    """

    node: fx.Node
    fake: Tensor

    @property
    def memory(self) -> Any:
        """The stand-in's storage, which all views of a tensor share."""
        return self.fake.untyped_storage()._cdata

    @property
    def place(self) -> tuple[Any, ...]:
        """Shape, strides and offset of the value in its storage."""
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
# ``x * 2.5`` is traced as a product of two tensors. TorchScript treats a constant without
# dimensions as a number again: only its kind affects the result's type, so an int64 tensor times
# 2.5 is float32. As a float64 tensor of a graph it would make the product float64.


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
        """Returns whether a step is pointwise and reads a number held as a tensor."""
        if not isinstance(step.target, OpOverload) or torch.Tag.pointwise not in step.target.tags:
            return False
        return any(map(self._is_one, pytree.tree_leaves((step.args, step.kwargs))))

    def compute(self, step: Step) -> Any:
        """Computes a step on constants."""
        try:
            numbered = self.read(step)
            return step.target(*numbered.args, **numbered.kwargs)
        except RuntimeError:  # as in promoted
            return step.target(*step.args, **step.kwargs)

    def read(self, step: Step) -> Step:
        """Returns the step with its numbers as Python numbers."""
        arguments = (step.args, step.kwargs)
        args, kwargs = pytree.tree_map(lambda v: v.item() if self._is_one(v) else v, arguments)
        return replace(step, args=args, kwargs=kwargs)

    def promoted(self, step: Step) -> Step:
        """Returns the step with its numbers as tensors of the type that gives the result the type
        it has with Python numbers; the step itself where it already has that type."""
        try:
            python_result = self._result(self.read(step))
        except RuntimeError:  # it takes only tensors, as maximum does
            return step
        tensor_result = self._result(step)
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
# TorchScript keeps arithmetic on sizes as tensor operations. On known shapes it becomes constants,
# but operators that read a start, counts or a mask from a tensor still seem to make shapes depend
# on data.


aten = torch.ops.aten


def specialize_constant_args(step: Step) -> Step:
    """Replaces constant tensor arguments by their values; returns ``step`` if there are none.

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
    """Replaces constant masks by the indices they select; None where there is no mask."""
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


def _device_copy(arg: dict[str, Any]) -> _Call | None:
    """Replaces a move to a device, here always this host's memory: only the type may change."""
    if arg.get("dtype") is None:
        return aten.detach.default, (arg["self"],)
    return aten.to.dtype, (arg["self"], arg["dtype"])


_LIKE = frozenset(
    {
        *(aten.new_zeros.default, aten.new_ones.default, aten.new_full.default),
        *(aten.new_empty.default, aten.zeros_like.default, aten.ones_like.default),
        *(aten.full_like.default, aten.empty_like.default),
    }
)
"""Calls that read no element of their tensor. Their result is computed at once, so that parts of it
can be written to."""
_MASKS = (torch.bool, torch.uint8)
_RULES: dict[Any, Callable[[dict[str, Any]], _Call | None]] = {
    aten.narrow.Tensor: _narrow,
    aten.repeat_interleave.self_Tensor: _interleave,
    aten.tensor_split.tensor_indices_or_sections: _tensor_split,
    aten.index.Tensor: _index,
    aten.index_put.default: _index_put,
    aten.masked_select.default: _masked_select,
    **dict.fromkeys((aten.to.prim_Device, aten.to.prim_dtype, aten.to.prim_other), _device_copy),
}


def shape_from_zeros(step: Step) -> Tensor | None:
    """Runs ``istft`` on zeros to get a stand-in for its result, as PyTorch only looks at the values
    of its window. None for other calls, and where the window depends on the inputs."""
    if step.target is not aten.istft.default:
        return None
    if isinstance(bind(aten.istft.default, step.args, step.kwargs)["window"], TracedValue):
        return None
    args, kwargs = pytree.tree_map_only(
        TracedValue,
        lambda v: torch.zeros(v.fake.shape, dtype=v.fake.dtype),
        (step.args, step.kwargs),
    )
    result: Tensor = step.target(*args, **kwargs)
    return result


# In-place writes while views share the memory: the value of each view afterwards, without writing.
#
# All shapes are known, so the place of a view in its base is known, too: a box that slices cut out,
# or positions in the flattened base.


Cut = tuple[int, int, int, int]
"""Dimension, start, stop and step of a slice."""
Call = Callable[[Step], Any]
"""Carries out a call of ATen on at least one TracedValue."""


class WritesToViews(Exception):
    """An in-place write to memory that views share without being parts of one tensor.

    Only PyTorch's own functionalisation can handle it.
    """


def is_base(value: Tensor) -> bool:
    """Returns whether a tensor fills its memory in the order of its shape."""
    n_bytes = value.numel() * value.element_size()
    return (
        value.is_contiguous()
        and value.storage_offset() == 0
        and value.untyped_storage().nbytes() == n_bytes
    )


def after_write(
    call: Call, written: TracedValue, result: TracedValue, sharing: Sequence[TracedValue]
) -> list[TracedValue]:
    """Returns the values ``sharing`` one memory, after one of them, ``written``, became ``result``.

    Raises WritesToViews where none of them is the base of all.
    """
    base = next((value for value in sharing if is_base(value.fake)), None)
    name = "a view whose base is unknown"
    if base is None or any(value.fake.dtype != base.fake.dtype for value in sharing):
        raise WritesToViews(name)
    places = _flat_positions(base.fake, written.fake)
    if len(set(places.reshape(-1).tolist())) != places.numel():
        raise WritesToViews(name)
    whole = result if written.place == base.place else _write_view(call, base, written, result)
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
    """Returns the part of ``whole``, laid out as ``base`` is, that ``view`` shows."""
    cuts = _cuts(base, view)
    value: Any = whole
    if cuts is None:
        index = _flat_positions(base, view).reshape(-1)
        value = _do(call, aten.reshape.default, value, [base.numel()])
        value = _do(call, aten.index_select.default, value, 0, index)
    for cut in cuts or ():
        value = _do(call, aten.slice.Tensor, value, *cut)
    part: TracedValue = _do(call, aten.reshape.default, value, list(view.shape))
    return part


def _write_view(
    call: Call, base: TracedValue, written: TracedValue, result: TracedValue
) -> TracedValue:
    """Returns ``base`` with ``result`` in the place of ``written``."""
    cuts = _cuts(base.fake, written.fake)
    if cuts is not None:
        lengths = list(base.fake.shape)
        for dim, start, stop, step in cuts:
            lengths[dim] = len(range(start, stop, step))
        return _scattered(call, base, _do(call, aten.reshape.default, result, lengths), cuts)
    index = _flat_positions(base.fake, written.fake).reshape(-1)
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


def _flat_positions(base: Tensor, view: Tensor) -> Tensor:
    """Returns the position of each element of a view in the flattened base."""
    numbers = torch.arange(base.numel())
    return numbers.as_strided(view.shape, view.stride(), view.storage_offset())


def _cuts(base: Tensor, view: Tensor) -> list[Cut] | None:
    """Returns the slices of ``base`` that give a view, but for dimensions of size 1; or None."""
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
    return cuts if torch.equal(part.reshape(-1), _flat_positions(base, view).reshape(-1)) else None
