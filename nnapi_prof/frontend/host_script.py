"""Functions for the host as TorchScript, which a file for stock PyTorch can hold.

An exported graph has words that TorchScript lacks: overloads, numbers read from tensors, and
branches and loops that are operators on graphs (``cond``, ``while_loop``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import HigherOrderOperator, OpOverload

from nnapi_prof.frontend.torch_logging import quiet_torch

aten = torch.ops.aten
_PLACED = ("device", "layout", "pin_memory")


def scripted(module: fx.GraphModule) -> Callable[..., Any]:
    """Return the function as TorchScript, whose shapes a trace does not fix; as it is where
    TorchScript has no word for something in it."""
    try:
        with quiet_torch():
            return _scripted(module)
    except Exception:  # whatever it has no word for: PyTorch itself runs it
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
    """The parameters ``v0: Tensor, v1: int`` that take such values, and their names alone."""
    names = [f"v{index}" for index in range(len(values))]
    kinds = ["Tensor" if _is_tensor(value) else "int" for value in values]
    declared = [f", {name}: {kind}" for name, kind in zip(names, kinds, strict=True)]
    return "".join(declared), ", ".join(names)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, fx.Node) and isinstance(value.meta.get("val"), Tensor | None)


def _holder(**members: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """A module without methods yet."""
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
