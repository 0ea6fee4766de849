"""Read and write fx nodes: arguments by name, tensor types, constants, new nodes.

Passes change nodes only through this module, so that ``node.meta["tensor"]`` is never stale.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from nnapi_prof.graph import DimOrder, TensorType

TENSOR = "tensor"
"""Key in ``node.meta`` of the node's TensorType; absent on nodes that make several values."""
UNIT = "unit"
"""Key in ``node.meta``: name of the node that computes the result of the node's unit."""


def dtype_name(dtype: torch.dtype) -> str:
    """Returns ``float32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def torch_dtype(name: str) -> torch.dtype:
    """Returns ``torch.float32`` for ``float32``."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def describe(tensor: Tensor) -> TensorType:
    """Returns the contiguous TensorType of a real, fake or meta tensor with concrete sizes."""
    return TensorType(tuple(int(n) for n in tensor.shape), dtype_name(tensor.dtype))


def op_name(target: Any) -> str:
    """Returns ``aten.add.Tensor`` for an overload, else the function's own name."""
    if isinstance(target, OpOverload):
        return str(target)
    return str(getattr(target, "__name__", target))


def bind(target: OpOverload, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns all arguments of a call to an ATen overload by schema name, with defaults."""
    bound: dict[str, Any] = {}
    for position, argument in enumerate(target._schema.arguments):
        if position < len(args) and not argument.kwarg_only:
            bound[argument.name] = args[position]
        elif argument.name in kwargs:
            bound[argument.name] = kwargs[argument.name]
        else:
            bound[argument.name] = argument.default_value
    return bound


def bound_args(node: fx.Node) -> dict[str, Any]:
    """Returns :func:`bind` of the call in ``node``."""
    assert isinstance(node.target, OpOverload), f"{node.name} calls {node.target}, no ATen overload"
    return bind(node.target, node.args, node.kwargs)


def type_of(node: fx.Node) -> TensorType:
    """Returns the type of the tensor that ``node`` makes."""
    value_type = node.meta[TENSOR]
    assert isinstance(value_type, TensorType)
    return value_type


def set_order(node: fx.Node, order: DimOrder) -> None:
    """Writes another dim order into the node's type."""
    node.meta[TENSOR] = replace(type_of(node), dim_order=order)


def makes_tensor(node: fx.Node) -> bool:
    """Returns whether ``node`` makes exactly one tensor."""
    return TENSOR in node.meta


def is_constant(value: Any) -> bool:
    """Returns whether an argument is a node that holds a constant tensor."""
    return isinstance(value, fx.Node) and value.op == "get_attr"


def constant_value(node: fx.Node) -> Tensor:
    """Returns the tensor of a ``get_attr`` node."""
    module = node.graph.owning_module
    assert module is not None and isinstance(node.target, str)
    value = operator.attrgetter(node.target)(module)
    assert isinstance(value, Tensor)
    return value


def add_constant(graph: fx.Graph, value: Tensor, hint: str) -> fx.Node:
    """Stores ``value`` in the module as a buffer named after ``hint``; returns its get_attr node.

    The node is inserted at the graph's insertion point.
    """
    module = graph.owning_module
    assert module is not None
    stem = "".join(c if c.isalnum() else "_" for c in hint).strip("_") or "constant"
    if stem[0].isdigit():
        stem = f"c{stem}"
    name, copies = stem, 0
    while hasattr(module, name):
        copies += 1
        name = f"{stem}_{copies}"
    module.register_buffer(name, value.detach())
    node = graph.get_attr(name)
    node.meta[TENSOR] = describe(value)
    return node


def infer(target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs ``target`` on meta tensors that stand for the nodes among its arguments."""

    def stand_in(node: fx.Node) -> Tensor:
        stand_in_type = type_of(node)
        return torch.empty(
            stand_in_type.shape, dtype=torch_dtype(stand_in_type.dtype), device="meta"
        )

    meta_args = fx.node.map_arg(args, stand_in)
    meta_kwargs = fx.node.map_arg(kwargs, stand_in)
    return target(*meta_args, **meta_kwargs)


def insert_call(
    graph: fx.Graph, target: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
) -> fx.Node:
    """Adds a call at the graph's insertion point with its inferred contiguous TensorType."""
    result = infer(target, args, kwargs or {})
    assert isinstance(result, Tensor), f"{target} makes no single tensor"
    name = target._schema.name.partition("::")[2]
    node = graph.create_node("call_function", target, args, kwargs, name=name)
    node.meta[TENSOR] = describe(result)
    return node


def results_of(node: fx.Node) -> tuple[fx.Node, ...]:
    """Returns the nodes for the values of ``node``: itself, or its getitem readers."""
    if makes_tensor(node):
        return (node,)
    return tuple(user for user in node.users if user.target is operator.getitem)


def same_numbers(a: fx.Node, b: fx.Node) -> bool:
    """Returns whether two nodes have equal shape and dtype, so that one may replace the other."""
    return (type_of(a).shape, type_of(a).dtype) == (type_of(b).shape, type_of(b).dtype)


def calls(graph: fx.Graph) -> Iterator[fx.Node]:
    """Iterates over the graph's calls, in order; the graph may change meanwhile."""
    return iter([node for node in graph.nodes if node.op == "call_function"])


def positive_dim(dim: int, rank: int) -> int:
    """Returns ``dim`` counted from the front; rank 0 counts as 1, as in PyTorch."""
    return dim + max(rank, 1) if dim < 0 else dim


# Calls that stay TorchScript: control flow on data, and random numbers


class ScriptCall:
    """Call to TorchScript that takes tensors and returns a tuple of them.

    Its result depends on the values of tensors, or on random numbers, so that no NNAPI operation
    can express it; its outputs are read by ``getitem``. ``where`` is the source line. A call that
    ``draws`` random numbers draws the same ones each time, except in :func:`drawing_in_order`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        number: int,
        construct: str,
        where: str,
        draws: bool = False,
    ) -> None:
        self.function = function
        self.draws = draws
        self._seed = number
        self.construct = construct
        self.where = where
        self.__name__ = f"{construct}_{number}"
        self.__qualname__ = self.__name__

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        if self.draws and not _IN_ORDER.get():
            with _seeded(self._seed):
                returned = self.function(*inputs)
        else:
            returned = self.function(*inputs)
        return returned if isinstance(returned, tuple) else (returned,)


_IN_ORDER = ContextVar("in_order", default=False)


@contextmanager
def drawing_in_order() -> Iterator[None]:
    """Seeds random numbers so that a model and its graph, each run in it, draw the same ones."""
    token = _IN_ORDER.set(True)
    try:
        with _seeded(0):
            yield
    finally:
        _IN_ORDER.reset(token)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seeds PyTorch's random numbers within the context, and restores their state afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


# ---- lines of the user's Python that nodes come from ---------------------------------------------


META = "source"
"""Key in ``node.meta`` of the node's :class:`Source`."""

_FRAMES = (
    re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)'),  # Python, and scripted modules
    re.compile(r"^\s*(?P<file>\S+)\((?P<line>\d+)\): ", re.MULTILINE),  # traced modules
)
_OF_TORCH = re.compile(r"(^|[\\/])torch[\\/]")


@dataclass(frozen=True, slots=True)
class Source:
    """Source of a node: module path (``features.3.conv``) and line (``net.py:12``), or empty."""

    module: str = ""
    line: str = ""


def user_line(trace: str) -> str:
    """Return ``FILE:LINE`` of the frame nearest to the operation that is not PyTorch's own.

    ``trace`` is the stack trace of an exported program's node, the outermost frame first, or the
    source range of a TorchScript node. Empty where it names no frame.
    """
    trace = trace.partition("Serialized ")[0] or trace  # TorchScript's own text follows it
    frames: list[str] = []
    for pattern in _FRAMES:
        frames = [f"{m['file']}:{m['line']}" for m in pattern.finditer(trace)]
        if frames:
            break
    if pattern is _FRAMES[1]:
        frames.reverse()  # a tracer names the innermost first
    own = [frame for frame in frames if not _OF_TORCH.search(frame)]
    return (own or frames or [""])[-1]


def export_source(node: fx.Node) -> Source:
    """Return the source of a node of an exported program, as far as the node has it."""
    stack = node.meta.get("nn_module_stack") or {}
    module = str(list(stack.values())[-1][0]) if stack else ""
    return Source(_module_path(module), user_line(str(node.meta.get("stack_trace") or "")))


def script_source(scope: str, source_range: str) -> Source:
    """Return the source of a TorchScript node, from its scope's name and its source range."""
    last = scope.rpartition("/")[2]
    return Source(_module_path(last.rpartition("::")[2]), user_line(source_range))


def _module_path(name: str) -> str:
    """Return ``b.conv`` for ``L['self'].b.conv`` or ``__module.b.conv``."""
    return re.sub(r"^(L\['self'\]|__module|self)\.?", "", name)


def source_of(nodes: Iterable[fx.Node]) -> Source:
    """Return the source of a unit, which is that of the last of its nodes that has one.

    Where only passes made the nodes, it is that of a neighbour: a reader, else an input.
    """
    members = list(nodes)
    near = [user for node in members for user in node.users]
    near += [each for node in members for each in node.all_input_nodes]
    for node in (*reversed(members), *near):
        source = node.meta.get(META)
        if isinstance(source, Source) and source != Source():
            return source
    return Source()
