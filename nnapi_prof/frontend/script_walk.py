"""TorchScript -> straight fx graph by walking its own graph: the fast route, tried first.

The frozen graph is run once, node by node: arithmetic on sizes, lists, branches and loops over known
values happen in Python, as TorchScript's interpreter would do them; calls of operators go through
the Concretiser, which writes down those that depend on the inputs. No symbolic shapes and no second
trace: a traced MobileNetV2 takes about a second.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from nnapi_prof.errors import FrontendError
from nnapi_prof.frontend.concretise import Concretiser

Values = dict[str, Any]
"""TorchScript's name of a value -> the value, or what the Concretiser made of it."""

MAX_TRIPS = 10_000
"""Of one loop: more would make a graph that nobody can partition."""

_DTYPES = {
    0: torch.uint8,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.int64,
    5: torch.float16,
    6: torch.float32,
    7: torch.float64,
    11: torch.bool,
    15: torch.bfloat16,
}
"""c10::ScalarType, as TorchScript stores it."""
_MEMORY_FORMATS = {0: torch.contiguous_format, 1: torch.preserve_format, 2: torch.channels_last}
_ENUMS: dict[str, dict[int, Any]] = {
    "dtype": _DTYPES,
    "memory_format": _MEMORY_FORMATS,
    "layout": {0: torch.strided},
}
"""Arguments that TorchScript holds as numbers and operators take as objects."""


class NoWalk(Exception):
    """A construct that the walk does not know; another route may."""


def walked_graph(
    model: torch.jit.ScriptModule, examples: Sequence[Tensor], name: str
) -> fx.GraphModule:
    """The model's straight graph on the shapes of ``examples``.

    Raises NoWalk for a construct that is not known here, FrontendError where the model has no
    straight form at all.
    """
    frozen = model
    if hasattr(model, "training"):
        frozen = torch.jit.freeze(model, optimize_numerics=False)
    maker = Concretiser(name)
    for parameter, value in (*model.named_parameters(), *model.named_buffers()):
        maker.names.setdefault(value.data_ptr(), parameter)
    graph = frozen.graph
    first, *arguments = list(graph.inputs())
    values: Values = {first.debugName(): frozen}
    for argument, example in zip(arguments, examples, strict=False):
        label = re.sub(r"\W", "_", argument.debugName())
        values[argument.debugName()] = maker.placeholder(label, example)
    for argument in arguments[len(examples) :]:
        values[argument.debugName()] = None  # an optional input left out
    walk = _Walk(maker, name)
    walk.block(graph, values)
    returned = [values[value.debugName()] for value in graph.outputs()]
    return maker.finish(pytree.tree_leaves(returned))


class _Walk:
    """Runs blocks of a TorchScript graph; ``prim`` constructs are methods of that name."""

    def __init__(self, maker: Concretiser, name: str) -> None:
        self._maker = maker
        self._name = name
        self._scratch = fx.Graph()  # carries names and source lines to the Concretiser

    def block(self, block: Any, values: Values) -> None:
        for node in block.nodes():
            kind = node.kind().replace("::", "_")
            special: Callable[[Any, Values], Any] | None = getattr(self, f"_{kind}", None)
            if special is not None:
                results = special(node, values)
            elif node.kind().startswith("prim::"):
                raise NoWalk(node.kind())
            else:
                results = (self._operator(node, values),)
            outputs = list(node.outputs())
            if len(outputs) > 1 and len(results) == 1 and isinstance(results[0], list | tuple):
                results = results[0]  # an operator with several results
            for output, result in zip(outputs, results, strict=False):
                values[output.debugName()] = result

    def _inputs(self, node: Any, values: Values) -> list[Any]:
        return [values[value.debugName()] for value in node.inputs()]

    def _known(self, node: Any, value: Any) -> Any:
        """A value that steers the walk. FrontendError where it depends on the inputs' values."""
        if isinstance(value, Tensor):
            return value.item()
        if isinstance(value, bool | int | float | complex | str | None):
            return value
        raise FrontendError(
            f"{self._name}: {node.kind()} ({_source(node)}) depends on the values of a tensor: only "
            f"branches and shapes that follow from input shapes are possible"
        )

    # ---- operators ---------------------------------------------------------------------------

    def _operator(self, node: Any, values: Values) -> Any:
        schema = node.schema()
        if schema == "(no schema)":
            raise NoWalk(node.kind())
        full, _, _ = schema.partition("(")
        namespace, _, rest = full.partition("::")
        packet, _, overload = rest.partition(".")
        try:
            target = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
        except AttributeError as error:
            raise NoWalk(node.kind()) from error
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for argument, value in zip(
            target._schema.arguments, self._inputs(node, values), strict=False
        ):
            if isinstance(value, int) and argument.name in _ENUMS:
                value = _ENUMS[argument.name][value]
            if argument.kwarg_only:
                kwargs[argument.name] = value
            else:
                args.append(value)
        step = self._scratch.create_node("call_function", target, (), {}, name=packet)
        step.meta["stack_trace"] = _stack_trace(node)
        return self._maker.call(step, tuple(args), kwargs)

    def _aten_append(self, node: Any, values: Values) -> tuple[Any, ...]:
        # In Python, for an operator would get a copy of the list.
        listed, value = self._inputs(node, values)
        listed.append(value)
        return (listed,)

    def _aten___getitem__(self, node: Any, values: Values) -> tuple[Any, ...]:
        container, key = self._inputs(node, values)
        return (container[self._known(node, key)],)

    def _aten_len(self, node: Any, values: Values) -> tuple[Any, ...]:
        (value,) = self._inputs(node, values)
        if isinstance(value, list | tuple | dict | str):
            return (len(value),)
        return (self._operator(node, values),)

    def _aten_Int(self, node: Any, values: Values) -> tuple[Any, ...]:
        return (int(self._known(node, self._inputs(node, values)[0])),)

    def _aten_Float(self, node: Any, values: Values) -> tuple[Any, ...]:
        return (float(self._known(node, self._inputs(node, values)[0])),)

    def _aten_Bool(self, node: Any, values: Values) -> tuple[Any, ...]:
        return (bool(self._known(node, self._inputs(node, values)[0])),)

    def _aten_ScalarImplicit(self, node: Any, values: Values) -> tuple[Any, ...]:
        return (self._known(node, self._inputs(node, values)[0]),)

    _aten_IntImplicit = _aten_Int
    _aten_FloatImplicit = _aten_Float

    def _aten___is__(self, node: Any, values: Values) -> tuple[Any, ...]:
        return (operator.is_(*self._inputs(node, values)),)

    def _aten___isnot__(self, node: Any, values: Values) -> tuple[Any, ...]:
        return (operator.is_not(*self._inputs(node, values)),)

    def _aten_warn(self, node: Any, values: Values) -> tuple[Any, ...]:
        return ()

    # ---- TorchScript's own constructs --------------------------------------------------------

    def _prim_Constant(self, node: Any, values: Values) -> tuple[Any, ...]:
        return (node.output().toIValue(),)

    def _prim_GetAttr(self, node: Any, values: Values) -> tuple[Any, ...]:
        return (getattr(self._inputs(node, values)[0], node.s("name")),)

    def _prim_ListConstruct(self, node: Any, values: Values) -> tuple[Any, ...]:
        return (self._inputs(node, values),)

    def _prim_TupleConstruct(self, node: Any, values: Values) -> tuple[Any, ...]:
        return (tuple(self._inputs(node, values)),)

    def _prim_DictConstruct(self, node: Any, values: Values) -> tuple[Any, ...]:
        flat = self._inputs(node, values)
        return (dict(zip(flat[::2], flat[1::2], strict=True)),)

    def _prim_ListUnpack(self, node: Any, values: Values) -> tuple[Any, ...]:
        return tuple(self._inputs(node, values)[0])

    _prim_TupleUnpack = _prim_ListUnpack

    def _prim_TupleIndex(self, node: Any, values: Values) -> tuple[Any, ...]:
        container, index = self._inputs(node, values)
        return (container[index],)

    def _prim_NumToTensor(self, node: Any, values: Values) -> tuple[Any, ...]:
        return (torch.tensor(self._known(node, self._inputs(node, values)[0])),)

    def _prim_unchecked_cast(self, node: Any, values: Values) -> tuple[Any, ...]:
        return (self._inputs(node, values)[0],)

    def _prim_dtype(self, node: Any, values: Values) -> tuple[Any, ...]:
        value = self._inputs(node, values)[0]
        dtype = (value if isinstance(value, Tensor) else value.fake).dtype
        return (next(code for code, known in _DTYPES.items() if known is dtype),)

    def _prim_device(self, node: Any, values: Values) -> tuple[Any, ...]:
        return (torch.device("cpu"),)

    def _prim_If(self, node: Any, values: Values) -> tuple[Any, ...]:
        condition = self._known(node, self._inputs(node, values)[0])
        if_true, if_false = node.blocks()
        block = if_true if condition else if_false
        self.block(block, values)
        return tuple(values[value.debugName()] for value in block.outputs())

    def _prim_Loop(self, node: Any, values: Values) -> tuple[Any, ...]:
        trips, condition, *carried = self._inputs(node, values)
        (body,) = node.blocks()
        counter, *names = [value.debugName() for value in body.inputs()]
        trip = 0
        while trip < self._known(node, trips) and self._known(node, condition):
            if trip == MAX_TRIPS:
                raise FrontendError(
                    f"{self._name}: a loop ({_source(node)}) runs more than {MAX_TRIPS} times"
                )
            values[counter] = trip
            values.update(zip(names, carried, strict=True))
            self.block(body, values)
            condition, *carried = [values[value.debugName()] for value in body.outputs()]
            trip += 1
        return tuple(carried)

    def _prim_RaiseException(self, node: Any, values: Values) -> tuple[Any, ...]:
        raise FrontendError(
            f"{self._name} raises an exception on these inputs ({_source(node)}): "
            f"{self._inputs(node, values)[0]}"
        )


def _source(node: Any) -> str:
    found = re.search(r'File "([^"]+)", line (\d+)', node.sourceRange())
    return f"{found.group(1)}:{found.group(2)}" if found else node.scopeName() or "forward"


def _stack_trace(node: Any) -> str:
    """The source line in the form that fx nodes carry, empty where TorchScript kept none."""
    found = re.search(r'File "([^"]+)", line (\d+)', node.sourceRange())
    return f'File "{found.group(1)}", line {found.group(2)}, in forward' if found else ""
