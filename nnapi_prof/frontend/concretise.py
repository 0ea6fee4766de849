"""An exported graph run once on known shapes, and written down as it ran.

What comes in may hold symbolic sizes, guards, branches on shapes, nested graphs and lifted
parameters. What comes out is straight: placeholders for the model's inputs, constants, and calls of
ATen overloads on tensors, every size a number.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.utils import _pytree as pytree

from nnapi_prof.errors import FrontendError
from nnapi_prof.graph.node import TENSOR, add_constant, describe, op_name


@dataclass(eq=False)
class _Moving:
    """A value that depends on the inputs: the node that makes it, and a stand-in without data.

    Writing to the value in place makes ``node`` the node of the new value.
    """

    node: fx.Node
    fake: Tensor

    @property
    def memory(self) -> Any:
        """The stand-in's storage: views of one tensor have the same."""
        return self.fake.untyped_storage()._cdata

    @property
    def place(self) -> tuple[Any, ...]:
        """Where in its storage the value lies."""
        return (self.fake.shape, self.fake.stride(), self.fake.storage_offset())


class WritesToViews(Exception):
    """A tensor is written in place while views of other shape share its memory.

    Only PyTorch's own functionalisation takes that apart.
    """


class Concretiser:
    """Runs graphs on fake tensors and writes each step that depends on the inputs.

    Calls on constants alone are computed at once. Raises FrontendError for what has no straight
    form: values that steer control flow or shapes, randomness, unknown higher-order operators.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.module = fx.GraphModule(torch.nn.Module(), fx.Graph())
        self._constants: dict[tuple[Any, ...], fx.Node] = {}
        self._by_memory: dict[Any, list[_Moving]] = {}
        self.names: dict[int, str] = {}
        """Data pointer of a parameter -> its name in the model, for readable graphs."""
        self._kept: list[Tensor] = []  # keeps data pointers that are keys from being reused

    @property
    def graph(self) -> fx.Graph:
        return self.module.graph

    def placeholder(self, name: str, example: Tensor) -> _Moving:
        """Adds an input of the model."""
        node = self.graph.placeholder(name)
        node.meta[TENSOR] = describe(example)
        return self._remember(_Moving(node, self.mode.from_tensor(example)))

    def _remember(self, value: _Moving) -> _Moving:
        self._by_memory.setdefault(value.memory, []).append(value)
        return value

    def finish(self, outputs: Sequence[Any]) -> fx.GraphModule:
        """Writes the outputs, flattened to a tuple; constants among them become clones."""
        listed = [value for value in outputs if isinstance(value, _Moving | Tensor)]
        nodes = [self._output(value) for value in listed]
        if not nodes:
            raise FrontendError(f"{self.name} returns no tensor: there is nothing to run")
        self.graph.output(tuple(nodes))
        self.graph.lint()
        self.module.recompile()
        return self.module

    def _output(self, value: _Moving | Tensor) -> fx.Node:
        if isinstance(value, _Moving):
            return value.node
        source = self._constant(value, "output")
        copy = self.graph.call_function(torch.ops.aten.clone.default, (source,))
        copy.meta[TENSOR] = describe(value)
        return copy

    def run(self, graph: fx.Graph, module: torch.nn.Module, inputs: Sequence[Any]) -> Any:
        """Runs ``graph``; ``inputs`` are its placeholders' values. Returns what it returns."""
        values: dict[fx.Node, Any] = {}
        given = iter(inputs)
        for node in graph.nodes:
            if node.op == "placeholder":
                values[node] = next(given)
            elif node.op == "get_attr":
                values[node] = operator.attrgetter(str(node.target))(module)
            elif node.op == "output":
                return fx.node.map_arg(node.args[0], lambda n: values[n])
            else:
                args = _mapped(node.args, values)
                kwargs = _mapped(node.kwargs, values)
                values[node] = self._call(node, args, kwargs)
        raise FrontendError(f"{self.name}: a nested graph has no output")

    def _call(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        target = node.target
        if node.op != "call_function" or isinstance(target, str):
            raise FrontendError(f"{self.name}: {node.op} {target} has no place in an ATen graph")
        if isinstance(target, HigherOrderOperator):
            return self._higher_order(node, target, args)
        if _is_check(target):
            return None
        if not _moving((args, kwargs)):
            return self._compute(node, target, args, kwargs)
        if target is operator.getitem and isinstance(args[0], list | tuple):
            return args[0][args[1]]
        return self._write(node, target, args, kwargs)

    def _compute(
        self, node: fx.Node, target: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """A call on constants."""
        if isinstance(target, OpOverload):
            self._refuse_random(node, target, args, kwargs)
            if target is torch.ops.aten.detach_.default:
                return args[0]
            if target._schema.is_mutable:
                raise WritesToViews(op_name(target))
        with torch.no_grad():
            return target(*args, **kwargs)

    def _write(
        self, node: fx.Node, target: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """A call on at least one value that depends on the inputs."""
        if isinstance(target, OpOverload):
            self._refuse_random(node, target, args, kwargs)
            if target._schema.is_mutable:
                return self._write_in_place(node, target, args, kwargs)
        fake_args, fake_kwargs = pytree.tree_map_only(_Moving, lambda v: v.fake, (args, kwargs))
        try:
            with self.mode, torch.no_grad():
                result = target(*fake_args, **fake_kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise FrontendError(
                f"{self.name}: {op_name(target)} ({_where(node)}) makes a shape or a branch depend "
                f"on the values of a tensor: only shapes that follow from input shapes are possible"
            ) from error
        flat = pytree.tree_leaves(result)
        if not any(isinstance(value, Tensor) for value in flat):
            return result  # a size, a number of dimensions: concrete on these inputs
        if not isinstance(target, OpOverload):
            raise FrontendError(f"{self.name}: {op_name(target)} is no ATen operator")
        return self._written(node, target, args, kwargs, result)

    def _write_in_place(
        self, node: fx.Node, target: OpOverload, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """``op_(x)`` becomes ``y = op(x)``, and whoever reads x from here on reads y.

        Raises WritesToViews where x is no value of its own, or op has no functional twin.
        """
        written = args[0] if args else None
        packet = target._schema.name.partition("::")[2]
        family = getattr(torch.ops.aten, packet.removesuffix("_"), None)
        twin = getattr(family, target._overloadname, None)
        if not isinstance(written, _Moving) or twin is None or twin is target:
            raise WritesToViews(op_name(target))
        sharing = self._by_memory[written.memory]
        if any(other.place != written.place for other in sharing):
            raise WritesToViews(op_name(target))
        result = self._write(node, twin, args, kwargs)
        same = isinstance(result, _Moving) and (
            (result.fake.shape, result.fake.dtype) == (written.fake.shape, written.fake.dtype)
        )
        if not same:
            raise WritesToViews(op_name(target))
        for other in sharing:
            other.node = result.node
        return written

    def _written(
        self, node: fx.Node, target: OpOverload, args: Any, kwargs: Any, result: Any
    ) -> Any:
        new_args, new_kwargs = pytree.tree_map(self._argument, (args, kwargs))
        name = node.name.rstrip("_")
        made = self.graph.create_node("call_function", target, tuple(new_args), new_kwargs, name)
        if isinstance(result, Tensor):
            made.meta[TENSOR] = describe(result)
            return self._remember(_Moving(made, result))
        parts: list[Any] = []
        for index, value in enumerate(result):
            part = self.graph.call_function(operator.getitem, (made, index))
            if isinstance(value, Tensor):
                part.meta[TENSOR] = describe(value)
                parts.append(self._remember(_Moving(part, value)))
            else:
                self.graph.erase_node(part)
                parts.append(value)
        return parts

    def _argument(self, value: Any) -> Any:
        if isinstance(value, _Moving):
            return value.node
        if isinstance(value, Tensor):
            return self._constant(value, "constant")
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            raise FrontendError(f"{self.name}: the size {value} is not known")
        return value

    def _constant(self, value: Tensor, hint: str) -> fx.Node:
        """The get_attr node of a constant; tensors that share memory and shape share one."""
        key = (value.data_ptr(), value.dtype, tuple(value.shape), value.stride())
        if key not in self._constants or value.numel() == 0:
            self._kept.append(value)
            self._constants[key] = add_constant(self.graph, value.detach(), self.names.get(value.data_ptr(), hint))
        return self._constants[key]

    def _higher_order(self, node: fx.Node, target: HigherOrderOperator, args: Any) -> Any:
        name = target.name()
        if name == "cond":
            predicate, if_true, if_false, operands = args
            if isinstance(predicate, _Moving):
                raise FrontendError(
                    f"{self.name}: a branch ({_where(node)}) depends on the values of a tensor: "
                    f"both branches would have to run"
                )
            return self._nested(if_true if bool(predicate) else if_false, operands)
        if name == "wrap_with_set_grad_enabled":
            return self._nested(args[1], args[2:])
        if name == "wrap_with_autocast" and not args[2]:
            return self._nested(args[4], args[5:])
        raise FrontendError(f"{self.name}: the construct {name} ({_where(node)}) is not supported")

    def _nested(self, graph_module: fx.GraphModule, operands: Sequence[Any]) -> Any:
        return self.run(graph_module.graph, graph_module, operands)

    def _refuse_random(self, node: fx.Node, target: OpOverload, args: Any, kwargs: Any) -> None:
        if torch.Tag.nondeterministic_seeded not in target.tags:
            return
        training = kwargs.get("train", args[2] if len(args) > 2 else None)
        if "dropout" in target.name() and (training is False or args[1] == 0):
            return
        if "scaled_dot_product" in target.name() and 0.0 in (args[4:5] or (0.0,)):
            return
        why = "was the model traced in training mode? Call model.eval() first"
        raise FrontendError(
            f"{self.name}: {op_name(target)} ({_where(node)}) draws random numbers: {why}"
        )


def _mapped(args: Any, values: Mapping[fx.Node, Any]) -> Any:
    return fx.node.map_aggregate(args, lambda a: values[a] if isinstance(a, fx.Node) else a)


def _moving(args: Any) -> bool:
    return any(isinstance(value, _Moving) for value in pytree.tree_leaves(args))


_CHECKS = ("_assert", "sym_constrain", "_guard", "assert_")


def _is_check(target: Any) -> bool:
    """Assertions about shapes and metadata: true by construction on the shapes that run here."""
    name = target.name() if isinstance(target, OpOverload) else getattr(target, "__name__", "")
    return str(name).rpartition("::")[2].startswith(_CHECKS)


def _where(node: fx.Node) -> str:
    """The source line that made a node, as far as the node remembers."""
    trace = str(node.meta.get("stack_trace") or "").strip().splitlines()
    lines = [line.strip() for line in trace if line.strip().startswith("File ")]
    if not lines:
        return f"node {node.name}"
    parts = lines[-1].replace('"', "").split(", ")
    return f"{parts[0].removeprefix('File ')}:{parts[1].removeprefix('line ')}"
