"""Keep parts of an ExportedProgram that depend on data as calls of PyTorch in a straight graph.

A mask that picks rows, or a branch or loop on values, has results whose shapes are unknown until
they are computed. Such a node is deferred, and so are its readers, until a result has a shape that
does not depend on data and a reader that the graph can hold. The deferred nodes up to there become
one function, which the graph calls and which runs on the host.

A file for stock PyTorch holds these functions as TorchScript. An exported graph has constructs that
TorchScript lacks: overloads, numbers read from tensors, and branches and loops that are operators
on graphs (``cond``, ``while_loop``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from nnapi_prof.frontend.calls import DataDependent, TracedValue
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.frontend.tracer import GraphTracer, source_of
from nnapi_prof.graph.node import ScriptCall, op_name

aten = torch.ops.aten
_PLACED = ("device", "layout", "pin_memory")


def scripted(module: fx.GraphModule) -> Callable[..., Any]:
    """Return the function as TorchScript, which does not fix shapes as a trace does; the module
    itself where TorchScript cannot express it."""
    try:
        with quiet_torch():
            return _scripted(module)
    except Exception:  # TorchScript cannot express it: PyTorch itself runs it
        return module


def _scripted(module: fx.GraphModule) -> torch.jit.ScriptModule:
    graph = fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    root = fx.GraphModule(module, graph)
    for node in list(graph.nodes):
        if node.op == "placeholder" and isinstance(node.meta.get("val"), torch.SymInt):
            node.type = int
        elif isinstance(node.target, HigherOrderOperator):
            _spell_control(root, node)
        elif isinstance(node.target, OpOverload):
            _spell(node)
    for node in graph.find_nodes(op="get_attr"):
        if not node.users:  # a graph that a module holds now: TorchScript reads all members
            graph.erase_node(node)
    script = torch.jit.script(fx.GraphModule(root, graph))
    assert isinstance(script, torch.jit.ScriptModule)
    return script


def _spell(node: fx.Node) -> None:
    """Name an overload as TorchScript does."""
    target = node.target
    assert isinstance(target, OpOverload)
    node.kwargs = {name: v for name, v in node.kwargs.items() if name not in _PLACED}
    if target in (aten.item.default, aten._local_scalar_dense.default):
        (source,) = node.all_input_nodes
        value = source.meta.get("val")
        is_float = isinstance(value, Tensor) and value.is_floating_point()
        is_bool = isinstance(value, Tensor) and value.dtype is torch.bool
        node.target = float if is_float else bool if is_bool else int
    elif target is aten.sym_size.int:
        node.op, node.target = "call_method", "size"
    elif target is aten.sym_numel.default:
        node.op, node.target = "call_method", "numel"
    else:
        node.target = target.overloadpacket


def _spell_control(root: fx.GraphModule, node: fx.Node) -> None:
    """Replace a call of ``cond`` or ``while_loop`` by one of a module with that statement."""
    name = str(node.target.name())  # type: ignore[union-attr]
    args: Any = node.args
    if name == "cond":
        read, graphs, operands = args[0], args[1:3], args[3]
        if_true, if_false = _functions(root, graphs)
        script = _branch(if_true, if_false, *_declared(operands))
        arguments = (read, *operands)
    elif name == "while_loop":
        graphs, carried, others = args[:2], args[2], args[3] if len(args) > 3 else ()
        arguments = (*carried, *others)
        condition, body = _functions(root, graphs)
        script = _loop(condition, body, *_declared(arguments), len(carried))
    else:
        raise NotImplementedError(name)
    member = f"control_{node.name}"
    root.add_module(member, script)
    node.op, node.target, node.args, node.kwargs = "call_module", member, arguments, {}


def _functions(root: fx.GraphModule, graphs: Sequence[fx.Node]) -> list[torch.jit.ScriptModule]:
    return [_scripted(root.get_submodule(str(graph.target))) for graph in graphs]  # type: ignore[arg-type]


def _declared(values: Sequence[Any]) -> tuple[str, str]:
    """Return the parameters for such values, as ``v0: Tensor, v1: int``, and their names alone."""
    names = [f"v{index}" for index in range(len(values))]
    kinds = ["Tensor" if _is_tensor(value) else "int" for value in values]
    declared = [f", {name}: {kind}" for name, kind in zip(names, kinds, strict=True)]
    return "".join(declared), ", ".join(names)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, fx.Node) and isinstance(value.meta.get("val"), Tensor | None)


def _holder(**members: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """Return a module that has no methods yet."""
    module = torch.nn.Module()
    for name, member in members.items():
        module.add_module(name, member)
    script = torch.jit.script(module)
    assert isinstance(script, torch.jit.ScriptModule)
    return script


def _branch(
    if_true: torch.jit.ScriptModule, if_false: torch.jit.ScriptModule, declared: str, names: str
) -> torch.jit.ScriptModule:
    module = _holder(if_true=if_true, if_false=if_false)
    module.define(
        f"def forward(self, predicate: Tensor{declared}):\n"
        "    if bool(predicate):\n"
        f"        values = self.if_true({names})\n"
        "    else:\n"
        f"        values = self.if_false({names})\n"
        "    return values\n"
    )
    return module


def _loop(
    condition: torch.jit.ScriptModule,
    body: torch.jit.ScriptModule,
    declared: str,
    names: str,
    n_carried: int,
) -> torch.jit.ScriptModule:
    module = _holder(condition=condition, body=body)
    is_tuple = isinstance(next(condition.graph.outputs()).type(), torch._C.TupleType)
    first = "[0]" if is_tuple else ""
    carried = "".join(f"{name}, " for name in names.split(", ")[:n_carried])
    module.define(
        f"def forward(self{declared}):\n"
        f"    while bool(self.condition({names}){first}):\n"
        f"        {carried}= self.body({names})\n"
        f"    return ({carried})\n"
    )
    return module


Concrete = Callable[[], Mapping[fx.Node, Any]]
"""Runs the program on its examples; returns the value of each node."""


@dataclass(eq=False)
class _Deferred:
    """A deferred result of a node, with the values that the node reads."""

    node: fx.Node
    values: Mapping[fx.Node, Any]

    @property
    def is_certain(self) -> bool:
        """Whether it is a tensor whose shape does not depend on data."""
        value = self.node.meta.get("val")
        return isinstance(value, Tensor) and not free_unbacked_symbols(tuple(value.shape))


class PartsTracer(GraphTracer):
    """A GraphTracer that writes calls of functions for parts that depend on data."""

    def __init__(self, name: str, concrete: Concrete) -> None:
        super().__init__(name, keep_draws=True)
        self._concrete = concrete
        self._examples: Mapping[fx.Node, Any] | None = None
        self._n_functions = 0

    def carry_out(self, node: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
        """Carries out a node, or defers it."""
        read = {source: values[source] for source in node.all_input_nodes if source in values}
        waiting = [value for value in read.values() if isinstance(value, _Deferred)]
        if all(value.is_certain for value in waiting):
            now = zip(waiting, self._emitted(waiting), strict=True)
            emitted = {value.node: traced for value, traced in now}
            current = {**values, **{s: emitted.get(s, v) for s, v in read.items()}}
            try:
                return super().carry_out(node, current)
            except DataDependent:
                read = {source: current[source] for source in read}
        return _Deferred(node, read)

    def finish(self, outputs: Sequence[Any]) -> fx.GraphModule:
        """Writes the outputs; those that depend on data get their shapes on the examples."""
        listed = list(outputs)
        waiting = [value for value in listed if isinstance(value, _Deferred)]
        for value in waiting:
            if not isinstance(self._example(value.node), Tensor):
                raise DataDependent(
                    f"{self.name} returns a number that depends on the values of a tensor"
                    f" ({value.node.name}): return tensors"
                )
        emitted = iter(self._emitted(waiting))
        return super().finish([next(emitted) if v in waiting else v for v in listed])

    def _example(self, node: fx.Node) -> Any:
        if self._examples is None:
            self._examples = self._concrete()
        return self._examples[node]

    def _emitted(self, targets: Sequence[_Deferred]) -> list[TracedValue]:
        """Makes the graph call a function that computes the targets."""
        if not targets:
            return []
        function, inputs, first = _function(targets)
        self._n_functions += 1
        target = first.target
        name = target._schema.name if isinstance(target, OpOverload) else op_name(target)
        word = name.rpartition("::")[2].partition(".")[0]
        call = ScriptCall(function, self._n_functions, f"{word}_on_data", source_of(first))
        examples = [self._example(target.node) for target in targets]
        with self.mode:
            fakes = [torch.empty(value.shape, dtype=value.dtype) for value in examples]
        return self.script_call(call, inputs, fakes)


def concrete_values(
    graph: fx.Graph, module: torch.nn.Module, inputs: Sequence[Any]
) -> Mapping[fx.Node, Any]:
    """Run a graph in eager PyTorch; returns the value of each node."""
    interpreter = fx.Interpreter(module, garbage_collect_values=False, graph=graph)
    with torch.no_grad():
        interpreter.run(*inputs, enable_io_processing=False)
    return interpreter.env


def _function(
    targets: Sequence[_Deferred],
) -> tuple[Callable[..., Any], list[TracedValue | Tensor], fx.Node]:
    """Return a function of the deferred nodes behind the targets, its arguments, and the first
    node."""
    graph, inputs = fx.Graph(), list[TracedValue | Tensor]()
    root = torch.nn.Module()
    copies: dict[int, Any] = {}
    alive: list[Any] = []  # keeps objects alive whose ids are keys
    order: list[fx.Node] = []

    def copied(value: Any) -> Any:
        if not isinstance(value, _Deferred | TracedValue | Tensor | torch.nn.Module):
            return value
        if id(value) not in copies:
            alive.append(value)
            if isinstance(value, _Deferred):
                for source in value.values.values():
                    copied(source)
                order.append(value.node)
                reads = value.values
                copies[id(value)] = graph.node_copy(value.node, lambda n: copied(reads[n]))
            elif isinstance(value, torch.nn.Module):
                name = f"part_{len(copies)}"
                root.add_module(name, value)
                copies[id(value)] = graph.get_attr(name)
            else:
                inputs.append(value)
                copies[id(value)] = graph.placeholder(f"value_{len(inputs)}")
        return copies[id(value)]

    places = [copied(target) for target in targets]
    # placeholders first, as a graph must have them
    for node in [n for n in graph.nodes if n.op == "placeholder"]:
        first = next(iter(graph.nodes))
        if node is not first:
            first.prepend(node)
    ordered = [n for n in graph.nodes if n.op == "placeholder"]
    inputs = [inputs[int(n.name.rpartition("_")[2]) - 1] for n in ordered]
    graph.output(tuple(places))
    module = fx.GraphModule(root, graph)
    needs_script = any(
        isinstance(node.target, HigherOrderOperator) or not isinstance(node.meta.get("val"), Tensor)
        for node in order
    )
    return (scripted(module) if needs_script else module), inputs, order[0]
