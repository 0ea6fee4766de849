"""TorchScript models that take tuples, lists and dicts, as models that take tensors alone.

What TorchScript does not store is found in the code: how many items a list has by its unpacking or
by the indices that are read, which keys a dict has by those that are read, in that order. Bundled
inputs (torch.utils.bundled_inputs) go first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from nnapi_prof.errors import InputSpecError
from nnapi_prof.frontend.quiet import quiet_torch
from nnapi_prof.frontend.trees import Leaf, Named, Sequenced, Tree, expression, tree_of

_PLAIN = ("Tensor", "Optional[Tensor]")


def input_trees(model: torch.jit.ScriptModule, name: str) -> dict[str, Tree]:
    """What each argument of ``forward`` holds (``arg_0``, ...), its tensors numbered through; empty
    where the model takes tensors alone.

    Arguments with defaults that are no tensors are left out. Raises InputSpecError where a type
    holds others than tensors, or its length or keys are nowhere to be found.
    """
    forward: Any = model.forward
    arguments = [a for a in forward.schema.arguments[1:] if not _left_out(a)]
    if all(str(a.type) in _PLAIN for a in arguments):
        return {}
    numbers = itertools.count()
    example = _bundled(model)
    if example is not None and len(example) >= len(arguments):
        flat = tree_of(tuple(example[: len(arguments)]))
        assert isinstance(flat, Sequenced)
        return {f"arg_{index}": tree for index, tree in enumerate(flat.items)}

    def said(argument: Any) -> str:
        return f"{name} takes the input {argument.name} of type {argument.type}"

    values = list(model.inlined_graph.inputs())[1:]
    positions = [i for i, a in enumerate(forward.schema.arguments[1:]) if not _left_out(a)]
    return {
        f"arg_{number}": _tree(argument.type, values[position], said(argument), numbers)
        for number, (position, argument) in enumerate(zip(positions, arguments, strict=True))
    }


def flat_inputs(model: torch.jit.ScriptModule, name: str) -> torch.jit.ScriptModule:
    """A model that takes the tensors of ``model``'s inputs one by one; itself, if it does already.

    Raises InputSpecError as :func:`input_trees` does.
    """
    trees = input_trees(model, name)
    if not trees:
        return model

    class Flat(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

    names = [f"input_{index}" for index in range(sum(map(_n_leaves, trees.values())))]
    given = ", ".join(expression(tree, names) for tree in trees.values())
    with quiet_torch():
        flat = torch.jit.script(Flat())
        arguments = ", ".join(f"{name}: Tensor" for name in names)
        flat.define(f"def forward(self, {arguments}):\n    return self.model({given})\n")
        flat.eval()
    example = _bundled(model)
    if example is not None:  # where the front end looks for it
        leaves = [leaf for leaf in pytree.tree_leaves(example) if isinstance(leaf, Tensor)]
        object.__setattr__(flat, "get_all_bundled_inputs", lambda: [tuple(leaves)])
    assert isinstance(flat, torch.jit.ScriptModule)
    return flat


def _left_out(argument: Any) -> bool:
    return bool(argument.has_default_value()) and str(argument.type) not in _PLAIN


def _bundled(model: torch.jit.ScriptModule) -> Sequence[object] | None:
    if not hasattr(model, "get_all_bundled_inputs"):
        return None
    with quiet_torch():
        examples = model.get_all_bundled_inputs()
    return examples[0] if examples else None


def _n_leaves(tree: Tree) -> int:
    match tree:
        case Leaf():
            return 1
        case Sequenced(items):
            return sum(map(_n_leaves, items))
        case Named(items):
            return sum(_n_leaves(item) for _, item in items)
        case _:
            return 0


def _tree(kind: Any, value: Any, said: str, numbers: Iterator[int]) -> Tree:
    """The tree of a type; ``value`` is what has it in the graph, None inside of others. ``said``
    begins the refusal."""
    if str(kind) in _PLAIN:
        return Leaf(next(numbers))
    if kind.kind() == "TupleType":
        return Sequenced(tuple(_tree(item, None, said, numbers) for item in kind.elements()))
    if kind.kind() == "ListType":
        n = _n_items(value) if value is not None else None
        if n is not None:
            item = kind.getElementType()
            return Sequenced(tuple(_tree(item, None, said, numbers) for _ in range(n)), True)
    if kind.kind() == "DictType" and str(kind.getKeyType()) == "str":
        keys = _keys(value) if value is not None else []
        if keys:
            item = kind.getValueType()
            return Named(tuple((key, _tree(item, None, said, numbers)) for key in keys))
    raise InputSpecError(
        f"{said}: only tensors can be given, in tuples, or in lists and dicts whose items the code"
        " names; wrap the model so that it takes tensors, or bundle an example"
        " (torch.utils.bundled_inputs)"
    )


def _n_items(value: Any) -> int | None:
    """Items of a list by the nodes that read it; None where they do not tell."""
    n = 0
    for use in value.uses():
        node = use.user
        if node.kind() == "prim::ListUnpack":
            return int(node.outputsSize())
        if node.kind() == "aten::__getitem__":
            index = node.inputsAt(1).toIValue()
            if not isinstance(index, int) or index < 0:
                return None
            n = max(n, index + 1)
        elif node.kind() != "aten::len":
            return None
    return n or None


def _keys(value: Any) -> list[str]:
    """Keys of a dict by the nodes that read it; none where they do not tell."""
    found: dict[str, None] = {}
    for use in value.uses():
        node = use.user
        if node.kind() not in ("aten::__getitem__", "aten::__contains__"):
            return []
        key = node.inputsAt(1).toIValue()
        if not isinstance(key, str):
            return []
        found[key] = None
    return list(found)
