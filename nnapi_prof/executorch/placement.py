"""A plan put into a program: its segments on NNAPI become delegated calls, the rest stays ATen."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from nnapi_prof.api.bundles import DescribedDevice, bundle_at
from nnapi_prof.api.model import Model
from nnapi_prof.api.plan import ModelPlan
from nnapi_prof.bundle.bundle import Bundle
from nnapi_prof.bundle.deployment import open_sizes
from nnapi_prof.errors import UsageError
from nnapi_prof.executorch.calls import DelegatedCall, lies_last, remember
from nnapi_prof.frontend.loader import ModelKind, model_kind, read_exported
from nnapi_prof.graph.node import ScriptCall, constant_value, is_constant
from nnapi_prof.graph.plan import Engine, Plan, Segment
from nnapi_prof.graph.program import Program
from nnapi_prof.graph.unit import Unit

aten = torch.ops.aten


LEVEL = 30
"""Feature level that a plan is lowered for where its phone was not there: Android 11's."""


def bundle_for(planned: ModelPlan, level: int = LEVEL) -> Bundle:
    """A plan with its regions converted: for its device, or at ``level`` where there was none."""
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
    """Raises UsageError where a model leaves sizes open, which a plan's calls have not."""
    refusal = open_sizes(model.name, model.inputs)
    if refusal is not None:
        raise UsageError(refusal)
    if model.mixed is None and model_kind(model.path) is ModelKind.EXPORTED:
        check_exported(read_exported(model.path), model.name)


def check_exported(program: ExportedProgram, name: str) -> None:
    """The same of a program that was exported."""
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
    """The program with a delegated call in the place of each segment that the bundle's plan has on
    NNAPI, and the calls. With ``whole`` the bundle is one call, all its plans with it.

    The module takes and returns what ``program.module`` does. Changes of dim order, which are no
    change of values, are gone. Raises UsageError where the rest has no form for ExecuTorch.
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
    return placing.finish()


def region_module(
    program: Program, units: Iterable[int]
) -> tuple[fx.GraphModule, tuple[str, ...], tuple[str, ...]]:
    """Some units as a module of their own, and the values that it takes and returns, in order.

    Raises UsageError where they have no form for ExecuTorch.
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
    """Whether a unit changes dim orders alone, which ExecuTorch's values have not."""
    return all(_is_layout(program.nodes[name]) for name in unit.nodes)


def _is_layout(node: fx.Node) -> bool:
    return node.target is aten.clone.default


def plain_module(program: Program) -> fx.GraphModule:
    """The program without a call, and without changes of dim order, which XNNPACK makes itself."""
    placing = _Placing(program)
    placing.units(range(len(program.units.units)))
    return placing.finish()[0]


def _on_nnapi(plan: Plan) -> list[Segment]:
    return [s for s in plan.segments if s.target.engine is Engine.NNAPI]


def _readers(program: Program, plan: Plan, calls: Iterable[DelegatedCall]) -> set[str]:
    """Values that something else than a delegated call reads."""
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
    """One segment as a bundle of its own."""
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
    """The new graph as it grows, segment by segment."""

    def __init__(self, program: Program, inputs: Iterable[str] | None = None) -> None:
        """``inputs`` are values that it takes; None: the program's own."""
        self._program = program
        self._module = fx.GraphModule(torch.nn.Module(), fx.Graph())
        self._calls: list[DelegatedCall] = []
        if inputs is None:
            inputs = (n.name for n in program.module.graph.nodes if n.op == "placeholder")
        self._nodes = {name: self._module.graph.placeholder(name) for name in inputs}

    def units(self, units: Iterable[int]) -> None:
        """Units as they are."""
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
        """``output`` is made of the program's nodes; None: its own."""
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
"""Strides are other than eager's where a value comes from a call."""
