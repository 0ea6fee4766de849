"""Nodes of a TorchScript graph that wait, and the functions that they become."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from nnapi_prof.frontend.calls import TracedValue
from nnapi_prof.frontend.torchscript.builtins import all_nodes

NUMBERS = {"int": torch.int64, "float": torch.float64, "bool": torch.bool}
_VIEWS = re.compile(
    r"aten::(select|slice|narrow|view|reshape|(un)?squeeze|transpose|permute|expand|t|flatten)$"
)


@dataclass(eq=False)
class DeferredNode:
    """A node that waits to become part of a function, with the values of all that it reads."""

    node: Any
    env: dict[str, Any]
    where: str
    writes: tuple[str, ...] = ()
    """Names of the tensors from outside that it writes to: a function writes to copies."""
    graph: Any = None
    """Keeps a node alive that is none of the model's."""


@dataclass(eq=False)
class DeferredValue:
    """A result of a pending node: its output ``index``, or where that is None the new state of the
    container ``name`` that it changes."""

    step: DeferredNode
    index: int | None
    name: str = ""


def script_function(
    steps: Sequence[DeferredNode], targets: Sequence[DeferredValue | TracedValue]
) -> tuple[Callable[..., Any], list[TracedValue | Tensor]]:
    """The steps as a TorchScript function of tensors, and what it is to be called with."""
    graph = torch._C.Graph()
    inputs: dict[int, tuple[TracedValue | Tensor, Any]] = {}
    copies: dict[tuple[int, int | None, str], Any] = {}
    rebuilt: dict[int, Any] = {}

    def value_of(content: Any, kind: Any) -> Any:
        if isinstance(content, DeferredValue):
            return copies[id(content.step), content.index, content.name]
        if isinstance(content, TracedValue | Tensor):
            key = content.data_ptr() if isinstance(content, Tensor) else id(content.node)
            if key not in inputs:
                value = graph.addInput()
                value.setType(torch._C.TensorType.get())
                inputs[key] = content, value
            return inputs[key][1]
        if _is_built(content):
            if id(content) not in rebuilt:
                rebuilt[id(content)] = _container(graph, content, kind, value_of)
            return rebuilt[id(content)]
        return graph.insertConstant(content)  # type: ignore[attr-defined]

    for step in steps:

        def look(value: Any, step: DeferredNode = step) -> Any:
            name = value.debugName()
            if (id(step), None, name) in copies:
                return copies[id(step), None, name]
            copy = value_of(step.env[name], value.type())
            if name in step.writes:
                nothing = graph.insertConstant(None)  # type: ignore[attr-defined]
                copy = graph.insertNode(graph.create("aten::clone", [copy, nothing], 1)).output()
            copies[id(step), None, name] = copy
            return copy

        clone = graph.createClone(step.node, look)  # type: ignore[attr-defined]
        graph.insertNode(clone)
        for index, output in enumerate(clone.outputs()):
            copies[id(step), index, ""] = output
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
    script_function = torch._C._create_function_from_graph("kept", graph)
    return script_function, [content for content, _ in inputs.values()]


def _is_built(content: Any) -> bool:
    """Whether a value is a container that a function must build: a constant cannot be written to,
    nor hold tensors."""
    if not isinstance(content, list | tuple | dict):
        return False
    leaves = pytree.tree_leaves(content)
    return not leaves or any(
        isinstance(leaf, TracedValue | Tensor | DeferredValue) for leaf in leaves
    )


def _container(graph: Any, content: Any, kind: Any, value_of: Callable[..., Any]) -> Any:
    if isinstance(content, dict):
        kinds, items = [kind.getKeyType(), kind.getValueType()], []
        for pair in content.items():
            items += [value_of(item, of) for item, of in zip(pair, kinds, strict=True)]
        construct = graph.create("prim::DictConstruct", items, 1)
        graph.insertNode(construct)
        construct.output().setType(kind)
        return construct.output()
    is_list = isinstance(content, list)
    kinds = [kind.getElementType()] * len(content) if is_list else kind.elements()
    items = [value_of(item, of) for item, of in zip(content, kinds, strict=True)]
    construct = graph.create("prim::ListConstruct" if is_list else "prim::TupleConstruct", items, 1)
    graph.insertNode(construct)
    construct.output().setType(kind)
    return construct.output()


def has_deferred(values: Any) -> bool:
    return next(deferred_values(values), None) is not None


def deferred_values(values: Any) -> Iterator[DeferredValue]:
    for leaf in pytree.tree_leaves(values):
        if isinstance(leaf, DeferredValue):
            yield leaf


def _inner_nodes(node: Any) -> Iterator[Any]:
    return itertools.chain.from_iterable(map(all_nodes, node.blocks()))


def captured_names(node: Any) -> list[str]:
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


def mutated_containers(node: Any) -> list[str]:
    """Containers from outside that a node and its blocks append to."""
    outside = set(captured_names(node))
    writes = ("aten::append", "aten::_set_item", "aten::insert", "aten::extend", "aten::pop")
    return [
        name
        for inner in (node, *_inner_nodes(node))
        if inner.kind() in writes
        for name in [next(inner.inputs()).debugName()]
        if name in outside
    ]


def mutated_tensors(node: Any) -> tuple[str, ...]:
    """Names of the tensors from outside that a node and its blocks write to."""
    outside = set(captured_names(node))
    names: dict[str, None] = {}
    for inner in (node, *_inner_nodes(node)):
        kind = inner.kind()
        if not (kind.startswith("aten::") and kind.endswith("_") and not kind.endswith("__")):
            continue
        target = next(inner.inputs())
        while target.debugName() not in outside and _VIEWS.match(target.node().kind()):
            target = next(target.node().inputs())
        if target.debugName() in outside:
            names[target.debugName()] = None
    return tuple(names)
