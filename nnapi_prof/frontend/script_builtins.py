"""TorchScript's builtins on lists, dicts, numbers and flags: what Python itself does for them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from nnapi_prof.frontend.padded import Padded
from nnapi_prof.frontend.steps import Moving


def _dtype(value: Any) -> torch.dtype:
    return (value.fake if isinstance(value, Moving) else value).dtype  # Quantised has its own


def _listed(*values: Any) -> list[Any]:
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
    "prim::ListConstruct": _listed,
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
    "prim::is_nested": lambda value: isinstance(value, Padded),
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
"""Operators that Python does itself where the first operand is a list or dict."""

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
"""Those that Python does itself unless a value among them depends on the inputs."""
