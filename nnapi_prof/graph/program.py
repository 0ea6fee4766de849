"""Program: a model's fx graph with its units, which can run in eager PyTorch.

Running it gives the values between its units, which can be laid out as on devices.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from nnapi_prof.errors import FrontendError, NnapiProfError
from nnapi_prof.graph import DimOrder, Quantisation, TensorType
from nnapi_prof.graph.dim_order import (
    LIES_LAST,
    Layout,
    can_be_channels_last,
    layout_of,
    wanted_order,
)
from nnapi_prof.graph.node import (
    ScriptCall,
    constant_value,
    describe,
    infer,
    is_constant,
    makes_tensor,
    op_name,
    torch_dtype,
    type_of,
)
from nnapi_prof.graph.quantisation import is_weight
from nnapi_prof.graph.unit import UnitGraph


@dataclass(frozen=True)
class Program:
    """Normalised model.

    ``module`` is an fx.GraphModule over ATen overloads whose placeholders are the model's inputs
    and whose constants are ``get_attr`` nodes. Every node that makes a tensor carries
    ``node.meta["tensor"]``, its :class:`~nnapi_prof.graph.TensorType`. Calling ``module``
    with tensors of the logical shapes gives the model's outputs, flattened to a tuple: dim orders
    change the memory layout of values, never the values.
    """

    module: fx.GraphModule
    units: UnitGraph
    name: str
    example_inputs: tuple[Tensor, ...]
    """Inputs that the model was traced with, of the stated shapes and arbitrary values."""
    notes: tuple[str, ...] = ()
    """Notes for the user: guessed input shapes, dropped nodes."""
    quantised: Mapping[int, Quantisation] = field(default_factory=dict)
    """Input that the model takes as a quantised tensor -> quantisation; the program takes its
    integers."""
    widened: bool = False
    """True where the program computes parts in float32 that the model computes in other float
    types, or rounds in every step."""

    @cached_property
    def nodes(self) -> Mapping[str, fx.Node]:
        """The module's nodes by name."""
        return {node.name: node for node in self.module.graph.nodes}

    @property
    def draws(self) -> tuple[str, ...]:
        """The nodes that draw random numbers."""
        return tuple(
            name
            for name, node in self.nodes.items()
            if isinstance(node.target, ScriptCall) and node.target.draws
        )

    def as_given(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Converts the program's inputs to those of the model itself."""
        return tuple(
            torch._make_per_tensor_quantized_tensor(value, params.scale, params.zero_point)
            if (params := self.quantised.get(index)) is not None
            else value
            for index, value in enumerate(inputs)
        )


def laid_out(value: torch.Tensor, tensor_type: TensorType) -> torch.Tensor:
    """Converts a logical tensor to the device's layout: contiguous, in its dim order and element
    type.

    Raises NnapiProfError where a value does not fit the device's type.
    """
    dtype = torch_dtype(tensor_type.device_dtype)
    narrow = value.detach().to(dtype)
    if narrow.dtype != value.dtype and not torch.equal(narrow.to(value.dtype), value):
        raise NnapiProfError(
            f"a {tensor_type} has values beyond {tensor_type.device_dtype}, which is what the "
            "device holds"
        )
    value = narrow
    if tensor_type.dim_order is DimOrder.CHANNELS_LAST:
        value = value.permute(0, 2, 3, 1)
    return value.contiguous()


def logical(value: torch.Tensor, tensor_type: TensorType) -> torch.Tensor:
    """Converts a tensor in the device's layout to a logical one, inverting :func:`laid_out`."""
    value = value.to(torch_dtype(tensor_type.dtype))
    if tensor_type.dim_order is DimOrder.CHANNELS_LAST:
        return value.reshape(tensor_type.memory_shape).permute(0, 3, 1, 2)
    return value.reshape(tensor_type.shape)


def as_array(value: torch.Tensor) -> npt.NDArray[np.generic]:
    """Converts a tensor to NumPy, with bfloat16, which NumPy lacks, as float32."""
    value = value.detach()
    array: npt.NDArray[np.generic] = (
        value.float() if value.dtype is torch.bfloat16 else value
    ).numpy()
    return array


def to_memory(value: torch.Tensor, tensor_type: TensorType) -> bytes:
    """Returns the bytes of :func:`laid_out`."""
    return laid_out(value, tensor_type).numpy().tobytes()


def from_memory(data: bytes, tensor_type: TensorType) -> torch.Tensor:
    """Converts bytes from the device to a logical tensor; the inverse of :func:`to_memory`."""
    dtype = torch_dtype(tensor_type.device_dtype)
    return logical(torch.frombuffer(bytearray(data), dtype=dtype), tensor_type)


def constant_outputs(program: Program) -> dict[str, torch.Tensor]:
    """Returns the outputs of the graph that are constants, which no unit makes."""
    outputs = set(program.units.outputs)
    return {
        node.name: constant_value(node).detach()
        for node in program.module.graph.nodes
        if node.name in outputs and is_constant(node)
    }


def all_values(program: Program, inputs: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns every value between units for these inputs, by running the graph in eager PyTorch."""

    class Collect(fx.Interpreter):
        def run_node(self, n: fx.Node) -> object:
            result = super().run_node(n)
            if n.name in program.units.values and isinstance(result, torch.Tensor):
                values[n.name] = result
            return result

    values: dict[str, torch.Tensor] = {}
    with torch.inference_mode():
        Collect(program.module).run(*inputs)
    return values


def run_units(
    program: Program, units: Iterable[int], values: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Runs units in eager PyTorch from the values they read; returns the values they make."""
    interpreter = fx.Interpreter(program.module)
    nodes = {node.name: node for node in program.module.graph.nodes}
    interpreter.env = {nodes[name]: value for name, value in values.items()}
    results: dict[str, torch.Tensor] = {}
    with torch.inference_mode():
        for index in sorted(units):
            unit = program.units.units[index]
            for name in unit.nodes:
                for argument in nodes[name].all_input_nodes:
                    if argument.op == "get_attr":
                        interpreter.env[argument] = interpreter.run_node(argument)
                interpreter.env[nodes[name]] = interpreter.run_node(nodes[name])
            for name in unit.outputs:
                results[name] = interpreter.env[nodes[name]]
    return results


# ---- rules that hold between passes --------------------------------------------------------------


@dataclass(frozen=True)
class GraphRule:
    """Rule for every node of ``kinds``; ``message`` is said of a node for which it fails."""

    kinds: tuple[str, ...]
    holds: Callable[[fx.Node], bool]
    message: str


def _is_aten_or_getitem(node: fx.Node) -> bool:
    return isinstance(node.target, OpOverload | ScriptCall) or node.target is operator.getitem


def _is_functional(node: fx.Node) -> bool:
    return not (isinstance(node.target, OpOverload) and node.target._schema.is_mutable)


def _is_typed(node: fx.Node) -> bool:
    """Returns whether a tensor's type is known, or a node of several values is read by getitem."""
    return makes_tensor(node) or all(user.target is operator.getitem for user in node.users)


def _constant_matches(node: fx.Node) -> bool:
    return describe(constant_value(node)) == type_of(node)


def _order_fits(node: fx.Node) -> bool:
    if not makes_tensor(node) or type_of(node).dim_order is DimOrder.CONTIGUOUS:
        return True
    chosen = node.op == "call_function" or (node.op == "placeholder" and LIES_LAST in node.meta)
    return chosen and can_be_channels_last(type_of(node))


def _inputs_lie_right(node: fx.Node) -> bool:
    for source in node.all_input_nodes:
        if is_weight(source) or not makes_tensor(source):
            continue
        if not can_be_channels_last(type_of(source)):
            continue
        if node.op == "call_function" and layout_of(node) is Layout.CLONE:
            continue
        if wanted_order(node, source) not in (None, type_of(source).dim_order):
            return False
    return True


RULES = (
    GraphRule(
        ("placeholder", "get_attr", "call_function", "output"),
        lambda node: True,
        "only inputs, constants, calls and one output are allowed",
    ),
    GraphRule(("call_function",), _is_aten_or_getitem, "is not a call to an ATen overload"),
    GraphRule(("call_function",), _is_functional, "writes to its input"),
    GraphRule(("placeholder", "get_attr"), makes_tensor, "has no tensor type"),
    GraphRule(("call_function",), _is_typed, "has no tensor type"),
    GraphRule(("get_attr",), _constant_matches, "differs from the type it carries"),
    GraphRule(
        ("placeholder", "get_attr", "call_function"), _order_fits, "cannot lie channels last"
    ),
    GraphRule(
        ("call_function", "output"), _inputs_lie_right, "reads a value in the wrong dim order"
    ),
)


def verify(graph: fx.Graph, types: bool = False) -> None:
    """Checks every rule; with ``types`` also runs each ATen call on meta tensors (slower).

    Raises FrontendError naming the first node that breaks a rule, its operation and the rule.
    """
    graph.lint()
    known_kinds = RULES[0].kinds
    for node in graph.nodes:
        if node.op not in known_kinds:
            raise FrontendError(f"{node.name}: {node.op} {node.target}: {RULES[0].message}")
        for rule in RULES:
            if node.op in rule.kinds and not rule.holds(node):
                raise FrontendError(f"{node.name}: {op_name(node.target)} {rule.message}")
        if types and isinstance(node.target, OpOverload) and makes_tensor(node):
            _verify_type(node)


def _verify_type(node: fx.Node) -> None:
    try:
        inferred = infer(node.target, node.args, node.kwargs)  # type: ignore[arg-type]
    except NotImplementedError:
        return  # an operator that PyTorch runs on data only
    inferred_type = describe(inferred)
    node_type = type_of(node)
    if inferred_type != TensorType(node_type.shape, node_type.dtype):
        raise FrontendError(
            f"{node.name}: {op_name(node.target)} gives {inferred_type}, its type says {node_type}"
        )
