"""Nested values: tuples, lists and dicts around flat tensors, and how TorchScript says them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.utils import _pytree as pytree

from nnapi_prof.errors import NnapiProfError

Constant = None | bool | int | float | str


@dataclass(frozen=True, slots=True)
class Leaf:
    """The tensor with this number among the flat ones."""

    index: int


@dataclass(frozen=True, slots=True)
class Sequenced:
    """A tuple (named ones count as such) or a list."""

    items: tuple[Tree, ...]
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """A dict with strings as keys, in their order."""

    items: tuple[tuple[str, Tree], ...]


Tree = Leaf | Sequenced | Named | Constant


def tree_of(value: object) -> Tree:
    """The tree of a nested value, its tensors numbered in their order (Leaf values stay)."""
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
    # a class that PyTorch was told how to flatten: its values alone can be said
    return Sequenced(tuple(_tree_of(leaf, numbers) for leaf in pytree.tree_leaves(value)))


def annotation(tree: Tree) -> str:
    """The TorchScript type of a tree. Raises NnapiProfError where there is none: TorchScript's
    lists and dicts hold values of one type."""
    match tree:
        case Leaf():
            return "Tensor"
        case None:
            return "Optional[Tensor]"
        case Sequenced(items, is_list=False):
            return f"Tuple[{', '.join(map(annotation, items)) or '()'}]"
        case Sequenced(items):
            return f"List[{_one_type('list', items)}]"
        case Named(items):
            return f"Dict[str, {_one_type('dict', [item for _, item in items])}]"
        case _:
            return type(tree).__name__


def _one_type(kind: str, items: Sequence[Tree]) -> str:
    types = sorted(set(map(annotation, items)))
    if len(types) > 1:
        raise NnapiProfError(
            f"a {kind} of values of several types ({' and '.join(types)}): TorchScript has none, "
            f"wrap the model so that it takes and returns tuples or {kind}s of one type"
        )
    return types[0] if types else "Tensor"


def expression(tree: Tree, leaves: Sequence[str]) -> str:
    """The TorchScript expression of a tree, given those of its tensors."""
    match tree:
        case Leaf(index):
            return leaves[index]
        case Sequenced(items, is_list):
            inner = [expression(item, leaves) for item in items]
            if is_list:
                return f"[{', '.join(inner)}]"
            return f"({inner[0]},)" if len(inner) == 1 else f"({', '.join(inner)})"
        case Named(items):
            pairs = (f"{json.dumps(key)}: {expression(item, leaves)}" for key, item in items)
            return f"{{{', '.join(pairs)}}}"
        case _:
            return json.dumps(tree) if isinstance(tree, str) else repr(tree)


def places(name: str, tree: Tree) -> Iterator[tuple[str, Leaf | Constant]]:
    """The expression of each leaf and constant of an argument called ``name``."""
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
    """TorchScript assertions that an argument has the constants and lengths that it must."""
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
            said = expression(tree, ())
            yield _assertion(f"{name} == {said}", name, str(tree))


def _assertion(condition: str, name: str, wanted: str) -> str:
    reason = f"{name}: the model was exported for {wanted}"
    return f"assert {condition}, {json.dumps(reason)}"
