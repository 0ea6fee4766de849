"""TorchScript nodes that wait until a tensor comes out of them, and the functions they become."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from nnapi_prof.frontend.steps import Moving

NUMBERS = {"int": torch.int64, "float": torch.float64, "bool": torch.bool}
_VIEWS = re.compile(
    r"aten::(select|slice|narrow|view|reshape|(un)?squeeze|transpose|permute|expand|t|flatten)$"
)


@dataclass(eq=False)
class Pending:
    """A node that waits to become part of a function, with the values of all that it reads."""

    node: Any
    env: dict[str, Any]
    where: str
    written: tuple[str, ...] = ()
    """Names of the tensors from outside that it writes to: a function writes to copies."""
    graph: Any = None
    """Keeps a node alive that is none of the model's."""


@dataclass(eq=False)
class Later:
    """What a pending node makes: its output ``index``, or where that is None what it makes of the
    container ``name`` that it changes."""

    step: Pending
    index: int | None
    name: str = ""


def function(
    steps: Sequence[Pending], targets: Sequence[Later | Moving]
) -> tuple[Callable[..., Any], list[Moving | Tensor]]:
    """The steps as a TorchScript function of tensors, and what it is to be called with."""
    graph = torch._C.Graph()
    inputs: dict[int, tuple[Moving | Tensor, Any]] = {}
    made: dict[tuple[int, int | None, str], Any] = {}
    rebuilt: dict[int, Any] = {}

    def value_of(known: Any, kind: Any) -> Any:
        if isinstance(known, Later):
            return made[id(known.step), known.index, known.name]
        if isinstance(known, Moving | Tensor):
            key = known.data_ptr() if isinstance(known, Tensor) else id(known.node)
            if key not in inputs:
                value = graph.addInput()
                value.setType(torch._C.TensorType.get())
                inputs[key] = known, value
            return inputs[key][1]
        if _is_built(known):
            if id(known) not in rebuilt:
                rebuilt[id(known)] = _container(graph, known, kind, value_of)
            return rebuilt[id(known)]
        return graph.insertConstant(known)  # type: ignore[attr-defined]

    for step in steps:

        def look(value: Any, step: Pending = step) -> Any:
            name = value.debugName()
            if (id(step), None, name) in made:
                return made[id(step), None, name]
            found = value_of(step.env[name], value.type())
            if name in step.written:
                nothing = graph.insertConstant(None)  # type: ignore[attr-defined]
                found = graph.insertNode(graph.create("aten::clone", [found, nothing], 1)).output()
            made[id(step), None, name] = found
            return found

        clone = graph.createClone(step.node, look)  # type: ignore[attr-defined]
        graph.insertNode(clone)
        for index, output in enumerate(clone.outputs()):
            made[id(step), index, ""] = output
    for target in targets:
        value = value_of(target, None)
        if str(value.type()) in NUMBERS:
            number = graph.insertNode(graph.create("prim::NumToTensor", [value], 1))
            value = number.output()
        # a tensor of its own, also where a branch returns what came in: tracing tells values apart
        # by their tensors
        graph.registerOutput(graph.insertNode(graph.create("aten::alias", [value], 1)).output())
    if len(targets) > 1:
        graph.makeMultiOutputIntoTuple()
    graph.lint()
    function = torch._C._create_function_from_graph("kept", graph)
    return function, [known for known, _ in inputs.values()]


def _is_built(known: Any) -> bool:
    """Whether a value is a container that a function must build: a constant cannot be written to,
    nor hold tensors."""
    if not isinstance(known, list | tuple | dict):
        return False
    leaves = pytree.tree_leaves(known)
    return not leaves or any(isinstance(leaf, Moving | Tensor | Later) for leaf in leaves)


def _container(graph: Any, known: Any, kind: Any, value_of: Callable[..., Any]) -> Any:
    if isinstance(known, dict):
        kinds, items = [kind.getKeyType(), kind.getValueType()], []
        for pair in known.items():
            items += [value_of(item, of) for item, of in zip(pair, kinds, strict=True)]
        construct = graph.create("prim::DictConstruct", items, 1)
        graph.insertNode(construct)
        construct.output().setType(kind)
        return construct.output()
    is_list = isinstance(known, list)
    kinds = [kind.getElementType()] * len(known) if is_list else kind.elements()
    items = [value_of(item, of) for item, of in zip(known, kinds, strict=True)]
    construct = graph.create("prim::ListConstruct" if is_list else "prim::TupleConstruct", items, 1)
    graph.insertNode(construct)
    construct.output().setType(kind)
    return construct.output()


def has_later(values: Any) -> bool:
    return next(laters(values), None) is not None


def laters(values: Any) -> Iterator[Later]:
    for leaf in pytree.tree_leaves(values):
        if isinstance(leaf, Later):
            yield leaf


def _inner_nodes(node: Any) -> Iterator[Any]:
    for block in node.blocks():
        for inner in block.nodes():
            yield inner
            yield from _inner_nodes(inner)


def captured(node: Any) -> list[str]:
    """Names of all values from outside that a node and its blocks read."""
    own: set[str] = set()
    read: dict[str, None] = dict.fromkeys(v.debugName() for v in node.inputs())
    blocks = list(node.blocks())
    for inner in _inner_nodes(node):
        own |= {v.debugName() for v in inner.outputs()}
        blocks += inner.blocks()
        read |= dict.fromkeys(v.debugName() for v in inner.inputs())
    for block in blocks:
        own |= {v.debugName() for v in block.inputs()}
        read |= dict.fromkeys(v.debugName() for v in block.outputs())
    return [name for name in read if name not in own]


def changed(node: Any) -> list[str]:
    """Containers from outside that a node and its blocks append to."""
    outside = set(captured(node))
    writes = ("aten::append", "aten::_set_item", "aten::insert", "aten::extend", "aten::pop")
    return [
        name
        for inner in (node, *_inner_nodes(node))
        if inner.kind() in writes
        for name in [next(inner.inputs()).debugName()]
        if name in outside
    ]


def written(node: Any) -> tuple[str, ...]:
    """Names of the tensors from outside that a node and its blocks write to."""
    outside = set(captured(node))
    found: dict[str, None] = {}
    for inner in (node, *_inner_nodes(node)):
        kind = inner.kind()
        if not (kind.startswith("aten::") and kind.endswith("_") and not kind.endswith("__")):
            continue
        written = next(inner.inputs())
        while written.debugName() not in outside and _VIEWS.match(written.node().kind()):
            written = next(written.node().inputs())
        if written.debugName() in outside:
            found[written.debugName()] = None
    return tuple(found)
