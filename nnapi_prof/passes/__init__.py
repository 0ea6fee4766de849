"""Bring a model's graph to the normal form that lowerings read: passes, and their small engine.

The engine is a table of rules by overload. A rule is a function of a :class:`Site` that returns a
node to replace the old one, or None to keep it. New nodes must already be in normal form, because a
pass visits each node once.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from nnapi_prof.graph import TensorType
from nnapi_prof.graph.node import (
    META,
    add_constant,
    bound_args,
    calls,
    constant_value,
    insert_call,
    is_constant,
    positive_dim,
    type_of,
)

aten = torch.ops.aten


class Site:
    """Node that is being rewritten: its arguments by name, and methods that insert calls."""

    def __init__(self, node: fx.Node) -> None:
        self.node = node
        self.graph = node.graph
        self.args: dict[str, Any] = bound_args(node)

    @property
    def type(self) -> TensorType:
        """Type of the node's value."""
        return type_of(self.node)

    @property
    def target(self) -> OpOverload:
        """Operator that the node calls."""
        assert isinstance(self.node.target, OpOverload)
        return self.node.target

    def input(self, name: str = "self") -> fx.Node:
        """Returns the node of a tensor argument."""
        node = self.args[name]
        assert isinstance(node, fx.Node), f"{self.node.name}: {name} is {node!r}, wanted a tensor"
        return node

    def constant(self, name: str) -> Tensor | None:
        """Returns the value of a constant tensor argument; None for any other."""
        return constant_value(self.args[name]) if is_constant(self.args[name]) else None

    def call(self, target: OpOverload, *args: Any, **kwargs: Any) -> fx.Node:
        """Inserts a call before the node."""
        with self.graph.inserting_before(self.node):
            call = insert_call(self.graph, target, args, kwargs)
        if META in self.node.meta:
            call.meta[META] = self.node.meta[META]
        return call

    def reshape(self, node: fx.Node, shape: Sequence[int]) -> fx.Node:
        """Inserts a reshape. Unlike a view, eager PyTorch runs it on permuted memory too."""
        return self.call(aten.reshape.default, node, list(shape))

    def view(self, node: fx.Node, shape: Sequence[int]) -> fx.Node:
        """Inserts a view."""
        return self.call(aten.view.default, node, list(shape))

    def slices(self, dim: int, sizes: Iterable[int]) -> list[fx.Node]:
        """Slices ``self`` along ``dim`` into parts of these sizes."""
        source, ends = self.input(), list(itertools.accumulate(sizes))
        dim = positive_dim(dim, len(type_of(source).shape))
        return [
            self.call(aten.slice.Tensor, source, dim, start, end, 1)
            for start, end in zip([0, *ends], ends, strict=False)
        ]

    def call_on(self, swap: Mapping[fx.Node, fx.Node]) -> fx.Node:
        """Inserts the node's own call with some of its input nodes replaced."""
        args: Any = fx.node.map_arg(self.node.args, lambda node: swap.get(node, node))
        kwargs: Any = fx.node.map_arg(self.node.kwargs, lambda node: swap.get(node, node))
        return self.call(self.target, *args, **kwargs)

    def call_with(self, args: Mapping[str, Any]) -> fx.Node:
        """Inserts the node's own call with some arguments changed, by name."""
        changed = {**self.args, **args}
        positional = [a.name for a in self.target._schema.arguments if not a.kwarg_only]
        kwargs = {name: value for name, value in changed.items() if name not in positional}
        return self.call(self.target, *(changed[name] for name in positional), **kwargs)

    def add_constant(self, value: Tensor, hint: str) -> fx.Node:
        """Inserts a constant before the node."""
        with self.graph.inserting_before(self.node):
            return add_constant(self.graph, value, hint)

    def is_already(self, target: OpOverload, args: Sequence[Any]) -> bool:
        """Returns whether the node already is exactly this call, with positional arguments."""
        return self.node.target is target and not self.node.kwargs and _alike(self.node.args, args)

    def become(self, target: OpOverload, *args: Any) -> fx.Node | None:
        """Returns the normal spelling of this node; None where the node already has it."""
        return None if self.is_already(target, args) else self.call(target, *args)


def _alike(a: Any, b: Any) -> bool:
    """Returns whether arguments are equal; 1, 1.0 and True differ, and a list is any sequence."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_alike, a, b))
    return type(a) is type(b) and bool(a == b)


Rule = Callable[[Site], fx.Node | None]
ManyRule = Callable[[Site], list[fx.Node] | None]
AnyRule = TypeVar("AnyRule", Rule, ManyRule)


def only_first_read(node: fx.Node) -> bool:
    """Returns whether only the first of a node's several values is read."""
    return all(user.args[1] == 0 for user in node.users if user.users)


def first_of(rule: Rule) -> ManyRule:
    """Returns a rule for nodes of several values; it applies if only the first is read."""

    def many(site: Site) -> list[fx.Node] | None:
        node = rule(site) if only_first_read(site.node) else None
        return None if node is None else [node]

    return many


def apply_rules(graph: fx.Graph, rules: Mapping[OpOverload, Rule]) -> int:
    """Applies to every call the rule for its overload; returns the number of nodes replaced."""
    changed = 0
    for node, rule in _rules_of(graph, rules):
        replacement = rule(Site(node))
        if replacement is None or replacement is node:
            continue
        node.replace_all_uses_with(replacement)
        graph.erase_node(node)
        changed += 1
    return changed


def apply_many_rules(graph: fx.Graph, rules: Mapping[OpOverload, ManyRule]) -> int:
    """Applies rules like :func:`apply_rules`, to nodes of several values read through ``getitem``.

    The rule returns one node for each value, in order.
    """
    changed = 0
    for node, rule in _rules_of(graph, rules):
        replacements = rule(Site(node))
        if replacements is None:
            continue
        for reader in list(node.users):
            assert reader.target is operator.getitem, f"{reader.name} reads all of {node.name}"
            index = reader.args[1]
            assert isinstance(index, int)
            reader.replace_all_uses_with(replacements[index])
            graph.erase_node(reader)
        graph.erase_node(node)
        changed += 1
    return changed


def _rules_of(
    graph: fx.Graph, rules: Mapping[OpOverload, AnyRule]
) -> Iterator[tuple[fx.Node, AnyRule]]:
    """Yields the calls that are read and have a rule, with the rule."""
    for node in calls(graph):
        rule = rules.get(node.target) if isinstance(node.target, OpOverload) else None
        if rule is not None and node.users:
            yield node, rule


def erase_unused(graph: fx.Graph) -> int:
    """Erases calls and constants without readers, and buffers without nodes."""
    erased = 0
    for node in reversed(list(graph.nodes)):
        if not node.users and node.op in ("call_function", "get_attr"):
            graph.erase_node(node)
            erased += 1
    module = graph.owning_module
    if module is not None:
        named = {node.target for node in graph.find_nodes(op="get_attr")}
        for name in [name for name, _ in module.named_buffers(recurse=False) if name not in named]:
            delattr(module, name)
    return erased
