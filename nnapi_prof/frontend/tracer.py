"""Run an exported graph once on known shapes, and record its calls.

The input may have symbolic sizes, guards, branches on shapes, nested graphs and lifted parameters.
The result is straight: placeholders for the model's inputs, constants, and calls of ATen overloads
on tensors, with a number for every size.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
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
from nnapi_prof.frontend.calls import (
    DataDependent,
    Numbers,
    Step,
    TracedValue,
    WritesToViews,
    after_write,
    is_base,
    shape_from_zeros,
    specialize_constant_args,
    viewed,
)
from nnapi_prof.graph.node import (
    META,
    TENSOR,
    ScriptCall,
    Source,
    add_constant,
    bind,
    describe,
    export_source,
    op_name,
)
from nnapi_prof.graph.quantisation import DEQUANTIZE, DEQUANTIZE_CHANNELS

aten, _decomposed = torch.ops.aten, torch.ops.quantized_decomposed
CONVERSIONS = frozenset(
    {
        DEQUANTIZE,
        DEQUANTIZE_CHANNELS,
        _decomposed.dequantize_per_tensor.tensor,
        _decomposed.dequantize_per_tensor.tensor2,
        aten.fake_quantize_per_tensor_affine.default,
        aten.fake_quantize_per_tensor_affine.tensor_qparams,
        aten.fake_quantize_per_channel_affine.default,
    }
)
"""Calls that are recorded even on constants, so that quantised weights stay integers."""


IN_FLOATS = "in_floats"
"""Key in a graph module's ``meta``: number of parts that it computes in float32 where the model
rounds in between, to integers or half precision."""


class GraphTracer:
    """Runs graphs on fake tensors and records each step that depends on the inputs.

    Calls on constants alone are computed at once. Raises FrontendError for constructs without a
    straight form: values that control branches or shapes, unknown higher-order operators.
    """

    def __init__(self, name: str, keep_draws: bool = False) -> None:
        """With ``keep_draws``, random numbers stay calls of PyTorch; otherwise they are refused."""
        self.name = name
        self.keep_draws = keep_draws
        self._n_draws = 0
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.numbers = Numbers(self.mode)
        self.module = fx.GraphModule(torch.nn.Module(), fx.Graph())
        self._constants: dict[tuple[Any, ...], fx.Node] = {}
        self._by_memory: dict[Any, list[TracedValue]] = {}
        self.names: dict[int, str] = {}
        """Data pointer of a parameter -> its name in the model, for readable graphs."""
        self._alive: list[Tensor] = []  # keeps data pointers that are keys from being reused
        self._own: dict[int, Tensor] = {}
        """Memory made by calls on constants that the graph does not read yet: it may be written."""
        self._computed: dict[int, Tensor] = {}
        """All memory made by calls on constants."""
        self.origin: Callable[[], Source] = Source
        """Returns the source of the model's current node; called when a call is recorded."""
        self._moved: dict[int, tuple[Tensor, TracedValue]] = {}
        """Memory in ``_computed`` that values from the inputs were written to, with its former
        constant and its value in the graph."""

    @property
    def graph(self) -> fx.Graph:
        return self.module.graph

    def placeholder(self, name: str, example: Tensor) -> TracedValue:
        """Adds an input of the model; its example may be a meta tensor."""
        node = self.graph.placeholder(name)
        node.meta[TENSOR] = describe(example)
        if example.is_meta:
            with self.mode:
                return self._remember(
                    TracedValue(node, torch.empty(example.shape, dtype=example.dtype))
                )
        return self._remember(TracedValue(node, self.mode.from_tensor(example)))

    def _remember(self, value: TracedValue) -> TracedValue:
        self._by_memory.setdefault(value.memory, []).append(value)
        return value

    def finish(self, outputs: Sequence[Any]) -> fx.GraphModule:
        """Writes the outputs, flattened to a tuple; constants among them become clones."""
        listed = [value for value in self.now(outputs) if isinstance(value, TracedValue | Tensor)]
        nodes = [self._output(value) for value in listed]
        if not nodes:
            raise FrontendError(f"{self.name} returns no tensor: there is nothing to run")
        self.graph.output(tuple(nodes))
        self.graph.lint()
        self.module.recompile()
        return self.module

    def _output(self, value: TracedValue | Tensor) -> fx.Node:
        if isinstance(value, TracedValue):
            return value.node
        source = self._constant(value, "output")
        copy = self.graph.call_function(torch.ops.aten.clone.default, (source,))
        copy.meta[TENSOR] = describe(value)
        return copy

    def run(self, graph: fx.Graph, module: torch.nn.Module, inputs: Sequence[Any]) -> Any:
        """Runs ``graph`` with ``inputs`` for its placeholders, and returns its outputs."""
        values: dict[fx.Node, Any] = {}
        input_iter = iter(inputs)
        for node in graph.nodes:
            if node.op == "placeholder":
                values[node] = next(input_iter)
            elif node.op == "get_attr":
                values[node] = operator.attrgetter(str(node.target))(module)
            elif node.op == "output":
                return fx.node.map_arg(node.args[0], lambda n: values[n])
            elif not _only_counts(node, values):
                values[node] = self.carry_out(node, values)
        raise FrontendError(f"{self.name}: a nested graph has no output")

    def carry_out(self, node: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
        """Carries out one node; ``values`` has the results of those before it."""
        return self._call(node, _mapped(node.args, values), _mapped(node.kwargs, values))

    def _call(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        target = node.target
        if node.op != "call_function" or isinstance(target, str):
            raise FrontendError(f"{self.name}: {node.op} {target} has no place in an ATen graph")
        if isinstance(target, HigherOrderOperator):
            return self._higher_order(target, args, source_of(node))
        self.origin = lambda: export_source(node)
        return self.call(Step(target, args, kwargs, source_of(node), node.name.rstrip("_")))

    def call(self, step: Step) -> Any:
        """Computes a call on constants alone now; records any other call in the graph."""
        if _is_check(step.target):
            return None
        draws = isinstance(step.target, OpOverload) and self._draws(step, step.target)
        args, kwargs = self.now((step.args, step.kwargs))
        step = specialize_constant_args(replace(step, args=args, kwargs=kwargs))
        is_written = draws or step.target in CONVERSIONS
        if not is_written and not is_traced((step.args, step.kwargs)):
            return self._compute(step)
        if step.target is operator.getitem and isinstance(step.args[0], list | tuple):
            return step.args[0][step.args[1]]
        if isinstance(step.target, OpOverload) and step.target._schema.is_mutable:
            return self._write_in_place(step, step.target)
        return self._strided(step) or self._write(step)

    def _compute(self, step: Step) -> Any:
        """Computes a call on constants."""
        target = step.target
        if target is torch.ops.aten.detach_.default:
            return step.args[0]
        if isinstance(target, OpOverload) and target._schema.is_mutable:
            bound = bind(target, step.args, step.kwargs)
            written = (bound[a.name] for a in target._schema.arguments if a.is_write)
            if not all(_memory(value) in self._own for value in pytree.tree_leaves(list(written))):
                return self._write_in_place(step, target)
        with torch.no_grad():
            if self.numbers.among(step):
                result = self.numbers.compute(step)
            else:
                result = target(*step.args, **step.kwargs)
            if getattr(target, "overloadpacket", None) in _EMPTY:
                result.zero_()
        return self.own(result, (step.args, step.kwargs))

    def own(self, result: Any, inputs: Any) -> Any:
        """Marks constants in a call's result as writable where no input shares their memory."""
        input_memory = {_memory(value) for value in pytree.tree_leaves(inputs)}
        for value in pytree.tree_leaves(result):
            if isinstance(value, Tensor) and _memory(value) not in input_memory:
                self._own[_memory(value)] = self._computed[_memory(value)] = value
        return result

    def now(self, values: Any) -> Any:
        """Returns the values, with current values for constants that were written to."""
        if not self._moved:
            return values

        def current(value: Tensor) -> Any:
            if _memory(value) not in self._moved:
                return value
            base, moving = self._moved[_memory(value)]
            place = (value.shape, value.stride(), value.storage_offset())
            if place == moving.place:
                return moving
            view = viewed(self.call, moving, base, value)
            with self.mode:
                fake = moving.fake.as_strided(*place)
            return self._remember(TracedValue(view.node, fake))

        return pytree.tree_map_only(Tensor, current, values)

    def moving(self, value: Any) -> Any:
        """Turns a constant made by a call into a value in the graph that can be written to."""
        base = self._computed.get(_memory(value)) if isinstance(value, Tensor) else None
        if base is None or not base.numel() or base.is_quantized or not is_base(base):
            return value
        node = self._constant(base.clone(), "constant")
        with self.mode:
            fake = torch.empty(base.shape, dtype=base.dtype)
        self._moved[_memory(value)] = base, self._remember(TracedValue(node, fake))
        return self.now(value)

    def _write(self, step: Step) -> Any:
        """Records a call on at least one value that depends on the inputs."""
        if self.numbers.among(step):
            step = self.numbers.promoted(step)
        args, kwargs = pytree.tree_map_only(TracedValue, lambda v: v.fake, (step.args, step.kwargs))
        alike = shape_from_zeros(step)
        try:
            with self.mode, torch.no_grad():
                result = step.target(*args, **kwargs) if alike is None else torch.empty(alike.shape)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise DataDependent(
                f"{self.name}: {op_name(step.target)} ({step.where}) makes a shape or a branch"
                " depend on the values of a tensor, which NNAPI cannot: give a model whose shapes"
                " follow from its inputs' shapes, or have it in parts (`nnapi-prof go`, or"
                " `nnapi-prof convert` as it is by default), which leaves that to the CPU"
            ) from error
        except RuntimeError as error:
            error.add_note(f"{op_name(step.target)}, {step.where}")
            raise
        if not any(isinstance(value, Tensor) for value in pytree.tree_leaves(result)):
            return result  # a size, a number of dimensions: concrete on these inputs
        if not isinstance(step.target, OpOverload):
            raise FrontendError(f"{self.name}: {op_name(step.target)} is not an ATen operator")
        if self._draws(step, step.target):
            return self._drawn(step, step.target, result)
        return self._written(step, step.target, result)

    def _drawn(self, step: Step, target: OpOverload, result: Tensor) -> TracedValue:
        """Records a call that draws random numbers, as a function that stays PyTorch's."""
        graph, inputs = fx.Graph(), list[TracedValue | Tensor]()

        def argument(value: Any) -> Any:
            if not isinstance(value, TracedValue | Tensor):
                return value
            inputs.append(value)
            return graph.placeholder(f"value_{len(inputs)}")

        args, kwargs = pytree.tree_map(argument, (tuple(step.args), dict(step.kwargs)))
        graph.output((graph.call_function(target, args, kwargs),))
        self._n_draws += 1
        word = target._schema.name.partition("::")[2].partition("_functional")[0]
        function = fx.GraphModule(torch.nn.Module(), graph)
        call = ScriptCall(function, self._n_draws, f"{word}_drawn", step.where, draws=True)
        return self.script_call(call, inputs, [result])[0]

    def _strided(self, step: Step) -> TracedValue | None:
        """Records ``as_strided(x, ...)`` as slices or picks of the tensor whose memory it reads, so
        that x may have any layout; None for other calls, and where that tensor is unknown."""
        if step.target is not torch.ops.aten.as_strided.default:
            return None
        source, *place = bind(step.target, step.args, step.kwargs).values()
        sharing = self._by_memory.get(source.memory, ()) if isinstance(source, TracedValue) else ()
        base = next((value for value in sharing if is_base(value.fake)), None)
        if base is None or base.fake.dtype != source.fake.dtype:
            return None
        with self.mode:
            fake = source.fake.as_strided(*place)
        view = viewed(self.call, base, base.fake, fake)
        return self._remember(TracedValue(view.node, fake))

    def _write_in_place(self, step: Step, target: OpOverload) -> Any:
        """Turns ``op_(x)`` into ``y = op(x)``; later readers of x, or of its views, read y.

        Raises WritesToViews where op has no functional twin, or views have no base.
        """
        packet = target._schema.name.partition("::")[2]
        family = getattr(torch.ops.aten, packet.removesuffix("_"), None)
        twin = _TWINS.get(target) or getattr(family, target._overloadname, None)
        written = self.moving(step.args[0]) if step.args else None
        if not isinstance(written, TracedValue) or twin is None or twin is target:
            raise WritesToViews(op_name(target))
        result = self._write(replace(step, target=twin, args=(written, *step.args[1:])))
        same = isinstance(result, TracedValue) and (
            (result.fake.shape, result.fake.dtype) == (written.fake.shape, written.fake.dtype)
        )
        if not same:
            raise WritesToViews(op_name(target))
        sharing = list(self._by_memory[written.memory])
        values = [result] * len(sharing)
        if any(other.place != written.place for other in sharing):
            values = after_write(self.call, written, result, sharing)
        for other, value in zip(sharing, values, strict=True):
            other.node = value.node
        return written

    def _written(self, step: Step, target: OpOverload, result: Any) -> Any:
        args, kwargs = pytree.tree_map(self._argument, (step.args, step.kwargs))
        call = self.graph.create_node("call_function", target, tuple(args), kwargs, step.hint)
        call.meta[META] = self.origin()
        if isinstance(result, Tensor):
            call.meta[TENSOR] = describe(result)
            return self._remember(TracedValue(call, result))
        parts: list[Any] = []
        for index, value in enumerate(result):
            part: Any = value
            if isinstance(value, Tensor):
                reader = self.graph.call_function(operator.getitem, (call, index))
                reader.meta[TENSOR] = describe(value)
                part = self._remember(TracedValue(reader, value))
            parts.append(part)
        return parts

    def script_call(
        self, target: ScriptCall, inputs: Sequence[TracedValue | Tensor], fakes: Sequence[Tensor]
    ) -> list[TracedValue]:
        """Records a call of a function that stays PyTorch's; ``fakes`` stand for its results."""
        call = self.graph.call_function(target, tuple(map(self._argument, inputs)))
        parts = []
        for index, fake in enumerate(fakes):
            reader = self.graph.call_function(operator.getitem, (call, index))
            reader.meta[TENSOR] = describe(fake)
            with self.mode:
                parts.append(self._remember(TracedValue(reader, torch.empty_like(fake))))
        return parts

    def _argument(self, value: Any) -> Any:
        if isinstance(value, TracedValue):
            return value.node
        if isinstance(value, Tensor):
            return self._constant(value, "constant")
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            raise FrontendError(f"{self.name}: the size {value} is not known")
        return value

    def _constant(self, value: Tensor, hint: str) -> fx.Node:
        """Returns the get_attr node of a constant, one for all tensors of its memory and shape."""
        key = (value.data_ptr(), value.dtype, tuple(value.shape), value.stride())
        if key not in self._constants or value.numel() == 0:
            self._alive.append(value)
            self._own.pop(_memory(value), None)
            self._constants[key] = add_constant(
                self.graph, value.detach(), self.names.get(value.data_ptr(), hint)
            )
        return self._constants[key]

    def _higher_order(self, target: HigherOrderOperator, args: Any, where: str) -> Any:
        name = str(target.name())  # type: ignore[no-untyped-call]
        if name == "cond":
            predicate, if_true, if_false, operands = args
            if isinstance(predicate, TracedValue):
                raise DataDependent(branch_refusal(self.name, where))
            return self._nested(if_true if bool(predicate) else if_false, operands)
        if name == "wrap_with_set_grad_enabled":
            return self._nested(args[1], args[2:])
        if name == "wrap_with_autocast":
            carry_out = self._without_autocast if args[2] else self._nested
            return carry_out(args[4], args[5:])
        raise DataDependent(f"{self.name}: the construct {name} ({where}) is not supported")

    def _nested(self, graph_module: fx.GraphModule, operands: Sequence[Any]) -> Any:
        return self.run(graph_module.graph, graph_module, operands)

    def _without_autocast(self, graph_module: fx.GraphModule, operands: Sequence[Any]) -> Any:
        """Runs an autocast part in float32, not half precision; its results keep their types."""
        meta = self.module.meta
        meta[IN_FLOATS] = meta.get(IN_FLOATS, 0) + 1

        def cast(value: Any, dtype: torch.dtype) -> Any:
            if not isinstance(value, TracedValue | Tensor):
                return value
            own = value.fake.dtype if isinstance(value, TracedValue) else value.dtype
            if own == dtype or not own.is_floating_point:
                return value
            copied = Step(aten._to_copy.default, (value,), {"dtype": dtype}, "autocast", "autocast")
            return self.call(copied)

        results = self._nested(graph_module, [cast(value, torch.float32) for value in operands])
        declared = graph_module.graph.output_node().args[0]
        is_one = not isinstance(declared, tuple | list)
        pairs = zip(*(([v] if is_one else v) for v in (results, declared)), strict=True)
        kept = [
            cast(value, node.meta["val"].dtype) if isinstance(node, fx.Node) else value
            for value, node in pairs
        ]
        return kept[0] if is_one else kept

    def _draws(self, step: Step, target: OpOverload) -> bool:
        """Returns whether a call draws random numbers that may stay in the graph. Raises
        FrontendError for others, and for dropout or batch norm in training mode."""
        bound = bind(target, step.args, step.kwargs)
        if "batch_norm" in op_name(target):
            draws = bound.get("running_mean") is not None and (
                bound.get("training", bound.get("train", False))
            )
        elif torch.Tag.nondeterministic_seeded in target.tags:
            off = bound.get("train", bound.get("training")) is False or bound.get("p") == 0
            draws = not off and bound.get("dropout_p") != 0
        else:
            return False
        if not draws:
            return False
        training = f"{self.name}: {op_name(target)} ({step.where}) draws random numbers"
        if "batch_norm" in op_name(target) or {"train", "training", "dropout_p"} & bound.keys():
            raise FrontendError(
                f"{training} or changes its statistics: the model is in training mode",
                "call model.eval() before tracing or exporting it; write dropout that is meant as"
                " x * (torch.rand_like(x) > p) / (1 - p)",
            )
        if self.keep_draws:
            return True
        raise FrontendError(
            f"{training}, which NNAPI cannot",
            "give the model its random numbers as an input, or have it in parts (`nnapi-prof go`,"
            " or `nnapi-prof convert` as it is by default), which leaves them to the CPU",
        )


_TWINS = {aten.normal_.default: aten.normal_functional.default}
"""In-place call -> its functional twin, where the name does not give it."""


_EMPTY = {aten.empty, aten.empty_like, aten.empty_strided, aten.empty_permuted, aten.new_empty,
          aten.new_empty_strided}  # fmt: skip
"""Calls that return uninitialised memory; in a graph it is a constant of zeros."""


def branch_refusal(name: str, where: str) -> str:
    """Returns the message for control flow that does not follow from shapes."""
    return (
        f"{name}: a branch ({where}) depends on the values of a tensor: only branches that follow "
        f"from input shapes are possible"
    )


def _mapped(args: Any, values: Mapping[fx.Node, Any]) -> Any:
    return fx.node.map_aggregate(args, lambda a: values[a] if isinstance(a, fx.Node) else a)


def is_traced(args: Any) -> bool:
    return any(isinstance(value, TracedValue) for value in pytree.tree_leaves(args))


_CHECKS = ("_assert", "sym_constrain", "_guard", "assert_")


def _is_check(target: Any) -> bool:
    """Returns whether a call asserts shapes or metadata: that holds on the shapes that run here."""
    name = target._schema.name if isinstance(target, OpOverload) else op_name(target)
    return name.rpartition("::")[2].startswith(_CHECKS)


def _memory(value: Any) -> int:
    """Returns the address of a tensor's storage, which its views share; 0 for anything else."""
    return value.untyped_storage().data_ptr() if isinstance(value, Tensor) else 0


def source_of(node: fx.Node) -> str:
    """Returns the source line that made a node, as far as the node records it."""
    trace = str(node.meta.get("stack_trace") or "").strip().splitlines()
    lines = [line.strip() for line in trace if line.strip().startswith("File ")]
    if not lines:
        return f"node {node.name}"
    parts = lines[-1].replace('"', "").split(", ")
    return f"{parts[0].removeprefix('File ')}:{parts[1].removeprefix('line ')}"


def _only_counts(node: fx.Node, values: Mapping[fx.Node, Any]) -> bool:
    """Returns whether a call writes to integers of the model's state that nothing else reads, such
    as batch norm's count of batches."""
    counter = node.args[0] if node.args else None
    if not isinstance(node.target, OpOverload) or not node.target._schema.is_mutable:
        return False
    if node.users or not isinstance(counter, fx.Node) or len(counter.users) > 1:
        return False
    value = values[counter]
    is_state = counter.op == "placeholder" and isinstance(value, Tensor)
    return is_state and not value.is_floating_point()
