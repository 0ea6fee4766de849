"""Outline control flow on data: it stays TorchScript in an otherwise straight graph.

The interpreter carries out a TorchScript graph node by node. A number or branch that depends on the
values of a tensor is unknown then. It becomes a :class:`DeferredValue`, and so do all results
computed from it, up to a tensor whose shape does not depend on data. The nodes up to there become
one TorchScript function, which the graph calls.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from nnapi_prof.errors import FrontendError
from nnapi_prof.frontend.calls import DataDependent, TracedValue
from nnapi_prof.frontend.torchscript.builtins import all_nodes, overload_of, source
from nnapi_prof.frontend.tracer import GraphTracer
from nnapi_prof.graph.node import ScriptCall

NUMBERS = {"int": torch.int64, "float": torch.float64, "bool": torch.bool}
_VIEWS = re.compile(
    r"aten::(select|slice|narrow|view|reshape|(un)?squeeze|transpose|permute|expand|t|flatten)$"
)


@dataclass(eq=False)
class DeferredNode:
    """A node that waits to become part of a function, with all values that it reads."""

    node: Any
    env: dict[str, Any]
    where: str
    writes: tuple[str, ...] = ()
    """Names of outside tensors that it writes to; a function writes to copies."""
    graph: Any = None
    """Graph of a node that is not the model's, held to keep the node alive."""


@dataclass(eq=False)
class DeferredValue:
    """A result of a pending node: its output ``index`` or, where that is None, the new state of the
    container or tensor ``name`` that it changes."""

    step: DeferredNode
    index: int | None
    name: str = ""


def script_function(
    steps: Sequence[DeferredNode], targets: Sequence[DeferredValue | TracedValue]
) -> tuple[Callable[..., Any], list[TracedValue | Tensor]]:
    """Returns the steps as a TorchScript function of tensors, and its arguments."""
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
        # a separate tensor, also where a branch returns its input: tracing distinguishes values by
        # their tensors
        graph.registerOutput(graph.insertNode(graph.create("aten::alias", [value], 1)).output())
    if len(targets) > 1:
        graph.makeMultiOutputIntoTuple()
    graph.lint()
    script_function = torch._C._create_function_from_graph("kept", graph)
    return script_function, [content for content, _ in inputs.values()]


def _is_built(content: Any) -> bool:
    """Returns whether a value is a container that a function must build: a constant cannot be
    written to, nor hold tensors."""
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
    """Returns the names of all outside values that a node and its blocks read."""
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
    """Returns the names of outside containers that a node and its blocks change."""
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
    """Returns the names of outside tensors that a node and its blocks write to."""
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


CONTROL = ("prim::If", "prim::Loop")
_NO_SHAPE = frozenset(
    {
        *("other", "alpha", "value", "fill_value", "min", "max", "exponent", "self", "p", "eps"),
        *("negative_slope", "scale", "lambd", "threshold", "beta", "weight", "index", "shifts"),
    }
)
"""Names of number arguments in ATen that do not affect the result's shape."""
_TYPES: dict[str, Any] = {
    "int": torch._C.IntType,
    "float": torch._C.FloatType,
    "bool": torch._C.BoolType,
}
_SAMPLES = {"int": 0, "float": 1.0, "bool": True, "number": 1.0, "Scalar": 1.0}


class NodeInterpreter(Protocol):
    """An interpreter of a TorchScript graph, node by node, as an outliner sees it."""

    name: str
    tracer: GraphTracer
    values: dict[str, Any]
    """Values by their names in the graph."""

    def carry_out(self, node: Any, inputs: Sequence[Any]) -> list[Any]:
        """Runs a node on its inputs. Raises DataDependent where the result depends on data."""

    def block(self, block: Any) -> list[Any]:
        """Runs the nodes of a block; returns its outputs."""

    def looking(self, outliner: Outliner) -> NodeInterpreter:
        """Returns a walker that records nothing, to find the shapes of a block."""


@dataclass
class Outliner:
    """Turns nodes that depend on data into calls of TorchScript functions, during one walk of a
    graph. With ``shapes_only`` nothing is recorded: the walk only finds shapes."""

    shapes_only: bool = False
    steps: list[DeferredNode] = field(default_factory=list)
    checks: list[DeferredNode] = field(default_factory=list)
    n_functions: int = 0

    def node(self, walker: NodeInterpreter, node: Any, inputs: Sequence[Any]) -> list[Any]:
        """Returns a node's results: the walker runs the node, or it is deferred."""
        if not (has_deferred(inputs) and _reads_values(node, inputs)):
            if node.kind() == "prim::Loop" and self._breaks_on_data(walker, node, inputs):
                return self._keep(walker, node)
            try:
                return walker.carry_out(node, inputs)
            except DataDependent:
                pass
        return self._keep(walker, node)

    def _breaks_on_data(self, walker: NodeInterpreter, node: Any, inputs: Sequence[Any]) -> bool:
        (body,) = node.blocks()
        values = dict(zip([v.debugName() for v in body.inputs()], [0, *inputs[2:]], strict=True))
        ends = self._look(walker, body, values)
        return ends is not None and isinstance(ends[0], DeferredValue)

    def _keep(self, walker: NodeInterpreter, node: Any) -> list[Any]:
        where = source(node)
        before = {name: walker.values[name] for name in captured_names(node)}
        writes = mutated_tensors(node)
        for name in writes:
            self._require_alone(walker, walker.tracer.moving(before[name]), before[name], where)
        step = DeferredNode(node, _as_now(walker.tracer.now(before)), where)
        step.writes = writes
        self.steps.append(step)
        outputs = list(node.outputs())
        results: list[Any] = [DeferredValue(step, index) for index in range(len(outputs))]
        if not outputs:
            self.checks.append(step)
        for name in mutated_containers(node):
            _replace(walker.values, before[name], DeferredValue(step, None, name))
        fakes = list(self._certain(walker, node, step))
        sure = [i for i, fake in enumerate(fakes) if fake is not None]
        if sure and node.kind() in CONTROL:  # its numbers are results, too: it should run once
            for i, output in enumerate(outputs):
                if str(output.type()) in NUMBERS:
                    with walker.tracer.mode:
                        fakes[i] = torch.empty((), dtype=NUMBERS[str(output.type())])
                    sure.append(i)
        targets = [results[i] for i in sure]
        stand_ins = [fake for fake in (fakes[i] for i in sure) if fake is not None]
        for name in step.writes:
            targets.append(DeferredValue(step, None, name))
            stand_ins.append(step.env[name].fake)
        emitted = self.emit(walker, targets, stand_ins)
        for name, value in zip(step.writes, emitted[len(sure) :], strict=True):
            _replace(walker.values, before[name], value)
        emitted = emitted[: len(sure)]
        for i, value in zip(sure, emitted, strict=True):
            kind = str(outputs[i].type())
            results[i] = self._number(value, kind, where) if kind in NUMBERS else value
        return results

    def _number(self, tensor: TracedValue, kind: str, where: str) -> DeferredValue:
        """Returns the number in a tensor of rank 0, deferred."""
        graph = torch._C.Graph()
        argument = graph.addInput()
        argument.setType(torch._C.TensorType.get())
        node = graph.create(f"aten::{kind.title()}", [argument], 1)
        node.output().setType(_TYPES[kind].get())
        graph.insertNode(node)
        step = DeferredNode(node, {argument.debugName(): tensor}, where, graph=graph)
        self.steps.append(step)
        return DeferredValue(step, 0)

    def _require_alone(self, walker: NodeInterpreter, target: Any, value: Any, where: str) -> None:
        """Checks that no other value shares the memory of a tensor that is written to: ``target``
        in the graph, ``value`` in the walker. Raises FrontendError."""
        others = [v for v in pytree.tree_leaves(list(walker.values.values())) if v is not value]
        if not isinstance(target, TracedValue) or any(
            isinstance(v, TracedValue) and v.memory == target.memory
            for v in walker.tracer.now(others)
        ):
            raise FrontendError(
                f"{walker.name}: a branch or loop on the values of a tensor ({where}) writes"
                " to a tensor that is read elsewhere, too",
                "write to a copy of it",
            )

    # Shapes that do not depend on data

    def _certain(
        self, walker: NodeInterpreter, node: Any, step: DeferredNode
    ) -> list[Tensor | None]:
        """Returns stand-ins for outputs that are tensors of a certain shape; None for others."""
        outputs = list(node.outputs())
        if node.kind() == "prim::If":
            return self._of_branches(walker, node)
        if node.kind() == "prim::Loop":
            return self._of_loop(walker, node, step)
        if node.kind() == "prim::NumToTensor":
            dtype = NUMBERS.get(str(next(node.inputs()).type()))
            with walker.tracer.mode:
                return [None if dtype is None else torch.empty((), dtype=dtype)]
        return self._of_operator(walker, node, step) or [None] * len(outputs)

    def _of_branches(self, walker: NodeInterpreter, node: Any) -> list[Tensor | None]:
        ends = [self._look(walker, block, {}) for block in node.blocks() if not _raises(block)]
        fakes: list[Tensor | None] = []
        for index in range(node.outputsSize()):
            fakes.append(_common([_fake(end[index]) if end else None for end in ends]))
        return fakes

    def _of_loop(
        self, walker: NodeInterpreter, node: Any, step: DeferredNode
    ) -> list[Tensor | None]:
        """Finds the values whose type and shape a loop does not change, however often it runs."""
        (body,) = node.blocks()
        names = [value.debugName() for value in body.inputs()]
        carried = [step.env[value.debugName()] for value in list(node.inputs())[2:]]
        fakes = [_fake(value) for value in carried]
        while True:
            values: dict[str, Any] = {names[0]: DeferredValue(step, None)}
            for name, fake in zip(names[1:], fakes, strict=True):
                values[name] = DeferredValue(step, None) if fake is None else fake
            ends = self._look(walker, body, values)
            after = [_fake(end) for end in ends[1:]] if ends else [None] * len(fakes)
            settled = [_common([a, b]) for a, b in zip(fakes, after, strict=True)]
            if all((a is None) == (b is None) for a, b in zip(fakes, settled, strict=True)):
                return settled
            fakes = settled

    def _of_operator(
        self, walker: NodeInterpreter, node: Any, step: DeferredNode
    ) -> list[Tensor | None] | None:
        overload = overload_of(node)
        if overload is None:
            return None
        arguments = overload._schema.arguments
        args: dict[str, Any] = {}
        for value, argument in zip(node.inputs(), arguments, strict=False):
            argument_value = step.env[value.debugName()]
            if isinstance(argument_value, DeferredValue):
                sample = _SAMPLES.get(str(value.type()))
                if sample is None or argument.name not in _NO_SHAPE:
                    return None
                argument_value = sample
            elif has_deferred([argument_value]):
                return None
            args[argument.name] = argument_value
        args = pytree.tree_map_only(TracedValue, lambda v: v.fake, args)
        try:
            with walker.tracer.mode, torch.no_grad():
                result = overload(**args)
        except Exception:  # any failure: the shape is not certain
            return None
        return [result] if isinstance(result, Tensor) else None

    def _look(
        self, walker: NodeInterpreter, block: Any, values: dict[str, Any]
    ) -> list[Any] | None:
        """Runs a block on stand-ins and records nothing; None where that fails."""
        inner = walker.looking(Outliner(shapes_only=True))
        copies: dict[int, Any] = {}

        def copied(value: Any) -> Any:
            if isinstance(value, list):
                return [copied(item) for item in value]
            if isinstance(value, TracedValue):
                value = value.fake
            if isinstance(value, Tensor) and type(value) is not Tensor:  # a stand-in
                if id(value) not in copies:
                    node = inner.tracer.graph.placeholder("seen")
                    copies[id(value)] = TracedValue(node, value)
                return copies[id(value)]
            return value

        inner.values = {name: copied(value) for name, value in (walker.values | values).items()}
        try:
            return inner.block(block)
        except Exception:  # any failure: the shapes are not certain
            return None

    def settle(
        self, walker: NodeInterpreter, leaves: Sequence[Any], run: Callable[[], Any]
    ) -> list[Any]:
        """Returns the leaves of the model's result. Those of uncertain shape get their shapes on
        the example, for which ``run`` runs the model."""
        leaves = [one for leaf in leaves for one in self._unpacked(leaf)]
        late = [leaf for leaf in leaves if isinstance(leaf, DeferredValue)]
        if not late:
            return self._checked(walker, leaves)
        with torch.no_grad():
            returned = pytree.tree_leaves(run())
        if len(returned) != len(leaves) or any(
            isinstance(leaf, DeferredValue) and not isinstance(value, Tensor)
            for leaf, value in zip(leaves, returned, strict=False)
        ):
            raise FrontendError(
                f"{walker.name} returns a number, or lists of several lengths, that depend on the"
                f" values of a tensor ({late[0].step.where}): return tensors"
            )
        fakes = [
            walker.tracer.mode.from_tensor(value)
            for leaf, value in zip(leaves, returned, strict=True)
            if isinstance(leaf, DeferredValue)
        ]
        emitted = iter(self.emit(walker, late, fakes))
        return [next(emitted) if isinstance(leaf, DeferredValue) else leaf for leaf in leaves]

    def _unpacked(self, leaf: Any) -> list[Any]:
        """Returns the items of a tuple that depends on data; other leaves as they are."""
        if not isinstance(leaf, DeferredValue) or leaf.index is None:
            return [leaf]
        kind = list(leaf.step.node.outputs())[leaf.index].type()
        if kind.kind() != "TupleType":
            return [leaf]
        graph = torch._C.Graph()
        argument = graph.addInput()
        argument.setType(kind)
        node = graph.create("prim::TupleUnpack", [argument], len(kind.elements()))
        for output, item in zip(node.outputs(), kind.elements(), strict=True):
            output.setType(item)
        graph.insertNode(node)
        where = leaf.step.where
        step = DeferredNode(node, {argument.debugName(): leaf}, where, graph=graph)
        self.steps.append(step)
        items = [DeferredValue(step, index) for index in range(len(kind.elements()))]
        return [one for item in items for one in self._unpacked(item)]

    def _checked(self, walker: NodeInterpreter, leaves: list[Any]) -> list[Any]:
        """Returns the leaves, one of them through a function that makes the remaining checks."""
        first = next((i for i, leaf in enumerate(leaves) if isinstance(leaf, TracedValue)), None)
        if self.checks and first is not None:
            (leaves[first],) = self.emit(walker, [leaves[first]], [leaves[first].fake])
        return leaves

    # Functions

    def emit(
        self,
        walker: NodeInterpreter,
        targets: Sequence[DeferredValue | TracedValue],
        fakes: Sequence[Tensor],
    ) -> list[TracedValue]:
        """Makes the graph call a function that computes ``targets``, with stand-ins ``fakes``."""
        if not targets:
            return []
        if self.shapes_only:
            node = walker.tracer.graph.placeholder("kept")
            return [TracedValue(node, fake) for fake in fakes]
        steps = self._needed(targets)
        function, inputs = script_function(steps, targets)
        control = (s.node.kind() for s in reversed(steps) if s.node.kind() in CONTROL)
        operators = (s.node.kind() for s in steps if not s.node.kind().startswith("prim"))
        construct = next(control, None) or next(operators, "number")
        self.n_functions += 1
        word = construct.rpartition(":")[2].lower()
        call = ScriptCall(function, self.n_functions, f"{word}_on_data", steps[-1].where)
        return walker.tracer.script_call(call, inputs, fakes)

    def _needed(self, targets: Sequence[DeferredValue | TracedValue]) -> list[DeferredNode]:
        """Returns the pending nodes that ``targets`` need, in order, including pending checks."""
        needed: set[int] = set()
        waiting = [later.step for later in deferred_values(targets)]
        waiting += self.checks
        self.checks = []
        while waiting:
            step = waiting.pop()
            if id(step) in needed:
                continue
            needed.add(id(step))
            for value in step.env.values():
                waiting += [later.step for later in deferred_values(value)]
        return [step for step in self.steps if id(step) in needed]


def _reads_values(node: Any, inputs: Sequence[Any]) -> bool:
    """Returns whether a node reads its inputs, rather than moving them into or out of lists."""
    kind = node.kind()
    if kind in ("prim::ListConstruct", "prim::TupleConstruct", "prim::DictConstruct"):
        return False
    container = inputs and isinstance(inputs[0], list | tuple | dict)
    if container and kind in ("prim::ListUnpack", "prim::TupleUnpack", "aten::append"):
        return False
    if container and kind in ("prim::TupleIndex", "aten::__getitem__", "aten::len"):
        return has_deferred(inputs[1:])
    return True


def _as_now(values: dict[str, Any]) -> dict[str, Any]:
    """Copies the values, so that later writes do not change them; identical ones stay identical."""
    copies: dict[int, Any] = {}
    for value in values.values():
        if isinstance(value, TracedValue | list | tuple | dict) and id(value) not in copies:
            copies[id(value)] = pytree.tree_map_only(TracedValue, replace, value)
    return {name: copies.get(id(value), value) for name, value in values.items()}


def _replace(values: dict[str, Any], old: Any, new: Any) -> None:
    for name, value in values.items():
        if value is old:
            values[name] = new


def _raises(block: Any) -> bool:
    return any(node.kind() == "prim::RaiseException" for node in block.nodes())


def _fake(value: Any) -> Tensor | None:
    if isinstance(value, TracedValue):
        return value.fake
    return value if isinstance(value, Tensor) else None


def _common(fakes: Sequence[Tensor | None]) -> Tensor | None:
    """Returns one stand-in for all, where they are of one shape and element type."""
    first = fakes[0] if fakes else None
    for fake in fakes:
        if fake is None or first is None:
            return None
        if (fake.shape, fake.dtype) != (first.shape, first.dtype):
            return None
    return first
