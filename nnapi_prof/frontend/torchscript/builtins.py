"""TorchScript's builtins on lists, dicts, numbers and flags, and on nested tensors."""

from __future__ import annotations

import copy
import itertools
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from nnapi_prof.errors import FrontendError
from nnapi_prof.frontend.calls import Step, TracedValue
from nnapi_prof.frontend.torch_logging import essential_line, quiet_torch, run_once
from nnapi_prof.graph.node import bind


def _dtype(value: Any) -> torch.dtype:
    return (value.fake if isinstance(value, TracedValue) else value).dtype  # Quantised has its own


def _as_list(*values: Any) -> list[Any]:
    return list(values)


def _append(items: list[Any], value: Any) -> list[Any]:
    items.append(value)
    return items


def _extend(items: list[Any], more: list[Any]) -> list[Any]:
    items.extend(more)
    return items


def _set_item(items: Any, place: Any, value: Any) -> Any:
    items[place] = value
    return items


def _pop(items: Any, *place: Any) -> Any:
    return items.pop(*place)


def _dict(*values: Any) -> dict[Any, Any]:
    return dict(zip(values[::2], values[1::2], strict=True))


def _tensor(data: Any, dtype: torch.dtype | None, device: Any, *requires_grad: bool) -> Any:
    return torch.tensor(data, dtype=dtype)


UNPACK = frozenset({"prim::ListUnpack", "prim::TupleUnpack"})
PYTHON: dict[str, Callable[..., Any]] = {
    "prim::ListConstruct": _as_list,
    "prim::TupleConstruct": lambda *values: tuple(values),
    "prim::DictConstruct": _dict,
    "prim::TupleIndex": operator.getitem,
    "prim::unchecked_cast": lambda value: value,
    "prim::unchecked_unwrap_optional": lambda value: value,
    "prim::Uninitialized": lambda: None,
    "prim::data": lambda value: value,
    "prim::dtype": _dtype,
    "prim::device": lambda value: torch.device("cpu"),
    "prim::type": lambda device: device.type,
    "prim::is_cuda": lambda value: False,
    "prim::is_cpu": lambda value: True,
    "prim::is_nested": lambda value: isinstance(value, NestedTensor),
    "prim::requires_grad": lambda value: False,
    "prim::NumToTensor": torch.tensor,
    "prim::rangelist": lambda end: list(range(end)),
    "prim::Print": lambda *values: None,
    "aten::warn": lambda *values: None,
    "aten::str": str,
    "aten::format": lambda text, *values: text.format(*values),
    "aten::__is__": operator.is_,
    "aten::__isnot__": operator.is_not,
}
"""Constructs that never touch a tensor's elements."""

ON_CONTAINERS: dict[str, Callable[..., Any]] = {
    "aten::__getitem__": operator.getitem,
    "aten::__contains__": operator.contains,
    "aten::_set_item": _set_item,
    "aten::Delete": operator.delitem,
    "aten::len": len,
    "aten::append": _append,
    "aten::extend": _extend,
    "aten::insert": lambda items, place, value: items.insert(place, value),
    "aten::pop": _pop,
    "aten::reverse": lambda items: items.reverse(),
    "aten::sort": lambda items, backwards=False: items.sort(reverse=backwards),
    "aten::clear": lambda items: items.clear(),
    "aten::remove": lambda items, value: items.remove(value),
    "aten::slice": lambda items, start, end, step: items[start:end:step],
    "aten::list": list,
    "aten::dict": dict,
    "aten::copy": lambda items: items.copy(),
    "aten::add": operator.add,
    "aten::add_": _extend,
    "aten::mul": operator.mul,
    "aten::keys": list,
    "aten::values": lambda items: list(items.values()),
    "aten::items": lambda items: list(items.items()),
    "aten::get": lambda items, *key: items.get(*key),
    "aten::setdefault": lambda items, key, value: items.setdefault(key, value),
    "aten::update": lambda items, more: items.update(more),
}
"""Operators that Python computes where the first operand is a list or dict."""

ON_ENUMS: dict[str, Callable[..., Any]] = {
    "aten::eq": operator.eq,
    "aten::ne": operator.ne,
    "prim::EnumName": lambda member: member.name,
    "prim::EnumValue": lambda member: member.value,
}
"""Operators on the members of enumerations."""

ON_NUMBERS: dict[str, Callable[..., Any]] = {
    "prim::min": min,
    "prim::max": max,
    "prim::abs": abs,
    "aten::tensor": _tensor,
    "aten::as_tensor": _tensor,
}
"""Operators that Python computes unless a value among them depends on the inputs."""


# Nested tensors, which PyTorch's transformer encoders make of padded ones to skip the padding.
#
# Here they stay padded, next to a mask of the valid elements: attention hides the padding, and in
# the end it is overwritten, as in PyTorch.


aten = torch.ops.aten

OVER_KEYS = 1
"""Type of a mask [B, T] in PyTorch's own encoder layer."""


@dataclass(eq=False)
class NestedTensor:
    """A padded tensor ``value`` [B, T, D]; ``valid`` [B, T] is false where it is padding."""

    value: TracedValue | Tensor
    valid: TracedValue | Tensor


def call_on_nested(
    call: Callable[[Step], Any], target: Any, inputs: Sequence[Any], where: str
) -> Any | None:
    """Runs an operator that takes or makes nested tensors; None for any other operator."""
    if target is aten._nested_tensor_from_mask.default:
        return NestedTensor(inputs[0], inputs[1])
    nested = next(value for value in inputs if isinstance(value, NestedTensor))
    arg = bind(target, [nested.value if value is nested else value for value in inputs], {})
    hidden = call(Step(aten.logical_not.default, (nested.valid,), {}, where, "padding"))
    if target is aten._transformer_encoder_layer_fwd.default and arg["mask"] is None:
        args = tuple((arg | {"mask": hidden, "mask_type": OVER_KEYS}).values())
        return NestedTensor(call(Step(target, args, {}, where, "encoder_layer")), nested.valid)
    shape = nested.value.fake.shape if isinstance(nested.value, TracedValue) else nested.value.shape
    if target is aten.to_padded_tensor.default and list(arg["output_size"] or ()) == list(shape):
        places = call(Step(aten.unsqueeze.default, (hidden, -1), {}, where, "padding"))
        args = nested.value, places, arg["padding"]
        return call(Step(aten.masked_fill.Scalar, args, {}, where, "padded"))
    return None


# Nodes


def all_nodes(block: Any) -> Iterator[Any]:
    """Yields the nodes of a graph or block, each before those of its own blocks."""
    for node in block.nodes():
        yield node
        yield from itertools.chain.from_iterable(map(all_nodes, node.blocks()))


def overload_of(node: Any) -> Any:
    """Returns the overload that a node calls; None for TorchScript's own operators (``prim``)."""
    namespace, _, packet = node.kind().partition("::")
    if namespace in ("prim", "prims"):
        return None
    match = re.match(r"[\w:]+(?:\.(\w+))?\(", node.schema())
    family = getattr(getattr(torch.ops, namespace), packet, None)
    return getattr(family, (match.group(1) if match else None) or "default", None)


def source(node: Any) -> str:
    """Returns ``FILE:LINE`` of a TorchScript node, or the name of its module."""
    frames = re.findall(r'File "([^"]+)", line (\d+)', node.sourceRange())
    if not frames:
        frames = re.findall(r"^(\S+):(\d+):\d+", node.sourceRange(), re.MULTILINE)
    return f"{frames[-1][0]}:{frames[-1][1]}" if frames else node.scopeName() or "forward"


# Attributes that a TorchScript model writes while it runs: its state between runs.

_VIEWS = frozenset(
    f"aten::{name}"
    for name in (
        "detach expand flatten narrow permute reshape select slice squeeze t transpose unsqueeze"
        " view view_as"
    ).split()
) | {"prim::unchecked_cast"}
"""Nodes whose result may share the memory of their first input."""


@dataclass(frozen=True, slots=True)
class KeptAttribute:
    """An attribute of a model or of its parts (``rnn.hidden``) that one run passes to the next.

    ``type`` is TorchScript's, ``first`` the value in the file, ``settled`` the value after a run,
    whose shapes then stay the same. Values are tensors, or tuples, lists and dicts of tensors.
    """

    path: str
    type: str
    first: Any
    settled: Any

    @property
    def first_tensors(self) -> list[Tensor]:
        """The first values of its tensors; zeros where the file does not have them."""
        settled = _tensors(self.settled)
        first = _tensors(self.first)
        if _form(first) == _form(settled):
            return first
        return [torch.zeros_like(value) for value in settled]


def kept_attributes(
    model: torch.jit.ScriptModule, examples: Sequence[Tensor], name: str
) -> list[KeptAttribute]:
    """Finds the attributes that ``model`` keeps between runs on ``examples``; runs a copy of it.

    Raises FrontendError where one has numbers that change, or grows with every run.
    """
    with quiet_torch():
        types = _written(model)
        if not types:
            return []
        used = copy.deepcopy(model)
        held = [_held(used, types)]
        try:
            for scale in (1.0, 0.5):
                with run_once():
                    used(*(_scaled(example, scale) for example in examples))
                held.append(_held(used, types))
        except Exception as error:
            raise FrontendError(
                f"{name} writes to its attributes ({', '.join(types)}) and does not run a second"
                f" time: {essential_line(error)}"
            ) from error
    before, settled, after = held
    kept = []
    for path, kind in types.items():
        _check_form(path, settled[path], after[path], name)
        was_same_form = _form(_tensors(before[path])) == _form(_tensors(settled[path]))
        if not _equal(settled[path], after[path]) or (
            was_same_form and not _equal(before[path], settled[path])
        ):
            kept.append(KeptAttribute(path, kind, before[path], settled[path]))
    return kept


def _written(model: torch.jit.ScriptModule) -> dict[str, str]:
    """Returns the types of attributes, by path, that ``model`` may read before it writes them, or
    writes in place."""
    graph = model.inlined_graph
    paths = {next(graph.inputs()).debugName(): ""}
    types: dict[str, str] = {}
    written: dict[str, None] = {}
    for node in all_nodes(graph):
        kind = node.kind()
        if kind in ("prim::GetAttr", "prim::SetAttr"):
            owner = paths.get(node.inputsAt(0).debugName())
            if owner is None:
                continue
            path = f"{owner}.{node.s('name')}".lstrip(".")
            if kind == "prim::GetAttr":
                paths[node.output().debugName()] = path
                types.setdefault(path, str(node.output().type()))
            else:
                written[path] = None
        elif kind.startswith("aten::") and kind.endswith("_") and not kind.endswith("__"):
            changed = paths.get(_base(node.inputsAt(0)))
            if changed is not None:
                written[changed] = None
    filled = _filled_first(graph, set(written))
    return {path: types[path] for path in written if path in types and path not in filled}


def _filled_first(graph: Any, written: set[str]) -> set[str]:
    """Returns those that every run writes before it reads them, outside of branches and loops."""
    paths, seen, filled = {next(graph.inputs()).debugName(): ""}, set[str](), set[str]()
    for node in graph.nodes():
        inner = (n for block in node.blocks() for n in all_nodes(block))
        for each, at_top in ((node, True), *((n, False) for n in inner)):
            if each.kind() not in ("prim::GetAttr", "prim::SetAttr"):
                continue
            owner = paths.get(each.inputsAt(0).debugName())
            if owner is None:
                continue
            path = f"{owner}.{each.s('name')}".lstrip(".")
            if each.kind() == "prim::GetAttr":
                paths[each.output().debugName()] = path
            elif at_top and path not in seen:
                filled.add(path)
            seen.add(path)
    return filled & written


def _base(value: Any) -> str:
    """Returns the name of the value whose memory ``value`` shows."""
    while value.node().kind() in _VIEWS:
        value = value.node().inputsAt(0)
    return str(value.debugName())


def _held(model: torch.jit.ScriptModule, paths: Sequence[str] | dict[str, str]) -> dict[str, Any]:
    """Copies the present values of the attributes."""
    return {
        path: pytree.tree_map_only(
            Tensor, lambda t: t.detach().clone(), operator.attrgetter(path)(model)
        )
        for path in paths
    }


def _scaled(example: Tensor, scale: float) -> Tensor:
    return example * scale if example.is_floating_point() else example.clone()


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


def _form(tensors: Sequence[Tensor]) -> list[tuple[Any, ...]]:
    return [(tuple(value.shape), value.dtype) for value in tensors]


def _equal(one: Any, other: Any) -> bool:
    pairs = zip(_tensors(one), _tensors(other), strict=True)
    return all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)


def _check_form(path: str, settled: Any, after: Any, name: str) -> None:
    forms = _form(_tensors(settled)), _form(_tensors(after))
    if forms[0] != forms[1]:
        sizes = ["x".join(map(str, form[0][0])) if form else "nothing" for form in forms]
        raise FrontendError(
            f"{name} keeps state in {path}, which grows from run to run ({sizes[0]}, then"
            f" {sizes[1]}): keep a fixed number of values there"
        )
    numbers = [
        [leaf for leaf in pytree.tree_leaves(value) if not isinstance(leaf, Tensor)]
        for value in (settled, after)
    ]
    if numbers[0] != numbers[1]:
        raise FrontendError(
            f"{name} keeps a number in {path}, which changes from run to run ({numbers[0][0]}, then"
            f" {numbers[1][0]}): keep it in a tensor"
        )
