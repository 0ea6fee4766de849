"""Put a plan into a program: its segments on NNAPI become delegated calls, the rest stays ATen."""

from __future__ import annotations

import hashlib
import operator
import struct
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from nnapi_prof.api.model import Model
from nnapi_prof.api.plan import ModelPlan
from nnapi_prof.bundle import Bundle
from nnapi_prof.bundle.deployment import ALIGNMENT, open_sizes, runtime_parts
from nnapi_prof.convert.region import Region
from nnapi_prof.errors import UsageError
from nnapi_prof.execution.build import DescribedDevice, bundle_at
from nnapi_prof.executorch.signed import sign_bytes
from nnapi_prof.frontend.loader import ModelKind, model_kind, read_exported
from nnapi_prof.graph import DimOrder, TensorType
from nnapi_prof.graph.node import ScriptCall, constant_value, is_constant, torch_dtype
from nnapi_prof.graph.plan import Engine, Plan, Segment
from nnapi_prof.graph.program import Program
from nnapi_prof.graph.unit import Unit

# A delegated call: one operator in an exported program that stands for segments of a plan.
#
# ``nnapi_prof::call(inputs, key)`` has no kernel. It exists from the moment a plan is put into a
# program until :class:`~nnapi_prof.executorch.partitioner.NnapiBackend` turns it into bytes.
# ``key`` names the :class:`DelegatedCall` of this process that defines what it computes.


MAGIC, VERSION = b"NPET", 1
_HEAD = struct.Struct("<4s5IQ")
_WEIGHT = struct.Struct("<QQ64s")
"""Both match device_agent/executorch/backend.cpp."""


@dataclass(frozen=True, eq=False)
class DelegatedCall:
    """One delegated call: a bundle, from ``inputs`` to ``outputs``."""

    bundle: Bundle = field(repr=False)
    inputs: tuple[str, ...]
    """Values of the graph, in the order of the operator's arguments."""
    outputs: tuple[str, ...]
    last: frozenset[str] = frozenset()
    """Outputs that lie channels last in ExecuTorch's memory, too."""

    @cached_property
    def _parts(self) -> tuple[bytes, tuple[tuple[int, bytes], ...]]:
        return runtime_parts(self.bundle)

    @cached_property
    def weights(self) -> Mapping[str, bytes]:
        """The bytes of the weights by their SHA-256 in hexadecimal."""
        return {hashlib.sha256(data).hexdigest(): data for _, data in self._parts[1]}

    @property
    def regions(self) -> tuple[Region, ...]:
        """The NNAPI models of the plan's segments on NNAPI."""
        return tuple(
            self.bundle.region(segment.units, segment.target)
            for segment in self.bundle.plan.segments
            if segment.target.engine is Engine.NNAPI
        )

    @cached_property
    def key(self) -> str:
        """Name of the call: calls with equal names compute the same."""
        places = self.processed(range(len(self.inputs)), range(len(self.outputs)))
        return hashlib.sha256(places).hexdigest()

    def processed(self, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        """Returns the bytes that the delegate reads (backend.cpp), for a call with its arguments
        and results in the order of these indices into ``self.inputs`` and ``self.outputs``."""
        bundle, weights = self._parts
        graph = self.bundle.graph
        entering = [name for name in dict.fromkeys(graph.inputs) if name in self.inputs]
        leaving = list(dict.fromkeys(graph.outputs))
        in_places = {self.inputs[index]: place for place, index in enumerate(inputs)}
        out_places = {
            self.outputs[index]: len(inputs) + place for place, index in enumerate(outputs)
        }
        places = [in_places[name] for name in entering] + [out_places[name] for name in leaving]
        rows = b"".join(
            _WEIGHT.pack(offset, len(data), hashlib.sha256(data).hexdigest().encode())
            for offset, data in weights
        ) + struct.pack(f"<{len(places)}I", *places)
        start = _HEAD.size + len(rows)
        padding = -start % ALIGNMENT
        head = _HEAD.pack(
            *(MAGIC, VERSION, len(entering), len(leaving), len(weights)),
            *(start + padding, len(bundle)),
        )
        return head + rows + bytes(padding) + bundle

    def types(self, names: Sequence[str]) -> list[TensorType]:
        return [self.bundle.graph.values[name] for name in names]


_CALLS: weakref.WeakValueDictionary[str, DelegatedCall] = weakref.WeakValueDictionary()
"""Calls by key, as long as something holds them, such as a partitioner."""


def remember(call: DelegatedCall) -> str:
    """Stores a call for :func:`find`; returns its key."""
    _CALLS[call.key] = call
    return call.key


def find(key: str) -> DelegatedCall:
    """Returns the call of a key. Raises KeyError where it is another process's."""
    return _CALLS[key]


@torch.library.custom_op("nnapi_prof::call", mutates_args=())
def delegated(inputs: Sequence[Tensor], key: str) -> list[Tensor]:
    raise NotImplementedError("nnapi_prof::call is lowered to ExecuTorch, and computes nothing")


@delegated.register_fake
def _shapes(inputs: Sequence[Tensor], key: str) -> list[Tensor]:
    call = find(key)
    return [
        torch.empty(
            type_.shape,
            dtype=torch_dtype(type_.dtype),
            memory_format=(torch.channels_last if name in call.last else torch.contiguous_format),
        )
        for name, type_ in zip(call.outputs, call.types(call.outputs), strict=True)
    ]


def lies_last(type_: TensorType) -> bool:
    """Returns whether a value is channels last on the device."""
    return type_.dim_order is DimOrder.CHANNELS_LAST


aten = torch.ops.aten


LEVEL = 30
"""Feature level that a plan is lowered for without a phone: Android 11's."""


def bundle_for(planned: ModelPlan, level: int = LEVEL) -> Bundle:
    """Returns a plan with converted regions: for its device, or at ``level`` without one."""
    if planned.converted is not None or (planned.costs and planned.costs.agent_info):
        return planned.bundle
    targets = {s.target for plan in planned.plans for s in plan.segments}
    levels = {target.base.key: level for target in targets}
    device = DescribedDevice(levels, planned.device, "", planned.simulated)
    file = f"model{planned.model.path.suffix}"
    bundle = bundle_at(
        planned.model.program, file, device, planned.plans, planned.conditions, planned.model.notes
    )
    return replace(bundle, mixed=planned.model.mixed)


def check_sizes(model: Model) -> None:
    """Raises UsageError where a model leaves sizes open, which delegated calls do not support."""
    refusal = open_sizes(model.name, model.inputs)
    if refusal is not None:
        raise UsageError(refusal)
    if model.mixed is None and model_kind(model.path) is ModelKind.EXPORTED:
        check_exported(read_exported(model.path), model.name)


def check_exported(program: ExportedProgram, name: str) -> None:
    """Raises UsageError where an exported program leaves sizes open."""
    ranges = [
        f"{symbol}: {bounds.lower} to {bounds.upper}"
        for symbol, bounds in program.range_constraints.items()
    ]
    if ranges:
        raise UsageError(
            f"{name} leaves sizes open ({', '.join(ranges)}), and those of a delegated call are"
            " fixed",
            "export it without dynamic_shapes; for several sizes write a file of each",
        )


def check_units(program: Program, bundle: Bundle) -> None:
    """Raises UsageError where a bundle's units are not those of the program."""
    ours = [(unit.nodes, unit.inputs, unit.outputs) for unit in bundle.graph.units]
    if ours != [(unit.nodes, unit.inputs, unit.outputs) for unit in program.units.units]:
        raise UsageError(
            f"the plan is of another model than {program.name}, or was made by another version",
            "make it again",
        )


def placed_module(
    program: Program, bundle: Bundle, whole: bool = False
) -> tuple[fx.GraphModule, tuple[DelegatedCall, ...]]:
    """Returns the program with a delegated call in place of each NNAPI segment of the bundle's
    plan, and the calls. With ``whole``, the bundle is one call, with all its plans.

    The module takes and returns the same as ``program.module``. Changes of dim order, which do not
    change values, are removed. Raises UsageError where ExecuTorch does not support the rest.
    """
    check_units(program, bundle)
    placing = _Placing(program)
    if whole:
        placing.call(_whole_call(bundle))
        return placing.finish()
    calls = {segment: segment_call(bundle, segment) for segment in _on_nnapi(bundle.plan)}
    readers = _readers(program, bundle.plan, calls.values())
    for segment in bundle.plan.segments:
        if segment in calls:
            call = calls[segment]
            last = frozenset(
                name
                for name, type_ in zip(call.outputs, call.types(call.outputs), strict=True)
                if lies_last(type_) and name not in readers
            )
            placing.call(replace(call, last=last))
        else:
            placing.units(segment.units)
    module, placed = placing.finish()
    sign_bytes(module)
    return module, placed


def region_module(
    program: Program, units: Iterable[int]
) -> tuple[fx.GraphModule, tuple[str, ...], tuple[str, ...]]:
    """Returns some units as a module, and the values that it takes and returns, in order.

    Raises UsageError where ExecuTorch does not support them.
    """
    region = tuple(units)
    inputs, outputs = program.units.boundary(region)
    placing = _Placing(program, inputs)
    placing.units(region)
    module, _ = placing.finish(tuple(program.nodes[name] for name in outputs))
    return module, inputs, outputs


def calls_module(calls: Iterable[DelegatedCall]) -> fx.GraphModule:
    """Return a module of delegated calls that do not read each other's values: it takes the inputs
    of all, in order, and returns their outputs."""
    graph, outputs = fx.Graph(), []
    for number, call in enumerate(calls):
        arguments = [graph.placeholder(f"call_{number}_{name}") for name in call.inputs]
        target = torch.ops.nnapi_prof.call.default
        result = graph.call_function(target, (arguments, remember(call)))
        for index in range(len(call.outputs)):
            outputs.append(graph.call_function(operator.getitem, (result, index)))
    graph.output(tuple(outputs))
    return fx.GraphModule(torch.nn.Module(), graph)


def computes_nothing(program: Program, unit: Unit) -> bool:
    """Returns whether a unit only changes dim orders, which ExecuTorch's values do not have."""
    return all(_is_layout(program.nodes[name]) for name in unit.nodes)


def _is_layout(node: fx.Node) -> bool:
    return node.target is aten.clone.default


def plain_module(program: Program) -> fx.GraphModule:
    """Returns the program without calls or changes of dim order, which XNNPACK makes itself."""
    placing = _Placing(program)
    placing.units(range(len(program.units.units)))
    module, _ = placing.finish()
    sign_bytes(module)
    return module


def _on_nnapi(plan: Plan) -> list[Segment]:
    return [s for s in plan.segments if s.target.engine is Engine.NNAPI]


def _readers(program: Program, plan: Plan, calls: Iterable[DelegatedCall]) -> set[str]:
    """Returns the values that anything but a delegated call reads."""
    graph = program.units
    return set(graph.outputs).union(
        *(
            graph.units[unit].inputs
            for segment in plan.segments
            if segment.target.engine is not Engine.NNAPI
            for unit in segment.units
        )
    )


def segment_call(bundle: Bundle, segment: Segment) -> DelegatedCall:
    """Returns the call of one segment, with its own bundle."""
    region = bundle.region(segment.units, segment.target)
    plan = Plan("segment", (segment,), bundle.simulated)
    own = replace(
        bundle,
        graph=replace(bundle.graph, inputs=region.inputs, outputs=region.outputs),
        plans=(plan,),
        plan_set=None,
        copies=None,
    )
    return DelegatedCall(own, region.inputs, region.outputs)


def _whole_call(bundle: Bundle) -> DelegatedCall:
    inside = {name for s in bundle.plan.segments for name in bundle.graph.boundary(s.units)[0]}
    inside.update(() if bundle.copies is None else bundle.copies.inputs)
    inputs = tuple(name for name in dict.fromkeys(bundle.graph.inputs) if name in inside)
    return DelegatedCall(bundle, inputs, tuple(dict.fromkeys(bundle.graph.outputs)))


class _Placing:
    """Builds the new graph, segment by segment."""

    def __init__(self, program: Program, inputs: Iterable[str] | None = None) -> None:
        """Begins a graph that takes the values ``inputs``; None: the program's own."""
        self._program = program
        self._module = fx.GraphModule(torch.nn.Module(), fx.Graph())
        self._calls: list[DelegatedCall] = []
        if inputs is None:
            inputs = (n.name for n in program.module.graph.nodes if n.op == "placeholder")
        self._nodes = {name: self._module.graph.placeholder(name) for name in inputs}

    def units(self, units: Iterable[int]) -> None:
        """Copies units as they are."""
        for unit in sorted(units):
            for name in self._program.units.units[unit].nodes:
                self._copy(self._program.nodes[name])

    def call(self, call: DelegatedCall) -> None:
        graph = self._module.graph
        arguments = [self._node(name) for name in call.inputs]
        target = torch.ops.nnapi_prof.call.default
        result = graph.call_function(target, (arguments, remember(call)))
        for index, name in enumerate(call.outputs):
            self._nodes[name] = graph.call_function(operator.getitem, (result, index))
        self._calls.append(call)

    def finish(
        self, output: fx.node.Argument = None
    ) -> tuple[fx.GraphModule, tuple[DelegatedCall, ...]]:
        """Ends the graph with ``output``, made of the program's nodes; None: its own output."""
        if output is None:
            output = self._program.module.graph.output_node().args[0]
        values = fx.node.map_arg(output, lambda node: self._node(node.name))
        self._module.graph.output(values)
        self._module.recompile()
        return self._module, tuple(self._calls)

    def _node(self, name: str) -> fx.Node:
        if name not in self._nodes:
            node = self._program.nodes[name]
            if _is_layout(node):
                return self._node(node.all_input_nodes[0].name)
            assert is_constant(node), f"{name} is read before it is computed"
            attribute = f"constant_{len(self._nodes)}"
            self._module.register_buffer(attribute, constant_value(node).detach())
            self._nodes[name] = self._module.graph.get_attr(attribute)
        return self._nodes[name]

    def _copy(self, node: fx.Node) -> None:
        if node.name in self._nodes:
            return
        if isinstance(node.target, ScriptCall):
            raise UsageError(
                f"{node.target.construct} on data at {node.target.where} stays TorchScript, which"
                " ExecuTorch has not",
                "export the model with torch.export instead",
            )
        if _is_layout(node):
            return
        copy = self._module.graph.node_copy(node, lambda n: self._node(n.name))
        copy.target = _RESHAPED.get(node.target, node.target)
        self._nodes[node.name] = copy


_RESHAPED: dict[Any, Any] = {aten.view.default: aten.reshape.default}
"""Replaced operators: the strides of a call's results may differ from eager PyTorch's."""
