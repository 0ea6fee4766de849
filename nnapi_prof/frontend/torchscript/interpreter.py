"""Walk TorchScript once on known shapes: the first and fastest of the four routes.

The graph is interpreted: arithmetic on sizes, branches, loops and lists are carried out in Python,
calls on tensors go to the GraphTracer. There are no symbolic shapes, which make PyTorch's own
converter slow, and on which it fails where sizes are computed as tensors.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from nnapi_prof.errors import FrontendError, KeepsState
from nnapi_prof.frontend.calls import DataDependent, Step, TracedValue
from nnapi_prof.frontend.quant import (
    NoFloatForm,
    Quantised,
    QuantisedCalls,
    float_form,
    is_quantised,
    plain,
    quantised_input,
)
from nnapi_prof.frontend.torchscript.builtins import (
    ON_CONTAINERS,
    ON_ENUMS,
    ON_NUMBERS,
    PYTHON,
    UNPACK,
    NestedTensor,
    call_on_nested,
    overload_of,
    source,
)
from nnapi_prof.frontend.torchscript.control_flow import DeferredValue, Outliner
from nnapi_prof.frontend.torchscript.inputs import forward_arguments
from nnapi_prof.frontend.tracer import IN_FLOATS, GraphTracer, branch_refusal, is_traced
from nnapi_prof.graph.node import bind, script_source

# Recurrent layers and cells in dynamic quantisation, computed in floats.
#
# They round their inputs in every step, with a scale of that step. In floats the layer is one
# operation of NNAPI, or a series of steps without those scales; the weights stay rounded.

aten = torch.ops.aten
Form = Callable[[QuantisedCalls, dict[str, Any], str], Any]


def recurrence_form(packet: str) -> Form | None:
    """Returns a function that computes a quantised recurrence in floats, given its arguments by
    name; None for any other operator."""
    return _FORMS.get(packet)


def _weights(packed: Any) -> tuple[Tensor, Tensor | None]:
    """Returns the weight and the bias of a packed linear layer."""
    try:
        weight, bias = torch.ops.quantized.linear_unpack(packed)
    except RuntimeError:  # packed in float16, which another operator unpacks
        weight, bias = torch.ops.quantized.linear_unpack_fp16(packed)
    weight = weight.dequantize() if weight.is_quantized else weight.float()
    return weight, None if bias is None else bias.float()


def _cell_weights(packed: Sequence[Any]) -> list[Tensor]:
    """Returns the weights of a cell's two linear layers, then their biases or zeros."""
    pairs = [_weights(one) for one in packed]
    weights = [weight for weight, _ in pairs]
    biases = [torch.zeros(w.shape[0]) if bias is None else bias for w, bias in pairs]
    return [*weights, *biases]


def _layer(target: OpOverload) -> Form:
    def form(calls: QuantisedCalls, args: dict[str, Any], where: str) -> Any:
        parameters: list[Tensor] = []
        for cell in args["params"]:
            (kind, *_, packed), _ = cell.__getstate__()  # the state, and the name of its class
            if len(packed) != 2:
                raise NoFloatForm(f"weights of the kind {kind}")
            parameters += _cell_weights(packed)
        names = ("num_layers", "dropout", "train", "bidirectional", "batch_first")
        x, hx = args["input"], args["hx"]
        _count(calls)
        return calls.step(target, (x, hx, parameters, True, *(args[n] for n in names)), where)

    return form


def _cell(target: OpOverload) -> Form:
    def form(calls: QuantisedCalls, args: dict[str, Any], where: str) -> Any:
        weights = _cell_weights([args["w_ih"], args["w_hh"]])
        _count(calls)
        return calls.step(target, (args["input"], args["hx"], *weights), where)

    return form


def _count(calls: QuantisedCalls) -> None:
    meta = calls.tracer.module.meta
    meta[IN_FLOATS] = meta.get(IN_FLOATS, 0) + 1


_FORMS: dict[str, Form] = {
    "quantized_lstm": _layer(aten.lstm.input),
    "quantized_gru": _layer(aten.gru.input),
    "quantized_lstm_cell_dynamic": _cell(aten.lstm_cell.default),
    "quantized_gru_cell_dynamic": _cell(aten.gru_cell.default),
    "quantized_rnn_tanh_cell_dynamic": _cell(aten.rnn_tanh_cell.default),
    "quantized_rnn_relu_cell_dynamic": _cell(aten.rnn_relu_cell.default),
}


class WalkRefused(Exception):
    """A construct that the walker does not know, and another route may; the message names it."""


def walked_graph(
    model: torch.jit.ScriptModule,
    examples: Sequence[Tensor],
    name: str,
    outliner: Outliner | None = None,
    keep_draws: bool = False,
) -> fx.GraphModule:
    """Returns the model's straight graph on the shapes of ``examples``.

    With an ``outliner``, parts that depend on data stay TorchScript; the model must then be frozen.
    With ``keep_draws``, random numbers stay calls of PyTorch. Raises WalkRefused for unknown
    constructs, WritesToViews, DataDependent, and FrontendError for others without a straight form.
    """
    tracer = GraphTracer(name, keep_draws)
    for path, value in [*model.named_parameters(), *model.named_buffers()]:
        tracer.names.setdefault(value.data_ptr(), path)
    graph = _inlined(model.inlined_graph)
    arguments = forward_arguments(model)
    names = _distinct([argument.name for argument in arguments])
    inputs: list[Any] = [
        quantised_input(tracer, argument, example)
        for argument, example in zip(names, examples, strict=False)
    ]
    inputs += [argument.default_value for argument in arguments[len(examples) :]]
    walker = _TorchScriptInterpreter(tracer, name)
    walker.outliner = outliner
    for parameter, argument in zip(graph.inputs(), [model, *inputs], strict=True):
        walker.values[parameter.debugName()] = argument
    results = walker.block(graph)
    walker.state.check(name)
    leaves = pytree.tree_leaves(results, is_leaf=lambda v: isinstance(v, TracedValue))
    if outliner is not None:
        leaves = outliner.settle(walker, leaves, lambda: model(*(e.clone() for e in examples)))
    return tracer.finish([plain(leaf) for leaf in leaves])


def _inlined(graph: Any) -> Any:
    """Returns a copy with calls of functions inlined. TorchScript inlines them when first asked,
    but leaves out functions that ran before that without its optimiser, level by level."""
    graph = graph.copy()
    for _ in range(_MAX_CALLS):
        torch._C._jit_pass_inline(graph)
        if not graph.findAllNodes("prim::CallFunction"):
            break
    return graph


def _distinct(names: Sequence[str]) -> list[str]:
    """Makes names of inputs distinct, as a trace may give two the same."""
    distinct: list[str] = []
    for name in names:
        copies = sum(other == name for other in names[: len(distinct)])
        distinct.append(f"{name}_{copies}" if copies else name)
    return distinct


class _State:
    """Attributes that the model writes while it runs."""

    def __init__(self) -> None:
        self.written: dict[tuple[int, str], Any] = {}
        self.read: dict[tuple[int, str], Any] = {}
        """Values of attributes that the run read before it wrote them."""
        self._owners: dict[int, Any] = {}  # kept alive, so that ids stay unique

    def get(self, owner: Any, name: str) -> Any:
        key = (id(self._owners.setdefault(id(owner), owner)), name)
        if key in self.written:
            return self.written[key]
        return self.read.setdefault(key, getattr(owner, name))

    def set(self, owner: Any, name: str, value: Any) -> None:
        self.written[id(self._owners.setdefault(id(owner), owner)), name] = value

    def check(self, name: str) -> None:
        """Raises KeepsState where the run changed an attribute that it had read before."""
        for key, value in self.read.items():
            if key in self.written and not _same(self.written[key], value):
                raise KeepsState(
                    f"{name} changes its attribute {key[1]} whenever it runs: load it with"
                    " nnapi_prof.load(), which makes an input and an output of such an attribute"
                )


def _same(new: Any, old: Any) -> bool:
    if isinstance(new, Tensor) and isinstance(old, Tensor):
        return new.dtype == old.dtype and torch.equal(new, old)
    return type(new) is type(old) and not isinstance(new, TracedValue) and bool(new == old)


class _TorchScriptInterpreter:
    """A walker: values are kept by debug name; blocks share one namespace, as names are unique."""

    def __init__(self, tracer: GraphTracer, name: str, state: _State | None = None) -> None:
        self.tracer = tracer
        self.name = name
        self.state = state or _State()
        self.values: dict[str, Any] = {}
        self.quantised = QuantisedCalls(tracer)
        self.outliner: Outliner | None = None

    def looking(self, outliner: Outliner) -> _TorchScriptInterpreter:
        """Returns a walker that records nothing, to find the shapes of a block."""
        tracer = GraphTracer(self.name, self.tracer.keep_draws)
        tracer.mode, tracer.numbers = self.tracer.mode, self.tracer.numbers
        inner = _TorchScriptInterpreter(tracer, self.name)
        inner.outliner = outliner
        return inner

    def block(self, block: Any) -> list[Any]:
        """Runs the nodes of a graph or block; returns its outputs."""
        for node in block.nodes():
            results = self._node(node)
            for output, value in zip(node.outputs(), results, strict=False):  # warn has none
                self.values[output.debugName()] = value
        return [self.values[output.debugName()] for output in block.outputs()]

    def _node(self, node: Any) -> list[Any]:
        inputs = [self.values[value.debugName()] for value in node.inputs()]
        if self.outliner is not None:
            return self.outliner.node(self, node, inputs)
        return self.carry_out(node, inputs)

    def carry_out(self, node: Any, inputs: Sequence[Any]) -> list[Any]:
        """Runs a node on its inputs."""
        self.tracer.origin = lambda: script_source(node.scopeName(), node.sourceRange())
        kind = node.kind()
        if kind == "prim::Constant":
            value = node.output().toIValue()
            self.tracer.numbers.note(value)
            return [value]
        if kind == "prim::GetAttr":
            return [self.state.get(inputs[0], node.s("name"))]
        if kind == "prim::SetAttr":
            self.state.set(inputs[0], node.s("name"), inputs[1])
            return []
        if kind == "prim::CallMethod":
            return self._method(inputs[0], node, inputs)
        if kind == "prim::If":
            return self._branch(node, inputs[0])
        if kind == "prim::Loop":
            return self._loop(node, inputs)
        if kind == "prim::RaiseException":
            raise FrontendError(f"{self.name} raises {inputs[0]!r} ({source(node)})")
        if kind in UNPACK:
            return list(inputs[0])
        if kind in PYTHON:
            return [self.tracer.own(PYTHON[kind](*inputs), inputs)]
        if kind in ON_ENUMS and isinstance(inputs[0], enum.Enum):
            return [ON_ENUMS[kind](*inputs)]
        if kind in ON_CONTAINERS and isinstance(inputs[0], list | tuple | dict):
            return [ON_CONTAINERS[kind](*inputs)]
        if kind in ON_NUMBERS and not is_traced(inputs):
            return [self.tracer.own(ON_NUMBERS[kind](*inputs), inputs)]
        if kind == "prim::isinstance":
            return [_is_instance(inputs[0], node)]
        if kind == "aten::__interpolate":
            return [self._interpolate(node, inputs)]
        return self._operator(node, kind, inputs)

    def _method(self, owner: Any, node: Any, inputs: Sequence[Any]) -> list[Any]:
        """Carries out a call that TorchScript did not inline, such as of an interface's method."""
        if not isinstance(owner, torch.jit.ScriptModule):
            raise WalkRefused(f"{node.kind()} {source(node)}")
        graph = _inlined(owner._c._get_method(node.s("name")).inlined_graph)
        inner = _TorchScriptInterpreter(self.tracer, self.name, self.state)
        inner.outliner = self.outliner
        for parameter, value in zip(graph.inputs(), inputs, strict=True):
            inner.values[parameter.debugName()] = value
        return inner.block(graph)

    def _branch(self, node: Any, condition: Any) -> list[Any]:
        if isinstance(condition, TracedValue | DeferredValue):
            raise DataDependent(branch_refusal(self.name, source(node)))
        if_true, if_false = node.blocks()
        return self.block(if_true if condition else if_false)

    def _loop(self, node: Any, inputs: Sequence[Any]) -> list[Any]:
        trips, condition, *carried = inputs
        (body,) = node.blocks()
        names = [value.debugName() for value in body.inputs()]
        for trip in range(int(trips)):
            if isinstance(condition, TracedValue | DeferredValue):
                raise DataDependent(branch_refusal(self.name, source(node)))
            if not condition:
                break
            self.values.update(zip(names, [trip, *carried], strict=True))
            condition, *carried = self.block(body)
        return list(carried)

    def _interpolate(self, node: Any, inputs: Sequence[Any]) -> Any:
        """Carries out ``torch.nn.functional.interpolate``, a TorchScript builtin, as an ATen op."""
        x, size, factor, mode, align_corners = inputs[:5]
        if isinstance(x, Quantised) and mode not in ("nearest", "bilinear"):
            raise WalkRefused(f"{node.kind()} of quantised tensors in mode {mode} {source(node)}")
        recompute, antialias = inputs[5], inputs[6]
        rank = len(x.fake.shape) - 2 if isinstance(x, TracedValue | Quantised) else 0
        sizes, factors = ([v] * rank if isinstance(v, int | float) else v for v in (size, factor))
        target = getattr(torch.ops.aten, f"upsample_{mode}{rank}d", None)
        if target is None or antialias or recompute:
            raise WalkRefused(f"{node.kind()} in mode {mode} {source(node)}")
        align = [] if mode == "nearest" else [bool(align_corners)]
        if isinstance(x, Quantised):
            return self.quantised.call(target.vec, (x, sizes, *align, factors), {}, source(node))
        step = Step(target.vec, (x, sizes, *align, factors), {}, source(node), f"upsample_{mode}")
        return self.tracer.call(step)

    def _operator(self, node: Any, kind: str, inputs: Sequence[Any]) -> list[Any]:
        namespace, _, packet = kind.partition("::")
        target = overload_of(node)
        if target is None:
            raise WalkRefused(f"{kind} {source(node)}")
        form = float_form(packet) if namespace == "quantized" else None
        if form := form or recurrence_form(packet):
            result = form(self.quantised, bind(target, inputs, {}), source(node))
            return [result] if node.outputsSize() == 1 else list(result)
        if packet.endswith("_dynamic"):
            raise FrontendError(
                f"{self.name}: {kind} ({source(node)}) chooses its scales when it runs, which "
                "NNAPI cannot",
                "leave that layer out of torch.ao.quantization.quantize_dynamic, or quantise the"
                " model statically",
            )
        arguments = target._schema.arguments
        args = tuple(v for v, a in zip(inputs, arguments, strict=True) if not a.kwarg_only)
        kwargs = {a.name: v for v, a in zip(inputs, arguments, strict=True) if a.kwarg_only}
        if packet == "_nested_tensor_from_mask" or any(isinstance(v, NestedTensor) for v in inputs):
            padded = call_on_nested(self.tracer.call, target, inputs, source(node))
            if padded is None:
                raise WalkRefused(f"{kind} of nested tensors {source(node)}")
            return [padded]
        quantises = packet == "quantize_per_tensor" and isinstance(inputs[0], TracedValue)
        if quantises or namespace == "quantized" or is_quantised(inputs):
            return self._quantised(node, target, args, kwargs)
        result = self.tracer.call(Step(target, args, kwargs, source(node), packet.strip("_")))
        return [result] if node.outputsSize() == 1 else list(result or ())

    def _quantised(self, node: Any, target: Any, args: tuple[Any, ...], kwargs: Any) -> list[Any]:
        quantises = target._schema.name.endswith("::quantize_per_tensor")
        if not quantises and not is_quantised(args):
            raise WalkRefused(f"{node.kind()} {source(node)}")
        try:
            result = self.quantised.call(target, args, kwargs, source(node))
        except NoFloatForm as error:
            raise FrontendError(
                f"{self.name}: {node.kind()} ({source(node)}) of quantised tensors is not a float "
                f"operator between conversions that is known here ({error})"
            ) from error
        return [result] if node.outputsSize() == 1 else list(result or ())


_KINDS: dict[str, Any] = {
    "TensorType": (TracedValue, Tensor, Quantised),
    "NoneType": type(None),
    "BoolType": bool,
    "IntType": int,
    "FloatType": float,
    "StringType": str,
    "ListType": list,
    "TupleType": tuple,
    "DictType": dict,
}
"""Kinds of types in TorchScript -> types of their values in the walker."""


def _is_instance(value: Any, node: Any) -> bool:
    """Returns whether a value is of one of the types that a node names. Raises WalkRefused for a
    type that the walker cannot check."""
    kinds = [kind.kind() for kind in node.tys("types")]
    if not set(kinds) <= _KINDS.keys():
        raise WalkRefused(f"{node.kind()} {source(node)}")
    return any(isinstance(value, _KINDS[kind]) for kind in kinds)


_MAX_CALLS = 64
"""Largest number of levels of functions that call functions."""
