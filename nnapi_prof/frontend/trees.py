"""Bind a model's inputs, some of them by name or as numbers and texts, to trees of tensors.

Nested values are trees around flat tensors, for which TorchScript has its own syntax. Inputs may be
stated by name, and may be numbers or texts: ``rate=16000``, ``=0.5``.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.utils import _pytree as pytree

from nnapi_prof.errors import InputSpecError, for_caller

Constant = None | bool | int | float | str

_NAMED = re.compile(r"([A-Za-z_]\w*)?=(.*)", re.DOTALL)
_READ: dict[str, Callable[[str], Constant]] = {
    "int": int,
    "float": float,
    "number": float,
    "str": lambda text: text.strip("\"'"),
    "bool": lambda text: {"true": True, "1": True, "false": False, "0": False}[text.lower()],
}
"""TorchScript's name of a type -> parser of a value of it; raises ValueError or KeyError."""


def is_named(text: str) -> bool:
    """Returns whether an input is stated by its name, or as a value."""
    return _NAMED.fullmatch(text.strip()) is not None


@dataclass(frozen=True, slots=True)
class BoundInputs:
    """Stated inputs in the model's order: shapes of tensors, and the values of the others."""

    shapes: tuple[str, ...]
    values: Mapping[str, Constant]


def bind_inputs(texts: Sequence[str], arguments: Mapping[str, str], model: str) -> BoundInputs:
    """Sorts stated inputs by the model's ``arguments``: name to TorchScript's type, in order.

    ``NAME=TEXT`` is for that argument, ``=TEXT`` for the next that is not a tensor; others are
    shapes of tensors in order. Raises InputSpecError.
    """
    named: dict[str, str] = {}
    shapes: list[str] = []
    values: list[str] = []
    for text in texts:
        match = _NAMED.fullmatch(text.strip())
        if match is None:
            shapes.append(text)
        elif match[1] is None:
            values.append(match[2])
        elif match[1] not in arguments:
            raise InputSpecError(
                f"{model} has no input {match[1]!r}: its inputs are {', '.join(arguments)}"
            )
        else:
            named[match[1]] = match[2]
    ordered: list[str] = []
    constants: dict[str, Constant] = {}
    rest = iter(values)
    for name, kind in arguments.items():
        if "Tensor" in kind:
            if name in named:
                ordered.append(named[name])
            elif shapes and kind in ("Tensor", "Optional[Tensor]"):
                ordered.append(shapes.pop(0))
            elif texts and kind == "Optional[Tensor]":
                constants[name] = None
            continue
        stated = named[name] if name in named else next(rest, None)
        if stated is not None:
            constants[name] = _read_value(stated, kind, name, model)
    left = next(rest, None)
    if left is not None:
        raise InputSpecError(f"{model} has no input for the value {left!r}", "leave it out")
    return BoundInputs((*ordered, *shapes), constants)


def missing_value(model: str, name: str, kind: str) -> str:
    """Returns the message for an argument that is not a tensor and was not stated."""
    value = {"int": "16", "float": "0.5", "bool": "true", "str": "fast"}.get(kind, "VALUE")
    how = for_caller(f"--input {name}={value}", f'"{name}={value}" in inputs')
    return f"{model} takes the input {name}, of type {kind}: say which it always is to have, {how}"


def _read_value(text: str, kind: str, name: str, model: str) -> Constant:
    inner = kind.removeprefix("Optional[").removesuffix("]")
    if inner != kind and text.lower() == "none":
        return None
    try:
        return _READ[inner](text)
    except (KeyError, ValueError) as error:
        raise InputSpecError(
            f"the input {name} of {model} is of type {kind}, {text!r} was stated"
        ) from error


@dataclass(frozen=True, slots=True)
class Leaf:
    """The tensor with this number among the flat ones."""

    index: int


@dataclass(frozen=True, slots=True)
class Sequenced:
    """A tuple (named ones count as such) or a list."""

    items: tuple[Tree, ...]
    is_list: bool = False
    named: type | None = None
    """Class of the named tuple, where TorchScript requires one."""


@dataclass(frozen=True, slots=True)
class Named:
    """A dict with strings as keys, in their order."""

    items: tuple[tuple[str, Tree], ...]


Tree = Leaf | Sequenced | Named | Constant


def tree_of(value: object) -> Tree:
    """Return the tree of a nested value, its tensors numbered in order (Leaf values stay)."""
    return _tree_of(value, itertools.count())


def _tree_of(value: object, numbers: Iterator[int]) -> Tree:
    if isinstance(value, Tensor):
        return Leaf(next(numbers))
    if isinstance(value, Leaf | None | bool | int | float | str):
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return Named(tuple((key, _tree_of(item, numbers)) for key, item in value.items()))
    if isinstance(value, tuple | list):
        items = tuple(_tree_of(item, numbers) for item in value)
        return Sequenced(items, isinstance(value, list))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
        return Named(tuple((name, _tree_of(v, numbers)) for name, v in pairs if v is not None))
    # a class registered with PyTorch's pytree: only its values are known
    return Sequenced(tuple(_tree_of(leaf, numbers) for leaf in pytree.tree_leaves(value)))


def annotation(tree: Tree) -> str:
    """Return the TorchScript type of a tree that :func:`with_types` made."""
    match tree:
        case Leaf():
            return "Tensor"
        case None:
            return "Optional[Tensor]"
        case Sequenced(items, is_list=False):
            return f"Tuple[{', '.join(map(annotation, items)) or '()'}]"
        case Sequenced(items):
            return f"List[{annotation(items[0]) if items else 'Tensor'}]"
        case Named(items):
            return f"Dict[str, {annotation(items[0][1]) if items else 'Tensor'}]"
        case _:
            return type(tree).__name__


def with_types(tree: Tree) -> Tree:
    """Return the tree with tuples in place of lists and dicts whose values have several types,
    which TorchScript does not support."""
    match tree:
        case Sequenced(items, is_list):
            parts = tuple(map(with_types, items))
            return Sequenced(parts, is_list and _one_type(parts))
        case Named(items):
            parts = tuple(with_types(item) for _, item in items)
            names = (name for name, _ in items)
            if _one_type(parts):
                return Named(tuple(zip(names, parts, strict=True)))
            return Sequenced(parts)
        case _:
            return tree


def _one_type(items: Sequence[Tree]) -> bool:
    return len(set(map(annotation, items))) <= 1


def retyped(name: str, before: Tree, after: Tree) -> Iterator[str]:
    """Yield a note for each list or dict that became a tuple."""
    match before, after:
        case Named(items), Sequenced(parts):
            yield (
                f"{name} is a dict of values of several types, which TorchScript has not: it"
                f" becomes a tuple of {', '.join(key for key, _ in items)}, in that order"
            )
            before_parts = [item for _, item in items]
        case Named(items), Named(others):
            before_parts, parts = [item for _, item in items], tuple(item for _, item in others)
        case Sequenced(items, is_list), Sequenced(parts, stays_list):
            if is_list and not stays_list:
                yield f"{name} is a list of values of several types: it becomes a tuple"
            before_parts = list(items)
        case _:
            return
    for old, new in zip(before_parts, parts, strict=True):
        yield from retyped(f"a part of {name}", old, new)


def expression(tree: Tree, leaves: Sequence[str]) -> str:
    """Return the TorchScript expression of a tree, given those of its tensors."""
    match tree:
        case Leaf(index):
            return leaves[index]
        case Sequenced(items, is_list, named):
            inner = [expression(item, leaves) for item in items]
            if is_list:
                return f"[{', '.join(inner)}]"
            if named is not None:
                return f"{named.__name__}({', '.join(inner)})"
            return f"({inner[0]},)" if len(inner) == 1 else f"({', '.join(inner)})"
        case Named(items):
            pairs = (f"{json.dumps(key)}: {expression(item, leaves)}" for key, item in items)
            return f"{{{', '.join(pairs)}}}"
        case _:
            return json.dumps(tree) if isinstance(tree, str) else repr(tree)


def named_classes(tree: Tree) -> Iterator[type]:
    """Yield the classes of named tuples that an expression names."""
    match tree:
        case Sequenced(items, _, named):
            if named is not None:
                yield named
            for item in items:
                yield from named_classes(item)
        case Named(items):
            for _, item in items:
                yield from named_classes(item)


def places(name: str, tree: Tree) -> Iterator[tuple[str, Leaf | Constant]]:
    """Yield each leaf and constant of the argument ``name`` with its expression."""
    match tree:
        case Sequenced(items):
            for index, item in enumerate(items):
                yield from places(f"{name}[{index}]", item)
        case Named(items):
            for key, item in items:
                yield from places(f"{name}[{json.dumps(key)}]", item)
        case _:
            yield name, tree


def checks(name: str, tree: Tree) -> Iterator[str]:
    """Yield TorchScript assertions that an argument has the expected constants and lengths."""
    match tree:
        case Sequenced(items, is_list):
            if is_list:
                yield _assertion(f"len({name}) == {len(items)}", name, f"{len(items)} items")
            for index, item in enumerate(items):
                yield from checks(f"{name}[{index}]", item)
        case Named(items):
            for key, item in items:
                place = f"{name}[{json.dumps(key)}]"
                yield _assertion(f"{json.dumps(key)} in {name}", name, f"the key {key}")
                yield from checks(place, item)
        case Leaf():
            pass
        case None:
            yield _assertion(f"{name} is None", name, "None")
        case _:
            literal = expression(tree, ())
            yield _assertion(f"{name} == {literal}", name, str(tree))


def _assertion(condition: str, name: str, expected: str) -> str:
    reason = f"{name}: the model was exported for {expected}"
    return f"assert {condition}, {json.dumps(reason)}"
